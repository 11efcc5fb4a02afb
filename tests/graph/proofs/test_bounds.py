"""Kernels and programs stay inside their memory, by proof: written ones, those of Tensor methods and of the chat model,
under the heuristics and under random schedules. And that `check_bounds` notices what does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.lower.hand_kernels import BY_NAME, CASES, I32, Case, axes, kernel, param, supports, total
from tests.graph.optimize.test_schedules import KERNELS, enough_memory, quickly, schedules
from tests.graph.proofs.bounds import OutOfBounds, check_bounds
from tests.samples import slow_unless
from tinyweb import Tensor, Variable
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, Space, UOp, as_index
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import Bind, Split, apply, optimize
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, cpu_target, interpreter_target, wasm_target, webgpu_target
from tinyweb.tracing import capture

TARGETS = [webgpu_target(), cpu_target(8, 4), wasm_target(), interpreter_target()]
ids = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)


def check_everywhere(k: UOp, target: Target) -> int:
    """The kernel as it is, scheduled, and as a program."""
    scheduled = optimize(k, target)
    return check_bounds(k) + check_bounds(scheduled) + check_bounds(lower(scheduled, target), target)


# -- what must be noticed --------------------------------------------------------------------------------------------
(i,) = axes(10)
n = Variable("n", 0, 9)
(r,) = axes(n, reduce=True, first=1)
ten, twenty, picks = param(1, 10), param(1, 20), param(2, 10, I32)
pick = picks.load(i).cast(dtypes.index)
LEAKS: dict[str, UOp] = {
    "one too many": param(0, 10).store(i, ten.load(i + 1)),
    "below zero": param(0, 10).store(i, ten.load(i - 1, i < 9)),
    "a gate on the wrong side": param(0, 10).store(i, ten.load(i + 2, i < 9)),
    "a gate that does not matter": param(0, 10).store(i, ten.load(i * 2, (i < 5) | (i.equal(7)))),
    "a store": param(0, 9).store(i, ten.load(i)),
    "rows too long": param(0, 10).store(i, total(twenty.load(i * 2 + r), r)),
    "before a symbolic size": param(0, 10).store(i, ten.load(n - 1)),
    "an unguarded gather": param(0, 10).store(i, ten.load(pick)),
    "a gather guarded above only": param(0, 10).store(i, ten.load(pick, pick < 10)),
    "a remainder of a negative number": param(0, 10).store(i, ten.load((i - 5) % 12)),
    "a wrong mask": param(0, 10).store(i, ten.load(i & 15 | 8)),
}  # fmt: skip
SAFE: dict[str, UOp] = {
    "a gate": param(0, 10).store(i, ten.load(i + 1, i < 9)),
    "clamped": param(0, 10).store(i, ten.load(-((-(i + 3)).maximum(-9)))),
    "a remainder": param(0, 10).store(i, ten.load((i - 5) % 10)),
    "rows": param(0, 10).store(i, total(twenty.load(i + r), r)),
    "a guarded gather": param(0, 10).store(i, ten.load(pick, (pick >= 0) & (pick < 10))),
    "within a gated symbolic size": param(0, 10).store(i, ten.load(n - 1, n > 0)),
    "a mask": param(0, 10).store(i, ten.load(i & 7)),
    "a shift": param(0, 10).store(i, param(1, 5).load(i.alu(Ops.SHR, 1))),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_found(name: str) -> None:
    with pytest.raises(OutOfBounds, match="may leave memory of"):
        check_bounds(kernel(LEAKS[name]))


@pytest.mark.parametrize("name", SAFE)
def test_what_is_safe_is_proven(name: str) -> None:
    assert check_bounds(kernel(SAFE[name])) >= 2


def program_of(*nodes: UOp) -> Program:
    listed = UOp(Ops.SINK, dtypes.void, nodes).toposort()[:-1]
    return Program("p", tuple(listed), (), (), (1, 1, 1), (1, 1, 1), 0)


def test_programs_are_held_to_more() -> None:
    s = UOp(Ops.SPECIAL, dtypes.index, (as_index(10),), ("grid", 0))
    wide = UOp(Ops.LOAD, dtypes.float32, (param(1, 64), s * 2), 4)
    check_bounds(program_of(wide))
    check_bounds(program_of(wide), cpu_target())
    with pytest.raises(OutOfBounds, match="not a multiple of 4"):
        check_bounds(program_of(wide), webgpu_target())
    with pytest.raises(OutOfBounds, match="4 element"):
        check_bounds(program_of(wide.replace(src=(param(1, 21), s * 2))))
    masks = [UOp(Ops.STACK, dtypes.bool, tuple(s * 2 + i < n for i in range(4))) for n in (20, 22)]
    check_bounds(program_of(UOp(Ops.LOAD, dtypes.float32, (param(1, 21), s * 2, masks[0]), 4)))
    with pytest.raises(OutOfBounds, match="1 element"):
        check_bounds(program_of(UOp(Ops.LOAD, dtypes.float32, (param(1, 21), s * 2, masks[1]), 4)))
    with pytest.raises(OutOfBounds, match="a division of program form"):
        check_bounds(program_of(param(0, 64).load((s - 3) // 2 + 2)))
    far = UOp(Ops.SPECIAL, dtypes.index, (as_index(2**30),), ("grid", 1))
    with pytest.raises(OutOfBounds, match="leaves 32 bits"):
        check_bounds(program_of(param(0, 10).load((far * 8) % 8)))


# -- what must hold --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("target", "part"),
    slow_unless(lambda target, part: TARGETS.index(target) == part, TARGETS, (0, 1)),
    ids=lambda v: v.name if isinstance(v, Target) else str(v),
)
def test_hand_written_kernels(target: Target, part: int) -> None:
    """Every other one of them."""
    for case in CASES[part::2]:
        if supports(case, target):
            check_everywhere(case.kernel, target)


@pytest.mark.parametrize("length", [63, 64])
def test_a_grid_spread_over_dimensions(length: int) -> None:
    target = replace(webgpu_target(), max_grid=8)
    (j,) = axes(length)
    k = apply(kernel(param(0, length).store(j, param(1, length).load(j))), [Bind("i0", AxisKind.GRID)])
    check_bounds(lower(k, target), target)
    (j,) = axes(Variable("n", 1, length))
    k = apply(kernel(param(0, length).store(j, param(1, length).load(j))), [Bind("i0", AxisKind.GRID)])
    check_bounds(lower(k, target), target)


def chat_kernels(folder: Path, quant: str) -> list[UOp]:
    from tinyweb.models import load
    from tinyweb.models.chat import entry_points

    plans = entry_points(load(folder, quant)).values()
    return list(dict.fromkeys(call.kernel for plan in plans for call in plan.calls))


def test_the_chat_model(model_folder: Path) -> None:
    """What is run of decode, prefill, sample and greedy, for every position and length of prompt, whatever the ids."""
    target = webgpu_target()
    proven = [check_bounds(lower(optimize(k, target), target), target) for k in chat_kernels(model_folder, "q8")]
    assert len(proven) > 30 and sum(proven) > 500


@pytest.mark.slow
@ids
@pytest.mark.parametrize("quant", ["f32", "f16", "q8", "q4"])
def test_the_chat_model_in_every_precision(model_folder: Path, quant: str, target: Target) -> None:
    assert sum(check_everywhere(k, target) for k in chat_kernels(model_folder, quant)) > 500


def data(*shape: int, dtype=dtypes.float32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype)


at, length = Variable("at", 0, 5), Variable("length", 1, 6)
METHODS: dict[str, Callable[[], object]] = {
    "pad": lambda: data(5, 7).pad([(1, 2), (3, 0)]),
    "pad with a value": lambda: data(5, 7).pad([(0, 2), (1, 1)], value=2.5),
    "pad beyond": lambda: data(3).pad([(10, 11)]) * 2,
    "pad of a pad": lambda: data(3, 4).pad([(1, 1), (0, 3)]).flip(1).pad([(0, 1), (2, 2)]),
    "cut by negative padding": lambda: data(6, 6).pad([(-1, 2), (2, -3)]),
    "roll": lambda: data(5, 9).roll(4, 1) + data(5, 9).roll(-2, 0),
    "cat": lambda: Tensor.cat([data(2, 3), data(4, 3), data(1, 3)]).flip(0),
    "cat along the last axis": lambda: Tensor.cat([data(4, 3), data(4, 5)], dim=1).sum(0),
    "stack": lambda: Tensor.stack([data(3, 4), data(3, 4)], dim=1).reshape(6, 4),
    "flip": lambda: data(3, 4, 5).flip(0, 2).permute(2, 0, 1).contiguous(),
    "strided": lambda: data(17, 9)[1:16:3, ::-2].contiguous(),
    "reshape of a slice": lambda: data(7, 8)[1:6, 2:8].reshape(3, 10).contiguous(),
    "transposed and reshaped": lambda: data(6, 10).T.reshape(4, 15)[:, 3:14].contiguous(),
    "repeat": lambda: data(3, 4).repeat(2, 3).repeat_interleave(3, 0).contiguous(),
    "windows": lambda: windows(data(2, 11), 4, 3),
    "convolution": lambda: (windows(data(3, 12).pad([None, (2, 2)]), 5, 1) * data(5)).sum(-1),
    "pooling": lambda: windows(data(2, 13), 3, 2).max(-1),
    "matmul": lambda: data(5, 13) @ data(13, 7),
    "matmul of one row": lambda: data(1, 300) @ data(300, 70),
    "batched matmul": lambda: data(2, 3, 5) @ data(2, 5, 4),
    "softmax": lambda: data(5, 33).softmax(-1),
    "sum of everything": lambda: data(7, 11, 13).sum(),
    "argmax": lambda: data(5, 41).argmax(1),
    "take": lambda: data(9, 4)[data(3, 2, dtype=dtypes.int32)],
    "take by halves of words": lambda: data(300, 4)[data(7, dtype=dtypes.int16)],
    "take along an inner axis": lambda: data(3, 9, 4)[:, data(5, dtype=dtypes.int32)],
    "take by 64 bits": lambda: data(9, 4)[data(3, dtype=dtypes.int64)],
    "gather": lambda: data(4, 6).gather(1, data(4, 3, dtype=dtypes.int32)),
    "take of a take": lambda: data(9)[data(6, dtype=dtypes.int32)[data(4, dtype=dtypes.int32)]],
    "take where it was the largest": lambda: data(9, 4)[data(3, 9).argmax(1)],
    "embedding": lambda: data(50, 8).embedding(data(2, 3, dtype=dtypes.int32)).sum(-1),
    "triangles": lambda: data(6, 9).tril(1) + data(6, 9).triu(-2),
    "attention": lambda: data(2, 5, 8).scaled_dot_product_attention(data(2, 5, 8), data(2, 5, 8), is_causal=True),
    "symbolic rows": lambda: data(6, 5)[: length.bind(3)].sum(0),
    "symbolic row": lambda: data(6, 5)[at.bind(2)] * 2,
    "symbolic softmax": lambda: data(4, 6)[:, : length.bind(3)].softmax(-1).contiguous(),
    "symbolic slice of a slice": lambda: data(12, 3)[at.bind(1) : at.bind(1) + 4].flip(0).sum(0),
    "symbolic flip": lambda: data(6, 4)[: length.bind(3)].flip(0).contiguous(),
    "symbolic padding": lambda: data(6, 4)[: length.bind(3)].pad([(1, 2), None]).contiguous(),
    "symbolic columns reshaped": lambda: data(4, 6, 3)[:, : length.bind(2)].reshape(-1).contiguous(),
    "bytes at odd places": lambda: data(7, 9, dtype=dtypes.int8)[1:6, 1:8:2] + 1,
    "flags": lambda: (data(5, 7) < 0.5)[:, 2:].flip(1).contiguous(),
    "nibbles": lambda: data(33, dtype=dtypes.int4).cast(dtypes.float32)[3:30] * 2.0,
    "halves": lambda: (data(5, 7, dtype=dtypes.float16) * 2).pad([(1, 0), (0, 3)]),
    "written rows": lambda: written(data(8, 5), slice(2, 6)),
    "written at a symbolic place": lambda: written(data(8, 5), slice(at.bind(2), at.bind(2) + 1)),
    "written every third": lambda: written(data(6, 9), (slice(None), slice(2, 8))),
    "one element": lambda: data(1, 1).pad([(1, 1), (0, 0)]),
    "nothing": lambda: data(0, 4).pad([(1, 1), (0, 0)]),
    "nothing joined": lambda: Tensor.cat([data(0, 4), data(2, 4)]).contiguous(),
}  # fmt: skip


def windows(x: Tensor, size: int, step: int) -> Tensor:
    """All runs of `size` neighbours along the last axis, every `step`-th of them, as a further axis."""
    count = (int(x.shape[-1]) - size) // step + 1
    parts = [x[..., k : k + (count - 1) * step + 1 : step].unsqueeze(-1) for k in range(size)]
    return Tensor.cat(parts, dim=-1)


def written(t: Tensor, key: object) -> Tensor:
    t[key] = t[key] * 2 + 1  # type: ignore[index]
    return t


@pytest.mark.parametrize("name", METHODS)
def test_kernels_of_tensor_methods(name: str) -> None:
    """On a GPU or on a processor, in turn."""
    plan = capture(lambda: METHODS[name]())
    assert plan.kernels
    for k in plan.kernels:
        check_everywhere(k, TARGETS[list(METHODS).index(name) % 2])


@pytest.mark.slow
@ids
@pytest.mark.parametrize("name", METHODS)
def test_kernels_of_tensor_methods_everywhere(name: str, target: Target) -> None:
    kernels = capture(lambda: METHODS[name]()).kernels
    assert kernels
    for k in kernels:
        check_everywhere(k, target)


# -- schedules -------------------------------------------------------------------------------------------------------
def check_random_schedule(case: Case, target: Target, source: st.DataObject) -> None:
    scheduled = apply(case.kernel, source.draw(schedules(case.kernel, target)))
    check_bounds(scheduled)
    with enough_memory():
        check_bounds(lower(scheduled, target), target)


@pytest.mark.parametrize("target", [cpu_target(8, 4), webgpu_target()], ids=lambda t: t.name)
@settings(quickly, max_examples=20)
@given(source=st.data())
def test_random_schedules(target: Target, source: st.DataObject) -> None:
    check_random_schedule(BY_NAME[source.draw(st.sampled_from(KERNELS))], target, source)


@pytest.mark.slow
@ids
@pytest.mark.parametrize("name", KERNELS)
@settings(quickly, max_examples=60)
@given(source=st.data())
def test_many_schedules(name: str, target: Target, source: st.DataObject) -> None:
    check_random_schedule(BY_NAME[name], target, source)


def test_overlapping_blocks_and_stages() -> None:
    from tinyweb.graph.optimize import Stage

    case = BY_NAME["matmul"]
    k = apply(case.kernel, [Split("i0", 5, overlap=True), Stage(2, "i0.0", Space.REGISTER)])
    assert check_bounds(k) + check_bounds(lower(k, cpu_target()), cpu_target()) > 4


@pytest.mark.parametrize("elements", [4, 5, 7, 12])
def test_lanes_behind_the_end_are_not_read_with_others(elements: int) -> None:
    """32 lanes along few bytes: the words of those that are there are loaded, and no vector that holds more."""
    (i,) = axes(elements)
    value = param(1, elements, dtypes.int8).load(i).cast(dtypes.int32)
    k = apply(
        kernel(param(0, elements, dtypes.int32).store(i, value)), (Split("i0", 32), Bind("i0.1", AxisKind.VECTOR))
    )
    for target in (webgpu_target(), cpu_target(8, 4), wasm_target(4)):
        assert check_bounds(lower(k, target), target) >= 2


def test_the_index_of_a_load_has_the_gate_of_that_load() -> None:
    """It need not hold under the gate of what is read with what was loaded."""
    a, s = param(1, 4, dtypes.int32), UOp(Ops.SPECIAL, dtypes.index, (as_index(4),), ("grid", 0))
    far = a.load(s).cast(dtypes.index)
    inner = param(2, 8, dtypes.int32).load(far * 4 + s, (far >= 0) & (far < 2)).cast(dtypes.index)
    outer = param(3, 10).load(inner * 3, (inner >= 0) & (inner < 3))
    assert check_bounds(program_of(param(0, 4).store(s, outer))) >= 3
