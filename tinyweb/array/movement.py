"""Methods that rename, repeat or drop elements: nothing is computed, indices change."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Self

from tinyweb.array.bits import reinterpret
from tinyweb.array.core import TensorCore
from tinyweb.array.storage import leaf
from tinyweb.dtype import DTypeLike, as_dtype, to_dtype
from tinyweb.graph.ir import Ops, Shape, Size, UOp, size_add, size_max, size_prod
from tinyweb.graph.schedule.indexing import same


def as_shape(args: Sequence[Any]) -> tuple[Any, ...]:
    """Sizes given one by one or as one sequence."""
    found = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
    return tuple(x if type(x) is int or isinstance(x, UOp) else _whole(x) for x in found)


def sizes_of(method: str, args: Sequence[Any], named: Any) -> tuple[Any, ...]:
    """`as_shape`, where the sequence may also be given by keyword: by it alone."""
    if named is None:
        return as_shape(args)
    if args:
        raise TypeError(f"{method}: given twice, as {tuple(args)} and by keyword as {named}")
    return as_shape((named,))


def _whole(x: Any) -> int:
    try:
        if not isinstance(x, bool):
            return operator.index(x)
    except TypeError:
        pass
    raise TypeError(f"sizes and axes are integers or Variables, got {x!r}")


def broadcast_shapes(method: str, *shapes: Shape) -> Shape:
    """The common shape by NumPy's rule; ValueError naming `method` and the shapes when there is none."""
    if len(shapes) == 2 and shapes[0] == shapes[1]:  # most are
        return tuple(shapes[0])
    rank = max(map(len, shapes), default=0)
    out: list[Size] = []
    for sizes in zip(*((1,) * (rank - len(s)) + tuple(s) for s in shapes), strict=True):
        wide = [s for s in sizes if s != 1]
        if any(not same(s, wide[0]) for s in wide):
            raise ValueError(
                f"{method}: shapes {' and '.join(map(str, shapes))} do not broadcast: "
                "sizes must be equal or 1, aligned at the last axis"
            )
        out.append(wide[0] if wide else 1)
    return tuple(out)


