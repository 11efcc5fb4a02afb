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
    call: Call, count: Size, state: Sequence[Tensor], step: Step, read: Sequence[Tensor], backwards: Sequence[bool] = ()
) -> tuple[list[Tensor], list[Tensor]]:
    """The values after `count` steps, and what all of them give, (count, …) each, the last step first where
    `backwards` says so. `read`: what the steps read, computed before. Of a count that varies the largest is gone
    through, and what is beyond changes nothing.

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
    rows = [_empty(call, (most, *r.shape), r.dtype) for r in given]

    def once() -> list[Tensor]:
        new, each = step(at, held)
        for place, row, back in zip(rows, each, backwards or [False] * len(rows)):
            index = (most if end is None else end) - 1 - at if back else at
            put(place, index.cast(dtypes.int32).uop, row.reshape(1, *row.shape).uop)
        inside = None if end is None else (at < end).reshape(())
        for h, value in zip(held, new):
            if value.uop is not h.uop:
                h.assign(value if inside is None else inside.where(value, h))
        at.assign(at + 1)
        return [*rows, *held, at]

    repeat(once, most, [*rows, *held, at, *before])
    return held, [r if end is None else call.part(r, [count, *r.shape[1:]]) for r in rows]


def _empty(call: Call, shape: Sequence[Size], dtype: DType) -> Tensor:
    made = Tensor.empty(*map(size_max, shape), dtype=dtype, device=call.device).realize()
    return call.part(made, shape)


def _memory(x: Tensor) -> Tensor:
    """A copy in memory of its own: equal values share theirs only if they are computed together."""
    return x.contiguous().realize()
