"""Weights that are read once and in order are asked for ahead; other memory is left to the processor."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import axes, kernel, param, total
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import Bind, Prefetch, ScheduleError, Split, apply, from_json, heuristic, to_json
from tinyweb.graph.optimize.prefetch import LEAST
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, cpu_target, wasm_target
from tinyweb.nn.quantize import quantize
from tinyweb.render_c import render
from tinyweb.tracing import capture
from tinyweb.tuning.candidates import every

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


def test_one_worker_reads_as_it_is() -> None:
    assert not slots(product(8, 1024, 512), cpu_target(8, 1))


def test_scales_that_are_read_in_vectors_are_asked_for_too() -> None:
    """Of weights of 4 bits whose groups lie in the lanes of vectors."""
    k = product(4, 4096, 4096)
    sizes = {u.arg.slot: u.dtype.nbytes(u.arg.size) for u in k.toposort() if u.op is Ops.PARAM}
    asked = [sizes[slot] for slot in slots(k)]
    assert asked == [4096 * 4096 // 2, 4096 * 4096 // 32 * 2] and min(asked) >= LEAST


# -- the action -------------------------------------------------------------------------------------------------------
def sums(rows: int, columns: int) -> UOp:
    """Sums of rows of bytes."""
    (i,), (r,) = axes(rows), axes(columns, reduce=True, first=1)
    value = param(1, rows * columns, dtypes.int8).load(i * columns + r)
    return kernel(param(0, rows, dtypes.int32).store(i, total(value.cast(dtypes.int32), r)))


def test_the_action() -> None:
    k = sums(8, 64)
    (action,) = from_json(to_json([Prefetch(1, 256)]))
    assert str(action) == "prefetch(p1, 256)"
    p = lower(apply(k, [Split("r0", 16), Bind("r0.1", AxisKind.VECTOR), action]), CPU)
    assert render([p]).count("PREFETCH(p1 + ") == 1
    for wrong in (Prefetch(0, 256), Prefetch(2, 256), Prefetch(1, 0), Prefetch(1, (1 << 20) + 1)):
        with pytest.raises(ScheduleError, match=r"^prefetch\(p\d, \d+\): "):
            apply(k, [wrong])
    assert Prefetch(1, 4096) in every(k, CPU)
    assert not any(isinstance(a, Prefetch) for a in every(k, wasm_target()))
