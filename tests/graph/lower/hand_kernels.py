"""Kernels written by hand in the kernel form, each with inputs and what NumPy says they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Axis, KernelInfo, Ops, ParamArg, Size, UOp, Variable, as_index
from tinyweb.graph.lower import lower
from tinyweb.graph.lower.memory_access import carrier_of
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.native_runtimes.interpreter import InterpreterRuntime
from tinyweb.native_runtimes.protocol import Launch, Runtime

F32, F16, BF16, I32, I8, U8, INDEX = (
    dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.int32, dtypes.int8, dtypes.uint8, dtypes.index,
)  # fmt: skip
rng = np.random.default_rng(7)


@dataclass
class Case:
    """A kernel; what its buffers hold before (by slot, as memory holds it) and what the stored ones hold after."""

    name: str
    kernel: UOp
    before: list[np.ndarray]
    after: list[np.ndarray]
    variables: dict[str, int] = field(default_factory=dict)
    tolerance: float = 1e-5


# -- building --------------------------------------------------------------------------------------------------
def param(slot: int, size: int, dtype: DType = F32) -> UOp:
    return UOp(Ops.PARAM, dtype, (), ParamArg(slot, size))


def axes(*sizes: Size, reduce: bool = False, first: int = 0) -> list[UOp]:
    letter = "r" if reduce else "i"
    return [
        UOp(Ops.RANGE, INDEX, (as_index(s),), Axis(f"{letter}{n}", first + n, reduce=reduce))
        for n, s in enumerate(sizes)
    ]


def reduce(op: Ops, value: UOp, *ranges: UOp) -> UOp:
    return UOp(Ops.REDUCE, value.dtype, (value, *ranges), op)


def total(value: UOp, *ranges: UOp) -> UOp:
    return reduce(Ops.ADD, value, *ranges)


def kernel(*stores: UOp, name: str = "") -> UOp:
    return stores[0].sink(*stores[1:], arg=KernelInfo(name))


def exp(x: UOp) -> UOp:
    return UOp(Ops.EXP2, x.dtype, (x * 1.4426950408889634,))


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


def pack4(values: np.ndarray) -> np.ndarray:
    """Integers of 4 bits, two to a byte, the first in the low half."""
    flat = values.reshape(-1).astype(np.uint8) & 15
    return (flat[::2] | flat[1::2] << 4).astype(np.uint8)


def to_bf16(values: np.ndarray) -> np.ndarray:
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


# -- running ---------------------------------------------------------------------------------------------------
def run(
    program: Program, target: Target, buffers: Sequence[np.ndarray], variables: dict[str, int],
    runtime: Runtime | None = None,
) -> list[np.ndarray]:  # fmt: skip
    """The buffers after the program, carried out by a runtime, or by the interpreter."""
    runtime = runtime or InterpreterRuntime(target)
    (executable,) = runtime.compile([program])
    handles = []
    for b in buffers:
        handles.append(runtime.allocate(b.nbytes))
        runtime.copy_in(handles[-1], memoryview(np.ascontiguousarray(b).reshape(-1).view(np.uint8)))
    runtime.run([Launch(executable, tuple(handles))], variables)
    return [
        np.frombuffer(runtime.copy_out(h, b.nbytes), b.dtype).reshape(b.shape)
        for h, b in zip(handles, buffers, strict=True)
    ]


def check(case: Case, scheduled: UOp, target: Target) -> Program:
    """Lowers, runs and compares with what NumPy said."""
    program = lower(scheduled, target)
    result = run(program, target, case.before, case.variables)
    for got, want in zip(result, case.after, strict=False):
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=case.tolerance, atol=case.tolerance, err_msg=case.name)
        else:
            np.testing.assert_array_equal(got, want, err_msg=case.name)
    return program


def supports(case: Case, target: Target) -> bool:
    return supports_types(case.kernel, target)


def supports_types(k: UOp, target: Target) -> bool:
    """Whether the target computes with all the kernel's types at all."""
    try:
        for u in k.toposort():
            if u.op is Ops.PARAM:
                carrier_of(u.dtype, target)
    except NotImplementedError:
        return False
    return True


