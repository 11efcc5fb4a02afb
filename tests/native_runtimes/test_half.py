"""Half floats on every runtime: with shader-f16 (WEBGPU here), in words without it (CHROMIUM), in C and in NumPy."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.native_runtimes.test_lowered import compare
from tinyweb import Tensor, dtypes
from tinyweb.graph.ir import Ops, Space
from tinyweb.graph.lower import program_for
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, webgpu_target
from tinyweb.native_runtimes.interpreter import InterpreterRuntime
from tinyweb.native_runtimes.protocol import Runtime
from tinyweb.native_runtimes.webgpu import WebGpuRuntime
from tinyweb.tensor import realize_all
from tinyweb.tracing import capture

F16, F32, F64 = np.float16, np.float32, np.float64
PLAIN, HALF = webgpu_target(), webgpu_target(f16=True)
DEVICES = ("CPU", "WASM", "WEBGPU", "INTERPRETER")


def halves(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(s).astype(F16) for s in shapes]


def programs(compute: Callable[..., Tensor], *inputs: np.ndarray, target: Target = HALF) -> list[Program]:
    """Of what is made of the inputs."""
    tensors = [Tensor(x).realize() for x in inputs]
    return [program_for(k, target) for k in capture(lambda: compute(*tensors).contiguous().realize()).kernels]


def test_the_adapter_here_has_half_floats() -> None:
    """Else these tests would show nothing: Mesa's software driver offers shader-f16."""
    runtime = WebGpuRuntime()
    assert "shader-f16" in runtime.adapter.features and dtypes.float16 in runtime.target.arithmetic
    assert runtime.target.features == ["shader-f16"] and HALF.features == ["shader-f16"] and PLAIN.features == []
    assert webgpu_target(subgroups=True, f16=True).features == ["shader-f16", "subgroups"]


# -- values --------------------------------------------------------------------------------------------------------
OPERATIONS: dict[str, Callable[..., object]] = {
    "sum": lambda a, b: a + b,
    "difference": lambda a, b: a - b,
    "product": lambda a, b: a * b,
    "negative": lambda a, b: -a,
    "constants": lambda a, b: a * a.dtype.type(0.25) if isinstance(a, np.ndarray) else a * 0.25,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [1, 3, 8, 1001])
def test_arithmetic_is_rounded_once(device: str, size: int) -> None:
    a, b = halves((size,), (size,))
    x, y = Tensor(a, device=device), Tensor(b, device=device)
    found: dict[str, tuple[object, np.ndarray]] = {
        name: (f(x, y), np.asarray(f(a, b))) for name, f in OPERATIONS.items()
    }
    found["maximum"] = x.maximum(y), np.maximum(a, b)
    found["minimum"] = (x < y).where(x, y), np.minimum(a, b)
    found["relu"] = x.relu(), np.maximum(a, F16(0))
    # three operands: in float32, rounded once
    found["sum of a product"] = x * y + x, (a.astype(F32) * b.astype(F32) + a.astype(F32)).astype(F16)
    wide = a.astype(F32)
    close = {"exp": (x.exp(), np.exp(wide).astype(F16)), "quotient": (x / y, (wide / b.astype(F32)).astype(F16))}
    tensors = [got for got, _ in (found | close).values() if isinstance(got, Tensor)]
    assert len(tensors) == len(found) + len(close) and all(t.dtype is dtypes.float16 for t in tensors)
    realize_all(tensors)
    for name, got, (_, want) in zip((*found, *close), tensors, (found | close).values()):
        if name in close:
            np.testing.assert_allclose(got.numpy(), want, rtol=2**-10, err_msg=name)
        else:
            np.testing.assert_array_equal(got.numpy(), want, err_msg=name)


