"""64-bit values on a target without them: programs hold pairs of words, and compute what 64 bits would."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import Case, axes, check, kernel, param, reduce
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import AxisKind, Ops, Space, UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import Bind, Split, Stage, apply
from tinyweb.graph.optimize.action import Action
from tinyweb.graph.optimize.actions import inner_part
from tinyweb.graph.target import cpu_target, webgpu_target

WEBGPU = webgpu_target()
I64, U64, F64 = dtypes.int64, dtypes.uint64, dtypes.float64
rng = np.random.default_rng(5)


def numbers(dtype: DType, *shape: int) -> np.ndarray:
    """Numbers of all magnitudes."""
    whole = rng.integers(dtype.min, dtype.max, shape, dtype.numpy, endpoint=True)
    return np.asarray(whole >> rng.integers(0, 63, shape).astype(dtype.numpy), dtype.numpy)


def rows(op: Ops, dtype: DType) -> Case:
    """Each row of (6, 40), combined."""
    (i,), (r,) = axes(6), axes(40, reduce=True, first=1)
    x = numbers(dtype, 6, 40)
    want = {Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.MAX: np.maximum}[op].reduce(x, 1)
    value = reduce(op, param(1, 240, dtype).load(i * 40 + r), r)
    before = [np.zeros(6, dtype.numpy), x]
    return Case(f"{op.name}_{dtype.name}", kernel(param(0, 6, dtype).store(i, value)), before, [want])


SCHEDULES: dict[str, Sequence[Action]] = {
    "plain": (),
    "threads": inner_part("r0", 8, AxisKind.THREAD),
    "many_threads": inner_part("r0", 40, AxisKind.THREAD),
    "vector": (Split("r0", 4), Bind("r0.1", AxisKind.VECTOR)),
    "unroll": (Split("r0", 5), Bind("r0.1", AxisKind.UNROLL)),
    "tile": (Split("i0", 2), Bind("i0.1", AxisKind.VECTOR), Split("r0", 4), Bind("r0.1", AxisKind.UNROLL)),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("dtype", [I64, U64], ids=lambda d: d.name)
@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.MAX], ids=lambda o: o.name)
def test_reductions(op: Ops, dtype: DType, schedule: Sequence[Action]) -> None:
    case = rows(op, dtype)
    program = check(case, apply(case.kernel, schedule), WEBGPU)
    assert all(u.dtype.bits <= 32 for u in program.uops)
    assert [p.dtype for p in program.params] == [dtypes.uint32] * 2
    assert [p.size for p in program.params] == [12, 480]


@pytest.mark.parametrize("space", [Space.REGISTER, Space.SHARED], ids=lambda s: s.name)
def test_staging(space: Space) -> None:
    """A matrix product with the left side in near memory."""
    a, b = numbers(I64, 6, 16), numbers(I64, 16, 8)
    (i, j), (r,) = axes(6, 8), axes(16, reduce=True, first=2)
    value = reduce(Ops.ADD, param(1, 96, I64).load(i * 16 + r) * param(2, 128, I64).load(r * 8 + j), r)
    store = param(0, 48, I64).store(i * 8 + j, value)
    case = Case("matmul", kernel(store), [np.zeros((6, 8), np.int64), a, b], [a @ b])
    threads = (Bind("i0", AxisKind.THREAD, 0), Bind("i1", AxisKind.THREAD, 1))
    shared = (*threads, Split("r0", 8), Stage(1, "r0.0", space))
    near = (Split("i0", 3), Bind("i1", AxisKind.VECTOR), Stage(2, "i0.0", space))
    schedule = shared if space is Space.SHARED else near
    program = check(case, apply(case.kernel, schedule), WEBGPU)
    assert any(u.op is Ops.BUFFER and u.arg.space is space for u in program.uops)


@pytest.mark.parametrize("op", [Ops.FLOORDIV, Ops.MOD], ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", [I64, U64], ids=lambda d: d.name)
def test_division_by_what_is_known(op: Ops, dtype: DType) -> None:
    """Shifts for powers of two, digits for what fits 16 bits: no loop; one for all other divisors."""
    x = numbers(dtype, 50)
    (i,) = axes(50)
    for divisor in (1, 2, 1 << 40, 3, 65535, 65537, 10**12):
        value = param(1, 50, dtype).load(i).alu(op, divisor)
        with np.errstate(all="ignore"):
            want = (np.floor_divide if op is Ops.FLOORDIV else np.mod)(x, dtype.numpy.type(divisor))
        case = Case("division", kernel(param(0, 50, dtype).store(i, value)), [np.zeros_like(x), x], [want])
        program = check(case, apply(case.kernel, [Bind("i0", AxisKind.THREAD)]), WEBGPU)
        loops = sum(u.op is Ops.RANGE for u in program.uops)
        assert loops == (divisor > 65535 and divisor & (divisor - 1) != 0), divisor


def test_quotient_and_remainder_share_a_loop() -> None:
    a, b = numbers(U64, 60), numbers(U64, 60) | np.uint64(1)
    (i,) = axes(60)
    x, y = (param(slot, 60, U64).load(i) for slot in (2, 3))
    stores = [param(slot, 60, U64).store(i, x.alu(op, y)) for slot, op in enumerate((Ops.FLOORDIV, Ops.MOD))]
    case = Case("both", kernel(*stores), [np.zeros_like(a), np.zeros_like(a), a, b], [a // b, a % b])
    program = check(case, apply(case.kernel, [Bind("i0", AxisKind.THREAD)]), WEBGPU)
    assert sum(u.op is Ops.RANGE for u in program.uops) == 1


def test_division_inside_of_a_reduction() -> None:
    """Its loop runs in every turn of the loop around it."""
    a, b = numbers(I64, 4, 9), numbers(I64, 4, 9)
    b[b == 0] = 7
    (i,), (r,) = axes(4), axes(9, reduce=True, first=1)
    at = i * 9 + r
    value = reduce(Ops.ADD, param(1, 36, I64).load(at) // param(2, 36, I64).load(at), r)
    with np.errstate(all="ignore"):
        want = (a // b).sum(1)
    case = Case("ratio", kernel(param(0, 4, I64).store(i, value)), [np.zeros(4, np.int64), a, b], [want])
    for schedule in ((), inner_part("r0", 3, AxisKind.THREAD), (Bind("i0", AxisKind.VECTOR),)):
        check(case, apply(case.kernel, schedule), WEBGPU)


def test_gates() -> None:
    """What a false gate hides is neither read nor written, in both words."""
    (i,) = axes(10)
    gate = i < 7
    x = numbers(I64, 7)
    value = param(1, 7, I64).load(i, gate) + (1 << 40)
    case = Case(
        "gated",
        kernel(param(0, 10, I64).store(i, value, i < 9)),
        [np.full(10, -5), x],
        [np.array([*(x + (1 << 40)), 1 << 40, 1 << 40, -5])],
    )
    for schedule in ((), (Bind("i0", AxisKind.THREAD),), (Split("i0", 2), Bind("i0.1", AxisKind.VECTOR))):
        check(case, apply(case.kernel, schedule), WEBGPU)


def test_doubles_are_moved_and_cast() -> None:
    x = rng.standard_normal(8) * 10.0 ** rng.integers(-60, 40, 8)
    x[:3] = np.inf, np.nan, -0.0
    (i,) = axes(8)
    load = param(3, 8, F64).load(i)
    (j,) = axes(8)
    stores = (
        param(0, 8, F64).store(i, load),
        param(1, 8).store(j, load.cast(dtypes.float32)),
        param(2, 8, F64).store(i, load.cast(dtypes.float32).cast(F64)),
    )
    with np.errstate(over="ignore"):
        single = x.astype(np.float32)
    before = [np.zeros(8), np.zeros(8, np.float32), np.zeros(8), x]
    case = Case("doubles", kernel(*stores), before, [x, single, single.astype(np.float64)], tolerance=0)
    check(case, case.kernel, WEBGPU)


@pytest.mark.parametrize(
    "value",
    [lambda x: x + x, lambda x: x.alu(Ops.SQRT), lambda x: x.cast(dtypes.int32).cast(F64), lambda x: x.maximum(0.0)],
)
def test_doubles_are_not_computed_with(value: object) -> None:
    """Only where the target has them."""
    (i,) = axes(8)
    result: UOp = value(param(1, 8, F64).load(i))  # type: ignore[operator]
    k = kernel(param(0, 8, F64).store(i, result))
    with pytest.raises(NotImplementedError, match=r"float64 .*not supported on webgpu.* use \.cast\(dtypes\.float32\)"):
        lower(k, WEBGPU)
    lower(k, cpu_target())


def test_programs_of_other_targets_keep_64_bits() -> None:
    case = rows(Ops.ADD, I64)
    assert {p.dtype for p in lower(case.kernel, cpu_target()).params} == {I64}
