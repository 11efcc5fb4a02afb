"""Inputs that are blocks of narrow integers, as matrices that stay so where they are the same in every call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyweb.dtype import DType, dtypes
from tinyweb.formats.onnx.call import Call, Host
from tinyweb.formats.onnx.operators.common import dtype_of
from tinyweb.formats.onnx.stored import Stored, integer_blocks, packed_blocks

Places = tuple[int, int, int]
EIGHT_BITS = 4  # the `accuracy_level` that rounds what is multiplied


def _arrays(call: Call, places: Places, values: Sequence[Any]) -> tuple[Host, Host, Host | None] | None:
    """Integers, scales and zero points (None where there are none); None where they are not the same in every call."""
    integers, scales, zeros = (None if v is None else call.array(i, v) for i, v in zip(places, values))
    known = integers is not None and scales is not None and (zeros is not None or values[2] is None)
    return (integers, scales, zeros) if integers is not None and scales is not None and known else None


def packed_matrix(
    call: Call, places: Places, values: Sequence[Any], shape: tuple[int, int], blocks: int, bits: int,
    rounds: bool = False,
) -> Stored | None:  # fmt: skip
    """Bytes of rows with scales and zero points, as a matrix (out, in); None where they are computed."""
    arrays = _arrays(call, places, values)
    if arrays is None:
        return None
    packed, scales, zeros = arrays
    rows = shape[0]
    if zeros is not None:
        whole = zeros.dtype.kind == "f" or zeros.size == rows * -(-blocks * bits // 8)
        zeros = zeros.reshape(rows, -1) if whole else zeros[:, :0]
    sizes = packed.size, scales.size, blocks if zeros is None or zeros.dtype.kind != "f" else zeros.shape[1]
    if packed.dtype != np.uint8 or sizes[0] * 8 % (rows * blocks * bits) or sizes[1:] != (rows * blocks, blocks):
        raise call.error(f"{packed.size} bytes and {scales.size} scales are not those of {list(shape)} in {bits} bits")
    bytes_of = packed.reshape(rows, blocks, -1)
    weight = call.around.kept.matrix(
        values, call.node.inputs[places[0]],
        lambda: packed_blocks(bytes_of, scales.reshape(rows, blocks), zeros, bits, call.device),
    )  # fmt: skip
    return Stored(weight, shape[1], dtype_of(scales), False, call.around.activations if rounds else "float")


def blocked_matrix(call: Call, places: Places, values: Sequence[Any], axis: int, block: int) -> Stored | None:
    """A matrix of integers, of which each block along an axis has a scale and maybe a zero point; None where it is no
    matrix, its integers are no narrow ones, or anything is computed."""
    like: DType = dtype_of(values[0])
    arrays = _arrays(call, places, values) if len(values[0].shape) == 2 and block >= 1 else None
    if arrays is None or like not in NARROW or call.kinds[places[0]]:
        return None
    turned, (integers, scales, zeros) = axis == 0, arrays
    if turned:
        integers, scales, zeros = integers.T, scales.T, None if zeros is None else zeros.T
    rows, width = integers.shape
    blocks = -(-width // block)
    if scales.shape != (rows, blocks) or (zeros is not None and zeros.shape != scales.shape):
        raise call.error(f"scales of shape {list(arrays[1].shape)} are not one for {block} of axis {axis} of "
                         f"{list(arrays[0].shape)}")  # fmt: skip
    integers = np.pad(integers, [(0, 0), (0, blocks * block - width)]).reshape(rows, blocks, block)
    weight = call.around.kept.matrix(
        values, call.node.inputs[places[0]],
        lambda: integer_blocks(integers, scales, zeros, like.bits, call.device),
    )  # fmt: skip
    return Stored(weight, width, dtype_of(values[1]), turned)


NARROW = (dtypes.int4, dtypes.uint4, dtypes.int8, dtypes.uint8)
