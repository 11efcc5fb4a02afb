"""Tensors by name from one file of weights, whatever its format, checked as they are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.errors import ModelFormatError
from tinyweb.formats.safetensors import SafetensorsFile


class NamedTensors(ABC):
    """`shapes` lists the tensors of a file; `prefix` stands before each of the names that are asked for."""

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]]):
        self.path, self.shapes, self.prefix = path, shapes, ""

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.shapes

    def __iter__(self) -> Iterator[str]:
        return (n.removeprefix(self.prefix) for n in self.shapes if n.startswith(self.prefix))

    def shape(self, name: str) -> tuple[int, ...]:
        """ModelFormatError where there is no such tensor."""
        if name not in self:
            raise ModelFormatError(
                f"{self.path} has no tensor {self.prefix + name!r}: it is incomplete or of another model"
            )
        return self.shapes[self.prefix + name]

    def read(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """The values, all finite, of a floating-point tensor that must have `shape`; bfloat16 comes as float32."""
        if (found := self.shape(name)) != shape:
            raise ModelFormatError(
                f"{self.path}: tensor {name[:80]!r} has shape {found} where {shape} is expected: it is of another model"
            )
        values = self._values(self.prefix + name)
        if not np.issubdtype(values.dtype, np.floating):
            raise ModelFormatError(
                f"{self.path}: tensor {name[:80]!r} holds {values.dtype}, weights must be floating point: use the "
                "model that was not quantised"
            )
        if not np.isfinite(values).all():
            raise ModelFormatError(
                f"{self.path}: tensor {name[:80]!r} holds infinities or NaNs: download the file again"
            )
        return values

    @abstractmethod
    def _values(self, name: str) -> npt.NDArray[Any]:
        """The values of a tensor of `shapes`, in its shape."""


class SafetensorsWeights(NamedTensors):
    """A single .safetensors file."""

    def __init__(self, path: Path):
        self._file = SafetensorsFile(path)
        super().__init__(path, {n: e.shape for n, e in self._file.entries.items()})

    def _values(self, name: str) -> npt.NDArray[Any]:
        return self._file.read(name)
