"""Where a language model on this machine is read from, whatever its format."""

from __future__ import annotations

from pathlib import Path

from tinyweb.formats.huggingface import ModelFolder
from tinyweb.sources.wanted import graph_names


def open_model(path: str | Path) -> ModelFolder:
    """A Hugging Face folder, or a GGUF file (`.gguf`) in its place; one of ONNX graphs (`OnnxFolder`), or one of these
    graphs. ModelFormatError where it is damaged or none."""
    path = Path(path)
    if path.suffix == ".onnx" and path.is_file():
        from tinyweb.formats.onnx.folder import OnnxFolder

        return OnnxFolder.of_graph(path)
    if _has_only_graphs(path):
        from tinyweb.formats.onnx.folder import OnnxFolder

        return OnnxFolder(path)
    if path.suffix == ".gguf" and not path.is_dir():
        from tinyweb.formats.gguf import GgufModel  # a folder does without its modules

        return GgufModel(path)
    return ModelFolder(path)


def _has_only_graphs(path: Path) -> bool:
    others = ("*.safetensors", "*.safetensors.index.json", "*.gguf")
    return (path / "config.json").is_file() and bool(graph_names(path)) and not any(any(path.glob(o)) for o in others)