@pytest.mark.parametrize("device", DEVICES)
def test_all_half_floats(device: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = Tensor(bits.view(F16), device=device)
    np.testing.assert_array_equal(x.float().numpy(), bits.view(F16).astype(F32))
    np.testing.assert_array_equal(x.bitcast(dtypes.uint16).numpy(), bits)
    np.testing.assert_array_equal(x.float().half().numpy(), bits.view(F16))
    special = Tensor(np.array([np.nan, 1, np.nan, -np.inf, np.inf], F16), device=device)
    other = Tensor(np.array([1, np.nan, np.nan, 1, -1], F16), device=device)
    np.testing.assert_array_equal(special.maximum(other).numpy(), np.array([np.nan, np.nan, np.nan, 1, np.inf], F16))


@pytest.mark.parametrize("device", DEVICES)
def test_rounding_to_half(device: str) -> None:
    """To nearest even, to infinity from 65520 on, to subnormal numbers, which are exact floats in float32."""
    rng = np.random.default_rng(5)
    x = (rng.uniform(-1, 1, 50_000) * 2.0 ** rng.integers(-27, 18, 50_000)).astype(F32)
    ties = (np.arange(-3000, 3000) + 0.5).astype(F32)
    edges = np.array([65504, 65519.996, 65520, 1e9, np.inf, -np.inf, np.nan, -0.0, 2**-25, 1.5 * 2**-25, 2**-24], F32)
    values = np.concatenate([x, ties * F32(2**-24), ties * 2, edges, -edges])
    with np.errstate(over="ignore"):
        want = values.astype(F16)
    got = Tensor(values, device=device).half().numpy()
    np.testing.assert_array_equal(got, want)
    assert np.array_equal(np.signbit(got), np.signbit(want) | np.isnan(want) & np.signbit(got))


CASES: dict[str, tuple[list[np.ndarray], Callable[..., Tensor], Callable[..., np.ndarray]]] = {
    "odd copy": (halves((7, 9)), lambda a: a.permute(1, 0), lambda a: a.T),
    "odd slice": (halves((33,)), lambda a: a[3:30] + a[2:29], lambda a: a[3:30] + a[2:29]),
    "pad": (halves((5, 3)), lambda a: a.pad(((1, 2), (3, 0))), lambda a: np.pad(a, ((1, 2), (3, 0)))),
    "row maxima": (halves((5, 130)), lambda a: a.max(-1), lambda a: a.max(-1)),
    "sums": (halves((5, 1001)), lambda a: a.sum(-1), lambda a: a.astype(F32).sum(-1).astype(F16)),
    "softmax": (halves((3, 70)), lambda a: a.softmax(-1),
                lambda a: (np.exp(a.astype(F32)) / np.exp(a.astype(F32)).sum(-1, keepdims=True)).astype(F16)),
    "product": (halves((65, 130), (130, 67)), lambda a, b: a @ b,
                lambda a, b: (a.astype(F32) @ b.astype(F32)).astype(F16)),
    "prime product": (halves((37, 19), (19, 53)), lambda a, b: a @ b,
                      lambda a, b: (a.astype(F32) @ b.astype(F32)).astype(F16)),
    "self product": (halves((40, 32)), lambda a: a @ a.transpose(),
                     lambda a: (a.astype(F32) @ a.astype(F32).T).astype(F16)),
    "weights": ([*(a.astype(F32) for a in halves((33, 64))), *halves((50, 64))],
                lambda a, w: a @ w.float().transpose(), lambda a, w: a @ w.astype(F32).T),
    "one row": ([*(a.astype(F32) for a in halves((1, 512))), *halves((24, 512))],
                lambda a, w: a @ w.float().transpose(), lambda a, w: a @ w.astype(F32).T),
    "scaled weights": ([*(a.astype(F32) for a in halves((33, 64))), *halves((50, 64))],
                       lambda a, w: a @ (w.float() * 2).transpose(), lambda a, w: a @ (w.astype(F32) * 2).T),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_lowered(runtime: Runtime, name: str) -> None:
    inputs, ours, numpy = CASES[name]
    compare(runtime, runtime.target, inputs, ours, np.ascontiguousarray(numpy(*inputs)))


@pytest.mark.parametrize("subgroups", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_with_subgroups(name: str, subgroups: bool) -> None:
    """Programs for adapters with both features, carried out in NumPy."""
    inputs, ours, numpy = CASES[name]
    target = webgpu_target(subgroups=subgroups, f16=True)
    compare(InterpreterRuntime(), target, inputs, ours, np.ascontiguousarray(numpy(*inputs)))


def test_convolution(runtime: Runtime) -> None:
    x, w = halves((1, 8, 10, 10), (16, 8, 3, 3))
    a, b = Tensor(x.astype(F32)), Tensor(w.astype(F32))
    compare(runtime, runtime.target, [x, w], lambda x, w: x.conv2d(w, padding=1), a.conv2d(b, padding=1).half().numpy())


def test_attention_over_a_cache_of_half_floats(runtime: Runtime) -> None:
    for queries, keys, width in ((1, 65, 32), (9, 40, 20)):
        q, k, v = halves((2, queries, width), (2, keys, width), (2, keys, width))
        scores = q.astype(F64) @ k.astype(F64).transpose(0, 2, 1) / np.sqrt(width)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        want = weights / weights.sum(-1, keepdims=True) @ v.astype(F64)
        compare(
            runtime, runtime.target, [q.astype(F32), k, v],
            lambda q, k, v: q.scaled_dot_product_attention(k.float(), v.float()), want.astype(F32),
        )  # fmt: skip


# -- what docs/numerics.md promises ---------------------------------------------------------------------------------
@pytest.mark.parametrize("device", DEVICES)
def test_products_are_exact_and_summed_in_float32(device: str) -> None:
    """Products of half floats beyond their range, and below it, and a bound on the error of a long sum."""
    a, b = halves((40, 4096), (4096, 36))
    exact = a.astype(F64) @ b.astype(F64)
    got = (Tensor(a, device=device) @ Tensor(b, device=device)).numpy().astype(F64)
    bound = 2**-11 * np.abs(exact) + 64 * 2**-24 * (np.abs(a).astype(F64) @ np.abs(b).astype(F64))
    assert np.all(np.abs(got - exact) <= bound)
    large = np.full((32, 64), 300, F16)
    signs = np.where(np.arange(64) % 2 == 0, 1, -1).astype(F16)[:, None] * np.full((64, 32), 300, F16)
    signs[0] = 301
    assert np.all((Tensor(large, device=device) @ Tensor(signs, device=device)).numpy() == 300)
    small = np.full((32, 4096), 2**-14, F16)
    product = Tensor(small, device=device) @ Tensor(np.ascontiguousarray(small.T), device=device)
    assert np.all(product.numpy() == F16(2**-16))


# -- programs -------------------------------------------------------------------------------------------------------
def test_halves_are_read_and_written_as_they_are() -> None:
    (a, b), f = halves((33,), (33,)), lambda a, b: (a * b + a).relu()
    for target, half in ((PLAIN, False), (HALF, True)):
        (program,) = programs(f, a, b, target=target)
        assert {p.dtype is dtypes.float16 for p in program.params} == {half}
        # without the feature, parts of words are updated together
        assert all(p.atomic is False for p in program.params) == half
        converted = {Ops.F16_TO_F32, Ops.F32_TO_F16} & {u.op for u in program.uops}
        assert bool(converted) != half


def test_arithmetic_in_half_is_what_rounds_once() -> None:
    a, b = halves((64,), (64,))

    def computed(f: Callable[..., Tensor]) -> set[Ops]:
        (program,) = programs(f, a, b)
        return {u.op for u in program.uops if u.dtype is dtypes.float16} - {Ops.PARAM, Ops.LOAD, Ops.STACK, Ops.CONST}

    assert computed(lambda a, b: a + b) == {Ops.ADD}
    assert computed(lambda a, b: a * 0.5) == {Ops.MUL}
    assert computed(lambda a, b: a.maximum(b)) == {Ops.MAX}
    assert computed(lambda a, b: a * b + a) == {Ops.CAST}
    assert computed(lambda a, b: a + b.float()) == set()


def test_tiles_lie_in_shared_memory_as_halves() -> None:
    a, b = halves((64, 64), (64, 64))

    def shared(f: Callable[..., Tensor], *inputs: np.ndarray) -> list[str]:
        (program,) = programs(f, *inputs)
        buffers = [u for u in program.uops if u.op is Ops.BUFFER and u.arg.space is Space.SHARED]
        assert program.shared_bytes == sum(u.dtype.nbytes(u.arg.size) for u in buffers)
        return sorted(u.dtype.short for u in buffers)

    assert shared(lambda a, b: a @ b, a, b) == ["f16", "f16"]
    assert shared(lambda a, b: a @ b.float(), a.astype(F32), b) == ["f16", "f32"]
    # what is computed on the way is no half float
    assert shared(lambda a, b: a @ (b.float() * 2.5 + 1), a.astype(F32), b) == ["f32", "f32"]
    assert shared(lambda a, b: a @ b, a.astype(F32), b.astype(F32)) == ["f32", "f32"]


def test_a_target_has_half_floats_where_they_are_of_use() -> None:
    """So that adapters share programs and what search has found; bits of half floats are looked at in words."""
    (a,) = halves((64,))
    assert programs(lambda x: x.exp(), a.astype(F32)) == programs(lambda x: x.exp(), a.astype(F32), target=PLAIN)
    bits = lambda x: x.bitcast(dtypes.int16)  # noqa: E731
    assert programs(bits, a) == programs(bits, a, target=PLAIN)
    assert programs(lambda x: x.exp(), a) != programs(lambda x: x.exp(), a, target=PLAIN)
