"""WGSL text: one module per program, and what a pipeline of it binds."""

from __future__ import annotations

from collections.abc import Mapping

from tinyweb.graph.ir import Ops
from tinyweb.graph.program import Program
from tinyweb.render_wgsl.wgsl_kernel import Kernel

__all__ = ["bindings", "has_uniform", "render"]


def render(program: Program, slots: Mapping[str, int]) -> str:
    """A module with the entry point `main`.

    `@group(0) @binding(i)` is the i-th parameter; if `has_uniform(program)`, one more binding follows: a uniform
    `array<vec4<i32>, ⌈len(slots) / 4⌉` with the variable of slot s at `[s / 4][s % 4]`.
    """
    return Kernel(program, slots).text


def bindings(program: Program) -> list[str]:
    """WebGPU's type of each parameter's binding."""
    return ["storage" if i.written or i.atomic else "read-only-storage" for i in program.params]


def has_uniform(program: Program) -> bool:
    """Whether the module reads variables (one that only sizes the grid is the host's affair)."""
    return any(u.op is Ops.VARIABLE for u in program.uops)
