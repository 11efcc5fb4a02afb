"""Methods that rename, repeat or drop elements: nothing is computed, indices change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinyweb.array.core import TensorCore
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, Shape, Size, UOp, size_add, size_max, size_prod, size_sub
from tinyweb.graph.schedule.indexing import same


def as_shape(args: Sequence[Any]) -> tuple[Any, ...]:
    """Sizes given one by one or as one sequence."""
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], tuple | list) else tuple(args)


def broadcast_shapes(method: str, *shapes: Shape) -> Shape:
    """The common shape by NumPy's rule; ValueError naming `method` and the shapes when there is none."""
    rank = max(map(len, shapes))
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
    """reshape, permute, expand, pad, shrink, flip and what is made of them."""

    __slots__ = ()

    # -- the six primitives -------------------------------------------------------------------------------------------
    def reshape(self, *shape: Any) -> Self:
        """The same elements in row-major order in another shape; one size may be -1."""
        sizes: list[Any] = list(as_shape(shape))
        if sizes.count(-1) > 1:
            raise ValueError(f"reshape: only one size may be -1, got {tuple(sizes)}")
        if -1 in sizes:
            rest = size_prod(s for s in sizes if not (isinstance(s, int) and s == -1))
            total = self.numel()
            if isinstance(total, int) and isinstance(rest, int):
                if rest == 0 or total % rest:
                    raise ValueError(f"reshape: {self.shape} has {total} elements, which {tuple(sizes)} cannot hold")
                sizes[sizes.index(-1)] = total // rest
            else:
                symbolic = [s for s in self.shape if not isinstance(s, int)]
                if not isinstance(rest, int) or len(symbolic) != 1:
                    raise ValueError(f"reshape: -1 cannot be worked out for the symbolic shape {self.shape}")
                known = size_prod(s for s in self.shape if isinstance(s, int))
                assert isinstance(known, int)
                if known % rest:
                    raise ValueError(f"reshape: {self.shape} does not divide into {tuple(sizes)}")
                sizes[sizes.index(-1)] = size_prod([symbolic[0], known // rest])
        new = tuple(sizes)
        if any(isinstance(s, int) and s < 0 for s in new):
            raise ValueError(f"reshape: sizes must not be negative, got {new}")
        if not same(size_prod(new), self.numel()):
            raise ValueError(f"reshape: {self.shape} has {self.numel()} elements, {new} has {size_prod(new)}")
        return self._reshape(new)

    def _reshape(self, new: Shape) -> Self:
        if len(new) == len(self.shape) and all(same(a, b) for a, b in zip(new, self.shape, strict=True)):
            return self
        return self._new(UOp(Ops.RESHAPE, self.dtype, (self.uop,), new))

    def permute(self, *axes: Any) -> Self:
        """Axes in a new order."""
        order = tuple(self._axis(a, method="permute") for a in as_shape(axes))
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"permute: {as_shape(axes)} is no permutation of the axes of {self.shape}")
        if order == tuple(range(self.ndim)):
            return self
        return self._new(UOp(Ops.PERMUTE, self.dtype, (self.uop,), order))

    def expand(self, *shape: Any) -> Self:
        """Axes of size 1 repeated without memory; new axes may be put in front; -1 keeps a size."""
        sizes = as_shape(shape)
        padded = (1,) * (len(sizes) - self.ndim) + tuple(self.shape)
        if len(padded) != len(sizes):
            raise ValueError(f"expand: {self.shape} has more axes than {sizes}")
        new = tuple(old if isinstance(s, int) and s == -1 else s for old, s in zip(padded, sizes, strict=True))
        return self._broadcast_to(new)

    def _broadcast_to(self, shape: Shape) -> Self:
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

    def pad(self, padding: Sequence[Any], value: float = 0.0) -> Self:
        """Surround with `value`: ((before, after), …) per axis (None for none), or PyTorch's flat list from the last
        axis."""
        if padding and all(isinstance(p, int) for p in padding):
            if len(padding) % 2 or len(padding) > 2 * self.ndim:
                raise ValueError(f"pad: {tuple(padding)} needs two numbers per axis of {self.shape}")
            flat = list(padding)
            pairs = [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)][::-1]
            padding = [(0, 0)] * (self.ndim - len(pairs)) + pairs
        full = tuple((0, 0) if p is None else tuple(p) for p in padding)
        if len(full) != self.ndim:
            raise ValueError(f"pad: {len(full)} pairs for the shape {self.shape}")
        if any(isinstance(x, int) and x < 0 for p in full for x in p):
            cut = tuple(
                (max(-b, 0) if isinstance(b, int) else 0, size_add(s, min(a, 0)) if isinstance(a, int) else s)
                for (b, a), s in zip(full, self.shape, strict=True)
            )
            grow = [tuple(max(x, 0) if isinstance(x, int) else x for x in p) for p in full]
            return self.shrink(cut).pad(grow, value)
        if all(isinstance(x, int) and x == 0 for p in full for x in p):
            return self
        padded = self._new(UOp(Ops.PAD, self.dtype, (self.uop,), full))
        if value == 0:
            return padded
        ones = self._new(UOp.const(True, dtypes.bool))._broadcast_to(self.shape)
        inside = ones._new(UOp(Ops.PAD, dtypes.bool, (ones.uop,), full))
        fill = UOp.const(value, self.dtype)
        return self._new(UOp(Ops.WHERE, self.dtype, (inside.uop, padded.uop, fill)))

    def flip(self, *axes: Any) -> Self:
        """Reverse the order along axes."""
        which = tuple(sorted({self._axis(a, method="flip") for a in as_shape(axes)}))
        which = tuple(a for a in which if self.shape[a] != 1)
        return self._new(UOp(Ops.FLIP, self.dtype, (self.uop,), which)) if which else self

    # -- made of them -------------------------------------------------------------------------------------------------
    def view(self, *shape: Any) -> Self:
        return self.reshape(*shape)

    def transpose(self, a: int = 1, b: int = 0) -> Self:
        """Swap two axes."""
        order = list(range(self.ndim))
        i, j = self._axis(a, method="transpose"), self._axis(b, method="transpose")
        order[i], order[j] = order[j], order[i]
        return self.permute(*order)

    @property
    def T(self) -> Self:
        return self.permute(*range(self.ndim)[::-1])

    @property
    def mT(self) -> Self:
        return self.transpose(-2, -1)

    def squeeze(self, axis: int | None = None) -> Self:
        """Drop an axis of size 1 (all of them without an argument)."""
        if axis is None:
            return self._reshape(tuple(s for s in self.shape if s != 1))
        a = self._axis(axis, method="squeeze")
        return self if not self.shape or self.shape[a] != 1 else self._reshape((*self.shape[:a], *self.shape[a + 1 :]))

    def unsqueeze(self, axis: int) -> Self:
        """Insert an axis of size 1."""
        a = self._axis(axis, 1, "unsqueeze")
        return self._reshape((*self.shape[:a], 1, *self.shape[a:]))

    def flatten(self, start: int = 0, end: int = -1) -> Self:
        """Merge a run of axes into one."""
        if not self.shape:
            return self._reshape((1,))
        a, b = self._axis(start, method="flatten"), self._axis(end, method="flatten")
        if a > b:
            raise ValueError(f"flatten: start axis {start} lies behind end axis {end}")
        return self._reshape((*self.shape[:a], size_prod(self.shape[a : b + 1]), *self.shape[b + 1 :]))

    def unflatten(self, axis: int, sizes: Sequence[int]) -> Self:
        """Split one axis into several; one size may be -1."""
        a = self._axis(axis, method="unflatten")
        return self.reshape(*self.shape[:a], *sizes, *self.shape[a + 1 :])

    def repeat(self, *counts: Any) -> Self:
        """The whole tensor repeated along axes."""
        times = as_shape(counts)
        if len(times) < self.ndim:
            raise ValueError(f"repeat: {len(times)} counts for {self.ndim} axes")
        base: Shape = (1,) * (len(times) - self.ndim) + tuple(self.shape)
        pairs = tuple(x for s in base for x in (1, s))
        grown = tuple(x for n, s in zip(times, base, strict=True) for x in (n, s))
        return (
            self._reshape(pairs)
            ._broadcast_to(grown)
            ._reshape(tuple(size_prod((n, s)) for n, s in zip(times, base, strict=True)))
        )

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Every element along `dim` (of the flattened tensor without it) repeated in place."""
        x = self.flatten() if dim is None else self
        a = x._axis(dim or 0, method="repeat_interleave")
        shape = x.shape
        wide = x.unsqueeze(a + 1)._broadcast_to((*shape[: a + 1], repeats, *shape[a + 1 :]))
        return wide._reshape((*shape[:a], size_prod((shape[a], repeats)), *shape[a + 1 :]))

    def cat(self: Any, *others: Any, dim: int = 0) -> Any:
        """Joined along an axis: `a.cat(b, c, dim=1)` or `Tensor.cat([a, b], dim=1)`."""
        parts = _gather(self, others)
        first = parts[0]
        a = first._axis(dim, method="cat")
        dtype = parts[0].dtype
        for p in parts:
            if p.ndim != first.ndim or any(
                not same(x, y) for i, (x, y) in enumerate(zip(p.shape, first.shape, strict=True)) if i != a
            ):
                raise ValueError(f"cat: shapes {[p.shape for p in parts]} differ outside of axis {dim}")
            if p.dtype is not dtype:
                raise TypeError(f"cat: dtypes {[p.dtype.name for p in parts]} differ: cast first")
        if len(parts) == 1:
            return first
        total: Size = 0
        for p in parts:
            total = size_add(total, p.shape[a])
        at: Size = 0
        result: UOp | None = None
        place = first._new(UOp(Ops.IOTA, dtypes.int32, (), size_max(total)))
        if not isinstance(total, int):
            place = place.shrink([(0, total)])
        for p in parts:
            behind = size_sub(size_sub(total, at), p.shape[a])
            shape = tuple(total if i == a else s for i, s in enumerate(p.shape))
            wide = p.pad([(at, behind) if i == a else None for i in range(p.ndim)]).uop
            if result is None:
                result = wide
            else:
                # which part an element comes from, rather than a sum of zero-padded parts: NaN and -0 survive
                column = place._reshape(tuple(total if i == a else 1 for i in range(p.ndim)))._broadcast_to(shape).uop
                start = at if isinstance(at, UOp) else UOp.const(at, dtypes.int32)
                before = UOp(Ops.LESS, dtypes.bool, (column, start.cast(dtypes.int32)))
                result = UOp(Ops.WHERE, dtype, (before, result, wide))
            at = size_add(at, p.shape[a])
        assert result is not None
        return first._new(result)

    def stack(self: Any, *others: Any, dim: int = 0) -> Any:
        """Joined along a new axis."""
        parts = _gather(self, others)
        return type(parts[0]).cat(parts[0].unsqueeze(dim), *(p.unsqueeze(dim) for p in parts[1:]), dim=dim)

    def split(self, sizes: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Pieces of the given size (the last may be smaller), or of the given sizes."""
        a = self._axis(dim, method="split")
        total = self.shape[a]
        if not isinstance(total, int):
            raise ValueError("split: the axis has a symbolic size")
        if isinstance(sizes, int):
            if sizes <= 0:
                raise ValueError(f"split: size must be positive, got {sizes}")
            sizes = [min(sizes, total - i) for i in range(0, max(total, 1), sizes)]
        if sum(sizes) != total:
            raise ValueError(f"split: sizes {list(sizes)} do not add up to {total}, axis {dim} of {self.shape}")
        out, at = [], 0
        for n in sizes:
            out.append(self.shrink([(at, at + n) if i == a else None for i in range(self.ndim)]))
            at += n
        return tuple(out)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """At most `chunks` pieces of equal size."""
        total = size_max(self.shape[self._axis(dim, method="chunk")])
        return self.split(max(-(-total // chunks), 1), dim)

    def roll(self, shifts: int, dim: int = 0) -> Self:
        """Shifted cyclically along an axis."""
        a = self._axis(dim, method="roll")
        n = self.shape[a]
        if not isinstance(n, int):
            raise ValueError("roll: the axis has a symbolic size")
        k = shifts % n if n else 0
        if k == 0:
            return self
        tail = self.shrink([(n - k, n) if i == a else None for i in range(self.ndim)])
        head = self.shrink([(0, n - k) if i == a else None for i in range(self.ndim)])
        joined: Self = tail.cat(head, dim=a)
        return joined


def _gather(first: Any, others: Sequence[Any]) -> list[Any]:
    """All tensors given singly or in lists."""
    parts = [*(first if isinstance(first, list | tuple) else [first])]
    for o in others:
        parts.extend(o if isinstance(o, list | tuple) else [o])
    return parts
