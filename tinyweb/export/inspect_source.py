"""What a model is, before it is exported: read from its files' names, configs and shapes, never from its weights."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyweb.errors import ExportError, ModelFormatError, SourceError, TinywebError, printable
from tinyweb.export.choices import quants
from tinyweb.export.estimate import Shapes, choices
from tinyweb.export.profiles import PAGE_BYTES, PROFILES, Fit, line, size
from tinyweb.formats.huggingface import Checkpoint, ModelFolder
from tinyweb.formats.onnx.folder import OnnxFolder
from tinyweb.formats.source import gguf_of, open_model
from tinyweb.kinds import STORED
from tinyweb.sources import CHAT, DETECT, IMAGE, Progress, locate, model_name
from tinyweb.sources.wanted import ENCODER, graph_names

if TYPE_CHECKING:
    from rich.table import Table

COMMANDS = {
    "chat": "chat", "completion": "chat", "embedding": "embed", "reranking": None, "pictures": "image",
    "detection": "detect", "graph": "onnx",
}  # fmt: skip
"""The `tinyweb export` of each kind of model."""
CALLED = {
    "chat": "a language model", "embed": "a model of vectors (embeddings)", "image": "a model that paints",
    "detect": "an object detector", "api": "a model of texts",
}  # fmt: skip
"""What the models of each `tinyweb export` are called."""
NAME = re.compile(r"[\w.-]{1,40}")
CHECKPOINTS = (".pt", ".pth", ".onnx", ".safetensors")


def locate_any(source: str, progress: Progress | None = None) -> Path:
    """The model at `source`, whatever it is for; SourceError as `locate` raises it for a chat."""
    if source.endswith(".onnx") and (path := Path(source)).is_file():
        return path
    try:
        return locate(source, CHAT, progress)
    except SourceError as error:
        for wanted in (IMAGE, DETECT):
            try:
                return locate(source, wanted, progress)
            except SourceError:
                continue
        raise error from None


def expect(path: Path, command: str) -> None:
    """ExportError where the folder `path` has a model that another command than `tinyweb export` (or `run`) `command`,
    or than `tinyweb api`, takes, by the names of its files and its config: what it lacks of this one says little."""
    found = _command_of(path) if path.is_dir() else None
    # what reads texts has vectors there too
    if found not in (command, None) and (found, command) not in (("chat", "embed"), ("chat", "api"), ("embed", "api")):
        others = f"`tinyweb export {found}` and `tinyweb run {found}`"
        raise ExportError(f"{path} is {CALLED[str(found)]}, not {CALLED[command]}: {others} take it.")


def _command_of(folder: Path) -> str | None:
    """None where there is no config.json that would say it."""
    from tinyweb.models import encoder

    if _of_pictures(folder):
        return "image"
    if not (folder / "config.json").is_file():
        return None
    model = ModelFolder(folder)
    if _of_detection(model):
        return "detect"
    return "embed" if encoder.is_encoder(model.config) else "chat"


def _of_pictures(path: Path) -> bool:
    return path.is_dir() and ((path / "model_index.json").is_file() or (path / "unet").is_dir())


def inspect_source(
    path: Path, dims: Mapping[str, Sequence[int] | str] | None = None, fixed: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """What `tinyweb inspect SOURCE --json` prints of a folder or file that is no exported site.

    `supported` and `reason`: whether it can be exported, and why not. `dims`, `fixed`: symbolic sizes of a graph and
    inputs that are known, as in `OnnxOptions`. Raises ModelFormatError where it is damaged, or no model at all.
    """
    kind, facts = _facts(path, dims or {}, fixed or {})
    report = {
        "name": model_name(path),
        "kind": kind,
        "path": str(path),
        "bytes": _bytes(path),
        "export": COMMANDS[kind],
    }
    return report | {"supported": True, "reason": None} | facts


def _facts(
    path: Path, dims: Mapping[str, Sequence[int] | str], fixed: Mapping[str, float]
) -> tuple[str, dict[str, Any]]:
    if _of_pictures(path):
        return "pictures", _pictures(path)
    if (path / "config.json").is_file() or gguf_of(path) is not None:
        return _texts(open_model(path))
    if path.suffix == ".safetensors" and _original(path):
        return "pictures", _pictures(path)
    checkpoints = any(p.suffix in CHECKPOINTS for p in (path.iterdir() if path.is_dir() else [path]))
    if not checkpoints:
        raise ModelFormatError(
            f"{path} is neither an exported site nor a model: give a folder with config.json or model_index.json, a "
            "GGUF file, or a checkpoint (.pt, .onnx, .safetensors)"
        )
    if path.suffix == ".onnx":
        return _graph(path, dims, fixed)
    return "detection", _detection(path)


def _graph(
    path: Path, dims: Mapping[str, Sequence[int] | str], fixed: Mapping[str, float]
) -> tuple[str, dict[str, Any]]:
    """A detector that `tinyweb export detect` takes, or any other graph: operators, sizes, what is not supported."""
    from tinyweb.export.onnx_report import planned_report
    from tinyweb.formats.onnx import OnnxModel

    found = planned_report(OnnxModel(path), dims, fixed)
    try:
        return "detection", found | {"supported": True, "reason": None} | _detection(path)
    except TinywebError:
        return "graph", found


def _original(path: Path) -> bool:
    """Whether a single file is a Stable Diffusion in its authors' layout."""
    return any(name.startswith("model.diffusion_model.") for name in Checkpoint.of_file(path))


