"""What NumPy arrays and Tensors are both asked for: known values take the way of those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from tinyweb.dtype import DType, dtypes, from_numpy
from tinyweb.formats.onnx.call import Array, Call
from tinyweb.formats.onnx.sizes import Sizes
from tinyweb.formats.onnx.sizes import fixed as fixed
from tinyweb.graph.ir import Ops, Size, size_max, size_prod, size_sub
from tinyweb.tensor import Tensor


def dtype_of(x: Array) -> DType:
    return x.dtype if isinstance(x, Tensor) else from_numpy(x.kind if isinstance(x, Sizes) else x.dtype)


@overload
def cast(x: Tensor, dtype: DType) -> Tensor: ...
@overload
def cast(x: Any, dtype: DType) -> Any: ...
def cast(x: Any, dtype: DType) -> Any:
    """The values as another type, as Tensors are cast."""
    if isinstance(x, Tensor):
        return x if x.dtype is dtype else x.cast(dtype)
    if dtype.held_wider:
        return Tensor(x, dtype=dtype, device="CPU")
    if x.dtype.kind == "f" and dtype.is_int:
        with np.errstate(invalid="ignore"):
            low, high = int(dtype.min), int(dtype.max)
            whole = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=float(high), neginf=float(low))
            inside = np.where(whole >= float(high), high, np.where(whole <= float(low), low, 0))
            exact = np.where((whole < float(high)) & (whole > float(low)), whole, 0).astype(dtype.numpy)
        return exact + inside.astype(dtype.numpy)
    return x.astype(dtype.numpy)


def reshape(x: Any, shape: Sequence[Any]) -> Any:
    return x.reshape(tuple(shape)) if isinstance(x, np.ndarray) else x.reshape(*shape) if shape else x.reshape(())


def permute(x: Any, axes: Sequence[int]) -> Any:
    return x.transpose(tuple(axes)) if isinstance(x, np.ndarray) else x.permute(*axes) if axes else x


def broadcast_to(x: Any, shape: Sequence[Any]) -> Any:
    return np.broadcast_to(x, tuple(shape)) if isinstance(x, np.ndarray) else x.broadcast_to(tuple(shape))


def join(values: Sequence[Any], axis: int) -> Any:
    if all(isinstance(v, np.ndarray) for v in values):
        return np.concatenate(values, axis)
    return Tensor.cat(*values, axis=axis) if len(values) > 1 else values[0]


def whole_axis(call: Call, axis: int, ndim: int) -> int:
    """An axis counted from the front."""
    if not -ndim <= axis < max(ndim, 1):
        raise call.error(f"axis {axis} is outside of {ndim} axes")
    return axis % ndim if ndim else 0


def whole_axes(call: Call, axes: Sequence[int], ndim: int) -> list[int]:
    found = [whole_axis(call, int(a), ndim) for a in axes]
    if len(set(found)) < len(found):
        raise call.error(f"axes {list(axes)} name one twice")
    return found


def number_of(x: Tensor) -> float | int | bool | None:
    """The number that a Tensor is everywhere, where it is made of one."""
    u = x.uop
    while u.op in (Ops.LEAF, Ops.EXPAND, Ops.RESHAPE):
        u = u.src[0]
    return u.arg if u.op is Ops.CONST else None


def wide(x: Tensor) -> Tensor:
    """Floats of few bits as float32, in which sums and functions of them are computed."""
    return x if x.dtype.bits >= 32 else x.cast(dtypes.float32)


def number(x: Any) -> Any:
    """The only element of a known array, as a Python number."""
    if isinstance(x, np.ndarray):
        if x.size != 1:
            raise ValueError(f"one number is needed, not an array of shape {list(x.shape)}")
        return x.reshape(()).item()
    return x


def filled(x: Tensor, axes: Sequence[int], value: float = 0.0) -> Tensor:
    """A Tensor whose sizes vary along axes, with a value behind its elements up to the largest sizes."""
    around = [(0, size_sub(size_max(n), n) if i in axes else 0) for i, n in enumerate(x.shape)]
    return x.pad(around, value=value) if any(after != 0 for _, after in around) else x


def size_of(shape: Sequence[Any]) -> Size:
    return size_prod(shape)
