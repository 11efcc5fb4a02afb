"""The lines a random program is made of: each function proposes one that fits the values there are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz import reference as ref
from tests.fuzz.generator import MOST_AXES, Builder
from tests.fuzz.reference import Undecided, Value
from tinyweb.dtype import dtypes

Proposal = Callable[[Builder], object]


def is_number(v: Value) -> bool:
    return v.dtype is not dtypes.bool


def fixed(v: Value) -> bool:
    return not v.is_symbolic


# -- elementwise -----------------------------------------------------------------------------------------------------
def arithmetic(b: Builder) -> None:
    x, v = b.some(is_number)
    y, w = b.operand(v)
    sign = b.pick("+-*")
    swap = b.flag()
    if sign == "*":
        r = ref.multiply(v, w)
    else:
        r = ref.add(w, v, -1 if sign == "-" else 1) if swap else ref.add(v, w, -1 if sign == "-" else 1)
    b.add(f"{y} {sign} {x}" if swap else f"{x} {sign} {y}", r)


def division(b: Builder) -> None:
    x, v = b.some(is_number)
    if v.is_float:
        y, w = b.operand(v)
        b.add(f"{x} / {y}", ref.divide(v, w))
        return
    if b.flag():
        n = b.pick((1, 2, 3, 4, 5, 7) if v.dtype.kind == "uint" else (1, 2, 3, 4, -1, -2, -3, 5))
        y, w = str(n), ref.value(v.dtype, np.array(n))
    else:
        y, w = b.operand(v)
        odd = ref.value(v.dtype, np.array(1))
        y, w = f"({y} | 1)" if not y.lstrip("-").isdigit() else str(int(y) | 1), ref.bits(w, odd, np.bitwise_or)
    remainder = b.flag()
    b.add(f"{x} {'%' if remainder else '//'} {y}", ref.floor_division(v, w, remainder))


def extremes(b: Builder) -> None:
    x, v = b.some()
    y, w = b.operand(v)
    largest = b.flag()
    if v.dtype is dtypes.bool:
        r = ref.bits(v, w, np.logical_or if largest else np.logical_and)
    else:
        r = ref.extreme(v, w, largest)
    b.add(f"{x}.{'maximum' if largest else 'minimum'}({y})", r)


def comparison(b: Builder) -> None:
    x, v = b.some(is_number)
    y, w = b.operand(v)
    sign, f = b.pick((("<", np.less), (">", np.greater), ("<=", np.less_equal), (">=", np.greater_equal),
                      ("==", np.equal), ("!=", np.not_equal)))  # fmt: skip
    b.add(f"{x} {sign} {y}", ref.compare(v, w, f))


def bitwise(b: Builder) -> None:
    x, v = b.some(lambda v: not v.is_float)
    if v.dtype.is_int and b.number(0, 2) == 0:
        n = b.number(0, v.dtype.bits - 1)
        up = b.flag()
        shifted = v.array.astype(np.int64) << n if up else v.array >> v.dtype.numpy.type(n)
        b.add(f"{x} {'<<' if up else '>>'} {n}", ref.value(v.dtype, ref.wrap(shifted, v.dtype), 0.0, v.symbols))
        return
    y, w = b.operand(v)
    sign, f = b.pick((("&", np.bitwise_and), ("|", np.bitwise_or), ("^", np.bitwise_xor)))
    b.add(f"{x} {sign} {y}", ref.bits(v, w, f))


def unary(b: Builder) -> None:
    x, v = b.some()
    if v.dtype is dtypes.bool:
        b.add(f"~{x}", ref.value(v.dtype, ~v.array, 0.0, v.symbols))
        return
    kind = b.pick(("-", "abs", "square", "relu", "sign", "~"))
    if kind == "-":
        r = ref.value(
            v.dtype, -v.array if v.is_float else ref.wrap(-v.array.astype(np.int64), v.dtype), v.error, v.symbols
        )
        b.add(f"-{x}", r)
    elif kind == "abs":
        r = np.abs(v.array)  # the smallest integer has no positive counterpart and stays
        b.add(f"{x}.abs()", ref.value(v.dtype, r, v.error, v.symbols))
    elif kind == "square":
        b.add(f"{x}.square()", ref.multiply(v, v))
    elif kind == "relu":
        b.add(f"{x}.relu()", ref.extreme(v, ref.value(v.dtype, np.array(0)), True))
    elif kind == "sign" and not np.isnan(v.array).any():
        below = ref.compare(v, ref.value(v.dtype, np.array(0)), np.less).array
        above = ref.compare(v, ref.value(v.dtype, np.array(0)), np.greater).array
        b.add(f"{x}.sign()", ref.value(v.dtype, above.astype(np.int64) - below, 0.0, v.symbols))
    elif not v.is_float:
        b.add(f"~{x}", ref.value(v.dtype, ~v.array, 0.0, v.symbols))
    else:
        raise Undecided("not for floats")


def near(low: float, high: float) -> Callable[[Value], bool]:
    return lambda v: v.is_float and (v.array.size == 0 or bool(low < v.array.min() and v.array.max() < high))


def functions(b: Builder) -> None:
    name, accept, f, slope, ulps = b.pick(FUNCTIONS)
    x, v = b.some(accept)
    b.add(f"{x}.{name}()", ref.function(v, f, slope, ulps))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def one(x: np.ndarray) -> np.ndarray:
    return np.ones_like(x)


FUNCTIONS: tuple[tuple[str, Any, Any, Any, float], ...] = (
    ("exp", near(-8, 6), np.exp, np.exp, 8), ("exp2", near(-8, 8), np.exp2, np.exp2, 8),
    ("log", near(0.1, 1e4), np.log, lambda x: 1 / x, 4), ("log2", near(0.1, 1e4), np.log2, lambda x: 2 / x, 4),
    ("sqrt", near(0.05, 1e4), np.sqrt, lambda x: 1 / np.sqrt(x), 2),
    ("rsqrt", near(0.05, 1e4), lambda x: 1 / np.sqrt(x), lambda x: x**-1.5, 3),
    ("reciprocal", near(0.05, 1e4), np.reciprocal, lambda x: 1 / x**2, 2),
    ("sin", near(-30, 30), np.sin, one, 2 / 0.01), ("sigmoid", near(-10, 10), sigmoid, one, 16),
    ("tanh", near(-8, 8), np.tanh, one, 32),
)  # fmt: skip


def rounding(b: Builder) -> None:
    x, v = b.some(lambda v: v.is_float)
    name, f = b.pick((("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("round", np.round)))
    b.add(f"{x}.{name}()", ref.steps(v, f))


def casting(b: Builder) -> None:
    x, v = b.some()
    dtype = b.pick(b.types)
    b.add(f"{x}.cast(dtypes.{dtype.name})", ref.cast(v, dtype))


def choice(b: Builder) -> None:
    c, condition = b.some(lambda v: v.dtype is dtypes.bool)
    x, v = b.some()
    y, w = b.operand(v)
    if y[0] in "-0123456789TF" and b.flag():
        b.add(f"{c}.where({y}, {x})", ref.choose(condition, w, v))
    else:
        b.add(f"{c}.where({x}, {y})", ref.choose(condition, v, w))


def clamp(b: Builder) -> None:
    x, v = b.some(is_number)
    low, high = (0.25, 1.5) if v.is_float else (1, 3)
    least, most = (ref.value(v.dtype, np.array(n)) for n in (low, high))
    b.add(f"{x}.clamp({low}, {high})", ref.extreme(ref.extreme(v, least, True), most, False))


# -- reductions ------------------------------------------------------------------------------------------------------
def reduction(b: Builder) -> None:
    x, v = b.some()
    keep = b.flag()
    if b.number(0, 3) == 0 or not v.shape:
        axes, text = tuple(range(len(v.shape))), "None"
    elif b.number(0, 3) == 0:
        axes = tuple(sorted({b.axis(v), b.axis(v)}))
        text = str(axes)
    else:
        axes = (b.axis(v),)
        text = b.plain(axes[0], v)
    kind = b.pick(("sum", "max", "min", "sum", "mean", "prod", "any", "all"))
    if kind == "sum":
        r = ref.total(v, axes, keep)
    elif kind in ("max", "min") and is_number(v):
        r = ref.extremum(v, axes, keep, kind == "max")
    elif kind == "mean" and v.is_float:
        r = ref.total(v, axes, keep, mean=True)
    elif kind == "prod" and is_number(v) and math.prod(v.shape[a] for a in axes) <= 6:
        r = ref.product(v, axes, keep)
    elif kind in ("any", "all"):
        truth = ref.cast(v, dtypes.bool).array
        f = np.any if kind == "any" else np.all
        r = ref.value(dtypes.bool, np.asarray(f(truth, axis=axes, keepdims=keep)), 0.0, ref.reduced(v, axes, keep))
    else:
        raise Undecided("not for this dtype")
    b.add(f"{x}.{kind}({text}{', keepdim=True' if keep else ''})", r)


def where_largest(b: Builder) -> None:
    x, v = b.some(lambda v: bool(v.shape) and is_number(v))
    a = b.axis(v)
    largest = b.flag()
    b.add(f"{x}.{'argmax' if largest else 'argmin'}({b.plain(a, v)})", ref.position(v, a, largest))


def normalised(b: Builder) -> None:
    x, v = b.some(lambda v: v.dtype is dtypes.float32 and bool(v.shape) and v.array.size > 0)
    a = b.axis(v)
    b.add(f"{x}.softmax({b.plain(a, v)})", ref.softmax(v, a))


def product(b: Builder) -> None:
    x, v = b.some(lambda v: fixed(v) and len(v.shape) >= 2 and v.dtype in (dtypes.float32, dtypes.int32))
    others = [n for n, w in b.program.values.items() if fixed(w) and w.dtype is v.dtype and _multiplies(v, w)]
    if others and b.flag():
        y = b.pick(others)
        w = b.program.values[y]
    else:
        y, w = b.input(v.dtype, (v.shape[-1], b.pick([n for n in b.sizes if n])))
    b.add(f"{x} @ {y}", ref.matmul(v, w))


def _multiplies(v: Value, w: Value) -> bool:
    if len(w.shape) < 2 or w.shape[-2] != v.shape[-1]:
        return False
    try:
        np.broadcast_shapes(v.shape[:-2], w.shape[:-2])
    except ValueError:
        return False
    return True


# -- movement --------------------------------------------------------------------------------------------------------
def reshaped(b: Builder) -> None:
    x, v = b.some(fixed)
    shape: list[int] = []
    rest = v.array.size
    while len(shape) < MOST_AXES and (rest > 1 or (rest == 1 and b.number(0, 2) == 0)):
        n = b.pick([d for d in range(1, rest + 1) if rest % d == 0])
        shape.append(n)
        rest //= n
    if rest > 1 or v.array.size == 0:
        shape.append(rest)
    text = [str(n) for n in shape]
    if text and v.array.size and b.flag():
        text[b.number(0, len(text) - 1)] = "-1"
    b.add(f"{x}.reshape({', '.join(text)})" if text else f"{x}.reshape(())", v.moved(lambda a: a.reshape(shape)))


def permuted(b: Builder) -> None:
    x, v = b.some(lambda v: len(v.shape) > 1)
    order = b.draw(_permutations(len(v.shape)))
    symbols = tuple(v.symbols[a] for a in order)
    b.add(f"{x}.permute({', '.join(map(str, order))})", v.moved(lambda a: a.transpose(order), symbols))


def _permutations(n: int) -> Any:
    from hypothesis import strategies as st

    return st.permutations(range(n))


def expanded(b: Builder) -> None:
    x, v = b.some(lambda v: len(v.shape) < MOST_AXES)
    a, n = b.number(0, len(v.shape)), b.pick(b.sizes)
    symbols = (*v.symbols[:a], None, *v.symbols[a:])
    shape = (*v.shape[:a], n, *v.shape[a:])
    sizes = [str(n) if i == a else "-1" for i in range(len(shape))]
    text = f"{x}.unsqueeze({a}).expand({', '.join(sizes)})"
    b.add(text, v.moved(lambda m: np.broadcast_to(np.expand_dims(m, a), shape), symbols))


def padded(b: Builder) -> None:
    x, v = b.some(lambda v: bool(v.shape))
    pairs = [(b.number(0, 2), b.number(0, 2)) if b.flag() and s is None else (0, 0) for s in v.symbols]
    fill, w = b.scalar(v.dtype) if b.number(0, 2) == 0 else ("0", ref.value(v.dtype, np.array(0)))
    tail = "" if fill == "0" else f", value={fill}"
    symbols = v.symbols

    def pad(a: np.ndarray) -> np.ndarray:
        # errors are padded with zeros, values with the fill
        return np.pad(a, pairs, constant_values=w.array if a is v.array else 0)

    b.add(f"{x}.pad({pairs}{tail})", v.moved(pad, symbols))


def sliced(b: Builder) -> None:
    x, v = b.some(lambda v: bool(v.shape))
    parts, key, symbols = [], [], []
    for n, s in zip(v.shape, v.symbols):
        kind = b.number(0, 5) if s is None else 0
        if kind <= 2:
            parts.append(":")
            key.append(slice(None))
            symbols.append(s)
        elif kind == 3 and n:
            at = b.number(-n, n - 1)
            parts.append(str(at))
            key.append(at)
        else:
            start, stop = b.number(-n - 1, n + 1), b.number(-n - 1, n + 1)
            step = b.pick((1, 1, 2, -1, -2, 3))
            texts = [str(start) if b.flag() else "", str(stop) if b.flag() else ""]
            parts.append(":".join([*texts, str(step)] if step != 1 else texts))
            first, last = (int(t) if t else None for t in texts)
            key.append(slice(first, last, step))
            symbols.append(None)
    if b.number(0, 4) == 0:
        parts.insert(0, "None")
        key.insert(0, None)
        symbols.insert(0, None)
    text = ", ".join(parts)
    b.add(f"{x}[{text}]", v.moved(lambda a: a[tuple(key)], tuple(symbols)))


def flipped(b: Builder) -> None:
    x, v = b.some(lambda v: bool(v.shape))
    axes = tuple(sorted({b.axis(v), b.axis(v)}))
    b.add(f"{x}.flip({', '.join(map(str, axes))})", v.moved(lambda a: np.flip(a, axes), v.symbols))


def rolled(b: Builder) -> None:
    x, v = b.some(lambda v: any(s is None for s in v.symbols))
    a = b.axis(v, lambda a: v.symbols[a] is None)
    n = b.number(-6, 6)
    if v.is_symbolic:
        raise Undecided("rolling beside a symbolic axis")
    b.add(f"{x}.roll({n}, {a})", v.moved(lambda m: np.roll(m, n, a)))


def repeated(b: Builder) -> None:
    x, v = b.some(lambda v: bool(v.shape) and fixed(v))
    if b.flag():
        counts = tuple(b.number(1, 2) for _ in v.shape)
        b.add(f"{x}.repeat({', '.join(map(str, counts))})", v.moved(lambda a: np.tile(a, counts)))
    else:
        a, n = b.axis(v), b.number(1, 3)
        b.add(f"{x}.repeat_interleave({n}, {a})", v.moved(lambda m: np.repeat(m, n, a)))


def joined(b: Builder) -> None:
    x, v = b.some(lambda v: bool(v.shape) and fixed(v))
    a = b.axis(v)
    parts = [(x, v)]
    for _ in range(b.number(1, 2)):
        same = [
            (n, w) for n, w in b.program.values.items()
            if fixed(w) and w.dtype is v.dtype and len(w.shape) == len(v.shape)
            and all(p == q for i, (p, q) in enumerate(zip(v.shape, w.shape)) if i != a)
        ]  # fmt: skip
        parts.append(b.pick(same) if b.number(0, 2) else b.input(v.dtype, _with(v.shape, a, b.number(0, 3))))
    names = ", ".join(n for n, _ in parts)
    spread = [np.broadcast_to(np.asarray(w.error, np.float64), w.shape) for _, w in parts]
    array = np.concatenate([w.array for _, w in parts], a)
    error = np.concatenate(spread, a) if v.is_float else 0.0
    if b.number(0, 3) == 0 and all(w.shape == v.shape for _, w in parts) and len(v.shape) < MOST_AXES:
        array = np.stack([w.array for _, w in parts], a)
        error = np.stack(spread, a) if v.is_float else 0.0
        b.add(f"Tensor.stack([{names}], dim={a})", ref.value(v.dtype, array, error))
    else:
        b.add(f"Tensor.cat([{names}], dim={b.plain(a, v)})", ref.value(v.dtype, array, error))


def _with(shape: tuple[int, ...], axis: int, n: int) -> tuple[int, ...]:
    return (*shape[:axis], n, *shape[axis + 1 :])


def taken(b: Builder) -> None:
    x, v = b.some(lambda v: bool(v.shape) and fixed(v))
    a = b.axis(v)
    indices = [n for n, w in b.program.values.items() if fixed(w) and w.dtype.is_int and len(w.shape) <= 2]
    if indices and b.flag():
        i = b.pick(indices)
        w = b.program.values[i]
    else:
        n, shape = v.shape[a], tuple(b.number(1, 3) for _ in range(b.number(0, 2)))
        i, w = b.given(
            dtypes.int32, f"np.int32(np.random.default_rng({b.number(0, 99)}).integers({-n - 1}, {n + 2}, {shape}))"
        )
    if w.dtype.bits < 8 and w.dtype.is_signed:
        raise Undecided("an index of few bits")
    key = ":, " * a + i
    text = f"{x}[{key}]" if b.flag() else f"{x}.take({i}, {a})"
    if v.array.size // max(1, v.shape[a]) * w.array.size > b.most_elements:
        raise Undecided("too large")  # by far, where both are
    b.add(text, ref.take(v, w, a))


def triangle(b: Builder) -> None:
    x, v = b.some(lambda v: len(v.shape) >= 2 and fixed(v))
    k, lower = b.number(-2, 2), b.flag()
    f = np.tril if lower else np.triu
    b.add(f"{x}.{'tril' if lower else 'triu'}({k})", v.moved(lambda a: f(a, k)))


def in_memory(b: Builder) -> None:
    x, v = b.some()
    b.add(f"{x}.contiguous(){b.pick(('', '.realize()')) if b.updates else ''}", v)


# -- symbolic sizes --------------------------------------------------------------------------------------------------
def symbolic_part(b: Builder) -> None:
    """A slice whose end, or both ends, a variable decides; or one element at a symbolic place."""
    if not b.symbolic:
        raise Undecided("no symbolic sizes wanted")
    x, v = b.some(lambda v: any(s is None and n > 1 for s, n in zip(v.symbols, v.shape)))
    a = b.axis(v, lambda a: v.symbols[a] is None and v.shape[a] > 1)
    n = v.shape[a]
    colons = ":, " * a
    kind = b.number(0, 3)
    if kind <= 1:
        name, at = b.variable(b.number(0, 1), n)
        symbols = (*v.symbols[:a], name, *v.symbols[a + 1 :])
        b.add(f"{x}[{colons}:{name}]", v.moved(lambda m: m.take(range(at), a), symbols))
    elif kind == 2:
        name, at = b.variable(0, n - 1)
        symbols = (*v.symbols[:a], *v.symbols[a + 1 :])
        b.add(f"{x}[{colons}{name}]", v.moved(lambda m: m.take(at, a), symbols))
    else:
        length = b.number(1, n)
        name, at = b.variable(0, n - length)
        b.add(
            f"{x}[{colons}{name} : {name} + {length}]", v.moved(lambda m: m.take(range(at, at + length), a), v.symbols)
        )


# -- updates in place ------------------------------------------------------------------------------------------------
def update(b: Builder) -> None:
    """A copy of a value, part of which is written; how long that part is, a variable may say."""
    if not b.updates:
        raise Undecided("no updates wanted")
    x, v = b.some(lambda v: bool(v.shape) and fixed(v) and v.array.size > 0)
    parts, key = [], []
    varying = b.pick(range(len(v.shape))) if b.symbolic and b.number(0, 3) == 0 else None
    for a, n in enumerate(v.shape):
        if a == varying:
            end, at = b.variable(0, b.number(1, n))
            parts.append(f":{end}")
            key.append(slice(0, at))
            continue
        if b.flag() or n < 2:
            parts.append(":")
            key.append(slice(None))
            continue
        start = b.number(0, n - 1)
        stop = b.number(start + 1, n)
        parts.append(f"{start}:{stop}")
        key.append(slice(start, stop))
    target = tuple(key)
    shape = v.array[target].shape
    source = b.number(0, 2) if varying is None else 0
    if source == 0:
        y, w = b.scalar(v.dtype)
    elif source == 1:
        y, w = b.input(v.dtype, tuple(n if b.flag() else 1 for n in shape))
    else:
        fitting = [
            (n, o) for n, o in b.program.values.items()
            if fixed(o) and o.dtype is v.dtype and len(o.shape) <= len(shape)
            and all(p in (1, q) for p, q in zip(o.shape[::-1], shape[::-1]))
        ]  # fmt: skip
        y, w = b.pick(fitting)
    array = v.array.copy()
    array[target] = w.array
    error = np.array(np.broadcast_to(np.asarray(v.error, np.float64), v.shape))
    error[target] = w.error
    name = b.add(f"{x}.contiguous().realize()", v)
    b.program.lines.append(f"{name}[{', '.join(parts)}] = {y}")
    b.program.values[name] = ref.value(v.dtype, array, error if v.is_float else 0.0)


PROPOSALS: list[Proposal] = [
    arithmetic, arithmetic, division, extremes, comparison, bitwise, unary, functions, rounding, casting, choice,
    choice, clamp, reduction, reduction, reduction, where_largest, normalised, product, reshaped, reshaped, permuted,
    expanded, padded, padded, sliced, sliced, flipped, rolled, repeated, joined, joined, taken, triangle, in_memory,
    symbolic_part, symbolic_part, update,
]  # fmt: skip
