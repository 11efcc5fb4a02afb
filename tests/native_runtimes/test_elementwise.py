"""Every elementwise operation on every type and width a runtime computes with, against NumPy, edge values included."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tests.native_runtimes.devices import BROWSERS, LESS_HIP, PROCESSORS, TEXTS
from tests.native_runtimes.programs import elementwise, launch, splat
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.program import Program
from tinyweb.native_runtimes.protocol import Runtime

COUNT = 256
FLOATS = (dtypes.float32, dtypes.float64)
SIGNED = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
UNSIGNED = (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)
INTS = SIGNED + UNSIGNED

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 3.0e38, -3.0e38, 1e-30, 7.75, -7.75, 65504.0]


def values(dtype: DType, seed: int) -> np.ndarray:
    """All pairs of edge values meet when seeds 0 and 1 are combined; the rest is random."""
    rng = np.random.default_rng(seed)
    if dtype is dtypes.bool:
        return rng.integers(0, 2, COUNT).astype(bool)
    if dtype.is_float:
        edges = np.array(SPECIAL)
        rest = rng.standard_normal(COUNT) * 10
    else:
        low, high = int(dtype.min), int(dtype.max)
        edges = np.array([0, 1, 2, 3, low, low + 1, high, high - 1, high // 2, 7, 100], dtype=object)
        rest = rng.integers(low, high, COUNT, dtype=dtype.numpy, endpoint=True)
    n = len(edges)
    grid = np.repeat(edges, n) if seed % 2 == 0 else np.tile(edges, n)
    return np.concatenate([grid.astype(dtype.numpy), rest.astype(dtype.numpy)])[:COUNT]


def small(dtype: DType, seed: int) -> np.ndarray:
    """Positive numbers, at most 100 and within half of the type's range."""
    return np.random.default_rng(seed).integers(1, 100, COUNT).astype(dtype.numpy)


def op(o: Ops) -> Callable[..., UOp]:
    return lambda a, *rest: a.alu(o, *rest)


def to(o: Ops, dtype: DType) -> Callable[..., UOp]:
    return lambda a: UOp(o, dtype, (a,))


def with_constant(o: Ops, value: int) -> Callable[..., UOp]:
    return lambda a: a.alu(o, splat(UOp.const(value, a.dtype), a.shape[0] if a.shape else 1))


BINARY: dict[str, tuple[Ops, Callable[..., np.ndarray], tuple[DType, ...]]] = {
    "add": (Ops.ADD, np.add, INTS + FLOATS),
    "mul": (Ops.MUL, np.multiply, INTS + FLOATS),
    "max": (Ops.MAX, np.maximum, INTS + FLOATS),
    "div": (Ops.DIV, np.divide, FLOATS),
    "and": (Ops.AND, np.bitwise_and, (*INTS, dtypes.bool)),
    "or": (Ops.OR, np.bitwise_or, (*INTS, dtypes.bool)),
    "xor": (Ops.XOR, np.bitwise_xor, (*INTS, dtypes.bool)),
    "less": (Ops.LESS, np.less, (*INTS, *FLOATS, dtypes.bool)),
    "equal": (Ops.EQUAL, np.equal, (*INTS, *FLOATS, dtypes.bool)),
}

UNARY: dict[str, tuple[Ops, Callable[..., np.ndarray], tuple[DType, ...]]] = {
    "neg": (Ops.NEG, np.negative, SIGNED + FLOATS),
    "reciprocal": (Ops.RECIPROCAL, np.reciprocal, FLOATS),
    "sqrt": (Ops.SQRT, np.sqrt, FLOATS),
    "floor": (Ops.FLOOR, np.floor, FLOATS),
    "trunc": (Ops.TRUNC, np.trunc, FLOATS),
    "round": (Ops.ROUND, np.rint, FLOATS),
}


@dataclass
class Case:
    """`compute` on `inputs` of `types`: what it should give, of type `output`."""

    name: str
    inputs: list[np.ndarray]
    types: list[DType]
    output: DType
    compute: Callable[..., UOp]
    expected: np.ndarray

    def stored(self, runtime: Runtime) -> tuple[list[DType], DType]:
        """Bools travel as uint32 where memory has no bool."""
        packed = dtypes.bool not in runtime.target.storage
        types = [dtypes.uint32 if t is dtypes.bool and packed else t for t in (*self.types, self.output)]
        return types[:-1], types[-1]

    def program(self, runtime: Runtime, width: int) -> Program:
        stored, to = self.stored(runtime)

        def body(*loads: UOp) -> UOp:
            given = [UOp(Ops.CAST, t, (x,)) if x.dtype is not t else x for x, t in zip(loads, self.types)]
            result = self.compute(*given)
            return UOp(Ops.CAST, to, (result,)) if to is not self.output else result

        return elementwise(f"{self.name}_{width}", stored, to, body, COUNT, width)


