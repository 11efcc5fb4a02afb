"""Compile every kernel of the networks in kernel_sets.py and of `python -m benchmarks cliffs` for NVIDIA GPUs, and
write what they take to docs/native.md.

usage: python tools/nvidia_kernels.py [--chips sm_80,sm_90] [--networks "Llama-1B q4"] [--print]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kernel_sets import NETWORKS, programs, write_table

from benchmarks.cliffs.works import WORKS
from benchmarks.count.run import planned
from tinyweb.graph.gpu_targets import nvidia_target
from tinyweb.graph.ir import Ops
from tinyweb.graph.lower import program_for
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.native_runtimes.cuda.compile import compile_cuda
from tinyweb.native_runtimes.cuda.resources import Resources
from tinyweb.render_c import CUDA, render_gpu

CHIPS = ("sm_80", "sm_90", "sm_100", "sm_120")
CLIFFS = "benchmarks cliffs"
SETS = (*NETWORKS, CLIFFS)
KINDS = {"online(": "attention", "stage(": "product, convolution", "group_reduce(": "sums of rows, matrix × vector"}
"""Kernels by an action of their schedules."""
HEAD = "| kernels of | kind | kernels | with spills | most registers on {chips} | most shared memory |"
LINE = "| --- | --- | ---: | ---: | ---: | ---: |"


@dataclass(frozen=True)
class Taken:
    """A kernel, of which kind it is, and what it takes."""

    name: str
    kind: str
    resources: Resources


def kind(program: Program) -> str:
    for action, name in KINDS.items():
        if any(line.startswith(action) for line in program.schedule):
            return name
    return "other sums" if any(u.op is Ops.RANGE for u in program.uops) else "elementwise"


def compiled(name: str, chip: str) -> list[Taken]:
    """What each kernel of a set takes on a chip; DeviceError for one that does not compile."""
    target = nvidia_target(chip)

    def one(program: Program, source: str) -> Taken:
        found = compile_cuda(source, chip, program.name).resources[program.name]
        return Taken(program.name, kind(program), found)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        different = {p.name: p for p in (cliffs(target) if name == CLIFFS else programs(name, target))}
        return [done.result() for done in [threads.submit(one, p, render_gpu([p], CUDA)) for p in different.values()]]


def cliffs(target: Target) -> Iterator[Program]:
    """The kernels of all works of array code."""
    for work in WORKS.values():
        for call in planned(work, target)[0].calls:
            yield program_for(call.kernel, target)


def rows(name: str, found: dict[str, list[Taken]]) -> Iterator[str]:
    """Lines of the table, one for each kind of kernel, of what was found on each chip."""
    for which in sorted({k.kind for kernels in found.values() for k in kernels}):
        chips = [[k.resources for k in kernels if k.kind == which] for kernels in found.values()]
        every = [r for group in chips for r in group]
        cells = [
            name,
            which,
            f"{max(map(len, chips))}",
            f"{sum(r.spill_bytes > 0 for r in every)}",
            ", ".join(f"{max((r.registers for r in group), default=0)}" for group in chips),
            f"{max(r.shared_bytes for r in every)}",
        ]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chips", default=",".join(CHIPS))
    parser.add_argument("--networks", default=",".join(SETS))
    parser.add_argument("--print", action="store_true", help="write nothing")
    given = parser.parse_args()
    chips = given.chips.split(",")
    lines = [HEAD.format(chips=", ".join(chips)), LINE]
    for name in given.networks.split(","):
        more = list(rows(name, {chip: compiled(name, chip) for chip in chips}))
        lines += more
        print(*more, sep="\n", flush=True)
    if not given.print:
        write_table("nvidia_kernels.py", lines)


if __name__ == "__main__":
    main()
