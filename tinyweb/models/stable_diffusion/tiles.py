"""Large pictures in overlapping tiles, whose seams are blended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Tiles:
    """Tiles of one size, in latent pixels; `rows` and `columns`: where they begin. One of each: nothing to blend."""

    height: int
    width: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]


def plan_tiles(height: int, width: int, largest: int, overlap: int) -> Tiles:
    """Tiles no side of which is more than `largest`, as few and as small as cover the picture; neighbours share at
    least `overlap` (less than half of `largest`)."""
    tall, rows = _cut(height, largest, overlap)
    wide, columns = _cut(width, largest, overlap)
    return Tiles(tall, wide, rows, columns)


def _cut(size: int, largest: int, overlap: int) -> tuple[int, tuple[int, ...]]:
    if size <= largest:
        return size, (0,)
    count = -(-(size - overlap) // (largest - overlap))
    tile = -(-(size + (count - 1) * overlap) // count)
    return tile, tuple(round(i * (size - tile) / (count - 1)) for i in range(count))


def ramp(length: int, before: int, behind: int) -> Floats:
    """Weights along one axis of a tile that shares `before` elements with its neighbour before, `behind` with the one
    behind: rising to 1, falling from 1."""
    i = np.arange(length, dtype=np.float64) + 0.5
    weights = np.ones(length)
    if before:
        weights = np.minimum(weights, i / before)
    if behind:
        weights = np.minimum(weights, (length - i) / behind)
    return weights.astype(np.float32)


def ramps(starts: Sequence[int], length: int) -> list[Floats]:
    """The weights of all tiles along one axis."""
    made = []
    for n, start in enumerate(starts):
        before = max(starts[n - 1] + length - start, 0) if n else 0
        behind = max(start + length - starts[n + 1], 0) if n + 1 < len(starts) else 0
        made.append(ramp(length, before, behind))
    return made


def blend(tiles: Tiles, scale: int, compute: Callable[[int, int], npt.NDArray[np.floating | np.uint8]]) -> Floats:
    """The picture (rows, columns, channels) of tiles: Σ w · tile / Σ w.

    `compute(row, column)` gives the tile that begins there, (height · scale, width · scale, channels); `scale` is how
    many of its elements a latent pixel is.
    """
    height, width = tiles.height * scale, tiles.width * scale
    rows, columns = [r * scale for r in tiles.rows], [c * scale for c in tiles.columns]
    total: Floats | None = None
    weight = np.zeros((rows[-1] + height, columns[-1] + width, 1), np.float32)
    for row, across in zip(rows, ramps(rows, height), strict=True):
        for column, along in zip(columns, ramps(columns, width), strict=True):
            tile = compute(row // scale, column // scale).astype(np.float32)
            if total is None:
                total = np.zeros((*weight.shape[:2], tile.shape[2]), np.float32)
            share = (across[:, None] * along[None, :])[:, :, None]
            total[row : row + height, column : column + width] += tile * share
            weight[row : row + height, column : column + width] += share
    assert total is not None
    blended: Floats = total / weight
    return blended
