"""Compile every kernel of the sets in kernel_sets.py for AMD GPUs, and write what they take to docs/native.md.

usage: python tools/amd_kernels.py ["Llama-1B q4" YOLOv8n …] [--chips gfx90a gfx1100]
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from kernel_sets import SETS, arguments, programs, write_table

from tinyweb.graph.gpu_targets import AMD, amd_target
from tinyweb.native_runtimes.hip.compile import compile_code_object
from tinyweb.native_runtimes.hip.resources import Resources, resources
from tinyweb.render_c import render_gpu
from tinyweb.render_c.dialect import HIP

HEAD = (
    "| kernels of | chip | kernels | spilled registers | most vector registers | fewest waves | most LDS "
    "| 16-byte loads from memory, from LDS | integer dots | matrix instructions |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def compiled(name: str, chip: str) -> list[Resources]:
    """What each kernel of a set takes on a chip; ToolchainError for one that does not compile."""

    def one(source: str) -> Resources:
        (found,) = resources(compile_code_object(source, chip)).values()
        return found

    with ThreadPoolExecutor(os.cpu_count()) as threads:  # they wait for processes
        made = [threads.submit(one, render_gpu([p], HIP)) for p in programs(name, amd_target(chip))]
        return [m.result() for m in made]


def row(name: str, chip: str, kernels: Sequence[Resources]) -> str:
    """A line of the table."""

    def total(values: Iterable[int]) -> str:
        return f"{sum(values):,}"

    cells = [
        name,
        chip,
        f"{len(kernels)}",
        total(k.spills for k in kernels),
        f"{max(k.vgprs for k in kernels)}",
        f"{min(k.waves for k in kernels)}",
        f"{max(k.shared_bytes for k in kernels) / 1024:.3g} KiB",
        f"{total(k.wide_loads for k in kernels)}, {total(k.wide_shared_loads for k in kernels)}",
        total(k.dots for k in kernels),
        total(k.matrices for k in kernels),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    given = arguments(__doc__, SETS, AMD)
    lines = [HEAD]
    for name in given.sets:
        for chip in given.chips:
            lines.append(row(name, chip, compiled(name, chip)))
            print(lines[-1], flush=True)
    if given.write:
        write_table("amd_kernels.py", lines)


if __name__ == "__main__":
    main()
