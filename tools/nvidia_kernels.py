"""Compile every kernel of the networks in kernel_sets.py and of `python -m benchmarks cliffs` for NVIDIA GPUs, and
write what they take to docs/native.md.

usage: python tools/nvidia_kernels.py ["Llama-1B q4" YOLOv8n …] [--chips sm_80 sm_90]
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from kernel_sets import SETS, arguments, programs, write_table

from tinyweb.graph.gpu_targets import NVIDIA, nvidia_target
from tinyweb.graph.ir import Ops
from tinyweb.graph.program import Program
from tinyweb.native_runtimes.cuda.compile import compile_cuda
from tinyweb.native_runtimes.cuda.resources import Resources, matrix_instructions
from tinyweb.render_c import CUDA, render_gpu

CHIPS = tuple(arch for arch in NVIDIA if not arch.endswith("a"))  # those are compiled for where kernels need it
SHARED = r"bind\(r[\d.]+, thread"  # a reduced axis that threads share
KINDS = {r"online\(": "attention", r"stage\(": "product, convolution", SHARED: "sums of rows, matrix × vector"}
"""Kernels by an action of their schedules."""
HEAD = (
    "| kernels of | kind | kernels | with spills | most registers on {chips} | most shared memory "
    "| with matrix instructions |"
)
LINE = "| --- | --- | ---: | ---: | ---: | ---: | ---: |"


@dataclass(frozen=True)
class Taken:
    """A kernel, of which kind it is, what it takes, with the shared memory that its launch gives, the instructions of
    its machine code that multiply matrices, and what ptxas remarks on those."""

    name: str
    kind: str
    resources: Resources
    matrices: int
    remarks: tuple[str, ...]


def kind(program: Program) -> str:
    for action, name in KINDS.items():
        if any(re.match(action, line) for line in program.schedule):
            return name
    return "other sums" if any(u.op is Ops.RANGE for u in program.uops) else "elementwise"


def compiled(name: str, chip: str) -> list[Taken]:
    """What each kernel of a set takes on a chip; DeviceError for one that does not compile. Others are planned while
    some compile."""

    def one(program: Program, source: str) -> Taken:
        found = compile_cuda(source, chip, program.name)
        takes = replace(found.resources[program.name], shared_bytes=program.shared_bytes)
        return Taken(program.name, kind(program), takes, matrix_instructions(found.code), found.remarks)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        made = [threads.submit(one, p, render_gpu([p], CUDA)) for p in programs(name, nvidia_target(chip))]
        return [m.result() for m in made]


def rows(name: str, found: dict[str, list[Taken]]) -> Iterator[str]:
    """Lines of the table, one for each kind of kernel, of what was found on each chip."""
    for which in sorted({k.kind for kernels in found.values() for k in kernels}):
        chips = [[k for k in kernels if k.kind == which] for kernels in found.values()]
        every = [k for group in chips for k in group]
        cells = [
            name,
            which,
            f"{max(map(len, chips))}",
            f"{sum(k.resources.spill_bytes > 0 for k in every)}",
            ", ".join(f"{max((k.resources.registers for k in group), default=0)}" for group in chips),
            f"{max(k.resources.shared_bytes for k in every)}",
            f"{min(sum(k.matrices > 0 for k in group) for group in chips)}",
        ]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    given = arguments(__doc__, SETS, CHIPS)
    lines = [HEAD.format(chips=", ".join(given.chips)), LINE]
    print(*lines, sep="\n", flush=True)
    for name in given.sets:
        more = list(rows(name, {chip: compiled(name, chip) for chip in given.chips}))
        lines += more
        print(*more, sep="\n", flush=True)
    if given.write:
        write_table("nvidia_kernels.py", lines)


if __name__ == "__main__":
    main()
