"""The kernels of random programs compute the same under random legal schedules, and stay inside their memory."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.generator import Program, programs
from tests.fuzz.reference import mismatch
from tests.graph.optimize.test_schedules import quickly, schedules
from tests.graph.proofs.bounds import Unproven, check_bounds
from tests.tuning.test_search import enumerated
from tinyweb import Tensor, Variable
from tinyweb.array.packing import unpack
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import UOp, size_max
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import apply, optimize
from tinyweb.graph.target import Target, cpu_target, interpreter_target, webgpu_target
from tinyweb.native_runtimes.interpreter import InterpreterRuntime
from tinyweb.native_runtimes.protocol import Launch
from tinyweb.tracing import Plan, capture

TARGETS = [cpu_target(8, 4), webgpu_target()]


def planned(program: Program) -> tuple[Plan, dict[str, Tensor], dict[UOp, bytes]]:
    """What a program would launch, its outputs, and what its inputs hold."""
    scope: dict[str, Any] = {"Tensor": Tensor, "dtypes": dtypes, "np": np}
    for name, (low, high, at) in program.variables.items():
        scope[name] = Variable(name, low, high).bind(at)
    inputs: dict[UOp, bytes] = {}
    for name, v, _ in program.inputs:
        scope[name] = Tensor(v.array, dtype=v.dtype, device="CPU")
        inputs[scope[name].uop.buffer] = scope[name].data()

    def compute() -> None:
        exec("\n".join(program.lines), scope)
        for name in program.outputs:
            scope[name] = scope[name].contiguous()
        first, *others = (scope[name] for name in program.outputs)
        first.realize(*others)

    plan = capture(compute)
    return plan, {name: scope[name] for name in program.outputs}, inputs


def carry_out(plan: Plan, scheduled: dict[UOp, UOp], target: Target, held: dict[UOp, bytes], variables: dict[str, int]):
    """The interpreter's memory after the plan, with each kernel in its scheduled form."""
    runtime = InterpreterRuntime(target)
    handles: dict[UOp, Any] = {}
    for call in plan.calls:
        program = lower(scheduled[call.kernel], target)
        (executable,) = runtime.compile([program])
        for buffer, info in zip(call.buffers, program.params, strict=True):
            if buffer not in handles:
                size = buffer.dtype.nbytes(buffer.arg.size)
                handles[buffer] = runtime.allocate(max(size, info.dtype.nbytes(info.size), -(-size // 4) * 4))
                if buffer in held:
                    runtime.copy_in(handles[buffer], memoryview(held[buffer]))
        runtime.run([Launch(executable, tuple(handles[b] for b in call.buffers))], variables)

    def read(buffer: UOp) -> bytes:
        if buffer not in handles:  # an input that is an output
            return held[buffer]
        return runtime.copy_out(handles[buffer], buffer.dtype.nbytes(buffer.arg.size))

    return read


def scheduled_by(how: str, kernel: UOp, target: Target, source: st.DataObject) -> UOp:
    """The kernel under random actions, under one of the schedules that search tries, or as it is compiled."""
    if how == "random":
        return apply(kernel, source.draw(schedules(kernel, target)))
    if how == "searched":
        try:
            found = apply(kernel, enumerated(kernel, target, source.draw(st.integers(0, 99))))
            lower(found, target)
        except (IndexError, ValueError):
            pass  # nothing fits, or a limit that only lowering sees: search drops it as well
        else:
            return found
    return optimize(kernel, target)


def check(program: Program, target: Target, source: st.DataObject, how: str = "random", effort: int = 4) -> None:
    """`effort`: what a proof may take, in millions of Z3's steps."""
    plan, outputs, held = planned(program)
    scheduled: dict[UOp, UOp] = {}
    for k in plan.kernels:
        scheduled[k] = scheduled_by(how, k, target, source)
        # indices that come out of other indices in memory can take Z3 too long: of these the interpreter, which refuses
        # what is outside of memory, sees the program's own values
        with suppress(Unproven):
            check_bounds(k, None, effort)
            check_bounds(scheduled[k], None, effort)
            check_bounds(lower(scheduled[k], target), target, effort)
    values = {name: at for name, (_, _, at) in program.variables.items()}
    read = carry_out(plan, scheduled, target, held, values)
    written = set(held).union(*(call.written for call in plan.calls))
    for name, t in outputs.items():
        want, buffer = program.values[name], t.uop.buffer
        if want.array.size == 0:
            continue
        assert buffer in written, name
        shape = tuple(size_max(s) for s in t.shape)
        whole = unpack(read(buffer), t.dtype, int(np.prod(shape))).reshape(shape)
        wrong = mismatch(whole[tuple(slice(0, n) for n in want.shape)], want)
        schedule = "\n".join(f"{i}: {'; '.join(k.arg.schedule)}" for i, k in enumerate(scheduled.values()))
        assert wrong is None, f"{name} for {target.name}: {wrong}\n{schedule}\n\n{program.text('CPU')}\n"


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@settings(quickly, max_examples=8)
@given(programs(8), st.data())
def test_random_schedules(target: Target, program: Program, source: st.DataObject) -> None:
    check(program, target, source)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@settings(quickly, max_examples=4)
@given(programs(6), st.data())
def test_searched_schedules(target: Target, program: Program, source: st.DataObject) -> None:
    check(program, target, source, "searched")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["random", "searched", "usual"])
@pytest.mark.parametrize("target", [*TARGETS, interpreter_target()], ids=lambda t: t.name)
@settings(quickly, max_examples=400)
@given(programs(), st.data())
def test_many(target: Target, how: str, program: Program, source: st.DataObject) -> None:
    check(program, target, source, how, effort=40)
