"""Families of kernels of all sizes: for what is asked of many kernels and runs none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

from tests.fuzz.kernels import random_kernel
from tests.graph.lower.hand_kernels import BY_NAME, axes, dots, kernel, param, reduce, total
from tinyweb import Tensor, Variable
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.target import Target, cpu_target, interpreter_target, wasm_target, webgpu_target
from tinyweb.tracing import capture

TARGETS: dict[str, Target] = {
    "cpu": cpu_target(8, 4),
    "cpu16": cpu_target(16, 2),
    "alone": cpu_target(4, 1),
    "wasm": wasm_target(4),
    "webgpu": webgpu_target(),
    "subgroups": webgpu_target(subgroups=True, shared_bytes=32768),
    "interpreter": interpreter_target(),
}
PROCESSORS = ("cpu", "cpu16", "alone", "wasm")
F16, F32, I4, I8, I16 = dtypes.float16, dtypes.float32, dtypes.int4, dtypes.int8, dtypes.int16
AROUND = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 36, 40, 63, 64, 65, 96, 127, 128, 129, 200, 256, 257)


def last(make: Callable[[], Tensor]) -> UOp:
    """The last kernel of what it takes to realize the tensor."""
    return capture(lambda: make().realize()).calls[-1].kernel


def empty(*shape: int, dtype: DType = F32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype)


# -- no reduction ------------------------------------------------------------------------------------------------
def elementwise(*shape: int, dtype: DType = F32, out: DType = F32, in_place: bool = False) -> UOp:
    size = 1
    at = UOp.const(0, dtypes.index)
    for r, n in zip(axes(*shape), shape):
        at, size = at * n + r, size * n
    p = param(0, size, out)
    value = param(1, size, dtype).load(at).cast(out)
    return kernel(p.store(at, p.load(at) + value if in_place else value))


def transposed(rows: int, columns: int, dtype: DType = F32) -> UOp:
    i, j = axes(rows, columns)
    value = param(1, rows * columns, dtype).load(j * rows + i).cast(F32)
    return kernel(param(0, rows * columns).store(i * columns + j, value))


def chased(rows: int, links: int) -> UOp:
    """Loads that wait for each other."""
    (i,) = axes(rows)
    p, at = param(1, rows, dtypes.int32), i
    for _ in range(links):
        at = p.load(at.maximum(0)).cast(dtypes.index)
    return kernel(param(0, rows, dtypes.int32).store(i, at.cast(dtypes.int32)))


def symbolic_rows(columns: int, most: int = 64) -> UOp:
    n = Variable("n", 1, most)
    i, j = axes(n, columns)
    return kernel(param(0, most * columns).store(i * columns + j, param(1, most * columns).load(i * columns + j) + 1.0))


# -- reductions --------------------------------------------------------------------------------------------------
def row_sums(rows: int, columns: int, dtype: DType = F32, op: Ops = Ops.ADD) -> UOp:
    (i,), (r,) = axes(rows), axes(columns, reduce=True, first=1)
    value = param(1, rows * columns, dtype).load(i * columns + r).cast(F32)
    return kernel(param(0, rows).store(i, reduce(op, value, r)))


def column_sums(rows: int, columns: int, in_place: bool = False) -> UOp:
    (i,), (r,) = axes(columns), axes(rows, reduce=True, first=1)
    out, value = param(0, columns), total(param(1, rows * columns).load(r * columns + i), r)
    return kernel(out.store(i, out.load(i) + value if in_place else value))


def product_of(
    m: int, k: int, n: int, form: str = "nn", a: DType = F32, b: DType = F32, in_place: bool = False, terms: int = 1
) -> UOp:
    """A product of matrices, either transposed (`form`: n, t), of `terms` second operands at once."""
    i, j = axes(m, n)
    (r,) = axes(k, reduce=True, first=2)
    left = param(1, m * k, a).load(i * k + r if form[0] == "n" else r * m + i).cast(F32)
    at, out = i * n + j, param(0, m * n)
    value = UOp.const(0.0, F32)
    for t in range(terms):
        right = param(2 + t, k * n, b).load(r * n + j if form[1] == "n" else j * k + r).cast(F32)
        sum_ = total(left * right, r)
        value = sum_ if t == 0 else value.maximum(0.0) * sum_
    return kernel(out.store(at, out.load(at) + value if in_place else value))


def batched(b: int, m: int, k: int, n: int) -> UOp:
    return last(lambda: empty(b, m, k) @ empty(b, k, n))


def convolution(batch: int, channels: int, size: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> UOp:
    x, w = empty(batch, channels, size, size), empty(out, channels // groups, kernel, kernel)
    return last(lambda: x.conv2d(w, stride=stride, padding=kernel // 2, groups=groups).relu())


def symbolic_product(k: int, n: int, most: int = 64, rows: bool = True) -> UOp:
    """With a variable number of rows, or of steps."""
    v = Variable("n", 1, most)
    m, steps = (v, k) if rows else (8, v)
    i, j = axes(m, n)
    (r,) = axes(steps, reduce=True, first=2)
    value = total(
        param(1, most * 64 * 64).load(i * (k if rows else most) + r) * param(2, most * 64 * 64).load(r * n + j), r
    )
    return kernel(param(0, most * n * 8).store(i * n + j, value))


def grouped(
    tokens: int,
    outputs: int,
    groups: int,
    steps: int,
    weights: DType = I4,
    x: DType = I8,
    terms: int = 1,
    dear: bool = False,
) -> UOp:
    """Integer products summed exactly in groups, the groups scaled and added up."""
    (i, j), (g, r) = axes(tokens, outputs), axes(groups, steps, reduce=True, first=2)
    length, value = groups * steps, UOp.const(1.0, F32)
    for t in range(terms):
        a = param(3 + 2 * t, outputs * length, weights).load(j * length + g * steps + r).cast(dtypes.int32)
        b = param(1, tokens * length, x).load(i * length + g * steps + r).cast(dtypes.int32)
        scale = param(4 + 2 * t, outputs * groups, F16).load(j * groups + g).cast(F32)
        value = value * total(total(a * b, r).cast(F32) * scale * param(2, tokens * groups).load(i * groups + g), g)
    value = value.alu(Ops.EXP2) if dear else value
    return kernel(param(0, tokens * outputs).store(i * outputs + j, value))


def floats_in_groups(tokens: int, outputs: int, groups: int, weights: DType) -> UOp:
    """Weights of few bits with a scale for each group, converted before they are multiplied."""
    (i, j), (g, r) = axes(tokens, outputs), axes(groups, 32, reduce=True, first=2)
    length = groups * 32
    weight = param(1, outputs * length, weights).load(j * length + g * 32 + r).cast(F32)
    scale = param(2, outputs * groups, F16).load(j * groups + g).cast(F32)
    value = total(total(weight * param(3, tokens * length).load(i * length + g * 32 + r), r) * scale, g)
    return kernel(param(0, tokens * outputs).store(i * outputs + j, value))


def attention(heads: int, rows: int, keys: int, width: int, columns: int, causal: bool = False) -> UOp:
    q, k, v = empty(1, heads, rows, width), empty(1, heads, keys, width), empty(1, heads, keys, columns)
    return last(lambda: q.scaled_dot_product_attention(k, v, is_causal=causal))


def computed_queries(heads: int, rows: int, keys: int, width: int, columns: int) -> UOp:
    """Of queries that take work, which each key would repeat."""
    q, k, v = empty(1, heads, rows, width), empty(1, heads, keys, width), empty(1, heads, keys, columns)
    return last(lambda: ((q * 0.5).exp() @ k.transpose(-1, -2)).softmax(-1) @ v)


def shared_results(number: int) -> UOp:
    """Two sums whose threads exchange more results than shared memory holds."""
    return random_kernel((77, number))


def chained(rows: int, outer: int, inner: int) -> UOp:
    """A sum of maxima over an inner axis, and their sum beside it."""
    (i,), (r, s) = axes(rows), axes(outer, inner, reduce=True, first=1)
    value = param(1, rows * outer * inner).load((i * outer + r) * inner + s)
    both = total(reduce(Ops.MAX, value, s), r) + total(value, r, s)
    return kernel(param(0, rows).store(i, both))


def nested_attention(a: int, b: int, c: int, rows: int, keys: int, width: int) -> UOp:
    """Of queries in three groups inside each other that share keys."""
    q, k, v = empty(a, b, c, rows, width), empty(a, b, 1, keys, width), empty(a, b, 1, keys, width)
    return last(
        lambda: (
            (q.permute(1, 0, 2, 3, 4).contiguous() @ k.transpose(0, 1).transpose(-1, -2)).softmax(-1)
            @ v.transpose(0, 1)
        )
    )


Sized = tuple[str, Callable[[], UOp]]


def many(function: Callable[..., UOp], *sizes: tuple[object, ...] | int, **options: object) -> Iterator[Sized]:
    """A kernel of each of the sizes."""
    for given in sizes:
        size = given if isinstance(given, tuple) else (given,)
        texts = [
            *map(str, size),
            *(f"{k}={v if isinstance(v, int | str) else getattr(v, 'name', v)}" for k, v in options.items()),
        ]
        yield f"{function.__name__}({', '.join(texts)})", partial(function, *size, **options)


def family(*parts: Iterator[Sized]) -> dict[str, Callable[[], UOp]]:
    return {name: make for part in parts for name, make in part}


LARGE = (1000, 4096, 8192, 16384, 32767, 32768, 32769, 40000, 131072)
SQUARE = (8, 15, 16, 31, 32, 33, 64, 80, 128, 200, 256, 300, 512, 1000)
FAMILIES: dict[str, dict[str, Callable[[], UOp]]] = {
    "elementwise": family(
        many(elementwise, *AROUND, *LARGE),
        many(elementwise, *product((3, 100), (5, 16, 36, 300)), (2, 3, 1000), (32, 1, 32, 32), (3, 5, 7, 9)),
        many(elementwise, 9, 64, 100, 40000, dtype=F16), many(elementwise, 9, 64, 100, 40000, out=I8),
        many(elementwise, 9, 64, 100, 40000, in_place=True), many(elementwise, 64, 1000, dtype=dtypes.float64),
        many(elementwise, 64, 65600, dtype=I8, out=I4), many(transposed, *product((5, 64, 320), (7, 32, 512))),
        many(chased, (64, 3), (64, 6), (64, 7)), many(symbolic_rows, 1, 3, 8, 33, 64, 1024),
    ),
    "sums": family(
        many(row_sums, *product((1, 3, 64, 513), (1, 7, 16, 37, 100, 256, 1000, 4096)), (1, 65536), (16384, 16)),
        many(row_sums, (64, 1000), (3, 31), (1, 8192), op=Ops.MAX), many(row_sums, (64, 1000), (1, 512), dtype=F16),
        many(row_sums, (32, 64), (32, 1024), dtype=I8), many(row_sums, (32, 64), (32, 1024), dtype=I4),
        many(column_sums, *product((8, 9, 64, 1000), (64, 96, 128, 256, 500, 2048))),
        many(column_sums, (4095, 8), (8192, 128), (8200, 128), (512, 4096), (256, 128), (248, 128)),
        many(column_sums, (64, 128), (1000, 2048), in_place=True),
    ),
    "products": family(
        many(product_of, *((n, n, n) for n in SQUARE)),
        *(many(product_of, (64, 64, 64), (37, 129, 65), (300, 260, 16), (96, 2048, 48), form=f)
          for f in ("nt", "tn", "tt")),
        many(product_of, *product((1, 2, 3, 6), (64, 517), (48, 1024)), form="nt"),
        many(product_of, *product((1, 2, 5, 16), (64,), (32, 100, 512)), (1, 1024, 4096), (4, 1024, 512)),
        many(product_of, (32, 31, 32), (16, 64, 31), (512, 512, 512), (1000, 40, 30), in_place=True),
    ),
    "mixed products": family(
        many(product_of, *product((1, 4, 64), (256, 1000), (64, 768)), form="nt", b=F16),
        many(product_of, *product((1, 64), (256,), (64, 768)), form="nt", b=I8),
        many(product_of, (70, 300, 90), (1, 512, 512), b=dtypes.bfloat16),
        many(product_of, (1, 24, 64), (1, 512, 352), (4, 256, 64), (64, 256, 352), form="nt", terms=2),
        many(product_of, (64, 256, 352), (128, 64, 64), terms=3),
        many(batched, (3, 70, 300, 90), (8, 16, 64, 16), (2, 128, 128, 128), (12, 1, 64, 50), (5, 4, 4, 4)),
        many(symbolic_product, (64, 64), (64, 10), (100, 48), (2, 3)),
        many(symbolic_product, (64, 64), (64, 10), (100, 48), rows=False),
    ),
    "convolutions": family(
        many(convolution, *((1, c, s, o, k) for c, s, o, k in product((16,), (10, 20, 28), (8, 40), (1, 3)))),
        many(convolution, (2, 24, 28, 40, 3, 2), (1, 3, 28, 32, 7, 2), (2, 64, 5, 64, 3), (1, 64, 22, 64, 3)),
        many(convolution, (1, 64, 12, 64, 3), (1, 128, 7, 256, 1), (1, 32, 20, 32, 3, 1, 32), (1, 24, 16, 40, 3, 1, 4)),
    ),
    "rows": family(
        *((iter([(f"{name}{size}", partial(last, partial(make, *size)))])) for name, make, sizes in (
            ("softmax", lambda m, n: empty(m, n).softmax(-1), tuple(product((1, 6, 128), (13, 64, 500, 4096, 40000)))),
            ("layer norm", lambda m, n: empty(m, n).layer_norm(n), tuple(product((1, 64, 300), (20, 256, 768)))),
            ("columns", lambda m, n: empty(m, n).softmax(0), ((40, 6), (512, 64), (100, 100))),
            ("everything", lambda m, n: empty(m, n).max(), ((6, 11), (64, 1024), (1000, 1000))),
            ("argmax", lambda m, n: empty(m, n).argmax(-1), ((5, 26), (1, 4096), (64, 512))),
            ("pooling", lambda c, n: empty(1, c, n, n).max_pool2d(2), ((16, 32), (3, 10))),
            ("deviation", lambda m, n: empty(m, n).std(-1), ((4, 64), (64, 1000))),
        ) for size in sizes),
        many(shared_results, 5077),
    ),
    "dots": family(
        many(grouped, *product((1, 4, 31, 64), (12, 64, 352), (3, 8), (32,)), weights=I8),
        many(grouped, *product((1, 31, 32, 64), (12, 48, 352), (4,), (32,)), (33, 40, 4, 64), weights=I8, x=I16),
        many(grouped, (1, 64, 4, 32), (64, 64, 4, 32), (64, 512, 2, 64), weights=I4, x=I16),
        many(grouped, (1, 64, 4, 16), (4, 64, 4, 128), (4, 64, 4, 20), (1, 64, 4, 256), (2, 40, 5, 6), weights=I8),
        many(grouped, (1, 352, 4, 32), (1, 350, 4, 32), (1, 1024, 8, 32), (8, 64, 4, 32), weights=I8, dear=True),
        many(grouped, (1, 352, 4, 32), (8, 64, 4, 32), (64, 64, 4, 32), weights=I8, terms=2),
        many(grouped, (64, 64, 4, 32), (64, 352, 4, 32), weights=I8, x=I16, terms=2),
        *(iter([(f"dots {n} {o} {g} {d.name}", partial(lambda *of: dots(*of).kernel, d, n, o, g))])
          for d, n, o, g in product((I8, I4), (1, 2, 40), (12, 352), (3, 4, 8))),
    ),
    "quantised": family(
        *(iter([(f"quantised {n} {o} {g} {d.name}", partial(floats_in_groups, n, o, g, d))])
          for n, o, g, d in product((1, 4, 64), (64, 352), (4, 16), (I4, I8))),
    ),
    "attention": family(
        many(attention, *((h, m, n, w, w) for h, m, n, w in product((1, 4), (1, 2, 6, 64), (7, 64, 300), (8, 24, 64)))),
        many(attention, (2, 3, 43, 16, 32), (2, 64, 77, 40, 80), (1, 5, 7, 6, 10), (2, 128, 128, 96, 160)),
        many(attention, (12, 256, 256, 64, 64), (1, 64, 64, 4, 1), (1, 64, 64, 3, 2), (1, 16, 4096, 64, 256)),
        many(attention, (2, 16, 64, 16, 264), (16, 1024, 1024, 32, 32), (8, 33, 64, 32, 48)),
        many(nested_attention, (2, 3, 5, 4, 40, 8), (2, 2, 2, 16, 64, 32)),
        many(attention, (2, 64, 64, 32, 32, True), (2, 7, 100, 16, 16, True)),
        many(computed_queries, (2, 6, 40, 8, 16), (1, 1, 300, 64, 64), (2, 64, 70, 32, 32)),
    ),
    "others": {name: partial(lambda c: c.kernel, case) for name, case in BY_NAME.items()},
}  # fmt: skip
