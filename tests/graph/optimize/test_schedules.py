"""Every legal schedule of a kernel computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st

from tests.graph.lower.hand_kernels import BY_NAME, check
from tests.samples import slow_unless
from tinyweb.graph.ir import AxisKind, Ops, Space, UOp
from tinyweb.graph.optimize import (
    Action,
    Bind,
    Factor,
    Fuse,
    Hoist,
    Peel,
    Reorder,
    RFactor,
    ScheduleError,
    Split,
    Stage,
    Tensorize,
    apply,
    from_json,
    prepared,
    to_json,
)
from tinyweb.graph.optimize.actions import inner_part
from tinyweb.graph.optimize.instructions import INSTRUCTIONS
from tinyweb.graph.optimize.rewrite import ranges_of
from tinyweb.graph.target import Target, cpu_target, interpreter_target, wasm_target, webgpu_target
from tinyweb.tuning.candidates import carry_out

KERNELS = [
    "elementwise", "row_sums", "matmul", "linear_6_24_32", "linear_2_13_21", "half_matvec", "quantised_i8",
    "quantised_i4", "dots_i8", "dots_i4", "dots_i4_few", "dots_i4_4", "softmax_3_13", "softmax_6_40",
    "softmax_columns", "convolution", "padded", "transposed",
    "scores_6", "symbolic_softmax_12", "weighted_values_17", "argmax", "two_stores", "gate_and_up", "in_place",
    "stores_f16_30", "stores_bool_21", "stores_i8_18", "bf16_sum", "products",
]  # fmt: skip
FACTORS = (2, 3, 4, 8)


@st.composite
def actions(draw: st.DrawFn, kernel: UOp, target: Target) -> Action:
    """An action on one of the kernel's axes; it may be illegal."""
    ranges = ranges_of(kernel)
    r = draw(st.sampled_from(ranges))
    name = r.arg.name
    kinds = ["split", "vector", "unroll", "reorder", "stage"]
    kinds += ["group", "thread"] if target.has_threads else []
    kinds += ["peel", "hoist", "tensorize", "rfactor", "factor"] if r.arg.reduce else ["grid", "overlap", "fuse"]
    kind = draw(st.sampled_from(kinds))
    dim = draw(st.integers(0, 2)) if target.has_threads else 0
    if kind == "split":
        return Split(name, draw(st.sampled_from(FACTORS)))
    if kind == "overlap":
        return Split(name, draw(st.sampled_from(FACTORS)), overlap=True)
    if kind == "fuse":
        return Fuse(name, draw(st.sampled_from([o.arg.name for o in ranges if not o.arg.reduce])))
    if kind == "peel":
        return Peel(name, draw(st.sampled_from(FACTORS)))
    if kind == "rfactor":
        return RFactor(name)
    if kind == "factor":
        return Factor((name,))
    if kind == "tensorize":
        outputs = [o.arg.name for o in ranges if not o.arg.reduce] or [name]
        return Tensorize(name, draw(st.sampled_from(sorted(INSTRUCTIONS))), draw(st.sampled_from(["", *outputs])))
    if kind == "stage":
        slots = [u.arg.slot for u in kernel.toposort() if u.op is Ops.PARAM]
        space = Space.SHARED if target.has_threads and draw(st.booleans()) else Space.REGISTER
        pad = draw(st.sampled_from((0, 1, 4))) if space is Space.SHARED else 0
        return Stage(draw(st.sampled_from(slots)), name, space, pad)
    if kind == "hoist":
        return Hoist(name, draw(st.sampled_from([o.arg.name for o in ranges if not o.arg.reduce] or [name])))
    if kind == "group":
        inner = name.endswith(".1")  # of an axis that was split before
        return Bind(name, AxisKind.THREAD, dim) if inner else Split(name, draw(st.sampled_from((2, 3, 8, 24))))
    if kind == "reorder":
        alike = [o.arg.name for o in ranges if o.arg.reduce == r.arg.reduce]
        return Reorder(tuple(draw(st.permutations(alike))))
    return Bind(name, AxisKind[kind.upper()], dim if kind in ("grid", "thread") else 0)