# -- the kernels -----------------------------------------------------------------------------------------------
def elementwise() -> Case:
    i, j = axes(7, 36)
    at = i * 36 + j
    a, b, c = normal(7, 36), normal(7, 36), normal(36)
    value = (param(1, 252).load(at) * param(2, 252).load(at) + param(3, 36).load(j)).maximum(0.0)
    return Case(
        "elementwise", kernel(param(0, 252).store(at, value)), [zeros(7, 36), a, b, c], [np.maximum(a * b + c, 0)]
    )


def transcendental() -> Case:
    (i,) = axes(40)
    x = np.abs(normal(40)) + 0.1
    v = param(1, 40).load(i)
    value = UOp(Ops.EXP2, F32, (v,)) + UOp(Ops.LOG2, F32, (v,)) + UOp(Ops.SIN, F32, (v * 30.0,))
    return Case(
        "transcendental",
        kernel(param(0, 40).store(i, value)),
        [zeros(40), x],
        [np.exp2(x) + np.log2(x) + np.sin(x * 30)],
    )


def integers() -> Case:
    (i,) = axes(33)
    a, b = rng.integers(-50, 50, 33).astype(np.int32), rng.integers(-6, 7, 33).astype(np.int32)
    b[b == 0] = 3
    x, y = param(1, 33, I32).load(i), param(2, 33, I32).load(i)
    value = x // y + (x % y) * 100 + (x // 4) * 7 + x % 5 + x.alu(Ops.SHR, 2) + (x & 12)
    want = a // b + a % b * 100 + a // 4 * 7 + a % 5 + (a >> 2) + (a & 12)
    return Case("integers", kernel(param(0, 33, I32).store(i, value)), [zeros(33, dtype=np.int32), a, b], [want])


def bytes_wrap() -> Case:
    (i,) = axes(32)
    a, b = rng.integers(-128, 128, 32).astype(np.int8), rng.integers(-128, 128, 32).astype(np.int8)
    value = param(1, 32, I8).load(i) * param(2, 32, I8).load(i) + UOp.const(100, I8)
    return Case(
        "bytes_wrap", kernel(param(0, 32, I8).store(i, value)), [zeros(32, dtype=np.int8), a, b], [a * b + np.int8(100)]
    )


def row_sums() -> Case:
    (i,), (r,) = axes(5), axes(37, reduce=True, first=1)
    x = normal(5, 37)
    return Case(
        "row_sums", kernel(param(0, 5).store(i, total(param(1, 185).load(i * 37 + r), r))), [zeros(5), x], [x.sum(1)]
    )


def everything_max() -> Case:
    r, s = axes(6, 11, reduce=True)
    x = normal(6, 11) - 5
    at = UOp.const(0, INDEX)
    value = reduce(Ops.MAX, param(1, 66).load(r * 11 + s), r, s)
    return Case(
        "everything_max", kernel(param(0, 1).store(at, value)), [zeros(1), x], [x.max(keepdims=True).reshape(1)]
    )


def products() -> Case:
    (i,), (r,) = axes(6), axes(10, reduce=True, first=1)
    x = rng.uniform(0.5, 1.5, (10, 6)).astype(np.float32)
    value = reduce(Ops.MUL, param(1, 60).load(r * 6 + i), r)
    return Case("products", kernel(param(0, 6).store(i, value)), [zeros(6), x], [x.prod(0)])


def matmul() -> Case:
    i, j = axes(12, 20)
    (k,) = axes(16, reduce=True, first=2)
    a, b = normal(12, 16), normal(16, 20)
    value = total(param(1, 192).load(i * 16 + k) * param(2, 320).load(k * 20 + j), k).maximum(0.0)
    return Case("matmul", kernel(param(0, 240).store(i * 20 + j, value)), [zeros(12, 20), a, b], [np.maximum(a @ b, 0)])


def linear(rows: int = 6, outputs: int = 24, inputs: int = 32) -> Case:
    i, j = axes(rows, outputs)
    (k,) = axes(inputs, reduce=True, first=2)
    a, w = normal(rows, inputs), normal(outputs, inputs)
    value = total(param(1, a.size).load(i * inputs + k) * param(2, w.size).load(j * inputs + k), k)
    store = param(0, rows * outputs).store(i * outputs + j, value)
    return Case(
        f"linear_{rows}_{outputs}_{inputs}", kernel(store), [zeros(rows, outputs), a, w], [a @ w.T], tolerance=3e-5
    )


