"""What an exported site needs of the device that opens it, read from its manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from tinyweb.errors import ExportError
from tinyweb.export.profiles import Fit, fits, line
from tinyweb.export.site import FORMAT, MANIFEST, VERSION
from tinyweb.export.weights import combined_sha256

if TYPE_CHECKING:
    from rich.table import Table

MAX_MANIFEST = 64 * 2**20  # bytes; the loader has the same bound


def read_manifest(site: Path) -> dict[str, Any]:
    """The manifest of a site (or of its model/ folder); ExportError where it is missing or no manifest."""
    path = site / MANIFEST
    if not path.is_file() and (site / "manifest.json").is_file():
        path = site / "manifest.json"
    try:
        with path.open("rb") as file:
            text = file.read(MAX_MANIFEST + 1)
    except FileNotFoundError:
        raise ExportError(
            f"{site} is no exported site (there is no {MANIFEST}): give what `tinyweb export` wrote."
        ) from None
    except NotADirectoryError:
        raise ExportError(f"{site} is a file: give the folder that `tinyweb export` wrote.") from None
    if len(text) > MAX_MANIFEST:
        raise ExportError(f"{path} is too large for a manifest: export the model again.")
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{path} is damaged ({error}): export the model again.") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ExportError(f"{path} is not the manifest of a tinyweb bundle: export the model again.")
    if manifest.get("version") != VERSION:
        raise ExportError(
            f"{path} has version {manifest.get('version')}, this program reads {VERSION}: export the model again."
        )
    return manifest


def inspect_site(site: Path, verify: bool = False) -> dict[str, Any]:
    """Everything `tinyweb inspect --json` prints; with `verify` the hashes of all files are checked first."""
    manifest = read_manifest(site)
    model = site if (site / "manifest.json").is_file() else site / "model"
    try:
        if "parts" in manifest:
            return _composite(manifest, model, verify)
        report = _report(manifest, model)
        if verify:
            report["verified"] = _verify(manifest, model)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        detail = f"{type(error).__name__}: {error}"
        raise ExportError(f"The manifest of {site} is damaged ({detail}): export the model again.") from None
    return report


def _composite(manifest: Mapping[str, Any], model: Path, verify: bool) -> dict[str, Any]:
    """Of a model in parts that take turns in memory: the reports of all, sums of what adds up."""
    if verify:
        _verify_files(manifest["integrity"], model)
    parts: dict[str, Any] = {}
    for name, folder in manifest["parts"].items():
        _inside(model, f"{folder}manifest.json")
        parts[name] = inspect_site(model / folder, verify)
    report = {
        "name": manifest["name"],
        "task": manifest["task"],
        "version": manifest["version"],
        "model": manifest["model"],
        "bytes": {
            "download": sum(p["bytes"]["download"] for p in parts.values()),
            "largest_part": max(
                sum(p["bytes"][k] for k in ("weights", "state", "temporaries")) for p in parts.values()
            ),
        },
        "weights": {"shards": sum(p["weights"]["shards"] for p in parts.values())},
        "parts": parts,
        "devices": _of_parts([p["devices"] for p in parts.values()]),
    }
    return report | ({"verified": True} if verify else {})


def _of_parts(devices: Sequence[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Parts take turns in memory: on each device, the one that needs most."""
    by_device: dict[str, list[Mapping[str, Any]]] = {}
    for part in devices:
        for device in part:
            by_device.setdefault(device["profile"], []).append(device)
    return [max(found, key=lambda device: (not device["fits"], device["needs"])) for found in by_device.values()]


def _report(manifest: Mapping[str, Any], model: Path) -> dict[str, Any]:
    targets: dict[str, Any] = {}
    for target, section in manifest["targets"].items():
        variants = {n: _variant(v, model) for n, v in section["variants"].items()}
        counts = entry_kernels(section)
        targets[target] = {
            "bytes": section["bytes"] | {"total": sum(section["bytes"].values())},
            "variants": variants,
            "entry_points": {name: {"kernels": count} for name, count in counts.items()},
        }
        if "limits" in section:
            targets[target]["limits"] = section["limits"]
        if "memory" in section:
            targets[target]["memory_bytes"] = section["memory"]["pages"] * 65536
    kinds: dict[str, int] = {}
    for buffer in manifest["buffers"]:
        kinds[buffer["kind"]] = kinds.get(buffer["kind"], 0) + buffer["bytes"]
    return {
        "name": manifest["name"],
        "task": manifest["task"],
        "version": manifest["version"],
        "model": manifest["model"],
        **(_chat_kernels(manifest) if manifest["task"] == "chat" else {"kernels_per_call": kernels_per_call(manifest)}),
        "bytes": {
            "weights": kinds.get("weight", 0),
            "state": kinds.get("state", 0),
            "temporaries": max(t["bytes"]["temporaries"] for t in targets.values()),
            "download": manifest["weights"]["bytes"],
        },
        "limits": targets.get("webgpu", {}).get("limits", {}),
        "variants": {name: list(t["variants"]) for name, t in targets.items()},
        "weights": {"shards": len(manifest["weights"]["shards"]), "sha256": manifest["weights"]["sha256"]},
        "targets": targets,
        "devices": [
            fit.record() for fit in fits(manifest, {n: entry_kernels(s) for n, s in manifest["targets"].items()})
        ],
    }


