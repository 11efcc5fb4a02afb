"""From a checkpoint's tensors to an encoder's parts: those of decoders, and tables that they lack."""

from __future__ import annotations

from tinyweb.formats.huggingface import Checkpoint
from tinyweb.models.decoder.loader import Array, Loader
from tinyweb.models.encoder.config import EncoderConfig, EncoderNames
from tinyweb.nn.parameters import parameter
from tinyweb.tensor import Tensor

FIRST_RELEASE = {".weight": ".gamma", ".bias": ".beta"}  # what norms are called in checkpoints of BERT's first release


class EncoderLoader(Loader):
    """Reads the parameters of one encoder."""

    names: EncoderNames

    def __init__(
        self, config: EncoderConfig, names: EncoderNames, checkpoint: Checkpoint, quant: str | None, device: str | None
    ):
        super().__init__(config, names, checkpoint, quant, device)

    def table(self, name: str, rows: int, first: int = 0) -> Tensor:
        """A table (rows, hidden) of embeddings, without the rows before the `first` one."""
        values = self._read(f"{self.prefix}{name}.weight", (rows, self.config.hidden_size))
        return parameter(values[first:], self.device)

    def _read(self, name: str, shape: tuple[int, ...]) -> Array:
        start, dot, end = name.rpartition(".")
        first = start + FIRST_RELEASE.get(dot + end, dot + end)
        return super()._read(first if name not in self.checkpoint and first in self.checkpoint else name, shape)
