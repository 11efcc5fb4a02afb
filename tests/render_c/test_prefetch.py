"""Weights that are read once and in order are asked for ahead; other memory is left to the processor."""

from __future__ import annotations

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.graph.ir import UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import apply, heuristic
from tinyweb.graph.program import Program
from tinyweb.graph.target import cpu_target
from tinyweb.nn.quantize import quantize
from tinyweb.render_c import render
from tinyweb.render_c.prefetch import streamed
from tinyweb.tracing import capture

CPU = cpu_target(8, 2)


def product(bits: int, rows: int, width: int, tokens: int = 1) -> UOp:
    """The kernel that multiplies activations with quantised weights (rows, width)."""
    weight = quantize(np.random.default_rng(0).standard_normal((rows, width), np.float32), bits)
    assert weight is not None
    x = Tensor(np.ones((tokens, width), np.float32)).realize()
    return capture(lambda: weight.product(x, "int8")).kernels[-1]


def program(kernel: UOp) -> Program:
    return lower(apply(kernel, heuristic(kernel, CPU)), CPU)


def slots(p: Program) -> set[int]:
    return {u.src[0].arg.slot for u in streamed(p)}


@pytest.mark.parametrize("tokens", [1, 2])
@pytest.mark.parametrize("bits", [8, 4])
def test_quantised_weights_are_asked_for(bits: int, tokens: int) -> None:
    p = program(product(bits, 1024, 512, tokens))
    sizes = {i.slot: i.dtype.nbytes(i.size) for i in p.params}
    assert [sizes[slot] for slot in slots(p)] == [1024 * 512 * bits // 8]
    text = render([p])
    assert f"PREFETCH(p{min(slots(p))} + " in text and "__builtin_prefetch(address)" in text


def test_little_memory_is_near_already() -> None:
    assert not streamed(program(product(8, 64, 512)))


def test_what_many_tokens_read_again_is_left_alone() -> None:
    assert not streamed(program(product(8, 1024, 512, 256)))


def test_floats_are_left_to_the_processor() -> None:
    w, x = (Tensor(np.ones(shape, np.float32)).realize() for shape in ((1024, 512), (512,)))
    p = program(capture(lambda: (w @ x).realize()).kernels[-1])
    assert not streamed(p) and "PREFETCH" not in render([p])


def test_webassembly_has_no_such_hint() -> None:
    assert "#ifdef __wasm__\n#define PREFETCH(address)\n" in render([program(product(8, 1024, 512))])
