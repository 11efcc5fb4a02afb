"""Matrix instructions of AMD's GPUs: where each thread's elements lie, by running the text of kernels."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tests.native_runtimes.hip.standin import StandIn
from tests.native_runtimes.test_lowered import compare
from tinyweb import Tensor
from tinyweb.dtype import BY_NAME, dtypes
from tinyweb.native_runtimes.hip import HipRuntime

CHIPS = {"gfx942": "_mfma_", "gfx1100": "_wmma_", "gfx1201": "_gfx12"}
MARKS = {**CHIPS, "gfx90a": "_mfma_", "gfx950": "_mfma_"}


NUMBERS = [
    ("gfx90a", "int8"),
    *((chip, name) for chip in CHIPS for name in ("float16", "bfloat16", "int8")),
    *((chip, name) for chip in ("gfx950", "gfx1201") for name in ("float8_e4m3", "float8_e5m2")),
]


# every chip and every type
QUICK = {
    ("gfx90a", "int8"), ("gfx942", "float16"), ("gfx942", "int8"),
    ("gfx1100", "bfloat16"), ("gfx1100", "int8"), ("gfx1201", "float16"),
    ("gfx950", "float8_e4m3"), ("gfx1201", "float8_e5m2"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("chip", "name"), [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in NUMBERS]
)
def test_products_by_waves(monkeypatch: pytest.MonkeyPatch, name: str, chip: str) -> None:
    standin, random, dtype = StandIn(monkeypatch, chip), np.random.default_rng(0), BY_NAME[name]
    runtime = HipRuntime()
    a, b = (random.integers(-8, 9, size).astype(np.float32) for size in ((128, 64), (64, 128)))
    result = dtypes.int32 if dtype.is_int else dtypes.float32

    def ours(x: Tensor, y: Tensor) -> Tensor:
        x, y = (t.cast(dtype).contiguous() for t in (x, y))
        return x.cast(result) @ y.cast(result)

    compare(runtime, runtime.target, [a, b], ours, (a @ b).astype(np.int32 if dtype.is_int else np.float32))
    standin.check()
    assert any(MARKS[chip] in source.partition("extern")[0] for _, source in standin.programs.values())
    gc.collect()
    runtime.close()
