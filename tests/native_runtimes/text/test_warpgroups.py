"""Products of warpgroups (wgmma) as CUDA C++ on the processor: descriptors and swizzled memory are read as the PTX ISA
says, copies and products happen as late as they may."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import Case
from tests.graph.optimize.test_fragments import F16, product
from tests.native_runtimes.test_lowered import compare
from tests.native_runtimes.text.library import library, run
from tests.native_runtimes.text.runtime import CudaText
from tests.samples import slow_unless
from tests.tuning.test_variants import product as of_tensors
from tests.tuning.test_variants import results
from tinyweb import Tensor
from tinyweb.dtype import BY_NAME, dtypes
from tinyweb.graph.ir import Fragments
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import apply, heuristic, optimize
from tinyweb.graph.optimize.choose import variants
from tinyweb.graph.optimize.cost import refusal
from tinyweb.graph.program import Program
from tinyweb.render_c import CUDA, dynamic_shared, render_gpu


def used(program: Program) -> bool:
    return any(isinstance(u.arg, Fragments) and u.arg.shared for u in program.uops)


def numbers(*shape: int) -> np.ndarray:
    """Small integers: sums of their products are exact."""
    return np.random.default_rng(sum(shape)).integers(-8, 9, shape).astype(np.float32)


def half(t: Tensor, turned: bool = False, name: str = "float16") -> Tensor:
    """A tensor in memory in one order, or in the other."""
    return (t.T if turned else t).cast(BY_NAME[name]).contiguous().float()


SIZES = [
    (64, 256, 16), (128, 64, 128), (130, 72, 200), (65, 64, 72), (192, 96, 32), (100, 64, 1000), (256, 136, 48),
    (64, 33, 64), (77, 64, 33),
]  # fmt: skip
LATER = [(256, 512, 192), (129, 1000, 130), (1000, 64, 64), (512, 500, 65)]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [*SIZES, *(pytest.param(s, marks=pytest.mark.slow) for s in LATER)], ids=str)
def test_products(size: tuple[int, int, int], name: str) -> None:
    """Each of the four orders of operands in turn, sizes that tiles divide and others."""
    rows, columns, steps = size
    first, second = rows // 2 % 2 > 0, (columns // 2 + (name == "float16")) % 2 > 0
    runtime = CudaText()
    a, b = numbers(rows, steps), numbers(steps, columns)

    def ours(x: Tensor, y: Tensor) -> Tensor:
        x, y = half(x, first, name), half(y, second, name)
        return (x.T if first else x) @ (y.T if second else y)

    compare(runtime, runtime.target, [a, b], ours, a @ b)
    assert any(map(used, runtime.programs))


OTHERS: dict[str, tuple[Callable[..., Tensor], Callable[..., np.ndarray], list[tuple[int, ...]]]] = {
    "batch": (lambda a, b: half(a) @ half(b), lambda a, b: a @ b, [(3, 96, 64), (3, 64, 80)]),
    "batch, one second operand": (lambda a, b: half(a) @ half(b), lambda a, b: a @ b, [(2, 72, 32), (32, 64)]),
    "with itself": (lambda a: half(a) @ half(a).T, lambda a: a @ a.T, [(96, 80)]),
    "its other order with itself": (lambda a: half(a).T @ half(a), lambda a: a.T @ a, [(80, 96)]),
    "epilogue": (
        lambda a, b, c, d: ((half(a) @ half(b) + c) * 0.5).relu() + d,
        lambda a, b, c, d: np.maximum((a @ b + c) * 0.5, 0) + d,
        [(128, 48), (48, 64), (64,), (128, 64)],
    ),
    "rounded": (
        lambda a, b: (half(a) @ half(b)).cast(dtypes.float16).float(),
        lambda a, b: (a @ b).astype(np.float16).astype(np.float32),
        [(64, 64), (64, 96)],
    ),
    "two products of the same rows": (
        lambda a, b, c: (half(a) @ half(b).T) * (half(a) @ half(c).T),
        lambda a, b, c: (a @ b.T) * (a @ c.T),
        [(128, 80), (64, 80), (64, 80)],
    ),
    "rows of heads": (
        lambda a, b: half(a).reshape(64, 2, 32).permute(1, 0, 2) @ half(b).reshape(64, 2, 32).permute(1, 2, 0),
        lambda a, b: a.reshape(64, 2, 32).transpose(1, 0, 2) @ b.reshape(64, 2, 32).transpose(1, 2, 0),
        [(64, 64), (64, 64)],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str) -> None:
    ours, numpy, shapes = OTHERS[name]
    runtime, inputs = CudaText(), [numbers(*s) for s in shapes]
    compare(runtime, runtime.target, inputs, ours, numpy(*inputs))
    assert any(map(used, runtime.programs))


@pytest.mark.parametrize("size", [(64, 64, 96), (128, 192, 160), (200, 100, 128)], ids=str)
def test_bytes(size: tuple[int, int, int]) -> None:
    rows, columns, steps = size
    runtime, (a, b) = CudaText(), (numbers(rows, steps) * 15, numbers(columns, steps) * 15)

    def ours(x: Tensor, y: Tensor) -> Tensor:
        x, y = (t.cast(dtypes.int8).contiguous().cast(dtypes.int32) for t in (x, y))
        return x @ y.T

    compare(runtime, runtime.target, [a, b], ours, (a @ b.T).astype(np.int32))
    assert any(map(used, runtime.programs))


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "all"])
def test_variants(every: bool) -> None:
    """Tiles of one and two warpgroups of all widths, blocks, copies ahead and steps that are read late: the same."""
    runtime = CudaText()
    kernel, target = of_tensors(128, 264, 136), runtime.target
    schedules = dict.fromkeys([heuristic(kernel, target), *(s for s, _ in variants(kernel, target, {}))])
    programs = []
    for schedule in schedules:
        scheduled = apply(kernel, schedule)
        if any("wgmma" in str(a) for a in schedule) and not refusal(scheduled, target):
            programs.append(lower(scheduled, target))
    assert len(programs) > 12 and all(map(used, programs))
    first, *others = results(runtime, programs if every else programs[::11], kernel)
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-2, atol=1e-3)


# -- what goes wrong where a text is otherwise ------------------------------------------------------------------------
CASE = product(128, 64, 320, F16, (False, False))
FAULTS = {
    "none": ("", "", ""),
    "products are not waited for": ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", ""),
    "slots are overwritten while they are read": (
        "wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;", "",
    ),
    "copies are not waited for": ("cp.async.wait_group 1;", "cp.async.wait_group 2;", ""),
    "memory is not fenced": ('asm volatile("fence.proxy.async.shared::cta;" ::: "memory");', "", "without a fence"),
    "registers are not fenced": ('asm volatile("wgmma.fence.sync.aligned;" ::: "memory");', "", "without a fence"),
    "another swizzle": ("0x4000004000010000ull", "0x8000004000010000ull", ""),
    "another stride": ("0x4000004000010000ull", "0x4000002000010000ull", ""),
    "another order": (", 1, 1, 1, 0, 1;", ", 1, 1, 1, 0, 0;", ""),
    "bits without a meaning": ("0x4000004000010000ull", "0x4400004000010000ull", "bits that mean nothing"),
    "sums are overwritten": ('asm volatile("wgmma.commit', 'r3_0[0] = 1.0f; asm volatile("wgmma.commit', "are written"),
    "sums are read": ('asm volatile("wgmma.commit', 'p0[0] = r3_0[0]; asm volatile("wgmma.commit', ""),
}  # fmt: skip


def ran(case: Case, program: Program, source: str) -> np.ndarray:
    """What a text stores."""
    memory = [np.ascontiguousarray(m).copy() for m in case.before]
    grid = [int(n if isinstance(n, int) else n.arg) for n in program.grid]
    built = library(source, ((program.name, len(memory)),), CUDA.name, 32)
    run(built, program.name, grid, program.workgroup, [m.ctypes.data for m in memory])
    return memory[0]


@pytest.mark.parametrize("fault", slow_unless(lambda fault: "another" not in fault, FAULTS))
def test_faults_show(fault: str) -> None:
    """Each is told, or the result is another one."""
    target = CudaText().target
    program = lower(optimize(CASE.kernel, target), target)
    source, (what, other, told) = render_gpu([program], CUDA), FAULTS[fault]
    assert what in source and used(program) and dynamic_shared(program, CUDA) == program.shared_bytes
    source = source.replace(what, other) if what else source
    if told:
        with pytest.raises(AssertionError, match=told):
            ran(CASE, program, source)
        return
    close = np.allclose(ran(CASE, program, source), CASE.after[0], rtol=1e-2, atol=1e-2)
    assert close == (fault == "none")
