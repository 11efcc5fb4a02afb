"""Text that is computed from numbers: which of some known words each element is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.graph.ir import Size
from tinyweb.tensor import Tensor


@dataclass(frozen=True)
class Words:
    """`places` (int32, of any shape) says which word of `table` (one axis of str objects) each element is."""

    table: npt.NDArray[Any]
    places: Tensor

    @property
    def shape(self) -> tuple[Size, ...]:
        return tuple(self.places.shape)

    def among(self, places: Tensor) -> Words:
        """Other elements of the same words."""
        return Words(self.table, places)

    def looked_up(self, values: npt.NDArray[Any]) -> Any:
        """Each element's own of `values`, whose first axis is that of the table."""
        return chosen(values, self.places)


def chosen(values: npt.NDArray[Any], places: Tensor) -> Any:
    """The elements, or rows, of an array at places that are computed: `Words` of text, a Tensor of numbers."""
    if values.dtype == object:
        return Words(values, places)
    return Tensor(np.ascontiguousarray(values), device=places.device).take(places, 0)
