"""A sample of every kind of kernel on OPENCL, beside the same on CPU: what `test_oclgrind.py` runs under Oclgrind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyweb import Tensor, dtypes
from tinyweb.native_runtimes.opencl import OpenClRuntime
from tinyweb.nn import Linear
from tinyweb.nn.quantize import quantize

RNG = np.random.default_rng(5)


def data(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def quantised(bits: int) -> Callable[[Tensor], Tensor]:
    weights = data(24, 64)

    def product(x: Tensor) -> Tensor:
        weight = quantize(weights, bits, x.device, 32)
        assert weight is not None
        return Linear.of(weight)(x)

    return product


def packed(x: Tensor) -> Tensor:
    """Odd rows of integers of 4 bits: neighbouring threads change parts of one word."""
    return (x * 3).cast(dtypes.int4).contiguous().cast(dtypes.int32)


def largest_and_place(q: Tensor, k: Tensor) -> Tensor:
    products = q @ k.transpose(0, 1)
    largest, place = products.max(1), products.argmax(1)
    return largest.realize(place) + place


CASES: dict[str, tuple[Sequence[np.ndarray], Callable[..., Tensor]]] = {
    "product in tiles": ((data(40, 24), data(24, 72)), lambda a, b: a @ b),
    "convolution": ((data(1, 4, 9, 9), data(16, 4, 3, 3)), lambda x, w: x.conv2d(w, padding=1).silu()),
    "attention": (
        (data(2, 9, 16), data(2, 20, 16), data(2, 20, 16)),
        lambda q, k, v: q.scaled_dot_product_attention(k, v),
    ),
    "attention in parts of the keys": (
        (data(1, 2, 32), data(1, 1091, 32), data(1, 1091, 32)),
        lambda q, k, v: q.scaled_dot_product_attention(k, v),
    ),
    "softmax of rows": ((data(3, 130),), lambda x: x.softmax()),
    "softmax of columns": ((data(70, 64),), lambda x: x.softmax(0)),
    "two results of the same products": ((data(40, 8), data(45, 8)), largest_and_place),
    "reductions of a long row": ((data(1, 40001),), lambda x: x.var(1)),
    "reduction over threads": ((data(2, 700),), lambda x: x.max(1) + x.sum(1)),
    "scan": ((data(3, 300),), lambda x: x.cumsum(1)),
    "sort": ((data(2, 90),), lambda x: x.sort(1)[0]),
    "largest": ((data(600),), lambda x: x.topk(5)[0]),
    "scatter": (
        (data(40), RNG.integers(0, 6, 40).astype(np.int32)),
        lambda x, i: Tensor.zeros(6, device=x.device).scatter_reduce(0, i, x, "sum"),
    ),
    "words of 4 bits": ((data(5, 7),), packed),
    "halves": ((data(33, 12), data(12, 20)), lambda a, b: (a.cast(dtypes.float16) @ b.cast(dtypes.float16)).float()),
    "wide integers": ((RNG.integers(-(2**40), 2**40, (4, 33)),), lambda x: x.sum(1)),
    "functions": ((data(70),), lambda x: x.exp() + x.sin() + (x * x + 1).log()),
    "gather": ((data(30, 5), RNG.integers(0, 30, 12).astype(np.int32)), lambda x, i: x[i]),
    "matrix times vector, 4 bits": ((data(1, 64),), quantised(4)),
    "matrix times vector, 8 bits": ((data(1, 64),), quantised(8)),
    "matrix times vector": ((data(1, 512), data(24, 512)), lambda x, w: x @ w.transpose()),
}  # fmt: skip


FAULTS = {
    "bounds": "a[get_local_id(0) + 8] = 1;",
    "race": "a[0] = get_local_id(0);",
    "uninitialised": "__local int s[8]; if (s[get_local_id(0)]) a[get_local_id(0)] = 1;",
}


def fault(name: str) -> None:
    """A kernel of 8 threads on 8 integers that is wrong."""
    import pyopencl as cl

    context = cl.create_some_context(interactive=False)
    queue = cl.CommandQueue(context)
    program = cl.Program(context, f"kernel void wrong(global int *a) {{ {FAULTS[name]} }}").build(["-cl-opt-disable"])
    memory = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(8, np.int32))
    cl.Kernel(program, "wrong")(queue, (8,), (8,), memory)
    queue.finish()


def main(names: Sequence[str]) -> None:
    if names and names[0] in FAULTS:
        fault(names[0])
        return
    # Oclgrind takes for uninitialised what is written to an address that was given back before, and what is filled
    import pyopencl as cl

    kept: list[object] = []

    def write(queue: Any, memory: Any, pattern: np.ndarray, offset: int, size: int) -> Any:
        return cl.enqueue_copy(queue, memory, np.tile(pattern, size // pattern.nbytes), dst_offset=offset)

    setattr(cl, "enqueue_fill_buffer", write)  # noqa: B010
    setattr(OpenClRuntime, "_free", lambda self, handle: kept.append(handle))  # noqa: B010
    for name in names or CASES:
        inputs, f = CASES[name]
        got, want = (f(*(Tensor(x, device=device) for x in inputs)).numpy() for device in ("OPENCL", "CPU"))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=name)
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
