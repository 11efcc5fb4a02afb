"""Instructions: what the matcher finds, and products of integers of any shape, sign and group against NumPy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.count.program import operations
from tests.graph.lower.hand_kernels import axes, param, total
from tests.samples import slow_unless
from tinyweb import Tensor
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import AxisKind, Ops, UOp, substitute
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import optimize
from tinyweb.graph.optimize.instructions import DOT2_I16, DOT4_I8, DOT8_U4_I8, INSTRUCTIONS, Instruction, unify
from tinyweb.graph.target import Target, cpu_target, wasm_target, webgpu_target
from tinyweb.nn.quantize import QuantizedWeight, quantize, quantize_groups
from tinyweb.tracing import capture

I4, U4, I8, U8, I16, I32 = dtypes.int4, dtypes.uint4, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32
PROCESSORS = [cpu_target(8, 2), wasm_target(2)]
Ints = npt.NDArray[Any]


def product(a: DType, b: DType, steps: int, zero: int = 0, dtype: DType = I32) -> UOp:
    """A REDUCE of products over one axis."""
    (r,) = axes(steps, reduce=True)
    left, right = (param(i, steps, t).load(r).cast(dtype) for i, t in enumerate((a, b)))
    return total((left - zero if zero else left) * right, r)


# (matrices in the registers of subgroups: test_fragments.py)
@pytest.mark.parametrize("instruction", [i for i in INSTRUCTIONS.values() if i.fragments is None], ids=str)
def test_semantics_are_what_they_match(instruction: Instruction) -> None:
    """Each instruction finds itself, its further axes and its rows being lanes, its columns those of a vector."""
    axes = {**dict.fromkeys(instruction.axes[1:], AxisKind.UNROLL)}
    axes |= dict(zip(instruction.tile, (AxisKind.UNROLL, AxisKind.VECTOR)))
    table = {r: r.replace(arg=replace(r.arg, kind=kind)) for r, kind in axes.items()}
    pattern = instruction.semantics
    assert unify(instruction, pattern, instruction.axes[0]) is None or not axes
    node = pattern.replace(src=tuple(substitute(s, table) for s in pattern.src))
    match = unify(instruction, node, instruction.axes[0])
    assert match is not None and not any(match.shifts)
    assert match.tile == tuple(table[r] for r in instruction.tile)
    assert len(match.factors) == len(instruction.operands)


@pytest.mark.parametrize(
    ("instruction", "node", "found"),
    [
        (DOT4_I8, product(I8, I8, 4), True),
        (DOT4_I8, product(I4, I8, 4), True),
        (DOT4_I8, product(U8, I8, 4), False),
        (DOT4_I8, product(I16, I8, 4), False),
        (DOT4_I8, product(I8, I8, 2), False),
        (DOT4_I8, product(I8, I8, 4, dtype=dtypes.float32), False),
        (DOT4_I8, product(I8, I8, 4, zero=1), False),
        (DOT2_I16, product(I8, I8, 2, zero=-7), True),
        (DOT2_I16, product(U8, I16, 2, zero=255), True),
        (DOT2_I16, product(I16, I8, 2, zero=1), False),
        (DOT2_I16, product(I32, I8, 2), False),
        (DOT8_U4_I8, product(I4, I8, 4), False),
    ],
)
def test_operands_hold_what_stands_there(instruction: Instruction, node: UOp, found: bool) -> None:
    """By the bounds of the values: an integer with its zero point has more bits than in memory."""
    assert (unify(instruction, node, node.src[1]) is not None) is found


@dataclass(frozen=True)
class Case:
    rows: int
    steps: int
    columns: int
    turned: bool
    types: tuple[DType, DType]
    zeros: tuple[bool, bool]

    def operands(self) -> tuple[Ints, Ints, int, Ints]:
        random = np.random.default_rng(self.rows * 1000 + self.steps)
        bounds = [(t.min, t.max + 1) for t in self.types]
        shape = (self.columns, self.steps) if self.turned else (self.steps, self.columns)
        a = random.integers(*bounds[0], (self.rows, self.steps))
        b = random.integers(*bounds[1], shape)
        za = int(random.integers(*bounds[0])) if self.zeros[0] else 0
        zb = random.integers(*bounds[1], self.columns) * self.zeros[1]
        return a, b, za, zb

    def compute(self, a: Tensor, b: Tensor, za: int, zb: Tensor) -> Tensor:
        left, right = a.cast(I32), (b.T if self.turned else b).cast(I32)
        return (left - za if self.zeros[0] else left) @ (
            right - zb.cast(I32).reshape(1, -1) if self.zeros[1] else right
        )


def cases() -> list[Case]:
    """Seeded: shapes odd and even, both orders of the second operand, every pair of types, zero points or none."""
    random = np.random.default_rng(13)
    types = [(a, b) for a in (I8, U8) for b in (I8, U8)]
    found = []
    for i in range(12):
        shape = (int(random.integers(1, 150)), int(random.integers(1, 300)), int(random.integers(1, 150)))
        found.append(Case(*shape, bool(i % 2), types[i // 2 % 4], (i % 3 == 1, i % 3 == 2)))
    return found


@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU"])
@pytest.mark.parametrize("case", cases(), ids=str)
def test_integer_products_are_exact(case: Case, device: str) -> None:
    a, b, za, zb = case.operands()
    tensors = [Tensor(x, dtype=t, device=device) for x, t in zip((a, b, zb), (*case.types, case.types[1]))]
    got = case.compute(tensors[0], tensors[1], za, tensors[2]).numpy()
    np.testing.assert_array_equal(got, (a - za) @ ((b.T if case.turned else b) - zb))


def dots(kernel: UOp, target: Target) -> int:
    return sum(u.op is Ops.DOT for u in lower(optimize(kernel, target), target).uops)


@pytest.mark.parametrize("target", PROCESSORS, ids=lambda t: t.name)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("types", [(I8, I8), (U8, I8), (U8, U8)])
@pytest.mark.parametrize("zeros", [(False, False), (True, False), (True, True)])
def test_integer_products_are_dots(
    target: Target, turned: bool, types: tuple[DType, DType], zeros: tuple[bool, bool]
) -> None:
    case = Case(128, 256, 128, turned, types, zeros)
    shape = (128, 256) if turned else (256, 128)
    made = [Tensor.empty(*s, dtype=t) for s, t in zip(((128, 256), shape, (128,)), (*types, types[1]))]
    calls = capture(lambda: case.compute(made[0], made[1], 3, made[2]).realize()).calls
    assert len(calls) == 1 and dots(calls[0].kernel, target)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 64, 40), (5, 128, 33), (15, 36, 130), (40, 256, 70), (128, 1024, 96)])
def test_gpus_multiply_words(m: int, k: int, n: int) -> None:
    """Where both operands lie along the sum: what they are read as, and staged as, are words of four."""
    a, b = Tensor.empty(m, k, dtype=I8), Tensor.empty(n, k, dtype=I8)
    (call,) = capture(lambda: (a.cast(I32) @ b.cast(I32).T).realize()).calls
    target = webgpu_target()
    program = lower(optimize(call.kernel, target), target)
    assert any(u.op is Ops.DOT for u in program.uops)
    assert not any(u.op in (Ops.MUL, Ops.MULADD) and u.dtype is I32 for u in program.uops)
    assert operations(program) <= 1.25 * 2 * m * k * n


@pytest.mark.parametrize(("bits", "group"), [(8, 32), (8, 128), (4, 32), (4, 64)])
@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("subgroups", [False, True])
def test_gpus_scale_sums_of_groups(bits: int, group: int, tokens: int, subgroups: bool) -> None:
    """Not each of their integers, of which those of 4 bits are masked out of words for all eight."""
    q, target = weight(bits, group, 512, 1024)[0], webgpu_target(subgroups=subgroups)
    (call,) = capture(lambda: q.product(Tensor.empty(tokens, 1024)).realize()).calls
    assert operations(lower(optimize(call.kernel, target), target)) <= 1.25 * (2 * tokens + 1) * 512 * 1024


def weight(bits: int, group: int, rows: int, width: int, device: str = "CPU") -> tuple[QuantizedWeight, Ints, Ints]:
    random = np.random.default_rng(group)
    values, scales = quantize_groups(random.standard_normal((rows * width // group, group)).astype(np.float32), bits)
    values, scales = values.reshape(rows, -1, group), scales.reshape(rows, -1)
    stored = Tensor(values, device=device) if bits == 8 else Tensor(values + 8, dtype=U4, device=device)
    return QuantizedWeight(stored, Tensor(scales, device=device)), values, scales


@pytest.mark.parametrize("target", PROCESSORS, ids=lambda t: t.name)
@pytest.mark.parametrize(
    ("bits", "group"), [(8, 32), (8, 64), (8, 128), (8, 256), (8, 768), (4, 32), (4, 64), (4, 128)]
)
@pytest.mark.parametrize("tokens", [1, 4, 32])
def test_groups_of_any_size_are_dots(target: Target, bits: int, group: int, tokens: int) -> None:
    """And what lies in memory between is what was rounded, by one kernel of few rows or of long groups; no sums."""
    q = weight(bits, group, 64, 768)[0]
    x = Tensor.empty(tokens, 768)
    plan = capture(lambda: q.product(x, "int8").realize())
    assert dots(plan.calls[-1].kernel, target)
    together = tokens < 32 or group >= 256
    assert len(plan.calls) == (2 if together else 3) and max(t.arg.size for t in plan.temporaries) == tokens * 768


@pytest.mark.parametrize("target", PROCESSORS, ids=lambda t: t.name)
@pytest.mark.parametrize(("bits", "group"), [(8, 32), (8, 96), (8, 768), (4, 32), (4, 64), (4, 128), (4, 768)])
def test_zero_points_leave_dots_to_be_dots(target: Target, bits: int, group: int) -> None:
    q = quantize(np.random.default_rng(group).standard_normal((64, 768)), bits, group=group, symmetric=False)
    assert q is not None and q.zeros is not None and q.zeros.shape == (64, 768 // group)
    plan = capture(lambda: q.product(Tensor.empty(1, 768), "int8").realize())
    assert dots(plan.calls[-1].kernel, target)


GROUPS = {"CPU": ((8, 64), (4, 128)), "WASM": ((8, 384), (4, 64)), "WEBGPU": ((8, 64), (4, 128))}  # of each device some


@pytest.mark.parametrize(
    ("device", "form"),
    slow_unless(lambda device, form: form in GROUPS[device], GROUPS, ((8, 64), (4, 64), (8, 384), (4, 128))),
)
def test_groups_of_any_size(device: str, form: tuple[int, int]) -> None:
    bits, group = form
    q, values, scales = weight(bits, group, 33, 384, device)
    for tokens in (1, 5, 40):
        x = np.random.default_rng(tokens).standard_normal((tokens, 384)).astype(np.float32)
        groups = x.reshape(tokens, -1, group)
        steps = np.abs(groups).max(-1) * np.float32(1 / 127)
        rounded = np.rint(groups * (np.float32(1) / steps)[..., None]).astype(np.float64)
        want = np.einsum("tgk,rgk,tg,rg->tr", rounded, values.astype(np.float64), steps, scales.astype(np.float64))
        np.testing.assert_allclose(q.product(Tensor(x, device=device), "int8").numpy(), want, rtol=1e-4, atol=1e-3)
        want = x.astype(np.float64) @ q.dense().numpy().astype(np.float64).T
        np.testing.assert_allclose(q.product(Tensor(x, device=device)).numpy(), want, rtol=1e-4, atol=1e-3)
