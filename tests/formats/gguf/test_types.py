"""Every type of tensors against the gguf package: the same bits for any bytes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from tinyweb.formats.gguf.blocks import Bits, BlockFormat, Field, Step
from tinyweb.formats.gguf.types import BY_NAME, FORMATS, NOT_STORED

EXTREME = np.array([0, 0x8000, 1, 0x3FF, 0x400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x3C00], np.uint16)
BLOCKS = [name for name, form in BY_NAME.items() if form.elements > 1]


def generator() -> np.random.Generator:
    return np.random.default_rng(np.random.randint(1 << 31))


def blocks_of(size: int, count: int) -> np.ndarray:
    """Random bytes; where halves may lie, in a third of the blocks, numbers at the ends of their range."""
    random = generator()
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in {0, 2, size - 2, size - 4}:
        chosen = random.choice(count, count // 3, replace=False)
        blocks[chosen, at : at + 2] = random.choice(EXTREME, len(chosen)).view(np.uint8).reshape(-1, 2)
    blocks[0], blocks[1] = 0, 255
    return blocks


def same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype == np.float32 and found.shape == expected.shape
    differs = (found.view(np.uint32) != expected.view(np.uint32)) & ~(np.isnan(found) & np.isnan(expected))
    assert not differs.any(), np.argwhere(differs)[:5]


@pytest.mark.parametrize("name", [n for n in BLOCKS if n not in ("Q1_0", "Q8_K")])
def test_blocks(name: str) -> None:
    form, kind = BY_NAME[name], gguf.GGMLQuantizationType[name]
    blocks = blocks_of(form.bytes, 300)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(blocks, kind)
    same(form.decode(blocks), expected)
    assert np.isfinite(expected).any()


def test_every_scale() -> None:
    """All bytes of the scales that are floats of 8 bits."""
    for name, every in (("MXFP4", np.arange(256)), ("NVFP4", np.arange(256).reshape(64, 4))):
        form = BY_NAME[name]
        blocks = np.full((len(every), form.bytes), 0x31, np.uint8)
        blocks[:, : every.size // len(every)] = every.reshape(len(every), -1)
        with np.errstate(all="ignore"):
            expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name])
        same(form.decode(blocks), expected)


def test_every_point_of_the_codebooks() -> None:
    from tinyweb.formats.gguf.grids import GRIDS

    kinds = {name: name.upper() for name in GRIDS} | {"iq1": "IQ1_S"}
    for name, grid in GRIDS.items():
        peer = gguf.quants._type_traits[gguf.GGMLQuantizationType[kinds[name]]]
        peer.init_grid()
        np.testing.assert_array_equal(grid.points, peer.grid.reshape(peer.grid_shape))


def test_two_that_the_package_cannot_decode() -> None:
    """Q1_0: a bit for each sign. Q8_K: a float32, then 8 bits each; its sums of groups say nothing new."""
    random = generator()
    signs = random.choice([-1, 1], (7, 128))
    scale = random.standard_normal((7, 1)).astype(np.float16)
    blocks = np.hstack([scale.view(np.uint8), np.packbits(signs > 0, axis=1, bitorder="little")])
    same(BY_NAME["Q1_0"].decode(blocks), scale.astype(np.float32) * signs.astype(np.float32))

    numbers, wide = random.integers(-128, 128, (7, 256), dtype=np.int8), random.standard_normal((7, 1)).astype("<f4")
    blocks = np.hstack([wide.view(np.uint8), numbers.view(np.uint8), random.integers(0, 256, (7, 32), dtype=np.uint8)])
    same(BY_NAME["Q8_K"].decode(blocks), wide * numbers.astype(np.float32))


@pytest.mark.parametrize("name", [n for n, form in BY_NAME.items() if form.elements == 1])
def test_plain_numbers(name: str) -> None:
    form = BY_NAME[name]
    held = generator().integers(0, 256, (500, form.bytes), dtype=np.uint8)
    if name == "BF16":
        expected = gguf.quants.dequantize(held, gguf.GGMLQuantizationType.BF16)
    else:
        kind = {"F": "f", "I": "i"}[name[0]]
        with np.errstate(all="ignore"):
            expected = held.view(f"<{kind}{form.bytes}").astype(np.float32)
    same(form.decode(held), expected)


def test_all_types_are_known() -> None:
    """Numbers, names and sizes are those of the gguf package; each of its types is read or named."""
    for kind in gguf.GGMLQuantizationType:
        if kind not in FORMATS:
            assert NOT_STORED[kind.value] == kind.name
            continue
        form = FORMATS[kind]
        assert (form.name, (form.elements, form.bytes)) == (kind.name, gguf.GGML_QUANT_SIZES[kind])
    assert not FORMATS.keys() & NOT_STORED.keys()


def test_many_blocks_are_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    form = BY_NAME["Q4_K"]
    blocks = blocks_of(form.bytes, 37)
    whole = form.decode(blocks)
    monkeypatch.setattr("tinyweb.formats.gguf.blocks.SLAB", 5 * 256)
    same(form.decode(blocks), whole)
    assert form.decode(blocks[:0]).shape == (0, 256)


@pytest.mark.parametrize("name", BLOCKS)
def test_records_describe_their_blocks(name: str) -> None:
    """Which bits an element's value depends on, said by the records' steps alone, is what decoding depends on."""
    form = BY_NAME[name]
    assert isinstance(form, BlockFormat)
    random = generator()
    for field in form.fields.values():
        number = getattr(field, "index", field)
        if not isinstance(number, Field):
            continue
        blocks = random.integers(0, 256, (3, form.bytes), dtype=np.uint8)
        width = max(p.to + p.width for p in number.parts)
        read = np.broadcast_to(form._number(number, blocks), (3, *(count for _, count in form.axes))).reshape(3, -1)
        for element in random.integers(0, form.elements, 10):
            for row in range(3):
                value = sum(_bits(part, blocks[row], int(element)) << part.to for part in number.parts)
                held = int(value).to_bytes(4, "little")[: 1 if width <= 8 else 2 if width <= 16 else 4]
                assert read[row, element].tobytes() == held


def _bits(part: Bits, block: np.ndarray, element: int) -> int:
    at = part.at + sum(s.bits * (element // s.every % s.count) for s in part.steps)
    return int.from_bytes(block.tobytes(), "little") >> at & (1 << part.width) - 1


def test_groups_that_do_not_divide_each_other() -> None:
    form = BlockFormat("X", 999, 12, 12, {"q": Field((Bits(0, 8, (Step(8, 4, 1), Step(8, 3, 2))),))}, lambda q: q)
    with pytest.raises(ValueError, match="do not divide each other"):
        form.decode(np.zeros((1, 12), np.uint8))
