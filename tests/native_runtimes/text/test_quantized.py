"""Products of quantised weights by matrix instructions as CUDA C++ and HIP C++ on the processor: codes become half
floats on their way into shared memory, while other steps multiply."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from tests.graph.lower.hand_kernels import run
from tests.graph.optimize.test_half_products import by_matrices
from tests.native_runtimes.text.runtime import CudaText, HipText
from tests.samples import slow_unless
from tinyweb import Tensor
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower import program_for
from tinyweb.graph.program import Program
from tinyweb.graph.schedule import schedule
from tinyweb.memory import BUFFERS
from tinyweb.native_runtimes.protocol import Runtime
from tinyweb.nn.quantize import quantize

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Case:
    bits: int
    group: int
    rows: int = 40
    columns: int = 48
    inner: int = 256
    symmetric: bool = True


CASES = {
    "8 bits": Case(8, 32),
    "4 bits": Case(4, 32),
    "many rows": Case(4, 32, rows=255, columns=160, inner=512),
    "few rows": Case(8, 32, rows=17),
    "columns left over": Case(4, 32, rows=100, columns=77),
    "columns of 8 bits left over": Case(8, 64, rows=100, columns=77),
    "groups of 64": Case(4, 64),
    "groups of 128": Case(8, 128),
    "channels": Case(8, 256),
    "channels of 4 bits": Case(4, 256),
    "zero points": Case(4, 32, symmetric=False),
    "zero points of 8 bits": Case(8, 64, symmetric=False),
    "few groups": Case(4, 32, inner=96),
    "groups of 8": Case(8, 8, inner=72),
    "6 bits": Case(6, 32),
    "5 bits": Case(5, 128, symmetric=False),
    "3 bits": Case(3, 32),
    "warpgroups": Case(4, 32, rows=128, columns=256, inner=512),
    "warpgroups of 8 bits": Case(8, 32, rows=130, columns=256, inner=512),
}
ARCHS = ("sm_75", "sm_80", "sm_90", "gfx90a", "gfx942", "gfx1100", "gfx1201")
SAMPLE = {
    ("8 bits", "sm_80"), ("4 bits", "gfx942"), ("columns left over", "gfx1100"), ("zero points", "sm_75"),
    ("warpgroups", "sm_90"), ("channels", "gfx1201"), ("6 bits", "sm_80"), ("few rows", "sm_90"),
}  # fmt: skip


def results(t: Tensor, runtime: Runtime) -> tuple[list[Program], Bytes]:
    """The programs that compute a tensor of others in memory, and its bytes as a runtime gives them."""
    plan = schedule([UOp(Ops.CONTIGUOUS, t.dtype, (t.uop,))], runtime.target)
    memory: dict[UOp, Bytes] = {}
    programs = []
    for call in plan.calls:
        programs.append(program_for(call.kernel, runtime.target))
        for b in call.buffers:
            nbytes, held = -(-b.dtype.nbytes(b.arg.size) // 4) * 4, BUFFERS.get(b)
            fresh = np.zeros(nbytes, np.uint8) if held is None else np.frombuffer(held.read(nbytes), np.uint8)
            memory.setdefault(b, fresh)
        after = run(programs[-1], runtime.target, [memory[b] for b in call.buffers], {}, runtime)
        memory |= dict(zip(call.buffers, after))
    return programs, memory[plan.results[0]]


@pytest.mark.parametrize("activations", ["half", pytest.param("scaled-half", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "arch"), slow_unless(lambda *case: case in SAMPLE, CASES, ARCHS))
def test_values(name: str, arch: str, activations: str) -> None:
    runtime = CudaText(arch=arch) if arch.startswith("sm") else HipText(arch=arch)
    c, random = CASES[name], np.random.default_rng(0)
    w = quantize(random.standard_normal((c.columns, c.inner)).astype(np.float32), c.bits, "CPU", c.group, c.symmetric)
    x = random.standard_normal((c.rows, c.inner)).astype(np.float32)
    assert w is not None and w.group == c.group
    programs, got = results(w.product(Tensor(x, device="CPU"), activations), runtime)
    seen, weights = x.astype(np.float16).astype(np.float64), w.dense().numpy().astype(np.float16).astype(np.float64)
    want, most = seen @ weights.T, np.abs(seen) @ np.abs(weights).T
    assert by_matrices(programs[-1])
    assert np.all(np.abs(got.view(np.float32).reshape(want.shape) - want) <= 1e-6 * most)
