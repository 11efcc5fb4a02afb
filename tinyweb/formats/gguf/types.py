"""The types of tensors in GGUF files, each a record (the layouts are ggml's, `ggml-common.h`).

What is notable:
- Most formats keep the elements of a group in the order low nibbles first, then high ones: `Step(8, 1, 16)` walks along
  the bytes, `Step(4, 16, 2)` up within them.
- Formats of 256 elements have scales of their own, of 4 or 6 bits, for each 16 or 32 elements, beside the block's.
- The `IQ` formats store rows of a codebook (`grids.py`) and signs: 7 bits for 8 elements, the eighth makes their number
  even.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tinyweb.formats.gguf.blocks import Bits, BlockFormat, Bytes, Entry, Field, Floats, Run, Step, Trits
from tinyweb.formats.gguf.grids import GRIDS


@dataclass(frozen=True)
class PlainFormat:
    """Numbers one after the other, as NumPy holds them; bfloat16 is the upper half of a float32."""

    name: str
    code: int
    dtype: np.dtype[Any]

    elements = 1

    @property
    def bytes(self) -> int:
        return self.dtype.itemsize

    def decode(self, blocks: Bytes) -> Floats:
        """The values (numbers, 1), float32, of their bytes (numbers, bytes). What is too large becomes infinite."""
        numbers = np.ascontiguousarray(blocks).view(self.dtype)
        if self.name == "BF16":
            return (numbers.astype(np.uint32) << np.uint32(16)).view(np.float32)
        with np.errstate(all="ignore"):
            return numbers.astype(np.float32)


TensorFormat = PlainFormat | BlockFormat
Kind = Literal["uint", "int8", "float16", "float32"]


def bits(byte: int, width: int, *steps: tuple[int, int, int], bit: int = 0, to: int = 0) -> Bits:
    """Bits that begin `bit` bits into a byte."""
    return Bits(8 * byte + bit, width, tuple(Step(*s) for s in steps), to)


def field(*parts: Bits, kind: Kind = "uint") -> Field:
    return Field(parts, kind)


def half(byte: int) -> Field:
    """A float16 for the whole block."""
    return field(bits(byte, 16), kind="float16")


def nibbles(byte: int, group: int, groups: int = 1) -> Bits:
    """4 bits of each element: groups of `group` bytes, low nibbles first."""
    return bits(byte, 4, (8, 1, group), (4, group, 2), (8 * group, 2 * group, groups))


def pairs(byte: int, to: int = 0) -> Bits:
    """2 bits of each of 256 elements: groups of 32 bytes, lowest first."""
    return bits(byte, 2, (8, 1, 32), (2, 32, 4), (256, 128, 2), to=to)


def in_order(byte: int, width: int, every: int, count: int, to: int = 0) -> Bits:
    """`width` bits (a divisor of 8) for every `every` elements, one after the other: `count` in all."""
    each = 8 // width
    return bits(byte, width, (width, every, each), (8, every * each, -(-count // each)), to=to)


# 8 scales and 8 minima of 6 bits in 12 bytes: those of the first four groups in one piece, the upper two bits of the
# others' where these leave room
SCALE = field(bits(4, 4, (8, 32, 4), (64, 128, 2)), bits(4, 2, (8, 32, 4), (2, 128, 2), bit=4, to=4))
LEAST = field(bits(8, 4, (8, 32, 4), (36, 128, 2)), bits(8, 2, (8, 32, 4), (2, 128, 2), bit=4, to=4))

# 16 scales of 6 bits in 12 bytes: 16 nibbles, then the upper two bits
SCALE_3 = field(bits(96, 4, (8, 16, 8), (4, 128, 2)), bits(104, 2, (8, 16, 4), (2, 64, 4), to=4))


def column(values: list[float] | npt.NDArray[Any]) -> Floats:
    return np.array(values, np.float32).reshape(-1, 1)


# E2M1 (OCP Microscaling Formats 1.0), doubled; E8M0, halved; E4M3 without its sign (0x7f stands for 0), halved
FP4 = column([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])
E8M0 = column(np.ldexp(np.ones(256), np.arange(256) - 128))
E4M3 = column([(c % 8 + 8 * (c > 7)) * 2.0 ** (max(c // 8, 1) - 11) for c in range(128)] * 2)
E4M3[0x7F] = 0
CURVE = column([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])  # of IQ4: denser around 0

_seven = np.arange(128)[:, None] >> np.arange(7) & 1
SIGNS = (1 - 2 * np.hstack([_seven, _seven.sum(1, keepdims=True) % 2])).astype(np.float32)


def grid(name: str, *index: Bits) -> Entry:
    return Entry(field(*index), GRIDS[name].points)


def block(
    name: str, code: int, elements: int, size: int, widen: Callable[..., Any], **fields: Field | Entry | Trits
) -> BlockFormat:
    return BlockFormat(name, code, elements, size, fields, widen)


def _plain() -> list[PlainFormat]:
    stored = {
        "F32": (0, "<f4"), "F16": (1, "<f2"), "I8": (24, "i1"), "I16": (25, "<i2"), "I32": (26, "<i4"),
        "I64": (27, "<i8"), "F64": (28, "<f8"), "BF16": (30, "<u2"),
    }  # fmt: skip
    return [PlainFormat(name, code, np.dtype(held)) for name, (code, held) in stored.items()]


def _groups_of_32() -> list[BlockFormat]:
    """One scale, one minimum at most."""
    return [
        block("Q4_0", 2, 32, 18, lambda d, q: d * (q - 8), d=half(0), q=field(nibbles(2, 16))),
        block("Q4_1", 3, 32, 20, lambda d, m, q: d * q + m, d=half(0), m=half(2), q=field(nibbles(4, 16))),
        block(
            "Q5_0", 6, 32, 22, lambda d, q: d * (q - 16),
            d=half(0), q=field(nibbles(6, 16), in_order(2, 1, 1, 32, to=4)),
        ),
        block(
            "Q5_1", 7, 32, 24, lambda d, m, q: d * q + m,
            d=half(0), m=half(2), q=field(nibbles(8, 16), in_order(4, 1, 1, 32, to=4)),
        ),
        block("Q8_0", 8, 32, 34, lambda d, q: d * q, d=half(0), q=field(in_order(2, 8, 1, 32), kind="int8")),
        block("IQ4_NL", 20, 32, 18, lambda d, v: d * v, d=half(0), v=Entry(field(nibbles(2, 16)), CURVE)),
        block(
            "MXFP4", 39, 32, 17, lambda d, v: d * v,
            d=Entry(field(bits(0, 8)), E8M0), v=Entry(field(nibbles(1, 16)), FP4),
        ),
        block(
            "NVFP4", 40, 64, 36, lambda d, v: d * v,
            d=Entry(field(in_order(0, 8, 16, 4)), E4M3), v=Entry(field(nibbles(4, 8, 4)), FP4),
        ),
        block("Q1_0", 41, 128, 18, lambda d, q: d * (2 * q - 1), d=half(0), q=field(in_order(2, 1, 1, 128))),
    ]  # fmt: skip


def _groups_of_256() -> list[BlockFormat]:
    """A scale of the block, and small ones for each 16 or 32 elements."""
    return [
        block(
            "Q2_K", 10, 256, 84, lambda d, m, scale, least, q: d * scale * q - m * least,
            d=half(80), m=half(82), scale=field(bits(0, 4, (8, 16, 16))), least=field(bits(0, 4, (8, 16, 16), bit=4)),
            q=field(pairs(16)),
        ),
        block(
            "Q3_K", 11, 256, 110, lambda d, scale, q: d * (scale - 32) * (q - 4),
            d=half(108), scale=SCALE_3, q=field(pairs(32), bits(0, 1, (8, 1, 32), (1, 32, 8), to=2)),
        ),
        block(
            "Q4_K", 12, 256, 144, lambda d, m, scale, least, q: d * scale * q - m * least,
            d=half(0), m=half(2), scale=SCALE, least=LEAST, q=field(nibbles(16, 32, 4)),
        ),
        block(
            "Q5_K", 13, 256, 176, lambda d, m, scale, least, q: d * scale * q - m * least,
            d=half(0), m=half(2), scale=SCALE, least=LEAST,
            q=field(nibbles(48, 32, 4), bits(16, 1, (8, 1, 32), (1, 32, 8), to=4)),
        ),
        block(
            "Q6_K", 14, 256, 210, lambda d, scale, q: d * scale * (q - 32),
            d=half(208), scale=field(in_order(192, 8, 16, 16), kind="int8"),
            q=field(nibbles(0, 64, 2), pairs(128, to=4)),
        ),
        block(
            "Q8_K", 15, 256, 292, lambda d, q: d * q,
            d=field(bits(0, 32), kind="float32"), q=field(in_order(4, 8, 1, 256), kind="int8"),
        ),
        block(
            "IQ4_XS", 23, 256, 136, lambda d, scale, v: d * (scale - 32) * v,
            d=half(0), scale=field(in_order(4, 4, 32, 8), bits(2, 2, (2, 32, 8), to=4)),
            v=Entry(field(bits(8, 4, (8, 1, 16), (4, 16, 2), (128, 32, 8))), CURVE),
        ),
        block(
            "TQ1_0", 34, 256, 54, lambda d, q: d * (q - 1),
            d=half(52), q=Trits(0, (Run(32, 5), Run(16, 5), Run(4, 4))),
        ),
        block("TQ2_0", 35, 256, 66, lambda d, q: d * (q - 1), d=half(64), q=field(pairs(0))),
    ]  # fmt: skip


def _codebooks() -> list[BlockFormat]:
    """Points of lattices; signs of their own, but for the last two."""
    return [
        block(
            "IQ2_XXS", 16, 256, 66, lambda d, scale, v, sign: d * (0.5 + scale) * 0.25 * v * sign,
            d=half(0), scale=field(bits(2, 4, (64, 32, 8), bit=60)),
            v=grid("iq2_xxs", bits(2, 8, (8, 8, 4), (64, 32, 8))),
            sign=Entry(field(bits(6, 7, (7, 8, 4), (64, 32, 8))), SIGNS),
        ),
        block(
            "IQ2_XS", 17, 256, 74, lambda d, scale, v, sign: d * (0.5 + scale) * 0.25 * v * sign,
            d=half(0), scale=field(in_order(66, 4, 16, 16)), v=grid("iq2_xs", bits(2, 9, (16, 8, 32))),
            sign=Entry(field(bits(3, 7, (16, 8, 32), bit=1)), SIGNS),
        ),
        block(
            "IQ3_XXS", 18, 256, 98, lambda d, scale, v, sign: d * (0.5 + scale) * 0.5 * v * sign,
            d=half(0), scale=field(bits(66, 4, (32, 32, 8), bit=28)), v=grid("iq3_xxs", in_order(2, 8, 4, 64)),
            sign=Entry(field(bits(66, 7, (7, 8, 4), (32, 32, 8))), SIGNS),
        ),
        block(
            "IQ3_S", 21, 256, 110, lambda d, scale, v, negative: d * (1 + 2 * scale) * v * (1 - 2 * negative),
            d=half(0), scale=field(in_order(106, 4, 32, 8)),
            v=grid("iq3_s", in_order(2, 8, 4, 64), in_order(66, 1, 4, 64, to=8)),
            negative=field(in_order(74, 1, 1, 256)),
        ),
        block(
            "IQ2_S", 22, 256, 82, lambda d, scale, v, negative: d * (0.5 + scale) * 0.25 * v * (1 - 2 * negative),
            d=half(0), scale=field(in_order(74, 4, 16, 16)),
            v=grid("iq2_s", in_order(2, 8, 8, 32), in_order(66, 2, 8, 32, to=8)),
            negative=field(in_order(34, 1, 1, 256)),
        ),
        block(
            "IQ1_S", 19, 256, 50, lambda d, scale, v, down: d * (2 * scale + 1) * (v + (0.125 - 0.25 * down)),
            d=half(0), scale=field(bits(35, 3, (16, 32, 8), bit=4)), down=field(bits(35, 1, (16, 32, 8), bit=7)),
            v=grid("iq1", in_order(2, 8, 8, 32), bits(34, 3, (3, 8, 4), (16, 32, 8), to=8)),
        ),
        block(
            "IQ1_M", 29, 256, 56, lambda d, scale, v, down: d * (2 * scale + 1) * (v + (0.125 - 0.25 * down)),
            # the block's scale lies in the upper four bits of the words that hold those of its groups
            d=field(*(bits(49 + 2 * i, 4, bit=4, to=4 * i) for i in range(4)), kind="float16"),
            scale=field(bits(48, 3, (3, 16, 4), (16, 64, 4))), down=field(bits(32, 1, (4, 8, 2), (8, 16, 16), bit=3)),
            v=grid("iq1", in_order(0, 8, 8, 32), bits(32, 3, (4, 8, 2), (8, 16, 16), to=8)),
        ),
    ]  # fmt: skip


_ALL: list[TensorFormat] = [*_plain(), *_groups_of_32(), *_groups_of_256(), *_codebooks()]
FORMATS: Mapping[int, TensorFormat] = {form.code: form for form in _ALL}
BY_NAME: Mapping[str, TensorFormat] = {form.name: form for form in _ALL}
# numbers of types that are no longer, or not at all, stored in files
NOT_STORED: Mapping[int, str] = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8",
    36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8",
}  # fmt: skip
