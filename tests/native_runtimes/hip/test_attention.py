"""What attention by matrix instructions takes of AMD's GPUs."""

from __future__ import annotations

import re

import pytest

from tests.graph.optimize.test_attention_matrices import CHIPS, Shape, program_of
from tinyweb.native_runtimes.hip.compile import compile_code_object
from tinyweb.native_runtimes.hip.resources import resources
from tinyweb.render_c import HIP, render_gpu


@pytest.mark.parametrize("chip", ["gfx942", *(pytest.param(c, marks=pytest.mark.slow) for c in ("gfx1100", "gfx1201"))])
@pytest.mark.parametrize("width", [64, 128])
def test_registers(chip: str, width: int) -> None:
    """Nothing is spilled: sums of both products stay in registers. Both are read of shared memory many elements at a
    time: values are turned on the way there, so that their steps lie side by side."""
    program = program_of(Shape(16, 16, 1024, 1024, width, width), CHIPS[chip])
    code = compile_code_object(render_gpu([program], HIP), chip)
    (found,) = resources(code).values()
    assert found.spills == 0 and found.scratch_bytes == 0
    assert found.matrices > 0
    assert not re.findall(r"ds_(?:read|load)_u16", code.assembly) and found.wide_shared_loads > 0
