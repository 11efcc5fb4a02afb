"""Padding in all its modes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tinyweb.array.joining import Joining
from tinyweb.array.movement import as_shape
from tinyweb.array.packing import check_fits
from tinyweb.dtype import dtypes
from tinyweb.graph.autodiff import gradient
from tinyweb.graph.ir import Ops, Size, UOp, larger_size, size_add, size_sub, smaller_size

MODES = ("constant", "reflect", "replicate", "circular")


class Padding(Joining):
    """`pad`."""

    __slots__ = ()

    def pad(self, padding: Sequence[Any], mode: str = "constant", value: float | None = None) -> Self:
        """A copy with elements put around (or, with negative numbers, cut off).

        `padding` is ((before, after), …) per axis (None for none), or PyTorch's flat list, which begins at the last
        axis. "constant" puts `value`; "reflect" mirrors at the outermost element, which is not repeated (fewer than
        the axis has), "replicate" repeats that element, "circular" goes on at the other end (at most once around, of
        what negative numbers leave).

        ValueError where the numbers do not go with the shape or the mode.
        """
        if mode not in MODES:
            raise ValueError(f"pad: mode is one of {', '.join(MODES)}, got {mode!r}")
        if mode != "constant" and value:
            raise ValueError(f"pad: mode {mode!r} has no use for the value {value}")
        value = 0.0 if value is None else value
        around = self._around(padding)
        if mode in ("circular", "constant"):  # what is cut off is not there to be continued, and no more than there is
            kept = self._cut_off(around, padding)
            around = [(_positive(b), _positive(a)) for b, a in around]
            out = kept._pad_around(around, padding, mode, value)
        else:
            out = self._pad_around(around, padding, mode)._cut_off(around, padding)
        return out if out.storage is not self.storage else out._same()  # a copy also where nothing is put around

    def _pad_around(
        self, around: list[tuple[Size, Size]], padding: Sequence[Any], mode: str, value: float = 0.0
    ) -> Self:
        """Put around what is positive."""
        if mode == "constant":
            t = self._pad_constant([(_positive(b), _positive(a)) for b, a in around], value)
        else:
            t = self
            for axis, (before, after) in enumerate(around):
                t = t._pad_copied(axis, _positive(before), _positive(after), mode)
        return t

    def _cut_off(self, around: list[tuple[Size, Size]], padding: Sequence[Any]) -> Self:
        """Cut off what is negative."""
        cut: list[tuple[Size, Size]] = []
        for (before, after), n in zip(around, self.shape, strict=True):
            begin, end = larger_size(size_sub(0, before), 0), size_add(n, smaller_size(after, 0))
            if isinstance(end, int) and end < begin:
                raise ValueError(f"pad: {padding} cuts more off than {self.shape} has")
            cut.append((begin, end))
        return self.shrink(cut)

    def _around(self, padding: Sequence[Any]) -> list[tuple[Size, Size]]:
        """(before, after) for every axis."""
        if isinstance(padding, str) or not isinstance(padding, Sequence):
            raise TypeError(f"pad: padding must be a list of numbers or pairs, got {padding!r}")
        if not any(p is None or isinstance(p, Sequence) for p in padding):
            flat: list[Any] = list(as_shape([tuple(padding)]))
            if len(flat) % 2 or len(flat) > 2 * self.ndim:
                raise ValueError(f"pad: {tuple(flat)} needs two numbers per axis, of at most the axes of {self.shape}")
            pairs = [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)][::-1]
            return [(0, 0)] * (self.ndim - len(pairs)) + pairs
        full: list[Any] = [(0, 0) if p is None else as_shape([p]) for p in padding]
        if len(full) != self.ndim or any(len(p) != 2 for p in full):
            raise ValueError(f"pad: {tuple(padding)} needs a pair (before, after) for each axis of {self.shape}")
        return full

    def _pad_constant(self, around: list[tuple[Size, Size]], value: float) -> Self:
        if not self.dtype.is_float and not math.isfinite(value):
            raise ValueError(f"pad: {value} is no value of {self.dtype.name}")
        check_fits(value, self.dtype)
        padded = self._pad(around)
        if padded is self or (value == 0 and math.copysign(1.0, value) > 0):
            return padded
        inside = self._new(UOp.const(True, dtypes.bool))._broadcast_to(self.shape)._pad(around)
        return self._new(UOp(Ops.WHERE, self.dtype, (inside.uop, padded.uop, UOp.const(value, self.dtype))))

    def _pad_copied(self, axis: int, before: Size, after: Size, mode: str) -> Self:
        """One axis continued with elements of its own."""
        n = self.shape[axis]
        if before == 0 and after == 0:
            return self
        if not isinstance(n, int) or not isinstance(before, int) or not isinstance(after, int):
            return self._pad_varying(axis, before, after, mode)
        most = {"reflect": n - 1, "circular": n}.get(mode)
        if n == 0 or (most is not None and max(before, after) > most):
            raise ValueError(
                f"pad: mode {mode!r} can add {0 if n == 0 else most} at each end of axis {axis} of {self.shape}, "
                f"not ({before}, {after})"
            )
        if mode == "replicate":
            wide = [tuple(p if i == axis else s for i, s in enumerate(self.shape)) for p in (before, after)]
            head, tail = (
                self._along(axis, 0, 1)._broadcast_to(wide[0]),
                self._along(axis, n - 1, n)._broadcast_to(wide[1]),
            )
        elif mode == "reflect":
            head, tail = self._along(axis, 1, before + 1).flip(axis), self._along(axis, n - 1 - after, n - 1).flip(axis)
        else:
            head, tail = self._along(axis, n - before, n), self._along(axis, 0, after)
        joined = Joining.cat([head, self, tail], axis=axis)
        # the same by one load of each element; its gradient would be a scatter
        at = UOp(Ops.IOTA, dtypes.index, (), before + n + after) + -before
        if mode == "reflect":
            at = at.maximum(-at)
            at = -(-at).maximum(at + -2 * (n - 1))
        elif mode == "circular":
            at = (at < 0).where(at + n, (at < n).where(at, at + -n))
        index = -(-at.maximum(0)).maximum(1 - n)
        picked = self._new(UOp(Ops.TAKE, self.dtype, (self.movedim(axis, 0).uop, index), 0)).movedim(0, axis)

        def rule(g: Self) -> list[Self]:
            (part,) = gradient(joined.uop, g.uop, [self.uop])
            return [self._new(g.uop if part is None else part)]

        return picked._with_gradients([self], rule) if self.dtype.is_float else picked

    def _pad_varying(self, axis: int, before: Size, after: Size, mode: str) -> Self:
        """As `_pad_copied` where sizes are symbolic, by the places of the elements."""
        n = self.shape[axis]
        last = self._operand(size_sub(n, 1), "pad")
        at = self._iota(size_add(n, size_add(before, after))).sub(before)
        if mode == "circular":
            at = at.remainder(n)
        elif mode == "reflect":
            at = last.sub(at.abs().sub(last).abs())
        # what is beyond is not asked for
        index = at.maximum(0).minimum(last).uop
        return self._new(UOp(Ops.TAKE, self.dtype, (self.movedim(axis, 0).uop, index), 0)).movedim(0, axis)


def _positive(n: Size) -> Size:
    return larger_size(n, 0)
