"""Elementwise expressions, reductions, softmax and norms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.cliffs.work import Array, Needs, Work, alike, function, needs, normal, softmax_needs
from tinyweb import Tensor

ODD = 1003
MANY = 1 << 22


def works() -> Iterator[Work]:
    yield from expressions()
    yield from joins()
    yield from steps()
    yield from casts()
    yield from reductions()
    yield from softmaxes()
    yield from norms()


def expressions() -> Iterator[Work]:
    many, square = normal((MANY,)), normal((2048, 1024))
    count = 2048 * 1024
    yield function("gelu-4m", many, "gelu", needs(gelu=MANY))
    yield function("gelu-tanh", square, "gelu", needs(6 * count, tanh=count), approximate="tanh")
    yield function("silu-4m", many, "silu", needs(MANY, sigmoid=MANY))
    yield function("softplus", square, "softplus", needs(count, exp=count, log1p=count))
    yield function("mish", square, "mish", needs(count, exp=count, log1p=count, tanh=count))
    yield alike("tanh-4m", many, lambda x: x.tanh(), needs(tanh=MANY))
    yield alike("sin-4m", many, lambda x: x.sin(), needs(sin=MANY))
    yield alike("erf-4m", many, lambda x: x.erf(), needs(erf=MANY))
    yield alike(
        "pow", normal((1024, 1024), (1024, 1024)), lambda x, y: x.abs().pow(y), needs(pow=1 << 20), tolerance=1e-4
    )
    yield alike("add-4m", normal((MANY,), (MANY,)), lambda x, y: x + y, needs(MANY))
    yield alike("add-row", normal((2048, 1024), (1024,)), lambda x, y: x + y, needs(count))
    yield alike("add-column", normal((2048, 1024), (2048, 1)), lambda x, y: x + y, needs(count))
    yield alike("add-transposed", normal((2048, 2048), (2048, 2048)), lambda x, y: x + y.T, needs(2 * count))
    yield alike("add-1003", normal((ODD, ODD), (ODD, ODD)), lambda x, y: x * 2 + y, needs(2 * ODD * ODD))
    yield alike("add-small", normal((37,), (37,)), lambda x, y: x + y, needs(37))
    yield Work(
        "outer-gelu",
        normal((1500,), (1500,)),
        lambda a, b: (a[:, None] * b).gelu(),
        lambda a, b: functional.gelu(a[:, None] * b),
        needs(1500**2, gelu=1500**2),
    )
    yield alike(
        "outer-sigmoid", normal((2048,), (1024,)), lambda a, b: (a[:, None] - b).sigmoid(), needs(count, sigmoid=count)
    )
    yield Work(
        "cat-relu",
        normal((1000, 512), (1000, 512), (1000, 300)),
        lambda *x: x[0].cat(*x[1:], axis=1).relu(),
        lambda *x: torch.cat(x, 1).relu(),
        needs(relu=1000 * 1324),
    )
    yield Work(
        "cat-gelu-rows",
        normal((700, 1024), (3, 1024), (701, 1024)),
        lambda *x: x[0].cat(*x[1:]).gelu(),
        lambda *x: functional.gelu(torch.cat(x)),
        needs(gelu=1404 * 1024),
    )
    yield Work(
        "stack",
        normal((512, 1024), (512, 1024)),
        lambda x, y: x.stack(y, axis=-1),
        lambda x, y: torch.stack((x, y), -1),
        needs(),
    )
    yield Work(
        "where",
        normal((2048, 1024), (2048, 1024)),
        lambda x, y: (x > 0).where(x, y),
        lambda x, y: torch.where(x > 0, x, y),
        needs(2 * count),
    )
    yield alike("masked-fill", normal((2048, 1024)), lambda x: x.masked_fill(x < 0, -1e9), needs(2 * count))
    yield alike(
        "clamp-chain",
        square,
        lambda x: ((x * 3 + 1).clamp(0, 6) * x / 6).clamp(-1, 1).clamp(min=0),
        needs(3 * count, max=5 * count, divide_by_constant=count),
    )
    yield alike(
        "polynomial", square, lambda x: ((((x * 0.1 + 0.2) * x + 0.3) * x + 0.4) * x + 0.5) * x, needs(9 * count)
    )
    yield alike("rotary", normal((1, 16, 512, 64), (512, 32), (512, 32)), rotary, needs(6 * 16 * 512 * 32))
    yield alike(
        "glu", normal((1024, 2048)), lambda x: x[:, :1024].sigmoid() * x[:, 1024:], needs(1 << 20, sigmoid=1 << 20)
    )
    yield alike(
        "integers",
        lambda r: [r.integers(0, 1 << 20, MANY // 4, np.int32)],
        lambda x: (x * 3 + 7) % 1001,
        needs(2 * MANY // 4, modulo=MANY // 4),
    )


def joins() -> Iterator[Work]:
    """Tensors put together, rotated and mirrored."""

    def join(
        name: str, shapes: Sequence[Sequence[int]], axis: int, needed: Needs, then: str = "", *keywords: int
    ) -> Work:
        def of(whole: Any) -> Any:
            return getattr(whole, then)(*keywords) if then else whole

        return Work(
            name,
            normal(*shapes),
            lambda *x: of(x[0].cat(*x[1:], axis=axis)),
            lambda *x: of(torch.cat(x, axis)),
            needed,
        )

    yield join("cat-8", [(1000, 128)] * 8, 1, needs())
    yield join("cat-8-odd", [(401, 37 + 5 * i) for i in range(8)], 1, needs())
    yield join("cat-20-vectors", [(50_003 + i,) for i in range(20)], 0, needs())
    yield join("cat-20-relu", [(512, 128)] * 20, 1, needs(relu=512 * 2560), "relu")
    yield join("cat-sum", [(1000, 501)] * 3, 1, needs(1000 * 1503), "sum", 1)
    yield join("cat-softmax", [(1000, 301)] * 3, 1, softmax_needs(903_000), "softmax", 1)
    yield alike("roll-flat", normal((1000, ODD)), lambda x: x.roll(17), needs())
    yield alike("roll-vector", normal((1_000_003,)), lambda x: x.roll(17, 0), needs())
    yield alike("roll-bytes", lambda r: [r.integers(0, 256, (1000, ODD), np.uint8)], lambda x: x.roll(5, 1), needs())
    yield alike("repeat-columns", normal((1000, 257)), lambda x: x.repeat((1, 4)), needs())
    yield Work(
        "cat-mirrored",
        normal((1000, 500)),
        lambda x: x.cat(x.flip(1), axis=1),
        lambda x: torch.cat((x, x.flip(1)), 1),
        needs(),
    )


def steps() -> Iterator[Work]:
    """Steps that each read several places of the one before."""
    again = (
        "a pivot's row and column are computed from the first matrix, and the result from all of them: storing each "
        "step would move more"
    )

    def neighbours(x: Any) -> Any:
        for _ in range(6):
            x = (x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1)) * 0.25
        return x

    def butterflies(x: Any) -> Any:
        for i in range(12):
            y = x.reshape(-1, 2, 2**i)
            a, b = y[:, 0], y[:, 1]
            x = ((a + b).stack(a - b, axis=1) if isinstance(x, Tensor) else torch.stack((a + b, a - b), 1)).reshape(-1)
        return x

    def eliminated(a: Any) -> Any:
        eye = (Tensor.eye(8) if isinstance(a, Tensor) else torch.eye(8)).expand(500, 8, 8)
        m = a.cat(eye, axis=-1) if isinstance(a, Tensor) else torch.cat((a, eye), -1)
        for i in range(8):
            row = m[..., i : i + 1, :] / m[..., i : i + 1, i : i + 1]
            m = m - (m[..., :, i : i + 1] - eye[..., :, i : i + 1]) * row
        return m[..., 8:]

    def near_identity(random: np.random.Generator) -> Sequence[Array]:
        return [(np.eye(8) + random.standard_normal((500, 8, 8)) / 16).astype(np.float32)]

    yield alike("steps-neighbours-6", normal((500, 501)), neighbours, needs(6 * 4 * 500 * 501))
    yield alike("steps-hadamard-65536", normal((1 << 16,)), butterflies, needs(12 << 16))
    count = 500 * 8 * 8 * 2  # elements of which a step multiplies a row and subtracts it
    yield alike(
        "steps-elimination-8x8",
        near_identity,
        eliminated,
        needs(8 * (2 * count + count / 16), divide_by_row=count),
        beyond=again,
    )


def rotary(x: Any, cosine: Any, sine: Any) -> Any:
    a, b = x[..., :32], x[..., 32:]
    return a * cosine - b * sine, b * cosine + a * sine


def casts() -> Iterator[Work]:
    count = 1 << 20

    def halves(random: np.random.Generator) -> Sequence[Array]:
        return [random.standard_normal(count, dtype=np.float32).astype(np.float16)]

    def octets(random: np.random.Generator) -> Sequence[Array]:
        return [random.integers(0, 256, count, np.uint8)]

    yield alike("cast-f32-f16", normal((count,)), lambda x: x.half(), needs(count / 2, half=count / 2))
    yield alike("cast-f16-f32", halves, lambda x: x.float(), needs(half=count / 2))
    yield alike("tanh-f16", halves, lambda x: x.tanh(), needs(tanh=count, half=count))
    yield alike("cast-u8-f32", octets, lambda x: x.float() / 255 - 0.5, needs(2 * count, divide_by_constant=count))
    yield alike("cast-f32-i32", normal((count,)), lambda x: (x * 100).int(), needs(count, int=count))
    yield Work(
        "cast-f32-u8",
        normal((count,)),
        lambda x: (x * 30 + 128).clamp(0, 255).cast("uint8"),
        lambda x: (x * 30 + 128).clamp(0, 255).to(torch.uint8),
        needs(2 * count, max=2 * count, int=count),
    )


def reductions() -> Iterator[Work]:
    square, cube = normal((ODD, ODD)), normal((64, 101, 257))
    count, in_cube = ODD * ODD, 64 * 101 * 257
    of: dict[str, tuple[Callable[[Any, int], Any], Callable[[int], Needs]]] = {
        "sum": (lambda x, axis: x.sum(axis), lambda n: needs(n)),
        "mean": (lambda x, axis: x.mean(axis), lambda n: needs(n)),
        "max": (lambda x, axis: x.amax(axis), lambda n: needs(max=n)),
        "argmax": (lambda x, axis: x.argmax(axis), lambda n: needs(2 * n, nan_choice=n)),
        "var": (lambda x, axis: x.var(axis), lambda n: needs(5 * n)),
    }
    for name, (reduce, needed) in of.items():
        for axis in (0, 1):
            yield alike(f"{name}-axis-{axis}-1003", square, lambda x, r=reduce, a=axis: r(x, a), needed(count))
        yield alike(f"{name}-middle-axis", cube, lambda x, r=reduce: r(x, 1), needed(in_cube))
    yield alike("sum-all-4m", normal((MANY,)), lambda x: x.sum(), needs(MANY))
    yield alike("max-all-4m", normal((MANY,)), lambda x: x.max(), needs(max=MANY))
    yield alike("argmax-all", normal((1 << 20,)), lambda x: x.argmax(), needs(2 << 20))
    yield alike("sum-rows-of-3", normal((300_001, 3)), lambda x: x.sum(1), needs(900_003))
    yield alike("sum-columns-of-3", normal((300_001, 3)), lambda x: x.sum(0), needs(900_003))
    yield alike("sum-two-axes", cube, lambda x: x.sum((0, 2)), needs(in_cube))
    yield alike("norm-rows", normal((1000, 768)), lambda x: x.square().sum(-1).sqrt(), needs(2 * 768_000))
    yield alike(
        "logsumexp",
        normal((1000, ODD)),
        lambda x: x.logsumexp(-1),
        needs(2 * 1000 * ODD, max=1000 * ODD, exp=1000 * ODD),
    )
    yield alike("any-all", normal((2048, 1024)), lambda x: ((x > 4.9).any(1), (x > -5).all(0)), needs(2 * 2048 * 1024))
    yield alike(
        "minmax",
        square,
        lambda x: (x - x.amin()) / (x.amax() - x.amin()),
        needs(count, max=2 * count, divide_by_row=count),
    )


def divided_needs(count: int) -> Needs:
    """Of a softmax: the quotient is by a row's sum."""
    return softmax_needs(count) + needs(-count, divide_by_row=count)


