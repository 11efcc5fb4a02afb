"""Weights that are read once and in order are asked for ahead; other memory is left to the processor."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import axes, kernel, param, total
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import Action, Bind, Prefetch, ScheduleError, Split, apply, from_json, heuristic, to_json
from tinyweb.graph.optimize.prefetch import BLOCK, LEAST, read_in_order
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, cpu_target, wasm_target
from tinyweb.nn.quantize import quantize
from tinyweb.render_c import render
from tinyweb.tracing import capture

CPU = cpu_target(8, 2)


def product(bits: int, rows: int, width: int, tokens: int = 1) -> UOp:
    """The kernel that multiplies activations with quantised weights (rows, width)."""
    weight = quantize(np.random.default_rng(0).standard_normal((rows, width), np.float32), bits)
    assert weight is not None
    x = Tensor(np.ones((tokens, width), np.float32)).realize()
    return capture(lambda: weight.product(x, "int8")).kernels[-1]


def program(k: UOp, target: Target = CPU) -> Program:
    return lower(apply(k, heuristic(k, target)), target)


def slots(k: UOp, target: Target = CPU) -> list[int]:
    """The parameters that the usual schedule asks for ahead."""
    return [a.param for a in heuristic(k, target) if isinstance(a, Prefetch)]


@pytest.mark.parametrize("tokens", [1, 2])
@pytest.mark.parametrize("bits", [8, 4])
def test_quantised_weights_are_asked_for(bits: int, tokens: int) -> None:
    k = product(bits, 1024, 512, tokens)
    p, (slot,) = program(k), slots(k)
    sizes = {i.slot: i.dtype.nbytes(i.size) for i in p.params}
    assert sizes[slot] == 1024 * 512 * bits // 8
    text = render([p])
    assert f"PREFETCH(p{slot} + " in text and "__builtin_prefetch(address)" in text
    assert f"prefetch(p{slot}, 4096)" in p.schedule


def test_little_memory_is_near_already() -> None:
    assert not slots(product(8, 64, 512))


def test_what_many_tokens_read_again_is_left_alone() -> None:
    assert not slots(product(8, 1024, 512, 256))


def test_floats_are_left_to_the_processor() -> None:
    w, x = (Tensor(np.ones(shape, np.float32)).realize() for shape in ((1024, 512), (512,)))
    k = capture(lambda: (w @ x).realize()).kernels[-1]
    assert not slots(k) and "PREFETCH" not in render([program(k)])


def test_webassembly_has_no_such_hint() -> None:
    k = product(8, 1024, 512)
    assert not slots(k, wasm_target()) and "PREFETCH" not in render([program(k, wasm_target())])
    assert "#ifdef __wasm__\n#define PREFETCH(address)\n" in render([program(k)]), "compiled for it all the same"


# -- the action -------------------------------------------------------------------------------------------------------
def sums(rows: int, columns: int, size: int | None = None, across: bool = False, gated: bool = False) -> UOp:
    """Sums of rows, or of columns, of bytes that lie row by row."""
    (i,), (r,) = axes(rows), axes(columns, reduce=True, first=1)
    at = r * rows + i if across else i * columns + r
    a = param(1, rows * columns if size is None else size, dtypes.int8)
    value = a.load(at, i < rows - 1) if gated else a.load(at)
    return kernel(param(0, rows, dtypes.int32).store(i, total(value.cast(dtypes.int32), r)))


def found(k: UOp, *actions: Action, lanes: int = 16) -> list[int]:
    """What is read in order, where sums are of whole vectors."""
    vectors = Split("r0", lanes), Bind("r0.1", AxisKind.VECTOR)
    return [u.arg.slot for u in read_in_order(apply(k, [*actions, *vectors]))]


GRID = Bind("i0", AxisKind.GRID)


def test_what_is_read_in_order() -> None:
    rows, blocks = LEAST // 1024, (Split("i0", 16), Bind("i0.0", AxisKind.GRID))
    assert found(sums(rows, 1024), GRID) == [1] and found(sums(rows, 1024), *blocks) == [1]
    assert found(sums(rows, 1024)) == [], "no worker has a block"
    assert found(sums(rows, 1024), GRID, lanes=8) == [], "short vectors"
    assert found(sums(rows - 1, 1024), GRID) == [], "little"
    assert found(sums(2, BLOCK), GRID) == [1] and found(sums(2, BLOCK + 16), GRID) == [], "long blocks"
    assert found(sums(rows, 1024, rows * 1024 + rows), GRID) == [], "something is left out"
    assert found(sums(rows, 1024, across=True), GRID) == [], "columns"
    assert found(sums(rows, 1024, gated=True), GRID) == []
    assert found(sums(rows + 1, 1024), Split("i0", 16), Bind("i0.0", AxisKind.GRID)) == [], "a block that is shorter"


def test_what_a_loop_reads_again() -> None:
    (i, j), (r,) = axes(256, 4), axes(1024, reduce=True, first=2)
    a, b = param(1, 256 * 1024, dtypes.int8), param(2, 4 * 1024, dtypes.int8)
    value = a.load(i * 1024 + r).cast(dtypes.int32) * b.load(j * 1024 + r).cast(dtypes.int32)
    k = kernel(param(0, 1024, dtypes.int32).store(i * 4 + j, total(value, r)))
    assert found(k, GRID) == [] and found(k, GRID, Bind("i1", AxisKind.UNROLL)) == [1]
    assert found(k, GRID, Bind("i1", AxisKind.GRID)) == []


def test_the_action() -> None:
    k = sums(8, 64)
    (action,) = from_json(to_json([Prefetch(1, 256)]))
    assert str(action) == "prefetch(p1, 256)"
    p = lower(apply(k, [Split("r0", 16), Bind("r0.1", AxisKind.VECTOR), action]), CPU)
    assert render([p]).count("PREFETCH(p1 + ") == 1
    for wrong in (Prefetch(0, 256), Prefetch(2, 256), Prefetch(1, 0), Prefetch(1, (1 << 20) + 1)):
        with pytest.raises(ScheduleError, match=r"^prefetch\(p\d, \d+\): "):
            apply(k, [wrong])
    large = apply(sums(256, 1024), [GRID, Split("r0", 16), Bind("r0.1", AxisKind.VECTOR)])
    assert list(Prefetch.candidates(large, CPU)) == [(Prefetch(1, 4096),)]
    assert not list(Prefetch.candidates(large, wasm_target()))
