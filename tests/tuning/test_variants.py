"""What recipes can do otherwise: search begins with it, and every variant computes the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.native_runtimes.text.runtime import CudaText, TextRuntime
from tinyweb import Tensor
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.gpu_targets import nvidia_target, opencl_target
from tinyweb.graph.ir import Fragments, Ops, Space, UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import apply, heuristic
from tinyweb.graph.optimize.choose import variants
from tinyweb.graph.optimize.cost import refusal
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, interpreter_target, webgpu_target
from tinyweb.native_runtimes.open import open_runtime
from tinyweb.native_runtimes.protocol import Launch, Runtime
from tinyweb.tracing import capture
from tinyweb.tuning.search import Timing, search

F16, F32 = dtypes.float16, dtypes.float32


def kernel_of(compute: Callable[..., Tensor], *inputs: Tensor) -> UOp:
    return capture(lambda: compute(*inputs).realize()).calls[-1].kernel


def product(rows: int, columns: int, steps: int, dtype: DType = F16) -> UOp:
    return kernel_of(
        lambda a, b: a @ b, Tensor.empty(rows, steps, dtype=dtype), Tensor.empty(steps, columns, dtype=dtype)
    )


def attention(heads: int, length: int, width: int, dtype: DType = F32) -> UOp:
    q, k, v = (Tensor.empty(heads, length, width, dtype=dtype) for _ in range(3))
    return kernel_of(lambda q, k, v: q.scaled_dot_product_attention(k, v), q, k, v)


def shared(program: Program) -> int:
    """Elements of shared memory."""
    return sum(u.arg.size for u in program.uops if u.op is Ops.BUFFER and u.arg.space is Space.SHARED)


def groups(program: Program) -> int:
    return int(np.prod([int(n if isinstance(n, int) else n.arg) for n in program.grid]))


class Counted:
    """Times that are counts of programs: the same in every turn."""

    def __init__(self, count: Callable[[Program], float]):
        self.count, self.now = count, 0.0

    def __call__(self, programs: Sequence[Program], turns: int, fresh: bool = False) -> list[Timing]:
        self.now += 1.0
        return [Timing((self.count(p),) * turns) for p in programs]


@pytest.mark.slow
def test_search_finds_another_tile_with_other_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both differ from the heuristic's; what one alone gives is slower."""
    monkeypatch.setattr("tinyweb.tuning.search.POOL", 10)
    monkeypatch.setattr("tinyweb.tuning.search.BATCH", 8)
    target, kernel = nvidia_target("sm_90"), product(512, 1024, 512)
    usual = lower(apply(kernel, heuristic(kernel, target)), target)
    assert groups(usual) == 128
    measure = Counted(lambda p: 1 + abs(groups(p) - 32) / 32 + shared(p) / 20_000)
    found = search(kernel, target, lower, measure, 60, clock=lambda: measure.now)
    best = lower(apply(kernel, found.schedule), target)
    assert groups(best) == 32 and shared(best) < shared(usual) and found.ratio < 0.6
    assert any(isinstance(u.arg, Fragments) for u in best.uops)


def test_choices_are_said_once() -> None:
    """A choice made anew is the heuristic's own schedule, others are others; what does not fit is left out."""
    target, kernel = nvidia_target("sm_89"), product(512, 512, 256)
    made = {tuple(sorted(chosen.items())): schedule for schedule, chosen in variants(kernel, target, {})}
    assert made[(("tile", 0),)] == made[(("blocks", 0),)] == made[(("pad", 0),)] == heuristic(kernel, target)
    assert len(set(made.values())) > 20
    for _, chosen in variants(kernel, target, {"tile": 3, "pad": 1}):
        assert sum(chosen.get(name) != number for name, number in (("tile", 3), ("pad", 1))) + len(chosen) - 2 == 1
    assert not list(variants(product(64, 64, 64), interpreter_target(), {})), "recipes for whole arrays offer nothing"


KERNELS: dict[str, tuple[UOp, Target]] = {
    "matrices": (product(256, 320, 200), nvidia_target("sm_90")),
    "attention by matrices": (attention(2, 130, 64, F16), nvidia_target("sm_90")),
    "tiles": (product(96, 130, 70, F32), opencl_target()),
    "attention": (attention(2, 70, 32), opencl_target()),
    "tiles, WebGPU": (product(96, 130, 70, F32), webgpu_target()),
}
QUICK = 3  # of the variants of each


def results(runtime: Runtime, programs: Sequence[Program], kernel: UOp) -> list[np.ndarray]:
    """What each makes of the same inputs."""
    random = np.random.default_rng(0)
    handles = []
    for p in programs[0].params:
        handles.append(runtime.allocate(p.dtype.nbytes(p.size)))
        values = random.standard_normal(p.size).astype(p.dtype.numpy)
        runtime.copy_in(handles[-1], memoryview(values).cast("B"))
    out, found = programs[0].params[0], []
    for executable in runtime.compile(programs):
        runtime.run([Launch(executable, tuple(handles))], {})
        found.append(np.frombuffer(runtime.copy_out(handles[0], out.dtype.nbytes(out.size)), out.dtype.numpy))
    return found


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "all"])
def test_all_variants_compute_the_same(name: str, every: bool) -> None:
    kernel, target = KERNELS[name]
    schedules = dict.fromkeys([heuristic(kernel, target), *(s for s, _ in variants(kernel, target, {}))])
    chosen = list(schedules) if every else list(schedules)[:: max(len(schedules) // QUICK, 1)]
    programs = []
    for schedule in chosen:
        scheduled = apply(kernel, schedule)
        if not refusal(scheduled, target):
            programs.append(lower(scheduled, target))
    assert len(programs) > 1
    if target.language == "cuda":
        runtime: Runtime | TextRuntime = CudaText()
    else:
        runtime = open_runtime("WEBGPU" if "WebGPU" in name else "OPENCL")
    first, *others = results(runtime, programs, kernel)
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-2 if first.dtype == np.float16 else 1e-4, atol=1e-3)
