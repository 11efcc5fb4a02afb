"""The WGSL text: bindings, arrays and constants. What it computes is tested by running it in wgpu and Chromium."""

import math

import pytest

from tests.native_runtimes.programs import Writer, elementwise, index
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Ops, UOp, Variable
from tinyweb.graph.ir.ops import ELEMENTWISE, TRANSCENDENTAL
from tinyweb.graph.lower import program_for
from tinyweb.graph.target import webgpu_target
from tinyweb.render_wgsl import bindings, has_uniform, render
from tinyweb.render_wgsl.wgsl_ops import EMITTERS
from tinyweb.tracing import capture

F32, I32, U32 = dtypes.float32, dtypes.int32, dtypes.uint32


def test_every_operation_has_a_spelling_but_those_lowering_replaces() -> None:
    assert ELEMENTWISE - set(EMITTERS) == TRANSCENDENTAL | {Ops.LOOKUP}


def test_bindings_follow_the_parameters() -> None:
    w = Writer()
    out, a, words = w.param(F32, 8), w.param(F32, 8), w.param(U32, 2)
    g = w.grid(2)
    w.store(out, g * 4, w.load(a, g * 4, 4))
    w.store(words, g, UOp.const(1, U32), kind="atomic_or")
    program = w.program("bound", (2, 1, 1))
    text = render(program, {})
    assert "@group(0) @binding(0) var<storage, read_write> p0: array<vec4<f32>>;" in text
    assert "@group(0) @binding(1) var<storage, read> p1: array<vec4<f32>>;" in text
    assert "@group(0) @binding(2) var<storage, read_write> p2: array<atomic<u32>>;" in text
    assert bindings(program) == ["storage", "read-only-storage", "storage"] and not has_uniform(program)
    assert "uniform" not in text
    assert render(program, {}) == text


def test_variables_are_one_uniform_for_all_kernels() -> None:
    n = Variable("n", 0, 8)
    w = Writer()
    out = w.param(I32, 8)
    w.store(out, w.grid(n), n.cast(I32))
    program = w.program("variable", (n, 1, 1))
    text = render(program, {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "n": 5})
    assert "@group(0) @binding(1) var<uniform> variables: array<vec4<i32>, 2>;" in text
    assert "variables[1].y" in text
    with pytest.raises(DeviceError, match="no slot was given for the variable n"):
        render(program, {"a": 0})


def test_a_variable_of_the_grid_alone_needs_no_uniform() -> None:
    n = Variable("n", 0, 8)
    w = Writer()
    out = w.param(I32, 8)
    w.store(out, w.grid(8), UOp.const(1, I32))
    assert not has_uniform(w.program("sized", (n, 1, 1)))


def test_arrays_of_vectors_only_where_every_access_is_one() -> None:
    w = Writer()
    out, mixed, odd = w.param(F32, 8), w.param(F32, 8), w.param(F32, 6)
    g = w.grid(2)
    four, one = w.load(mixed, g * 4, 4), w.load(mixed, g)
    pair = w.load(odd, index(0), 4)
    total = four + UOp(Ops.STACK, F32, (one,) * 4) + pair
    w.store(out, g * 4, total)
    text = render(w.program("mixed", (2, 1, 1)), {})
    assert "p0: array<vec4<f32>>" in text and "p1: array<f32>" in text and "p2: array<f32>" in text


def test_infinities_are_not_constant_expressions() -> None:
    text = render(elementwise("infinite", [F32], F32, lambda x: x + math.inf, 4, 1), {})
    assert "var<private> nothing: u32;" in text and "bitcast<f32>(nothing | 0x7f800000u)" in text


def test_types_wgsl_does_not_have() -> None:
    for dtype in (dtypes.float64, dtypes.int64, dtypes.uint8):
        with pytest.raises(DeviceError, match=f"{dtype.name} has no WGSL type"):
            render(elementwise("copy", [dtype], dtype, lambda x: x, 4, 1), {})


def test_an_atomic_store_needs_atomic_memory() -> None:
    w = Writer()
    out = w.param(U32, 2)
    w.store(out, index(0), UOp.const(1, U32), kind="atomic_xor")
    with pytest.raises(DeviceError, match="cannot store with 'atomic_xor'"):
        render(w.program("strange"), {})


def test_entries_of_vectors_are_not_shifted() -> None:
    """Of a product of matrices all operands are vectors but one, and no index is divided by their width."""
    a, b = Tensor.empty(512, 512), Tensor.empty(512, 512)
    (call,) = capture(lambda: (a @ b).realize(), webgpu_target()).calls
    text = render(program_for(call.kernel, webgpu_target()), {})
    assert text.count("array<vec4<f32>") == 4 and ">> 2u]" not in text
