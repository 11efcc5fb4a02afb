"""Plans into programs: every kernel optimised and lowered once per target, whichever entry points call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tinyweb.graph.ir import UOp
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target

if TYPE_CHECKING:
    from tinyweb.tracing import Plan

Progress: TypeAlias = Callable[[str, int, int], None]  # (what is being done, steps done, steps in all)


@dataclass(frozen=True)
class Dispatch:
    """One launch: the program (an index) and its memory arguments in slot order (BUFFER nodes)."""

    program: int
    buffers: tuple[UOp, ...]


@dataclass(frozen=True)
class Compiled:
    """What one target runs."""

    target: Target
    programs: tuple[Program, ...]  # each once, by first use
    entries: dict[str, tuple[Dispatch, ...]]  # by entry point


def compile_plans(
    plans: Mapping[str, Plan],
    target: Target,
    progress: Progress,
    tune: float = 0.0,
    calls: Mapping[str, int] | None = None,
    tuned: Target | None = None,
) -> Compiled:
    """Optimise and lower the kernels of all plans for `target`.

    `tune`: seconds to look for faster ones before that; `calls`: how often each plan runs in typical use. Schedules
    that were found for the target `tuned`, which can do no more than this one, serve here too.
    """
    from tinyweb.device import uncollected
    from tinyweb.graph.lower import program_for
    from tinyweb.schedules import remembered

    if tune > 0:
        from tinyweb.tuning import tune_for

        tune_for(target, plans, calls or {}, tune, progress)
    kernels = dict.fromkeys(call.kernel for plan in plans.values() for call in plan.calls)
    programs: dict[str, Program] = {}  # equal programs have equal names
    names: dict[UOp, str] = {}
    for done, kernel in enumerate(kernels):
        progress(f"compiling kernels for {target.name}", done, len(kernels))
        chosen = tuned if tuned and remembered(kernel, tuned) is not None else target
        with uncollected():
            program = program_for(kernel, chosen, remembered(kernel, chosen))
        names[kernel] = program.name
        programs.setdefault(program.name, program)
    progress(f"compiling kernels for {target.name}", len(kernels), len(kernels))
    index = {name: i for i, name in enumerate(programs)}
    entries = {
        entry: tuple(Dispatch(index[names[call.kernel]], call.buffers) for call in plan.calls)
        for entry, plan in plans.items()
    }
    return Compiled(target, tuple(programs.values()), entries)


def used_variables(compiled: Compiled, dispatches: tuple[Dispatch, ...]) -> list[str]:
    """Names of the variables that an entry point's programs and grids read, in order of the alphabet."""
    return sorted({str(v.arg[0]) for d in dispatches for v in compiled.programs[d.program].variables})
