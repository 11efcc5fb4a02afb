"""Measure how far elementary functions are off on every device; write the table of docs/numerics.md.

usage: python tools/accuracy.py                       measure and print
       python tools/accuracy.py --write               and put the table into docs/numerics.md
       python tools/accuracy.py --sweep STEP [NAME…]  every STEP-th of all 2**32 float32 on CPU (POW: not)

An error is given in units in the last place (ulp) of the exact result rounded to the format. References are NumPy's
functions in the next wider float, or the C library's in float64 where NumPy has none.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tinyweb import Tensor, dtypes
from tinyweb.dtype import DType
from tinyweb.graph.ir import Ops, UOp

Array: TypeAlias = npt.NDArray[Any]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "numerics.md"
BEGIN, END = "<!-- measured: tools/accuracy.py --write -->", "<!-- end -->"
DEVICES = ("CPU", "WASM", "WEBGPU", "INTERPRETER")
WIDER: dict[DType, Any] = {dtypes.float32: np.float64, dtypes.float64: np.longdouble}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, math.inf, -math.inf, math.nan]


def _elementwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of Python floats on arrays; results of longdouble arrays have the digits of float64."""
    vectorised = np.vectorize(lambda x: function(float(x)), otypes=[np.float64])
    return lambda x: vectorised(x).astype(x.dtype)


def _bernoulli(x: Array, coefficients: Sequence[tuple[int, int]]) -> Array:
    z = 1 / (x * x)
    total = np.zeros_like(x)
    for a, b in reversed(coefficients):
        total = total * z + np.longdouble(a) / b
    return total


_STEPS = 24
_PI = np.longdouble("3.14159265358979323846264338327950288")


def _lgamma(x: Array) -> Array:
    """By Stirling's series from 24 on, steps down to there, and reflection."""
    a = np.abs(x.astype(np.longdouble))
    y = a + _STEPS
    series = [(1, 12), (-1, 360), (1, 1260), (-1, 1680), (1, 1188), (-691, 360360), (1, 156), (-3617, 122400)]
    value = (y - 0.5) * np.log(y) - y + np.log(2 * _PI) / 2 + _bernoulli(y, series) / y
    value = np.where(np.isinf(y), y, value) - sum(np.log(a + k) for k in range(_STEPS) if k) - np.log(a)
    reflected = np.log(_PI / (a * np.abs(np.sin(_PI * (a - np.round(a)))))) - value
    endless = np.isinf(x) | ((x <= 0) & (a == np.round(a)))
    value = np.where((x == 1) | (x == 2), 0, np.where(x < 0, reflected, value))
    return np.where(endless, np.inf, value).astype(x.dtype)


def _digamma(x: Array) -> Array:
    a = np.abs(x.astype(np.longdouble))
    y = a + _STEPS
    series = [(1, 12), (-1, 120), (1, 252), (-1, 240), (1, 132), (-691, 32760), (1, 12), (-3617, 8160)]
    above = np.log(y) - 0.5 / y - _bernoulli(y, series) / (y * y)
    above = above - sum(1 / (a + k) for k in range(1, _STEPS))
    value = above - 1 / a
    reflected = above + _PI / np.tan(_PI * (a - np.round(a)))
    pole = np.isneginf(x) | ((x < 0) & (a == np.round(a)))
    value = np.where(pole, np.nan, np.where(x < 0, reflected, value))
    return np.where(x == 0, -1 / x, np.where(np.isposinf(x), np.inf, value)).astype(x.dtype)