class Movement(TensorCore):
    """reshape, permute, expand, pad, shrink, flip and what only renames axes."""

    __slots__ = ()

    # -- the six primitives -------------------------------------------------------------------------------------------
    def reshape(self, *sizes: Any, shape: int | Sequence[Size] | None = None) -> Self:
        """The same elements in row-major order in another shape; one size may be -1.

        ValueError where the number of elements differs.
        """
        asked: list[Any] = list(sizes_of("reshape", sizes, shape))
        unknown = [i for i, s in enumerate(asked) if isinstance(s, int) and s == -1]
        if len(unknown) > 1:
            raise ValueError(f"reshape: only one size may be -1, got {tuple(asked)}")
        if unknown:
            rest = size_prod(s for i, s in enumerate(asked) if i != unknown[0])
            total = self.numel()
            if isinstance(total, int) and isinstance(rest, int):
                if rest == 0 or total % rest:
                    raise ValueError(f"reshape: {self.shape} has {total} elements: -1 in {tuple(asked)} has no value")
                asked[unknown[0]] = total // rest
            else:
                symbolic = [s for s in self.shape if not isinstance(s, int)]
                if not isinstance(rest, int) or len(symbolic) != 1:
                    raise ValueError(f"reshape: -1 cannot be worked out for the symbolic shape {self.shape}")
                known = size_prod(s for s in self.shape if isinstance(s, int))
                assert isinstance(known, int)
                if rest == 0 or known % rest:
                    raise ValueError(f"reshape: {self.shape} does not divide into {tuple(asked)}")
                asked[unknown[0]] = size_prod([symbolic[0], known // rest])
        new = tuple(asked)
        if any(isinstance(s, int) and s < 0 for s in new):
            raise ValueError(f"reshape: sizes must not be negative, got {new}")
        if not same(size_prod(new), self.numel()):
            raise ValueError(f"reshape: {self.shape} has {self.numel()} elements, {new} has {size_prod(new)}")
        return self._reshape(new)

    def _reshape(self, new: Shape) -> Self:
        if len(new) == len(self.shape) and all(same(a, b) for a, b in zip(new, self.shape, strict=True)):
            return self
        return self._new(UOp(Ops.RESHAPE, self.dtype, (self.uop,), new))

    def permute(self, *axes: Any, dims: int | Sequence[int] | None = None) -> Self:
        """Axes in a new order: `permute(2, 0, 1)`, `permute((2, 0, 1))` or `permute(dims=(2, 0, 1))`."""
        given = sizes_of("permute", axes, dims)
        order = tuple(self._axis(a, method="permute") for a in given)
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"permute: {given} is no permutation of the axes of {self.shape}")
        if order == tuple(range(self.ndim)):
            return self
        return self._new(UOp(Ops.PERMUTE, self.dtype, (self.uop,), order))

    def expand(self, *shape: Any, size: int | Sequence[Size] | None = None) -> Self:
        """Axes of size 1 repeated without memory; new axes may be put in front; -1 keeps a size."""
        sizes = sizes_of("expand", shape, size)
        padded = (1,) * (len(sizes) - self.ndim) + tuple(self.shape)
        if len(padded) != len(sizes):
            raise ValueError(f"expand: {self.shape} has more axes than {sizes}")
        for i, s in enumerate(sizes):
            if isinstance(s, int) and (s < -1 or (s == -1 and i < len(sizes) - self.ndim)):
                raise ValueError(
                    f"expand: size {s} of axis {i} in {sizes}: -1 keeps the size of an axis of {self.shape}"
                )
        new = tuple(old if isinstance(s, int) and s == -1 else s for old, s in zip(padded, sizes, strict=True))
        return self._broadcast_to(new)

    def _broadcast_to(self, shape: Shape) -> Self:
        if self.shape == shape:
            return self
        padded = (1,) * (len(shape) - self.ndim) + tuple(self.shape)
        if len(padded) != len(shape) or any(o != 1 and not same(o, n) for o, n in zip(padded, shape, strict=True)):
            raise ValueError(f"expand: {self.shape} cannot become {shape}: only axes of size 1 can grow")
        t = self._reshape(padded)
        if all(same(o, n) for o, n in zip(padded, shape, strict=True)):
            return t
        return t._new(UOp(Ops.EXPAND, self.dtype, (t.uop,), tuple(shape)))

    def shrink(self, bounds: Sequence[tuple[Size, Size] | None]) -> Self:
        """Keep elements begin … end-1 of every axis; None keeps an axis whole."""
        if len(bounds) != self.ndim:
            raise ValueError(f"shrink: {len(bounds)} bounds for the shape {self.shape}")
        full = tuple((0, s) if b is None else b for b, s in zip(bounds, self.shape, strict=True))
        for (b, e), s in zip(full, self.shape, strict=True):
            if isinstance(b, int) and isinstance(e, int) and isinstance(s, int) and not 0 <= b <= e <= s:
                raise ValueError(f"shrink: bounds {full} leave the shape {self.shape}")
            if size_max(e) > size_max(s):
                raise ValueError(f"shrink: a bound reaches {size_max(e)}, beyond size {size_max(s)} of {self.shape}")
        if all(isinstance(b, int) and b == 0 and same(e, s) for (b, e), s in zip(full, self.shape, strict=True)):
            return self
        return self._new(UOp(Ops.SHRINK, self.dtype, (self.uop,), full))

    def _pad(self, around: Sequence[tuple[Size, Size] | None]) -> Self:
        """Zeros before and after along every axis; None for none."""
        full = tuple((0, 0) if p is None else p for p in around)
        if all(isinstance(x, int) and x == 0 for p in full for x in p):
            return self
        # a value of its own also for views that leave the padding out: they are no memory of what is padded
        return self._new(leaf(UOp(Ops.PAD, self.dtype, (self.uop,), full)))

    def flip(self, *axes: Any, dims: int | Sequence[int] | None = None) -> Self:
        """Reverse the order along axes: `flip(0, 1)`, `flip((0, 1))` or `flip(dims=(0, 1))`."""
        given = sizes_of("flip", axes, dims)
        which = tuple(sorted({self._axis(a, method="flip") for a in given}))
        if len(which) != len(given):
            raise ValueError(f"flip: {given} names an axis of {self.shape} twice")
        which = tuple(a for a in which if self.shape and self.shape[a] != 1)
        return self._new(UOp(Ops.FLIP, self.dtype, (self.uop,), which)) if which else self

    # -- one axis -----------------------------------------------------------------------------------------------------
    def _along(self, axis: int, begin: Size, end: Size) -> Self:
        """Elements begin … end-1 of one axis."""
        return self.shrink([(begin, end) if a == axis else None for a in range(self.ndim)])

    def _pad_along(self, axis: int, before: Size, after: Size) -> Self:
        return self._pad([(before, after) if a == axis else None for a in range(self.ndim)])

    def _pad_view(self, axis: int, after: Size) -> Self:
        """Zeros behind one axis that a later SHRINK takes away again: a step to a view, which shares this memory."""
        around = tuple((0, after if a == axis else 0) for a in range(self.ndim))
        return self._wrap(UOp(Ops.PAD, self.dtype, (self.uop,), around), self.device, self.storage) if after else self

    def _fixed(self, axis: int, method: str) -> int:
        """The size of an axis that may not be symbolic."""
        n = self.shape[axis]
        if not isinstance(n, int):
            raise ValueError(f"{method}: axis {axis} of {self.shape} has a symbolic size")
        return n

    # -- shapes -------------------------------------------------------------------------------------------------------
    def view(self, *shape: Any, size: int | Sequence[Size] | None = None, dtype: DTypeLike | None = None) -> Self:
        """`reshape`; with a dtype, by name or place, the bits read as that dtype: the last axis grows or shrinks by
        the ratio of the widths.
        """
        if dtype is None and len(shape) == 1 and not isinstance(shape[0], int | tuple | list):
            dtype, shape = as_dtype(shape[0]), shape if as_dtype(shape[0]) is None else ()
        if dtype is None:
            return self.reshape(sizes_of("view", shape, size))
        if shape or size is not None:
            raise TypeError("view: a shape and a dtype were given: give one, and view the result")
        return self._new(reinterpret(self.uop, to_dtype(dtype), "view"))

    def view_as(self, other: TensorCore) -> Self:
        """`reshape` to the shape of another tensor."""
        return self.reshape(other.shape)

    def reshape_as(self, other: TensorCore) -> Self:
        """`reshape` to the shape of another tensor."""
        return self.reshape(other.shape)

    def broadcast_to(self, *shape: Any, size: int | Sequence[Size] | None = None) -> Self:
        """Repeated without memory to a shape, by NumPy's rule."""
        return self.expand(sizes_of("broadcast_to", shape, size))

    def expand_as(self, other: TensorCore) -> Self:
        """`expand` to the shape of another tensor."""
        return self.expand(other.shape)

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Self:
        """Drop axes of size 1: all of them, or those given (others of them stay)."""
        if axis is None:
            return self._reshape(tuple(s for s in self.shape if s != 1))
        given = axis if isinstance(axis, Sequence) else (axis,)
        axes = {self._axis(a, method="squeeze") for a in given}
        if len(axes) != len(given):
            raise ValueError(f"squeeze: {tuple(given)} names an axis of {self.shape} twice")
        return self._reshape(tuple(s for i, s in enumerate(self.shape) if s != 1 or i not in axes))

    def unsqueeze(self, axis: int) -> Self:
        """Insert an axis of size 1."""
        a = self._axis(axis, 1, "unsqueeze")
        return self._reshape((*self.shape[:a], 1, *self.shape[a:]))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Merge a run of axes into one."""
        a, b = self._axis(start_dim, method="flatten"), self._axis(end_dim, method="flatten")
        if not self.shape:
            return self._reshape((1,))
        if a > b:
            raise ValueError(f"flatten: start axis {start_dim} lies behind end axis {end_dim} of {self.shape}")
        return self._reshape((*self.shape[:a], size_prod(self.shape[a : b + 1]), *self.shape[b + 1 :]))

    def ravel(self) -> Self:
        """All elements in one axis."""
        return self.flatten()

    def unflatten(self, axis: int, sizes: Sequence[int]) -> Self:
        """Split one axis into several; one size may be -1."""
        a = self._axis(axis, method="unflatten")
        if not self.shape:
            raise ValueError("unflatten: a 0-d tensor has no axis to split")
        parts: list[Any] = list(as_shape([sizes]))
        if not parts:
            raise ValueError(f"unflatten: needs at least one size for axis {axis} of {self.shape}")
        n, known = self.shape[a], size_prod(s for s in parts if not (isinstance(s, int) and s == -1))
        if -1 in parts and isinstance(n, int) and isinstance(known, int) and known and parts.count(-1) == 1:
            parts[parts.index(-1)] = n // known
        if isinstance(n, int) and size_prod(parts) != n:
            raise ValueError(f"unflatten: sizes {tuple(sizes)} do not multiply to {n}, axis {axis} of {self.shape}")
        return self.reshape(*self.shape[:a], *parts, *self.shape[a + 1 :])

    def atleast_1d(self) -> Self:
        """A number as a vector of one."""
        return self._reshape((1,)) if self.ndim == 0 else self

    def atleast_2d(self) -> Self:
        """With axes of size 1 in front up to two axes."""
        return self._reshape((1,) * (2 - self.ndim) + tuple(self.shape)) if self.ndim < 2 else self

    def atleast_3d(self) -> Self:
        """At least three axes: a vector (n,) becomes (1, n, 1), a matrix (n, m) becomes (n, m, 1)."""
        t = self.atleast_2d()
        return t.unsqueeze(-1) if t.ndim == 2 else t

    # -- order of axes ------------------------------------------------------------------------------------------------
    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Swap two axes."""
        order = list(range(self.ndim))
        i, j = self._axis(dim0, method="transpose"), self._axis(dim1, method="transpose")
        if order:
            order[i], order[j] = order[j], order[i]
        return self.permute(*order)

    swapaxes = swapdims = transpose

    @property
    def T(self) -> Self:
        """All axes in reverse order."""
        return self.permute(*range(self.ndim)[::-1])

    @property
    def mT(self) -> Self:
        """The last two axes swapped."""
        if self.ndim < 2:
            raise ValueError(f"mT: a matrix has two axes, got {self.shape}")
        return self.transpose(-2, -1)

    def t(self) -> Self:
        """The transpose of a matrix; vectors and numbers as they are."""
        if self.ndim > 2:
            raise ValueError(f"t: at most two axes, got {self.shape}")
        return self.T

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Move axes to other places; the rest keep their order."""
        old = [self._axis(a, method="movedim") for a in as_shape([source])]
        new = [self._axis(a, method="movedim") for a in as_shape([destination])]
        if len(old) != len(new) or len(set(old)) != len(old) or len(set(new)) != len(new):
            raise ValueError(f"movedim: {source} and {destination} must be as many axes of {self.shape}, none twice")
        rest = iter(a for a in range(self.ndim) if a not in old)
        came = dict(zip(new, old, strict=True))
        return self.permute(*(came[i] if i in came else next(rest) for i in range(self.ndim)))

    moveaxis = movedim

    def fliplr(self) -> Self:
        """Reversed along the second axis."""
        if self.ndim < 2:
            raise ValueError(f"fliplr: needs two axes, got {self.shape}")
        return self.flip(1)

    def flipud(self) -> Self:
        """Reversed along the first axis."""
        if self.ndim < 1:
            raise ValueError("flipud: needs an axis, got a 0-d tensor")
        return self.flip(0)

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """Rotated by k quarter turns from the first of the two axes towards the second."""
        a, b = (self._axis(d, method="rot90") for d in dims) if len(dims) == 2 else (0, 0)
        if self.ndim < 2 or a == b:
            raise ValueError(f"rot90: needs two different axes of {self.shape}, got {tuple(dims)}")
        turned = [self, self.flip(b).transpose(a, b), self.flip(a, b), self.flip(a).transpose(a, b)]
        return turned[k % 4]

    # -- parts and repetition -----------------------------------------------------------------------------------------
    def narrow(self, axis: int, start: Size, length: Size) -> Self:
        """`length` elements of an axis from `start` on (a negative start counts from the end)."""
        a = self._axis(axis, method="narrow")
        if not self.shape:
            raise ValueError("narrow: a 0-d tensor has no axis to cut")
        n = self.shape[a]
        if isinstance(start, int) and start < 0:
            start = size_add(n, start)
        end = size_add(start, length)
        bounds = (start if isinstance(start, int) else start.vmin, size_max(end))
        if bounds[0] < 0 or (isinstance(length, int) and length < 0) or bounds[1] > size_max(n):
            raise ValueError(f"narrow: elements {start} … {end}-1 leave axis {axis} of {self.shape}")
        return self._along(a, start, end)

    def select(self, axis: int, index: Size) -> Self:
        """One element of an axis, which is dropped."""
        a = self._axis(axis, method="select")
        n = self.shape[a] if self.shape else 0
        low, high = (index, index) if isinstance(index, int) else index.bounds
        if low < -size_max(n) or high >= size_max(n):
            raise IndexError(f"select: index {index} is outside of axis {axis} of {self.shape}")
        at = size_add(n, index) if isinstance(index, int) and index < 0 else index
        return self._along(a, at, size_add(at, 1))._reshape((*self.shape[:a], *self.shape[a + 1 :]))

    def repeat(self, *counts: Any, repeats: int | Sequence[int] | None = None) -> Self:
        """The whole tensor repeated along axes; more counts than axes add axes in front."""
        times = sizes_of("repeat", counts, repeats)
        if len(times) < self.ndim or any(isinstance(n, int) and n < 0 for n in times):
            raise ValueError(f"repeat: needs a count of at least 0 for each axis of {self.shape}, got {times}")
        base: Shape = (1,) * (len(times) - self.ndim) + tuple(self.shape)
        pairs = tuple(x for s in base for x in (1, s))
        grown = tuple(x for n, s in zip(times, base, strict=True) for x in (n, s))
        return (
            self._reshape(pairs)
            ._broadcast_to(grown)
            ._reshape(tuple(size_prod((n, s)) for n, s in zip(times, base, strict=True)))
        )

    def tile(self, *counts: Any, dims: int | Sequence[int] | None = None) -> Self:
        """The whole tensor repeated; missing counts (of the first axes) are 1."""
        times = sizes_of("tile", counts, dims)
        return self.repeat((1,) * (self.ndim - len(times)) + times)
