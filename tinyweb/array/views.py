"""Views by index arithmetic: windows, diagonals, triangles, strides, and axes rearranged by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from tinyweb.array.core import leaf
from tinyweb.array.creation import checked_sizes
from tinyweb.array.movement import as_shape
from tinyweb.array.operators import Operators
from tinyweb.dtype import dtypes
from tinyweb.graph.autodiff import gradient as differentiate
from tinyweb.graph.ir import Ops, Size, UOp, larger_size, size_add, size_div, size_max, size_prod, size_sub
from tinyweb.graph.schedule.indexing import same


def window_count(n: Size, size: int, step: int = 1, dilation: int = 1) -> Size:
    """How many windows of `size` elements `dilation` apart, one begun every `step`, lie within n elements."""
    room = size_sub(n, dilation * (size - 1) + 1)
    return larger_size(size_add(size_div(room, step), 1), 0)


class Views(Operators):
    """What the six movements make of one tensor."""

    __slots__ = ()

    # -- windows ------------------------------------------------------------------------------------------------------
    def _sliding(self, axis: int, size: int, step: int = 1, dilation: int = 1) -> Self:
        """Windows of `size` elements `dilation` apart, one begun every `step`: the axis becomes the windows, their
        elements a new last axis. (At least one window must fit.)

        The axis is repeated and cut into rows that are `dilation` longer than it: each row begins that much further.
        """
        n = self.shape[axis]
        if not isinstance(n, int):  # those of the largest size, of which the first ones are there
            if size == step == 1:
                return self.unsqueeze(self.ndim)
            whole = self._pad_along(axis, 0, size_sub(size_max(n), n))._sliding(axis, size, step, dilation)
            return whole._along(axis, 0, window_count(n, size, step, dilation))
        count = (n - dilation * (size - 1) - 1) // step + 1
        if size == 1 or (size <= step and dilation == 1):  # windows do not overlap
            t = self._pad_view(axis, count * step - n) if count * step > n else self
            t = t._along(axis, 0, count * step)
            t = t._reshape((*t.shape[:axis], count, step, *t.shape[axis + 1 :]))._along(axis + 1, 0, size)
            return t.permute(*range(axis + 1), *range(axis + 2, t.ndim), axis + 1)
        order = [*range(axis), *range(axis + 1, self.ndim), axis]
        t = self.permute(*order)
        lead = tuple(t.shape[:-1])
        if dilation == 0:
            t = t.unsqueeze(-2)._broadcast_to((*lead, size, n))
            row = n
        else:
            row = n + dilation
            t = t.repeat(*(1,) * len(lead), -(-size * row // n))
            t = t._along(len(lead), 0, size * row)._reshape((*lead, size, row))
        last = t.ndim - 1
        if count * step > row:
            t = t._pad_view(last, count * step - row)
        t = t._along(last, 0, count * step)._reshape((*lead, size, count, step))
        t = t._along(last + 1, 0, 1)._reshape((*lead, size, count))
        at = t.ndim
        return t.permute(*range(axis), at - 1, *range(axis, at - 2), at - 2)

    def unfold(self, axis: int, size: int, step: int) -> Self:
        """Windows of `size` consecutive elements, one begun every `step`, as a new last axis (torch.Tensor.unfold)."""
        a = self._axis(axis, method="unfold")
        t = self.atleast_1d()
        n = t.shape[a]
        if not 0 <= size <= size_max(n) or step <= 0:
            raise ValueError(
                f"unfold: windows of {size} every {step} in axis {axis} of {self.shape}: at most {n}, step > 0"
            )
        if self.ndim == 0:
            return t._along(0, 0, size)
        if size == 0:
            counts = (*t.shape[:a], size_add(size_div(n, step), 1), *t.shape[a + 1 :], 0)
            return self._new(UOp.const(0, self.dtype))._broadcast_to(counts)
        return t._sliding_by_blocks(a, size, step)

    def _sliding_by_blocks(self, axis: int, size: int, step: int) -> Self:
        """`_sliding`, for its transpose: in blocks of `step` elements, of which a window takes as many as it has begun.
        Windows that overlap are added up without the zeros that would lie between those `step` apart."""
        n = self.shape[axis]
        if not (1 < step < size and isinstance(n, int)):
            return self._sliding(axis, size, step)
        blocks = -(-size // step)
        whole = (n - size) // step + blocks
        t = self._along(axis, 0, min(n, whole * step))._pad_view(axis, max(whole * step - n, 0))
        t = t._reshape((*self.shape[:axis], whole, step, *self.shape[axis + 1 :]))._sliding(axis, blocks)
        t = t.permute(*(i for i in range(t.ndim) if i != axis + 1), axis + 1)
        return t._reshape((*t.shape[:-2], blocks * step))._along(t.ndim - 2, 0, size)

    def _transpose_of(self, linear: Callable[[Self], Self], shape: Sequence[Size]) -> Self:
        """The transpose of a linear function of tensors of `shape`, applied to this tensor."""
        x = self._new(leaf(self._constant(0)._broadcast_to(tuple(shape)).uop))
        (found,) = differentiate(linear(x).uop, self.uop, [x.uop])
        assert found is not None
        return self._new(found)

    def as_strided(self, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = 0) -> Self:
        """Element (i, j, …) is element storage_offset + i · stride[0] + j · stride[1] + … of the flattened tensor.

        Strides are at least 0; they speak of the elements in row-major order, whatever view this tensor is.
        """
        storage_offset = storage_offset or 0
        sizes, steps = as_shape([tuple(size)]), as_shape([tuple(stride)])
        n = size_max(self.numel())
        if len(sizes) != len(steps) or any(s < 0 for s in (*sizes, *steps)) or storage_offset < 0:
            raise ValueError(f"as_strided: sizes {sizes} and strides {steps} must be as many, and at least 0")
        if 0 in sizes:
            return self._new(UOp.const(0, self.dtype))._broadcast_to(sizes)
        span = 1 + sum((s - 1) * d for s, d in zip(sizes, steps, strict=True))
        if storage_offset + span > n:
            raise ValueError(
                f"as_strided: sizes {sizes} with strides {steps} from {storage_offset} reach element "
                f"{storage_offset + span - 1} of {n}"
            )
        t = self.flatten()._along(0, storage_offset, storage_offset + span)
        # the longest stride first: what is left of the flat axis stays short
        order = sorted(range(len(sizes)), key=lambda i: -steps[i])
        for i in order:
            t = t.movedim(0, -1)._sliding(t.ndim - 1, sizes[i], 1, steps[i]).movedim(-2, 0)
        t = t._reshape(tuple(t.shape[1:]))
        return t.permute(*(order.index(i) for i in range(len(order))))

    # -- diagonals ----------------------------------------------------------------------------------------------------
    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The diagonal of two axes as a new last axis; `offset` above (or below) the main one."""
        a, b = self._axis(dim1, method="diagonal"), self._axis(dim2, method="diagonal")
        if self.ndim < 2 or a == b:
            raise ValueError(f"diagonal: needs two different axes of {self.shape}, got {dim1} and {dim2}")
        t = self.movedim((a, b), (-2, -1))
        rows, columns = t._fixed(t.ndim - 2, "diagonal"), t._fixed(t.ndim - 1, "diagonal")
        top, left = max(-offset, 0), max(offset, 0)
        n = max(min(rows - top, columns - left), 0)
        lead = tuple(t.shape[:-2])
        if n == 0:
            return self._new(UOp.const(0, self.dtype))._broadcast_to((*lead, 0))
        t = t._along(t.ndim - 2, top, top + n)._along(t.ndim - 1, left, left + n)
        # in rows of n + 1 the diagonal is the first column
        t = t._reshape((*lead, n * n))._pad_view(len(lead), n)._reshape((*lead, n, n + 1))
        return t._along(len(lead) + 1, 0, 1)._reshape((*lead, n))

    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
        """The last axis as the diagonal of matrices that are zero elsewhere."""
        if self.ndim < 1:
            raise ValueError("diag_embed: needs an axis, got a 0-d tensor")
        a, b = self._axis(dim1, 1, "diag_embed"), self._axis(dim2, 1, "diag_embed")
        if a == b:
            raise ValueError(f"diag_embed: dim1 and dim2 are both axis {a}")
        above, below = max(offset, 0), max(-offset, 0)
        t = self._pad([*(None,) * (self.ndim - 1), (below, above)])
        places = self._iota(t.shape[-1])
        chosen = places.unsqueeze(0).eq(places.unsqueeze(1).add(offset))
        return chosen.where(t.unsqueeze(-1), t._constant(0)).movedim((-2, -1), (a, b))

    def diag(self, diagonal: int = 0) -> Self:
        """The matrix with this vector as diagonal, or the diagonal of this matrix."""
        if self.ndim not in (1, 2):
            raise ValueError(f"diag: needs a vector or a matrix, got {self.shape}")
        return self.diag_embed(diagonal) if self.ndim == 1 else self.diagonal(diagonal)

    def diagflat(self, offset: int = 0) -> Self:
        """The matrix with all elements as diagonal."""
        return self.flatten().diag_embed(offset)

    def tril(self, diagonal: int = 0) -> Self:
        """Zero above a diagonal of the last two axes."""
        return self._triangle("tril", diagonal, lower=True)

    def triu(self, diagonal: int = 0) -> Self:
        """Zero below a diagonal of the last two axes."""
        return self._triangle("triu", diagonal, lower=False)

    def _triangle(self, method: str, diagonal: int, lower: bool) -> Self:
        if self.ndim < 2:
            raise ValueError(f"{method}: needs two axes, got {self.shape}")
        rows, columns = (self._iota(s) for s in self.shape[-2:])
        distance = columns.unsqueeze(0).sub(rows.unsqueeze(1))
        keep = distance.less(diagonal + 1) if lower else distance.greater(diagonal - 1)
        return keep.where(self, self._new(UOp.const(0, self.dtype)))

    @classmethod
    def tril_indices(cls, row: int, col: int, offset: int = 0, device: str | None = None) -> Self:
        """int32 (2, count): rows and columns of the elements at and below a diagonal, in row-major order."""
        checked_sizes("tril_indices", (row, col))
        return cls(np.stack(np.tril_indices(row, offset, col)).astype(np.int32), device=device)

    @classmethod
    def triu_indices(cls, row: int, col: int, offset: int = 0, device: str | None = None) -> Self:
        """int32 (2, count): rows and columns of the elements at and above a diagonal, in row-major order."""
        checked_sizes("triu_indices", (row, col))
        return cls(np.stack(np.triu_indices(row, offset, col)).astype(np.int32), device=device)

    def _iota(self, n: Size) -> Self:
        """0 … n-1 as int32."""
        full = self._new(UOp(Ops.IOTA, dtypes.int32, (), size_max(n)))
        return full if same(n, size_max(n)) else full.shrink([(0, n)])

    # -- names --------------------------------------------------------------------------------------------------------
    def rearrange(self, formula: str, **sizes: int) -> Self:
        """Axes split, merged, moved by name, in the notation of einops (Rogozhnikov 2022).

        `x.rearrange("b (h w) c -> b c h w", h=4)`: parentheses hold the axes that are one on that side, `...` stands
        for any, `1` for an axis of size 1. Of the names in one pair of parentheses all sizes but one must be given.
        """
        sides = formula.split("->")
        if len(sides) != 2:
            raise ValueError(f"rearrange: {formula!r} needs one '->'")
        left, right = (_groups(formula, side) for side in sides)
        dots = [g for g in left if g == ["..."]]
        missing = self.ndim - (len(left) - len(dots))
        if missing < 0 or (missing and not dots):
            raise ValueError(f"rearrange: the left of {formula!r} has {len(left)} axes, the tensor {self.shape}")
        many = [f"...{i}" for i in range(missing)]
        left = [h for g in left for h in ([[m] for m in many] if g == ["..."] else [g])]
        right = [h for g in right for h in ([[m] for m in many] if g == ["..."] else [g])]
        right = [[n for name in g for n in (many if name == "..." else [name])] for g in right]
        names, targets = [n for g in left for n in g], [n for g in right for n in g]
        if len(set(names)) != len(names) or sorted(names) != sorted(targets):
            raise ValueError(f"rearrange: both sides of {formula!r} must hold the same names, each once")
        found: dict[str, Any] = dict(sizes)
        for group, n in zip(left, self.shape, strict=True):
            unknown = [name for name in group if name not in found]
            known = size_prod(found[name] for name in group if name in found)
            if len(unknown) > 1:
                raise ValueError(f"rearrange: {formula!r}: give the sizes of all but one of {', '.join(unknown)}")
            if unknown:
                if isinstance(n, int) and isinstance(known, int) and known and n % known == 0:
                    n = n // known
                elif known != 1:
                    raise ValueError(f"rearrange: {formula!r}: an axis of {n} does not divide into {' '.join(group)}")
                found[unknown[0]] = n
            elif not same(known, n):
                raise ValueError(f"rearrange: {formula!r}: {' '.join(group) or 1} is {known}, the tensor {self.shape}")
        t = self._reshape(tuple(found[n] for n in names))
        t = t.permute(*(names.index(n) for n in targets))
        return t._reshape(tuple(size_prod(found[n] for n in g) for g in right))


def _groups(formula: str, side: str) -> list[list[str]]:
    """The axes of one side of a formula, each the names it is made of; an axis of size 1 of none."""
    tokens = re.findall(r"\.\.\.|[A-Za-z_]\w*|1|\(|\)|\S", side)
    out: list[list[str]] = []
    inside = False
    for token in tokens:
        if token in "()":
            if inside is (token == "("):
                raise ValueError(f"rearrange: parentheses of {formula!r} do not match")
            inside = token == "("
            if inside:
                out.append([])
        elif token != "..." and token != "1" and not token.isidentifier():
            raise ValueError(f"rearrange: {formula!r} holds {token!r}: use names, 1, '...' and parentheses")
        elif inside:
            out[-1].extend([] if token == "1" else [token])
        else:
            out.append([] if token == "1" else [token])
    if inside:
        raise ValueError(f"rearrange: parentheses of {formula!r} do not match")
    return out
