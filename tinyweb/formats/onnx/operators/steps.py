"""Steps of loops, scans and recurrent layers: unrolled where they are few, else a loop that launches the kernels of one
step again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from tinyweb.array.realize import realize_all
from tinyweb.array.update import put, same_shape
from tinyweb.dtype import DType, dtypes
from tinyweb.formats.onnx.call import Call
from tinyweb.formats.onnx.graph import Graph
from tinyweb.graph.ir import Size, size_max
from tinyweb.tensor import Tensor
from tinyweb.tracing import repeat

UNROLLED = 128  # nodes of a graph that all steps together may have without a loop

Step: TypeAlias = Callable[[Tensor, list[Tensor]], tuple[list[Tensor], list[Tensor]]]
"""From the number of a step, int32 (1,), and the values before it to those after it, and to what each step gives."""


def size_of_graph(graph: Graph) -> int:
    """Nodes, those of inner graphs included."""
    return sum(1 for _ in graph.every_node())


def is_long(count: int, nodes: int) -> bool:
    """Whether so many steps are a loop."""
    return count > 1 and count * nodes > UNROLLED


def looped(
    call: Call, count: Size, state: Sequence[Tensor], step: Step, read: Sequence[Tensor],
    backwards: Sequence[bool | Sequence[bool]] = (),
) -> tuple[list[Tensor], list[Tensor]]:  # fmt: skip
    """The values after `count` steps, and what all of them give, (count, …) each, the last step first where
    `backwards` says so; several of these for what has a first axis of such directions. `read`: what the steps read,
    computed before. Of a count that varies the largest is gone through, and what is beyond changes nothing.

    NotImplementedError where a step gives values of another shape or type than it takes.
    """
    most, device = size_max(count), call.device
    end = None if isinstance(count, int) else call.whole(count, np.dtype(np.int32)).reshape(1)
    at = Tensor.zeros(1, dtype=dtypes.int32, device=device)
    after, given = step(at, list(state))  # only for the shapes
    for old, new in zip(state, after):
        if not same_shape(old.uop, new.uop) or old.dtype is not new.dtype:
            raise NotImplementedError(
                f"steps change the shape or type of a value, from {old.dtype.name} {list(old.shape)} to "
                f"{new.dtype.name} {list(new.shape)}"
            )
    before = [*read, *([] if end is None else [end])]
    realize_all(before)
    held = [_memory(s) for s in state]
    at = _memory(at)
    backwards = backwards or [False] * len(given)
    ways = [[b] if isinstance(b, bool) else b for b in backwards]
    rows = [
        _empty(call, (most * len(w), *r.shape[0 if isinstance(b, bool) else 1 :]), r.dtype)
        for r, w, b in zip(given, ways, backwards)
    ]

    def once() -> list[Tensor]:
        new, each = step(at, held)
        last = (most if end is None else end) - 1
        for place, row, back in zip(rows, each, ways):
            index = [((last - at) if b else at) * len(back) + d for d, b in enumerate(back)]
            put(place, Tensor.cat(*index).cast(dtypes.int32).uop, row.reshape(len(back), *place.shape[1:]).uop)
        inside = None if end is None else (at < end).reshape(())
        for h, value in zip(held, new):
            if value.uop is not h.uop:
                h.assign(value if inside is None else inside.where(value, h))
        at.assign(at + 1)
        return [*rows, *held, at]

    repeat(once, most, [*rows, *held, at, *before])
    rows = [r.reshape(most, *g.shape) for r, g in zip(rows, given)]
    return held, [r if end is None else call.part(r, [count, *r.shape[1:]]) for r in rows]


def _empty(call: Call, shape: Sequence[Size], dtype: DType) -> Tensor:
    made = Tensor.empty(*map(size_max, shape), dtype=dtype, device=call.device).realize()
    return call.part(made, shape)


def _memory(x: Tensor) -> Tensor:
    """A copy in memory of its own: equal values share theirs only if they are computed together."""
    return x.contiguous().realize()
