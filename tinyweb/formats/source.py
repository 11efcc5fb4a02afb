"""Where a language model on this machine is read from, whatever its format."""

from __future__ import annotations

from pathlib import Path

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import ModelFolder
from tinyweb.sources.wanted import ggufs, graph_names, listed


def open_model(path: str | Path) -> ModelFolder:
    """A Hugging Face folder, or a GGUF file (or a folder with one) in its place; one of ONNX graphs (`OnnxFolder`), or
    one of these graphs. ModelFormatError where it is damaged or none."""
    path = Path(path)
    if path.suffix == ".onnx" and path.is_file():
        from tinyweb.formats.onnx.folder import OnnxFolder

        return OnnxFolder.of_graph(path)
    if _has_only_graphs(path):
        from tinyweb.formats.onnx.folder import OnnxFolder

        return OnnxFolder(path)
    if (found := gguf_of(path)) is not None:
        from tinyweb.formats.gguf import GgufModel  # a folder does without its modules

        return GgufModel(found)
    return ModelFolder(path)


def gguf_of(path: Path) -> Path | None:
    """The GGUF file that `path` is, whatever it is called, or that it has in place of a model's folder; of a split one
    the first part. ModelFormatError where it has several."""
    if not path.is_dir():
        return path if path.suffix.lower() == ".gguf" or _begins_so(path) else None
    if (path / "config.json").exists():
        return None
    found = ggufs(sorted(p.name for p in path.iterdir() if p.is_file()))
    if len(found) > 1:
        raise ModelFormatError(f"{path} has several models; give the path of one: {listed(found)}")
    return path / found[0] if found else None


def _begins_so(path: Path) -> bool:
    if not path.is_file():  # opening a pipe would wait
        return False
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:  # said by who reads it
        return False


def _has_only_graphs(path: Path) -> bool:
    others = ("*.safetensors", "*.safetensors.index.json", "*.gguf")
    return (path / "config.json").is_file() and bool(graph_names(path)) and not any(any(path.glob(o)) for o in others)
