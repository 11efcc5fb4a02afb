"""Updates in place: a new version of memory, which every view of the memory sees from the call on."""

from __future__ import annotations

import itertools
from weakref import ref

from tinyweb.array.realize import own
from tinyweb.array.storage import Value, aliases, change, leaf, replace_all, shaped
from tinyweb.device import Device, bindings, current_recorder, not_recording
from tinyweb.graph.ir import MOVEMENT, Ops, UOp, numel_max, size_max, through
from tinyweb.graph.schedule import check_place, new_buffer, spread_of
from tinyweb.graph.schedule.indexing import same
from tinyweb.graph.schedule.views import is_broadcast, view_base

_ids = itertools.count()


def update(method: str, target: Value, value: Value) -> None:
    """Write `value`, broadcast to the shape of `target`, into the memory `target` is a view of (see Tensor.assign)."""
    if value.device != target.device:
        raise ValueError(f"{method}: the value is on {value.device}, the tensor on {target.device}")
    shape = target.uop.shape
    if value.uop.dtype is not target.uop.dtype:
        raise TypeError(
            f"{method}: value has dtype {value.uop.dtype.name}, memory {target.uop.dtype.name}: cast it first"
        )
    if len(value.uop.shape) > len(shape) or not all(
        n == 1 or same(n, m) for n, m in zip(reversed(value.uop.shape), reversed(shape), strict=False)
    ):
        raise ValueError(f"{method}: a value of shape {value.uop.shape} does not broadcast to {shape}")
    if is_broadcast(target.uop):
        raise ValueError(
            f"{method}: elements of this broadcast tensor {shape} share memory, so that they cannot be written "
            "one by one: write to what was expanded, or to .contiguous()"
        )
    value = value._broadcast_to(shape)
    members = Device.members(target.device)
    _find_outside(target)
    storage, recorder = target.storage, current_recorder()
    base = view_base(target.uop)
    mine = aliases(storage, base)
    memory = storage.memory if base.op is not Ops.CUSTOM_GRADIENT else None  # what it was computed from has gradients
    if recorder is not None and memory is base and recorder.is_filled_within(base):
        memory = None  # every replay begins with what the host put there
    written: UOp
    if memory is not None:
        if len(members) > 1:
            check_place(target.uop, members)
        table = {base: _assign(target.uop, value.uop)}
    elif _is_whole(target.uop, base):
        # nothing of the old value is left: the new one takes its place
        whole = value.uop if same_shape(value.uop, base) else UOp(Ops.RESHAPE, base.dtype, (value.uop,), base.shape)
        table = {base: leaf(whole)}
    else:
        spread = spread_of(base, members) if len(members) > 1 else None
        memory = new_buffer(numel_max(size_max(s) for s in base.shape), base.dtype, spread)
        values = bindings([base])
        start = _assign(shaped(memory, base.shape, values), base)
        first = replace_all([shaped(memory, base.shape, values)], {memory: start})[0]
        written = _assign(replace_all([target.uop], {base: first})[0], value.uop)
        table = {base: replace_all([first], {start: written})[0]}
    for t, u in zip(mine, replace_all([t.uop for t in mine], table), strict=True):
        change(t, u)
    storage.memory = memory


def put(target: Value, index: UOp, rows: UOp) -> None:
    """Write `rows` (n, …) to those places of the first axis that `index` (n,), which are different ones, names. What is
    there otherwise stays: `target` has memory of its own, all of which it is, and is not read in the same computation.
    """
    _find_outside(target)
    storage, base = target.storage, view_base(target.uop)
    assert storage.memory is base.buffer
    mine = aliases(storage, base)
    place = UOp(Ops.TAKE, rows.dtype, (target.uop, index), 0)
    table = {base: UOp(Ops.ASSIGN, rows.dtype, (place, rows), next(_ids))}
    for t, u in zip(mine, replace_all([t.uop for t in mine], table), strict=True):
        change(t, u)


def _find_outside(target: Value) -> None:
    """Before memory from outside of a recording is first written in it: every replay finds it, computed."""
    storage, recorder = target.storage, current_recorder()
    if recorder is not None and recorder.is_outside(storage.number):
        with not_recording():
            own(target)
        assert storage.memory is not None
        recorder.outside.add(storage.memory)
        mine = aliases(storage, view_base(target.uop))
        recorder.written[storage.number] = [(ref(t), t.uop) for t in mine]


def same_shape(a: UOp, b: UOp) -> bool:
    return len(a.shape) == len(b.shape) and all(map(same, a.shape, b.shape))


def _assign(view: UOp, value: UOp) -> UOp:
    """The whole memory after `value` was written to `view`."""
    chain, view = through(view, MOVEMENT | {Ops.DETACH})
    for v in reversed(chain):
        if v.op is not Ops.DETACH:
            view = v.replace(src=(view,))
    return UOp(Ops.ASSIGN, view.dtype, (view, value), next(_ids))


def _is_whole(view: UOp, base: UOp) -> bool:
    """Whether a view has the elements of its base in their order."""
    while view is not base:
        if view.op not in (Ops.RESHAPE, Ops.DETACH):
            return False
        view = view.src[0]
    return True
