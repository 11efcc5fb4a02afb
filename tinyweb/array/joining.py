"""Several tensors joined into one, and one cut into several."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self, TypeVar, cast

import numpy as np

from tinyweb.array.core import TensorCore
from tinyweb.array.movement import as_shape, broadcast_shapes
from tinyweb.array.views import Views
from tinyweb.dtype import promote
from tinyweb.graph.ir import Size, size_add, size_sub
from tinyweb.graph.schedule.indexing import same
from tinyweb.graph.schedule.joining import joined

Joined = TypeVar("Joined", bound="Joining")


def _listed(method: str, first: Any, others: Sequence[Any]) -> list[Any]:
    """All tensors given singly or in lists, of one device."""
    parts: list[Any] = []
    for o in (first, *others):
        parts.extend(o if isinstance(o, list | tuple) else [o])
    if not parts:
        raise ValueError(f"{method}: needs at least one tensor")
    for p in parts:
        if not isinstance(p, TensorCore):
            raise TypeError(f"{method}: needs tensors, got {type(p).__name__}")
        if p.device != parts[0].device:
            raise ValueError(f"{method}: tensors live on {parts[0].device} and {p.device}: move one with .to()")
    return parts


def _with_axis(others: tuple[Any, ...], axis: int) -> tuple[tuple[Any, ...], int]:
    """PyTorch's `cat(tensors, 1)`: a number in the last place is the axis."""
    if others and isinstance(others[-1], int | np.integer) and not isinstance(others[-1], bool):
        return others[:-1], int(others[-1])
    return others, axis


