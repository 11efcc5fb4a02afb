"""Memory that is read once, from its beginning to its end: what comes soon can be asked for while the rest is computed.

A processor's own prefetcher follows such reads as well, but not beyond a page of 4 KiB: behind each it starts anew.
That is hidden where little is computed with a byte, and reading ahead is far ahead: asking as well costs float32 a
tenth of its speed. Weights of 8 or 4 bits keep the processor busy, and gain a fifth or more (docs/performance.md).
"""

from __future__ import annotations

from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.program import Program
from tinyweb.graph.symbolic import evaluate
from tinyweb.render_common import access_width, gate_of, memory_of

AHEAD = 4096  # bytes between what is read and what is asked for
WORTH = 1 << 17  # bytes of a parameter: of a smaller one much is near already
BLOCK = 1 << 16  # bytes one iteration of the grid may read: it need not read them in order
WIDTH = 16  # bytes of a load: asking once for every number would cost more than it brings


def streamed(program: Program) -> set[UOp]:
    """Loads, in a program that multiplies integers, of parameters of which every iteration of the grid reads a block of
    its own, block after block, and each element once.
    """
    iterations = program.grid[0]
    grid = next((u for u in program.uops if u.op is Ops.SPECIAL), None)
    if not isinstance(iterations, int) or grid is None or not any(u.op is Ops.DOT for u in program.uops):
        return set()
    found: set[UOp] = set()
    for param, loads in _loads(program).items():
        size = param.arg.size
        nbytes = param.dtype.nbytes(size)
        once = sum(access_width(u) * times for u, times in loads) * iterations == size
        wide = all(param.dtype.nbytes(access_width(u)) >= WIDTH and gate_of(u) is None for u, _ in loads)
        if not once or not wide or not WORTH <= nbytes <= BLOCK * iterations or size % iterations:
            continue
        if all(_advances(u.src[1], grid, size // iterations) for u, _ in loads):
            found.update(u for u, _ in loads)
    return found


def _loads(program: Program) -> dict[UOp, list[tuple[UOp, int]]]:
    """Loads by parameter, with how often an iteration of the grid executes them; without parameters that are stored to,
    or read in loops whose length is not known.
    """
    written = {memory_of(u.src[0]) for u in program.uops if u.op is Ops.STORE}
    found: dict[UOp, list[tuple[UOp, int]]] = {}
    loops: list[int] = [1]
    for u in program.uops:
        if u.op is Ops.RANGE:
            size = u.src[0]
            loops.append(loops[-1] * int(size.arg) if size.op is Ops.CONST else 0)
        elif u.op is Ops.END:
            loops.pop()
        elif u.op is Ops.LOAD and (memory := memory_of(u.src[0])).op is Ops.PARAM and memory not in written:
            found.setdefault(memory, []).append((u, loops[-1]))
    return {param: loads for param, loads in found.items() if all(times for _, times in loads)}


def _advances(index: UOp, grid: UOp, step: int) -> bool:
    """Whether an index grows by `step` with each iteration, wherever in it."""
    free = [u for u in index.toposort() if u.op in (Ops.RANGE, Ops.VARIABLE)]
    try:
        for inside in (0, 1):
            values = dict.fromkeys(free, inside)
            first, *later = (int(evaluate(index, {**values, grid: i})) for i in (0, 1, 5))
            if [x - first for x in later] != [step, 5 * step]:
                return False
    except (KeyError, ZeroDivisionError):
        return False
    return True
