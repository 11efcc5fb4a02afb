"""Random numbers from a counter: the value for (key, counter) is a pure function, the same on every device.

The generator is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw: Parallel random numbers: as easy as 1,
2, 3; SC 2011). It needs additions, rotations and exclusive ors of 32-bit words alone.
"""

from __future__ import annotations

import math
import os
import threading
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tinyweb.array.operators import Operators
from tinyweb.dtype import DType, dtypes

T = TypeVar("T", bound=Operators)
PARITY = 0x1BD11BDA
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key: tuple[T, T], counter: tuple[T, T]) -> tuple[T, T]:
    """Two uint32 words for two words of key and two of counter (shapes broadcast)."""
    keys = (*key, key[0] ^ key[1] ^ PARITY)
    a, b = counter[0] + keys[0], counter[1] + keys[1]
    for block in range(5):
        for turn in ROTATIONS[block % 2]:
            a = a + b
            b = ((b << turn) | (b >> (32 - turn))) ^ a
        a, b = a + keys[(block + 1) % 3], b + keys[(block + 2) % 3] + (block + 1)
    return a, b


def words(value: T) -> T:
    """int32 → the same bits as uint32."""
    return value.cast(dtypes.int32).bitcast(dtypes.uint32)


def exponential(words: T) -> T:
    """Exponentially distributed float32 (rate 1, always > 0) from uniform uint32 words.

    -log(1 − u) for u = (word + ½) / 2³², by its series where u is small: there 1 − u would lose the digits that decide
    between the likeliest outcomes.
    """
    u = ((words.float() + 0.5) * 2.0**-32).minimum(1 - 2.0**-24)
    series = u * (1 + u * (1 / 2 + u * (1 / 3 + u * (1 / 4 + u * (1 / 5)))))
    return (u < 1 / 64).where(series, -((1 - u).log()))


def gumbel(words: T) -> T:
    """Standard Gumbel noise, float32: adding it to log-probabilities makes the arg max a sample (Gumbel 1954)."""
    return exponential(words).log2() * -math.log(2)


def uniform(a: T, b: T, dtype: DType) -> T:
    """Uniform in [0, 1), exactly the same on every device: as many of the highest bits of `a` as the significand of
    `dtype` holds, divided by 2 to that power; float64 takes 27 bits of `a`, then 26 of `b`."""
    if dtype is dtypes.float64:
        high, low = a >> 5, b >> 6
        return (high.cast(dtype) * 2.0**26 + low.cast(dtype)) * 2.0**-53
    bits = dtype.mantissa + 1
    return ((a >> (32 - bits)).cast(dtypes.float32) * 2.0**-bits).cast(dtype)


def normal(a: T, b: T) -> T:
    """Standard normal float32 from two words, by the cosine of Box and Muller (1958): |x| stays below 6.8."""
    radius = (((a.cast(dtypes.float32) + 0.5) * 2.0**-32).log() * -2.0).sqrt()
    return radius * (uniform(b, b, dtypes.float32) * (2 * math.pi)).cos()


def below(a: T, b: T, count: int) -> T:
    """uint32 uniform in 0 … count - 1 (count ≤ 2³²): the 64 bits of `a` and `b` as a fraction, times count. No value
    is likelier than another by more than count / 2⁶⁴."""
    if count == 1 << 32:
        return a
    high, low = _wide_product(a, count)
    carry = _wide_product(b, count)[0]
    return high + (low + carry < low).cast(dtypes.uint32)


def _wide_product(x: T, factor: int) -> tuple[T, T]:
    """The high and the low word of uint32 x · factor."""
    f0, f1 = factor & 0xFFFF, factor >> 16
    x0, x1 = x & 0xFFFF, x >> 16
    cross0, cross1 = x1 * f0, x0 * f1
    middle = (x0 * f0 >> 16) + (cross0 & 0xFFFF) + (cross1 & 0xFFFF)
    return x1 * f1 + (cross0 >> 16) + (cross1 >> 16) + (middle >> 16), x * factor


class Generator:
    """Where random tensors take their numbers from: a seed, and how many have been drawn since it was set.

    Two generators of equal seed give equal sequences, on any device. Without a seed one comes from the system.
    """

    def __init__(self, seed: int | None = None):
        self._lock = threading.Lock()
        self.manual_seed(int.from_bytes(os.urandom(8), "little") if seed is None else seed)

    def manual_seed(self, seed: int) -> Generator:
        """Begin the sequence of `seed` (taken modulo 2⁶⁴)."""
        if not isinstance(seed, int):
            raise TypeError(f"manual_seed: the seed must be an integer, got {type(seed).__name__}")
        self._seed, self._drawn = seed % (1 << 64), 0
        return self

    def seed(self) -> int:
        """Begin the sequence of a new seed from the system; returns it."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def initial_seed(self) -> int:
        """The seed the sequence began with."""
        return self._seed

    def get_state(self) -> tuple[int, int]:
        """(seed, tensors drawn): what set_state takes to continue from here."""
        return self._seed, self._drawn

    def set_state(self, state: tuple[int, int]) -> Generator:
        """Continue where get_state was called."""
        self._seed, self._drawn = state
        return self

    def draw(self) -> npt.NDArray[np.uint32]:
        """Key (2 words) and the number of the next tensor: no two calls have all three in common."""
        with self._lock:
            number = self._drawn
            self._drawn += 1
        return np.array([self._seed & 0xFFFFFFFF, self._seed >> 32, number & 0xFFFFFFFF], np.uint32)


default_generator = Generator()
