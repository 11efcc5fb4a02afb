"""What is added to scores for the distance of key and query."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.tensor import Tensor


def by_distance(table: npt.NDArray[Any], positions: int, farthest: int) -> npt.NDArray[Any]:
    """Rows of a `table` (buckets, …) for the distances key − query from 1 − positions to positions − 1.

    Half of the buckets are for keys behind the query. Of each half the first half is for one distance each, the others
    are on a logarithmic scale up to `farthest`; what is farther has the last one (Raffel et al. 2020).
    """
    half = len(table) // 2
    exact, distance = half // 2, np.arange(1 - positions, positions)
    far = np.maximum(np.abs(distance), 1).astype(np.float32)
    share = np.log(far / np.float32(exact)) / np.float32(np.log(farthest / exact))
    far_bucket = np.minimum(exact + (share * np.float32(half - exact)).astype(np.int64), half - 1)
    bucket = np.where(np.abs(distance) < exact, np.abs(distance), far_bucket)
    found: npt.NDArray[Any] = table[bucket + half * (distance > 0)]
    return found


def distances(tokens: int, device: str | None) -> Tensor:
    """Key less query, (tokens, tokens) int32."""
    place = Tensor.arange(tokens, device=device)
    return place.unsqueeze(0) - place.unsqueeze(1)
