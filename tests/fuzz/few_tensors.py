"""Random programs over one to three tensors that are used many times each.

A product of a tensor with itself, its transpose or a part of it, what is broadcast, gathered or convolved with itself,
reductions joined with what they reduce: there one tensor is several operands of a kernel, which programs over many
tensors hardly ever make. A program follows from a tuple of numbers (a seed among them) alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tests.fuzz import proposals as p
from tests.fuzz import reference as ref
from tests.fuzz.generator import Builder, Program
from tests.fuzz.reference import Undecided, Value, mismatch
from tinyweb.dtype import DType, dtypes

T = TypeVar("T")
TYPES = (*[dtypes.float32] * 6, dtypes.float16, dtypes.int8, dtypes.int32, dtypes.int32)
SIZES = (1, 2, 3, 5, 8, 13, 16, 17, 31, 32, 33, 48, 64, 65, 96, 100, 127, 128, 200, 255, 256, 257, 300, 384, 512, 1000,
         2000)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """How much one program may hold and compute."""

    elements: int = 1 << 18
    multiplications: int = 1 << 25
    lines: int = 6
    longest: int = 2000


class Few(Builder):
    """A program in the making, decided by NumPy's generator; only its first lines make tensors."""

    def __init__(self, numbers: tuple[int, ...], limits: Limits):
        self.chance = np.random.default_rng(numbers)
        self.limits = limits
        self.types, self.symbolic, self.updates, self.special = TYPES, False, True, False
        self.sizes = tuple(n for n in SIZES if n <= limits.longest)
        self.most_elements = limits.elements
        self.program = Program()
        self.open = True
        for _ in range(self.pick((1, 1, 1, 2, 2, 3))):
            self.input()
        self.open = False

    # -- choosing ----------------------------------------------------------------------------------------------------
    def pick(self, options: Sequence[T]) -> T:
        if not options:
            raise Undecided("nothing to choose from")
        return options[int(self.chance.integers(len(options)))]

    def number(self, low: int, high: int) -> int:
        return int(self.chance.integers(low, high, endpoint=True))

    def flag(self) -> bool:
        return bool(self.chance.integers(2))

    # -- inputs ------------------------------------------------------------------------------------------------------
    def shape(self) -> tuple[int, ...]:
        """Mostly matrices, often square; a long axis only where the others leave room."""
        rank = self.pick((0, 1, 1, 2, 2, 2, 2, 2, 3, 3, 4, 5))
        shape: tuple[int, ...] = ()
        for left in range(rank, 0, -1):
            room = self.limits.elements // max(1, math.prod(shape))
            if rank > 2:
                room = 5 if left > 2 else math.isqrt(room) if left == 2 else room
            shape += (self.pick([n for n in self.sizes if n <= room]),)
        if rank >= 2 and self.flag():
            n = min(self.pick(shape[-2:]), math.isqrt(self.limits.elements // max(1, math.prod(shape[:-2]))))
            shape = (*shape[:-2], n, n)
        return shape

    def numbers(self, dtype: DType, shape: tuple[int, ...]) -> str:
        """Few digits: products and their sums are exact, or nearly, in float32."""
        chance = f"np.random.default_rng({self.number(0, 9999)})"
        if dtype.is_float:
            return f"np.float32({chance}.integers(-8, 9, {shape}) / 8)"
        return f"np.{dtype.numpy.name}({chance}.integers(-9, 10, {shape}))"

    def input(self, dtype: DType | None = None, shape: tuple[int, ...] | None = None) -> tuple[str, Value]:
        if not self.open:
            raise Undecided("there are tensors enough")
        return super().input(dtype, shape)

    def given(self, dtype: DType, text: str) -> tuple[str, Value]:
        if not self.open:
            raise Undecided("there are tensors enough")
        return super().given(dtype, text)

    # -- a tensor and its like ---------------------------------------------------------------------------------------
    def like(self, x: str, v: Value, shape: tuple[int, ...]) -> tuple[str, Value]:
        """Something of that shape made of `x`: itself, turned over, transposed, a part of it."""
        ways: list[tuple[str, Callable[[np.ndarray], np.ndarray]]] = []
        if v.shape == shape:
            ways.append(("", lambda a: a))
            for axis in range(len(shape)):
                ways.append((f".flip({axis})", partial(np.flip, axis=axis)))
                n = self.number(1, 5)
                ways.append((f".roll({n}, {axis})", partial(np.roll, shift=n, axis=axis)))
        turned = (*v.shape[:-2], *v.shape[:-3:-1])
        if len(v.shape) >= 2 and turned == shape:
            ways += [(".transpose(-1, -2)", lambda a: a.swapaxes(-1, -2))] * 3
        for base, tail, f in ((v.shape, "", lambda a: a), (turned, ".transpose(-1, -2)", lambda a: a.swapaxes(-1, -2))):
            smaller = len(base) == len(shape) >= 1 and all(m <= n for m, n in zip(shape, base)) and base != shape
            if smaller and (not tail or len(base) >= 2):
                begin = [self.number(0, n - m) for m, n in zip(shape, base)]
                key = tuple(slice(i, i + m) for i, m in zip(begin, shape))
                text = ", ".join(f"{s.start}:{s.stop}" for s in key)
                ways.append((f"{tail}[{text}]", _part(f, key)))
        tail, way = self.pick(ways)
        return x + tail, v.moved(way)

    def works(self, steps: int) -> None:
        if steps > self.limits.multiplications:
            raise Undecided("too much work")


def _part(f: Callable[[np.ndarray], np.ndarray], key: tuple[slice, ...]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda a: f(a)[key]


# -- lines -----------------------------------------------------------------------------------------------------------
def matrix(v: Value) -> bool:
    return len(v.shape) >= 2 and v.array.size > 0 and p.is_number(v)


def scaled(b: Few, text: str, v: Value, k: int) -> None:
    """The line; sums of many floats are made smaller, so that what follows stays in range."""
    if v.is_float and k > 8 and b.flag():
        power = 2.0 ** -round(math.log2(k) / 2)
        text, v = f"({text}) * {power!r}", ref.multiply(v, ref.value(v.dtype, np.array(power)))
    b.add(text, v)


def self_product(b: Few) -> None:
    """x @ x, x @ x.T, x.T @ x, of parts of it, of what was made of it."""
    x, v = b.some(matrix)
    a, left = (x, v) if b.flag() else (f"{x}.transpose(-1, -2)", v.moved(lambda m: m.swapaxes(-1, -2)))
    k, m = left.shape[-1], left.shape[-2]
    widths = {n for n in (m, k, *v.shape[-2:]) if n} | {b.number(1, max(m, k))}
    y, w = (x, v) if b.number(0, 3) else b.some(matrix)
    if w.dtype is not v.dtype or w.shape[:-2] != v.shape[:-2]:
        raise Undecided("no such product")
    n = b.pick(sorted(widths))
    b.works(math.prod(left.shape) * n)
    c, right = b.like(y, w, (*left.shape[:-2], k, n))
    scaled(b, f"{a} @ {c}", ref.matmul(left, right), k)


def einsum(b: Few) -> None:
    x, v = b.some(lambda v: len(v.shape) == 2 and matrix(v))
    m, k = v.shape
    which, (f, g) = b.pick(
        (
            ("ij,kj->ik", (lambda a: a, np.transpose)), ("ij,ik->jk", (np.transpose, lambda a: a)),
            ("ij,jk->ik", (lambda a: a, lambda a: a)), ("ij,ij->i", (None, None)), ("ij,ij->", (None, None)),
        )
    )  # fmt: skip
    if f is None:
        square = ref.multiply(v, v)
        axes = (1,) if which == "ij,ij->i" else (0, 1)
        r = ref.total(square, axes, False)
        scaled(b, f'Tensor.einsum("{which}", {x}, {x})', ref.cast(r, v.dtype), m * k)
        return
    if which == "ij,jk->ik" and m != k:
        raise Undecided("no square")
    left, right = v.moved(f), v.moved(g)
    b.works(math.prod(left.shape) * right.shape[-1])
    scaled(b, f'Tensor.einsum("{which}", {x}, {x})', ref.matmul(left, right), left.shape[-1])


def three_times(b: Few) -> None:
    """x @ x @ x, x @ x + x, (x @ x.T) @ x."""
    x, v = b.some(lambda v: matrix(v) and v.shape[-1] == v.shape[-2])
    n = v.shape[-1]
    b.works(v.array.size * n)
    squared = ref.matmul(v, v)
    kind = b.number(0, 3)
    if kind == 0:
        scaled(b, f"{x} @ {x} @ {x}", ref.matmul(squared, v), n * n)
    elif kind == 1:
        scaled(b, f"{x} @ {x} + {x}", ref.add(squared, v), n)
    elif kind == 2:
        turned = v.moved(lambda a: a.swapaxes(-1, -2))
        scaled(b, f"{x} @ {x}.transpose(-1, -2) * {x}", ref.multiply(ref.matmul(v, turned), v), n)
    else:
        scaled(b, f"({x} @ {x}) @ ({x} @ {x})", ref.matmul(squared, squared), n * n)


def vector_product(b: Few) -> None:
    """A matrix by one of its rows, a row by the matrix, an outer product."""
    x, v = b.some(lambda v: len(v.shape) == 2 and matrix(v))
    i = b.number(0, v.shape[0] - 1)
    row = v.moved(lambda a: a[i])
    kind = b.number(0, 2)
    if kind == 0:
        r = ref.matmul(v, row.moved(lambda a: a[:, None])).moved(lambda a: a[:, 0])
        scaled(b, f"{x} @ {x}[{i}]", r, v.shape[1])
    elif kind == 1:
        r = ref.matmul(row.moved(lambda a: a[None]), v.moved(np.transpose)).moved(lambda a: a[0])
        scaled(b, f"{x}[{i}] @ {x}.T", r, v.shape[1])
    else:
        other = b.number(0, v.shape[0] - 1)
        r = ref.multiply(row.moved(lambda a: a[:, None]), v.moved(lambda a: a[other][None]))
        b.add(f"{x}[{i}].unsqueeze(1) * {x}[{other}].unsqueeze(0)", r)


def with_itself(b: Few) -> None:
    """Elementwise work on a tensor and what has its shape, or broadcasts to it."""
    x, v = b.some(lambda v: bool(v.shape) and v.array.size > 0 and p.is_number(v))
    if b.flag():
        y, w = b.like(x, v, v.shape)
    else:
        keep = tuple(n if b.flag() else 1 for n in v.shape)
        y, w = b.like(x, v, keep)
    sign = b.pick(("+", "-", "*", "maximum", "minimum"))
    if sign == "*":
        b.add(f"{x} * {y}", ref.multiply(v, w))
    elif sign in "+-":
        b.add(f"{x} {sign} {y}", ref.add(v, w, -1 if sign == "-" else 1))
    else:
        b.add(f"{x}.{sign}({y})", ref.extreme(v, w, sign == "maximum"))


def joined_reduction(b: Few) -> None:
    """A reduction beside what it reduces: centred, divided by its norm, weighted."""
    x, v = b.some(lambda v: v.is_float and bool(v.shape) and v.array.size > 0)
    a = b.axis(v)
    kind = b.number(0, 3)
    if kind == 0:
        b.add(f"{x} - {x}.mean({a}, keepdim=True)", ref.add(v, ref.total(v, (a,), True, mean=True), -1))
    elif kind == 1:
        one = ref.value(v.dtype, np.array(1.0))
        norm = ref.add(ref.total(ref.multiply(v, v), (a,), True), one)
        root = ref.function(norm, np.sqrt, lambda n: 1 / np.sqrt(n), 2)
        b.add(f"{x} / (({x} * {x}).sum({a}, keepdim=True) + 1.0).sqrt()", ref.divide(v, root))
    elif kind == 2:
        b.add(f"{x} - {x}.max({a}, keepdim=True)", ref.add(v, ref.extremum(v, (a,), True, True), -1))
    else:
        r = ref.total(ref.multiply(v, ref.extremum(v, (a,), True, False)), (a,), False)
        b.add(f"({x} * {x}.min({a}, keepdim=True)).sum({a})", r)


def attention(b: Few) -> None:
    """softmax(x @ x.T) @ x."""
    x, v = b.some(lambda v: v.dtype is dtypes.float32 and matrix(v) and np.abs(v.array).max() < 3)
    n, k = v.shape[-2:]
    b.works(2 * v.array.size * n)
    scale = 2.0 ** -math.ceil(math.log2(k + 1))
    turned = v.moved(lambda a: a.swapaxes(-1, -2))
    scores = ref.multiply(ref.matmul(v, turned), ref.value(v.dtype, np.array(scale)))
    text = f"({x} @ {x}.transpose(-1, -2) * {scale!r}).softmax(-1) @ {x}"
    b.add(text, ref.matmul(ref.softmax(scores, -1), v))


def convolution(b: Few) -> None:
    """A tensor with a part of itself as the kernel."""
    x, v = b.some(lambda v: len(v.shape) == 4 and v.array.size > 0 and v.dtype in (dtypes.float32, dtypes.int32))
    _, c, h, w = v.shape
    o, kh, kw = b.number(1, v.shape[0]), b.number(1, min(h, 3)), b.number(1, min(w, 3))
    b.works(v.array.size * o * kh * kw)
    part = v.moved(lambda a: a[:o, :, :kh, :kw])

    def convolved(f: Value, g: Value) -> Value:
        windows = f.moved(lambda a: np.lib.stride_tricks.sliding_window_view(a, (kh, kw), (2, 3)))
        rows = windows.moved(lambda a: a.transpose(0, 2, 3, 1, 4, 5).reshape(-1, c * kh * kw))
        shape = (v.shape[0], h - kh + 1, w - kw + 1, o)
        product = ref.matmul(rows, g.moved(lambda a: a.reshape(o, -1).T))
        return product.moved(lambda a: a.reshape(shape).transpose(0, 3, 1, 2))

    scaled(b, f"{x}.conv2d({x}[:{o}, :, :{kh}, :{kw}])", convolved(v, part), c * kh * kw)


def gather(b: Few) -> None:
    """Elements of a tensor where its own values say."""
    x, v = b.some(lambda v: v.dtype is dtypes.int32 and 1 <= len(v.shape) <= 2 and v.array.size > 0)
    n = v.shape[0]
    modulus = ref.value(v.dtype, np.array(n))
    index = ref.floor_division(v, modulus, True)
    if len(v.shape) == 2:
        index = index.moved(lambda a: a[0])
        b.add(f"{x}[({x} % {n})[0]]", ref.take(v, index, 0))
    else:
        b.add(f"{x}[{x} % {n}]", ref.take(v, index, 0))


def largest_place(b: Few) -> None:
    """The rows that the largest values of a column point at."""
    x, v = b.some(lambda v: len(v.shape) == 2 and v.array.size > 0 and p.is_number(v))
    b.add(f"{x}[{x}.argmax(0)]", ref.take(v, ref.position(v, 0, True), 0))


def self_update(b: Few) -> None:
    """A copy of a tensor takes what is computed from itself in place."""
    x, v = b.some(lambda v: bool(v.shape) and v.array.size > 0 and p.is_number(v))
    kind = b.number(0, 3)
    if kind == 0 and matrix(v) and v.shape[-1] == v.shape[-2]:
        b.works(v.array.size * v.shape[-1])
        name = b.add(f"{x}.contiguous().realize()", v)
        line, r = f"{name} += {name} @ {name}", ref.add(v, ref.matmul(v, v))
    elif kind == 1 and v.shape[0] >= 2:
        half = v.shape[0] // 2
        array, error = v.array.copy(), np.array(ref._spread(v)) if v.is_float else 0.0
        array[:half] = v.array[-half:]
        if v.is_float:
            error[:half] = ref._spread(v)[-half:]
        name = b.add(f"{x}.contiguous().realize()", v)
        line, r = f"{name}[:{half}] = {name}[-{half}:]", ref.value(v.dtype, array, error)
    elif kind == 2:
        name = b.add(f"{x}.contiguous().realize()", v)
        line, r = f"{name} *= {name}.flip(0)", ref.multiply(v, v.moved(lambda a: np.flip(a, 0)))
    else:
        y, w = b.like("{}", v, v.shape)
        name = b.add(f"{x}.contiguous().realize()", v)
        line, r = f"{name} -= {y.format(name)}", ref.add(v, w, -1)
    b.program.lines.append(line)
    b.program.values[name] = r


def permuted(b: Few) -> None:
    x, v = b.some(lambda v: len(v.shape) > 1)
    order = tuple(int(i) for i in b.chance.permutation(len(v.shape)))
    b.add(f"{x}.permute({', '.join(map(str, order))})", v.moved(lambda a: a.transpose(order)))


PROPOSALS: tuple[Callable[[Any], object], ...] = (
    *[self_product] * 6, *[einsum] * 2, *[three_times] * 2, *[vector_product] * 2, *[with_itself] * 4,
    *[joined_reduction] * 3, *[attention] * 2, *[convolution] * 3, *[gather] * 2, largest_place, *[self_update] * 2,
    permuted, p.arithmetic, p.reduction, p.reduction, p.normalised, p.reshaped, p.sliced, p.flipped, p.joined,
    p.repeated, p.padded, p.taken, p.triangle, p.in_memory, p.unary, p.where_largest, p.functions,
)  # fmt: skip


def program(numbers: tuple[int, ...], limits: Limits) -> Program:
    """The program that these numbers stand for: at least one line, up to three outputs, the last value among them."""
    for attempt in range(100):
        b = Few((*numbers, attempt), limits)
        wanted = b.number(1, limits.lines)
        for _ in range(4 * wanted):
            if len(b.program.lines) >= wanted:
                break
            made = b.program
            before = (len(made.lines), dict(made.values))
            try:
                with np.errstate(all="ignore"):
                    b.pick(PROPOSALS)(b)
            except Undecided:
                del made.lines[before[0] :]
                made.values = before[1]
        if b.program.lines:
            names = list(b.program.values)
            outputs = {names[-1], *(b.pick(names) for _ in range(b.number(0, 2)))}
            b.program.outputs = [n for n in names if n in outputs]
            return b.program
    raise AssertionError(f"{numbers} stand for no program")


# -- checking --------------------------------------------------------------------------------------------------------
def check_all(programs: Sequence[Program], device: str) -> None:
    """Computes the programs together, their kernels compiled as one; AssertionError with the script of a wrong one."""
    from tinyweb import Tensor

    scopes: list[dict[str, Any]] = []
    for made in programs:
        try:
            scopes.append(made.scope(device))
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}\n\n{made.text(device)}\n") from error
    outputs = [scope[name] for made, scope in zip(programs, scopes) for name in made.outputs]
    try:
        Tensor.realize(*outputs)
    except Exception:
        for made in programs:  # which one was it?
            try:
                made.run(device)
            except Exception as error:
                raise AssertionError(f"{type(error).__name__}: {error}\n\n{made.text(device)}\n") from error
        raise
    for made, scope in zip(programs, scopes):
        for name in made.outputs:
            want = made.values[name]
            assert scope[name].dtype is want.dtype, f"{scope[name].dtype.name}\n\n{made.text(device)}\n"
            wrong = mismatch(scope[name].numpy(), want)
            assert wrong is None, f"{name} on {device}: {wrong}\n\n{made.text(device)}\n"
