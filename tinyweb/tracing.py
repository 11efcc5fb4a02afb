"""Trace and replay: `jit` compiles a function of tensors once, `capture` records what a computation would launch.

step = jit(lambda x, pos: model(x, pos).realize())
step(x, start_pos.bind(3))        # traced, scheduled and compiled
step(y, start_pos.bind(4))        # only launched
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tinyweb.array.core import TensorCore, bound_size, realize_all
from tinyweb.device import Device, Memory, recording
from tinyweb.graph.ir import Ops, UOp, size_sub
from tinyweb.graph.schedule import KernelCall, MemoryPlan, nbytes, new_buffer
from tinyweb.graph.schedule.memory import plan_memory

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What a captured computation launches, on any target: kernels with their buffers, in order.

    Buffers are those of the tensors it read and wrote, plus `temporaries`, which share the pools of `memory`.
    """

    calls: tuple[KernelCall, ...]
    memory: MemoryPlan
    device: str
    refreshed: tuple[tuple[UOp, Callable[[], bytes]], ...] = ()  # buffers that every replay fills anew from the host

    @property
    def temporaries(self) -> tuple[UOp, ...]:
        return tuple(self.memory.pool_of)

    @property
    def pool_bytes(self) -> tuple[int, ...]:
        return self.memory.pool_bytes

    @property
    def variables(self) -> list[UOp]:
        """The VARIABLEs that launches need values for, by name."""
        found = {v for k in {c.kernel for c in self.calls} for v in k.variables()}
        return sorted(found, key=lambda v: str(v.arg[0]))

    @property
    def kernels(self) -> list[UOp]:
        """The distinct kernels, in order of first use."""
        return list(dict.fromkeys(c.kernel for c in self.calls))


def capture(function: Callable[[], Any]) -> Plan:
    """Run `function`, which computes (or returns) tensors, and record instead of executing.

    Memory that the function updates in place is not touched; its tensors look afterwards as if it had been.
    """
    return _record(function)[0]


def _record(function: Callable[[], Any]) -> tuple[Plan, Any, dict[str, int]]:
    with recording() as recorder:
        out = function()
        pending = _tensors(out)
        realize_all(pending)
    devices = {d for d, _ in recorder.schedules}
    if len(devices) > 1:
        raise ValueError(f"capture: the computation uses several devices: {', '.join(sorted(devices))}")
    calls = tuple(c for _, s in recorder.schedules for c in s.calls)
    temporaries = [b for _, s in recorder.schedules for b in s.temporaries]
    memory = plan_memory([c.buffers for c in calls], temporaries)
    device = devices.pop() if devices else Device.DEFAULT
    return Plan(calls, memory, device, tuple(recorder.refreshed)), out, recorder.variables


def _tensors(value: Any) -> list[TensorCore]:
    if isinstance(value, TensorCore):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in _tensors(v)] if isinstance(value, list | tuple) else []


@dataclass
class _Traced:
    plan: Plan
    inputs: list[UOp]  # BUFFERs that stand for the arguments' memory
    outputs: list[UOp]  # BUFFERs that stand for the results' memory
    result: Any
    pools: list[Memory]


