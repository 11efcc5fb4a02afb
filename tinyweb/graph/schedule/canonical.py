"""The form of what a kernel computes: a graph in which the memory it reads is numbered instead of named.

Two nodes of one form become one kernel, and forms are nodes: that the layers of a model are alike is known before any
of them is turned into a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tinyweb.graph.ir import Ops, Ordered, ParamArg, UOp


@dataclass(frozen=True)
class Canonical:
    """`leaves[i]` is the node that the placeholder numbered i stands for; `memories[k]` the BUFFER behind PARAM k.

    The first memories are what the kernel stores to.
    """

    root: UOp
    leaves: tuple[UOp, ...]
    memories: tuple[UOp, ...]


def canonical_form(node: UOp, targets: Sequence[UOp], leaf: Callable[[UOp], tuple[UOp, UOp] | None]) -> Canonical:
    """The form of `node`, to be stored to a BUFFER; of a SINK, each source to one of `targets`. `leaf(u)` is (the node
    read instead of u, its BUFFER) where u is not computed but read; it is not asked about `node` itself."""
    leaves: list[UOp] = []
    memories = {target: i for i, target in enumerate(targets)}
    done: dict[UOp, UOp] = {}
    above: list[tuple[UOp, Iterator[UOp]]] = []
    u, rest = node, iter(node.src)
    while True:
        for s in rest:
            if s in done:
                continue
            found = leaf(s)
            if found is not None:
                read, memory = found
                number = memories.setdefault(memory, len(memories))
                done[s] = _placeholder(read, memory, number, len(leaves))
                leaves.append(read)
            elif s.src:
                above.append((u, rest))
                u, rest = s, iter(s.src)
                break
            else:
                done[s] = s
        else:
            src = tuple([done[s] for s in u.src])
            # the number of an update tells apart what writes the same; what it writes is not a matter of it
            arg = u.arg
            if u.op is Ops.ASSIGN:
                arg = Ordered(u.arg.axis, 0) if isinstance(u.arg, Ordered) else None
            done[u] = u if src == u.src else UOp(u.op, u.dtype, src, arg)
            if not above:
                return Canonical(done[u], tuple(leaves), tuple(memories))
            u, rest = above.pop()


def _placeholder(read: UOp, memory: UOp, number: int, leaf: int) -> UOp:
    """Stands for the node `read`; distinct for every leaf, though the same memory may be several of them."""
    param = UOp(Ops.PARAM, memory.dtype, (), ParamArg(number, memory.arg.size))
    shaped = param if read.shape == param.shape else UOp(Ops.RESHAPE, read.dtype, (param,), read.shape)
    return UOp(Ops.CONTIGUOUS, read.dtype, (shaped,), leaf)


def placeholder(u: UOp) -> tuple[int, UOp] | None:
    """(number of the leaf, PARAM) if `u` stands for memory in a form."""
    if u.op is not Ops.CONTIGUOUS or u.arg is None:
        return None
    return u.arg, u.src[0] if u.src[0].op is Ops.PARAM else u.src[0].src[0]
