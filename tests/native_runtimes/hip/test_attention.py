"""What attention by matrix instructions takes of AMD's GPUs."""

from __future__ import annotations

import pytest

from tests.graph.optimize.test_attention_matrices import CHIPS, Shape, program_of
from tinyweb.native_runtimes.hip.compile import compile_code_object
from tinyweb.native_runtimes.hip.resources import resources
from tinyweb.render_c import HIP, render_gpu


@pytest.mark.parametrize("chip", ["gfx942", *(pytest.param(c, marks=pytest.mark.slow) for c in ("gfx1100", "gfx1201"))])
@pytest.mark.parametrize("width", [64, 128])
def test_registers(chip: str, width: int) -> None:
    """Nothing is spilled: sums of both products stay in registers."""
    program = program_of(Shape(16, 16, 1024, 1024, width, width), CHIPS[chip])
    (found,) = resources(compile_code_object(render_gpu([program], HIP), chip)).values()
    assert found.spills == 0 and found.scratch_bytes == 0
    assert found.matrices > 0
