"""Random tensors. Element i of the n-th tensor that a generator gives comes from the block of Threefry-2x32 with the
seed as key and (i, n) as counter: it depends neither on the device, nor on when it is computed, nor on what else is
drawn. Bits become numbers as `threefry.py` says: rand, randint, bernoulli and randperm are equal to the last bit on
every device, what takes a logarithm or a scale up to rounding.

The seed and n lie in a small tensor that is filled at the call, so all calls of one shape share a kernel, and replays
of a jit draw new numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, TypedDict, Unpack

from tinyweb.array.movement import as_shape, sizes_of
from tinyweb.array.reduction import Reduction
from tinyweb.array.threefry import Generator, below, default_generator, exponential, gumbel, normal, threefry, uniform
from tinyweb.device import on_replay
from tinyweb.dtype import DType, DTypeLike, dtypes, to_dtype
from tinyweb.graph.ir import Ops, Shape, Size, UOp, size_max


class Drawn(TypedDict, total=False):
    """What every tensor is drawn with: a float dtype (float32), a device, a generator."""

    dtype: DTypeLike
    device: str | None
    generator: Generator | None


class Random(Reduction):
    """Class methods that draw tensors, and their `_like` forms. `generator` defaults to the one `manual_seed` sets."""

    __slots__ = ()

    @staticmethod
    def manual_seed(seed: int) -> Generator:
        """Begin the sequence of `seed` in the generator that is used where none is given."""
        return default_generator.manual_seed(seed)

    @classmethod
    def _words(cls, shape: Shape, generator: Generator | None, device: str | None) -> tuple[Self, Self]:
        """Two independent uint32 words for each element."""
        if generator is not None and not isinstance(generator, Generator):
            raise TypeError(f"generator= must be a tinyweb Generator, got {type(generator).__name__}")
        source = generator or default_generator
        state = cls(source.draw(), device=device)
        on_replay(state.uop.buffer, lambda: source.draw().tobytes())
        key0, key1, number = (state.shrink([(i, i + 1)])._reshape(()) for i in range(3))
        whole = tuple(size_max(s) for s in shape)
        places = state._new(UOp(Ops.IOTA, dtypes.uint32, (), math.prod(whole)))._reshape(whole)
        return threefry((key0, key1), (places.shrink([(0, s) for s in shape]), number))

    @classmethod
    def rand(
        cls,
        *shape: Any,
        size: int | Sequence[Size] | None = None,
        dtype: DTypeLike = dtypes.float32,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Self:
        """Uniform in [0, 1)."""
        dtype = _float("rand", dtype)
        return uniform(*cls._words(sizes_of("rand", shape, size), generator, device), dtype)

    @classmethod
    def randn(
        cls,
        *shape: Any,
        size: int | Sequence[Size] | None = None,
        dtype: DTypeLike = dtypes.float32,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Self:
        """Normal with mean 0 and variance 1 (with the precision of float32)."""
        dtype = _float("randn", dtype)
        return normal(*cls._words(sizes_of("randn", shape, size), generator, device)).cast(dtype)

    @classmethod
    def randint(
        cls,
        *bounds: Any,
        low: int = 0,
        high: int | None = None,
        size: Any = None,
        dtype: DTypeLike = dtypes.int32,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Self:
        """Whole numbers, uniform in low … high - 1: randint(high, size), randint(low, high, size), or
        randint(*size, low=…, high=…), with 10 for `high` where it is not given."""
        if size is None and bounds and isinstance(bounds[-1], tuple | list):
            *bounds, size = bounds  # type: ignore[assignment]
        if size is None:
            size = bounds
        elif len(bounds) == 1:
            low, high = (0, bounds[0]) if high is None else (bounds[0], high)
        elif len(bounds) == 2:
            low, high = bounds
        elif bounds:
            raise TypeError(f"randint: give high, or low and high, before the size; got {tuple(bounds)}")
        low, high = as_shape((low, 10 if high is None else high))
        dtype = to_dtype(dtype)
        if low >= high:
            raise ValueError(f"randint: needs whole numbers low < high, got {low} and {high}")
        if not dtype.is_float and not (dtype.min <= low and high - 1 <= dtype.max):
            raise ValueError(f"randint: {low} … {high - 1} does not fit {dtype.name}")
        a, b = cls._words(as_shape(size if isinstance(size, Sequence) else (size,)), generator, device)
        count, start = high - low, low % (1 << 64)  # of 64 bits, modulo which sums are right
        if count > 1 << 32:
            word = a.cast(dtypes.uint64).bitwise_left_shift(32).bitwise_or(b.cast(dtypes.uint64))
            word = word if count >= 1 << 64 else word.remainder(count)
            return word.add(start).cast(dtypes.int64).cast(dtype)
        drawn = below(a, b, count)
        if low >= -(2**31) and high <= 2**31:
            return drawn.add(low % (1 << 32)).bitcast(dtypes.int32).cast(dtype)
        return drawn.cast(dtypes.uint64).add(start).cast(dtypes.int64).cast(dtype)

    # -- scaled -------------------------------------------------------------------------------------------------------
    @classmethod
    def uniform(
        cls,
        *shape: Any,
        low: float = 0.0,
        high: float = 1.0,
        size: int | Sequence[Size] | None = None,
        **options: Unpack[Drawn],
    ) -> Self:
        """Uniform in [low, high); `options` are those of `rand`. ValueError where low is above high."""
        span = high - low
        if isinstance(span, int | float) and span < 0:
            raise ValueError(f"uniform: low must not be above high, got {low} and {high}")
        return cls.rand(sizes_of("uniform", shape, size), **options).mul(span).add(low)

    @classmethod
    def normal(
        cls,
        *shape: Any,
        mean: float = 0.0,
        std: float = 1.0,
        size: int | Sequence[Size] | None = None,
        **options: Unpack[Drawn],
    ) -> Self:
        """Normal with the given mean and standard deviation; `options` are those of `rand`."""
        return cls.randn(sizes_of("normal", shape, size), **options).mul(std).add(mean)

    @classmethod
    def trunc_normal(
        cls,
        *shape: Any,
        mean: float = 0.0,
        std: float = 1.0,
        a: float = -2.0,
        b: float = 2.0,
        size: int | Sequence[Size] | None = None,
        **options: Unpack[Drawn],
    ) -> Self:
        """Normal, given that it lies in [a, b]: by the inverse of the distribution function."""
        low, high = (math.erf((x - mean) / (std * math.sqrt(2))) for x in (a, b))
        # the middle of each step of the uniform numbers, so that neither end is infinite
        level = cls.rand(sizes_of("trunc_normal", shape, size), **options).add(2.0**-25).mul(high - low).add(low)
        return level.erfinv().mul(std * math.sqrt(2)).add(mean).clamp(a, b)

    @classmethod
    def scaled_uniform(cls, *shape: Any, size: int | Sequence[int] | None = None, **options: Unpack[Drawn]) -> Self:
        """Uniform in [-1, 1), divided by the square root of the number of elements."""
        sizes = _numbers("scaled_uniform", shape, size, 0)
        return cls._symmetric(sizes, 1 / math.sqrt(max(math.prod(sizes), 1)), options)

    @classmethod
    def xavier_uniform(
        cls,
        *shape: Any,
        gain: float = 1.0,
        size: int | Sequence[int] | None = None,
        **options: Unpack[Drawn],
    ) -> Self:
        """Weights (out, in, …), uniform in ± gain · √(6 / (fan in + fan out)) (Glorot and Bengio 2010)."""
        sizes = _numbers("xavier_uniform", shape, size, 2)
        return cls._symmetric(sizes, gain * math.sqrt(6 / max(sum(_fans(sizes)), 1)), options)

    glorot_uniform = xavier_uniform

    @classmethod
    def xavier_normal(
        cls,
        *shape: Any,
        gain: float = 1.0,
        size: int | Sequence[int] | None = None,
        **options: Unpack[Drawn],
    ) -> Self:
        """Weights (out, in, …), normal with variance gain² · 2 / (fan in + fan out) (Glorot and Bengio 2010)."""
        sizes = _numbers("xavier_normal", shape, size, 2)
        return cls.randn(sizes, **options).mul(gain * math.sqrt(2 / max(sum(_fans(sizes)), 1)))

    glorot_normal = xavier_normal

    @classmethod
    def kaiming_uniform(
        cls,
        *shape: Any,
        a: float = 0.0,
        mode: str = "fan_in",
        size: int | Sequence[int] | None = None,
        **options: Unpack[Drawn],
    ) -> Self:
        """Weights (out, in, …) before a leaky ReLU of slope `a`, uniform in ± √(6 / ((1 + a²) · fan)) (He et al.
        2015); mode "fan_in" or "fan_out"."""
        sizes = _numbers("kaiming_uniform", shape, size, 2)
        return cls._symmetric(sizes, math.sqrt(6 / ((1 + a * a) * _fan("kaiming_uniform", sizes, mode))), options)

    @classmethod
    def kaiming_normal(
        cls,
        *shape: Any,
        a: float = 0.0,
        mode: str = "fan_in",
        size: int | Sequence[int] | None = None,
        **options: Unpack[Drawn],
    ) -> Self:
        """Weights (out, in, …) before a leaky ReLU of slope `a`, normal with variance 2 / ((1 + a²) · fan) (He et al.
        2015); mode "fan_in" or "fan_out"."""
        sizes = _numbers("kaiming_normal", shape, size, 2)
        return cls.randn(sizes, **options).mul(math.sqrt(2 / ((1 + a * a) * _fan("kaiming_normal", sizes, mode))))

    @classmethod
    def _symmetric(cls, sizes: tuple[int, ...], bound: float, options: Drawn) -> Self:
        return cls.uniform(sizes, low=-bound, high=bound, **options)

    @classmethod
    def exponential(
        cls,
        *shape: Any,
        rate: float = 1.0,
        size: int | Sequence[Size] | None = None,
        dtype: DTypeLike = dtypes.float32,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Self:
        """Exponentially distributed with mean 1 / rate, always > 0. ValueError for a rate that is not above 0."""
        if not rate > 0:
            raise ValueError(f"exponential: rate must be above 0, got {rate}")
        dtype = _float("exponential", dtype)
        noise = exponential(cls._words(sizes_of("exponential", shape, size), generator, device)[0])
        return noise.mul(1 / rate).cast(dtype)

    @classmethod
    def gumbel(
        cls,
        *shape: Any,
        size: int | Sequence[Size] | None = None,
        dtype: DTypeLike = dtypes.float32,
        device: str | None = None,
        generator: Generator | None = None,
    ) -> Self:
        """Standard Gumbel noise: added to log-probabilities it makes the arg max a sample."""
        dtype = _float("gumbel", dtype)
        return gumbel(cls._words(sizes_of("gumbel", shape, size), generator, device)[0]).cast(dtype)

    # -- like another tensor ------------------------------------------------------------------------------------------
    def _own(self, dtype: DTypeLike | None, generator: Generator | None) -> dict[str, Any]:
        own = self.dtype if self.dtype.is_float else dtypes.float32
        return {"dtype": dtype or own, "device": self.device, "generator": generator}

    def rand_like(self, dtype: DTypeLike | None = None, generator: Generator | None = None) -> Self:
        """Uniform in [0, 1), in this tensor's shape, dtype (float32 for integers) and device."""
        return type(self).rand(self.shape, **self._own(dtype, generator))

    def randn_like(self, dtype: DTypeLike | None = None, generator: Generator | None = None) -> Self:
        """Standard normal, in this tensor's shape, dtype (float32 for integers) and device."""
        return type(self).randn(self.shape, **self._own(dtype, generator))

    def randint_like(
        self, low: int, high: int | None = None, dtype: DTypeLike | None = None, generator: Generator | None = None
    ) -> Self:
        """Whole numbers in low … high - 1 (0 … low - 1 with one bound), in this tensor's shape, dtype and device."""
        bounds = (0, low) if high is None else (low, high)
        return type(self).randint(
            *bounds, size=self.shape, dtype=dtype or self.dtype, device=self.device, generator=generator
        )

    def bernoulli(self, p: float | None = None, generator: Generator | None = None) -> Self:
        """1 with the probability each element names (or with probability `p` for all), else 0, in this dtype."""
        if p is None and not self.dtype.is_float:
            raise TypeError(f"bernoulli: probabilities need a float dtype, got {self.dtype.name}: or give p")
        if p is not None and not 0 <= p <= 1:
            raise ValueError(f"bernoulli: p must be within [0, 1], got {p}")
        drawn = type(self).rand(self.shape, device=self.device, generator=generator)
        return drawn.less(self.cast(dtypes.float32) if p is None else p).cast(self.dtype)


def _float(method: str, dtype: DTypeLike) -> DType:
    found = to_dtype(dtype)
    if not found.is_float:
        raise TypeError(f"{method}: needs a float dtype, got {found!r}")
    return found


def _numbers(method: str, shape: Any, size: Any, axes: int) -> tuple[int, ...]:
    sizes = sizes_of(method, shape, size)
    if len(sizes) < axes or not all(isinstance(s, int) for s in sizes):
        raise ValueError(f"{method}: needs a shape (out, in, …) of numbers, got {sizes}")
    return sizes


def _fans(sizes: tuple[int, ...]) -> tuple[int, int]:
    field = math.prod(sizes[2:])
    return sizes[1] * field, sizes[0] * field


def _fan(method: str, sizes: tuple[int, ...], mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f'{method}: mode must be "fan_in" or "fan_out", got {mode!r}')
    fan_in, fan_out = _fans(sizes)
    return max(fan_in if mode == "fan_in" else fan_out, 1)
