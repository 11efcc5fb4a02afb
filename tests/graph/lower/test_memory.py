"""Runs of elements in memory of every type: loads and stores built directly, carried out on words, against NumPy."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.graph.lower.evaluation import evaluate, leaf
from tinyweb.dtype import ALL, DType, dtypes, from_bits, to_bits
from tinyweb.graph.ir import Ops, ParamArg, UOp, Variable
from tinyweb.graph.lower.constructors import index_const, lanes_of
from tinyweb.graph.lower.memory_access import Memory, Place, Run, carrier_of
from tinyweb.graph.target import Target, cpu_target, interpreter_target, wasm_target, webgpu_target

F32, I32, U32, BOOL, INDEX = dtypes.float32, dtypes.int32, dtypes.uint32, dtypes.bool, dtypes.index
CPU, WASM, WEBGPU, PLAIN = cpu_target(), wasm_target(), webgpu_target(), interpreter_target()
TARGETS = {"cpu": CPU, "wasm": WASM, "webgpu": WEBGPU, "interpreter": PLAIN}
TYPES = [d for d in ALL if d.kind != "index" and d.bits <= 32]
SIZE = 64  # elements
I = Variable("i", 0, 3)  # noqa: E741
BASES = {"constant": (index_const(0), 1), "whole": (I * 16, 16), "half": (I * 4, 4), "any": (I * 3, 3)}


def computed(dtype: DType) -> DType:
    """The type of values in registers."""
    return {"float": F32, "bool": BOOL, "int": I32, "uint": U32}[dtype.kind]


def contents(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Bits of SIZE elements, and the values they stand for."""
    bits = np.random.default_rng(dtype.bits).integers(0, 2 if dtype is BOOL else 1 << dtype.bits, SIZE, np.uint64)
    if dtype.is_float:
        numbers = np.random.default_rng(1).standard_normal(SIZE).astype(np.float32)
        bits = (numbers.view(np.uint32) if dtype is F32 else to_bits(numbers, dtype)).astype(np.uint64)
        return bits, numbers if dtype is F32 else from_bits(bits, dtype)
    signed = bits.astype(np.int64)
    if dtype.kind == "int":
        signed = np.where(signed >> (dtype.bits - 1), signed - (1 << dtype.bits), signed)
    return bits, signed.astype(computed(dtype).numpy)


