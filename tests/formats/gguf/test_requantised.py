"""Types that our own integers hold as they are: nothing is lost on the way to `--quant q8` and `q4`."""

import gguf
import numpy as np
import pytest

from tinyweb.nn.quantize import quantize

ROWS, WIDTH, GROUP = 64, 256, 32


@pytest.mark.parametrize(("kind", "bits"), [("Q8_0", 8), ("Q4_0", 4)])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 50.0])
def test_nothing_is_lost(kind: str, bits: int, spread: float) -> None:
    """Numbers and scales are the file's, but for groups that are all zeros, which any scale will do for."""
    rng = np.random.default_rng(bits)
    values = (rng.normal(size=(ROWS, WIDTH)) * spread).astype(np.float32)
    values[3, :GROUP] = 0
    stored = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
    blocks = stored.reshape(ROWS, WIDTH // GROUP, -1)
    scales = blocks[..., :2].copy().view(np.float16)[..., 0]
    decoded = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[kind])
    ours = quantize(decoded, bits)
    assert ours is not None
    np.testing.assert_array_equal(ours.dense().numpy(), decoded)
    same = np.abs(ours.scales.numpy()) == np.abs(scales)
    assert same[np.abs(decoded).reshape(ROWS, -1, GROUP).max(-1) > 0].mean() > 0.99