def _texts(folder: ModelFolder) -> tuple[str, dict[str, Any]]:
    """A model of texts: which of them, by its config."""
    from tinyweb.formats.tokenizer import Tokenizer
    from tinyweb.models import encoder, is_embedder
    from tinyweb.models.decoder.architectures import read_config
    from tinyweb.models.encoder.head import has_head

    if isinstance(folder, OnnxFolder):
        return _texts_of_graph(folder)
    checkpoint = folder.weights()
    shapes = {name: checkpoint.entry(name).shape for name in checkpoint}
    facts: dict[str, Any] = {
        "architecture": _word(folder),
        "parameters": sum(map(prod, shapes.values())),
        "stored": folder.stored_types() or _types(checkpoint),
    }
    if encoder.is_encoder(folder.config) or is_embedder(folder):
        kind = "reranking" if encoder.is_encoder(folder.config) and has_head(folder.config) else "embedding"
        return kind, facts | ({} if COMMANDS[kind] else {"supported": False, "reason": "it has no page yet"})
    if _of_detection(folder):
        return "detection", facts | _detection(folder.path)
    try:
        config, _ = read_config(folder.config)
    except (TinywebError, NotImplementedError) as error:
        return "chat", facts | {"supported": False, "reason": str(error)}
    tokenizer = Tokenizer.from_folder(folder)
    found = Shapes.of(config, checkpoint)
    facts |= {
        "layers": len(config.layers),
        "vocab_size": config.vocab_size,
        "context": config.positions,
        "chat_template": tokenizer.template is not None,
        "weight_bytes": {quant: found.weights.bytes(quant) for quant in ([STORED] * found.weights.kept + quants())},
        "devices": _devices(found),
    }
    return "completion" if tokenizer.completes else "chat", facts


