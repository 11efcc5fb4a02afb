"""What a random program computes: NumPy beside an account of how far rounding may take a correct result from it.

Integers and bools are exact, wrapping around as their dtype does. Floats are computed in float64; `error` bounds, per
element, how much any correct evaluation in the value's dtype may differ: a few units in the last place for every
operation, carried on to first order through those that follow. What depends on a float by a threshold (a comparison,
a cast to an integer) is refused where the bound does not decide it: `Undecided`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tinyweb.dtype import DType, dtypes

LARGEST = {dtypes.float16: 2e3, dtypes.float8_e4m3: 200.0, dtypes.float8_e5m2: 2e3}
ULPS = 6  # what one operation may be wrong by, in units of its dtype's precision
# storage types have few digits; what they hold is computed as float32
PRECISION = {
    dtypes.float8_e4m3: 2.0**-4,
    dtypes.float8_e5m2: 2.0**-3,
    dtypes.float16: 2.0**-11,
    dtypes.bfloat16: 2.0**-8,
    dtypes.float32: 2.0**-24,
    dtypes.float64: 2.0**-52,
}
SMALLEST = {
    dtypes.float16: 2.0**-24,
    dtypes.float8_e4m3: 2.0**-9,
    dtypes.float8_e5m2: 2.0**-16,
}  # below, the absolute error stays: subnormals may become zero


class Undecided(Exception):
    """The value is too large or too inexact to say what is right."""


@dataclass(frozen=True)
class Value:
    """A tensor's value. `symbols[i]` names the variable that axis i is as long as, if it is symbolic."""

    dtype: DType
    array: np.ndarray
    error: np.ndarray | float = 0.0
    symbols: tuple[str | None, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def is_float(self) -> bool:
        return self.dtype.is_float

    @property
    def is_symbolic(self) -> bool:
        return any(self.symbols)

    def moved(self, function: Callable[[np.ndarray], np.ndarray], symbols: tuple[str | None, ...] = ()) -> Value:
        """Elements in other places, with their errors."""
        array = function(self.array)
        error = function(np.broadcast_to(np.asarray(self.error, np.float64), self.shape)) if self.is_float else 0.0
        return Value(self.dtype, array, error, symbols or (None,) * array.ndim)


def value(
    dtype: DType, array: np.ndarray, error: np.ndarray | float = 0.0, symbols: tuple[str | None, ...] = ()
) -> Value:
    """A checked value; integers wrap around."""
    symbols = symbols or (None,) * np.ndim(array)
    if not dtype.is_float:
        return Value(dtype, np.asarray(array).astype(dtype.numpy), 0.0, symbols)
    array = np.asarray(array, np.float64)
    finite = np.isfinite(array)  # infinities and NaN come from the inputs alone, and are exact
    error = np.where(finite, np.broadcast_to(np.asarray(error, np.float64), array.shape), 0.0)
    if finite.any():
        if float(np.abs(array[finite]).max()) > LARGEST.get(dtype, 1e4):
            raise Undecided("too large")
        if not float((error[finite] / (1.0 + np.abs(array[finite]))).max()) <= max(0.05, 12 * PRECISION[dtype]):
            raise Undecided("too inexact")
    return Value(dtype, array, error, symbols)


def unit(dtype: DType, array: np.ndarray) -> np.ndarray:
    """The rounding of one operation."""
    return np.asarray(ULPS * (PRECISION[dtype] * np.abs(array) + SMALLEST.get(dtype, 1e-37)))


def rounded(x: Value, array: np.ndarray, error: np.ndarray | float) -> Value:
    """The result of an operation in x's dtype with `error` from its operands."""
    return value(x.dtype, array, error + unit(x.dtype, array), () if array.shape != x.shape else x.symbols)


# -- elementwise -----------------------------------------------------------------------------------------------------
def common(a: Value, b: Value) -> tuple[str | None, ...]:
    """The symbols of a broadcast result; Undecided where they do not fit."""
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise Undecided("shapes that do not broadcast") from None
    rank = max(len(a.shape), len(b.shape))
    out: list[str | None] = []
    for v in range(-rank, 0):
        have = [(x.shape[v], x.symbols[v]) for x in (a, b) if len(x.shape) >= -v]
        named = {s for n, s in have if s is not None}
        # a symbolic axis meets itself or a plain 1, whatever its length happens to be
        if named and any(s is None and n != 1 for n, s in have):
            raise Undecided("a symbolic axis meets another")
        if len(named) > 1:
            raise Undecided("two symbols")
        out.append(next(iter(named), None))
    return tuple(out)


def add(a: Value, b: Value, sign: int = 1) -> Value:
    symbols = common(a, b)
    if not a.is_float:
        with np.errstate(over="ignore"):
            wide = a.array.astype(np.int64) + sign * b.array.astype(np.int64)
        return value(a.dtype, wrap(wide, a.dtype), 0.0, symbols)
    r = a.array + sign * b.array
    return replace(rounded(a, r, a.error + b.error), symbols=symbols)


def wrap(wide: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype is dtypes.bool:
        return wide != 0
    return np.asarray(wide).astype(np.int64).astype(dtype.numpy)


def multiply(a: Value, b: Value) -> Value:
    symbols = common(a, b)
    if not a.is_float:
        with np.errstate(over="ignore"):
            product = a.array.astype(np.int64) * b.array.astype(np.int64)
        return value(a.dtype, wrap(product, a.dtype), 0.0, symbols)
    r = a.array * b.array
    error = np.abs(a.array) * b.error + np.abs(b.array) * a.error + np.asarray(a.error) * b.error
    return replace(rounded(a, r, error), symbols=symbols)


def divide(a: Value, b: Value) -> Value:
    symbols = common(a, b)
    room = np.abs(b.array) - b.error
    if b.array.size and room.min() < 0.05:
        raise Undecided("near a pole")
    r = a.array / b.array
    return replace(rounded(a, r, (a.error + np.abs(r) * b.error) / room), symbols=symbols)


def floor_division(a: Value, b: Value, remainder: bool) -> Value:
    symbols = common(a, b)
    wide = np.uint64 if a.dtype.kind == "uint" else np.int64
    x, d = np.broadcast_arrays(a.array.astype(wide), b.array.astype(wide))
    safe = np.where(d == 0, 1, d)
    with np.errstate(over="ignore"):
        r = np.where(d == 0, 0, x % safe if remainder else x // safe)  # division by zero gives 0
    return value(a.dtype, wrap(r, a.dtype), 0.0, symbols)


def extreme(a: Value, b: Value, largest: bool) -> Value:
    symbols = common(a, b)
    r = (np.maximum if largest else np.minimum)(a.array, b.array)
    return value(a.dtype, r, np.maximum(a.error, b.error) if a.is_float else 0.0, symbols)


def compare(a: Value, b: Value, function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Value:
    symbols = common(a, b)
    if a.is_float:
        doubt = np.asarray(a.error) + b.error
        with np.errstate(invalid="ignore"):
            near = (np.abs(a.array - b.array) <= doubt) & (doubt > 0)
        if near.any():
            raise Undecided("a comparison within the error")
    return value(dtypes.bool, function(a.array, b.array), 0.0, symbols)


def bits(a: Value, b: Value, function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Value:
    return value(a.dtype, function(a.array, b.array), 0.0, common(a, b))


def choose(c: Value, a: Value, b: Value) -> Value:
    symbols = common(a, b)
    both = value(dtypes.bool, np.zeros(np.broadcast_shapes(a.shape, b.shape), bool), 0.0, symbols)
    symbols = common(c, both)
    r = np.where(c.array, a.array, b.array)
    return value(a.dtype, r, np.where(c.array, a.error, b.error) if a.is_float else 0.0, symbols)


def function(
    x: Value, f: Callable[[np.ndarray], np.ndarray], slope: Callable[[np.ndarray], np.ndarray], ulps: float = 1
) -> Value:
    """f of a float, `slope` being |f'| at its largest near x."""
    r = f(x.array)
    error = 2 * slope(x.array) * x.error + ulps * unit(x.dtype, np.maximum(np.abs(r), PRECISION[x.dtype]))
    return value(x.dtype, r, error, x.symbols)


def steps(x: Value, f: Callable[[np.ndarray], np.ndarray]) -> Value:
    """floor and its like: undecided where the error reaches a step."""
    low, high = f(x.array - x.error), f(x.array + x.error)
    if ((low != high) & np.isfinite(x.array)).any():
        raise Undecided("a step within the error")
    return value(x.dtype, f(x.array), 0.0, x.symbols)


def cast(x: Value, dtype: DType) -> Value:
    if x.dtype is dtype:
        return x
    if dtype is dtypes.float8_e4m3 and not np.isfinite(x.array.astype(np.float64)).all():
        raise Undecided("a type without infinities")
    if dtype is dtypes.bool:
        zero = value(x.dtype, np.zeros((), x.array.dtype))
        return compare(x, zero, np.not_equal)
    if not dtype.is_float:
        if not x.is_float:
            return value(dtype, wrap(x.array.astype(np.int64), dtype), 0.0, x.symbols)
        whole = steps(x, np.trunc).array
        # the ends of the range stand for what lies beyond it, 0 for NaN
        inside = (whole > float(dtype.min)) & (whole < float(dtype.max))
        cut = np.where(inside, whole, 0).astype(np.int64).astype(dtype.numpy)
        ends = np.where(whole > 0, dtype.numpy.type(dtype.max), dtype.numpy.type(dtype.min))
        return value(dtype, np.where(inside | np.isnan(whole), cut, ends), 0.0, x.symbols)
    array = x.array.astype(np.float64)
    exact = not x.is_float and (array.size == 0 or np.abs(array).max() * PRECISION[dtype] < 1)
    wider = x.is_float and dtype in (dtypes.float32, dtypes.float64) and PRECISION[dtype] <= PRECISION[x.dtype]
    return value(dtype, array, x.error + (0.0 if exact or wider else unit(dtype, array)), x.symbols)


# -- reductions ------------------------------------------------------------------------------------------------------
def reduced(x: Value, axes: tuple[int, ...], keep: bool) -> tuple[str | None, ...]:
    if keep:
        return tuple(None if i in axes else s for i, s in enumerate(x.symbols))
    return tuple(s for i, s in enumerate(x.symbols) if i not in axes)


def total(x: Value, axes: tuple[int, ...], keep: bool, mean: bool = False) -> Value:
    symbols = reduced(x, axes, keep)
    count = int(np.prod([x.shape[a] for a in axes]))
    if not x.is_float:
        dtype = x.dtype
        if dtype.bits < 32:
            dtype = dtypes.uint32 if dtype.kind == "uint" else dtypes.int32
        return _plain(dtype, wrap(x.array.astype(np.int64).sum(axes, keepdims=keep), dtype), 0.0, symbols)
    r = x.array.sum(axes, keepdims=keep)
    size = np.abs(x.array).sum(axes, keepdims=keep)
    with np.errstate(invalid="ignore"):
        error = _spread(x).sum(axes, keepdims=keep) + (count + 1) * unit(x.dtype, size)
        if mean:
            if count == 0:
                raise Undecided("the mean of nothing")
            r, error = r / count, error / count + unit(x.dtype, r / count)
    return _plain(x.dtype, r, error, symbols)


def _plain(dtype: DType, array: np.ndarray, error: np.ndarray | float, symbols: tuple[str | None, ...]) -> Value:
    return value(dtype, np.asarray(array), error, symbols)


def _spread(x: Value) -> np.ndarray:
    return np.broadcast_to(np.asarray(x.error, np.float64), x.shape)


def product(x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    symbols = reduced(x, axes, keep)
    if not x.is_float:
        dtype = x.dtype if x.dtype.bits >= 32 else dtypes.uint32 if x.dtype.kind == "uint" else dtypes.int32
        with np.errstate(over="ignore"):
            r = x.array.astype(np.int64).astype(np.uint64).prod(axes, keepdims=keep, dtype=np.uint64)
        return _plain(dtype, np.asarray(r).astype(np.int64).astype(dtype.numpy), 0.0, symbols)
    r = x.array.prod(axes, keepdims=keep)
    count = int(np.prod([x.shape[a] for a in axes]))
    largest = (np.abs(x.array) + _spread(x)).prod(axes, keepdims=keep)
    return _plain(x.dtype, r, 2 * (largest - np.abs(r)) + (count + 1) * unit(x.dtype, largest), symbols)


def extremum(x: Value, axes: tuple[int, ...], keep: bool, largest: bool) -> Value:
    if any(x.shape[a] == 0 for a in axes):
        raise Undecided("the extremum of nothing")
    f = np.max if largest else np.min
    error = _spread(x).max(axes, keepdims=keep) if x.is_float else 0.0
    return _plain(x.dtype, f(x.array, axis=axes, keepdims=keep), error, reduced(x, axes, keep))


def position(x: Value, axis: int, largest: bool) -> Value:
    """argmax, argmin: the first of equals; of inexact floats undecided unless it stands out."""
    if x.shape[axis] == 0:
        raise Undecided("the extremum of nothing")
    if x.is_float and np.any(x.error):
        order = np.sort(x.array if largest else -x.array, axis=axis)
        if x.shape[axis] > 1:
            gap = np.take(order, -1, axis) - np.take(order, -2, axis)
            if (gap <= 2 * _spread(x).max(axis)).any():
                raise Undecided("a tie within the error")
    r = (np.argmax if largest else np.argmin)(x.array, axis=axis)
    return _plain(dtypes.int32, np.asarray(r), 0.0, reduced(x, (axis,), False))


def softmax(x: Value, axis: int) -> Value:
    if x.shape[axis] == 0:
        raise Undecided("the softmax of nothing")
    if not np.isfinite(x.array).all():
        raise Undecided("the softmax of infinities")
    e = np.exp(x.array - x.array.max(axis, keepdims=True))
    r = e / e.sum(axis, keepdims=True)
    doubt = 4 * _spread(x).max(axis, keepdims=True) + 8 * x.shape[axis] * unit(x.dtype, np.ones(()))
    reach = 1 + np.abs(x.array).max()
    return value(x.dtype, r, r * doubt * reach + unit(x.dtype, r), x.symbols)


def matmul(a: Value, b: Value) -> Value:
    if not a.is_float:
        return value(a.dtype, wrap(a.array.astype(np.int64) @ b.array.astype(np.int64), a.dtype))
    r = a.array @ b.array
    size = np.abs(a.array) @ np.abs(b.array)
    error = np.abs(a.array) @ _spread(b) + _spread(a) @ np.abs(b.array) + _spread(a) @ _spread(b)
    return value(a.dtype, r, error + (a.shape[-1] + 1) * unit(a.dtype, size))


def take(x: Value, index: Value, axis: int) -> Value:
    """Elements along an axis; negative indices count from the end, those outside give zeros."""
    n = x.shape[axis]
    inside = (index.array >= (0 if index.dtype.kind == "uint" else -n)) & (index.array < n)
    at = np.where(inside, index.array, 0).astype(np.int64)
    at = np.where(at < 0, at + n, at)
    shape = x.shape[:axis] + index.shape + x.shape[axis + 1 :]
    mask = inside.reshape((1,) * axis + index.shape + (1,) * (len(x.shape) - axis - 1))

    def pick(array: np.ndarray) -> np.ndarray:
        if n == 0:
            return np.zeros(shape, array.dtype)
        return np.where(mask, np.take(array, np.where(inside, at, 0), axis), np.zeros((), array.dtype))

    return x.moved(pick)


# -- comparing -------------------------------------------------------------------------------------------------------
def mismatch(got: np.ndarray, want: Value) -> str | None:
    """What is wrong with a result, or None."""
    if got.shape != want.shape:
        return f"shape {got.shape} instead of {want.shape}"
    if not want.is_float:
        wrong = got != want.array
    else:
        bound = 2 * np.asarray(want.error) + SMALLEST.get(want.dtype, 1e-37)
        with np.errstate(invalid="ignore"):
            near = np.abs(got.astype(np.float64) - want.array) <= bound
        wrong = ~(near | (got == want.array) | (np.isnan(got) & np.isnan(want.array)))
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    bound_text = "" if not want.is_float else f" ± {float(np.broadcast_to(want.error, want.shape)[place]):.3g}"
    return (
        f"{got[place]} instead of {want.array[place]}{bound_text} at {place} ({int(wrong.sum())} of {wrong.size} wrong)"
    )
