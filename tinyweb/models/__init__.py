"""Models, one readable file or folder each; `load` reads a language model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinyweb.models.decoder import Decoder, ModelSource


def load(
    source: str | Path | ModelSource, quant: str | None = None, context: int | None = None, device: str | None = None,
    activations: str | None = None,
) -> Decoder:  # fmt: skip
    """`tinyweb.models.decoder.load`, which says more."""
    from tinyweb.models import decoder  # other models do without its modules

    return decoder.load(source, quant, context, device, activations)