def check(runtime: Runtime, cases: Iterable[Case], widths: Sequence[int] = (1, 4, 16)) -> None:
    """Run every case at all `widths` the target has; one compile for all of them."""
    pairs = [(case, width) for case in cases for width in widths if width <= runtime.target.max_vector]
    assert pairs
    executables = runtime.compile([case.program(runtime, width) for case, width in pairs])
    for (case, width), executable in zip(pairs, executables):
        stored, to = case.stored(runtime)
        arrays = [np.zeros(COUNT, to.numpy), *(a.astype(t.numpy) for a, t in zip(case.inputs, stored))]
        got = launch(runtime, executable, arrays)[0].astype(case.output.numpy)
        if case.output.is_float and runtime.target.language == "wgsl":
            # WGSL divides within 2.5 units in the last place and may flush subnormals
            np.testing.assert_allclose(got, case.expected, rtol=3e-7, atol=1.2e-38, err_msg=f"{case.name}_{width}")
        else:
            np.testing.assert_array_equal(got, case.expected, err_msg=f"{case.name}_{width}")


def computable(runtime: Runtime, types: tuple[DType, ...]) -> list[DType]:
    return [t for t in types if t in runtime.target.arithmetic]


def in_turn(names: Iterable[str]) -> pytest.MarkDecorator:
    """Each operation on every runtime, but on one of those whose text Clang compiles: for AMD's GPUs the longest."""
    cases = []
    for i, name in enumerate(names):
        for runtime in (*PROCESSORS, *BROWSERS, "OPENCL", *TEXTS):
            later = runtime in ("OPENCL", TEXTS[i % 4 == 0])
            cases.append(pytest.param(runtime, name, marks=pytest.mark.slow if later else ()))
    return pytest.mark.parametrize(("runtime", "name"), cases, indirect=["runtime"])


@in_turn(BINARY)
def test_binary(runtime: Runtime, name: str) -> None:
    cases = []
    operation, reference, types = BINARY[name]
    for t in computable(runtime, types):
        a, b = values(t, 0), values(t, 1)
        if operation in (Ops.DIV, Ops.MUL) and runtime.target.language == "wgsl" and t.is_float:
            a, b = np.clip(a, -1e15, 1e15), np.clip(b, -1e15, 1e15)  # results that overflow are not specified there
        with np.errstate(all="ignore"):
            expected = reference(a, b)
        output = dtypes.bool if expected.dtype == bool else t
        cases.append(Case(f"{name}_{t.name}", [a, b], [t, t], output, op(operation), expected))
    check(runtime, cases)


@in_turn(UNARY)
def test_unary(runtime: Runtime, name: str) -> None:
    cases = []
    operation, reference, types = UNARY[name]
    for t in computable(runtime, types):
        a = values(t, 0)
        with np.errstate(all="ignore"):
            expected = reference(a)
        cases.append(Case(f"{name}_{t.name}", [a], [t], t, op(operation), expected))
    check(runtime, cases)


