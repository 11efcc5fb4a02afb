"""Every kind of action on every axis, legal or not, from several schedules on: what it makes of the kernel, or says.

That what comes out computes the same is tested in test_schedules.py. Here the loops, indices and refusals are compared
with a record, since a search and its database rely on them; `python -m tests.graph.optimize.test_steps` writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from tests.graph.lower.hand_kernels import BY_NAME
from tests.graph.optimize.families import (
    TARGETS,
    attention,
    batched,
    chained,
    computed_queries,
    grouped,
    product_of,
    symbolic_product,
)
from tests.graph.recorded import changed, write
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, Space, UOp
from tinyweb.graph.optimize import (
    Action,
    Bind,
    Factor,
    Fuse,
    Hoist,
    Online,
    Peel,
    Reorder,
    RFactor,
    Schedule,
    ScheduleError,
    Split,
    Stage,
    Tensorize,
    heuristic,
    prepared,
)
from tinyweb.graph.optimize.instructions import INSTRUCTIONS
from tinyweb.graph.optimize.rewrite import loops_of, ranges_of
from tinyweb.graph.schedule.attention import softmaxes
from tinyweb.graph.symbolic import simplify
from tinyweb.tuning.candidates import neighbours

RECORD = Path(__file__).with_name("steps.txt")
HOW = "python -m tests.graph.optimize.test_steps"
HAND = (
    "elementwise", "row_sums", "matmul", "quantised_i4", "dots_i8", "dots_i4", "softmax_3_13",
    "convolution", "padded", "scores_6", "two_stores", "gate_and_up", "in_place", "nibbles",
)  # fmt: skip
KERNELS = {name: (lambda name=name: BY_NAME[name].kernel) for name in HAND} | {
    "attention": lambda: attention(2, 4, 40, 8, 16),
    "causal": lambda: attention(2, 6, 70, 8, 8, True),
    "square": lambda: product_of(24, 24, 24, in_place=True),
    "halves": lambda: grouped(4, 16, 2, 32, weights=dtypes.int8, x=dtypes.int16),
    "computed queries": lambda: computed_queries(2, 4, 40, 8, 16),
    "nested": lambda: chained(4, 10, 6),
    "batched": lambda: batched(2, 6, 8, 10),
    "symbolic": lambda: symbolic_product(8, 12, 32, rows=False),
}
KINDS = [kind for kind in AxisKind if kind not in (AxisKind.ORDERED, AxisKind.TILE)]  # which no axis can be bound to


def text(kernel: UOp) -> str:
    """All of a kernel's nodes."""
    number: dict[UOp, int] = {}
    lines = []
    for i, u in enumerate(kernel.toposort()):
        number[u] = i
        lines.append(f"{u.op.name} {u.dtype.short} {u.arg!r} {[number[s] for s in u.src]}")
    return "\n".join(lines)


def starts(kernel: UOp) -> dict[str, Schedule]:
    """Schedules to go on from: none, the usual ones and their beginnings."""
    found: dict[str, Schedule] = {"nothing": ()}
    for name in ("cpu", "webgpu"):
        usual = heuristic(kernel, TARGETS[name])
        for left in (1, len(usual) // 2) if name == "cpu" else (1,):
            found[f"{name} -{left}"] = usual[: len(usual) - left]
    return {name: s for i, (name, s) in enumerate(found.items()) if s not in list(found.values())[:i]}


def steps(kernel: UOp) -> Iterator[Action]:
    """Actions on the kernel's axes, parameters and softmaxes: every axis with some values, every value on some axis."""
    names = [r.arg.name for r in ranges_of(kernel)]
    slots = sorted({u.arg.slot for u in kernel.toposort() if u.op is Ops.PARAM})
    for n in names:
        yield from (Split(n, f) for f in (0, 1, 3, 8))
        yield from (Split(n, f, True) for f in (3, 4, 13))
        yield from (Peel(n, f) for f in (0, 3, 4, 16))
        for kind in KINDS:
            yield from (Bind(n, kind, dim) for dim in ((0, 1) if kind in (AxisKind.GRID, AxisKind.THREAD) else (0,)))
        yield RFactor(n)
        yield Factor((n,))
        yield from (Tensorize(n, i, names[0]) for i in INSTRUCTIONS)
        for p in slots:
            yield Stage(p, n, Space.REGISTER)
            yield Stage(p, n, Space.SHARED, 0 if p % 2 else 4)
    yield from (Bind(names[0], kind, dim) for kind in KINDS for dim in (-1, 1, 2, 3))
    yield from (Stage(p, names[0], space, pad) for p in slots for space in Space for pad in (-1, 1))
    for a, b in permutations(names, 2):
        yield from (Fuse(a, b), Hoist(a, b), Reorder((a, b)))
    yield from (Reorder((names[0], names[0])), Fuse(names[0], names[0]), Reorder(tuple(reversed(names))))
    for s in softmaxes(simplify(kernel)):
        row = s.row.arg.name
        for block, together, columns in (
            (0, 1, 0),
            (7, 2, 0),
            (8, 1, 0),
            (8, 2, 4),
            (16, 4, 3),
            (1024, 1, 0),
            (1025, 1, 0),
        ):
            yield Online(row, block, Space.REGISTER, together, columns)
        for block, across, split in ((8, 1, 1), (16, 1, 4), (10, 1, 4), (8, 1, 0), (32, 8, 1), (32, 4, 2), (8, 0, 1)):
            yield Online(row, block, Space.SHARED, across=across, split=split)
        yield from (
            Online(row, 8, Space.REGISTER, split=2),
            Online(row, 8, Space.DEVICE),
            Online(row, 8, Space.REGISTER, 0),
        )


def outcome(kernel: UOp, action: Action) -> str:
    try:
        return text(action.apply(kernel))
    except ScheduleError as error:
        return str(error)


def results(name: str) -> dict[str, dict[str, str]]:
    """By beginning: what each kind of action does, and which schedules search would try from there."""
    kernel = KERNELS[name]()
    found = {}
    for start, schedule in starts(kernel).items():
        current = prepared(kernel)
        for action in schedule:
            current = action.apply(current)
        by_kind: dict[str, list[str]] = {}
        for action in steps(current):
            by_kind.setdefault(action.name, []).append(f"{action} → {outcome(current, action)}")
        target = TARGETS[start.partition(" ")[0]] if schedule else TARGETS["webgpu"]
        near = [str(s) for s in neighbours(kernel, schedule, target)]
        found[f"{name} {start}"] = {k: "\n".join(v) for k, v in by_kind.items()} | {"near": "\n".join(near)}
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_what_every_action_does(name: str) -> None:
    different = changed(RECORD, name, results(name))
    assert not different, f"not as recorded (`{HOW}` if that is meant):\n" + "\n".join(d[:2000] for d in different)


def test_the_loops_of_a_kernel_are_its_ranges() -> None:
    """Actions carry them over instead of looking for them."""
    for name in ("matmul", "convolution", "attention"):
        kernel = KERNELS[name]()
        for action in steps(kernel):
            try:
                after = action.apply(kernel)
            except ScheduleError:
                continue
            nodes = after.toposort()
            assert set(ranges_of(after)) == {u for u in nodes if u.op is Ops.RANGE}, str(action)
            assert set(loops_of(after).stages) == {u for u in nodes if u.op is Ops.STAGE}, str(action)
            assert set(loops_of(after).running) == {u for u in nodes if u.op is Ops.RUNNING}, str(action)


if __name__ == "__main__":
    write(RECORD, {name: results(name) for name in KERNELS}, HOW)
