"""The WebGPU part of a bundle: for each variant a WGSL file, the kernels' bindings and the dispatches; their limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyweb.export.compile import Compiled, Dispatch, Progress, compile_plans, used_variables
from tinyweb.export.expression import expression
from tinyweb.export.memory import Memory
from tinyweb.graph.ir import UOp, size_max
from tinyweb.graph.program import Program
from tinyweb.graph.target import webgpu_target
from tinyweb.render_wgsl import bindings, has_uniform, render

if TYPE_CHECKING:
    from tinyweb.tracing import Plan

# the first is for every adapter; of the others the loader takes one where it fits better
VARIANTS = {
    "base": webgpu_target(),
    "f16": webgpu_target(f16=True),
    "subgroups": webgpu_target(subgroups=True),
    "subgroups-f16": webgpu_target(subgroups=True, f16=True),
}

BINDING_BYTES = VARIANTS["base"].max_binding_bytes  # what every adapter binds


def compile_variants(
    plans: Mapping[str, Plan], progress: Progress, tune: float = 0.0, calls: Mapping[str, int] | None = None
) -> dict[str, Compiled]:
    """The plans for every variant, `compile_plans` for each; those with the programs of one before are left out."""
    compiled: dict[str, Compiled] = {}
    for name, target in VARIANTS.items():
        found = compile_plans(plans, target, progress, tune / len(VARIANTS), calls)
        if all(found.programs != other.programs for other in compiled.values()):
            compiled[name] = found
    return compiled


def write_webgpu(
    bundle: Path, compiled: Mapping[str, Compiled], memory: Memory, variables: tuple[UOp, ...]
) -> dict[str, Any]:
    """Write the kernels' WGSL files into `bundle`; the manifest's `targets.webgpu`. `variables` in slot order."""
    slots = {v.arg[0]: i for i, v in enumerate(variables)}
    first_pool = len(memory.named)
    texts = {
        name: [render(p, slots).rstrip() for p in found.programs] for name, found in compiled.items()
    }  # programs of one text, for grids of several sizes, are compiled once
    modules = {text: p for name in compiled for text, p in zip(texts[name], compiled[name].programs)}
    files = _write_modules(bundle, texts, {text: p.name for text, p in modules.items()})
    return {
        "limits": limits(compiled.values(), memory),
        "bytes": memory.totals,
        "temporaries": [{"id": first_pool + i, "bytes": size} for i, size in enumerate(memory.pools)],
        "variants": {
            name: {
                "features": found.target.features,
                "file": files[name][0],
                **({"shared": files[name][1:]} if files[name][1:] else {}),
                **_variant(found, texts[name], modules, memory),
            }
            for name, found in compiled.items()
        },
    }


def _write_modules(bundle: Path, texts: Mapping[str, Sequence[str]], names: Mapping[str, str]) -> dict[str, list[str]]:
    """Each kernel in one file, that of the variants which have it; the files of each variant, its own first."""
    members: dict[str, list[str]] = {}  # of each text
    for variant, found in texts.items():
        for text in dict.fromkeys(found):
            members.setdefault(text, []).append(variant)
    together: dict[tuple[str, ...], list[str]] = {}
    for text, having in members.items():
        together.setdefault(tuple(having), []).append(text)
    files: dict[str, list[str]] = {}
    for variants, kernels in sorted(together.items(), key=lambda item: len(item[0])):
        everywhere = len(variants) == len(texts)
        path = bundle / "kernels" / f"{'-'.join(('webgpu', *(() if everywhere else variants)))}.wgsl"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"//# kernel {names[kernel]}\n{kernel}\n\n" for kernel in kernels)
        path.write_text(text, encoding="utf-8", newline="\n")
        for variant in variants:
            files.setdefault(variant, []).append(path.relative_to(bundle).as_posix())
    return files


def _variant(
    compiled: Compiled, texts: Sequence[str], modules: Mapping[str, Program], memory: Memory
) -> dict[str, Any]:
    """Its kernels, and what its entry points launch."""
    index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    kernels = [modules[text] for text in index]
    return {
        "kernels": [
            {"name": p.name, "entry": "main", "bindings": bindings(p), "uniform": has_uniform(p)} for p in kernels
        ],
        "entry_points": {
            name: {
                "variables": used_variables(compiled, dispatches),
                "dispatches": [
                    _dispatch(d, compiled.programs[d.program], index[texts[d.program]], memory) for d in dispatches
                ],
            }
            for name, dispatches in compiled.entries.items()
        },
    }


def _dispatch(dispatch: Dispatch, program: Program, kernel: int, memory: Memory) -> dict[str, Any]:
    ids = [memory.ids[b] for b in dispatch.buffers]
    for p in program.params:
        if (p.written or p.atomic) and ids.count(ids[p.slot]) > 1:
            raise AssertionError(f"{program.name} writes buffer {ids[p.slot]}, which it has bound twice")
    return {"kernel": kernel, "buffers": ids, "grid": [expression(s) for s in program.grid]}


def limits(variants: Iterable[Compiled], memory: Memory) -> dict[str, int]:
    """The WebGPU limits that the kernels and buffers of all variants really need."""
    programs = [p for compiled in variants for p in compiled.programs]
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
