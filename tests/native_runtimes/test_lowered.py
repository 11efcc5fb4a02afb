"""What the compiler really makes — tiles, workgroups, barriers, packed types — on every runtime against NumPy."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.native_runtimes.devices import GPUS
from tests.samples import slow_unless
from tinyweb import Tensor, dtypes
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import optimize
from tinyweb.graph.schedule import nbytes
from tinyweb.graph.target import Target, webgpu_target
from tinyweb.native_runtimes.interpreter import InterpreterRuntime
from tinyweb.native_runtimes.protocol import Launch, Runtime
from tinyweb.native_runtimes.webgpu import WebGpuRuntime
from tinyweb.tracing import capture


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


CASES: dict[str, tuple[list[np.ndarray], Callable[..., Tensor], Callable[..., np.ndarray]]] = {
    "matmul": (arrays((65, 130), (130, 67)), lambda a, b: a @ b, lambda a, b: a @ b),
    "matvec": (arrays((1, 256), (256, 512)), lambda a, b: a @ b, lambda a, b: a @ b),
    "softmax": (arrays((3, 700)), lambda a: a.softmax(-1), softmax),
    "sum of all": (arrays((50, 333)), lambda a: a.sum(), lambda a: a.sum()),
    "column maxima": (arrays((100, 33)), lambda a: a.max(0), lambda a: a.max(0)),
    "argmax": (arrays((5, 1000)), lambda a: a.argmax(-1).cast(dtypes.int32), lambda a: a.argmax(-1).astype(np.int32)),
    "transpose": (arrays((31, 63)), lambda a: a.permute(1, 0).contiguous(), lambda a: a.T.copy()),
    "pad and flip": (arrays((7, 9)), lambda a: a.pad(((1, 2), (3, 0))).flip(1),
                     lambda a: np.pad(a, ((1, 2), (3, 0)))[:, ::-1]),
    "halves": (arrays((9, 33)), lambda a: a.cast(dtypes.float16), lambda a: a.astype(np.float16)),
    "bytes": (arrays((9, 33)), lambda a: (a * 20).cast(dtypes.int8), lambda a: (a * 20).astype(np.int8)),
    "bools": (arrays((9, 33)), lambda a: a > 0.5, lambda a: a > 0.5),
    "row sums as bytes": (arrays((37, 64)), lambda a: a.sum(1).cast(dtypes.int8), lambda a: a.sum(1).astype(np.int8)),
    "functions": (arrays((500,)), lambda a: a.exp() + a.sin() + (a * a + 1).log(),
                  lambda a: np.exp(a) + np.sin(a) + np.log(a * a + 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_lowered(runtime: Runtime, name: str) -> None:
    inputs, ours, numpy = CASES[name]
    compare(runtime, runtime.target, inputs, ours, numpy(*inputs))


PRODUCTS: dict[str, tuple[list[np.ndarray], Callable[..., Tensor]]] = {
    "whole tiles": (arrays((64, 48), (48, 128)), lambda a, b: a @ b),
    "odd sizes": (arrays((37, 19), (19, 50)), lambda a, b: a @ b),
    "transposed": (arrays((70, 40), (96, 40)), lambda a, b: a @ b.transpose()),
    "batches and a bias": (arrays((2, 33, 20), (2, 20, 64), (64,)), lambda a, b, c: (a @ b + c).relu()),
    "two sums": (arrays((32, 24), (64, 24), (64, 24)), lambda a, b, c: (a @ b.transpose()) * (a @ c.transpose())),
    "convolution": (arrays((1, 3, 30, 30), (32, 3, 3, 3)), lambda x, w: x.conv2d(w, padding=1)),
    "five columns": (arrays((1, 16, 7, 7), (24, 16, 3, 3)), lambda x, w: x.conv2d(w).silu()),
    "ten columns": (arrays((1, 8, 10, 10), (16, 8, 3, 3)), lambda x, w: x.conv2d(w, padding=1).silu()),
    "two small images": (arrays((2, 8, 4, 4), (16, 8, 3, 3)), lambda x, w: x.conv2d(w, padding=1)),
    "halves": (arrays((40, 32), (48, 32)), lambda a, b: a @ b.cast(dtypes.float16).contiguous().float().transpose()),
}
SAMPLE = ("two sums", "convolution", "halves")  # of those that are asked for on one implementation
VARIANTS = {"much shared memory": webgpu_target(shared_bytes=32768), "little": webgpu_target(shared_bytes=4096)}


@pytest.mark.parametrize(
    ("name", "variant", "gpu"),
    slow_unless(lambda name, variant, gpu: gpu == "WEBGPU" or name in SAMPLE, PRODUCTS, VARIANTS, GPUS),
    indirect=["gpu"],
)
def test_products_for_any_gpu(gpu: Runtime, name: str, variant: str) -> None:
    """What is compiled for other adapters than this one gives the same."""
    inputs, ours = PRODUCTS[name]
    compare(gpu, VARIANTS[variant], inputs, ours, ours(*map(Tensor, inputs)).numpy())


REDUCTIONS: dict[str, tuple[list[np.ndarray], Callable[..., Tensor]]] = {
    "matvec": (arrays((1, 512), (24, 512)), lambda x, w: x @ w.transpose()),
    "odd rows": (arrays((1, 300), (7, 300)), lambda x, w: x @ w.transpose()),
    "halves": (arrays((1, 512), (24, 512)), lambda x, w: x @ w.cast(dtypes.float16).contiguous().float().transpose()),
    "bytes": (
        arrays((1, 512), (24, 512)),
        lambda x, w: x @ (w * 4).cast(dtypes.int8).contiguous().float().transpose(),
    ),
    "softmax": (arrays((3, 700)), lambda x: x.softmax(-1)),
    "a sum of integers": (arrays((2, 900)), lambda x: (x * 9).cast(dtypes.int32).sum(-1)),
    "groups with scales": (
        arrays((1, 768), (24, 24, 32), (24, 24, 1)),
        lambda x, w, s: (x.reshape(24, 32) * (w * 4).cast(dtypes.int8).contiguous().float() * s).sum((1, 2)),
    ),
    "two sums": (arrays((1, 256), (9, 256), (9, 256)), lambda x, w, v: (x @ w.transpose()) * (x @ v.transpose())),
    "norm and product": (arrays((1, 256), (16, 256)), lambda x, w: (x / (x * x).mean().sqrt()) @ w.transpose()),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_with_subgroups(webgpu: Runtime, name: str) -> None:
    assert isinstance(webgpu, WebGpuRuntime)
    assert "subgroups" in webgpu.adapter.features
    inputs, ours = REDUCTIONS[name]
    for target in (webgpu_target(subgroups=True), webgpu_target()):
        compare(webgpu, target, inputs, ours, ours(*map(Tensor, inputs)).numpy())


@pytest.mark.parametrize("size", [4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_subgroups_of_any_size(name: str, size: int) -> None:
    inputs, ours = REDUCTIONS[name]
    target = webgpu_target(subgroups=True)
    compare(InterpreterRuntime(target, size), target, inputs, ours, ours(*map(Tensor, inputs)).numpy())


def compare(
    runtime: Runtime, target: Target, inputs: list[np.ndarray], ours: Callable[..., Tensor], expected: np.ndarray
) -> None:
    """What kernels for the target compute on the runtime, beside what is expected."""
    tensors = [Tensor(x).realize() for x in inputs]
    results: list[Tensor] = []

    def compute() -> list[Tensor]:
        results.append(ours(*tensors).contiguous())
        return results

    plan = capture(compute)
    programs = [lower(optimize(k, target), target) for k in plan.kernels]
    executables = dict(zip(plan.kernels, runtime.compile(programs)))
    given = {t.uop.buffer: x for t, x in zip(tensors, inputs)}
    handles = {b: runtime.allocate(nbytes(b)) for call in plan.calls for b in call.buffers}
    for buffer, x in given.items():
        runtime.copy_in(handles[buffer], memoryview(x).cast("B"))
    runtime.run([Launch(executables[c.kernel], tuple(handles[b] for b in c.buffers)) for c in plan.calls], {})
    expected = np.asarray(expected)
    got = np.frombuffer(runtime.copy_out(handles[results[0].uop.buffer], expected.nbytes), expected.dtype)
    for h in handles.values():
        runtime.free(h)
    if expected.dtype.kind == "f":
        tolerance = 1e-3 if expected.dtype == np.float16 else 2e-5
        np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got.reshape(expected.shape), expected)
