"""Every elementwise operation on every dtype it makes sense for, on every runtime, edge values included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.samples import slow_unless
from tinyweb import Tensor
from tinyweb.dtype import ALL, DType, dtypes, from_bits, round_to, to_bits
from tinyweb.tensor import realize_all

DEVICES = ("CPU", "WASM", "WEBGPU", "INTERPRETER")
TYPES = tuple(d for d in ALL if d is not dtypes.index)
INTS = tuple(d for d in TYPES if d.is_int)
FLOATS = tuple(d for d in TYPES if d.is_float)
F32, F64 = dtypes.float32, dtypes.float64
# of every width and kind one, beside those that all other tests use
SAMPLE = (
    dtypes.bool, dtypes.int4, dtypes.uint8, dtypes.int16, dtypes.uint32, dtypes.int64, dtypes.float8_e4m3,
    dtypes.bfloat16, dtypes.float64,
)  # fmt: skip
# WASM's kernels are the C of CPU's: of each way in which a type is held there, one
HELD = (dtypes.int4, dtypes.int64, dtypes.float8_e4m3, dtypes.float64)
Array = np.ndarray[Any, np.dtype[Any]]


def names(value: DType | str) -> str:
    return value if isinstance(value, str) else value.name


def quick(t: DType, device: str) -> bool:
    """All on CPU, samples elsewhere: on the interpreter every third type."""
    return {"CPU": True, "WASM": t in HELD, "WEBGPU": t in SAMPLE, "INTERPRETER": TYPES.index(t) % 3 == 0}[device]


every_type = pytest.mark.parametrize(("t", "device"), slow_unless(quick, TYPES, DEVICES), ids=names)


# -- values ------------------------------------------------------------------------------------------------------------
def edges(t: DType) -> Array:
    """Values where something changes, in the type that holds them."""
    if t is dtypes.bool:
        return np.array([False, True])
    if t.is_int:
        low, high = int(t.min), int(t.max)
        near = [0, 1, 2, 3, 5, 7, 10, 63, 100, high // 2, high - 1, high, low, low + 1, -1, -2, -3, -7, -100]
        near += [(1 << k) + e for k in (8, 16, 31, 32, 33, 53, 63) for e in (-1, 0, 1)]
        return np.array(sorted({n for n in near if low <= n <= high}), object).astype(t.numpy)
    largest = round_to(2.0 ** (2 * t.bias) if t.bits < 64 else 1e300, t)
    smallest = 2.0 ** (1 - t.bias - t.mantissa)
    magnitudes = [
        0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 7.75, 100.3, 127.0, 128.0, 255.9, 256.0, 1e4, 65504.0, 2.0**31, 2.0**32, 3e38,
        1e-7, largest, smallest, 2.0 ** (1 - t.bias), np.inf,
    ]  # fmt: skip
    held = sorted({abs(round_to(m, t)) for m in magnitudes})
    return np.array([*held, *(-m for m in held), np.nan], t.numpy)


def pairs(t: DType, count: int = 0, seed: int = 0) -> tuple[Array, Array]:
    """All pairs of edge values, then `count` random ones. Their number is odd: it fills no word."""
    e = edges(t)
    a, b = np.repeat(e, len(e)), np.tile(e, len(e))
    rng = np.random.default_rng(seed)
    count += (len(a) + count + 1) % 2
    more = []
    for _ in range(2):
        if t is dtypes.bool:
            more.append(rng.integers(0, 2, count).astype(bool))
        elif t.is_int:
            whole = rng.integers(t.min, t.max, count, t.numpy, endpoint=True)
            more.append(whole >> rng.integers(0, max(t.bits - 1, 1), count).astype(t.numpy))
        else:
            bits = rng.integers(0, 1 << t.bits, count, np.uint64).astype(f"uint{t.bits}")
            more.append(from_bits(bits, t) if t.held_wider else bits.view(t.numpy))
    return np.concatenate([a, more[0]]), np.concatenate([b, more[1]])


def wrap(x: Array, t: DType) -> Array:
    """Integers reduced to what `t` holds."""
    if t.bits < 8:
        low, sign = x.astype(np.int64) & ((1 << t.bits) - 1), 1 << (t.bits - 1)
        return np.asarray((low ^ sign) - sign if t.kind == "int" else low).astype(t.numpy)
    return x.astype(t.numpy)


def rounded(x: Array, t: DType) -> Array:
    """Floats as `t` holds them."""
    return from_bits(to_bits(x, t), t) if t.held_wider else x.astype(t.numpy)


def converted(x: Array, of: DType, to: DType) -> Array:
    """What a cast gives: integers wrap around; floats are truncated and held within the range; NaN is 0, and True."""
    if to is dtypes.bool:
        return np.asarray(x != 0)
    if to.is_float:
        # integers go through float32 to what is narrower
        return rounded(x.astype(np.float32) if to.bits < 32 and not of.is_float else x, to)
    if not of.is_float:
        return wrap(x, to)
    low, high = int(to.min), int(to.max)
    whole = [0 if v != v else low if v < low else high if v >= high + 1 else int(v) for v in x.tolist()]
    return np.array(whole, object).astype(to.numpy)


def bits_of(x: Array, t: DType) -> Array:
    if t.is_float and t.held_wider:
        return to_bits(x, t)
    return x.view(np.uint8) & ((1 << t.bits) - 1) if t.bits < 8 else x.view(f"uint{t.bits}")


def of_bits(raw: Array, t: DType) -> Array:
    if t.is_float and t.held_wider:
        return from_bits(raw, t)
    if t is dtypes.bool:
        return np.asarray(raw != 0)
    return wrap(raw, t) if t.bits < 8 else raw.view(t.numpy)


def same(got: Array, want: Array, t: DType, device: str, label: str, signs: bool = True) -> None:
    """Equal, to the bit but for NaNs (and signs of zeros, if they are not asked for); WebGPU may take subnormal
    numbers for zero.
    """
    assert got.dtype == want.dtype, label
    if t.is_float:
        sign = np.signbit(got) == np.signbit(want) if signs else True
        equal = (got == want) & sign | np.isnan(got) & np.isnan(want)
        if device == "WEBGPU":
            equal |= (np.abs(want) < 2.0**-126) & (np.abs(got) < 2.0**-126)
    else:
        equal = got == want
    wrong = np.flatnonzero(~equal)
    assert not len(wrong), f"{label}: {len(wrong)} differ, first at {wrong[:3]}: {got[wrong[:3]]} for {want[wrong[:3]]}"


# -- operations --------------------------------------------------------------------------------------------------------
def quotient(a: Array, b: Array) -> Array:
    """Floor division; 0 where the divisor is 0; the one quotient that overflows wraps around."""
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    return np.where(b == 0, 0, np.floor_divide(a, safe)).astype(a.dtype)


def remainder(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    return np.where(b == 0, 0, np.mod(a, safe)).astype(a.dtype)


def shifted(left: bool) -> Callable[[Array, Array], Array]:
    """By any amount: what is shifted out is gone."""

    def apply(a: Array, b: Array) -> Array:
        width = a.dtype.itemsize * 8
        inside = (b >= 0) & (b < width)
        if left:
            return np.where(inside, a << np.where(inside, b, 0).astype(a.dtype), 0).astype(a.dtype)
        return np.asarray(a >> np.where(inside, b, width - 1).astype(a.dtype) >> (~inside).astype(a.dtype))

    return apply


Function = Callable[..., Any]
INT_OPS: dict[str, tuple[Function, Function]] = {
    "add": (lambda a, b: a + b, np.add),
    "sub": (lambda a, b: a - b, np.subtract),
    "mul": (lambda a, b: a * b, np.multiply),
    "floordiv": (lambda a, b: a // b, quotient),
    "mod": (lambda a, b: a % b, remainder),
    "and": (lambda a, b: a & b, np.bitwise_and),
    "or": (lambda a, b: a | b, np.bitwise_or),
    "xor": (lambda a, b: a ^ b, np.bitwise_xor),
    "shl": (lambda a, b: a << b, shifted(True)),
    "shr": (lambda a, b: a >> b, shifted(False)),
    "max": (lambda a, b: a.maximum(b), np.maximum),
    "min": (lambda a, b: a.minimum(b), np.minimum),
    "less": (lambda a, b: a < b, np.less),
    "equal": (lambda a, b: a == b, np.equal),
    "at_most": (lambda a, b: a <= b, np.less_equal),
    "where": (lambda a, b: (a < b).where(b, a), lambda a, b: np.where(a < b, b, a)),
    "neg": (lambda a, b: -a, lambda a, b: (0 - a).astype(a.dtype)),
    "abs": (lambda a, b: a.abs(), lambda a, b: np.abs(a)),
    "invert": (lambda a, b: ~a, lambda a, b: ~a),
    "by_seven": (lambda a, b: a // 7 + a % 7, lambda a, b: a // 7 + a % 7),
    "by_eight": (lambda a, b: (a % 4) * (a // 4), lambda a, b: (a % 4) * (a // 4)),
    "shift_by_three": (lambda a, b: (a << 3) + (a >> 2), lambda a, b: (a << 3) + (a >> 2)),
}
FLOAT_OPS: dict[str, tuple[Function, Function]] = {
    "add": (lambda a, b: a + b, np.add),
    "sub": (lambda a, b: a - b, np.subtract),
    "mul": (lambda a, b: a * b, np.multiply),
    "max": (lambda a, b: a.maximum(b), np.maximum),
    "min": (lambda a, b: a.minimum(b), np.minimum),
    "less": (lambda a, b: a < b, np.less),
    "equal": (lambda a, b: a == b, np.equal),
    "where": (lambda a, b: (a < b).where(b, a), lambda a, b: np.where(a < b, b, a)),
    "neg": (lambda a, b: -a, lambda a, b: -a),
    "abs": (lambda a, b: a.abs(), lambda a, b: np.abs(a)),
    "floor": (lambda a, b: a.floor(), lambda a, b: np.floor(a)),
    "trunc": (lambda a, b: a.trunc(), lambda a, b: np.trunc(a)),
}
BOOL_OPS: dict[str, tuple[Function, Function]] = {
    "and": (lambda a, b: a & b, np.bitwise_and),
    "or": (lambda a, b: a | b, np.bitwise_or),
    "xor": (lambda a, b: a ^ b, np.bitwise_xor),
    "add": (lambda a, b: a + b, np.logical_or),
    "mul": (lambda a, b: a * b, np.logical_and),
    "max": (lambda a, b: a.maximum(b), np.logical_or),
    "less": (lambda a, b: a < b, np.less),
    "equal": (lambda a, b: a == b, np.equal),
    "not": (lambda a, b: ~a, lambda a, b: ~a),
    "where": (lambda a, b: a.where(b, True), lambda a, b: np.where(a, b, True)),
}


WITH_NUMBERS = ("by_seven", "by_eight", "shift_by_three")


def operations(t: DType) -> dict[str, tuple[Function, Function]]:
    if t.is_int and t.max < 7:  # the numbers would be others
        return {name: both for name, both in INT_OPS.items() if name not in WITH_NUMBERS}
    return INT_OPS if t.is_int else FLOAT_OPS if t.is_float else BOOL_OPS


def check_type(t: DType, device: str, count: int = 0, seed: int = 0) -> None:
    """All operations, casts and bitcasts of one dtype, computed together."""
    if t is F64 and device == "WEBGPU":
        check_moved_doubles(device)
        return
    a, b = pairs(t, count, seed)
    x, y = Tensor(a, t, device), Tensor(b, t, device)
    results: list[tuple[str, Tensor, Array]] = []
    with np.errstate(all="ignore"):
        for name, (function, reference) in operations(t).items():
            want = reference(a, b)
            if want.dtype != bool:
                want = wrap(want, t) if t.is_int else rounded(want, t)
            results.append((name, function(x, y), want))
        for to in TYPES:
            if not (to is F64 and device == "WEBGPU" and t is not F32):
                results.append((f"to {to.name}", x.cast(to), converted(a, t, to)))
            if to.bits == t.bits:
                results.append((f"bits as {to.name}", x.bitcast(to), of_bits(bits_of(a, t), to)))
    realize_all([r for _, r, _ in results])
    for name, got, want in results:
        # which of two equal zeros is the larger one is open
        same(got.numpy(), want, got.dtype, device, f"{t.name} {name} on {device}", name not in ("max", "min"))


def check_moved_doubles(device: str) -> None:
    """What WebGPU does with float64: hold, move and cast it from and to float32; it refuses anything else by name."""
    a, _ = pairs(F64)
    x = Tensor(a, F64, device)
    moved = Tensor.cat(x[5:], x[:5].flip(0))
    results = [
        (moved, np.concatenate([a[5:], a[:5][::-1]])),
        (x.cast(F32), a.astype(np.float32)),
        (x.cast(F32).cast(F64), a.astype(np.float32).astype(np.float64)),
        (x.bitcast(dtypes.int64), a.view(np.int64)),
    ]
    realize_all([r for r, _ in results])
    for got, want in results:
        same(got.numpy(), want, got.dtype, device, f"float64 on {device}")
    with pytest.raises(NotImplementedError, match=r"float64.*not supported.*\.cast\(dtypes\.float32\)"):
        (x + 1).realize()
    np.testing.assert_array_equal((x.cast(F32) * 0 + 1).numpy()[:1], [1])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every_type
def test_every_operation(t: DType, device: str) -> None:
    check_type(t, device)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("t", TYPES, ids=names)
def test_random_values(t: DType, device: str) -> None:
    for seed in range(1, 4):
        check_type(t, device, 20_000, seed)


# -- beyond single elements --------------------------------------------------------------------------------------------
def small(t: DType, *shape: int, seed: int = 0) -> Array:
    """Values whose sums and products every type holds or wraps around alike: whole numbers."""
    rng = np.random.default_rng(seed)
    if t is dtypes.bool:
        return rng.integers(0, 2, shape).astype(bool)
    low = 0 if t.kind == "uint" else -2
    return rng.integers(low, min(3, int(t.max) + 1) if t.is_int else 3, shape).astype(t.numpy)


def summed_as(t: DType) -> DType:
    """Booleans and small integers are summed in 32 bits (PyTorch: 64)."""
    if t.kind == "bool" or (t.is_int and t.bits < 32):
        return dtypes.uint32 if t.kind == "uint" else dtypes.int32
    return t


@every_type
def test_reductions(t: DType, device: str) -> None:
    if t is F64 and device == "WEBGPU":
        with pytest.raises(NotImplementedError, match="float64 is not supported on webgpu"):
            Tensor(small(t, 3), t, device).sum().realize()
        return
    a = small(t, 5, 37)
    big = np.resize(pairs(t)[0], (5, 8)) if t.is_int else a[:, :8]
    x, y = Tensor(a, t, device), Tensor(big, t, device)
    wide = summed_as(t)
    results = [
        ("sum", x.sum(), a.sum(dtype=wide.numpy), wide),
        ("sum rows", x.sum(1), a.sum(1, dtype=wide.numpy), wide),
        ("sum columns", x.sum(0), a.sum(0, dtype=wide.numpy), wide),
        ("product", y.prod(1), big.astype(wide.numpy).prod(1, dtype=wide.numpy), wide),
        ("max", y.max(1), big.max(1), t),
        ("min", y.min(), big.min(), t),
        ("any", x.any(0), (a != 0).any(0), dtypes.bool),
        ("all", x.all(1), (a != 0).all(1), dtypes.bool),
        ("argmax", y.argmax(1), big.argmax(1).astype(np.int32), dtypes.int32),
    ]
    if t.is_float:
        results.append(("mean of one", x[:1].mean(0), a[0], t))
    if t.is_int:
        results.append(("wrapping sum", y.sum(1), big.astype(wide.numpy).sum(1, dtype=wide.numpy), wide))
    realize_all([r for _, r, _, _ in results])
    for name, got, want, dtype in results:
        assert got.dtype is dtype, f"{t.name} {name}"
        flat = np.asarray(want).reshape(-1)
        flat = rounded(flat, dtype) if dtype.is_float else flat.astype(dtype.numpy)
        same(got.numpy().reshape(-1), flat, dtype, device, f"{t.name} {name}")


@pytest.mark.parametrize(
    ("t", "device"), slow_unless(quick, (t for t in TYPES if t is not dtypes.bool), DEVICES), ids=names
)
def test_matmul(t: DType, device: str) -> None:
    if t is F64 and device == "WEBGPU":
        with pytest.raises(NotImplementedError, match="float64 is not supported on webgpu"):
            (Tensor(small(t, 2, 2), t, device) @ Tensor(small(t, 2, 2), t, device)).realize()
        return
    a, b = small(t, 3, 7), small(t, 7, 5, seed=1)
    got = Tensor(a, t, device) @ Tensor(b, t, device)
    want = a.astype(np.int64) @ b.astype(np.int64)
    want = wrap(want, got.dtype) if got.dtype.is_int else rounded(want.astype(np.float64), got.dtype)
    same(got.numpy().reshape(-1), want.reshape(-1).astype(got.dtype.numpy), got.dtype, device, f"{t.name} matmul")


@every_type
def test_moved_elements(t: DType, device: str) -> None:
    """Elements smaller than a word at all offsets within one: joined, padded, turned round, picked, overwritten."""
    a = np.resize(pairs(t)[1], (5, 7))
    x = Tensor(a, t, device)
    picks = np.array([4, 0, 0, 3, 1], np.int32)
    results = [
        (x, a),
        (Tensor.cat(x[:, 1:4], x[:, :2], x, dim=1), np.concatenate([a[:, 1:4], a[:, :2], a], 1)),
        (x.pad(((1, 2), (3, 1))), np.pad(a, ((1, 2), (3, 1)))),
        (x.flip(1), a[:, ::-1]),
        (x.permute(1, 0), a.T),
        (x[1::2, ::3], a[1::2, ::3]),
        (x[Tensor(picks, device=device)], a[picks]),
        (x.reshape(7, 5)[2:5, 1:], a.reshape(7, 5)[2:5, 1:]),
        (Tensor.stack(x[0], x[3], dim=1), np.stack([a[0], a[3]], 1)),
    ]
    results = [(r.contiguous(), want) for r, want in results]
    realize_all([r for r, _ in results])
    for n, (got, want) in enumerate(results):
        same(got.numpy().reshape(-1), np.ascontiguousarray(want).reshape(-1), t, device, f"{t.name} moved {n}")
    target, expected = Tensor(a, t, device), a.copy()
    for step, place in enumerate([np.s_[1:4, 2:5], np.s_[0, 6:], np.s_[4, 1:6], np.s_[2:3, 1:2]]):
        shape = expected[place].shape
        value = np.resize(a.reshape(-1)[step:], shape)
        target[place] = Tensor(value, t, device)
        expected[place] = value
    same(target.numpy().reshape(-1), expected.reshape(-1), t, device, f"{t.name} written in place")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("t", TYPES, ids=names)
def test_in_and_out(t: DType, device: str) -> None:
    """From lists and arrays, to arrays, lists, numbers and bytes."""
    for count in (0, 1, 3, 9):
        check_in_and_out(t, device, count)


def check_in_and_out(t: DType, device: str, count: int) -> None:
    a = np.resize(pairs(t)[1], count)
    x = Tensor(a, t, device)
    back = x.numpy()
    assert x.dtype is t and x.nbytes() == len(x.data()) == t.nbytes(count)
    same(back, a, t, device, t.name)
    np.testing.assert_array_equal(Tensor.from_bytes(x.data(), (count,), t, device).numpy(), a)
    if count:
        assert x.tolist() == a.tolist()
        np.testing.assert_array_equal(Tensor(a.tolist(), t, device).numpy(), a)
        one = x[0].item()
        assert one == a[0] and type(one) is {"bool": bool, "float": float}.get(t.kind, int)


@pytest.mark.parametrize("device", DEVICES)
def test_a_constant_shifted_by_different_amounts(device: str) -> None:
    """LLVM's WebAssembly took narrow constants to have a sign here."""
    results = []
    for t in INTS:
        amounts = np.arange(16, dtype=t.numpy) % t.bits
        large = max(int(t.max) - 2, 1) if t.kind == "uint" else int(t.min) + 2
        constant = wrap(np.array([large], object).astype(t.numpy), t)
        shifted_value = Tensor(constant.item(), t, device) >> Tensor(amounts, t, device)
        results.append((t, shifted_value, constant >> amounts))
    realize_all([r for _, r, _ in results])
    for t, got, want in results:
        same(got.numpy(), want, t, device, f"{t.name} on {device}")


