"""Where a language model on this machine is read from, whatever its format."""

from __future__ import annotations

from pathlib import Path

from tinyweb.formats.huggingface import ModelFolder


def open_model(path: str | Path) -> ModelFolder:
    """A Hugging Face folder, or a GGUF file (`.gguf`) in its place. ModelFormatError where it is damaged or neither."""
    path = Path(path)
    if path.suffix == ".gguf" and not path.is_dir():
        from tinyweb.formats.gguf import GgufModel  # a folder does without its modules

        return GgufModel(path)
    return ModelFolder(path)
