"""Making the tensors that layers hold: those that are learned have `requires_grad`, and all lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, dtypes
from tinyweb.tensor import Tensor


def parameter(values: npt.NDArray[np.floating], device: str | None = None) -> Tensor:
    """A small stored weight (a norm's, a bias) of a model that is not trained: always float32."""
    return Tensor(values.astype(np.float32), dtype=dtypes.float32, device=device)


def uniform(shape: tuple[int, ...], bound: float, device: str | None, dtype: DType = dtypes.float32) -> Tensor:
    """Learned, from the uniform distribution within ± bound."""
    return learned(Tensor.uniform(*shape, low=-bound, high=bound, device=device).cast(dtype))


def constant(shape: tuple[int, ...], value: float, device: str | None, dtype: DType = dtypes.float32) -> Tensor:
    """Learned, at first `value` everywhere."""
    return learned(Tensor.full(shape, value, dtype=dtype, device=device))


def learned(value: Tensor) -> Tensor:
    """A tensor of these values that an optimiser may change."""
    held: Tensor = value.contiguous().realize()
    return held.requires_grad_()


def state(value: float, device: str | None, *shape: int, dtype: DType = dtypes.float32) -> Tensor:
    """Memory that a layer itself keeps up to date."""
    return Tensor.full(shape, value, dtype=dtype, device=device).contiguous().realize()


def sizes_of(value: Any, n: int, method: str, name: str) -> tuple[int, ...]:
    """A number for each of `n` axes."""
    each = (value,) * n if isinstance(value, int) else tuple(value)
    if len(each) != n or not all(isinstance(v, int) and v >= 0 for v in each):
        raise ValueError(f"{method}: {name} must be a whole number or {n} of them, got {value!r}")
    return each
