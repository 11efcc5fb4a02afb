"""model.js and model.d.ts: the loader a page imports, written for people to read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinyweb.export.expression import shape_text
from tinyweb.export.inspect import entry_kernels, kernels_per_call, kernels_per_token

FILES = ("model.js", "model.d.ts")
TYPED_ARRAYS = {
    "f32": "Float32Array", "i32": "Int32Array", "u32": "Uint32Array", "i16": "Int16Array", "u16": "Uint16Array",
    "i8": "Int8Array", "u8": "Uint8Array", "bool": "Uint8Array", "i64": "BigInt64Array", "u64": "BigUint64Array",
    "f16": "Uint16Array",
}  # fmt: skip
"""What holds elements of a dtype in JavaScript; halves are their bits."""


def write_loader(bundle: Path, manifest: Mapping[str, Any]) -> None:
    """Write the generated loader of `manifest` into `bundle`, where it has been written, from its task's templates."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tinyweb.export", "templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    digest = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    values = loader_values(manifest) | {"manifest_sha256": digest}
    folder = "" if manifest["task"] == "chat" else f"{manifest['task']}/"
    for name in FILES:
        text = environment.get_template(f"{folder}{name}.jinja").render(values)
        (bundle / name).write_text(text, encoding="utf-8", newline="\n")


def loader_values(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the templates may use."""
    if manifest["task"] == "image":
        return _image_values(manifest)
    targets = manifest["targets"]
    task = _chat_values(manifest) if manifest["task"] == "chat" else _function_values(manifest)
    return task | {
        "name": _plain(manifest["name"]),
        "model": manifest["model"],
        "manifest": manifest,
        "states": [b for b in manifest["buffers"] if b["kind"] == "state"],
        "variables": [{**v, "plain": _plain(v["name"])} for v in manifest["variables"]],
        "shards": len(manifest["weights"]["shards"]),
        "weight_bytes": manifest["weights"]["bytes"],
        "state_bytes": sum(b["bytes"] for b in manifest["buffers"] if b["kind"] == "state"),
        "temporary_bytes": max(t["bytes"]["temporaries"] for t in targets.values()),
        "max_threads": targets["wasm"]["memory"]["stacks"]["max_threads"] if "wasm" in targets else 1,
    }


def _image_values(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Of a composite: its parts' bundles have no loaders of their own."""
    image, sizes = manifest["image"], [{k: s[k] for k in ("width", "height")} for s in manifest["image"]["sizes"]]
    parts = [
        {"name": name, "weights": b["weights"], "memory": max(n for key, n in b.items() if key != "weights")}
        for name, b in manifest["bytes"].items()
    ]
    return {
        "name": _plain(manifest["name"]),
        "model": manifest["model"],
        "image": image,
        "defaults": image["defaults"],
        "plain_sizes": sizes,
        "sizes": [f"{s['width']}×{s['height']}" for s in sizes],
        "tiled": any(len(s["tiles"]["rows"]) * len(s["tiles"]["columns"]) > 1 for s in image["sizes"]),
        "parts": parts,
    }


def _chat_values(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "defaults": manifest["chat"]["defaults"],
        "completion": "completion" in manifest["chat"],
        "entries": _entries(manifest),
        "kernels_per_token": kernels_per_token(manifest),
    }


def _function_values(manifest: Mapping[str, Any]) -> dict[str, Any]:
    kernels = kernels_per_call(manifest)
    functions = [
        {
            "name": name,
            "inputs": [_array(a) for a in f["inputs"]],
            "outputs": [_array(a) for a in f["outputs"]],
            "kernels": kernels[name],
        }
        for name, f in manifest["functions"].items()
    ]
    return {"functions": functions}


def _array(array: Mapping[str, Any]) -> dict[str, Any]:
    """An input or output, with the kind of typed array that holds it and how many elements, at most; `sizes`: where
    they vary, numbers and text."""
    dtype = str(array["dtype"])
    told = shape_text(array)
    return {
        **array,
        "plain": _plain(array["name"]),
        "array": TYPED_ARRAYS[dtype],
        "elements": math.prod(array["shape"]),
        "sizes": told if "sizes" in array else None,
        "texts": array.get("texts"),
        "told": [_plain(str(s)) for s in told],
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
    if "verify" in chat:
        does[chat["verify"]["entry"]] = f"reads and checks {chat['verify']['block']} tokens"
    counts: dict[str, int] = {}
    variables: dict[str, list[str]] = {}
    for section in manifest["targets"].values():
        for name, count in entry_kernels(section).items():
            counts[name] = max(counts.get(name, 0), count)
        entries = section.get("entry_points") or next(iter(section["variants"].values()))["entry_points"]
        for name, entry in entries.items():
            variables[name] = sorted({*variables.get(name, []), *entry["variables"]})
    return [{"name": n, "kernels": counts[n], "does": does.get(n, ""), "variables": variables[n]} for n in counts]
