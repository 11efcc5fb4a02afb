"""Arrays that every block of the grid would fill alike: a call of the kernel fills them once, before its blocks."""

from __future__ import annotations

from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.program import Program
from tinyweb.render_common import Registers, memory_of


def filled_once(program: Program, registers: dict[UOp, Registers]) -> set[UOp]:
    """The nodes of the program, loops included, that fill such arrays; none that anything else happens in.

    An array is one where no store to it depends on the grid or on memory that the kernel changes.
    """
    if not any(u.op is Ops.SPECIAL for u in program.uops):
        return set()
    arrays = {u for u in program.uops if u in registers and not registers[u].variables}
    written = {memory_of(u.src[0]) for u in program.uops if u.op is Ops.STORE}
    stores = [u for u in program.uops if u.op is Ops.STORE and memory_of(u.src[0]) in arrays]
    end_of = {u.src[-1]: u for u in program.uops if u.op is Ops.END}
    while arrays:
        alike = _alike(program, arrays, written)
        varying = {
            memory_of(u.src[0])
            for u in stores
            if u not in alike or any(end_of[r] not in alike for r in u.ranges if r in end_of)
        }
        if not varying & arrays:
            break
        arrays -= varying
    found: set[UOp] = set()
    waiting = [u for u in stores if memory_of(u.src[0]) in arrays]
    waiting += [end_of[r] for u in waiting for r in u.ranges if r in end_of]
    while waiting:
        u = waiting.pop()
        if u not in found:
            found.add(u)
            waiting.extend(u.src)
    return found


def _alike(program: Program, arrays: set[UOp], written: set[UOp]) -> set[UOp]:
    """Nodes that are the same in every block if `arrays` are."""
    found: set[UOp] = set()
    for u in program.uops:
        if u.op is Ops.SPECIAL or any(s not in found for s in u.src):
            continue
        if u.op is Ops.BUFFER and u not in arrays:
            continue
        if u.op is Ops.PARAM and u in written:
            continue
        if u.op is Ops.STORE and memory_of(u.src[0]) not in arrays:
            continue
        found.add(u)
    return found