def half_matvec() -> Case:
    (j,), (k,) = axes(24), axes(64, reduce=True, first=1)
    x, w = normal(64), normal(24, 64).astype(np.float16)
    value = total(param(1, 64).load(k) * param(2, 24 * 64, F16).load(j * 64 + k).cast(F32), k)
    return Case(
        "half_matvec",
        kernel(param(0, 24).store(j, value)),
        [zeros(24), x, w],
        [w.astype(np.float32) @ x],
        tolerance=3e-5,
    )


def quantised(dtype: DType) -> Case:
    """Weights of few bits with an f16 scale per group of 32, under an RMS norm of the input."""
    outputs, groups = 24, 4
    (j,), (g, k, n) = axes(outputs), axes(groups, 32, groups * 32, reduce=True, first=1)
    x, gain = normal(groups * 32), normal(groups * 32)
    low, high = (-8, 8) if dtype is dtypes.int4 else (0, 16) if dtype is dtypes.uint4 else (-128, 128)
    q = rng.integers(low, high, (outputs, groups * 32))
    scales = (np.abs(normal(outputs, groups)) / 16).astype(np.float16)
    weights = q.reshape(outputs, groups, 32) * scales[:, :, None].astype(np.float32)
    size = outputs * groups * 32
    mean = total(param(1, groups * 32).load(n) * param(1, groups * 32).load(n), n) * (1 / (groups * 32)) + 1e-5
    scale = UOp(Ops.RECIPROCAL, F32, (UOp(Ops.SQRT, F32, (mean,)),))
    at = g * 32 + k
    normed = param(1, groups * 32).load(at) * scale * param(2, groups * 32).load(at)
    weight = param(3, size, dtype).load(j * (groups * 32) + at).cast(F32) * param(4, outputs * groups, F16).load(
        j * groups + g
    ).cast(F32)
    value = total(normed * weight, g, k)
    want = weights.reshape(outputs, -1).astype(np.float64) @ (x / np.sqrt((x * x).mean() + 1e-5) * gain)
    held = pack4(q) if dtype.bits == 4 else q.astype(np.int8)
    case = Case(
        f"quantised_{dtype.short}",
        kernel(param(0, outputs).store(j, value)),
        [zeros(outputs), x, gain, held, scales],
        [],
    )
    case.after, case.tolerance = [want.astype(np.float32)], 3e-4
    return case


def dots(dtype: DType, tokens: int = 2, outputs: int = 12, groups: int = 3) -> Case:
    """Integer products summed exactly in groups of 32, the groups scaled and added up as floats; uint4 less 8."""
    (i, j), (g, k) = axes(tokens, outputs), axes(groups, 32, reduce=True, first=2)
    low = -8 if dtype.bits == 4 else -128
    weights, x = rng.integers(low, -low, (outputs, groups, 32)), rng.integers(-128, 128, (tokens, groups, 32))
    scales, steps = (np.abs(normal(outputs, groups)) / 16).astype(np.float16), normal(tokens, groups)
    size, length = outputs * groups * 32, groups * 32
    zero = 0 if dtype.is_signed else -low
    held = pack4(weights + zero) if dtype.bits == 4 else weights.astype(np.int8)
    a = param(1, size, dtype).load(j * length + g * 32 + k).cast(dtypes.int32)
    a = a - zero if zero else a
    b = param(2, tokens * length, I8).load(i * length + g * 32 + k).cast(dtypes.int32)
    scale = param(3, outputs * groups, F16).load(j * groups + g).cast(F32) * param(4, tokens * groups).load(
        i * groups + g
    )
    value = total(total(a * b, k).cast(F32) * scale, g)
    want = np.einsum("tgk,ogk,og,tg->to", x, weights, scales.astype(np.float64), steps.astype(np.float64))
    before = [zeros(tokens, outputs), held, x.astype(np.int8), scales, steps]
    rows = "" if tokens > 1 else "_alone" if outputs > 24 else "_few"
    case = Case(
        f"dots_{dtype.short}{rows}{'' if groups == 3 else f'_{groups}'}",
        kernel(param(0, tokens * outputs).store(i * outputs + j, value)),
        before,
        [],
    )
    case.after, case.tolerance = [want.astype(np.float32)], 1e-4 if groups < 5 else 1e-3
    return case


