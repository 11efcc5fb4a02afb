"""Every method against PyTorch (or NumPy where PyTorch has none), on every runtime that works here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tinyweb import Tensor
from tinyweb.dtype import dtypes

DEVICES = ("CPU", "WASM", "WEBGPU", "INTERPRETER")
F = torch.nn.functional


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).normal(size=shape).astype(np.float32)


# name, function of tensors (works on both libraries, or a pair of functions), inputs
Case = tuple[str, Callable[..., Any] | tuple[Callable[..., Any], Callable[..., Any]], tuple[np.ndarray, ...]]
A, B, C = data(3, 4), data(4, 5), data(2, 3, 4)
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, -2.5, 1e-30, -3e5], np.float32)
INTS = np.array([-7, -3, -1, 0, 1, 2, 5, 100], np.int32)
PICKS = np.array([[0, 3], [1, 1], [2, 0]], np.int32)
CASES: list[Case] = [
    ("matmul", lambda a, b: a @ b, (A, B)),
    ("matmul_batch", lambda a, b: a @ b, (C, data(2, 4, 3))),
    ("matmul_broadcast", lambda a, b: a @ b, (C, B)),
    ("matmul_vector", lambda a, b: a @ b, (A, data(4))),
    ("vector_matmul", lambda a, b: a @ b, (data(4), B)),
    ("matmul_odd", lambda a, b: a @ b, (data(33, 65), data(65, 17))),
    ("matvec", lambda a, b: a @ b, (data(1, 256), data(256, 192))),
    ("reshape", lambda a: a.reshape(2, -1), (A,)),
    ("view_permute", lambda a: a.permute(2, 0, 1).reshape(4, 6), (C,)),
    ("transpose", lambda a: a.transpose(0, 1), (A,)),
    ("expand", lambda a: a.unsqueeze(1).expand(3, 2, 4), (A,)),
    ("flip", (lambda a: a.flip(0, 1), lambda a: a.flip(0, 1)), (A,)),
    ("squeeze", lambda a: a.unsqueeze(0).squeeze(0), (A,)),
    ("flatten", lambda a: a.flatten(1), (C,)),
    ("repeat", lambda a: a.repeat(2, 3), (A,)),
    ("repeat_interleave", lambda a: a.repeat_interleave(2, 1), (A,)),
    ("roll", lambda a: a.roll(1, 1), (A,)),
    ("cat", (lambda a, b: Tensor.cat([a, b], dim=0), lambda a, b: torch.cat([a, b], 0)), (A, data(2, 4))),
    ("stack", (lambda a, b: Tensor.stack([a, b], dim=1), lambda a, b: torch.stack([a, b], 1)), (A, data(3, 4, seed=2))),
    ("split", (lambda a: a.split(2, 1)[1], lambda a: a.split(2, 1)[1]), (A,)),
    ("chunk", (lambda a: a.chunk(3, 1)[1], lambda a: a.chunk(3, 1)[1]), (data(2, 7),)),
    ("pad", (lambda a: a.pad((1, 2, 0, 1), 3.0), lambda a: F.pad(a, (1, 2, 0, 1), value=3.0)), (A,)),
    ("index", lambda a: a[1], (A,)),
    ("slice", lambda a: a[1:, :-1], (A,)),
    ("slice_step", lambda a: a[:, ::2], (A,)),
    ("slice_none", lambda a: a[..., None, 1], (A,)),
    ("gather", (lambda a, i: a.gather(1, i), lambda a, i: a.gather(1, i.long())), (A, PICKS)),
    ("take", (lambda a, i: a[i], lambda a, i: a[i.long()]), (A, np.array([[0, 2], [1, -1]], np.int32))),
    ("tril", lambda a: a.tril(), (A,)),
    ("triu", lambda a: a.triu(1), (A,)),
]  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "function", "inputs"), CASES, ids=[c[0] for c in CASES])
def test_matches_torch(name: str, function: Any, inputs: tuple[np.ndarray, ...], device: str) -> None:
    ours, theirs = function if isinstance(function, tuple) else (function, function)
    got = ours(*(Tensor(x, device=device) for x in inputs)).numpy()
    want = theirs(*(torch.from_numpy(x.copy()) for x in inputs)).numpy()
    assert got.shape == want.shape
    if want.dtype.kind == "f":
        # sums of different order differ by the size of what was summed, not of the result
        scale = max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0.0)))
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=4e-6 * scale, equal_nan=True)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "dtype",
    [dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.float16, dtypes.int4, dtypes.uint4],
)
def test_small_types_survive_memory(dtype: Any, device: str) -> None:
    low, high = (0, 2) if dtype is dtypes.bool else (-8, 8) if dtype.is_signed else (0, 16)
    values = np.random.default_rng(1).integers(low, high, size=37)
    t = Tensor(values, dtype=dtype, device=device)
    np.testing.assert_array_equal(t.cast(dtypes.float32).numpy(), values.astype(np.float32))
    np.testing.assert_array_equal((t.cast(dtypes.int32) + 0).cast(dtype).contiguous().numpy(), values)


@pytest.mark.parametrize("device", DEVICES)
def test_bfloat16_rounds_to_even(device: str) -> None:
    values = np.concatenate([data(50), np.array([np.inf, -np.inf, 0.0, -0.0], np.float32)])
    got = Tensor(values, device=device).cast(dtypes.bfloat16).float().numpy()
    np.testing.assert_array_equal(got, torch.from_numpy(values).bfloat16().float().numpy())
