"""Types a target lacks, evaluated in NumPy after `legalize`: every cast, every shift, arithmetic that wraps around."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.graph.lower.evaluation import evaluate, leaf
from tests.graph.lower.hand_kernels import axes, kernel, param
from tinyweb.dtype import ALL, DType, dtypes, from_bits, round_to, to_bits
from tinyweb.graph.gpu_targets import amd_target, nvidia_target
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower.decompose import decompose, floor_division
from tinyweb.graph.lower.legalize import computed_as, in_range, legalize
from tinyweb.graph.target import Target, cpu_target, interpreter_target, wasm_target, webgpu_target

F32, F64, I32, U32, BOOL = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint32, dtypes.bool
CPU, WASM, WEBGPU = cpu_target(), wasm_target(), webgpu_target()
TARGETS = {"cpu": CPU, "wasm": WASM, "webgpu": WEBGPU, "interpreter": interpreter_target()}
SCALARS = [d for d in ALL if d.kind != "index"]
SMALL = [d for d in SCALARS if d.is_int and d.bits < 32]
INTS = [d for d in SCALARS if d.is_int and d.bits <= 32]
NARROW = [d for d in SCALARS if d.is_float and d.bits < 32]
FLOATS = np.array(
    [0.0, -0.0, 0.4, 1.0, -1.0, 1.5, -1.5, 6.5, 7.9, -8.9, 8.0, 14.5, 15.5, 16.0, 126.5, 127.5, 128.0, -128.9, -129.0,
     254.5, 255.9, 256.0,
     32766.5, 3.3e4, -3.3e4, 65504.0, 65519.0, 65520.0, 7e4, 2.0**31, -(2.0**31), 2.0**32, 4.2e9, 1e30,
     -1e30, 1e-45, 1e-8, np.inf, -np.inf, np.nan], np.float32)  # fmt: skip
INTEGERS = np.array([0, 1, -1, 2, 7, 8, -8, -9, 15, 16, 127, 128, -128, -129, 255, 256, 2049, 32767, 32768, -32768,
                     65535, 65536, 2**24 + 1, 2**31 - 1, -(2**31)], np.int32)  # fmt: skip


@pytest.mark.parametrize("target", [*TARGETS.values(), nvidia_target(), amd_target()], ids=lambda t: t.name)
def test_a_magnitude_is_an_operation_on_bits(target: Target) -> None:
    x = leaf(F32)
    zero = UOp.const(0.0, F32)
    chosen = x.equal(zero).where(zero, x.alu(Ops.LESS, zero).where(x.alu(Ops.NEG), x))
    lowered = legalize(chosen, target)
    assert not any(u.op is Ops.WHERE for u in lowered.toposort())
    got = evaluate(lowered, {x: FLOATS})
    np.testing.assert_array_equal(got, np.abs(FLOATS))
    assert not np.signbit(got[~np.isnan(got)]).any()


def wrap(value: int, dtype: DType) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def cast(value: float | int | bool, to: DType) -> float | int | bool:
    """What the documentation of casts says, of a Python number."""
    if to is BOOL:
        return value != 0
    if to.is_float:
        return round_to(float(value), to)
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        return int(min(max(value, to.min), to.max)) if math.isinf(value) else min(max(int(value), to.min), to.max)
    return wrap(int(value), to)


def widened(value: UOp, target: Target) -> UOp:
    return legalize(value, target)


def supported(dtype: DType, target: Target) -> bool:
    return dtype.bits < 64 or dtype in target.arithmetic


@pytest.mark.parametrize("target", [CPU, WEBGPU], ids=lambda t: t.name)
def test_every_cast_after_every_cast(target: Target) -> None:
    """From int32 and float32 through any two types."""
    types = [d for d in SCALARS if supported(d, target)]
    for source, values in ((I32, INTEGERS), (F32, FLOATS)):
        x = leaf(source)
        for first in types:
            once = [cast(v.item(), first) for v in values]
            for second in types:
                want = [cast(v, second) for v in once]
                got = evaluate(widened(x.cast(first).cast(second), target), {x: values})
                assert got.dtype == computed_as(second, target).numpy
                np.testing.assert_array_equal(
                    got.astype(np.float64), np.array(want, np.float64), err_msg=f"{source} {first} {second}"
                )


@pytest.mark.parametrize("target", [CPU, WEBGPU], ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", INTS, ids=lambda d: d.name)
def test_arithmetic_wraps_around(dtype: DType, target: Target) -> None:
    low, high = int(dtype.min), int(dtype.max)
    numbers = [low, low + 1, low // 2, 0, 1, 2, 3, 5, high // 2 + 1, high - 1, high]
    numbers += [] if dtype.kind == "uint" else [-1, -2, -3]
    numbers = [n for n in numbers if low <= n <= high]
    held = computed_as(dtype, target)
    a, b = (g.reshape(-1) for g in np.meshgrid(*[np.array(numbers, held.numpy)] * 2))
    wide = I32 if dtype.kind == "int" else U32
    x, y = leaf(wide, 0), leaf(wide, 1)
    left, right = x.cast(dtype), y.cast(dtype)
    operations: list[tuple[UOp, Callable[[int, int], int]]] = [
        (left + right, lambda p, q: p + q), (left * right, lambda p, q: p * q), (-left, lambda p, q: -p),
        (left & right, lambda p, q: p & q), (left | right, lambda p, q: p | q), (left ^ right, lambda p, q: p ^ q),
        (left.maximum(right), max), (left.alu(Ops.MULADD, right, left), lambda p, q: p * q + p),
        ((left < right).where(left, right), min), ((left + right) + right, lambda p, q: p + q + q),
    ]  # fmt: skip
    values = {x: a.astype(wide.numpy), y: b.astype(wide.numpy)}
    for value, python in operations:
        got = evaluate(widened(value, target), values)
        want = [wrap(python(int(p), int(q)), dtype) for p, q in zip(a, b)]
        np.testing.assert_array_equal(got.astype(np.int64), want, err_msg=f"{value.op.name} {dtype.name}")
    less = evaluate(widened(left < right, target), values)
    np.testing.assert_array_equal(less, a < b)
    np.testing.assert_array_equal(evaluate(widened(left.equal(right), target), values), a == b)


@pytest.mark.parametrize("target", [CPU, WEBGPU], ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", INTS, ids=lambda d: d.name)
@pytest.mark.parametrize("op", [Ops.SHL, Ops.SHR], ids=lambda o: o.name)
def test_shifts_by_any_amount(op: Ops, dtype: DType, target: Target) -> None:
    """By less than 0, and by the width and more, everything is shifted out."""
    wide = I32 if dtype.kind == "int" else U32
    numbers = [int(dtype.min), int(dtype.min) + 1, 1, 3, int(dtype.max) // 3, int(dtype.max)]
    numbers += [] if dtype.kind == "uint" else [-1, -6]
    # amounts have the type of what is shifted
    amounts = sorted({wrap(n, dtype) for n in (*range(-2, 40), 100, -100, int(dtype.max), int(dtype.min))})
    a, by = (g.reshape(-1) for g in np.meshgrid(np.array(numbers), np.array(amounts)))
    x, n = leaf(wide, 0), leaf(wide, 1)
    values = {x: a.astype(wide.numpy), n: by.astype(wide.numpy)}

    def shifted(value: int, amount: int) -> int:
        if not 0 <= amount < dtype.bits:
            return -1 if op is Ops.SHR and value < 0 else 0
        return wrap(value << amount if op is Ops.SHL else value >> amount, dtype)

    want = [shifted(int(p), int(q)) for p, q in zip(a, by)]
    got = evaluate(widened(x.cast(dtype).alu(op, n.cast(dtype)), target), values)
    np.testing.assert_array_equal(got.astype(np.int64), want)
    for amount in amounts:
        got = evaluate(widened(x.cast(dtype).alu(op, UOp.const(amount, dtype)), target), values)
        np.testing.assert_array_equal(got.astype(np.int64), [shifted(int(p), amount) for p in a], err_msg=str(amount))


def test_a_shift_that_is_known_to_fit_is_one_node() -> None:
    x = leaf(I32)
    for amount in (0, 1, 31):
        assert widened(x.alu(Ops.SHL, amount), CPU) is x.alu(Ops.SHL, amount)
    masked = x.alu(Ops.SHR, leaf(I32, 1) & 31)
    assert widened(masked, CPU) is masked
    assert widened(x.alu(Ops.SHL, 32), CPU).op is not Ops.SHL
    assert Ops.WHERE in {u.op for u in widened(x.alu(Ops.SHR, leaf(I32, 1) & 63), CPU).toposort()}


PAIRS = [(a, b) for a in SCALARS for b in SCALARS if a.bits == b.bits in (4, 8, 16, 32)]


@pytest.mark.parametrize("target", [CPU, WEBGPU], ids=lambda t: t.name)
def test_bitcasts_between_all_types_of_a_width(target: Target) -> None:
    """Of all bits (of 32: some); a bool is its lowest bit, and true is 1."""
    for a, b in PAIRS:
        bits = np.arange(min(1 << a.bits, 4096), dtype=np.uint32) * (
            1 if a.bits < 16 else 16 if a.bits == 16 else 1048583
        )
        if a is BOOL:
            bits = bits[:2]
        wide = {"float": F32, "int": I32}.get(a.kind, U32)
        x = leaf(wide)
        held: np.ndarray
        if a.is_float and a.bits < 32:
            held = from_bits(bits, a)
        elif wide is F32:
            held = bits.view(np.float32)
        else:
            held = np.array([wrap(int(v), a) for v in bits]).astype(wide.numpy) if a is not BOOL else bits
        got = evaluate(widened(UOp(Ops.BITCAST, b, (x.cast(a),)), target), {x: held})
        if b.is_float:
            want = from_bits(bits, b) if b.bits < 32 else bits.view(np.float32)
        elif b is BOOL:
            want = bits != 0
        else:
            want = np.array([wrap(int(v), b) for v in bits])
        if a.is_float and a.bits < 32:  # NaNs have no digits in registers
            keep = ~np.isnan(held)
            got, want = got[keep], want[keep]
        np.testing.assert_array_equal(got, want.astype(got.dtype), err_msg=f"{a.name} {b.name}")


def test_values_in_range_are_left_alone() -> None:
    x = leaf(I32)
    assert in_range(x & 127, dtypes.int8).op is Ops.AND and in_range(x & 127, dtypes.int8).src[1].arg == 127
    assert in_range(x & 128, dtypes.int8).op is Ops.SHR
    assert in_range(x.maximum(-128).alu(Ops.SHR, 31), dtypes.int8).op is Ops.SHR
    u = leaf(U32)
    assert in_range(u & 255, dtypes.uint8) is u & 255
    assert in_range(u, dtypes.uint8) is u & 255
    assert in_range(u & 511, dtypes.uint8) is (u & 511) & 255


def test_what_a_store_rounds_is_not_rounded_before() -> None:
    (i,) = axes(4)

    def narrowing(value: UOp, dtype: DType, target: Target) -> int:
        k = legalize(kernel(param(0, 4, dtype).store(i, value)), target)
        return sum(u.op in (Ops.F32_TO_F16, Ops.BITCAST) or u.dtype is dtypes.float16 for u in k.toposort())

    for dtype in NARROW:
        memory = dtype is dtypes.float16
        x = param(1, 4).load(i)
        once, twice = x.cast(dtype), (x.cast(dtype).cast(F32) * 2.0).cast(dtype)
        assert narrowing(once, dtype, WEBGPU) == memory  # the memory itself
        stored = param(0, 4, dtype)
        for gate in ((), (i < 3,)):
            (store,) = legalize(kernel(stored.store(i, once, *gate)), WEBGPU).src
            assert store.src == (stored, i, x, *gate)
        assert narrowing(twice, dtype, WEBGPU) > memory
    # a double is: by way of a float32 it would be rounded twice
    double = param(1, 4, F64).load(i)
    assert narrowing(double.cast(dtypes.bfloat16), dtypes.bfloat16, CPU) > 0


def test_exact_values_are_not_rounded() -> None:
    """Small integers, bools, and what has the type already."""
    for dtype in NARROW:
        for source in SCALARS:
            if source.bits > 32 or source.is_float:
                continue
            x = leaf(U32 if source.kind == "uint" else I32).cast(source)
            plain = widened(x.cast(dtype), WEBGPU).op is Ops.CAST
            assert plain == (source is BOOL or source.bits <= dtype.mantissa + 1), (source, dtype)


def test_constants_have_the_precision_of_their_type() -> None:
    for dtype in NARROW:
        for value in (0.1, 1.0, 3.14159, 1e-9, 1000.25):
            got = widened(UOp.const(value, dtype), WEBGPU)
            assert got.dtype is F32 and got.arg == float(from_bits(to_bits(value, dtype), dtype))
    assert widened(UOp.const(-5, dtypes.int8), WEBGPU) is UOp.const(-5, I32)
    assert widened(UOp.const(0.1, F32), WEBGPU) is UOp.const(0.1, F32)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_what_types_are_computed_as(target: Target) -> None:
    for d in SCALARS:
        if d in target.arithmetic or d.bits == 64:
            assert computed_as(d, target) is d
        elif d.bits < 32 and d.is_float:
            assert computed_as(d, target) is F32
        else:
            assert computed_as(d, target) is (I32 if d.kind == "int" else U32)
    assert computed_as(dtypes.void, target) is dtypes.void


def test_types_without_a_wider_one() -> None:
    for missing, dtype in ((F32, dtypes.float16), (F32, F32), (I32, dtypes.int8), (U32, U32), (BOOL, BOOL)):
        target = replace(WEBGPU, arithmetic=WEBGPU.arithmetic - {missing})
        with pytest.raises(NotImplementedError, match=f"{dtype.name} is not supported on webgpu: cast to a 32-bit"):
            computed_as(dtype, target)


def test_nibbles_are_unpacked_to_floats_where_vectors_are_short() -> None:
    nibble = param(0, 8, dtypes.int4).load(UOp.const(0, dtypes.index))
    byte = param(0, 8, dtypes.int8).load(UOp.const(0, dtypes.index))
    assert widened(nibble.cast(F32), WASM).op is Ops.LOAD and widened(nibble.cast(F32), WASM).dtype is F32
    for value, target in ((nibble.cast(F32), CPU), (nibble.cast(F32), WEBGPU), (byte.cast(F32), WASM),
                          (nibble.cast(dtypes.int8), WASM)):  # fmt: skip
        got = widened(value, target)
        assert not (got.op is Ops.LOAD and got.dtype is F32), (value, target.name)


def test_doubles_where_there_are_none() -> None:
    x = leaf(F64)
    for value, what in ((x + x, "ADD of float64"), (x.cast(I32), "a cast of float64 to int32"),
                        (leaf(I32).cast(F64), "a cast of int32 to float64"), (x < x, "LESS of float64"),
                        (x.cast(dtypes.float16), "a cast of float64 to float16")):  # fmt: skip
        with pytest.raises(NotImplementedError, match=what):
            legalize(value, WEBGPU)
        legalize(value, CPU)
    for fine in (x.cast(F32), x.cast(F32).cast(F64), (leaf(I32) < 1).where(x, x), leaf(dtypes.int64).bitcast(F64)):
        legalize(fine, WEBGPU)


def test_nans_are_found_by_their_bits_in_wgsl() -> None:
    for value in (leaf(F32).cast(I32), leaf(F32).cast(BOOL)):
        compared = {
            target.name: [u for u in widened(value, target).toposort() if u.op is Ops.EQUAL and u.src[0].dtype is F32]
            for target in (CPU, WEBGPU)
        }
        assert not compared["webgpu"]
    assert any(u.op is Ops.EQUAL and u.src[0] is u.src[1] for u in widened(leaf(F32).cast(I32), CPU).toposort())
    assert widened(leaf(F32).cast(BOOL), CPU).op is Ops.CAST


# -- division --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("op", [Ops.FLOORDIV, Ops.MOD], ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", [*INTS, dtypes.index, dtypes.int64, dtypes.uint64], ids=lambda d: d.name)
def test_division_of_all_signs(op: Ops, dtype: DType) -> None:
    """0 by 0; of an index, whose numerators are never that small, not the smallest number."""
    if dtype.bits < 8:
        dtype = dtypes.int8 if dtype.kind == "int" else dtypes.uint8
    low, high = int(dtype.min) + (dtype is dtypes.index), int(dtype.max)
    numbers = np.array(sorted({low, low + 1, low // 2, 0, 1, 2, 3, 7, high // 2, high - 1, high} | (
        set() if dtype.kind == "uint" else {-1, -2, -3, -7, -high})), dtype.numpy)  # fmt: skip
    a, b = (g.reshape(-1) for g in np.meshgrid(numbers, numbers))
    x, y = leaf(dtype, 0), leaf(dtype, 1)

    def divided(p: int, q: int) -> int:
        return 0 if q == 0 else wrap(p // q if op is Ops.FLOORDIV else p % q, dtype)

    got = evaluate(floor_division(UOp(op, dtype, (x, y)), x, y), {x: a, y: b})
    assert got.tolist() == [divided(p, q) for p, q in zip(a.tolist(), b.tolist())]
    for divisor in {1, 2, 3, 7, high}:
        c = UOp.const(divisor, dtype)
        known = floor_division(UOp(op, dtype, (x, c)), x, c)
        assert evaluate(known, {x: numbers}).tolist() == [divided(p, divisor) for p in numbers.tolist()]
        # a divisor that is known asks for no test of it
        assert not any(u.op in (Ops.EQUAL, Ops.WHERE, Ops.MAX) for u in known.toposort())


def test_division_by_what_may_be_zero_but_not_negative() -> None:
    numbers = np.arange(-20, 20, dtype=np.int32)
    a, b = (g.reshape(-1) for g in np.meshgrid(numbers, numbers))
    for dtype, op in ((d, op) for d in (dtypes.index, I32) for op in (Ops.FLOORDIV, Ops.MOD)):
        x, y = leaf(dtype, 0), leaf(dtype, 1)
        divisor = y & 7
        got = evaluate(floor_division(UOp(op, dtype, (x, divisor)), x, divisor), {x: a, y: b})
        q = np.where(b & 7, b & 7, 1)
        np.testing.assert_array_equal(got, np.where(b & 7, a // q if op is Ops.FLOORDIV else a % q, 0))


def test_the_bits_of_what_was_loaded_are_those_in_memory() -> None:
    """A narrow float is not decoded and encoded again; one that was computed is encoded."""
    for dtype in (dtypes.float16, dtypes.bfloat16):
        load = param(0, 8, dtype).load(UOp.const(0, dtypes.index))
        for value, encoded in ((load, False), (load + load, True)):
            got = widened(UOp(Ops.BITCAST, dtypes.uint16, (value,)), WEBGPU)
            bits = [u for u in got.toposort() if u.op is Ops.LOAD]
            assert [u.dtype for u in bits] == [F32 if encoded else U32]


def test_functions_of_narrow_types_are_computed_as_float32() -> None:
    for dtype in (dtypes.float16, F32, F64):
        x = leaf(dtype)
        value = decompose(UOp(Ops.EXP2, dtype, (x,)), CPU)
        assert value.dtype is dtype
        assert any(u.op is Ops.MULADD and u.dtype is (F64 if dtype is F64 else F32) for u in value.toposort())
    x, y = leaf(F32), leaf(F32, 1)
    # division is corrected where it is not exact, of float32 alone
    assert decompose(x.alu(Ops.DIV, y), CPU) is x.alu(Ops.DIV, y)
    assert decompose(x.alu(Ops.DIV, y), WEBGPU).op is not Ops.DIV
    whole = leaf(I32).equal(leaf(I32, 1))
    assert decompose(whole, WEBGPU) is whole