class Joining(Views):
    """cat, stack and their kin take tensors one by one or in a list, as methods or as functions of the class:
    `a.cat(b, axis=1)`, `Tensor.cat([a, b], axis=1)`."""

    __slots__ = ()

    # -- joining ------------------------------------------------------------------------------------------------------
    def cat(self: Joined | Sequence[Joined], *others: Joined | Sequence[Joined] | int, axis: int = 0) -> Joined:
        """Joined along an axis: `a.cat(b, c, axis=1)` or `Tensor.cat([a, b], axis=1)`. Dtypes are promoted to one.

        ValueError where the shapes differ in another axis.
        """
        rest, axis = _with_axis(others, axis)
        parts = _listed("cat", self, rest)
        # PyTorch's old empty tensor: of shape (0,), it goes with anything
        dtype = promote(*(p.dtype for p in parts))
        parts = [p for p in parts if p.shape != (0,)] or parts[:1]
        first = cast("Joined", parts[0])
        if first.ndim == 0:
            raise ValueError("cat: 0-d tensors have no axis to join: use stack")
        a = first._axis(axis, method="cat")
        for p in parts:
            if p.ndim != first.ndim or any(
                not same(x, y) for i, (x, y) in enumerate(zip(p.shape, first.shape, strict=True)) if i != a
            ):
                raise ValueError(f"cat: shapes {[p.shape for p in parts]} differ outside of axis {axis}")
        return _join([cast("Joined", p.cast(dtype)) for p in parts], a)

    def concat(self: Joined | Sequence[Joined], *others: Joined | Sequence[Joined] | int, axis: int = 0) -> Joined:
        """`cat`."""
        return Joining.cat(self, *others, axis=axis)

    concatenate = concat

    def stack(self: Joined | Sequence[Joined], *others: Joined | Sequence[Joined] | int, axis: int = 0) -> Joined:
        """Joined along a new axis; all shapes must be equal."""
        rest, axis = _with_axis(others, axis)
        parts = _listed("stack", self, rest)
        first = cast("Joined", parts[0])
        for p in parts:
            if len(p.shape) != len(first.shape) or not all(map(same, p.shape, first.shape)):
                raise ValueError(f"stack: shapes {[p.shape for p in parts]} differ")
        a = first._axis(axis, 1, "stack")
        wide: list[Joined] = [p.unsqueeze(a) for p in parts]
        return Joining.cat(wide, axis=a)

    def hstack(self: Joined | Sequence[Joined], *others: Joined | Sequence[Joined]) -> Joined:
        """Joined along the second axis (vectors along their only one)."""
        parts: list[Joined] = [p.atleast_1d() for p in _listed("hstack", self, others)]
        return Joining.cat(parts, axis=0 if parts[0].ndim == 1 else 1)

    def vstack(self: Joined | Sequence[Joined], *others: Joined | Sequence[Joined]) -> Joined:
        """Joined along the first axis, vectors as rows."""
        parts: list[Joined] = [p.atleast_2d() for p in _listed("vstack", self, others)]
        return Joining.cat(parts, axis=0)

    row_stack = vstack

    def dstack(self: Joined | Sequence[Joined], *others: Joined | Sequence[Joined]) -> Joined:
        """Joined along the third axis, matrices as (rows, columns, 1)."""
        parts: list[Joined] = [p.atleast_3d() for p in _listed("dstack", self, others)]
        return Joining.cat(parts, axis=2)

    def column_stack(self: Joined | Sequence[Joined], *others: Joined | Sequence[Joined]) -> Joined:
        """Joined along the second axis, vectors as columns."""
        given: list[Joined] = _listed("column_stack", self, others)
        return Joining.cat([p._reshape((p.numel(), 1)) if p.ndim < 2 else p for p in given], axis=1)

    def block_diag(self: Joined | Sequence[Joined], *others: Joined | Sequence[Joined]) -> Joined:
        """The matrix with the given ones (vectors as rows) along its diagonal and zeros elsewhere."""
        parts: list[Joined] = [p.atleast_2d() for p in _listed("block_diag", self, others)]
        if any(p.ndim > 2 for p in parts):
            raise ValueError(f"block_diag: at most two axes each, got {[p.shape for p in parts]}")
        width: Size = 0
        for p in parts:
            width = size_add(width, p.shape[1])
        rows, at = [], cast("Size", 0)
        for p in parts:
            end = size_add(at, p.shape[1])
            rows.append(p._pad([None, (at, size_sub(width, end))]))
            at = end
        return Joining.cat(rows, axis=0)

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Shifted cyclically along axes (through the flattened tensor without `dims`)."""
        by = as_shape([shifts])
        if dims is None:
            if len(by) != 1:
                raise ValueError(f"roll: {len(by)} shifts {by} need as many axes")
            return self.flatten().roll(by, (0,)).reshape(self.shape)
        axes = as_shape([dims])
        if len(axes) != len(by):
            raise ValueError(f"roll: {len(by)} shifts {by} for {len(axes)} axes {axes}")
        t = self
        for shift, axis in zip(by, axes, strict=True):
            a = t._axis(axis, method="roll")
            n = t._fixed(a, "roll") if t.shape else 1
            if n and shift % n:
                border = n - shift % n
                t = _join([t._along(a, border, n), t._along(a, 0, border)], a)
        return t

    def broadcast_tensors(self: Joined | Sequence[Joined], *others: Joined | Sequence[Joined]) -> tuple[Joined, ...]:
        """All expanded to their common shape."""
        parts: list[Joined] = _listed("broadcast_tensors", self, others)
        shape = broadcast_shapes("broadcast_tensors", *(p.shape for p in parts))
        return tuple(p._broadcast_to(shape) for p in parts)

    def meshgrid(
        self: Joined | Sequence[Joined], *others: Joined | Sequence[Joined], indexing: str = "ij"
    ) -> tuple[Joined, ...]:
        """Vectors as the coordinates of a grid, one tensor of the grid's shape each.

        `indexing` "ij": axis i of the grid follows vector i; "xy": the first two axes are swapped.
        """
        if indexing not in ("ij", "xy"):
            raise ValueError(f"meshgrid: indexing is 'ij' or 'xy', got {indexing!r}")
        parts: list[Joined] = _listed("meshgrid", self, others)
        if any(p.ndim > 1 for p in parts):
            raise ValueError(f"meshgrid: needs vectors, got {[p.shape for p in parts]}")
        shape = tuple(p.atleast_1d().shape[0] for p in parts)
        grids = [
            p._reshape(tuple(s if i == j else 1 for j, s in enumerate(shape)))._broadcast_to(shape)
            for i, p in enumerate(parts)
        ]
        return tuple(g.transpose(0, 1) if indexing == "xy" and len(grids) > 1 else g for g in grids)

    def cartesian_prod(self: Joined | Sequence[Joined], *others: Joined | Sequence[Joined]) -> Joined:
        """Every combination of one element of each vector, one per row."""
        parts: list[Joined] = _listed("cartesian_prod", self, others)
        if any(p.ndim != 1 for p in parts):
            raise ValueError(f"cartesian_prod: needs vectors, got {[p.shape for p in parts]}")
        if len(parts) == 1:
            return parts[0]
        return Joining.stack([g.flatten() for g in Joining.meshgrid(parts)], axis=1)

    # -- cutting ------------------------------------------------------------------------------------------------------
    def split(self, sizes: int | Sequence[int], axis: int = 0) -> tuple[Self, ...]:
        """Pieces of the given size (the last may be smaller), or of the given sizes."""
        a = self._cut_axis(axis, "split")
        total = self._fixed(a, "split")
        if isinstance(sizes, int):
            if sizes <= 0 and total:
                raise ValueError(f"split: size must be positive, got {sizes} for axis {axis} of {self.shape}")
            sizes = [min(sizes, total - i) for i in range(0, max(total, 1), max(sizes, 1))]
        if sum(sizes) != total or any(n < 0 for n in sizes):
            raise ValueError(f"split: sizes {list(sizes)} do not add up to {total}, axis {axis} of {self.shape}")
        return self._cut(a, [sum(sizes[:i]) for i in range(len(sizes) + 1)])

    def _cut_axis(self, axis: int, method: str) -> int:
        if self.ndim == 0:
            raise ValueError(f"{method}: a 0-d tensor cannot be cut")
        return self._axis(axis, method=method)

    def _cut(self, axis: int, at: Sequence[int]) -> tuple[Self, ...]:
        return tuple(self._along(axis, b, max(b, e)) for b, e in pairwise(at))

    def chunk(self, chunks: int, axis: int = 0) -> tuple[Self, ...]:
        """At most `chunks` pieces of equal size (the last may be smaller)."""
        if chunks <= 0:
            raise ValueError(f"chunk: the number of chunks must be positive, got {chunks}")
        total = self._fixed(self._cut_axis(axis, "chunk"), "chunk")
        return self.split(max(-(-total // chunks), 1), axis) if total else (self,) * chunks

    def tensor_split(self, indices_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Self, ...]:
        """So many pieces, the first of them one larger where it does not go even; or cut at the given indices."""
        return self._tensor_split("tensor_split", indices_or_sections, axis, even=False)

    def _tensor_split(self, method: str, where: Any, axis: int, even: bool) -> tuple[Self, ...]:
        a = self._cut_axis(axis, method)
        n = self._fixed(a, method)
        if isinstance(where, TensorCore):
            where = where.tolist()
        if isinstance(where, Sequence) and not isinstance(where, str):
            at = [slice(None, i).indices(n)[1] for i in as_shape([tuple(where)])]
            return self._cut(a, [0, *at, n])
        (where,) = as_shape([where])
        if isinstance(where, int):
            if where <= 0 or (even and n % where):
                raise ValueError(f"{method}: axis {a} of {self.shape} cannot be cut into {where} equal parts")
            size, larger = divmod(n, where)
            return self._cut(a, [i * size + min(i, larger) for i in range(where + 1)])
        raise ValueError(f"{method}: the number of parts must be known, got {where}")

    def hsplit(self, *indices_or_sections: Any) -> tuple[Self, ...]:
        """Cut along the second axis (a vector along its only one), evenly or at indices."""
        return self._tensor_split("hsplit", _cuts(indices_or_sections), 0 if self.ndim == 1 else 1, even=True)

    def vsplit(self, *indices_or_sections: Any) -> tuple[Self, ...]:
        """Cut along the first axis of at least two, evenly or at indices."""
        if self.ndim < 2:
            raise ValueError(f"vsplit: needs two axes, got {self.shape}")
        return self._tensor_split("vsplit", _cuts(indices_or_sections), 0, even=True)

    def dsplit(self, *indices_or_sections: Any) -> tuple[Self, ...]:
        """Cut along the third axis, evenly or at indices."""
        if self.ndim < 3:
            raise ValueError(f"dsplit: needs three axes, got {self.shape}")
        return self._tensor_split("dsplit", _cuts(indices_or_sections), 2, even=True)

    def unbind(self, axis: int = 0) -> tuple[Self, ...]:
        """The slices along an axis, which they lose."""
        a = self._cut_axis(axis, "unbind")
        return tuple(self.select(a, i) for i in range(self._fixed(a, "unbind")))


def _cuts(given: tuple[Any, ...]) -> Any:
    """A number of parts, or where to cut: in a sequence or one by one."""
    if not given:
        raise TypeError("a number of parts, or the places to cut at, must be given")
    return given[0] if len(given) == 1 else given


def _join(parts: Sequence[Joined], axis: int) -> Joined:
    """`parts` of one dtype one behind the other."""
    first = parts[0]
    if len(parts) == 1:
        return first._same()
    return first._new(joined([p.uop for p in parts], axis))
