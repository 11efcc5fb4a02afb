"""Numbers of tables: bounds, constants, shifts, and what programs make of them."""

from __future__ import annotations

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, TableArg, UOp, Variable
from tinyweb.graph.optimize.instructions import shifted_by
from tinyweb.graph.symbolic import simplify
from tinyweb.nn.quantized_weight import looked_up

I32 = dtypes.int32


def lookup(x: UOp, *numbers: int) -> UOp:
    return UOp(Ops.LOOKUP, I32, (x,), TableArg(numbers))


def test_bounds_constants_and_shifts() -> None:
    x = Variable("x", 0, 3).cast(I32)
    found = lookup(x, 5, -7, 9, 0)
    assert found.bounds == (-7, 9)
    assert simplify(lookup(UOp.const(2, I32), 5, -7, 9, 0)) is UOp.const(9, I32)
    assert shifted_by(found, 7) is lookup(x, 12, 0, 16, 7)


@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU", "INTERPRETER"])
@pytest.mark.parametrize(
    ("kind", "low"), [(dtypes.uint1, -128), (dtypes.uint2, 0), (dtypes.uint4, -128), (dtypes.uint4, 0)]
)
def test_values(device: str, kind: object, low: int) -> None:
    rng = np.random.default_rng(3)
    assert isinstance(kind, type(dtypes.uint1))
    count = 1 << kind.bits
    numbers = tuple(int(n) for n in rng.integers(low, low + 256, count))
    codes = rng.integers(0, count, 77)
    got = looked_up(Tensor(codes, dtype=kind, device=device), numbers)
    assert got.dtype is I32
    np.testing.assert_array_equal(got.numpy(), np.array(numbers)[codes])
