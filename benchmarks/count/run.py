"""What the kernels of `python -m benchmarks cliffs` execute and move on a target, beside what their expressions need.

usage: python -m benchmarks count [--target webgpu] [--only REGEX] [--json FILE]

Nothing is run, and no device is needed: works are captured, their kernels optimised and lowered for the target, and the
programs are counted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from benchmarks.cliffs.count import total
from benchmarks.cliffs.run import all_of
from benchmarks.cliffs.work import Work
from benchmarks.cliffs.works import WORKS
from benchmarks.count.program import Counts, count
from tinyweb import Tensor
from tinyweb.export.webgpu import VARIANTS
from tinyweb.graph.gpu_targets import amd_target, nvidia_target
from tinyweb.graph.ir import Ops, Shape, UOp, size_max, size_prod
from tinyweb.graph.lower import program_for
from tinyweb.graph.program import Program
from tinyweb.graph.schedule.work import executed
from tinyweb.graph.target import Target, cpu_target, wasm_target
from tinyweb.render_c import CUDA, HIP, kernel_functions, render_gpu
from tinyweb.render_wgsl import render
from tinyweb.tracing import Plan, capture

TARGETS: dict[str, Target] = {
    **{"webgpu" if name == "base" else f"webgpu-{name}": target for name, target in VARIANTS.items()},
    "cpu": cpu_target(8, 2),
    "wasm": wasm_target(2),
    "cuda": nvidia_target(),
    "hip": amd_target(),
}
"""Those that sites are exported for, a processor with AVX2, and a GPU each of NVIDIA and of AMD."""
DIALECTS = {"cuda": CUDA, "hip": HIP}
MOST_WORK, MOST_BYTES, LARGE = 1.25, 2.0, 512
MEMORY_BOUND = ("matmul", "matvec", "batch", "einsum", "int8", "q8", "q4", "conv", "attention")  # names' first words


@dataclass(frozen=True)
class Result:
    """Of all kernels of a work. Bytes and operations are sums, registers and text those of the largest kernel."""

    name: str
    kernels: int = 0
    needed: int = 0  # operations, each value being computed once
    compulsory: int = 0  # bytes: inputs read once, outputs written once
    large: bool = False  # a product, convolution or attention with an axis of LARGE
    operations: int = 0
    multiply_adds: int = 0
    transcendental: int = 0
    reduced: float = 0.0  # steps of reductions in the kernels before they are scheduled, over those of the expression
    issued: int = 0  # bytes that threads load and store
    group: int = 0  # each address once for a workgroup
    once: int = 0  # each address once for a kernel
    shared_loads: int = 0
    shared_stores: int = 0
    barriers: int = 0
    registers: int = 0
    text: int = 0
    exact: bool = True
    schedules: tuple[tuple[str, ...], ...] = ()
    problem: str = ""
    beyond: str = ""  # why it is beyond the limits

    @property
    def is_beyond(self) -> bool:
        """Whether it executes, or as large a work moves, more than the limits allow."""
        return (self.work or 0.0) > MOST_WORK or (self.large and self.once_bytes > MOST_BYTES)

    @property
    def work(self) -> float | None:
        """Operations over those needed."""
        return self.operations / self.needed if self.needed else None

    @property
    def group_bytes(self) -> float:
        return self.group / max(self.compulsory, 1)

    @property
    def once_bytes(self) -> float:
        return self.once / max(self.compulsory, 1)

    @property
    def worst(self) -> float:
        return max(self.work or 0.0, self.group_bytes, self.once_bytes)


def measure(work: Work, target: Target) -> Result:
    """One work. What fails is in the result."""
    try:
        return _measure(work, target)
    except Exception as error:
        return Result(work.name, problem=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


def planned(work: Work, target: Target) -> tuple[Plan, list[UOp], list[Shape]]:
    """What a work launches, the nodes of its results, and the shapes of its inputs and results."""
    arrays = work.arrays()
    ours = [t.realize() for t in (work.place(arrays) if work.place else map(Tensor, arrays))]
    outs = [Tensor.empty(*v.shape, dtype=v.dtype) for v in all_of(work.ours(*ours))]
    roots: list[UOp] = []

    def step() -> list[Tensor]:  # what would be a view is written, as `cliffs` has it
        values = all_of(work.ours(*ours))
        roots.extend(v.uop for v in values)
        return [t.assign(v) for t, v in zip(outs, values, strict=True)]

    return capture(step, target), roots, [t.shape for t in (*ours, *outs)]


def _measure(work: Work, target: Target) -> Result:
    plan, roots, shapes = planned(work, target)
    programs = [program_for(call.kernel, target) for call in plan.calls]
    counts = [_counted(p) for p in programs]

    def summed(figure: Callable[[Counts], int]) -> int:
        return sum(map(figure, counts))

    steps = _steps(roots)
    return Result(
        work.name,
        kernels=len(programs),
        needed=total(work.needs, target),
        compulsory=compulsory(plan, programs),
        large=is_large(work.name, shapes),
        operations=summed(lambda c: c.operations),
        multiply_adds=summed(lambda c: c.multiply_adds),
        transcendental=summed(lambda c: c.transcendental),
        reduced=sum(executed(call.kernel, target) for call in plan.calls) / steps if steps else 0.0,
        issued=summed(lambda c: c.loaded + c.stored),
        group=summed(lambda c: c.group_loaded + c.group_stored),
        once=summed(lambda c: c.once),
        shared_loads=summed(lambda c: c.shared_loads),
        shared_stores=summed(lambda c: c.shared_stores),
        barriers=summed(lambda c: c.barriers),
        registers=max((c.registers for c in counts), default=0),
        text=max((text_size(p, target) for p in programs), default=0),
        exact=all(c.exact for c in counts),
        schedules=tuple(p.schedule for p in programs),
        beyond=work.beyond,
    )


@cache
def _counted(program: Program) -> Counts:
    return count(program)


def _steps(roots: Sequence[UOp]) -> int:
    """Steps of all reductions of an expression, gradients that nobody asks for left out."""
    stack, seen, steps = list(roots), set(roots), 0
    while stack:
        u = stack.pop()
        steps += size_max(size_prod(u.src[0].shape)) if u.op is Ops.REDUCE else 0
        for s in u.src[:1] if u.op is Ops.CUSTOM_GRADIENT else u.src:
            if s not in seen:
                seen.add(s)
                stack.append(s)
    return steps


def text_size(program: Program, target: Target) -> int:
    """Bytes of what is compiled for a program."""
    if target.language == "wgsl":
        text = render(program, {v.arg[0]: i for i, v in enumerate(program.variables)})
    elif target.language in DIALECTS:
        text = render_gpu([program], DIALECTS[target.language])
    else:
        text = kernel_functions([program])
    return len(text.encode())


def compulsory(plan: Plan, programs: Sequence[Program]) -> int:
    """Bytes of the buffers from outside that are read before they are written, and of those that are written."""
    read: dict[UOp, int] = {}
    written: dict[UOp, int] = {}
    temporaries = set(plan.temporaries)
    for call, program in zip(plan.calls, programs, strict=True):
        for info in program.params:
            buffer = call.buffers[info.slot]
            size = buffer.dtype.nbytes(buffer.arg.size)
            if buffer not in temporaries:
                if info.read and buffer not in written:
                    read[buffer] = size
                if info.written:
                    written[buffer] = size
    return sum(read.values()) + sum(written.values())


def is_large(name: str, shapes: Iterable[Sequence[object]]) -> bool:
    """Whether the limit of bytes is for this work: an axis of LARGE, those of an image being one."""
    family = name.split("-")[0]
    if family not in MEMORY_BOUND:
        return False
    axes = [[int(str(n)) for n in shape] for shape in shapes]
    if family == "conv":
        axes = [[*shape[:2], math.prod(shape[2:])] for shape in axes]
    return max((n for shape in axes for n in shape), default=0) >= LARGE


# -- the table ---------------------------------------------------------------------------------------------------------
HEADER = (
    "| work | kernels | operations | ÷ needed | reduced | loads and stores, MB | of workgroups | ÷ compulsory "
    "| of kernels | ÷ compulsory | shared loads per multiply-add | barriers | registers | text |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def line(result: Result) -> str:
    """A row of the table."""
    r = result
    if r.problem:
        return f"| {r.name} | {r.problem} |{' |' * 12}"
    work = "" if r.work is None else f"{r.work:.2f}"
    shared = f"{r.shared_loads / r.multiply_adds:.2f}" if r.multiply_adds else ""
    cells = (
        f"{r.name}{'' if r.exact else ' (estimated)'}", r.kernels, f"{r.operations:.3g}", work, f"{r.reduced:.2f}",
        f"{r.issued / 1e6:.3g}", f"{r.group / 1e6:.3g}", f"{r.group_bytes:.2f}", f"{r.once / 1e6:.3g}",
        f"{r.once_bytes:.2f}", shared, r.barriers, r.registers, r.text,
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def summary(results: Sequence[Result]) -> str:
    """What is beyond the limits."""
    counted = [r for r in results if not r.problem]
    large = [r for r in counted if r.large]
    once, group = (sum(getattr(r, f) > MOST_BYTES for r in large) for f in ("once_bytes", "group_bytes"))
    lines = [
        f"{len(counted)} works, {sum((r.work or 0) > MOST_WORK for r in counted)} over {MOST_WORK} × work",
        f"{len(large)} matmul/conv/attention works from {LARGE} up: {once} over {MOST_BYTES:g} × bytes if kernels move "
        f"each address once, {group} if workgroups do",
    ]
    for r in counted:
        if r.is_beyond:
            lines.append(f"{r.name}: {r.beyond or 'not explained'}")
    if failed := [r.name for r in results if r.problem]:
        lines.append(f"Not counted: {', '.join(failed)}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks count", description="What kernels execute and move.")
    parser.add_argument("--target", choices=TARGETS, default="webgpu", help="(default: webgpu)")
    parser.add_argument("--only", metavar="REGEX", default="", help="only works whose name matches")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures and schedules")
    given = parser.parse_args(arguments)
    try:
        chosen = [w for w in WORKS.values() if re.search(given.only, w.name)]
    except re.error as error:
        parser.error(f"--only: {error}")
    if not chosen:
        sys.exit(f"no work matches {given.only!r}")
    os.environ["TINYWEB_SCHEDULES"] = "none"
    results = []
    for number, work in enumerate(chosen, 1):
        results.append(measure(work, TARGETS[given.target]))
        print(f"\r{number}/{len(chosen)} {work.name:50}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(HEADER)
    for result in sorted(results, key=lambda r: (not r.problem, -r.worst)):
        print(line(result))
    print(f"\n{summary(results)}")
    if given.json:
        works = [
            asdict(r) | {"work": r.work, "group_bytes": r.group_bytes, "once_bytes": r.once_bytes} for r in results
        ]
        given.json.write_text(json.dumps({"target": given.target, "works": works}, indent=1, ensure_ascii=False) + "\n")
