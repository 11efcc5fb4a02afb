"""Compile every kernel of the networks in kernel_sets.py and of `python -m benchmarks cliffs` for NVIDIA GPUs, and
write what they take to docs/native.md.

usage: python tools/nvidia_kernels.py ["Llama-1B q4" YOLOv8n …] [--chips sm_80 sm_90]
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from kernel_sets import NETWORKS, arguments, programs, write_table

from benchmarks.cliffs.works import WORKS
from benchmarks.count.run import planned
from tinyweb.graph.gpu_targets import nvidia_target
from tinyweb.graph.ir import Ops
from tinyweb.graph.lower import program_for
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.native_runtimes.cuda.compile import compile_cuda
from tinyweb.native_runtimes.cuda.resources import Resources, matrix_instructions
from tinyweb.render_c import CUDA, render_gpu

CHIPS = ("sm_80", "sm_90", "sm_100", "sm_120")
CLIFFS = "benchmarks cliffs"
SETS = (*NETWORKS, CLIFFS)
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
    target = nvidia_target(chip)

    def one(program: Program, source: str) -> Taken:
        found = compile_cuda(source, chip, program.name)
        takes = replace(found.resources[program.name], shared_bytes=program.shared_bytes)
        return Taken(program.name, kind(program), takes, matrix_instructions(found.code), found.remarks)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        made: dict[str, Future[Taken]] = {}
        for p in cliffs(target) if name == CLIFFS else programs(name, target):
            if p.name not in made:
                made[p.name] = threads.submit(one, p, render_gpu([p], CUDA))
        return [m.result() for m in made.values()]


def cliffs(target: Target) -> Iterator[Program]:
    """The kernels of all works of array code."""
    for work in WORKS.values():
        for call in planned(work, target)[0].calls:
            yield program_for(call.kernel, target)


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
