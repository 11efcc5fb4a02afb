"""Addresses of memory that is declared as whole vectors: multiples of their width, which the text then does not divide.

`(4·a + 132·i + 64) >> 2` cannot be simplified by who compiles the text, for 32-bit integers wrap around; our indices do
not.
"""

from __future__ import annotations

from math import prod

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import MatrixArg, Ops, Space, UOp, Variable, rebuild, size_max, substitute
from tinyweb.graph.symbolic import simplify


def address_entries(sink: UOp) -> UOp:
    """The effects with each index of vectors of n elements as a product with n, where it is one."""
    nodes = sink.toposort()
    widths: dict[UOp, set[int]] = {}
    reads: dict[UOp, bool] = {}
    for u in nodes:
        if u.op in (Ops.LOAD, Ops.STORE):
            widths.setdefault(u.src[0].buffer, set()).add(_width(u))

    def entry(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op not in (Ops.LOAD, Ops.STORE) or len(widths[u.src[0].buffer]) > 1:
            return None
        memory, width, index = u.src[0].buffer, _width(u), src[1]
        variables = memory.op is Ops.BUFFER and memory.arg.space is Space.REGISTER
        if width == 1 or index.op is Ops.CONST or variables:
            return None
        names = _loaded(index, reads)
        named = substitute(index, names)
        number = simplify(named // width)
        if number.op is Ops.FLOORDIV and number.src[0] is named:
            return None
        number = substitute(number, {name: u for u, name in names.items()})
        place = UOp(Ops.MUL, dtypes.index, (number, UOp.const(width, dtypes.index)))
        return u.with_sources((src[0], place, *src[2:]))

    return rebuild(nodes, entry)[sink]


def _loaded(index: UOp, reads: dict[UOp, bool]) -> dict[UOp, UOp]:
    """Parts of an index that come from memory, each with a name that stands for it: below them are effects, which may
    not become other nodes here and there. `reads`: what is known of nodes.
    """
    names: dict[UOp, UOp] = {}
    seen, left = {index}, [index]
    while left:
        u = left.pop()
        if u.op is Ops.LOAD or any(s.dtype is not dtypes.index and _reads(s, reads) for s in u.src):
            names[u] = Variable(f"loaded{len(names)}", -(1 << 31), (1 << 31) - 1)
        else:
            inner = [s for s in u.src if s.dtype is dtypes.index and s not in seen]
            seen.update(inner)
            left.extend(inner)
    return names


def _reads(u: UOp, known: dict[UOp, bool]) -> bool:
    if u not in known:
        known[u] = any(n.op is Ops.LOAD for n in u.toposort())
    return known[u]


def _width(u: UOp) -> int:
    """Elements of an access."""
    value = u.src[2] if u.op is Ops.STORE else u
    return 1 if isinstance(u.arg, MatrixArg) else prod(map(size_max, value.shape))
