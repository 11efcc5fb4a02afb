"""The hand-built kernels under the heuristics' schedules, compiled and run on every runtime, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import CASES, Case
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import optimize
from tinyweb.graph.target import Target
from tinyweb.native_runtimes.open import open_runtime
from tinyweb.native_runtimes.protocol import Launch


@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU"])
def test_every_kernel(device: str) -> None:
    check_on(device, CASES, open_runtime(device).target)


def check_on(device: str, cases: list[Case], target: Target) -> None:
    """The values of kernels that are optimised for a target, on a device."""
    runtime = open_runtime(device)
    programs = [lower(optimize(c.kernel, target), target) for c in cases]
    for case, program, executable in zip(cases, programs, runtime.compile(programs), strict=True):
        handles = []
        for before, info in zip(case.before, program.params, strict=True):
            # packed types are declared in whole words
            handles.append(runtime.allocate(max(before.nbytes, info.dtype.nbytes(info.size))))
            runtime.copy_in(handles[-1], memoryview(np.ascontiguousarray(before).reshape(-1).view(np.uint8)))
        runtime.run([Launch(executable, tuple(handles))], case.variables)
        for handle, want in zip(handles, case.after):
            got = np.frombuffer(runtime.copy_out(handle, want.nbytes), want.dtype).reshape(want.shape)
            label = f"{case.name} on {device}: {'; '.join(program.schedule)}"
            if want.dtype.kind == "f":
                limit = max(case.tolerance, 2e-5)
                np.testing.assert_allclose(got, want, rtol=limit, atol=limit, err_msg=label)
            else:
                np.testing.assert_array_equal(got, want, err_msg=label)
        for handle in handles:
            runtime.free(handle)
