"""Creating tensors: constants, ranges, and tensors like others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tinyweb.array.core import Scalar, TensorCore, leaf, scalar_dtype
from tinyweb.array.movement import as_shape, sizes_of
from tinyweb.array.operators import Operators
from tinyweb.array.packing import check_fits
from tinyweb.array.storage import Storage
from tinyweb.device import Device
from tinyweb.dtype import DTypeLike, dtypes, to_dtype
from tinyweb.graph.ir import Ops, Size, UOp, size_max
from tinyweb.graph.schedule import new_buffer, spread_of


class Creation(Operators):
    """Class methods that make tensors, and their `_like` and `new_` forms."""

    __slots__ = ()

    # -- constants ----------------------------------------------------------------------------------------------------
    @classmethod
    def full(cls, shape: Any, fill_value: Scalar, dtype: DTypeLike | None = None, device: str | None = None) -> Self:
        """A tensor of one value (no memory until it is written to); its dtype is that of the number unless given.
        ValueError for a number that an integer dtype cannot hold."""
        if isinstance(fill_value, np.generic | TensorCore):
            fill_value = fill_value.item()
        if not isinstance(fill_value, bool | int | float):
            raise TypeError(f"full: the value must be a number, got {type(fill_value).__name__}")
        sizes = checked_sizes("full", as_shape(shape if isinstance(shape, tuple | list) else (shape,)))
        kind = scalar_dtype(fill_value) if dtype is None else to_dtype(dtype)
        check_fits(fill_value, kind)
        constant = cls(UOp.const(fill_value, kind), device=device)._broadcast_to(sizes)
        return constant._new(leaf(constant.uop))

    @classmethod
    def zeros(
        cls,
        *shape: Any,
        size: int | Sequence[Size] | None = None,
        dtype: DTypeLike = dtypes.float32,
        device: str | None = None,
    ) -> Self:
        """A tensor of zeros, of sizes given one by one or as a tuple."""
        return cls.full(sizes_of("zeros", shape, size), 0, dtype, device)

    @classmethod
    def ones(
        cls,
        *shape: Any,
        size: int | Sequence[Size] | None = None,
        dtype: DTypeLike = dtypes.float32,
        device: str | None = None,
    ) -> Self:
        """A tensor of ones, of sizes given one by one or as a tuple."""
        return cls.full(sizes_of("ones", shape, size), 1, dtype, device)

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any], device: str | None = None) -> Self:
        """A copy of a NumPy array, in the dtype of the same name."""
        if not isinstance(array, np.ndarray):
            raise TypeError(f"from_numpy: expected a NumPy array, got {type(array).__name__}")
        return cls(array, device=device)

    # -- ranges -------------------------------------------------------------------------------------------------------
    @classmethod
    def arange(
        cls,
        start: Scalar,
        end: Scalar | None = None,
        step: Scalar = 1,
        dtype: DTypeLike | None = None,
        device: str | None = None,
    ) -> Self:
        """start, start + step, … before `end` (0 … start - 1 with one number): ⌈(end - start) / step⌉ numbers.

        int32 for whole numbers (int64 where they do not fit), else float32. An integer `dtype` cuts the fractions of
        start and step off, and counts up to `end` as it was given (int64 up to its whole part), as PyTorch does.
        ValueError for a step of 0, or one that leads away from `end`; TypeError for a size that varies.
        """
        if end is None:
            start, end = 0, start
        given = (start, end, step)
        if not all(isinstance(x, int | float) for x in given):
            raise TypeError(
                f"arange: start, end and step must be numbers, got {given}: of a size that varies take that of the "
                "largest, and of it the first ones ([:n])"
            )
        finite, whole = all(map(math.isfinite, given)), all(isinstance(x, int) for x in given)
        if finite and (end - start) * step < 0:
            raise ValueError(f"arange: a step of {step} leads from {start} away from {end}")
        if dtype is None:
            fits = whole and min(start, end) >= -(2**31) and max(start, end) <= 2**31
            dtype = (dtypes.int32 if fits else dtypes.int64) if whole else dtypes.float32
        dtype = to_dtype(dtype)
        wide = dtypes.float32 if dtype.bits < 32 else dtype
        if finite and not dtype.is_float:
            start, end, step = (math.trunc(x) for x in given)
            wide = dtypes.int64 if dtype.bits == 64 else dtypes.int32
            given = (start, end, step) if dtype.bits == 64 else given
        if not finite or step == 0:
            raise ValueError(f"arange: start, end and step must be finite and step not 0, got {(start, end, step)}")
        first, last, by = given
        exact = all(isinstance(x, int) for x in given)
        count = -((first - last) // by) if exact else math.ceil((last - first) / by)
        iota = cls(UOp(Ops.IOTA, dtypes.int32, (), int(count)), device=device)
        return iota.cast(wide).mul(step).add(start).cast(dtype)

    @classmethod
    def linspace(
        cls, start: float, end: float, steps: int, dtype: DTypeLike = dtypes.float32, device: str | None = None
    ) -> Self:
        """`steps` evenly spaced numbers from start to end, both included."""
        if not isinstance(steps, int) or steps < 0:
            raise ValueError(f"linspace: the number of steps must be a whole number ≥ 0, got {steps!r}")
        if steps <= 1:
            return cls.full((steps,), start, dtype, device)
        wide = dtypes.float64 if to_dtype(dtype) is dtypes.float64 else dtypes.float32
        at = cls(UOp(Ops.IOTA, dtypes.int32, (), steps), device=device)
        step = (end - start) / (steps - 1)
        # counted from the nearer end: both are exact
        low, high = at.cast(wide).mul(step).add(start), at.rsub(steps - 1).cast(wide).mul(-step).add(end)
        return at.less(steps // 2).where(low, high).cast(dtype)

    @classmethod
    def logspace(
        cls,
        start: float,
        end: float,
        steps: int,
        base: float = 10.0,
        dtype: DTypeLike = dtypes.float32,
        device: str | None = None,
    ) -> Self:
        """base to the powers of `steps` evenly spaced numbers from start to end."""
        wide = dtypes.float64 if to_dtype(dtype) is dtypes.float64 else dtypes.float32
        exponents = cls.linspace(start, end, steps, wide, device)
        return exponents._constant(float(base)).pow(exponents).cast(dtype)

    @classmethod
    def eye(cls, n: int, m: int | None = None, dtype: DTypeLike = dtypes.float32, device: str | None = None) -> Self:
        """Ones on the diagonal of an (n, m) matrix of zeros; m is n if not given."""
        return cls._diagonals(n, m, device, "eye").eq(0).cast(dtype)

    @classmethod
    def tri(
        cls, n: int, m: int | None = None, k: int = 0, dtype: DTypeLike = dtypes.float32, device: str | None = None
    ) -> Self:
        """Ones on and below the k-th diagonal of an (n, m) matrix of zeros."""
        return cls._diagonals(n, m, device, "tri").le(k).cast(dtype)

    @classmethod
    def _diagonals(cls, n: int, m: int | None, device: str | None, method: str) -> Self:
        """Column minus row of an (n, m) matrix."""
        rows, columns = checked_sizes(method, as_shape((n, n if m is None else m)))
        return (
            cls.arange(columns, device=device)
            ._reshape((1, columns))
            .sub(cls.arange(rows, device=device)._reshape((rows, 1)))
        )

    # -- like another tensor ------------------------------------------------------------------------------------------
    def full_like(self, fill_value: Scalar, dtype: DTypeLike | None = None, device: str | None = None) -> Self:
        """One value in this tensor's shape, dtype (unless given) and device."""
        return type(self).full(self.shape, fill_value, dtype or self.dtype, device or self.device)

    def zeros_like(self, dtype: DTypeLike | None = None, device: str | None = None) -> Self:
        """Zeros in this tensor's shape, dtype and device."""
        return self.full_like(0, dtype, device)

    def ones_like(self, dtype: DTypeLike | None = None, device: str | None = None) -> Self:
        """Ones in this tensor's shape, dtype and device."""
        return self.full_like(1, dtype, device)

    def empty_like(self, dtype: DTypeLike | None = None, device: str | None = None) -> Self:
        """Memory in this tensor's shape, dtype and device, on several divided as this is; it starts as zeros."""
        members = Device.members(self.device)
        if device is None and len(members) > 1:
            held, kind = tuple(map(size_max, self.shape)), self.dtype if dtype is None else to_dtype(dtype)
            buffer = new_buffer(math.prod(held), kind, spread_of(self.uop, members))
            return self._wrap(UOp(Ops.RESHAPE, kind, (buffer,), held), self.device, Storage(buffer))
        return self.new_empty(*self.shape, dtype=dtype, device=device)

    def new_full(self, size: Sequence[int], fill_value: Scalar, dtype: DTypeLike | None = None) -> Self:
        """One value in another shape, in this tensor's dtype and on its device."""
        return type(self).full(size, fill_value, dtype or self.dtype, self.device)

    def new_zeros(self, *shape: Any, size: int | Sequence[Size] | None = None, dtype: DTypeLike | None = None) -> Self:
        """Zeros in another shape, in this tensor's dtype and on its device."""
        return self.new_full(sizes_of("new_zeros", shape, size), 0, dtype)

    def new_ones(self, *shape: Any, size: int | Sequence[Size] | None = None, dtype: DTypeLike | None = None) -> Self:
        """Ones in another shape, in this tensor's dtype and on its device."""
        return self.new_full(sizes_of("new_ones", shape, size), 1, dtype)

    def new_empty(
        self,
        *shape: Any,
        size: int | Sequence[Size] | None = None,
        dtype: DTypeLike | None = None,
        device: str | None = None,
    ) -> Self:
        """Memory of another shape, in this tensor's dtype and on its device; it starts as zeros."""
        sizes = sizes_of("new_empty", shape, size)
        return type(self).empty(sizes, dtype=dtype or self.dtype, device=device or self.device)

    def new_tensor(self, data: Any, dtype: DTypeLike | None = None) -> Self:
        """`data` as a tensor of this tensor's dtype, on its device."""
        return type(self)(data, dtype=dtype or self.dtype, device=self.device)


def checked_sizes(method: str, shape: Sequence[Any]) -> tuple[Any, ...]:
    for s in shape:
        if not isinstance(s, UOp) and s < 0:
            raise ValueError(f"{method}: sizes must be whole numbers ≥ 0, got {tuple(shape)}")
    return tuple(shape)