def _texts_of_graph(folder: OnnxFolder) -> tuple[str, dict[str, Any]]:
    """Of the graph that is taken where none is named."""
    from tinyweb.formats.onnx import OnnxModel
    from tinyweb.formats.onnx.report import report
    from tinyweb.formats.tokenizer import Tokenizer
    from tinyweb.models import encoder, is_embedder

    seq2seq = next((g for g in graph_names(folder.path) if Path(g).stem.startswith(ENCODER)), None)
    graph = folder.graph(None) if seq2seq is None else folder.path / seq2seq
    facts: dict[str, Any] = {"architecture": _word(folder), "graph": str(graph), "graphs": graph_names(folder.path)}
    facts |= report(OnnxModel(graph))
    if facts["unsupported"]:
        facts["reason"] = "operators are missing: " + ", ".join(u["operator"] for u in facts["unsupported"])
    if seq2seq is not None:
        return "graph", facts  # with its decoder
    if encoder.is_encoder(folder.config) or is_embedder(folder):
        return "embedding", facts
    if not any(p["name"].startswith("past") for p in facts["inputs"]):
        facts |= {"supported": False, "reason": "the graph has no cache (inputs past…), which a chat needs"}
    tokenizer = Tokenizer.from_folder(folder)
    return "completion" if tokenizer.completes else "chat", facts | {"chat_template": tokenizer.template is not None}


def _of_detection(folder: ModelFolder) -> bool:
    return isinstance(folder.config.values.get("yolo"), dict) or folder.config.values.get("model_type") == "yolov8"


def _devices(shapes: Shapes) -> list[dict[str, Any]]:
    """For each kind of device the quantisation, cache and context that `--profile` will take; None: nothing fits."""
    rows = []
    for profile in PROFILES:
        best = next(choices(shapes, profile.memory - PAGE_BYTES), None)
        row = {"profile": profile.name, "title": profile.title, "memory": profile.memory}
        chosen: dict[str, Any] = dict.fromkeys(("quant", "cache", "context", "needs"))
        if best is not None:
            chosen = vars(best) | {"needs": best.needs + PAGE_BYTES}  # as `Fit` counts
        rows.append(row | {"fits": best is not None} | chosen)
    return rows


def _word(folder: ModelFolder) -> str:
    named = folder.config.values.get("architectures")
    if isinstance(named, list) and named and isinstance(named[0], str):
        return named[0]
    return folder.config.word("model_type", "unknown")


def _types(checkpoint: Checkpoint) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in checkpoint:
        entry = checkpoint.entry(name)
        found[entry.dtype.name] = found.get(entry.dtype.name, 0) + prod(entry.shape)
    return found


def _pictures(path: Path) -> dict[str, Any]:
    from tinyweb.models.stable_diffusion.source import Source

    try:
        source = Source.open(path)
    except NotImplementedError as error:
        return {"supported": False, "reason": str(error)}
    d = source.defaults
    return {"architecture": "Stable Diffusion", "size": [d.width, d.height], "scheduler": d.scheduler, "steps": d.steps}


def _detection(path: Path) -> dict[str, Any]:
    from tinyweb.models.yolov8_source import open_source

    source = open_source(path)
    labels: Any = source.labels or ()
    names = list(labels.values()) if isinstance(labels, Mapping) else list(labels)
    return {"architecture": "YOLOv8", "size": list(source.size), "labels": names}


def _bytes(path: Path) -> int:
    """Of the weights' files."""
    if path.is_file():
        return sum(p.stat().st_size for p in _parts(path))
    endings = (".safetensors", ".gguf", ".pt", ".onnx", ".bin")
    return sum(p.stat().st_size for p in path.rglob("*") if p.suffix in endings and p.is_file())


def _parts(path: Path) -> Iterable[Path]:
    """A file, or all that it was split into."""
    stem, _, count = path.stem.rpartition("-of-")
    return path.parent.glob(f"{stem[:-5]}*-of-{count}{path.suffix}") if count.isdecimal() and stem else (path,)


def _count(number: int) -> str:
    return f"{number / 1e6:.1f} million" if number >= 1e5 else str(number)


def _shape(sizes: Sequence[int | str | None] | None) -> str:
    """Names as they are; what is a formula, as exporters write for outputs, only fills lines."""
    if sizes is None:
        return ""
    return f"[{', '.join('?' if s is None or not NAME.fullmatch(str(s)) else str(s) for s in sizes)}]"