@st.composite
def schedules(draw: st.DrawFn, kernel: UOp, target: Target) -> tuple[Action, ...]:
    """Actions that are legal one after the other. Lanes stay few: what is tested does not depend on their number."""
    chosen: list[Action] = []
    lanes = threads = 1
    current = prepared(kernel)  # what `apply` begins with
    for _ in range(draw(st.integers(1, 7))):
        if not ranges_of(current):
            break
        action = draw(actions(current, target))
        try:
            following = action.apply(current)
        except ScheduleError:
            continue
        if isinstance(action, Bind):
            bound = [r for r in ranges_of(following) if r.arg.kind is not AxisKind.LOOP]
            lanes = threads = 1
            for r in bound:
                size = r.src[0].vmax
                if r.arg.kind in (AxisKind.VECTOR, AxisKind.UNROLL):
                    lanes *= size
            for dim in range(3):
                threads *= max(
                    (r.src[0].vmax for r in bound if r.arg.kind is AxisKind.THREAD and r.arg.dim == dim), default=1
                )
            if lanes > 64 or threads > 64:
                continue
        chosen.append(action)
        current = following
    return tuple(chosen)


@contextmanager
def enough_memory() -> Iterator[None]:
    """Passes over schedules that stage more than the target's shared memory holds: lowering refuses them."""
    try:
        yield
    except ValueError as error:
        if "bytes of shared memory" not in str(error):
            raise
        reject()


# no shrinking: an example takes a good part of a second, and a schedule is short as it is
quickly = settings(phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(
    ("name", "target"),
    slow_unless(
        lambda name, target: target.has_threads == KERNELS.index(name) % 2, KERNELS, (cpu_target(8, 4), webgpu_target())
    ),
    ids=lambda v: v.name if isinstance(v, Target) else v,
)
@settings(quickly, max_examples=4)
@given(data=st.data())
def test_any_schedule(name: str, target: Target, data: st.DataObject) -> None:
    check_schedule(name, target, data)


@pytest.mark.parametrize("target", [cpu_target(8, 4), wasm_target()], ids=lambda t: t.name)
@pytest.mark.parametrize(
    "name", ["matmul", "linear_6_24_32", "linear_2_13_21", "convolution", "gate_and_up", "scores_6", "products"]
)
@settings(quickly, max_examples=4)
@given(data=st.data())
def test_any_schedule_with_blocks_of_sums(name: str, target: Target, data: st.DataObject) -> None:
    """A random schedule that begins with tiles, splits a reduced axis and hoists its outer part."""
    case = BY_NAME[name]
    ranges = ranges_of(apply(case.kernel, ()))
    outputs = [r.arg.name for r in ranges if not r.arg.reduce]
    r = data.draw(st.sampled_from([r.arg.name for r in ranges if r.arg.reduce]))
    chosen: list[Action] = [Split(r, data.draw(st.sampled_from(FACTORS)))]
    for o in outputs:
        chosen.append(Split(o, data.draw(st.sampled_from((1, 2, 3, 4))), overlap=data.draw(st.booleans())))
    order = data.draw(st.permutations([f"{o}.{part}" for o in outputs for part in (0, 1)]))
    chosen.append(Reorder(tuple(order)))
    lanes = data.draw(st.sampled_from([None, *order]))
    if lanes is not None and lanes.endswith(".1"):
        chosen.append(Bind(lanes, data.draw(st.sampled_from((AxisKind.VECTOR, AxisKind.UNROLL)))))
    if data.draw(st.booleans()):
        chosen.append(Bind(order[0], AxisKind.GRID))
    chosen.append(Hoist(f"{r}.0", data.draw(st.sampled_from(order))))
    slots = [u.arg.slot for u in case.kernel.toposort() if u.op is Ops.PARAM]
    places = [f"{r}.0", f"{r}.1", *order, *(f"acc.{o}" for o in order)]
    chosen += [
        Stage(data.draw(st.sampled_from(slots)), data.draw(st.sampled_from(places)), Space.REGISTER) for _ in range(3)
    ]
    legal, _ = carry_out(case.kernel, chosen)
    check(case, apply(case.kernel, legal), target)


@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [cpu_target(16, 4), wasm_target(), webgpu_target(), webgpu_target(subgroups=True), interpreter_target()],
    ids=lambda t: t.name,
)
@pytest.mark.parametrize("name", KERNELS)
@settings(quickly, max_examples=40)
@given(data=st.data())
def test_many_schedules(name: str, target: Target, data: st.DataObject) -> None:
    check_schedule(name, target, data)


