"""Synthetic digits: glyphs of 5 × 7 dots, drawn twice as large at a random place of a 16 × 16 image, with uneven ink
and noise. What is learnt on some must hold on others."""

from __future__ import annotations

import numpy as np

GLYPHS = [
    "01110 10001 10011 10101 11001 10001 01110", "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00110 01000 10000 11111", "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010", "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110", "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110", "01110 10001 10001 01111 00001 00010 01100",
]  # fmt: skip


def digits(count: int, seed: int, size: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """(count, 1, size, size) float32 images and (count,) int32 labels, the same for the same seed."""
    rng = np.random.default_rng(seed)
    font = np.array([[[int(c) for c in row] for row in glyph.split()] for glyph in GLYPHS], np.float32)
    font = font.repeat(2, axis=1).repeat(2, axis=2)
    labels = rng.integers(0, 10, count).astype(np.int32)
    images = rng.normal(0.0, 0.25, (count, 1, size, size)).astype(np.float32)
    height, width = font.shape[1:]
    for image, label in zip(images[:, 0], labels, strict=True):
        y, x = rng.integers(0, size - height + 1), rng.integers(0, size - width + 1)
        ink = rng.uniform(0.6, 1.4) * rng.uniform(0.7, 1.3, font[label].shape)
        image[y : y + height, x : x + width] += font[label] * ink.astype(np.float32)
    return images, labels