def next_line(report: Mapping[str, Any], source: str | None = None) -> str | None:
    """What to do next, with the command: export it, or look at it with other sizes where these do not go together;
    None where nothing can be done. `source`: what the model was called; None: by its path."""
    if not report["export"] or not report["supported"]:
        return None
    graph = report["export"] == "onnx"
    told = [f"--dim {shlex.quote(f'{n}={d[0]}')}" for n, d in report.get("assumed", {}).items() if graph]
    told += [f"--fix {shlex.quote(f'{n}={v:g}')}" for n, v in report.get("fixed", {}).items() if graph]
    source = shlex.quote(source or report["path"])
    if graph and report.get("unplanned"):
        return " ".join(["Try other sizes: tinyweb inspect", source, *told])
    return " ".join([f"Export it: tinyweb export {report['export']}", source, *told, "-o site"])


def source_table(report: Mapping[str, Any]) -> Table:
    """The report for people."""
    from rich.table import Table
    from rich.text import Text

    heading = Text(printable(f"{report['name']} ({report['kind']})"))
    grid = Table(title=heading, title_justify="left", show_header=False, box=None)
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")

    def row(*cells: str) -> None:
        grid.add_row(*(Text(printable(cell)) for cell in cells))  # names of a file are no markup

    if not report["supported"]:
        row("not supported", report["reason"])
    for key in ("architecture", "layers", "vocab_size", "context", "size", "scheduler", "steps"):
        if key in report:
            row(key.replace("_", " "), str(report[key]))
    for key in ("inputs", "outputs"):
        for p in report.get(key, ()):
            row(key[:-1], f"{p['name']}: {p['type']} {_shape(p['shape'])}")
    for name, places in report.get("dynamic", {}).items():
        assumed = report.get("assumed", {}).get(name)
        if assumed is None and "assumed" in report:
            continue  # it follows from the inputs
        told = "" if assumed is None else f", taken as {' … '.join(map(str, dict.fromkeys(assumed)))}"
        row("symbolic size", name + (f" ({', '.join(places)})" if places != [name] else "") + told)
    if operators := report.get("operators"):
        row("operators", ", ".join(f"{name} ({count})" for name, count in operators.items()))
    for key, title in (("unsupported", "not supported"), ("host", "reads values back")):
        for u in report.get(key, ()):
            more = " …" if u["count"] > len(u["nodes"]) else ""
            row(title, f"{u['operator']} (version {u['version']}): {', '.join(u['nodes'])}{more}")
    for remark in report.get("remarks", ()):
        row("remark", remark)
    if "parameters" in report:
        row("parameters", _count(report["parameters"]))
    if "stored" in report:
        row("stored as", ", ".join(f"{t} ({_count(n)})" for t, n in report["stored"].items()))
    if "initializer_bytes" in report:
        row("weights", f"{report['initializer_bytes'] / 1e6:.2f} MB")
    row("files", f"{report['bytes'] / 1e6:.1f} MB")
    if labels := report.get("labels"):
        row("labels", f"{len(labels)}: {', '.join(labels[:8])}{' …' if len(labels) > 8 else ''}")
    if "chat_template" in report:
        row("chat template", "yes" if report["chat_template"] else "no: its page continues texts")
    for quant, count in report.get("weight_bytes", {}).items():
        row(f"as {quant}", f"{count / 1e6:.1f} MB")
    for target, kinds in report.get("memory", {}).items():
        row(f"memory, {target}", ", ".join(f"{kind} {n / 1e6:.2f} MB" for kind, n in kinds.items()))
    if report.get("unplanned"):
        guesses = " Sizes that were guessed may be at fault: say them with --dim." if report.get("assumed") else ""
        row("memory", f"not known with these sizes: {report['unplanned'].removesuffix('.')}.{guesses}")
    for device in report.get("devices", ()):
        if "quant" not in device:
            row(device["title"], line(Fit(**device)))
            continue
        what = " ".join(f"--{option} {device[option]}" for option in ("quant", "cache", "context"))
        bytes_of = f"{size(device['needs'] or 0)} of {size(device['memory'])}"
        row(device["title"], f"{what}: {bytes_of}" if device["fits"] else "nothing fits")
    return grid