VIEWS = [(a, b) for a in TYPES for b in TYPES if a.bits != b.bits and min(a.bits, b.bits) >= 8][::5]


@pytest.mark.parametrize("device", DEVICES)
def test_bits_as_types_of_other_widths(device: str) -> None:
    """As NumPy's `view`: the last axis grows or shrinks; the first element lies in the low bits."""
    results = []
    for of, to in VIEWS:
        a = np.resize(pairs(of)[0][5:], (3, 16))
        raw = bits_of(a, of).view(f"uint{to.bits}")
        results.append((f"{of.name} as {to.name}", Tensor(a, of, device).view(to), of_bits(raw, to)))
    nibbles = np.arange(16, dtype=np.uint8).reshape(2, 8)
    results.append(("4 bits", Tensor(nibbles, dtypes.uint4, device).view(dtypes.uint16), pack_nibbles(nibbles)))
    realize_all([r for _, r, _ in results])
    for label, got, want in results:
        assert got.shape == want.shape, label
        same(got.numpy().reshape(-1), want.reshape(-1), got.dtype, device, f"{label} on {device}")


def pack_nibbles(values: Array) -> Array:
    return np.asarray(values[:, ::2] | values[:, 1::2] << 4).view(np.uint16)


def test_bits_that_make_no_whole_elements() -> None:
    with pytest.raises(ValueError, match=r"view: int8 \(3, 6\) as int32: the last axis must be a multiple of 4"):
        Tensor.zeros(3, 6, dtype=dtypes.int8).view(dtypes.int32)
    with pytest.raises(ValueError, match="bitcast: a 0-d int32 cannot be read as int8"):
        Tensor(5).bitcast(dtypes.int8)
