"""Random blocks of any quantised type, whose values are of moderate size."""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt

from tinyweb.formats.gguf.blocks import BlockFormat, Entry, Field
from tinyweb.formats.gguf.types import BY_NAME


def random_blocks(kind: str, shape: tuple[int, ...], rng: np.random.Generator, spread: float = 0.25) -> np.ndarray:
    """The bytes (…, of a row) of a tensor of this shape; `spread`: about how large values are."""
    form = BY_NAME[kind]
    assert isinstance(form, BlockFormat)
    count = int(np.prod(shape)) // form.elements
    raw = rng.integers(0, 256, (count, form.bytes)).astype(np.uint8)
    size = spread
    for _ in range(3):
        set_floats(form, raw, rng, size)
        size *= spread / float(np.std(form.decode(raw)))
    return raw.reshape(*shape[:-1], -1)


def set_floats(form: BlockFormat, raw: npt.NDArray[np.uint8], rng: np.random.Generator, size: float) -> None:
    """Scales of both signs, but of minimums, and exponents."""
    for field in form.fields.values():
        if isinstance(field, Field) and field.kind == "float16":
            if len(field.parts) > 1:  # IQ1_M, in pieces
                bits = np.full(len(raw), np.float16(size)).view(np.uint16)
                for part in field.parts:
                    at = part.at // 8
                    raw[:, at] = raw[:, at] & 15 | (bits >> part.to & 15).astype(np.uint8) << 4
                continue
            at = field.parts[0].at // 8
            values = (size * rng.uniform(0.5, 1, len(raw))).astype("<f2")
            raw[:, at : at + 2] = values.view(np.uint8).reshape(-1, 2)
        if isinstance(field, Field) and field.kind == "float32":
            values = np.full(len(raw), size, "<f4")
            raw[:, field.parts[0].at // 8 :][:, :4] = values.view(np.uint8).reshape(-1, 4)
        if isinstance(field, Entry) and form.name == "MXFP4" and field.index.parts[0].width == 8:
            raw[:, 0] = np.clip(np.log2(size) + 128 + rng.integers(-1, 2, len(raw)), 0, 255)


def decoded(kind: str, raw: np.ndarray) -> npt.NDArray[np.float32]:
    """The values by the gguf package."""
    return np.asarray(gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind]), np.float32)