def integer_product(rows: int, columns: int, steps: int, transposed: bool = False) -> Case:
    """A product of matrices of bytes in int32; `transposed`: of a matrix with rows of another."""
    (i, j), (k,) = axes(rows, columns), axes(steps, reduce=True, first=2)
    x, w = rng.integers(-128, 128, (rows, steps)), rng.integers(-128, 128, (steps, columns))
    a = param(1, x.size, I8).load(i * steps + k).cast(dtypes.int32)
    b = param(2, w.size, I8).load(j * steps + k if transposed else k * columns + j).cast(dtypes.int32)
    before = [np.zeros((rows, columns), np.int32), x.astype(np.int8), (w.T if transposed else w).astype(np.int8)]
    store = kernel(param(0, rows * columns, dtypes.int32).store(i * columns + j, total(a * b, k)))
    name = f"integer_product_{rows}_{columns}_{steps}{'_transposed' if transposed else ''}"
    return Case(name, store, before, [(x @ w).astype(np.int32)])


def integers_of_all_sizes() -> list[Case]:
    """Products of small integers with rows, columns and groups that are odd, prime, or fewer than a tile's."""
    return [
        integer_product(8, 256, 64), integer_product(33, 67, 1000), integer_product(2, 1031, 88, True),
        integer_product(17, 61, 184, True), integer_product(64, 48, 100), integer_product(31, 127, 512),
        dots(I8, 32, 64, 8), dots(I8, 9, 13, 5), dots(dtypes.int4, 33, 37, 7), dots(dtypes.uint4, 33, 37, 7),
    ]  # fmt: skip


def softmax(rows: int, length: int) -> Case:
    i, j = axes(rows, length)
    r, s = axes(length, length, reduce=True, first=2)
    x = normal(rows, length) * 3
    p = param(1, rows * length)
    top = reduce(Ops.MAX, p.load(i * length + r), r)
    norm = total(exp(p.load(i * length + s) - top), s)
    value = exp(p.load(i * length + j) - top).alu(Ops.DIV, norm)
    e = np.exp(x - x.max(1, keepdims=True))
    store = param(0, rows * length).store(i * length + j, value)
    return Case(f"softmax_{rows}_{length}", kernel(store), [zeros(rows, length), x], [e / e.sum(1, keepdims=True)])


def softmax_columns() -> Case:
    """Over the outer axis: the reductions depend on the inner output axis alone."""
    i, j = axes(9, 12)
    r, s = axes(9, 9, reduce=True, first=2)
    x = normal(9, 12)
    p = param(1, 108)
    top = reduce(Ops.MAX, p.load(r * 12 + j), r)
    norm = total(exp(p.load(s * 12 + j) - top), s)
    e = np.exp(x - x.max(0))
    store = param(0, 108).store(i * 12 + j, exp(p.load(i * 12 + j) - top).alu(Ops.DIV, norm))
    return Case("softmax_columns", kernel(store), [zeros(9, 12), x], [e / e.sum(0)])


def convolution() -> Case:
    i, j = axes(3, 22)
    (k,) = axes(5, reduce=True, first=2)
    x, w = normal(3, 22), normal(5)
    at = j + k - 2
    inside = (at >= 0) & (at < 22)
    value = total(param(1, 66).load(i * 22 + at, inside) * param(2, 5).load(k), k)
    want = np.stack([np.convolve(row, w[::-1], "same") for row in x])
    return Case(
        "convolution", kernel(param(0, 66).store(i * 22 + j, value)), [zeros(3, 22), x, w], [want.astype(np.float32)]
    )


def padded() -> Case:
    i, j = axes(6, 16)
    x = normal(4, 10)
    inside = (i >= 1) & (i < 5) & (j >= 4) & (j < 14)
    value = param(1, 40).load((i - 1) * 10 + j - 4, inside)
    return Case(
        "padded", kernel(param(0, 96).store(i * 16 + j, value)), [zeros(6, 16), x], [np.pad(x, ((1, 1), (4, 2)))]
    )


