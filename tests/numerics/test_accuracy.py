"""Every elementary function stays within the error that docs/numerics.md promises, on every device."""

from __future__ import annotations

import accuracy  # tools/accuracy.py
import numpy as np
import pytest

from tinyweb import Tensor, dtypes
from tinyweb.graph.ir import TRANSCENDENTAL, Ops, UOp
from tinyweb.graph.lower.transcendental import EXPANSIONS
from tinyweb.tensor import realize_all

# where longdouble is no wider than float64 the reference itself may be off by half a unit
SLACK = 0 if np.finfo(np.longdouble).nmant > 52 else 0.5
UNARY = [f for f in accuracy.FUNCTIONS if f.op not in accuracy.BINARY]


@pytest.mark.parametrize("function", accuracy.FUNCTIONS, ids=lambda f: f.op.name)
@pytest.mark.parametrize("device", accuracy.DEVICES)
def test_float32(device: str, function: accuracy.Function) -> None:
    found = accuracy.measure(device, dtypes.float32)[function.op]
    assert found.error <= function.single, found


@pytest.mark.parametrize("function", accuracy.FUNCTIONS, ids=lambda f: f.op.name)
@pytest.mark.parametrize("device", [d for d in accuracy.DEVICES if d != "WEBGPU"])
def test_float64(device: str, function: accuracy.Function) -> None:
    found = accuracy.measure(device, dtypes.float64)[function.op]
    assert found.error <= function.double + SLACK, found


@pytest.mark.parametrize("device", accuracy.DEVICES)
def test_halves_go_through_float32(device: str) -> None:
    x = np.array([-2.0, -0.3, 0.0, 0.7, 3.0, np.inf, np.nan], np.float16)
    halves, singles = dict[Ops, Tensor](), dict[Ops, Tensor]()
    for op in sorted(EXPANSIONS):
        t = Tensor(x, device=device)
        src = (t.uop, t.uop) if op in accuracy.BINARY else (t.uop,)
        halves[op] = Tensor._wrap(UOp(op, dtypes.float16, src), device)
        wide = tuple(UOp(Ops.CAST, dtypes.float32, (s,)) for s in src)
        singles[op] = Tensor._wrap(UOp(op, dtypes.float32, wide), device)
    realize_all(list(halves.values()))
    realize_all(list(singles.values()))
    for op, half in halves.items():
        np.testing.assert_array_equal(half.numpy(), singles[op].numpy().astype(np.float16), op.name)


def test_float32_in_chromium(chromium_device: str) -> None:
    found = accuracy.measure.__wrapped__(chromium_device, dtypes.float32, 1000, flushes=True)
    over = [f"{f.name}: {found[f.op]}" for f in accuracy.FUNCTIONS if found[f.op].error > f.single]
    assert not over, "\n".join(over)


def test_every_function_is_measured() -> None:
    assert {f.op for f in accuracy.FUNCTIONS} >= TRANSCENDENTAL


def test_the_page_promises_what_is_tested() -> None:
    rows = [[c.strip() for c in line.split("|")] for line in accuracy.PAGE.read_text().splitlines() if "**" in line]
    promised = {r[1]: (r[2], r[-4]) for r in rows if len(r) > 8}
    assert promised == {f.name: (f"**{f.single:g}**", f"**{f.double:g}**") for f in accuracy.FUNCTIONS}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.op.name)
def test_all_floats(function: accuracy.Function) -> None:
    """Exhaustive, but for functions whose reference takes too long: one in 64 floats of those."""
    step = 64 if function.op in (Ops.ERF, Ops.ERFC, Ops.LGAMMA, Ops.DIGAMMA) else 1
    for found in accuracy.sweep(function, step):
        assert found.error <= function.single, found
