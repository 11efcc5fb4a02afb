"""manifest.json: everything a loader must know (docs/bundle.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tinyweb.export.memory import Memory
from tinyweb.export.site import FORMAT, VERSION, write_json
from tinyweb.export.weights import Segment, ShardWriter
from tinyweb.graph.ir import UOp
from tinyweb.models.chat import prefill_name, verify_name


@dataclass(frozen=True)
class ChatFacts:
    """What a chat loader needs besides the plans, as in docs/bundle.md.

    `prefill`: block sizes, largest first. `verify`: tokens that are checked at once, 0 where none can be. `rewinds`:
    whether a text can go on from any of its positions. `begin`: of a base model, which continues texts, the ids that
    each begins with.
    """

    eos: tuple[int, ...]
    bos: int | None
    prefill: tuple[int, ...]
    buffers: Mapping[str, UOp]  # "ids", "logits", "sampling_f", "sampling_i", and with `verify` "verified"
    defaults: Mapping[str, float | int]
    verify: int = 0
    rewinds: bool = True
    begin: tuple[int, ...] | None = None


def weights_section(writer: ShardWriter) -> dict[str, Any]:
    """`weights`, when all shards are finished."""
    return {"bytes": writer.bytes, "sha256": writer.sha256, "shards": [asdict(s) for s in writer.shards]}


def buffers_section(memory: Memory, segments: Mapping[int, list[Segment]]) -> list[dict[str, Any]]:
    """`buffers`; `segments` by id for every weight."""
    rows: list[dict[str, Any]] = []
    for id, n in enumerate(memory.named):
        row = {
            "id": id,
            "name": n.name,
            "kind": n.kind,
            "dtype": n.dtype.short,
            "shape": list(n.shape),
            "bytes": n.nbytes,
        }
        if n.kind == "weight":
            row["segments"] = [asdict(s) for s in segments[id]]
        rows.append(row)
    return rows


def variables_section(variables: tuple[UOp, ...]) -> list[dict[str, Any]]:
    """`variables`, in slot order."""
    return [{"name": v.arg[0], "min": v.arg[1], "max": v.arg[2]} for v in variables]


def chat_section(facts: ChatFacts, memory: Memory) -> dict[str, Any]:
    """`chat`."""
    section: dict[str, Any] = {"eos": list(facts.eos)}
    if facts.bos is not None:
        section["bos"] = facts.bos
    if facts.begin is not None:
        section["completion"] = {"begin": list(facts.begin)}
    ids = {name: memory.ids[buffer] for name, buffer in facts.buffers.items()}
    if not facts.rewinds:
        section["rewinds"] = False
    if facts.verify:
        section["verify"] = {"entry": verify_name(facts.verify), "block": facts.verify, "tokens": ids.pop("verified")}
    return section | {
        "prefill": [{"entry": prefill_name(b), "block": b} for b in facts.prefill],
        "decode": "decode",
        "sample": "sample",
        "greedy": "greedy",
        **ids,
        "defaults": dict(facts.defaults),
    }


def write_manifest(bundle: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Write manifest.json, when every file that it names is in `bundle`; the manifest with `integrity`: size and
    SHA-256 of each of them but the shards, which have these in `weights`.
    """
    written = {**manifest, "integrity": {name: _file_row(bundle / name) for name in sorted(_named_files(manifest))}}
    write_json(bundle / "manifest.json", written)
    return written


def _named_files(manifest: Mapping[str, Any]) -> set[str]:
    """What a loader reads beside manifest.json and weights, relative to the bundle."""
    variants = [v for target in manifest.get("targets", {}).values() for v in target["variants"].values()]
    parts = [f"{folder}manifest.json" for folder in manifest.get("parts", {}).values()]
    kernels = (file for v in variants for file in (v["file"], *v.get("shared", ())))
    return {*manifest["files"].values(), *kernels, *parts}


def _file_row(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def bundle_manifest(
    task: str,
    name: str,
    model: Mapping[str, Any],
    files: Mapping[str, str],
    writer: ShardWriter,
    segments: Mapping[int, list[Segment]],
    memory: Memory,
    variables: tuple[UOp, ...],
    sections: Mapping[str, Any],
    targets: Mapping[str, Any],
) -> dict[str, Any]:
    """The manifest of a bundle, for `write_manifest`; `sections` are what its task needs besides the plans."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "task": task,
        "name": name,
        "model": dict(model),
        "files": dict(files),
        "weights": weights_section(writer),
        "buffers": buffers_section(memory, segments),
        "variables": variables_section(variables),
        **sections,
        "targets": dict(targets),
    }


def manifest(
    name: str,
    model: Mapping[str, Any],
    files: Mapping[str, str],
    writer: ShardWriter,
    segments: Mapping[int, list[Segment]],
    memory: Memory,
    variables: tuple[UOp, ...],
    chat: ChatFacts,
    targets: Mapping[str, Any],
) -> dict[str, Any]:
    """The manifest of a chat model, for `write_manifest`."""
    sections = {"chat": chat_section(chat, memory)}
    return bundle_manifest("chat", name, model, files, writer, segments, memory, variables, sections, targets)