def softmaxes() -> Iterator[Work]:
    for rows, width in ((1000, ODD), (64, 32000), (20000, 17)):
        count = rows * width
        for name in ("softmax", "log_softmax"):
            yield alike(
                f"{name.replace('_', '-')}-{rows}x{width}",
                normal((rows, width)),
                lambda x, name=name: getattr(x, name)(-1),
                softmax_needs(count) if name == "log_softmax" else divided_needs(count),
            )
    yield alike("softmax-axis-0", normal((ODD, 1000)), lambda x: x.softmax(0), divided_needs(ODD * 1000))
    yield alike("softmax-middle-axis", normal((8, 129, 400)), lambda x: x.softmax(1), divided_needs(8 * 129 * 400))


def norms() -> Iterator[Work]:
    for width in (384, 768, 1000, 4096):
        rows = (1 << 19) // width
        shapes, count = ((rows, width), (width,), (width,)), rows * width
        yield Work(
            f"layer-norm-{width}",
            normal(*shapes),
            lambda x, w, b, n=width: x.layer_norm(n, w, b),
            lambda x, w, b, n=width: functional.layer_norm(x, (n,), w, b),
            needs(7 * count),
        )
        yield Work(
            f"rms-norm-{width}",
            normal(*shapes[:2]),
            lambda x, w, n=width: x.rms_norm(n, w, 1e-5),
            lambda x, w, n=width: functional.rms_norm(x, (n,), w, 1e-5),
            needs(4 * count),
        )
    yield Work(
        "layer-norm-residual-gelu",
        normal((512, 768), (512, 768), (768,), (768,)),
        lambda x, y, w, b: (x + y).layer_norm(768, w, b).gelu(),
        lambda x, y, w, b: functional.gelu(functional.layer_norm(x + y, (768,), w, b)),
        needs(8 * 512 * 768, gelu=512 * 768),
    )
    yield alike(
        "layer-norm-one-row",
        normal((1, 4096)),
        lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt(),
        needs(6 * 4096, divide_by_row=4096),
    )
    for shape, groups in (((1, 320, 32, 32), 32), ((2, 96, 45, 45), 8), ((1, 128, 128, 128), 32)):
        count = shape[0] * shape[1] * shape[2] * shape[3]
        yield Work(
            f"group-norm-{shape[1]}x{shape[2]}",
            normal(shape, (shape[1],), (shape[1],)),
            lambda x, w, b, g=groups: x.group_norm(g, w, b),
            lambda x, w, b, g=groups: functional.group_norm(x, g, w, b),
            needs(7 * count),
        )
    image = (8, 64, 56, 56)
    count = 8 * 64 * 56 * 56
    yield Work(
        "batch-norm-training",
        normal(image, (64,), (64,)),
        lambda x, w, b: x.batch_norm(None, None, w, b, training=True),
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        needs(7 * count),
    )
    yield Work(
        "batch-norm-relu",
        normal(image, (64,), (64,), (64,), (64,)),
        lambda x, m, v, w, b: x.batch_norm(m, v * v, w, b).relu(),
        lambda x, m, v, w, b: functional.batch_norm(x, m, v * v, w, b).relu(),
        needs(2 * count, relu=count),
    )
    yield Work("instance-norm", normal(image), lambda x: x.instance_norm(), functional.instance_norm, needs(5 * count))
    yield alike(
        "normalize-vectors",
        normal((2000, 384)),
        lambda x: x / x.square().sum(-1, keepdim=True).sqrt(),
        needs(2 * 2000 * 384, divide_by_row=2000 * 384),
    )