def _terms(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """What cancels near the zeros of a negative argument. The reference for float64 has few digits near other zeros."""
    return lambda x: np.where(x < 0, 1 + np.abs(function(np.abs(x) + 1)), 0 if x.dtype == np.float64 else 0.1)


@dataclass(frozen=True)
class Function:
    """One row: the promise is an error of at most `single` (float32) and `double` (float64) ulp, in units of the result
    or of what `beside` makes of the arguments where that is larger.
    """

    op: Ops
    name: str
    reference: Callable[..., Array]
    single: float
    double: float
    edges: tuple[float, ...] = ()  # where the computation changes its way, or the result is zero or ends
    note: str = ""
    beside: Callable[..., Array] | None = None


FUNCTIONS = [
    Function(Ops.RECIPROCAL, "1 / x", lambda x: 1 / x, 1, 1),
    Function(Ops.DIV, "x / y", np.divide, 1, 1),
    Function(Ops.SQRT, "sqrt", np.sqrt, 1, 1),
    Function(Ops.EXP, "exp", np.exp, 1.5, 1.5, (0.3466, 88.72, -87.34, -103.97, 709.78, -745.1)),
    Function(Ops.EXP2, "exp2", np.exp2, 1.5, 1.5, (128, -126, -149, -150, 1024, -1075)),
    Function(Ops.EXPM1, "expm1", np.expm1, 2, 2, (0.3466, -0.3466, 88.72, -17.3, 709.78)),
    Function(Ops.LOG, "log", np.log, 1.5, 1.5, (0.7071, 1.4142)),
    Function(Ops.LOG2, "log2", np.log2, 1.5, 1.5, (0.7071, 1.4142)),
    Function(Ops.LOG10, "log10", np.log10, 1.5, 1.5, (0.7071, 1.4142)),
    Function(Ops.LOG1P, "log1p", np.log1p, 1.5, 1.5, (-0.2929, 0.4142, -0.9999)),
    Function(Ops.SIN, "sin", np.sin, 2, 1.5, (0.785398,), "exact reduction of every finite argument"),
    Function(Ops.COS, "cos", np.cos, 2, 1.5, (0.785398,), "exact reduction of every finite argument"),
    Function(Ops.TAN, "tan", np.tan, 1.5, 1.5, (0.785398,), "exact reduction of every finite argument"),
    Function(Ops.ASIN, "asin", np.arcsin, 1.5, 1.5),
    Function(Ops.ACOS, "acos", np.arccos, 1.5, 1.5),
    Function(Ops.ATAN, "atan", np.arctan, 1.5, 1.5),
    Function(Ops.SINH, "sinh", np.sinh, 2, 2, (88.72, 89.4, 710.4)),
    Function(Ops.COSH, "cosh", np.cosh, 2, 2, (88.72, 89.4, 710.4)),
    Function(Ops.TANH, "tanh", np.tanh, 1.5, 1.5, (0.625, 9.01, 19.06)),
    Function(Ops.ASINH, "asinh", np.arcsinh, 1.5, 1.5, (4096.0, 2.0**28)),
    Function(Ops.ACOSH, "acosh", np.arccosh, 2, 2, (1.5, 4096.0, 2.0**28)),
    Function(Ops.ATANH, "atanh", np.arctanh, 1.5, 1.5),
    Function(Ops.ERF, "erf", _elementwise(math.erf), 1.5, 2, (0.875, 3.92, 5.92)),
    Function(Ops.ERFC, "erfc", _elementwise(math.erfc), 2, 4, (0.5, 0.875, 9.19, 10.05, 26.5)),
    Function(Ops.LGAMMA, "lgamma", _lgamma, 6, 6, (1.0, 2.0, 8.0), "x < 0: beside lgamma(1 - x)", _terms(_lgamma)),
    Function(Ops.DIGAMMA, "digamma", _digamma, 6, 6, (1.4616, 8.0), "x < 0: beside digamma(1 - x)", _terms(_digamma)),
    Function(Ops.POW, "pow", np.power, 1.5, 2, note="special cases of IEEE 754-2019, 9.2.1"),
    Function(Ops.FMOD, "fmod", np.fmod, 0, 0, note="exact"),
]  # fmt: skip
BINARY = (Ops.DIV, Ops.POW, Ops.FMOD)


# -- samples ----------------------------------------------------------------------------------------------------------
def sample(function: Function, dtype: DType, count: int) -> list[Array]:
    """The arguments: special values, all exponents, the usual ranges, around edges, around multiples of pi/2."""
    rng = np.random.default_rng(int(function.op.value))
    kind: Any = dtype.numpy
    bits: Any = np.uint32 if dtype is dtypes.float32 else np.uint64
    tiny, huge = np.finfo(kind).smallest_subnormal, np.finfo(kind).max
    ranges = [rng.uniform(-r, r, count) for r in (1.0, 4.0, 30.0, 800.0 if dtype is dtypes.float64 else 105.0)]
    around = [_neighbours(np.array([s * e]), 100, kind) for e in (*function.edges, 0.5, 1.0, 2.0) for s in (1, -1)]
    turns = np.concatenate([np.arange(1, 400), 2 ** np.arange(10, 40)]) * (np.pi / 2)
    parts = [
        np.array([*SPECIAL, tiny, -tiny, np.finfo(kind).tiny, -np.finfo(kind).tiny, huge, -huge]),
        rng.integers(0, np.iinfo(bits).max, count, bits, endpoint=True).view(kind),
        *ranges,
        *around,
        _neighbours(turns, 2, kind),
    ]
    with np.errstate(invalid="ignore"):
        x = np.concatenate([p.astype(kind) for p in parts])
    if function.op not in BINARY:
        return [x]
    special = x[: len(SPECIAL) + 6]
    grid = [g.reshape(-1) for g in np.meshgrid(special, np.append(special, [3, -3, 2.5, 1e30]).astype(kind))]
    if function.op is Ops.POW:
        # exponents for which the result is finite, whole ones among them
        with np.errstate(all="ignore"):
            reach = float(np.finfo(kind).maxexp)
            exponent = (rng.uniform(-1.1, 1, x.size) * reach / np.log2(np.abs(x).astype(WIDER[dtype]))).astype(kind)
        other = [exponent, np.trunc(exponent), rng.permutation(x)]
    else:
        other = [rng.permutation(x), np.roll(x, 1)]
    return [np.concatenate([grid[0], *[x] * len(other)]), np.concatenate([grid[1], *other])]


def _neighbours(at: Array, steps: int, kind: Any) -> Array:
    """The floats around some numbers."""
    bits: Any = np.int32 if np.dtype(kind).itemsize == 4 else np.int64
    centre = at.astype(kind).view(bits)
    floats: Array = (centre[:, None] + np.arange(-steps, steps + 1, dtype=bits)).reshape(-1).view(kind)
    return floats


# -- errors -----------------------------------------------------------------------------------------------------------
def units(got: Array, want: Array, beside: Array | float = 0.0) -> Array:
    """Errors in ulp of the exact results `want` (in a wider float), or of `beside` where that is larger; infinite where
    a special value is not met.
    """
    kind = got.dtype.type
    with np.errstate(all="ignore"):
        nearest = want.astype(kind)
        # the largest numbers have the spacing of the binade they end
        scale = np.maximum(np.abs(nearest), np.asarray(beside).astype(kind))
        step = np.where(np.isfinite(nearest), np.spacing(scale), np.spacing(np.finfo(kind).max))
        step = np.where(np.isfinite(step), step, np.spacing(np.finfo(kind).max))
        error = np.abs(got.astype(want.dtype) - want) / step.astype(want.dtype)
    special = ~np.isfinite(nearest) | ~np.isfinite(got)
    same = (np.isnan(got) & np.isnan(nearest)) | (got == nearest)
    error = np.where(special, np.where(same, 0, np.inf), error)
    lost_sign = (got == 0) & (want == 0) & (np.signbit(got) != np.signbit(nearest))
    return np.where(lost_sign, np.inf, error).astype(np.float64)


@dataclass(frozen=True)
class Measured:
    """The largest error, and the arguments it is at."""

    error: float
    at: tuple[float, ...]
    got: float
    want: float

    def __str__(self) -> str:
        arguments = ", ".join(repr(a) for a in self.at)
        return f"{self.error:.2f} ulp at ({arguments}): {self.got!r} for {self.want!r}"


def worst(got: Array, function: Function, arguments: Sequence[Array], dtype: DType, flushes: bool = False) -> Measured:
    """`flushes`: the device may take subnormal numbers for zeros, as arguments and as results."""
    with np.errstate(all="ignore"):
        wide = [a.astype(WIDER[dtype]) for a in arguments]
        want = function.reference(*wide)
        beside = function.beside(*wide) if function.beside else 0.0
        error = units(got, want, beside)
        if flushes:
            least = np.finfo(got.dtype).tiny
            flushed = [np.where(np.abs(a) < least, np.copysign(np.zeros_like(a), a), a) for a in arguments]
            other = function.reference(*(a.astype(WIDER[dtype]) for a in flushed))
            error = np.minimum(error, units(got, other, beside))
            error = np.where((got == 0) & ((np.abs(want) < least) | (np.abs(other) < least)), 0, error)
    i = int(error.argmax())
    return Measured(float(error[i]), tuple(float(a[i]) for a in arguments), float(got[i]), float(want[i]))


def apply(function: Function, arguments: Sequence[Array], device: str) -> Tensor:
    tensors = [Tensor(a, device=device) for a in arguments]
    node = UOp(function.op, tensors[0].dtype, tuple(t.uop for t in tensors))
    return Tensor._wrap(node, device)


@functools.cache
def measure(device: str, dtype: DType, count: int = 4000, flushes: bool = False) -> dict[Ops, Measured]:
    """The largest error of every function on a device (see `worst`)."""
    samples = [sample(f, dtype, count) for f in FUNCTIONS]
    results = [apply(f, s, device) for f, s in zip(FUNCTIONS, samples, strict=True)]
    results[0].realize(*results[1:])
    found = zip(FUNCTIONS, results, samples, strict=True)
    return {f.op: worst(r.numpy(), f, s, dtype, flushes) for f, r, s in found}


def sweep(function: Function, step: int, chunk: int = 1 << 22) -> Iterator[Measured]:
    """Every `step`-th of all float32 on CPU, in chunks."""
    for begin in range(0, 1 << 32, chunk * step):
        x = np.arange(begin, min(begin + chunk * step, 1 << 32), step, dtype=np.uint64).astype(np.uint32)
        values = x.view(np.float32)
        yield worst(apply(function, [values], "CPU").numpy(), function, [values], dtypes.float32)


# -- the table --------------------------------------------------------------------------------------------------------
def table() -> str:
    single = {d: measure(d, dtypes.float32) for d in DEVICES}
    double = {d: measure(d, dtypes.float64) for d in DEVICES if d != "WEBGPU"}
    head = ["function", "float32 ≤", *DEVICES, "float64 ≤", "measured", ""]
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 2)} --- |"]
    for f in FUNCTIONS:
        row = [f.name, f"**{f.single:g}**", *(f"{single[d][f.op].error:.2f}" for d in DEVICES), f"**{f.double:g}**"]
        lines.append(f"| {' | '.join([*row, f'{max(m[f.op].error for m in double.values()):.2f}', f.note])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--sweep", type=int, metavar="STEP")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.sweep:
        for f in FUNCTIONS:
            if f.op not in BINARY and (not options.names or f.name in options.names):
                print(f"{f.name}: {max(sweep(f, options.sweep), key=lambda m: m.error)}", flush=True)
        return
    text = table()
    print(text)
    if options.write:
        page = PAGE.read_text()
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