@pytest.mark.parametrize("runtime", LESS_HIP, indirect=True)
def test_division_of_integers(runtime: Runtime) -> None:
    """Numerators are never negative: that is the program's contract."""
    cases = []
    for t in computable(runtime, INTS):
        a, b = np.abs(values(t, 2) // 2), small(t, 3)
        cases.append(Case(f"floordiv_{t.name}", [a, b], [t, t], t, op(Ops.FLOORDIV), a // b))
        cases.append(Case(f"mod_{t.name}", [a, b], [t, t], t, op(Ops.MOD), a % b))
        for divisor in (1, 3, 8):
            quotient, remainder = with_constant(Ops.FLOORDIV, divisor), with_constant(Ops.MOD, divisor)
            cases.append(Case(f"floordiv{divisor}_{t.name}", [a], [t], t, quotient, a // divisor))
            cases.append(Case(f"mod{divisor}_{t.name}", [a], [t], t, remainder, a % divisor))
    check(runtime, cases)


def test_shifts(runtime: Runtime) -> None:
    cases = []
    for t in computable(runtime, INTS):
        a = values(t, 0)
        by = (np.arange(COUNT) % t.bits).astype(t.numpy)
        cases.append(Case(f"shl_{t.name}", [a, by], [t, t], t, op(Ops.SHL), np.left_shift(a, by)))
        cases.append(Case(f"shr_{t.name}", [a, by], [t, t], t, op(Ops.SHR), np.right_shift(a, by)))
    check(runtime, cases)


@pytest.mark.parametrize("runtime", LESS_HIP, indirect=True)
def test_where(runtime: Runtime) -> None:
    cases = []
    for t in computable(runtime, (*INTS, *FLOATS, dtypes.bool)):
        c, a, b = values(dtypes.bool, 5), values(t, 0), values(t, 1)
        kinds = [dtypes.bool, t, t]
        cases.append(Case(f"where_{t.name}", [c, a, b], kinds, t, lambda c, a, b: c.where(a, b), np.where(c, a, b)))
    check(runtime, cases)


@pytest.mark.parametrize("runtime", LESS_HIP, indirect=True)
def test_masks_of_different_widths(runtime: Runtime) -> None:
    """Comparisons of 32-bit and other data, joined and used to choose among data of yet another width."""
    cases = []
    wide = computable(runtime, (dtypes.float64, dtypes.int8, dtypes.uint32, dtypes.float32))
    for t, u in itertools.product(wide, wide):
        a, b, c, d = values(t, 0), values(t, 1), values(u, 0), values(u, 1)

        def body(a: UOp, b: UOp, c: UOp, d: UOp) -> UOp:
            n = a.shape[0] if a.shape else 1
            both = (a < b) & c.equal(d).alu(Ops.XOR, splat(UOp.const(True, dtypes.bool), n))
            return (both | (b < a)).where(c, d)

        with np.errstate(all="ignore"):
            expected = np.where(((a < b) & ~(c == d)) | (b < a), c, d)
        cases.append(Case(f"masks_{t.name}_{u.name}", [a, b, c, d], [t, t, u, u], u, body, expected))
    check(runtime, cases)


@pytest.mark.parametrize("runtime", LESS_HIP, indirect=True)
def test_muladd(runtime: Runtime) -> None:
    cases = []
    for t in computable(runtime, (*INTS, dtypes.float32, dtypes.float64)):
        a, b, c = small(t, 0), small(t, 1), small(t, 2)  # exact, so that fusing makes no difference

        def body(a: UOp, b: UOp, c: UOp) -> UOp:
            return UOp(Ops.MULADD, a.dtype, (a, b, c))

        with np.errstate(all="ignore"):
            expected = a * b + c
        cases.append(Case(f"muladd_{t.name}", [a, b, c], [t, t, t], t, body, expected))
    check(runtime, cases)


def in_range(values: np.ndarray, of: DType, to: DType) -> np.ndarray:
    """Only values whose conversion C defines: no NaN or overflow from float to integer."""
    if of.is_float and to.is_int:
        low, high = max(float(to.min), -1e9), min(float(to.max), 1e9)
        values = np.clip(np.nan_to_num(values, nan=3.7), low, high)
    return values


@pytest.mark.parametrize("runtime", LESS_HIP, indirect=True)
def test_casts(runtime: Runtime) -> None:
    cases = []
    types = computable(runtime, (*INTS, *FLOATS, dtypes.bool))
    for t, u in itertools.product(types, types):
        if t is u:
            continue
        a = in_range(values(t, 0), t, u)
        with np.errstate(all="ignore"):
            expected = (a != 0) if u is dtypes.bool else a.astype(u.numpy)
        cases.append(Case(f"cast_{t.name}_{u.name}", [a], [t], u, to(Ops.CAST, u), expected))
    check(runtime, cases, [1, 4])


def test_bitcasts(runtime: Runtime) -> None:
    cases = []
    for t, u in (
        (dtypes.float32, dtypes.uint32),
        (dtypes.uint32, dtypes.float32),
        (dtypes.int32, dtypes.float32),
        (dtypes.uint32, dtypes.int32),
        (dtypes.float64, dtypes.int64),
        (dtypes.uint8, dtypes.int8),
    ):
        if t in runtime.target.arithmetic and u in runtime.target.arithmetic:
            a = values(t, 0) if t.is_float else np.random.default_rng(1).integers(1, 100, COUNT).astype(t.numpy) << 3
            cases.append(Case(f"bits_{t.name}_{u.name}", [a], [t], u, to(Ops.BITCAST, u), a.view(u.numpy)))
    check(runtime, cases)


def reversed_lanes(x: UOp) -> UOp:
    if not x.shape:
        return x
    parts = [UOp(Ops.LANE, x.dtype, (x,), i) for i in range(x.shape[0])]
    return UOp(Ops.STACK, x.dtype, tuple(parts[::-1]))


@pytest.mark.parametrize("width", [1, 2, 4, 16])
def test_lanes(runtime: Runtime, width: int) -> None:
    """STACK of chosen LANEs: each group of lanes reversed."""
    width = min(width, runtime.target.max_vector)
    cases = []
    for t in computable(runtime, (*INTS, *FLOATS, dtypes.bool)):
        a = values(t, 0)
        expected = a.reshape(-1, width)[:, ::-1].reshape(-1)
        cases.append(Case(f"reverse_{t.name}", [a], [t], t, reversed_lanes, expected))
    check(runtime, cases, [width])
