"""Products of matrices: sizes, shapes, einsum, quantised weights, recurrent steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.cliffs.work import Array, Work, alike, halves, needs, normal
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.nn.quantize import QuantizedWeight, quantize_groups

NIBBLES = (
    "integers of 4 bits are taken out of words one by one: a product of words would need every other byte of the "
    "activations in a word, which takes as much where few rows share it"
)


def works() -> Iterator[Work]:
    yield from matrices()
    yield from batches()
    yield from einsums()
    yield from integers()
    for bits in (8, 4):
        for rows in (1, 16):
            for group in (32, 64, 128):
                yield quantized(bits, rows, group)
        yield quantized(bits, 1, 32, "int8")
    yield from recurrent()


def matrices() -> Iterator[Work]:
    sizes = {
        "odd": (127, 131, 129),
        "odd-prime": (509, 257, 311),
        "256": (256, 256, 256),
        "768": (197, 768, 768),
        "tall": (20_000, 64, 32),
        "tall-3": (50_000, 3, 16),
        "wide": (16, 64, 20_000),
        "deep": (32, 20_000, 32),
        "thin": (4, 1024, 4096),
        "seven-rows": (7, 1024, 1024),
        "fifteen-rows": (15, 1000, 1003),
        "tiny": (5, 7, 3),
        "outer": (1000, 1, 1003),
        "narrow-out": (2048, 768, 2),
        "small-depth": (512, 17, 512),
    }
    for name, (m, k, n) in sizes.items():
        yield alike(
            f"matmul-{name}-{m}x{k}x{n}",
            normal((m, k), (k, n)),
            lambda a, b: a @ b,
            needs(2 * m * k * n if k > 1 else m * n),
        )
    yield alike("matmul-transposed", normal((197, 768), (1024, 768)), lambda a, b: a @ b.T, needs(2 * 197 * 768 * 1024))
    yield alike(
        "matmul-left-transposed", normal((768, 197), (768, 512)), lambda a, b: a.T @ b, needs(2 * 197 * 768 * 512)
    )
    yield alike(
        "matmul-self", normal((500, 384)), lambda x: x @ x.T, needs(2 * 500 * 500 * 384), note="needed: both triangles"
    )
    yield alike(
        "matmul-relu-chain",
        normal((200, 256), (256, 512), (512, 64)),
        lambda x, a, b: (x @ a).relu() @ b,
        needs(2 * 200 * 512 * 320, relu=200 * 512),
    )
    yield alike(
        "matmul-linear-bias",
        normal((64, 384), (1536, 384), (1536,)),
        lambda x, w, b: x @ w.T + b,
        needs(2 * 64 * 384 * 1536 + 64 * 1536),
    )
    for name, rows, k, n in (("", 4, 1024, 1024), ("-one-row", 1, 1024, 4096), ("-many-rows", 197, 768, 1003)):
        yield alike(
            f"matmul-f16-weights{name}",
            halves((rows, k), (n, k), floats=1),
            lambda x, w: x @ w.float().T,
            needs(2 * rows * k * n, half=k * n // 2),
        )
    for name, m, k, n in (("odd", 127, 131, 129), ("512", 512, 512, 512)):
        half = (m * k + k * n) // 2 + m * n
        needed = needs(2 * m * k * n, half=half)
        yield alike(f"matmul-f16-{name}-{m}x{k}x{n}", halves((m, k), (k, n)), lambda a, b: a @ b, needed)
    yield alike("matvec-4096x1024", normal((4096, 1024), (1024,)), lambda a, x: a @ x, needs(2 * 4096 * 1024))
    yield alike("matvec-transposed", normal((1024, 4096), (1024,)), lambda a, x: x @ a, needs(2 * 4096 * 1024))
    yield alike("matvec-odd", normal((1003, 1009), (1009,)), lambda a, x: a @ x, needs(2 * 1003 * 1009))
    yield alike("dot-1m", normal((1 << 20,), (1 << 20,)), lambda a, b: (a * b).sum(), needs(2 << 20))


def batches() -> Iterator[Work]:
    for count, size in ((64, 32), (256, 16), (1000, 4), (12, 197)):
        yield alike(
            f"batch-{count}-of-{size}",
            normal((count, size, size), (count, size, size)),
            lambda a, b: a @ b,
            needs(2 * count * size**3),
        )
    yield alike("batch-shared-right", normal((32, 50, 64), (64, 96)), lambda a, b: a @ b, needs(2 * 32 * 50 * 64 * 96))
    yield alike("batch-matvec", normal((256, 64, 64), (256, 64, 1)), lambda a, b: a @ b, needs(2 * 256 * 64 * 64))
    yield alike(
        "batch-distances",
        normal((300, 1, 16), (1, 400, 16)),
        lambda a, b: (a - b).square().sum(-1).sqrt(),
        needs(3 * 300 * 400 * 16, sqrt=300 * 400),
    )


def einsums() -> Iterator[Work]:
    for name, formula, shapes, count in (
        ("heads", "bqhd,bkhd->bhqk", ((2, 200, 4, 64), (2, 200, 4, 64)), 2 * 4 * 200 * 200 * 64),
        ("bilinear", "bi,oij,bj->bo", ((64, 32), (48, 32, 40), (64, 40)), 64 * 48 * 32 * 41),
        ("outer-mean", "sia,sjb->ijab", ((32, 24, 16), (32, 24, 16)), 32 * 24 * 24 * 16 * 16),
        ("diagonal", "bii->bi", ((500, 64, 64),), 0),
        ("last-first", "ijk,ikl,il->j", ((20, 30, 40), (20, 40, 25), (20, 25)), 20 * 40 * (25 + 30)),
        ("three", "ij,jk,kl->il", ((100, 120), (120, 80), (80, 90)), 100 * 120 * 80 + 100 * 80 * 90),
    ):
        yield Work(
            f"einsum-{name}",
            normal(*shapes),
            lambda *x, f=formula: Tensor.einsum(f, *x),
            lambda *x, f=formula: torch.einsum(f, *x),
            needs(2 * count),
        )


def integers() -> Iterator[Work]:
    def octets(*shapes: Sequence[int]) -> Any:
        return lambda random: [random.integers(-127, 128, tuple(s), np.int8) for s in shapes]

    for m, k, n in ((64, 512, 512), (32, 1000, 129)):
        exact = k % 8 == 0 and n % 8 == 0
        yield Work(
            f"int8-{m}x{k}x{n}",
            octets((m, k), (k, n)),
            lambda a, b: a.int() @ b.int(),
            torch._int_mm if exact else lambda a, b: a.int() @ b.int(),
            needs(2 * m * k * n),
            note="PyTorch: _int_mm" if exact else "PyTorch: products of int32",
        )

    def channels(random: np.random.Generator) -> Sequence[Array]:
        values, scales = random.integers(-127, 128, (1024, 1024), np.int8), random.random((1024, 1), np.float32)
        return [random.standard_normal((8, 1024), np.float32), values, scales, values * scales]

    yield Work(
        "int8-per-channel-8x1024x1024",
        channels,
        lambda x, v, s, dense: x @ (v.float() * s).T,
        lambda x, v, s, dense: x @ dense.T,
        needs((2 * 8 + 1 << 20) + 8 * 1024),
        note="PyTorch: float weights, dequantised before; needed: integers made floats, and a scale for each sum",
        place=lambda arrays: [Tensor(a) for a in arrays],
    )


def write_quantized(bits: int, activations: str = "float") -> Callable[[Any, Sequence[Array]], str]:
    """onnxruntime's product with weights that stay quantised: x Wᵀ, where W (rows, groups, group) is unsigned integers
    with a scale for each group, the middle of their range standing for zero; 4-bit ones are packed in pairs, the first
    in the low half of a byte. `accuracy_level` 1 multiplies floats, 4 rounds x to 8 bits, as we do.
    """

    def write(g: Any, arrays: Sequence[Array]) -> str:
        _, values, scales, *_ = arrays
        rows, group = values.shape[0], values.shape[-1]
        unsigned = (values.reshape(rows, -1, group).astype(np.int16) + 2 ** (bits - 1)).astype(np.uint8)
        packed = unsigned if bits == 8 else unsigned[..., 0::2] | unsigned[..., 1::2] << 4
        sizes = {"K": unsigned[0].size, "N": rows, "bits": bits, "block_size": group}
        level = 1 if activations == "float" else 4
        inputs = ("a0", g.constant(packed, np.uint8), g.constant(scales.reshape(rows, -1), np.float32))
        name: str = g.one("com.microsoft::MatMulNBits", *inputs, accuracy_level=level, **sizes)
        return name

    return write


def quantized(bits: int, rows: int, group: int, activations: str = "float") -> Work:
    out = width = 1024

    def inputs(random: np.random.Generator) -> Sequence[Array]:
        values, scales = quantize_groups(random.standard_normal((out * width // group, group), np.float32), bits)
        dense = (values * scales.astype(np.float32)[:, None]).reshape(out, width)
        x = random.standard_normal((rows, width), dtype=np.float32)
        return [x, values.reshape(out, -1, group), scales.reshape(out, -1), dense]

    def place(arrays: Sequence[Array]) -> Sequence[Tensor]:
        x, values, scales, _ = arrays
        stored = Tensor(values) if bits == 8 else Tensor(values + 8, dtype=dtypes.uint4)
        return [Tensor(x), stored, Tensor(scales)]

    return Work(
        f"q{bits}-group-{group}-rows-{rows}{'' if activations == 'float' else '-int8-activations'}",
        inputs,
        lambda x, v, s: QuantizedWeight(v, s).product(x, activations),
        lambda x, v, s, dense: x @ dense.T,
        needs((2 * rows + (activations == "float")) * out * width + rows * out * width // group),
        note="PyTorch: float weights, dequantised before; onnxruntime-web: MatMulNBits, weights stay quantised; "
        "needed: integers made floats, a scale for each group's sum",
        place=place,
        beyond=NIBBLES if (bits, activations) == (4, "int8") else "",
        nodes=write_quantized(bits, activations),
        tolerance=None if activations == "float" else 3e-2,
    )


def recurrent() -> Iterator[Work]:
    rows, width = 16, 256

    def weights(gates: int) -> Any:
        return normal(
            (rows, width), (rows, width), (rows, width), *[(gates * width, width)] * 2, *[(gates * width,)] * 2
        )

    products = 4 * rows * width * width

    def lstm(x: Any, h: Any, c: Any, wi: Any, wh: Any, bi: Any, bh: Any) -> Any:
        i, f, g, o = (x @ (wi / 16).T + h @ (wh / 16).T + bi + bh).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    def gru(x: Any, h: Any, c: Any, wi: Any, wh: Any, bi: Any, bh: Any) -> Any:
        (r, z, n), (rh, zh, nh) = (x @ (wi / 16).T + bi).chunk(3, -1), (h @ (wh / 16).T + bh).chunk(3, -1)
        update = (z + zh).sigmoid()
        new = (n + (r + rh).sigmoid() * nh).tanh()
        return new + update * (h - new)

    count = rows * width
    yield Work(
        "lstm-step",
        weights(4),
        lstm,
        lambda x, h, c, wi, wh, bi, bh: torch.lstm_cell(x, (h, c), wi / 16, wh / 16, bi, bh),
        needs(4 * products + 2 * 4 * width * width, sigmoid=3 * count, tanh=2 * count),
    )
    yield Work(
        "gru-step",
        weights(3),
        gru,
        lambda x, h, c, wi, wh, bi, bh: torch.gru_cell(x, h, wi / 16, wh / 16, bi, bh),
        needs(3 * products + 2 * 3 * width * width, sigmoid=2 * count, tanh=count),
    )

    def sequence(x: Any, w: Any, u: Any) -> Any:
        own = x @ w
        h = own[0].tanh()
        for step in range(1, 16):
            h = (own[step] + h @ u).tanh()
        return h

    yield alike(
        "rnn-16-steps",
        lambda r: [0.1 * r.standard_normal(s, np.float32) for s in ((16, 8, 64), (64, 128), (128, 128))],
        sequence,
        needs(2 * 8 * 128 * (16 * 64 + 15 * 128), tanh=16 * 8 * 128),
    )
