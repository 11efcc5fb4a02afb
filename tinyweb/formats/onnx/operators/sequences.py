"""Sequences are lists, an absent optional is None."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyweb.formats.onnx.call import Array, Call, Held, Host, lift
from tinyweb.formats.onnx.operators.common import fixed, join, number, reshape, whole_axis
from tinyweb.formats.onnx.operators.control import plain, together
from tinyweb.formats.onnx.registry import op


@op("SequenceEmpty", raw=True)
def sequence_empty(call: Call) -> list[Any]:
    return []


@op("SequenceConstruct", raw=True)
def sequence_construct(call: Call, *values: Any) -> list[Any]:
    return list(values)


def _list(call: Call, sequence: Any) -> list[Any]:
    if not isinstance(sequence, list):
        raise call.error("the input is no sequence")
    return sequence


def _place(call: Call, at: Any, n: int, extra: int = 0) -> int:
    i = int(number(call.known(at, "the position")))
    if not -n <= i < n + extra:
        raise call.error(f"position {i} is outside of a sequence of {n}")
    return i + n if i < 0 else i


@op("SequenceInsert", raw=True)
def sequence_insert(call: Call, sequence: Any, value: Any, at: Any = None) -> list[Any]:
    items = list(_list(call, sequence))
    items.insert(len(items) if at is None else _place(call, at, len(items), 1), value)
    return items


@op("SequenceErase", raw=True)
def sequence_erase(call: Call, sequence: Any, at: Any = None) -> list[Any]:
    items = list(_list(call, sequence))
    del items[len(items) - 1 if at is None else _place(call, at, len(items))]
    return items


@op("SequenceAt", raw=True)
def sequence_at(call: Call, sequence: Any, at: Any) -> Any:
    items = _list(call, sequence)
    return items[_place(call, at, len(items))]


@op("SequenceLength", raw=True)
def sequence_length(call: Call, sequence: Any) -> Host:
    return np.array(len(_list(call, sequence)), np.int64)


@op("SplitToSequence", raw=True)
def split_to_sequence(call: Call, x: Array, split: Any = None) -> list[Any]:
    axis = whole_axis(call, call.integer("axis", 0), len(x.shape))
    n, keep = fixed(x.shape[axis]), True
    if split is None:
        sizes, keep = [1] * n, bool(call.integer("keepdims", 1))
    else:
        given = call.known(split, "the split")
        each = int(given) if given.ndim == 0 else 0
        sizes = [min(each, n - i) for i in range(0, n, each)] if each > 0 else given.reshape(-1).tolist()
    if sum(sizes) != n or min(sizes, default=0) < 0:
        raise call.error(f"parts {sizes} are not what axis {axis} of {list(x.shape)} has")
    ends = np.cumsum(sizes).tolist()
    parts = [x[(*(slice(None),) * axis, slice(e - s, e))] for s, e in zip(sizes, ends)]
    return parts if keep else [reshape(p, (*p.shape[:axis], *p.shape[axis + 1 :])) for p in parts]


@op("ConcatFromSequence", raw=True)
def concat_from_sequence(call: Call, sequence: Any) -> Any:
    items = [plain(v) for v in _list(call, sequence)]
    if not items:
        raise call.error("an empty sequence has no shape")
    if call.integer("new_axis", 0):
        return together(call, items, call.integer("axis"))
    axis = whole_axis(call, call.integer("axis"), len(items[0].shape))
    if not all(isinstance(v, np.ndarray) for v in items):
        items = [lift(v, call.device) for v in items]
    return join(items, axis)


@op("SequenceMap", raw=True)
def sequence_map(call: Call, sequence: Any, *others: Any) -> Any:
    body, items = call.graph("body"), _list(call, sequence)
    rows = [call.run(body, [v, *(o[i] if isinstance(o, list) else o for o in others)]) for i, v in enumerate(items)]
    return tuple([plain(row[k]) for row in rows] for k in range(len(body.outputs)))


@op("Optional", raw=True)
def optional(call: Call, value: Any = None) -> Any:
    return value


@op("OptionalHasElement", raw=True)
def optional_has_element(call: Call, value: Any = None) -> Host:
    return np.array(value is not None)


@op("OptionalGetElement", raw=True)
def optional_get_element(call: Call, value: Any) -> Any:
    if value is None:
        raise call.error("the optional holds nothing")
    return Held(value, call.kinds[0]) if call.kinds[0] is not None else value