def transposed() -> Case:
    i, j = axes(10, 14)
    x = normal(14, 10)
    return Case(
        "transposed",
        kernel(param(0, 140).store(i * 14 + j, param(1, 140).load(j * 10 + i))),
        [zeros(10, 14), x],
        [x.T.copy()],
    )


def scores(position: int) -> Case:
    """Attention scores against a cache of which start_pos + 1 rows are in use."""
    start = Variable("start_pos", 0, 15)
    h, s = axes(3, start + 1)
    (d,) = axes(8, reduce=True, first=2)
    q, cache = normal(3, 8), normal(16, 8)
    value = total(param(1, 24).load(h * 8 + d) * param(2, 128).load(s * 8 + d), d) * 0.5
    want = zeros(3, 16)
    want[:, : position + 1] = q @ cache[: position + 1].T * 0.5
    store = param(0, 48).store(h * 16 + s, value)
    return Case(f"scores_{position}", kernel(store), [zeros(3, 16), q, cache], [want], {"start_pos": position})


def symbolic_softmax(position: int) -> Case:
    start = Variable("start_pos", 0, 30)
    n = start + 1
    i, j = axes(4, n)
    r, s = axes(n, n, reduce=True, first=2)
    x = normal(4, 31)
    p = param(1, 124)
    top = reduce(Ops.MAX, p.load(i * 31 + r), r)
    value = exp(p.load(i * 31 + j) - top).alu(Ops.DIV, total(exp(p.load(i * 31 + s) - top), s))
    e = np.exp(x[:, : position + 1] - x[:, : position + 1].max(1, keepdims=True))
    want = zeros(4, 31)
    want[:, : position + 1] = e / e.sum(1, keepdims=True)
    store = param(0, 124).store(i * 31 + j, value)
    return Case(f"symbolic_softmax_{position}", kernel(store), [zeros(4, 31), x], [want], {"start_pos": position})


def weighted_values(position: int) -> Case:
    start = Variable("start_pos", 0, 19)
    h, d = axes(4, 16)
    (s,) = axes(start + 1, reduce=True, first=2)
    p, cache = normal(4, 20), normal(20, 16)
    value = total(param(1, 80).load(h * 20 + s) * param(2, 320).load(s * 16 + d), s)
    want = p[:, : position + 1] @ cache[: position + 1]
    store = param(0, 64).store(h * 16 + d, value)
    return Case(f"weighted_values_{position}", kernel(store), [zeros(4, 16), p, cache], [want], {"start_pos": position})


def argmax() -> Case:
    (i,), (r, s) = axes(5), axes(26, 26, reduce=True, first=1)
    x = rng.integers(0, 9, (5, 26)).astype(np.float32)
    top = reduce(Ops.MAX, param(1, 130).load(i * 26 + r), r)
    first = reduce(Ops.MAX, param(1, 130).load(i * 26 + s).equal(top).where((s * -1).cast(I32), UOp.const(-26, I32)), s)
    value = first * UOp.const(-1, I32)
    return Case(
        "argmax",
        kernel(param(0, 5, I32).store(i, value)),
        [zeros(5, dtype=np.int32), x],
        [x.argmax(1).astype(np.int32)],
    )


def two_stores() -> Case:
    i, j = axes(6, 18)
    (r,) = axes(18, reduce=True, first=2)
    x = normal(6, 18)
    mean = total(param(2, 108).load(i * 18 + r), r) * (1 / 18)
    stores = param(0, 6).store(i, mean), param(1, 108).store(i * 18 + j, param(2, 108).load(i * 18 + j) - mean)
    m = x.mean(1)
    return Case("two_stores", kernel(*stores), [zeros(6), zeros(6, 18), x], [m, x - m[:, None]])


def gate_and_up() -> Case:
    """Two products with the same input, over different ranges of one size."""
    (j,), (k, n) = axes(20), axes(24, 24, reduce=True, first=1)
    x, g, u = normal(24), normal(20, 24), normal(20, 24)
    gate = total(param(1, 24).load(k) * param(2, 480).load(j * 24 + k), k)
    up = total(param(1, 24).load(n) * param(3, 480).load(j * 24 + n), n)
    return Case("gate_and_up", kernel(param(0, 20).store(j, gate.maximum(0.0) * up)), [zeros(20), x, g, u],
                [np.maximum(g @ x, 0) * (u @ x)], tolerance=3e-5)  # fmt: skip


