"""A process that computes with ever other shapes keeps what it compiled for the last of them only."""

import gc
import sys
from pathlib import Path

import numpy as np
import pytest

from tinyweb import Tensor, jit, tracing
from tinyweb import device as devices
from tinyweb.device import Device
from tinyweb.graph.ir import UOp
from tinyweb.graph.schedule import known
from tinyweb.native_runtimes.webgpu import WebGpuRuntime
from tinyweb.toolchain import cache_folder

FEW = 4  # schedules, programs and traces that are kept here
SHAPES = range(101, 101 + 4 * FEW)  # that no other test has: nothing of theirs is known


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MOST", FEW)
    monkeypatch.setattr(devices, "MOST", FEW)
    monkeypatch.setattr(tracing, "MOST_TRACES", FEW)


def step(rows: int, device: str) -> None:
    """A training step; more than one kernel."""
    x = Tensor(np.ones((rows, 16), np.float32), device=device)
    w = Tensor(np.ones((16, 8), np.float32), device=device).requires_grad_()
    loss = ((x @ w).softmax(-1) * x.sum(1, keepdim=True)).mean()
    loss.backward()
    assert w.grad is not None and np.isfinite(w.grad.numpy()).all()


def loaded() -> int:
    """Libraries of compiled kernels in this process."""
    maps = Path("/proc/self/maps").read_text()
    return len({line.split()[-1] for line in maps.splitlines() if str(cache_folder().absolute()) in line})


@pytest.mark.parametrize("device", ["CPU", "WEBGPU"])
def test_kernels_of_other_shapes_make_room(device: str) -> None:
    counts: list[tuple[int, ...]] = []
    for rows in SHAPES:
        step(rows, device)
        gc.collect()
        runtime = Device[device].runtime
        held = [len(UOp._interned), len(Device[device].compiled)]
        if isinstance(runtime, WebGpuRuntime):
            held.append(len(runtime._pipelines))
        elif sys.platform == "linux":
            held.append(loaded())
        counts.append(tuple(held))
    half = len(SHAPES) // 2
    for early, late in zip(counts[half - 1], counts[-1], strict=True):
        assert late <= early * 1.05, counts


def test_traces_of_other_shapes_make_room() -> None:
    @jit
    def total(x: Tensor) -> Tensor:
        return (x * 2).sum()

    for rows in (*SHAPES, SHAPES[0]):
        assert total(Tensor(np.ones(rows, np.float32))).item() == 2 * rows
        assert len(total.traces) <= FEW


def test_a_plan_outlives_what_else_was_compiled() -> None:
    """Its kernels are compiled as long as it is there: what is evicted is what nobody refers to."""

    @jit
    def total(x: Tensor) -> Tensor:
        return (x * 3).sum()

    x = Tensor(np.ones(SHAPES[0], np.float32))
    total(x)
    for rows in SHAPES:
        step(rows, "CPU")
    gc.collect()
    assert total(x).item() == 3 * SHAPES[0]
    assert all(k in Device["CPU"].compiled for t in total.traces.values() for k in _kernels(t.record.plan))


def _kernels(plan: tracing.Plan) -> list[UOp]:
    return [c.kernel for c in plan.calls if hasattr(c, "kernel")]
