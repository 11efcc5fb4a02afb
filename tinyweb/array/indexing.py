"""`x[...]`: numbers, slices (symbolic bounds too), None, Ellipsis, masks, integer tensors.

An index is taken apart into what makes a view (numbers, slices, None) and what picks from that view (integer tensors,
masks). As in PyTorch, numbers and integer tensors without axes drop their axis first; then integer tensors broadcast to
one shape, which takes the place of their axes if these lie together, and else comes first.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from tinyweb.array.core import TensorCore
from tinyweb.array.gathering import Gathering, host_value
from tinyweb.array.movement import broadcast_shapes
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Size, UOp, size_add, size_max, size_prod

T = TypeVar("T", bound="Indexing")


@dataclass
class Pick(Generic[T]):
    """An integer tensor or a mask in an index: the first axis of the view it stands at, and what is known of it."""

    axis: int
    index: T
    value: npt.NDArray[Any] | None = None  # of a mask, where it is known without computing anything

    @property
    def is_mask(self) -> bool:
        return self.index.dtype is dtypes.bool

    @property
    def axes(self) -> int:
        """How many axes of the view it takes."""
        return self.index.ndim if self.is_mask else 1


@dataclass
class View(Generic[T]):
    """The view that the basic part of an index names, and how it came about."""

    tensor: T
    lows: list[Size] = field(default_factory=list)  # per axis of the indexed tensor: the first element that is kept,
    ends: list[Size] = field(default_factory=list)  # the one behind the last,
    steps: list[int] = field(default_factory=list)  # and how far they are apart; negative: in reverse order
    padded: bool = False  # whether it is more than a renaming of memory
    picks: list[Pick[T]] = field(default_factory=list)


class Indexing(Gathering):
    """Reading parts of a tensor."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Self:
        """A view for numbers, slices, None, Ellipsis; integer tensors, lists and masks pick (see the module).

        Integer tensors that point outside of their axis read 0; numbers, lists and arrays that do are an IndexError.
        Masks are computed, as they decide the shape.
        """
        view = self._view(key)
        return self._picked(view.tensor, view.picks) if view.picks else view.tensor

    def __iter__(self) -> Iterator[Self]:
        """The parts along the first axis; TypeError where there is none, or its size is symbolic."""
        if not self.shape:
            raise TypeError("iter: a tensor without axes has no parts: use .item()")
        count = self.shape[0]
        if not isinstance(count, int):
            raise TypeError(f"iter: axis 0 of {self.shape} has a symbolic number of parts: read .numpy() or .tolist()")
        return (self[i] for i in range(count))

    # -- taking an index apart ----------------------------------------------------------------------------------------
    def _view(self, key: Any) -> View[Self]:
        items = [self._item(k) for k in (key if isinstance(key, tuple) else (key,))]
        used = sum(_axes_of(k) for k in items)
        if sum(1 for k in items if k is Ellipsis) > 1:
            raise IndexError("an index may hold only one Ellipsis")
        if used > self.ndim:
            raise IndexError(f"too many indices ({used}) for the shape {self.shape}")
        at = next((i for i, k in enumerate(items) if k is Ellipsis), len(items))
        items[at : at + 1] = [slice(None)] * (self.ndim - used)
        view: View[Self] = View(self)
        layout: list[str] = []  # per axis of the view, in order: kept, new, or picked from; "drop" is not among them
        for k in items:
            axis = len(view.lows)
            if k is None:
                layout.append("new")
            elif isinstance(k, slice):
                self._keep(view, *self._slice(k, self.shape[axis], axis))
                layout.append("keep")
            elif isinstance(k, Pick):
                mine = Pick(sum(x != "drop" for x in layout), k.index, k.value)
                view.picks.append(mine)
                if k.value is not None and not k.is_mask:
                    self._check_known(k.value, axis)
                if k.is_mask:
                    self._check_mask(k.index, axis)
                for _ in range(k.axes):
                    self._keep(view, 0, self.shape[len(view.lows)])
                    layout.append("keep")
                if k.axes == 0:  # a mask without axes picks from a new axis
                    layout.append("new")
            else:
                low = self._number(k, self.shape[axis], axis)
                self._keep(view, low, low + 1)
                layout.append("drop")
        t = self
        for a, (low, end, step) in enumerate(zip(view.lows, view.ends, view.steps, strict=True)):
            t, padded = t._strided(a, low, end, abs(step))
            view.padded |= padded
            if step < 0:
                t = t.flip(a)
        sizes = iter(t.shape)
        shape: list[Size] = []
        for what in layout:
            s = 1 if what == "new" else next(sizes)
            if what != "drop":
                shape.append(s)
        view.tensor = t._reshape(tuple(shape))
        return view

    @staticmethod
    def _keep(view: View[Any], low: Size, end: Size, step: int = 1) -> None:
        view.lows.append(low)
        view.ends.append(end)
        view.steps.append(step)

    def _item(self, k: Any) -> Any:
        """A number, slice, None or Ellipsis as it is; anything that picks as a Pick."""
        if k is None or k is Ellipsis or isinstance(k, slice | UOp):
            return k
        if isinstance(k, bool | np.bool_):
            return Pick(0, type(self)(np.array(k), device=self.device), np.array(k))
        if isinstance(k, int | np.integer):
            return int(k)
        if isinstance(k, TensorCore):
            if k.device != self.device:
                raise ValueError(f"index: tensors live on {self.device} and {k.device}: move one with .to()")
            return Pick(0, self._new(k.uop) if k.dtype is dtypes.bool else self._indices(k, "index"))
        if isinstance(k, list | tuple | range | np.ndarray):
            try:
                value = np.asarray(k)
            except ValueError as e:
                raise IndexError(f"index: a list in an index needs rows of equal length: {e}") from None
            if value.size == 0 and not isinstance(k, np.ndarray):
                value = value.astype(np.int32)
            if value.dtype.kind == "b":
                return Pick(0, type(self)(value, device=self.device), value)
            if value.dtype.kind not in "iu":
                raise IndexError(f"index: a list or array in an index must hold integers or bools, got {value.dtype}")
            return Pick(0, self._indices(value, "index"), value)
        raise IndexError(
            f"cannot index with {type(k).__name__}: use numbers, slices, None, Ellipsis, masks or integer tensors"
        )

    def _check_known(self, value: npt.NDArray[Any], axis: int) -> None:
        n = self.shape[axis]
        if isinstance(n, int) and value.size and not (-n <= value.min() and value.max() < n):
            outside = value.max() if value.max() >= n else value.min()
            raise IndexError(f"index {outside} is outside of axis {axis} of {self.shape}")

    def _check_mask(self, mask: TensorCore, axis: int) -> None:
        if tuple(mask.shape) != tuple(self.shape[axis : axis + mask.ndim]):
            raise IndexError(f"a mask of shape {mask.shape} does not go with {self.shape} from axis {axis} on")

    def _number(self, k: Size, n: Size, axis: int) -> Size:
        if isinstance(k, int):
            if not -size_max(n) <= k < size_max(n):
                raise IndexError(f"index {k} is outside of axis {axis} of {self.shape}")
            return size_add(n, k) if k < 0 else k
        if k.vmin < 0 or k.vmax >= size_max(n):
            raise IndexError(f"index with bounds [{k.vmin}, {k.vmax}] can leave axis {axis} of {self.shape}")
        return k

    def _slice(self, k: slice, n: Size, axis: int) -> tuple[Size, Size, int]:
        """(lowest element, the one behind the highest, step) of a slice of an axis of n."""
        try:
            start, stop, step = (x if x is None or isinstance(x, UOp) else operator.index(x) for x in _parts(k))
        except TypeError:
            raise IndexError(f"slice [{k.start}:{k.stop}:{k.step}]: bounds are integers or Variables") from None
        step = 1 if step is None else step
        if not isinstance(step, int) or step == 0:
            raise IndexError(f"the step of a slice must be a nonzero integer, got {k.step!r}")
        if isinstance(n, int) and not isinstance(start, UOp) and not isinstance(stop, UOp):
            inside = range(*slice(start, stop, step).indices(n))
            return (min(inside[0], inside[-1]), max(inside[0], inside[-1]) + 1, step) if inside else (0, 0, 1)
        if step != 1:
            if step == -1 and start is None and stop is None:
                return 0, n, -1
            if step < 0:
                raise IndexError("a slice with symbolic bounds goes forwards: flip the axis first")
        begin: Size = 0 if start is None else start
        end: Size = n if stop is None else stop
        if isinstance(begin, int) and begin < 0:
            begin = size_add(n, begin)
        if isinstance(end, int) and end < 0:
            end = size_add(n, end)
        low = begin if isinstance(begin, int) else begin.vmin
        if low < 0 or size_max(end) > size_max(n):
            raise IndexError(f"slice [{k.start}:{k.stop}] can leave axis {axis} of {self.shape}")
        return begin, end, step

    def _strided(self, axis: int, low: Size, end: Size, step: int) -> tuple[Self, bool]:
        """Every `step`-th element of low … end-1 of an axis; and whether that took more than renaming."""
        n = self.shape[axis]
        if step == 1:
            return self._along(axis, low, end), False
        if not (isinstance(n, int) and isinstance(low, int) and isinstance(end, int)):
            windows = self._along(axis, low, end)._sliding(axis, 1, step)
            return windows._reshape(tuple(windows.shape[:-1])), True
        count = -(-(end - low) // step)
        # blocks of `step` elements, of which one is taken: they may begin before `low`, if they would end too late
        begin = min(low, n - count * step)
        padded = begin < 0
        if padded:
            begin = low
            t = self._along(axis, low, n)._pad_view(axis, low + count * step - n)
        else:
            t = self._along(axis, begin, begin + count * step)
        t = t._reshape((*self.shape[:axis], count, step, *self.shape[axis + 1 :]))
        t = t._along(axis + 1, low - begin, low - begin + 1)
        return t._reshape((*self.shape[:axis], count, *self.shape[axis + 1 :])), padded

    # -- picking ------------------------------------------------------------------------------------------------------
    def _picked(self, t: Self, picks: Sequence[Pick[Self]]) -> Self:
        if len(picks) == 1 and picks[0].is_mask and picks[0].axes:
            return t._select(picks[0].index, picks[0].axis, _mask_value(picks[0]))
        t, picks = self._merge_masks(t, picks)
        t, picks = _drop_axes(t, picks)
        if not picks:
            return t
        wanted = broadcast_shapes("index", *(p.index.shape for p in picks))
        axes = [p.axis for p in picks]
        if len(picks) == 1:
            return t._take(t._from_front(picks[0].index, t.shape[axes[0]]), axes[0])
        rest = [a for a in range(t.ndim) if a not in axes]
        t = t.permute(*axes, *rest)
        first = t._from_front(picks[0].index, t.shape[0])
        t = t._pick(first, 0)
        k = len(wanted)
        others = tuple(t.shape[first.ndim :])
        t = t._reshape((*(1,) * (k - first.ndim), *t.shape))._broadcast_to((*wanted, *others))
        for p in picks[1:]:
            t = t._pick(t._from_front(p.index, t.shape[k])._broadcast_to(wanted), k)
        before = place(axes)
        return t.permute(*range(k, k + before), *range(k), *range(k + before, t.ndim))

    def _merge_masks(self, t: Self, picks: Sequence[Pick[Self]]) -> tuple[Self, list[Pick[Self]]]:
        """Masks as integers: each merges its axes and picks from the result."""
        out: list[Pick[Self]] = []
        gone = 0  # axes by which what follows moves to the front
        for p in picks:
            axis = p.axis - gone
            if not p.is_mask:
                out.append(Pick(axis, p.index))
                continue
            n = p.axes
            if n != 0:
                t = t._reshape((*t.shape[:axis], size_prod(p.index.shape), *t.shape[axis + n :]))
                gone += n - 1
            where = np.flatnonzero(_mask_value(p)).astype(np.int32)
            out.append(Pick(axis, self._indices(where, "index")))
        return t, out


def _drop_axes(t: T, picks: Sequence[Pick[T]]) -> tuple[T, list[Pick[T]]]:
    """Integer tensors without axes pick first."""
    gone = [p for p in picks if p.index.ndim == 0]
    for p in reversed(gone):
        t = t._take(t._from_front(p.index, t.shape[p.axis]), p.axis)
    return t, [Pick(q.axis - sum(p.axis < q.axis for p in gone), q.index) for q in picks if q.index.ndim]


def place(axes: Sequence[int]) -> int:
    """How many of the axes that are not picked from come before those of the indices."""
    together = list(axes) == list(range(axes[0], axes[0] + len(axes)))
    return axes[0] if together else 0


def _mask_value(p: Pick[Any]) -> npt.NDArray[Any]:
    return host_value(p.index, "index") if p.value is None else p.value


def _axes_of(k: Any) -> int:
    """Axes of the indexed tensor that one item of an index uses."""
    if k is None or k is Ellipsis:
        return 0
    return k.axes if isinstance(k, Pick) else 1


def _parts(k: slice) -> tuple[Any, Any, Any]:
    return k.start, k.stop, k.step
