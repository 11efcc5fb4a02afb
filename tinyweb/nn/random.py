"""Random numbers from a counter: the value for (key, counter) is a pure function, the same on every device.

The generator is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw: Parallel random numbers: as easy as 1,
2, 3; SC 2011). It needs additions, rotations and exclusive ors of 32-bit words alone.
"""

from __future__ import annotations

import math

from tinyweb.dtype import dtypes
from tinyweb.tensor import Tensor

PARITY = 0x1BD11BDA
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key: tuple[Tensor, Tensor], counter: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Two uint32 words for two words of key and two of counter (shapes broadcast)."""
    keys = (*key, key[0] ^ key[1] ^ PARITY)
    a, b = counter[0] + keys[0], counter[1] + keys[1]
    for block in range(5):
        for turn in ROTATIONS[block % 2]:
            a = a + b
            b = ((b << turn) | (b >> (32 - turn))) ^ a
        a, b = a + keys[(block + 1) % 3], b + keys[(block + 2) % 3] + (block + 1)
    return a, b


def exponential(words: Tensor) -> Tensor:
    """Exponentially distributed float32 (rate 1, always > 0) from uniform uint32 words.

    -log(1 − u) for u = (word + ½) / 2³², by its series where u is small: there 1 − u would lose the digits that decide
    between the likeliest outcomes.
    """
    u = ((words.float() + 0.5) * 2.0**-32).minimum(1 - 2.0**-24)
    series = u * (1 + u * (1 / 2 + u * (1 / 3 + u * (1 / 4 + u * (1 / 5)))))
    return (u < 1 / 64).where(series, -((1 - u).log()))


def gumbel(words: Tensor) -> Tensor:
    """Standard Gumbel noise, float32: adding it to log-probabilities makes the arg max a sample (Gumbel 1954)."""
    return exponential(words).log2() * -math.log(2)


def words(value: Tensor) -> Tensor:
    """int32 → the same bits as uint32."""
    return value.cast(dtypes.int32).bitcast(dtypes.uint32)