@pytest.mark.parametrize("target", [cpu_target(8, 4), wasm_target(), webgpu_target()], ids=lambda t: t.name)
@pytest.mark.parametrize("name", ["dots_i8", "dots_i4", "dots_i4_4"])
@settings(quickly, max_examples=8)
@given(data=st.data())
def test_any_schedule_with_dots(name: str, target: Target, data: st.DataObject) -> None:
    """Dots in lanes along the group, with the lanes' sums kept apart or not, and what else comes to mind."""
    case, lanes, steps = BY_NAME[name], data.draw(st.sampled_from((4, 8))), data.draw(st.sampled_from((2, 4)))
    r, begin = "r1", list[Action]()
    if name != "dots_i8":
        # both of each byte, or the same of each half word's four
        lanes, begin = 4, [Split(r, 8 // steps), Bind(f"{r}.1", AxisKind.UNROLL)]
        r = f"{r}.0"
    begin += [Split(r, steps), Split(f"{r}.0", lanes), Bind(f"{r}.0.1", AxisKind.VECTOR)]
    if data.draw(st.booleans()):
        begin.insert(-1, RFactor(f"{r}.0.1"))
    nibbles = name != "dots_i8"
    instruction = ("dot8_u4_i8" if nibbles else "dot4_i8") if steps == 4 else "dot2_i16"
    begin.append(Tensorize(f"{r}.1", instruction, "i0" if nibbles else ""))  # 4-bit integers become 0 … 15
    if name != "dots_i8" or (steps == 2 and data.draw(st.booleans())):
        begin.append(Stage(2, "i0", Space.REGISTER))
    scheduled = apply(case.kernel, begin)
    with enough_memory():
        check(case, apply(scheduled, data.draw(schedules(scheduled, target))), target)
    if not data.draw(st.booleans()) or target.has_threads:
        return
    program = check(case, scheduled, target)
    assert any(u.op is Ops.DOT for u in program.uops)


def check_schedule(name: str, target: Target, data: st.DataObject) -> None:
    case = BY_NAME[name]
    schedule = data.draw(schedules(case.kernel, target))
    assert from_json(to_json(schedule)) == schedule
    with enough_memory():
        check(case, apply(case.kernel, schedule), target)


def test_a_stage_in_one_of_two_sums_that_shared_a_loop() -> None:
    """Found by chance: what fills the stage stood behind what reads it."""
    schedule = (
        Bind("i1", AxisKind.UNROLL),
        Stage(1, "r1", Space.REGISTER),
        Stage(1, "r0", Space.REGISTER),
    )
    case = BY_NAME["softmax_columns"]
    check(case, apply(case.kernel, schedule), wasm_target())


def test_a_loop_of_its_own_is_as_long_as_its_own_outer_loop_says() -> None:
    """Of two maxima of a row one is computed where a stage is filled: its blocks end where those of its own loop do."""
    case = BY_NAME["symbolic_softmax_12"]
    schedule = (Bind("i0", AxisKind.UNROLL), Split("r0", 4), Stage(1, "r1", Space.REGISTER))
    check(case, apply(case.kernel, schedule), cpu_target(8, 4))


def test_threads_that_have_left_a_loop_read_no_register() -> None:
    """The sum of the last thread ends a step earlier: what it would read next lies behind the staged row."""
    case = BY_NAME["convolution"]
    chosen = (
        Split("i0", 2),
        Stage(2, "i0.1", Space.REGISTER),
        Split("r0", 2),
        *inner_part("r0.0", 24, AxisKind.THREAD),
    )
    check(case, apply(case.kernel, chosen), webgpu_target())
