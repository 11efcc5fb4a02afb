"""From a checkpoint's tensors to an encoder's parts: those of decoders, and tables that they lack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Checkpoint
from tinyweb.models.decoder.config import ModelConfig
from tinyweb.models.decoder.loader import Array, Loader
from tinyweb.models.encoder.config import EncoderNames
from tinyweb.models.encoder.relative import by_distance
from tinyweb.nn.layers import Linear
from tinyweb.nn.parameters import parameter
from tinyweb.nn.precision import Recipe
from tinyweb.tensor import Tensor

FOLLOWING = ("inv_freq", "position_ids")  # what some checkpoints hold though it follows from the configuration
FIRST_RELEASE = {".weight": ".gamma", ".bias": ".beta"}  # what norms are called in checkpoints of BERT's first release


class EncoderLoader(Loader):
    """Reads the parameters of one encoder."""

    names: EncoderNames

    def __init__(
        self,
        config: ModelConfig,
        names: EncoderNames,
        checkpoint: Checkpoint,
        quant: str | Recipe | None,
        device: str | None,
    ):
        super().__init__(config, names, checkpoint, quant, device)
        self._seen: set[str] = set()

    def linears(self, layer: str, names: Sequence[str], rows: list[int], width: int, bias: bool) -> list[Linear]:
        made = super().linears(layer, names, rows, width, bias)
        return made[::-1] if len(names) < len(rows) and self.names.up_first else made

    def table(self, name: str, rows: int, first: int = 0) -> Tensor:
        """A table (rows, hidden) of embeddings, without the rows before the `first` one."""
        values = self._read(f"{self.prefix}{name}.weight", (rows, self.config.hidden_size))
        return parameter(values[first:], self.device)

    def plain(self, name: str, rows: int, bias: bool) -> Linear:
        """A matrix (rows, hidden) that is never quantised."""
        weight = self._dense(self._read(name + ".weight", (rows, self.config.hidden_size)))
        return Linear.of(weight, self.vector(name + ".bias", rows) if bias else None)

    def relative(self, buckets: int, farthest: int, heads: int) -> Tensor:
        """What is added to scores, (2 · positions − 1, heads): for key less query from 1 − positions on."""
        table = self._read(f"{self.prefix}{self.names.relative}.weight", (buckets, heads))
        return parameter(by_distance(table.astype(np.float32), self.config.positions, farthest), self.device)

    def check_all_read(self, start: str) -> None:
        """ModelFormatError for a tensor below `start` that nobody has read: without it the model would be another."""
        for name in self.checkpoint:
            if name.startswith(start) and name not in self._seen and not name.endswith(FOLLOWING):
                raise ModelFormatError(
                    f"{self.checkpoint.folder} holds {name!r}, for which this architecture has no place: it is another "
                    "network, which is not supported"
                )

    def _stored(self, name: str, shape: tuple[int, ...]) -> Array | None:
        rows = super()._stored(name, shape)
        if rows is not None:
            self._seen.add(name)
        return rows

    def _read(self, name: str, shape: tuple[int, ...]) -> Array:
        start, dot, end = name.rpartition(".")
        first = start + FIRST_RELEASE.get(dot + end, dot + end)
        name = first if name not in self.checkpoint and first in self.checkpoint else name
        self._seen.add(name)
        return super()._read(name, shape)