class jit(Generic[T]):
    """A function of tensors that is traced on its first call for given shapes and replayed afterwards.

    Tensor arguments may be nested in lists, tuples and dicts. Bound Variables are inputs too: one trace serves all
    their
    values. Anything else is part of the key. Memory the function updates in place (a KV cache) stays on the device.
    """

    def __init__(self, function: Callable[..., T]):
        self.function = function
        self.traces: dict[Any, _Traced] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        tensors: list[TensorCore] = []
        values: dict[str, int] = {}
        key = _key((args, kwargs), tensors, values)
        realize_all(tensors)
        traced = self.traces.get(key)
        if traced is None:
            traced = self.traces[key] = self._trace(args, kwargs, tensors)
        else:
            device = Device[traced.plan.device]
            for buffer, data in traced.plan.refreshed:
                device.runtime.copy_in(device.memory(buffer).handle, memoryview(data()))
        return self._replay(traced, tensors, values)  # type: ignore[no-any-return]

    def _trace(self, args: Any, kwargs: Any, tensors: list[TensorCore]) -> _Traced:
        stand_ins: dict[int, TensorCore] = {}
        inputs: list[UOp] = []
        for t in tensors:
            buffer = new_buffer(t.uop.buffer.arg.size, t.dtype)
            inputs.append(buffer)
            stand_ins[id(t)] = type(t)._wrap(_view_of(buffer, t.uop), t.device)
        args, kwargs = _swap((args, kwargs), stand_ins)
        plan, result, _ = _record(lambda: self.function(*args, **kwargs))
        outputs = [t.uop.buffer for t in _tensors(result)]
        device = Device[plan.device]
        device.compile(plan.kernels)
        return _Traced(plan, inputs, outputs, result, [Memory(device.runtime, n) for n in plan.pool_bytes])

    def _replay(self, traced: _Traced, tensors: list[TensorCore], values: dict[str, int]) -> Any:
        device = Device[traced.plan.device]
        place = {b: traced.pools[p] for b, p in traced.plan.memory.pool_of.items()}
        for stand_in, t in zip(traced.inputs, tensors, strict=True):
            place[stand_in] = device.memory(t.uop.buffer)
        fresh: dict[UOp, UOp] = {}
        written = {c.buffers[0] for c in traced.plan.calls}
        for b in traced.outputs:
            # results the plan computes get new memory each time; state that lives on keeps its own
            if b in written and b not in place and not b.__dict__.get("memory"):
                fresh[b] = new_buffer(b.arg.size, b.dtype)
                place[b] = device.memory(fresh[b])
        device.launch(traced.plan.calls, place, values)
        given = dict(zip(traced.inputs, (t.uop.buffer for t in tensors), strict=True))
        table = {**given, **fresh}
        return _rebuild(traced.result, table, values)


def _view_of(buffer: UOp, uop: UOp) -> UOp:
    from tinyweb.graph.ir import substitute

    return substitute(uop, {uop.buffer: buffer})


def _key(value: Any, tensors: list[TensorCore], values: dict[str, int]) -> Any:
    if isinstance(value, TensorCore):
        realize_all([value])
        if any(value is t for t in tensors):
            return ("same", next(i for i, t in enumerate(tensors) if t is value))
        tensors.append(value)
        return ("tensor", value.shape, value.dtype.name, value.device)
    if isinstance(value, UOp) and value.op is Ops.BIND:
        values[value.src[0].arg[0]] = value.src[1].arg
        return value.src[0]
    if isinstance(value, dict):
        return tuple((k, _key(v, tensors, values)) for k, v in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(_key(v, tensors, values) for v in value)
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"jit: an argument of type {type(value).__name__} can be neither traced nor compared") from None
    return (type(value).__name__, value)


def _swap(value: Any, table: dict[int, TensorCore]) -> Any:
    if isinstance(value, TensorCore):
        return table[id(value)]
    if isinstance(value, dict):
        return {k: _swap(v, table) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_swap(v, table) for v in value)
    return value


def _rebuild(value: Any, table: dict[UOp, UOp], values: dict[str, int]) -> Any:
    from tinyweb.graph.ir import substitute

    if isinstance(value, TensorCore):
        u = substitute(value.uop, table)
        if u.op is Ops.SHRINK:  # a result of symbolic size: this call's, not the traced one's
            u = u.replace(arg=tuple((b, bound_size(size_sub(e, 0), values)) for b, e in u.arg))
        return type(value)._wrap(u, value.device)
    if isinstance(value, dict):
        return {k: _rebuild(v, table, values) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_rebuild(v, table, values) for v in value)
    return value


__all__ = ["Plan", "capture", "jit", "nbytes"]
