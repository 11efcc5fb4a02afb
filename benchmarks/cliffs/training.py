"""Losses and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.nn import functional

from benchmarks.cliffs.work import Work, function, gradient, needs, normal, softmax_needs


def works() -> Iterator[Work]:
    yield from losses()
    yield from gradients()


def losses() -> Iterator[Work]:
    pair, count = normal((1000, 1003), (1000, 1003)), 1000 * 1003
    yield function("loss-mse", pair, "mse_loss", needs(3 * count))
    yield function("loss-smooth-l1", pair, "smooth_l1_loss", needs(6 * count))
    yield function(
        "loss-cross-entropy-512x10003",
        lambda r: [r.standard_normal((512, 10_003), np.float32), r.integers(0, 10_003, 512, np.int64)],
        "cross_entropy",
        softmax_needs(512 * 10_003),
    )
    yield function(
        "loss-cross-entropy-4096x10",
        lambda r: [r.standard_normal((4096, 10), np.float32), r.integers(0, 10, 4096, np.int64)],
        "cross_entropy",
        softmax_needs(40_960),
    )
    yield function(
        "loss-nll",
        lambda r: [r.standard_normal((4096, 1000), np.float32), r.integers(0, 1000, 4096, np.int64)],
        "nll_loss",
        needs(6 * 4096),  # a sum; whether a class counts (two words are compared), and the number of those that do
    )
    yield function(
        "loss-binary-logits",
        lambda r: [r.standard_normal((1000, 1003), np.float32), r.random((1000, 1003), np.float32)],
        "binary_cross_entropy_with_logits",
        needs(5 * count, exp=count, log1p=count),
    )
    yield function(
        "loss-kl",
        lambda r: [np.log(r.random((1000, 1003), np.float32) + 0.1), r.random((1000, 1003), np.float32) + 0.1],
        "kl_div",
        needs(3 * count, log=count),
        reduction="batchmean",
    )
    yield function(
        "loss-cosine",
        lambda r: [*(r.standard_normal((1000, 384), np.float32) for _ in "ab"), np.ones(1000, np.float32)],
        "cosine_embedding_loss",
        needs(6 * 384_000),
    )


def gradients() -> Iterator[Work]:
    def same(name: str, shapes: Any, of: int, both: Any, needed: Any) -> Work:
        return gradient(f"gradient-{name}", normal(*shapes), of, both, both, needed)

    def methods(name: str, shapes: Any, of: int, method: str, needed: Any, **keywords: Any) -> Work:
        theirs = getattr(functional, method)
        return gradient(
            f"gradient-{name}",
            normal(*shapes),
            of,
            lambda x, *rest: getattr(x, method)(*rest, **keywords),
            lambda x, *rest: theirs(x, *rest, **keywords),
            needed,
        )

    square, count = (1000, 1003), 1000 * 1003
    yield same("matmul", [(197, 768), (768, 512), (197, 512)], 2, lambda a, b: a @ b, needs(4 * 197 * 768 * 512))
    yield same("batch-matmul", [(64, 32, 32)] * 3, 2, lambda a, b: a @ b, needs(4 * 64 * 32**3))
    yield same(
        "softmax",
        [square, square],
        1,
        lambda x: x.softmax(-1),
        softmax_needs(count) + needs(3 * count, divide_by_row=count),
    )
    yield same("tanh", [square, square], 1, lambda x: x.tanh(), needs(3 * count, tanh=count))
    yield methods("gelu", [square, square], 1, "gelu", needs(6 * count, erfc=count, exp=count))
    yield gradient(
        "gradient-layer-norm",
        normal((512, 768), (768,), (768,), (512, 768)),
        3,
        lambda x, w, b: x.layer_norm(768, w, b),
        lambda x, w, b: functional.layer_norm(x, (768,), w, b),
        needs(16 * 512 * 768),
    )
    yield same("cumsum", [(200, 5000), (200, 5000)], 1, lambda x: x.cumsum(1), needs(count))
    yield same("max", [square, (1000,)], 1, lambda x: x.amax(1), needs(5 * count, max=count))
    yield same("broadcast", [(1000, 1), (1003,), square], 2, lambda a, b: a * b, needs(4 * count))
    convolution = 2 * 64 * 28 * 28 * 64 * 9
    yield methods(
        "conv-3x3", [(1, 64, 28, 28), (64, 64, 3, 3), (1, 64, 28, 28)], 2, "conv2d", needs(2 * convolution), padding=1
    )
    yield methods(
        "conv-3x3-stride-2",
        [(1, 64, 28, 28), (64, 64, 3, 3), (1, 64, 14, 14)],
        2,
        "conv2d",
        needs(2 * convolution / 4),
        stride=2,
        padding=1,
    )
    yield methods(
        "depthwise",
        [(1, 128, 28, 28), (128, 1, 3, 3), (1, 128, 28, 28)],
        2,
        "conv2d",
        needs(2 * 2 * 128 * 28 * 28 * 9),
        padding=1,
        groups=128,
    )
    # maxima; each element compared with them, its place chosen, and compared with the first; what it gets chosen
    pooled = needs(3 * 64 * 56 * 56, max=3 * 64 * 28 * 28, nan_choice=64 * 56 * 56)
    yield methods("max-pool", [(1, 64, 56, 56), (1, 64, 28, 28)], 1, "max_pool2d", pooled, kernel_size=2)
    heads = (1, 4, 256, 64)
    scores = 4 * 256 * 256
    yield methods(
        "attention",
        [heads] * 4,
        3,
        "scaled_dot_product_attention",
        softmax_needs(scores) + needs(2 * 5 * scores * 64 + 4 * scores),
    )
    yield gradient(
        "gradient-embedding",
        lambda r: [
            r.standard_normal((1000, 64), np.float32),
            r.integers(0, 1000, 512, np.int64),
            r.standard_normal((512, 64), np.float32),
        ],
        1,
        lambda t, i: t.embedding(i),
        lambda t, i: functional.embedding(i, t),
        needs(512 * 64),
    )
    yield same(
        "mlp",
        [(64, 256), (256, 1024), (1024, 256), (64, 256)],
        3,
        lambda x, a, b: (x @ a).relu() @ b,
        needs(2 * 5 * 64 * 256 * 1024, relu=64 * 1024),
    )
    yield gradient(
        "gradient-cross-entropy",
        lambda r: [
            r.standard_normal((512, 1003), np.float32),
            r.integers(0, 1003, 512, np.int64),
            np.ones(1, np.float32),
        ],
        1,
        lambda x, i: x.cross_entropy(i).reshape(1),
        lambda x, i: functional.cross_entropy(x, i).reshape(1),
        softmax_needs(512 * 1003) + needs(512 * 1003),
    )