def _chat_kernels(manifest: Mapping[str, Any]) -> dict[str, Any]:
    by_target = _per_token(manifest)
    return {"kernels_per_token": kernels_per_token(manifest), "kernels_per_token_by_target": by_target}


def kernels_per_token(manifest: Mapping[str, Any]) -> int:
    """Kernels that one token of an answer costs: the most of any target, whether sampled or greedy."""
    return max(count for by in _per_token(manifest).values() for count in by.values())


def kernels_per_call(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Kernels that one call of each function costs: the most of any target."""
    counts = [entry_kernels(section) for section in manifest["targets"].values()]
    return {name: max(c[name] for c in counts) for name in manifest["functions"]}


def _per_token(manifest: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    chat, table = manifest["chat"], {}
    for target, section in manifest["targets"].items():
        counts = entry_kernels(section)
        table[target] = {by: counts[chat["decode"]] + counts[chat[by]] for by in ("sample", "greedy")}
    return table


def entry_kernels(section: Mapping[str, Any]) -> dict[str, int]:
    """Kernels of each entry point: the most that any variant launches."""
    if "entry_points" in section:
        return {name: int(e["kernels"]) for name, e in section["entry_points"].items()}
    counts: dict[str, int] = {}
    for variant in section["variants"].values():
        for name, entry in variant["entry_points"].items():
            counts[name] = max(counts.get(name, 0), len(entry["dispatches"]))
    return counts


def _variant(variant: Mapping[str, Any], model: Path) -> dict[str, Any]:
    files = [variant["file"], *variant.get("shared", ())]
    size = sum(_inside(model, f).stat().st_size for f in files)
    shown: dict[str, Any] = {"file": variant["file"], "file_bytes": size}
    if "kernels" in variant:
        shown |= {"features": variant["features"], "kernels": len(variant["kernels"])}
    if "threads" in variant:
        shown["threads"] = variant["threads"]
    return shown


def _inside(model: Path, name: str) -> Path:
    """A file of the bundle; ExportError where a manifest points out of its folder or to nothing."""
    parts = PurePosixPath(name).parts
    path = model.joinpath(*parts)
    if name.startswith("/") or ".." in parts or not path.is_file():
        raise ExportError(f"{path} is missing: export the model again.")
    return path


def _verify(manifest: Mapping[str, Any], model: Path) -> bool:
    weights = manifest["weights"]
    _verify_files({**manifest["integrity"], **{shard["file"]: shard for shard in weights["shards"]}}, model)
    if combined_sha256([s["sha256"] for s in weights["shards"]]) != weights["sha256"]:
        raise ExportError(
            f"{model / 'manifest.json'} is damaged (the hash of all weights is wrong): export the model again."
        )
    return True


def _verify_files(rows: Mapping[str, Mapping[str, Any]], model: Path) -> None:
    for name, row in rows.items():
        path = _inside(model, name)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != row["sha256"] or path.stat().st_size != row["bytes"]:
            raise ExportError(
                f"{path} is damaged (its SHA-256 is not the one in the manifest): export the model again."
            )


def table(report: Mapping[str, Any]) -> Table:
    """The report for people."""
    from rich.table import Table

    model = report["model"]
    grid = Table(title=f"{report['name']} ({report['task']})", title_justify="left", show_header=False, box=None)
    grid.add_column(style="bold")
    grid.add_column()
    grid.add_row("model", ", ".join(f"{key} {value}" for key, value in model.items()))
    grid.add_row("download", f"{_mb(report['bytes']['download'])} in {report['weights']['shards']} file(s)")
    if report.get("verified"):
        grid.add_row("", "every hash is right")
    for part, inner in report.get("parts", {}).items():
        grid.add_row("", "")
        grid.add_row(part, f"{_mb(inner['bytes']['download'])} to download")
        _add_targets(grid, inner)
    if "targets" in report:
        _add_targets(grid, report)
    grid.add_row("", "")
    for device in report["devices"]:
        grid.add_row(device["title"], line(Fit(**device)))
    return grid


def _add_targets(grid: Table, report: Mapping[str, Any]) -> None:
    for name, target in report["targets"].items():
        grid.add_row("", "")
        grid.add_row(
            name, "variants " + ", ".join(f"{v} ({_kb(d['file_bytes'])})" for v, d in target["variants"].items())
        )
        if "kernels_per_token_by_target" in report:
            by = report["kernels_per_token_by_target"][name]
            grid.add_row("  kernels per token", f"{by['sample']} with sampling, {by['greedy']} greedy")
        grid.add_row("  kernels", ", ".join(f"{e} {d['kernels']}" for e, d in target["entry_points"].items()))
        grid.add_row("  memory", ", ".join(f"{kind} {_mb(count)}" for kind, count in target["bytes"].items()))
        if "limits" in target:
            grid.add_row("  limits needed", "\n".join(f"{limit} {value}" for limit, value in target["limits"].items()))


def _mb(count: int) -> str:
    return f"{count / 1e6:.2f} MB"


def _kb(count: int) -> str:
    return f"{count / 1e3:.1f} kB"
