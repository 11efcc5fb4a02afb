"""Scalar types: promotion is a lattice, and the formats that NumPy lacks are rounded as PyTorch rounds them."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import torch

from tinyweb.array.packing import pack, unpack
from tinyweb.dtype import (
    ALL,
    BY_NAME,
    MATERIAL,
    PROMOTION,
    DType,
    dtypes,
    from_bits,
    from_numpy,
    join,
    promote,
    to_bits,
)

TYPES = tuple(d for d in ALL if d is not dtypes.index)
PLACES = tuple(PROMOTION)
PYTHON = (bool, int, float)
NARROW = {
    dtypes.float8_e4m3: torch.float8_e4m3fn, dtypes.float8_e5m2: torch.float8_e5m2,
    dtypes.float16: torch.float16, dtypes.bfloat16: torch.bfloat16,
}  # fmt: skip
TORCH = NARROW | {
    dtypes.bool: torch.bool, dtypes.int8: torch.int8, dtypes.uint8: torch.uint8, dtypes.int16: torch.int16,
    dtypes.int32: torch.int32, dtypes.int64: torch.int64, dtypes.float32: torch.float32, dtypes.float64: torch.float64,
}  # fmt: skip


def leads_to(a: str, b: str) -> bool:
    return a == b or any(leads_to(n, b) for n in PROMOTION[a])


# -- the lattice -------------------------------------------------------------------------------------------------------
def test_the_table_names_every_type_and_has_no_circle() -> None:
    assert {n for n in PLACES if not n.endswith("*")} == {t.name for t in TYPES}
    assert set(MATERIAL) == {n for n in PLACES if n.endswith("*")}
    for a, b in itertools.permutations(PLACES, 2):
        assert not (leads_to(a, b) and leads_to(b, a))


def test_join_is_the_least_upper_bound() -> None:
    for a, b in itertools.product(PLACES, repeat=2):
        above = [n for n in PLACES if leads_to(a, n) and leads_to(b, n)]
        assert join(a, b) in above
        assert all(leads_to(join(a, b), n) for n in above), (a, b)  # so it is the only one


def test_join_is_idempotent_commutative_and_associative() -> None:
    for a, b, c in itertools.product(PLACES, repeat=3):
        assert join(a, a) == a
        assert join(a, b) == join(b, a)
        assert join(join(a, b), c) == join(a, join(b, c)) == join(a, b, c)


def test_join_is_monotone() -> None:
    for a, b, c in itertools.product(PLACES, repeat=3):
        if leads_to(a, b):
            assert leads_to(join(a, c), join(b, c))


def test_promote_does_not_depend_on_the_order() -> None:
    for types in itertools.product((*TYPES, *PYTHON), repeat=3):
        assert len({promote(*order) for order in itertools.permutations(types)}) == 1


def test_the_result_holds_both() -> None:
    """A joined type has the kind and the range of both; only integers that meet floats may lose digits."""
    for a, b in itertools.product(TYPES, repeat=2):
        t = promote(a, b)
        for part in (a, b):
            if part.is_float:
                assert t.is_float and t.mantissa >= part.mantissa and t.bias >= part.bias
            elif part.is_int and not t.is_float:
                assert t.min <= part.min and part.max <= t.max
            assert t.is_int or t.is_float or t is dtypes.bool


# what JAX gives with 64-bit types allowed, by docs.jax.dev "Type promotion semantics", and what this project adds
JAX = {
    ("bool", "uint8"): "uint8", ("bool", "float16"): "float16", ("uint8", "int8"): "int16", ("uint8", "int16"): "int16",
    ("uint16", "int8"): "int32", ("uint16", "int16"): "int32", ("uint32", "int8"): "int64",
    ("uint64", "int8"): "float32", ("uint64", "int64"): "float32", ("int64", "float16"): "float16",
    ("uint64", "bfloat16"): "bfloat16", ("int32", "float32"): "float32", ("int64", "float32"): "float32",
    ("float16", "bfloat16"): "float32", ("float16", "float32"): "float32", ("bfloat16", "float64"): "float64",
    ("int8", "int"): "int8", ("uint8", "int"): "uint8", ("bool", "int"): "int32", ("float16", "int"): "float16",
    ("int8", "float"): "float32", ("uint64", "float"): "float32", ("bool", "float"): "float32",
    ("bfloat16", "float"): "bfloat16", ("float64", "float"): "float64", ("int8", "bool"): "int8",
    # JAX has these only by explicit casts
    ("float8_e4m3", "float8_e5m2"): "float32", ("float8_e4m3", "float16"): "float16",
    ("float8_e4m3", "bfloat16"): "bfloat16", ("float8_e5m2", "bfloat16"): "bfloat16",
    ("float8_e5m2", "int64"): "float8_e5m2", ("float8_e4m3", "float"): "float8_e4m3",
    ("int4", "uint4"): "int8", ("int4", "int8"): "int8", ("uint4", "uint8"): "uint8", ("int4", "int"): "int4",
}  # fmt: skip


@pytest.mark.parametrize("pair", JAX, ids="+".join)
def test_examples(pair: tuple[str, str]) -> None:
    a, b = ({"int": int, "float": float, "bool": bool}.get(n, BY_NAME.get(n)) for n in pair)
    a = BY_NAME[pair[0]]
    assert promote(a, b).name == JAX[pair]


def test_sizes_and_numpy_scalars_are_numbers_too() -> None:
    assert promote(dtypes.index, dtypes.int8) is dtypes.int32
    assert promote(dtypes.float16, type(np.float64(1))) is dtypes.float16


# -- formats -----------------------------------------------------------------------------------------------------------
def torch_bits(x: np.ndarray, t: DType) -> np.ndarray:
    return torch.from_numpy(x).to(NARROW[t]).view(torch.uint8 if t.bits == 8 else torch.int16).numpy()


@pytest.mark.parametrize("t", NARROW, ids=lambda t: t.name)
def test_rounding_is_pytorchs(t: DType) -> None:
    """Random bits, and every number of the format with its neighbours and the middles between them."""
    rng = np.random.default_rng(0)
    held = from_bits(np.arange(1 << t.bits), t)
    held = np.sort(held[np.isfinite(held)]).astype(np.float32)
    middles = ((held[1:].astype(np.float64) + held[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(v, np.float32(e)) for v in (held, middles) for e in (-np.inf, np.inf)]
    special = np.array(
        [448, 464, 464.1, 480, 500, 57344, 61439, 61440, 65519, 65520, 1e30, np.inf, 0.0, np.nan], np.float32
    )
    x = np.concatenate(
        [rng.integers(0, 1 << 32, 200_000, np.uint32).view(np.float32), held, middles, *near, special, -special]
    )
    got, want = to_bits(x, t), torch_bits(x, t)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(got.view(want.dtype)[number], want[number])
    assert np.isnan(from_bits(got[~number], t)).all()


@pytest.mark.parametrize("t", NARROW, ids=lambda t: t.name)
def test_values_of_all_bits_are_pytorchs(t: DType) -> None:
    bits = np.arange(1 << t.bits).astype(f"uint{t.bits}")
    want = torch.from_numpy(bits.view(f"int{t.bits}").copy()).view(NARROW[t]).float().numpy()
    np.testing.assert_array_equal(from_bits(bits, t), want)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(from_bits(bits, t))[number], np.signbit(want)[number])
    np.testing.assert_array_equal(to_bits(want[number], t), bits[number])


def test_doubles_are_rounded_once() -> None:
    """1 + 2**-11 + 2**-40 is above the middle of two halves; float32 would round it to the middle."""
    assert from_bits(to_bits(1 + 2.0**-11 + 2.0**-40, dtypes.float16), dtypes.float16) == 1 + 2.0**-10
    assert from_bits(to_bits(1 + 2.0**-4 + 2.0**-40, dtypes.float8_e4m3), dtypes.float8_e4m3) == 1.125


# -- memory ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("t", TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("count", [0, 1, 7, 8])
def test_packing_round_trip(t: DType, count: int) -> None:
    low = max(float(t.min), -8.0)
    few = min(4, 1 << t.bits)
    values = (np.arange(count) % few + low).astype(t.numpy) if t.kind != "bool" else np.arange(count) % 3 == 0
    raw = pack(values, t)
    assert raw.nbytes == t.nbytes(count)
    back = unpack(raw.tobytes(), t, count)
    assert back.dtype == t.numpy
    np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize("t", [t for t in TYPES if t.is_int], ids=lambda t: t.name)
def test_packing_floats_as_integers(t: DType) -> None:
    values = np.array([1.9, -1.9, np.nan, np.inf, -np.inf, 1e30, -1e30, float(t.max), float(t.min)])
    low, high = int(t.min), int(t.max)
    want = [1, max(-1, low), 0, high, low, high, low, high, low]
    assert [int(v) for v in unpack(pack(values, t).tobytes(), t, len(values))] == want


# -- names -------------------------------------------------------------------------------------------------------------
def test_names() -> None:
    assert dtypes.float8_e4m3fn is dtypes.float8_e4m3
    assert (dtypes.half, dtypes.float, dtypes.double) == (dtypes.float16, dtypes.float32, dtypes.float64)
    assert (dtypes.short, dtypes.int, dtypes.long) == (dtypes.int16, dtypes.int32, dtypes.int64)
    assert len({t.short for t in TYPES}) == len(TYPES)
    for t in TYPES:
        assert BY_NAME[t.name] is BY_NAME[t.short] is t
        assert pickle.loads(pickle.dumps(t)) is t
        assert eval(repr(t)) is t
        if not t.held_wider:
            assert from_numpy(t.numpy) is t
    with pytest.raises(TypeError, match="complex64 has no tinyweb dtype"):
        from_numpy(np.complex64)


@pytest.mark.parametrize("t", TORCH, ids=lambda t: t.name)
def test_pytorch_calls_them_the_same(t: DType) -> None:
    assert getattr(dtypes, str(TORCH[t]).removeprefix("torch.")) is t