def in_place() -> Case:
    (i,) = axes(50)
    a, b = normal(50), normal(50)
    p = param(0, 50)
    return Case("in_place", kernel(p.store(i, p.load(i) * 0.5 + param(1, 50).load(i))), [a, b], [a * 0.5 + b])


def stores_of(dtype: DType, convert: Callable[[np.ndarray], np.ndarray], length: int) -> Case:
    (i,) = axes(length)
    x = normal(length) * 3
    v = param(1, length).load(i)
    value = UOp.const(0.5, F32).alu(Ops.LESS, v) if dtype is dtypes.bool else v.cast(dtype)
    want = convert(x)
    store = param(0, length, dtype).store(i, value)
    return Case(f"stores_{dtype.short}_{length}", kernel(store), [np.zeros_like(want), x], [want])


def nibbles() -> Case:
    (i,) = axes(24)
    x = rng.integers(-8, 8, 24).astype(np.int32)
    store = param(0, 24, dtypes.int4).store(i, param(1, 24, I32).load(i).cast(dtypes.int4))
    return Case("nibbles", kernel(store), [np.full(12, 0x5A, np.uint8), x], [pack4(x)])


def bf16_sum() -> Case:
    (i,), (r,) = axes(3), axes(16, reduce=True, first=1)
    x = to_bf16(normal(3, 16))
    value = total(param(1, 48, BF16).load(i * 16 + r).cast(F32), r)
    return Case("bf16_sum", kernel(param(0, 3).store(i, value)), [zeros(3), x], [from_bf16(x).sum(1)])


def casts_round() -> Case:
    """A value that goes through narrower types and back has their precision and range."""
    (i,) = axes(21)
    x = normal(21) * 100
    v = param(1, 21).load(i)
    value = v.cast(F16).cast(F32) + v.cast(BF16).cast(F32) * 1000.0 + v.cast(I32).cast(I8).cast(F32)
    want = x.astype(np.float16).astype(np.float32) + from_bf16(to_bf16(x)) * 1000 + x.astype(np.int32).astype(np.int8)
    return Case("casts_round", kernel(param(0, 21).store(i, value)), [zeros(21), x], [want])


CASES: list[Case] = [
    elementwise(), transcendental(), integers(), bytes_wrap(), row_sums(), everything_max(), products(), matmul(),
    linear(), linear(2, 13, 21), linear(1, 17, 40), half_matvec(), quantised(dtypes.int8), quantised(dtypes.int4),
    quantised(dtypes.uint4), dots(I8), dots(dtypes.int4), dots(dtypes.uint4),
    dots(dtypes.int4, 1, 24), dots(I8, 1, 352), dots(dtypes.int4, 1, 352), dots(dtypes.int4, 1, 352, 4),
    dots(dtypes.int4, 3, 20, 4), dots(dtypes.uint4, 1, 24), dots(dtypes.uint4, 1, 352), dots(dtypes.uint4, 1, 353, 4),
    dots(dtypes.uint4, 3, 20, 4),
    softmax(6, 40), softmax(3, 13), softmax_columns(), convolution(), padded(),
    transposed(), scores(0), scores(15), scores(6), symbolic_softmax(0), symbolic_softmax(30), symbolic_softmax(12),
    weighted_values(0), weighted_values(17), argmax(), two_stores(), gate_and_up(), in_place(), stores_of(F16,
    lambda x: x.astype(np.float16), 30), stores_of(BF16, to_bf16, 32), stores_of(dtypes.bool, lambda x: x > 0.5,
    21), stores_of(dtypes.bool, lambda x: x > 0.5, 32), stores_of(I8, lambda x: np.trunc(x).astype(np.int8), 18),
    stores_of(dtypes.int16, lambda x: np.trunc(x).astype(np.int16), 24), nibbles(), bf16_sum(), casts_round(),
]  # fmt: skip
BY_NAME = {c.name: c for c in CASES}
