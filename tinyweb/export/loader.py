"""model.js and model.d.ts: the loader a page imports, written for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinyweb.export.inspect import entry_kernels, kernels_per_token

FILES = ("model.js", "model.d.ts")


def write_loader(bundle: Path, manifest: Mapping[str, Any]) -> None:
    """Write the generated loader of `manifest` into `bundle`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tinyweb.export", "templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    values = loader_values(manifest)
    for name in FILES:
        text = environment.get_template(f"{name}.jinja").render(values)
        (bundle / name).write_text(text, encoding="utf-8", newline="\n")


def loader_values(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the templates may use."""
    targets = manifest["targets"]
    return {
        "name": _plain(manifest["name"]),
        "model": manifest["model"],
        "defaults": manifest["chat"]["defaults"],
        "entries": _entries(manifest),
        "states": [b for b in manifest["buffers"] if b["kind"] == "state"],
        "variables": manifest["variables"],
        "shards": len(manifest["weights"]["shards"]),
        "weight_bytes": manifest["weights"]["bytes"],
        "state_bytes": sum(b["bytes"] for b in manifest["buffers"] if b["kind"] == "state"),
        "temporary_bytes": max(t["bytes"]["temporaries"] for t in targets.values()),
        "kernels_per_token": kernels_per_token(manifest),
        "max_threads": targets["wasm"]["memory"]["stacks"]["max_threads"] if "wasm" in targets else 1,
    }


def _plain(name: str) -> str:
    """A name that cannot end the comment it stands in."""
    return name.replace("*/", "* /").replace("\n", " ").replace("\r", " ")


def _entries(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    chat = manifest["chat"]
    does = {p["entry"]: f"reads up to {p['block']} tokens of the prompt" for p in chat["prefill"]}
    does[chat["decode"]] = "reads one token: logits of the next"
    does[chat["sample"]] = "logits to a token, as the settings say"
    does[chat["greedy"]] = "logits to the likeliest token"
    counts: dict[str, int] = {}
    variables: dict[str, list[str]] = {}
    for section in manifest["targets"].values():
        for name, count in entry_kernels(section).items():
            counts[name] = max(counts.get(name, 0), count)
        entries = section.get("entry_points") or next(iter(section["variants"].values()))["entry_points"]
        for name, entry in entries.items():
            variables[name] = sorted({*variables.get(name, []), *entry["variables"]})
    return [{"name": n, "kernels": counts[n], "does": does.get(n, ""), "variables": variables[n]} for n in counts]
