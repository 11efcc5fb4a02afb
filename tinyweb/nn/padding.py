"""Borders around the last axes as layers, with PyTorch's arguments and names; `Tensor.pad` in its modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tinyweb.tensor import Tensor


class Padding:
    """A border around the last axes: one width for all sides, or two for each axis, those of the last axis first."""

    axes: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: int | Sequence[int]):
        name = type(self).__name__
        self.padding = (padding,) * (2 * self.axes) if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != 2 * self.axes:
            raise ValueError(f"{name}: padding must be one number or {2 * self.axes}, got {padding}")

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim not in (self.axes + 1, self.axes + 2):
            raise ValueError(f"{type(self).__name__}: needs {self.axes + 1} or {self.axes + 2} axes, got {x.shape}")
        return self._padded(x)

    def _padded(self, x: Tensor) -> Tensor:
        return x.pad(self.padding, self.mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.padding})"


class ConstantPadding(Padding):
    """A border of one value."""

    mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float):
        super().__init__(padding)
        self.value = value

    def _padded(self, x: Tensor) -> Tensor:
        return x.pad(self.padding, value=self.value)


def _layer(name: str, mode: str, axes: int) -> type[Padding]:
    text = f"`Tensor.pad` around {axes} {'axes' if axes > 1 else 'axis'}, in mode {mode}."
    return type(name, (Padding,), {"axes": axes, "mode": mode, "__doc__": text, "__module__": __name__})


def _constant(name: str, axes: int) -> type[ConstantPadding]:
    text = f"`Tensor.pad` around {axes} {'axes' if axes > 1 else 'axis'} with a value."
    return type(name, (ConstantPadding,), {"axes": axes, "__doc__": text, "__module__": __name__})


ZeroPad1d = _layer("ZeroPad1d", "constant", 1)
ZeroPad2d = _layer("ZeroPad2d", "constant", 2)
ZeroPad3d = _layer("ZeroPad3d", "constant", 3)
ConstantPad1d = _constant("ConstantPad1d", 1)
ConstantPad2d = _constant("ConstantPad2d", 2)
ConstantPad3d = _constant("ConstantPad3d", 3)
ReflectionPad1d = _layer("ReflectionPad1d", "reflect", 1)
ReflectionPad2d = _layer("ReflectionPad2d", "reflect", 2)
ReflectionPad3d = _layer("ReflectionPad3d", "reflect", 3)
ReplicationPad1d = _layer("ReplicationPad1d", "replicate", 1)
ReplicationPad2d = _layer("ReplicationPad2d", "replicate", 2)
ReplicationPad3d = _layer("ReplicationPad3d", "replicate", 3)
CircularPad1d = _layer("CircularPad1d", "circular", 1)
CircularPad2d = _layer("CircularPad2d", "circular", 2)
CircularPad3d = _layer("CircularPad3d", "circular", 3)