def packed(bits: np.ndarray, dtype: DType, carrier: DType) -> np.ndarray:
    """Elements as memory of `carrier` holds them, the first in the low bits."""
    per = carrier.bits // dtype.bits
    words = np.zeros(-(-bits.size // per), np.uint64)
    for n, b in enumerate(bits.astype(np.uint64)):
        words[n // per] |= b << np.uint64(n % per * dtype.bits)
    if carrier.is_float or carrier.kind == "bool":
        return words.astype(f"u{carrier.numpy.itemsize}").view(carrier.numpy)
    return words.astype(f"u{max(carrier.bits, 8) // 8}").view(f"u{max(carrier.bits, 8) // 8}").astype(carrier.numpy)


def loads(root: UOp, words: np.ndarray, i: int) -> dict[UOp, np.ndarray]:
    """What the LOADs below a value read, where `I` is `i`."""
    values: dict[UOp, np.ndarray] = {I: np.array([i], np.int32)}
    for u in root.toposort():
        if u.op is Ops.LOAD and u not in values and u.src[0].buffer.op is Ops.PARAM:
            at = int(evaluate(u.src[1], values)[0]) + np.arange(u.arg)
            gate = len(u.src) < 3 or bool(evaluate(u.src[2], values)[0])
            if gate:
                assert at[0] >= 0 and at[-1] < words.size, "a load leaves its memory"
            read = words[at] if gate else np.zeros(u.arg, words.dtype)
            values[u] = read if u.arg == 1 else read[None]
    return values


def carry_out(effects: Sequence[UOp], words: np.ndarray, i: int) -> np.ndarray:
    """The memory after these stores, one after the other."""
    words = words.copy()
    for u in effects:
        index, value, *gate = u.src[1:]
        values = {k: v for root in u.src[1:] for k, v in loads(root, words, i).items()}
        if gate and not evaluate(gate[0], values)[0]:
            continue
        at = int(evaluate(index, values)[0])
        new = np.atleast_1d(evaluate(value, values)[0])
        if u.arg == "atomic_and":
            new = words[at : at + 1] & new
        elif u.arg == "atomic_or":
            new = words[at : at + 1] | new
        else:
            assert u.arg is None
        assert at >= 0 and at + new.size <= words.size, "a store leaves its memory"
        words[at : at + new.size] = new
    return words


def places(target: Target, seed: int, count: int) -> Iterator[tuple[DType, str, int, int, int, int]]:
    """Type, base, offset, elements of the run, first and number of those that are wanted; all kinds of base."""
    chance = random.Random(seed)
    for dtype, base in product(TYPES, BASES):
        if dtype.bits < 8 and target is PLAIN:
            continue
        for _ in range(count):
            width = chance.choice([1, 1, 2, 4, 8, 16])
            first = chance.choice([0, 0, 1, 2, 4])
            yield (
                dtype,
                base,
                chance.choice([0, 0, 1, 2, 4, 8, 15]),
                first + width + chance.choice([0, 3, 8]),
                first,
                width,
            )


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_loads(target: Target) -> None:
    for dtype, base, offset, count, first, width in places(target, 1, 3):
        memory = Memory(target)
        place = memory.declare(UOp(Ops.PARAM, dtype, (), ParamArg(0, SIZE)))
        bits, numbers = contents(dtype)
        words = packed(bits, dtype, place.dtype)
        assert words.size == place.arg.size
        index, step = BASES[base]
        for as_type in {computed(dtype), F32}:
            value = memory.load(place, dtype, as_type, Run(Place(index, offset), count), first, width, None)
            assert value.dtype is as_type
            for i in (0,) if base == "constant" else (2,):
                at = i * step + offset + first
                if i * step + offset + count > SIZE:
                    continue
                got = np.atleast_1d(evaluate(value, loads(value, words, i))[0])
                want = numbers[at : at + width].astype(as_type.numpy)
                np.testing.assert_array_equal(got, want, err_msg=f"{dtype.name} {base} {offset} {first} {width}")


def test_a_load_of_bits_of_a_narrow_float() -> None:
    """What is asked for as uint32 are the bits."""
    for target, dtype in product((CPU, WASM, WEBGPU), (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3)):
        memory = Memory(target)
        place = memory.declare(UOp(Ops.PARAM, dtype, (), ParamArg(0, SIZE)))
        bits, _ = contents(dtype)
        value = memory.load(place, dtype, U32, Run(Place(I * 4, 1), 3), 0, 2, None)
        got = evaluate(value, loads(value, packed(bits, dtype, place.dtype), 2))[0]
        np.testing.assert_array_equal(got, bits[9:11])


def test_a_false_gate_reads_nothing() -> None:
    gate = leaf(BOOL, 7)
    for target, dtype, width in product((CPU, WEBGPU), (F32, dtypes.int8, dtypes.int4, dtypes.float16), (1, 4)):
        memory = Memory(target)
        place = memory.declare(UOp(Ops.PARAM, dtype, (), ParamArg(0, SIZE)))
        value = memory.load(place, dtype, computed(dtype), Run(Place(I * 4), width), 0, width, gate)
        read = [u for u in value.toposort() if u.op is Ops.LOAD and u.src[0] is place]
        assert read and all(u.src[2] is gate for u in read)


@pytest.mark.parametrize("target", [CPU, WEBGPU], ids=lambda t: t.name)
def test_stores(target: Target) -> None:
    for dtype, base, offset, _, _, width in places(target, 2, 2):
        memory = Memory(target)
        place = memory.declare(UOp(Ops.PARAM, dtype, (), ParamArg(0, SIZE)))
        bits, _ = contents(dtype)
        before = packed(bits, dtype, place.dtype)
        new, numbers = bits[::-1].copy(), contents(dtype)[1][::-1].copy()
        index, step = BASES[base]
        lanes = [UOp.const(numbers[n].item(), computed(dtype)) for n in range(width)]
        vector = UOp(Ops.STACK, computed(dtype), tuple(lanes)) if width > 1 else lanes[0]
        for values in (lanes, [vector]):
            effects = memory.store(place, dtype, Place(index, offset), values, None)
            assert all(u.op is Ops.STORE for u in effects)
            for i in (0,) if base == "constant" else (2,):
                at = i * step + offset
                if at + width > SIZE:
                    continue
                want = bits.copy()
                want[at : at + width] = new[:width]
                np.testing.assert_array_equal(
                    carry_out(effects, before, i).view(f"u{before.itemsize}"),
                    packed(want, dtype, place.dtype).view(f"u{before.itemsize}"),
                    err_msg=f"{dtype.name} {base} {offset} {width}",
                )
        # parts of words are updated where the run is not known to consist of whole ones
        per = place.dtype.bits // dtype.bits
        aligned = width % per == 0 and offset % per == 0 and (base == "constant" or step % per == 0)
        assert memory.partial_updates == (not aligned)
        kinds = {u.arg for u in effects}
        assert ("atomic_or" in kinds) == (not aligned)


def gated(target: Target, dtype: DType, gate: UOp) -> tuple[UOp, ...]:
    memory = Memory(target)
    place = memory.declare(UOp(Ops.PARAM, dtype, (), ParamArg(0, SIZE)))
    return memory.store(place, dtype, Place(I, 1), [UOp.const(1, computed(dtype))], gate)


def test_stores_keep_their_gate() -> None:
    gate = leaf(BOOL, 7)
    for target, dtype in product((CPU, WEBGPU), (F32, dtypes.int8, dtypes.int4)):
        effects = gated(target, dtype, gate)
        assert effects and all(u.src[3] is gate for u in effects)
        assert all(u.src[2] is gate for e in effects for u in e.toposort() if u.op is Ops.LOAD and u is not gate)


# -- how few accesses there are --------------------------------------------------------------------------------------
def accesses(target: Target, dtype: DType, base: UOp, offset: int, count: int, first: int, width: int) -> list[int]:
    memory = Memory(target)
    place = memory.declare(UOp(Ops.PARAM, dtype, (), ParamArg(0, SIZE)))
    value = memory.load(place, dtype, computed(dtype), Run(Place(base, offset), count), first, width, None)
    return sorted(u.arg for u in value.toposort() if u.op is Ops.LOAD)


@pytest.mark.parametrize(("target", "dtype", "base", "offset", "count", "first", "width", "want"), [
    (CPU, F32, I, 0, 8, 0, 8, [8]), (CPU, F32, I, 1, 16, 0, 16, [16]), (CPU, F32, I, 0, 32, 0, 32, [16, 16]),
    (CPU, F32, index_const(0), 2, 8, 0, 8, [2, 2, 2, 2]), (CPU, F32, index_const(0), 0, 8, 0, 8, [8]),
    (WEBGPU, F32, I, 0, 4, 0, 4, [1] * 4), (WEBGPU, F32, I * 4, 0, 4, 0, 4, [4]),
    (WEBGPU, F32, I * 4, 2, 4, 0, 4, [2, 2]),
    (WEBGPU, F32, I * 8, 0, 8, 4, 4, [4]), (WEBGPU, F32, I * 8, 0, 8, 0, 8, [4, 4]),
    (WEBGPU, F32, I * 4, 0, 4, 1, 1, [1]),
    (WEBGPU, dtypes.int8, I * 16, 0, 16, 0, 16, [4]), (WEBGPU, dtypes.int8, I * 16, 0, 16, 4, 4, [4]),
    (WEBGPU, dtypes.int8, I * 8, 0, 8, 0, 8, [2]), (WEBGPU, dtypes.int8, I * 4, 0, 4, 0, 4, [1]),
    (WEBGPU, dtypes.int8, I * 16, 0, 12, 0, 12, [1, 1, 1]), (WEBGPU, dtypes.int8, I * 16, 4, 8, 0, 8, [1, 1]),
    (WEBGPU, dtypes.int8, I * 16, 8, 8, 0, 8, [2]), (WEBGPU, dtypes.int8, I * 2, 0, 1, 0, 1, [1]),
    (WEBGPU, dtypes.int4, I * 32, 0, 32, 8, 8, [4]), (WEBGPU, dtypes.int4, I * 32, 0, 32, 0, 32, [4]),
    (WEBGPU, dtypes.float16, I * 8, 0, 8, 2, 6, [4]), (WEBGPU, dtypes.float16, I * 8, 0, 8, 0, 2, [4]),
    (CPU, dtypes.int4, I * 8, 0, 8, 0, 8, [1]), (CPU, dtypes.int4, I * 32, 0, 32, 0, 32, [4]),
    (CPU, dtypes.int8, I, 0, 16, 0, 16, [16]), (WASM, dtypes.float16, I, 0, 8, 0, 8, [8]),
    (PLAIN, F32, I * 8, 0, 8, 0, 4, [1] * 4),
])  # fmt: skip
def test_loads_are_as_wide_as_they_may_be(
    target: Target, dtype: DType, base: UOp, offset: int, count: int, first: int, width: int, want: list[int]
) -> None:
    assert accesses(target, dtype, base, offset, count, first, width) == want


@pytest.mark.parametrize(("target", "dtype", "base", "offset", "width", "want"), [
    (CPU, F32, I, 0, 8, [8]), (CPU, F32, I, 0, 12, [8, 4]), (CPU, F32, I, 0, 7, [4, 2, 1]),
    (CPU, F32, I, 0, 32, [16, 16]),
    (WEBGPU, F32, I * 4, 0, 4, [4]), (WEBGPU, F32, I * 4, 1, 3, [1, 2]), (WEBGPU, F32, I, 0, 2, [1, 1]),
    (WEBGPU, F32, I * 4, 0, 6, [4, 2]), (WEBGPU, F32, I * 4, 2, 4, [2, 2]),
    (WEBGPU, dtypes.int8, I * 16, 0, 16, [4]), (WEBGPU, dtypes.int8, I * 4, 0, 8, [1, 1]),
    (WEBGPU, dtypes.int4, I * 8, 0, 8, [1]),
    (CPU, dtypes.int4, I * 2, 0, 8, [1]), (PLAIN, F32, I * 4, 0, 4, [1] * 4),
])  # fmt: skip
def test_stores_are_as_wide_as_they_may_be(
    target: Target, dtype: DType, base: UOp, offset: int, width: int, want: list[int]
) -> None:
    memory = Memory(target)
    size = SIZE - (target is CPU and dtype.bits < 8)
    place = memory.declare(UOp(Ops.PARAM, dtype, (), ParamArg(0, size)))
    effects = memory.store(place, dtype, Place(base, offset), [leaf(computed(dtype), n) for n in range(width)], None)
    got = [lanes_of(u.src[2]) for u in effects]
    assert got == (want if place.dtype is not dtypes.uint8 else [4])


@pytest.mark.parametrize("target", [CPU, WEBGPU], ids=lambda t: t.name)
def test_no_order_of_updates_loses_one(target: Target) -> None:
    """Elements that share a carrier are cleared and set by steps that each read what is there."""
    memory = Memory(target)
    place = memory.declare(UOp(Ops.PARAM, dtypes.int4, (), ParamArg(0, SIZE)))
    before = packed(contents(dtypes.int4)[0], dtypes.int4, place.dtype)
    each = [memory.store(place, dtypes.int4, Place(I, n), [UOp.const(n - 3, I32)], None) for n in range(2)]
    assert memory.partial_updates
    assert all([u.arg for u in updates] == ["atomic_and", "atomic_or"] for updates in each)
    assert all(cleared in filled.src[0].toposort() for cleared, filled in each)
    (a, b), (c, d) = each
    results = [carry_out(order, before, 2) for order in ((a, b, c, d), (a, c, b, d), (c, d, a, b), (c, a, b, d))]
    assert all(np.array_equal(results[0], other) for other in results[1:])


# -- declarations ----------------------------------------------------------------------------------------------------
def test_carriers() -> None:
    want = {
        "cpu": {"int4": "uint8", "uint4": "uint8", "bfloat16": "uint16", "float8_e4m3": "uint8", "float16": "float16"},
        "wasm": {"int4": "uint8", "uint4": "uint8", "bfloat16": "uint16", "float8_e5m2": "uint8", "float16": "uint16"},
        "webgpu": {d.name: "uint32" for d in TYPES if d.bits < 32},
        "interpreter": {"int4": "int4", "bfloat16": "uint16", "float8_e4m3": "uint8", "float16": "float16"},
    }
    for name, target in TARGETS.items():
        for dtype in ALL:
            if dtype.kind == "index":
                continue
            expected = want[name].get(dtype.name)
            if expected is not None:
                assert carrier_of(dtype, target).name == expected
            elif dtype in target.storage or dtype.bits == 64:
                assert carrier_of(dtype, target) is dtype
    bare = replace(WEBGPU, storage=frozenset({F32}))
    for dtype in (dtypes.int8, I32, dtypes.float16):
        with pytest.raises(
            NotImplementedError, match=f"{dtype.name} in memory is not supported on webgpu: use a 32-bit"
        ):
            carrier_of(dtype, bare)
    with pytest.raises(NotImplementedError):  # a float of 32 bits is no part of a word
        carrier_of(F32, replace(WEBGPU, storage=frozenset({I32})))


@pytest.mark.parametrize(("target", "dtype", "size", "want"), [
    (WEBGPU, dtypes.int8, 5, (U32, 2)), (WEBGPU, dtypes.int4, 8, (U32, 1)), (WEBGPU, dtypes.float16, 3, (U32, 2)),
    (WEBGPU, F32, 5, (F32, 5)), (CPU, dtypes.int4, 16, (U32, 2)), (CPU, dtypes.int4, 12, (dtypes.uint8, 6)),
    (CPU, dtypes.uint4, 13, (dtypes.uint8, 7)), (CPU, dtypes.bfloat16, 7, (dtypes.uint16, 7)),
    (CPU, dtypes.float8_e4m3, 8, (dtypes.uint8, 8)),
])  # fmt: skip
def test_declared_memory(target: Target, dtype: DType, size: int, want: tuple[Any, int]) -> None:
    memory = UOp(Ops.PARAM, dtype, (), ParamArg(3, size))
    declared = Memory(target).declare(memory)
    assert (declared.dtype, declared.arg.size, declared.arg.slot) == (*want, 3)
    assert Memory(target).has_words(memory) == (declared.dtype is U32)
    other = leaf(F32)
    assert Memory(target).declare(other) is other


def test_alignment() -> None:
    """What provably divides an index; C needs none where the index is not constant."""
    for target, base, offset, want in (
        (WEBGPU, I, 0, 1), (WEBGPU, I * 4, 0, 4), (WEBGPU, I * 12, 0, 4), (WEBGPU, I * 4, 2, 2), (WEBGPU, I * 4, 8, 4),
        (WEBGPU, I * 4, 3, 1), (WEBGPU, I * 1024, 0, 128), (WEBGPU, I * 1024, 64, 64), (WEBGPU, index_const(0), 0, 128),
        (WEBGPU, index_const(0), 12, 4), (CPU, I, 0, 128), (CPU, I, 3, 128), (CPU, index_const(0), 3, 1),
        (CPU, index_const(0), 256, 128), (WEBGPU, I * 4 + leaf(INDEX) * 6, 0, 2),
    ):  # fmt: skip
        assert Memory(target).alignment(Place(base, offset)) == want, (target.name, base, offset)


def test_words_of_indices_that_a_gate_keeps_inside() -> None:
    """Of an index that may be negative, word and number are found by shifts, which round down."""
    at = leaf(INDEX, 5)
    for base in (at + -3, (at - 7) * 3):
        memory = Memory(WEBGPU)
        place = memory.declare(UOp(Ops.PARAM, dtypes.int8, (), ParamArg(0, SIZE)))
        value = memory.load(place, dtypes.int8, I32, Run(Place(base)), 0, 1, None)
        assert not any(u.op in (Ops.FLOORDIV, Ops.MOD) for u in value.toposort())
        (load,) = [u for u in value.toposort() if u.op is Ops.LOAD and u.src[0] is place]
        values = {at: np.arange(-20, 40, dtype=np.int32)}
        want = evaluate(base, values) // 4
        np.testing.assert_array_equal(evaluate(load.src[1], values), want)
