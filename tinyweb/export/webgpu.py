"""The WebGPU part of a bundle: one WGSL file, the kernels' bindings, the dispatches, and the limits they need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tinyweb.export.compile import Compiled, Dispatch, used_variables
from tinyweb.export.expression import expression
from tinyweb.export.memory import Memory
from tinyweb.graph.ir import UOp, size_max
from tinyweb.graph.program import Program

FILE = "kernels/webgpu.wgsl"


def write_webgpu(bundle: Path, compiled: Compiled, memory: Memory, variables: tuple[UOp, ...]) -> dict[str, Any]:
    """Write the WGSL file into `bundle`; the manifest's `targets.webgpu`. `variables` in slot order."""
    from tinyweb.render_wgsl import bindings, has_uniform, render

    slots = {v.arg[0]: i for i, v in enumerate(variables)}
    text = "".join(f"//# kernel {p.name}\n{render(p, slots).rstrip()}\n\n" for p in compiled.programs)
    path = bundle / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    first_pool = len(memory.named)
    return {
        "limits": limits(compiled, memory),
        "bytes": {"weights": memory.total("weight"), "state": memory.total("state"), "temporaries": memory.pool_bytes},
        "temporaries": [{"id": first_pool + i, "bytes": size} for i, size in enumerate(memory.pools)],
        "variants": {
            "base": {
                "features": [],
                "file": FILE,
                "kernels": [
                    {"name": p.name, "entry": "main", "bindings": bindings(p), "uniform": has_uniform(p)}
                    for p in compiled.programs
                ],
                "entry_points": {
                    name: {
                        "variables": used_variables(compiled, dispatches),
                        "dispatches": [_dispatch(d, compiled.programs[d.program], memory) for d in dispatches],
                    }
                    for name, dispatches in compiled.entries.items()
                },
            }
        },
    }


def _dispatch(dispatch: Dispatch, program: Program, memory: Memory) -> dict[str, Any]:
    ids = [memory.ids[b] for b in dispatch.buffers]
    for p in program.params:
        if (p.written or p.atomic) and ids.count(ids[p.slot]) > 1:
            raise AssertionError(f"{program.name} writes buffer {ids[p.slot]}, which it has bound twice")
    return {"kernel": dispatch.program, "buffers": ids, "grid": [expression(s) for s in program.grid]}


def limits(compiled: Compiled, memory: Memory) -> dict[str, int]:
    """The WebGPU limits that the kernels and buffers really need."""
    programs = compiled.programs
    largest = max((memory.size(i) for i in range(len(memory.named) + len(memory.pools))), default=4)
    largest = -(-largest // 4) * 4  # the loader rounds buffers up to whole words
    return {
        "maxStorageBuffersPerShaderStage": max(len(p.params) for p in programs),
        "maxStorageBufferBindingSize": largest,
        "maxBufferSize": largest,
        "maxComputeWorkgroupStorageSize": max(p.shared_bytes for p in programs),
        "maxComputeInvocationsPerWorkgroup": max(p.workgroup[0] * p.workgroup[1] * p.workgroup[2] for p in programs),
        "maxComputeWorkgroupSizeX": max(p.workgroup[0] for p in programs),
        "maxComputeWorkgroupSizeY": max(p.workgroup[1] for p in programs),
        "maxComputeWorkgroupSizeZ": max(p.workgroup[2] for p in programs),
        "maxComputeWorkgroupsPerDimension": max(size_max(s) for p in programs for s in p.grid),
    }
