"""Creating tensors: constants, ranges, random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinyweb.array.core import Scalar, leaf, scalar_dtype
from tinyweb.array.differentiation import Differentiation
from tinyweb.array.movement import as_shape
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp


class Creation(Differentiation):
    """Class methods that make tensors, and their `_like` forms."""

    __slots__ = ()

    @classmethod
    def full(cls, shape: Sequence[int], value: Scalar, dtype: DType | None = None, device: str | None = None) -> Self:
        """A tensor of one value (no memory until it is written to)."""
        constant = cls(UOp.const(value, dtype or scalar_dtype(value)), device=device)._broadcast_to(tuple(shape))
        return constant._new(leaf(constant.uop))

    @classmethod
    def zeros(cls, *shape: Any, dtype: DType = dtypes.float32, device: str | None = None) -> Self:
        return cls.full(as_shape(shape), 0, dtype, device)

    @classmethod
    def ones(cls, *shape: Any, dtype: DType = dtypes.float32, device: str | None = None) -> Self:
        return cls.full(as_shape(shape), 1, dtype, device)

    @classmethod
    def arange(
        cls,
        start: Scalar,
        stop: Scalar | None = None,
        step: Scalar = 1,
        dtype: DType | None = None,
        device: str | None = None,
    ) -> Self:
        """start, start + step, … below stop (0 … start-1 with one number). int32 for whole numbers, else float32."""
        if stop is None:
            start, stop = 0, start
        if step == 0:
            raise ValueError("arange: step must not be 0")
        kind = dtype or (dtypes.float32 if any(isinstance(x, float) for x in (start, stop, step)) else dtypes.int32)
        count = max(0, -int((start - stop) // step))
        iota = cls(UOp(Ops.IOTA, dtypes.int32, (), count), device=device)
        return iota.cast(kind).mul(step).add(start) if kind.is_float else iota.mul(int(step)).add(int(start)).cast(kind)

    @classmethod
    def linspace(
        cls, start: float, stop: float, steps: int, dtype: DType = dtypes.float32, device: str | None = None
    ) -> Self:
        """`steps` evenly spaced numbers from start to stop, both included."""
        if steps == 1:
            return cls.full((1,), start, dtype, device)
        ramp = cls.arange(steps, dtype=dtypes.float32, device=device)
        return ramp.mul((stop - start) / max(steps - 1, 1)).add(start).cast(dtype)

    @classmethod
    def eye(cls, n: int, m: int | None = None, dtype: DType = dtypes.float32, device: str | None = None) -> Self:
        """Ones on the diagonal of an (n, m) matrix of zeros."""
        rows = cls.arange(n, device=device).unsqueeze(1)
        return rows.equal(cls.arange(n if m is None else m, device=device).unsqueeze(0)).cast(dtype)

    def full_like(self, value: Scalar, dtype: DType | None = None) -> Self:
        return self._new(UOp.const(value, dtype or self.dtype))._broadcast_to(self.shape)

    def zeros_like(self, dtype: DType | None = None) -> Self:
        return self.full_like(0, dtype)

    def ones_like(self, dtype: DType | None = None) -> Self:
        return self.full_like(1, dtype)
