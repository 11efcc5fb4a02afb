"""Rows picked out of packed memory: the index comes from data, and only a gate keeps it inside."""

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.dtype import DType, dtypes


@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU", "INTERPRETER"])
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.int8, dtypes.int4])
@pytest.mark.parametrize("width", [1, 3, 8])
def test_rows_by_index(device: str, dtype: DType, width: int) -> None:
    values = (np.arange(64 * width).reshape(64, width) % 13 - 6).astype(dtype.numpy)
    table = Tensor(values, dtype=dtype, device=device)
    ids = np.array([5, 0, 63, -1, -64, 7], np.int32)
    assert (table[Tensor(ids, device=device)].float().numpy() == values[ids].astype(np.float32)).all()
