"""Attention in its variants, head sizes and numbers of queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.cliffs.work import Array, Inputs, Needs, Work, alike, halves, needs, normal, softmax_needs
from tinyweb import Tensor

WINDOW = 64
TRIANGLE = (
    "scores of 64 keys are computed whole on the diagonal, of which a row of 255 has four at most, and each of 16 "
    "threads computes what its rows' sums are rescaled with"
)
Scores = Callable[..., Any]


def works() -> Iterator[Work]:
    for width in (32, 40, 64, 80, 96, 128, 160, 256):
        yield plain(f"attention-head-{width}", 4, 256, 256, width)
    for queries in (1, 7, 15, 33):
        yield plain(f"attention-queries-{queries}", 8, queries, 1024, 64)
    yield plain("attention-queries-1500", 6, 1500, 1500, 64)
    yield plain("attention-queries-4096", 1, 4096, 4096, 64)
    yield plain("attention-queries-4096-head-40", 1, 4096, 4096, 40)
    for heads, queries, keys in ((8, 1, 1024), (6, 33, 1500)):
        yield alike(
            f"attention-f16-cache-{queries}x{keys}",
            halves(*shapes(heads, queries, keys, 64), floats=1),
            lambda q, k, v: attend(q, k.float(), v.float()),
            product_needs(heads, queries, keys, 64)
            + softmax_needs(heads * queries * keys)
            + needs(half=heads * keys * 64),
        )
    for heads, queries, keys in ((4, 256, 256), (6, 33, 1500), (8, 1, 1024)):
        size = f"{queries}x{keys}"
        for name, extra, weights, more in variants(heads, queries, keys):
            yield spelled(f"attention-{name}-{size}", heads, queries, keys, extra, weights, more)
        yield grouped(f"attention-grouped-{size}", heads * 2, 2, queries, keys)
        yield fused_mask(f"attention-mask-{size}", heads, queries, keys)
        yield differential(f"attention-differential-{size}", heads, queries, keys)
    for both in (255, 1024):
        yield causal(f"attention-causal-{both}", 4, both)
        yield window(f"attention-window-{both}", 4, both)


def product_needs(heads: int, queries: int, keys: int, width: int) -> Needs:
    """Scores, their scale, and the values' sums."""
    return needs(4 * heads * queries * keys * width + heads * queries * width)


def shapes(heads: int, queries: int, keys: int, width: int) -> list[tuple[int, ...]]:
    return [(1, heads, queries, width), (1, heads, keys, width), (1, heads, keys, width)]


def attend(q: Any, k: Any, v: Any) -> Any:
    """Of either library."""
    return q.scaled_dot_product_attention(k, v) if isinstance(q, Tensor) else scaled_dot_product_attention(q, k, v)


def plain(name: str, heads: int, queries: int, keys: int, width: int) -> Work:
    return Work(
        name,
        normal(*shapes(heads, queries, keys, width)),
        lambda q, k, v: q.scaled_dot_product_attention(k, v),
        scaled_dot_product_attention,
        product_needs(heads, queries, keys, width) + softmax_needs(heads * queries * keys),
    )


def variants(heads: int, queries: int, keys: int) -> Iterator[tuple[str, Sequence[Sequence[int]], Scores, Needs]]:
    """Name, shapes of further inputs, weights of scores, and what they need beyond the softmax."""
    count, rows, none = heads * queries * keys, (1, heads, queries, 1), ()
    bias = [(1, heads, queries, keys)]
    yield "spelled", none, lambda s: s.softmax(-1), needs()
    yield "bias-after", bias, lambda s, b: s.softmax(-1) + b, needs(count)
    yield "relu-of-softmax", bias, lambda s, b: (s.softmax(-1) - b).relu(), needs(count, relu=count)
    yield "square-of-softmax", none, lambda s: s.softmax(-1).square(), needs(count)
    yield "softcap", none, lambda s: ((s / 5).tanh() * 5).softmax(-1), needs(2 * count, tanh=count)
    yield "sinks", [rows], sinks, needs(2 * heads * queries)
    yield (
        "sigmoid",
        none,
        lambda s: s.sigmoid(),
        Counter({"sigmoid": count, "exp": -count, "max": -count, "": -3 * count}),
    )


def sinks(scores: Any, sink: Any) -> Any:
    """A score that takes weight and has no value."""
    largest = scores.amax(-1, keepdim=True).maximum(sink)
    weights = (scores - largest).exp()
    return weights / (weights.sum(-1, keepdim=True) + (sink - largest).exp())


def spelled(
    name: str, heads: int, queries: int, keys: int, extra: Sequence[Sequence[int]], weights: Scores, more: Needs
) -> Work:
    def both(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        return weights((q * 0.125) @ k.transpose(-1, -2), *rest) @ v

    needed = product_needs(heads, queries, keys, 64) + softmax_needs(heads * queries * keys)
    needed.update(more)
    return alike(name, normal(*shapes(heads, queries, keys, 64), *extra), both, needed)


def grouped(name: str, heads: int, shared: int, queries: int, keys: int) -> Work:
    return Work(
        name,
        normal((1, heads, queries, 64), (1, shared, keys, 64), (1, shared, keys, 64)),
        lambda q, k, v: q.scaled_dot_product_attention(k, v, enable_gqa=True),
        lambda q, k, v: scaled_dot_product_attention(q, k, v, enable_gqa=True),
        product_needs(heads, queries, keys, 64) + softmax_needs(heads * queries * keys),
    )


def fused_mask(name: str, heads: int, queries: int, keys: int) -> Work:
    count = heads * queries * keys
    return Work(
        name,
        normal(*shapes(heads, queries, keys, 64), (queries, keys)),
        lambda q, k, v, m: q.scaled_dot_product_attention(k, v, m),
        scaled_dot_product_attention,
        product_needs(heads, queries, keys, 64) + softmax_needs(count) + needs(count),
    )


def differential(name: str, heads: int, queries: int, keys: int) -> Work:
    q, k, v = shapes(heads, queries, keys, 64)
    count = heads * queries * keys

    def both(q1: Any, k1: Any, q2: Any, k2: Any, values: Any) -> Any:
        first, second = ((q * 0.125) @ k.transpose(-1, -2) for q, k in ((q1, k1), (q2, k2)))
        return (first.softmax(-1) - 0.3 * second.softmax(-1)) @ values

    needed = needs(6 * count * 64 + 2 * count) + softmax_needs(2 * count)
    return alike(name, normal(q, k, q, k, v), both, needed)


def causal(name: str, heads: int, size: int) -> Work:
    count = heads * size * (size + 1) // 2
    return Work(
        name,
        normal(*shapes(heads, size, size, 64)),
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True),
        needs(4 * count * 64) + softmax_needs(count),
        note="needed: the lower triangle",
        beyond=TRIANGLE if size < 1024 else "",
    )


def window(name: str, heads: int, size: int) -> Work:
    def inputs(random: np.random.Generator) -> Sequence[Array]:
        apart = np.arange(size)[:, None] - np.arange(size)
        fixed: Inputs = normal(*shapes(heads, size, size, 64))
        return [*fixed(random), (apart >= 0) & (apart < WINDOW)]

    count = heads * size * size
    return Work(
        name,
        inputs,
        lambda q, k, v, m: q.scaled_dot_product_attention(k, v, m),
        scaled_dot_product_attention,
        product_needs(heads, size, size, 64) + softmax_needs(count),
        note=f"needed: all scores, for that a mask in memory keeps {WINDOW} of a row is found out as they are computed",
    )
