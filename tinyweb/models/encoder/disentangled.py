"""What scores know of positions where content and position are apart (DeBERTa; He et al. 2021).

To the score of query i and key j is added how the query fits the position of j seen from i, and how the key does:
Q(x_i) · K(r) + Q(r) · K(x_j), r the row of a table for the distance i − j. All layers read the same table.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tinyweb.models.decoder.config import AttentionConfig
from tinyweb.models.encoder.attention import Attention
from tinyweb.models.encoder.config import DisentangledConfig
from tinyweb.models.encoder.loader import EncoderLoader
from tinyweb.models.encoder.relative import distances
from tinyweb.tensor import Tensor


def rows_by_distance(c: DisentangledConfig, positions: int) -> npt.NDArray[np.int32]:
    """The table's row for the distances query − key from 1 − positions to positions − 1.

    Row `c.reach` is that of distance 0. With buckets, distances up to half of `reach` have a row each, farther ones
    share rows on a logarithmic scale up to `c.farthest`.
    """
    distance = np.arange(1 - positions, positions)
    if c.buckets:
        half, far = c.reach // 2, np.abs(distance)
        share = np.log(np.maximum(far, max(half, 1)).astype(np.float32) / np.float32(max(half, 1)))
        share = share / np.float32(np.log(np.float32((c.farthest - 1) / half)))
        bucket = (np.ceil(share * np.float32(half - 1)) + half).astype(np.int64)
        distance = np.where(far <= half, distance, bucket * np.sign(distance))
    return np.clip(distance + c.reach, 0, 2 * c.reach - 1).astype(np.int32)


class Places:
    """The table of positions, of which a text reads those rows that its distances have."""

    def __init__(self, config: DisentangledConfig, load: EncoderLoader):
        self.config = config
        self.table = load.table(load.names.places, 2 * config.reach)
        self.norm = load.norm(load.prefix + load.names.places_norm, config.norm) if config.norm else None
        self._rows = rows_by_distance(config, load.config.positions)
        self.rows = Tensor(self._rows, device=load.device)

    def near(self, tokens: int) -> tuple[Tensor, Tensor]:
        """For texts of `tokens`: the rows (1, rows, hidden) that they need, and which of them is for query i and key j,
        (tokens, tokens)."""
        middle = len(self._rows) // 2
        first, last = int(self._rows[middle - tokens + 1]), int(self._rows[middle + tokens - 1])
        table = self.table[first : last + 1].unsqueeze(0)
        table = (table if self.norm is None else self.norm(table)).contiguous()
        # query less key, from 1 − tokens on
        place = self.rows[middle - tokens + 1 : middle + tokens] - first
        return table, place.take(tokens - 1 - distances(tokens, self.rows.device)).contiguous()


class DisentangledAttention(Attention):
    """Attention of one layer. Where it has no matrices of its own for positions, those of texts serve both."""

    def __init__(self, config: AttentionConfig, load: EncoderLoader, layer: str, places: Places):
        super().__init__(config, load, layer, None)
        self.places, rows = places.config, config.heads * config.width
        self.place_key, self.place_query = (
            load.linears(layer, (name,), [rows], load.config.hidden_size, True)[0]
            if wanted and not places.config.shared else None
            for name, wanted in ((load.names.place_key, places.config.keys),
                                 (load.names.place_query, places.config.queries))
        )  # fmt: skip

    def nearness(self, query: Tensor, key: Tensor, near: tuple[Tensor, Tensor], activations: str) -> Tensor:
        table, row = near
        found = None
        if self.places.keys:
            # in memory: elements of it are picked
            scores = (query @ self._of_places(table, "key", activations).transpose(-1, -2)).contiguous()
            found = scores.take_along_dim(row.reshape(1, 1, *row.shape), -1)
        if self.places.queries:
            scores = (key @ self._of_places(table, "query", activations).transpose(-1, -2)).contiguous()
            back = scores.take_along_dim(row.transpose(0, 1).reshape(1, 1, *row.shape), -1).transpose(-1, -2)
            found = back if found is None else found + back
        assert found is not None
        return found * self.config.scale

    def _of_places(self, table: Tensor, part: str, activations: str) -> Tensor:
        """Keys or queries (1, heads, rows, width) of positions."""
        c, own = self.config, self.place_key if part == "key" else self.place_query
        if own is not None:
            made = own(table, activations)
        else:
            made = self.qkv(table, activations)
            begin = c.heads * c.width if part == "key" else 0
            made = made[..., begin : begin + c.heads * c.width]
        return made.reshape(1, -1, c.heads, c.width).permute(0, 2, 1, 3).contiguous()
