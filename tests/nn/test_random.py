"""The random generator against its published answers, and the distributions made of it."""

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.nn.random import exponential, gumbel, threefry

DEVICES = ("CPU", "WASM", "WEBGPU", "INTERPRETER")

# known answers of Threefry-2x32 with 20 rounds, from the Random123 distribution: counter, key, result
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize("device", DEVICES)
def test_threefry_known_answers(device: str) -> None:
    def word(i: int, j: int) -> Tensor:
        return Tensor(np.array([k[i][j] for k in KNOWN], np.uint32), device=device)

    a, b = threefry((word(1, 0), word(1, 1)), (word(0, 0), word(0, 1)))
    assert [hex(v) for v in a.tolist()] == [hex(k[2][0]) for k in KNOWN]
    assert [hex(v) for v in b.tolist()] == [hex(k[2][1]) for k in KNOWN]


EDGES = np.array([0, 1, 2, 3, 255, 2**24, 2**26 - 1, 2**26, 2**31, 2**32 - 256, 2**32 - 1], np.uint32)


@pytest.mark.parametrize("device", DEVICES)
def test_exponential_keeps_its_digits(device: str) -> None:
    want = -np.log1p(-np.minimum((EDGES.astype(np.float64) + 0.5) / 2**32, 1 - 2.0**-24))
    got = exponential(Tensor(EDGES, dtype=dtypes.uint32, device=device)).numpy()
    np.testing.assert_allclose(got, want, rtol=2e-6)
    noise = gumbel(Tensor(EDGES, dtype=dtypes.uint32, device=device)).numpy()
    np.testing.assert_allclose(noise, -np.log(want), rtol=5e-6, atol=2e-6)


def test_gumbel_distribution() -> None:
    """Moments and quantiles of 100 000 values: mean γ, variance π²/6."""
    n = 100_000
    key = (Tensor(np.array(7, np.uint32)), Tensor(np.array(9, np.uint32)))
    counter = (Tensor(np.arange(n, dtype=np.uint32)), Tensor(np.array(0, np.uint32)))
    values = np.sort(gumbel(threefry(key, counter)[0]).numpy().astype(np.float64))
    assert values.mean() == pytest.approx(0.5772, abs=0.02)
    assert values.var() == pytest.approx(np.pi**2 / 6, abs=0.04)
    # Kolmogorov-Smirnov distance; 1.95 / sqrt(n) would be exceeded once in a thousand generators
    distance = np.abs(np.exp(-np.exp(-values)) - (np.arange(n) + 0.5) / n).max()
    assert distance < 1.95 / np.sqrt(n)
