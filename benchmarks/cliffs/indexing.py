"""Scans, sorts, gathers and scatters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.nn import functional

from benchmarks.cliffs.work import Array, Inputs, Needs, Work, alike, distinct, needs, normal


def works() -> Iterator[Work]:
    yield from scans()
    yield from sorts()
    yield from gathers()
    yield from scatters()


def scans() -> Iterator[Work]:
    rows, count = normal((200, 5000)), 200 * 5000

    def near_one(random: np.random.Generator) -> Sequence[Array]:
        return [np.exp(0.01 * random.standard_normal((200, 5000), dtype=np.float32))]

    yield alike("cumsum-200x5000", rows, lambda x: x.cumsum(1), needs(count))
    yield alike("cumsum-axis-0", normal((5000, 200)), lambda x: x.cumsum(0), needs(count))
    # one row, computed side by side: size + depth ≥ 2n - 2 (Snir, Depth-size trade-offs for parallel prefix, 1986)
    yield alike("cumsum-1m", normal((1 << 20,)), lambda x: x.cumsum(0), needs(2 << 20))
    yield alike("cumsum-short", normal((20000, 50)), lambda x: x.cumsum(1), needs(count))
    yield alike("cumprod-200x5000", near_one, lambda x: x.cumprod(1), needs(count), tolerance=1e-4)
    yield alike(
        "cummax-200x5000",
        rows,
        lambda x: tuple(x.cummax(1)),
        needs(2 * count, nan_choice=count),
        beyond="positions are two comparisons (NaN is one) and a choice in blocks of 256 elements, 5120 for 5000, and "
        "a running maximum of what is chosen",
    )
    yield alike(
        "logcumsumexp",
        normal((200, 1000)),
        lambda x: x.logcumsumexp(1),
        needs(3 * 200_000, max=200_000, exp=200_000, log=200_000),
    )
    yield alike("diff", rows, lambda x: x.diff(), needs(200 * 4999))


PAIRS = (
    "the first elements of blocks are compared with each other in pairs, side by side: the comparisons of a tournament "
    "are fewer, but come one after the other, with a launch for each round"
)
BITS = (
    "for each bit of the key all others are compared with it, in a few launches: which of them still matter depends on "
    "the data, as the size of no launch does"
)
COUNTS = (
    "the counts of 256 digits are added up for rows of 100: fewer digits would be more passes, of five launches each"
)


def sorts() -> Iterator[Work]:
    def ordered(rows: int, width: int) -> Needs:
        """Comparisons: log₂ n! of them are n · log₂ n, but for a part of n (Knuth, The Art of Computer Programming,
        volume 3, 5.3.1). No comparison of floats puts NaN behind everything: keys that are integers do."""
        return needs(rows * width * math.log2(width), key=rows * width)

    def selected(rows: int, width: int, k: int) -> Needs:
        """Comparisons that find the first k in order, of maxima (Kislitsyn; Knuth, 5.3.3)."""
        return needs(max=rows * (width - k + (k - 1) * math.ceil(math.log2(width - k + 2))))

    yield alike("sort-10000", distinct(10_000), lambda x: x.sort()[0], ordered(1, 10_000))
    yield alike("sort-1000x100", distinct(1000, 100), lambda x: x.sort(-1)[0], ordered(1000, 100), beyond=COUNTS)
    yield alike("sort-axis-0", distinct(1000, 64), lambda x: x.sort(0)[0], ordered(64, 1000))
    yield alike("argsort-10000", distinct(10_000), lambda x: x.argsort(), ordered(1, 10_000))
    yield alike("argsort-64x1003", distinct(64, 1003), lambda x: x.argsort(-1), ordered(64, 1003))
    for k, rows, width in ((8, 1, 10_000), (8, 32, 1000), (50, 1, 32_000)):
        yield alike(
            f"topk-{k}-of-{width if rows == 1 else f'{rows}x{width}'}",
            distinct(width) if rows == 1 else distinct(rows, width),
            lambda x, k=k: tuple(x.topk(k)),
            selected(rows, width, k),
            beyond=PAIRS,
        )
    # selection compares about 1.5 n times (Floyd and Rivest, Expected Time Bounds for Selection, 1975)
    count = 200 * 1003
    yield alike(
        "median-1003", distinct(200, 1003), lambda x: x.median(-1)[0], needs(1.5 * count, key=count), beyond=BITS
    )


def rows_of(table: Sequence[int], indices: Sequence[int], limit: int) -> Inputs:
    """A table of numbers, and places in one of its axes."""
    return lambda random: [
        random.standard_normal(tuple(table), dtype=np.float32),
        random.integers(0, limit, tuple(indices), np.int64),
    ]


def gathers() -> Iterator[Work]:
    yield Work(
        "embedding-32000x768",
        rows_of((32_000, 768), (4, 128), 32_000),
        lambda t, i: t.embedding(i),
        lambda t, i: functional.embedding(i, t),
        needs(),
    )
    yield Work(
        "embedding-sum",
        rows_of((10_000, 64), (1000, 20), 10_000),
        lambda t, i: t.embedding(i).sum(1),
        lambda t, i: functional.embedding(i, t).sum(1),
        needs(1000 * 20 * 64),
    )
    yield alike("gather-axis-1", rows_of((1000, 1003), (1000, 200), 1003), lambda x, i: x.gather(1, i), needs())
    yield alike("gather-axis-0", rows_of((1003, 1000), (200, 1000), 1003), lambda x, i: x.gather(0, i), needs())
    yield alike("index-select-columns", rows_of((1000, 1003), (500,), 1003), lambda x, i: x.index_select(1, i), needs())
    yield alike("index-rows", rows_of((5000, 256), (3000,), 5000), lambda x, i: x[i], needs())
    yield alike(
        "index-rows-gelu",
        rows_of((5000, 256), (3000,), 5000),
        lambda x, i: x[i].tanh() * 2,
        needs(3000 * 256, tanh=3000 * 256),
    )
    yield alike(
        "one-hot-product", rows_of((1000, 64), (512,), 1000), lambda x, i: x[i] @ x.T, needs(2 * 512 * 64 * 1000)
    )


def scatters() -> Iterator[Work]:
    def added(target: int, count: int, width: int) -> Inputs:
        return lambda random: [
            random.standard_normal((target, width), dtype=np.float32),
            random.integers(0, target, count, np.int64),
            random.standard_normal((count, width), dtype=np.float32),
        ]

    def placed(random: np.random.Generator) -> Sequence[Array]:
        return [
            random.standard_normal((500, 1003), dtype=np.float32),
            np.stack([random.permutation(1003)[:200] for _ in range(500)]),
            random.standard_normal((500, 200), dtype=np.float32),
        ]

    yield alike("index-add-rows", added(1000, 4000, 64), lambda x, i, s: x.index_add(0, i, s), needs(4000 * 64))
    yield alike("scatter-add", placed, lambda x, i, s: x.scatter_add(1, i, s), needs(500 * 200))
    yield alike("scatter", placed, lambda x, i, s: x.scatter(1, i, s), needs())
    yield alike("scatter-max", placed, lambda x, i, s: x.scatter_reduce(1, i, s, "amax"), needs(max=500 * 200))
    yield alike(
        "histogram",
        lambda r: [np.zeros(256, np.float32), r.integers(0, 256, 100_000, np.int64), np.ones(100_000, np.float32)],
        lambda x, i, s: x.scatter_add(0, i, s),
        needs(100_000),
    )
    yield Work(
        "one-hot",
        lambda r: [r.integers(0, 1000, 1000, np.int64)],
        lambda x: x.one_hot(1000),
        lambda x: functional.one_hot(x, 1000),
        needs(2 * 1000 * 1000),
    )
    yield Work(
        "searchsorted",
        lambda r: [np.sort(r.standard_normal(10_000, np.float32)), r.standard_normal(20_000, np.float32)],
        lambda x, v: x.searchsorted(v),
        torch.searchsorted,
        needs(3 * 20_000 * math.log2(10_000)),  # the next place, a comparison, and which of both places it is
    )
