"""Views: chains of movement ops that only rename elements of the value at their bottom."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from tinyweb.graph.ir import MOVEMENT, Ops, ParamArg, UOp, numel_max, rebuild, size_max, through, toposort
from tinyweb.graph.ir.on_node import on_node
from tinyweb.graph.schedule.indexing import ZERO, ElementBuilder, Index, same
from tinyweb.graph.symbolic import simplify

RENAMING = MOVEMENT | {Ops.DETACH}
MEMORY = (Ops.BUFFER, Ops.ASSIGN, Ops.CONTIGUOUS)


def view_base(u: UOp) -> UOp:
    """The node whose elements `u` shows: `u` itself, unless it is a view.

    Padding that a later SHRINK takes away again (every third element) belongs to a view; padding that shows does not.
    """
    return u if u.op not in RENAMING else on_node(u, "view_base", _view_base, through=lambda s: False)


def _view_base(u: UOp) -> UOp:
    chain, bottom = through(u, RENAMING)
    for i, v in enumerate(chain):  # one after the other: a view of what is padded may have padding of its own
        if v.op is Ops.PAD and _address(u, chain[: i + 1]) is None:
            return v
    if bottom.op is Ops.CONST:  # a bare constant is no value of its own: what repeats it is
        for v in reversed(chain):
            if v.op is Ops.EXPAND:
                bottom = v
            elif v.op is not Ops.RESHAPE:
                break
    return bottom


def converted_where_read(roots: Sequence[UOp]) -> list[UOp]:
    """The roots without memory for what is nothing but narrower floats of other memory in a wider type."""

    def rule(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is not Ops.CONTIGUOUS or u in roots:
            return None
        cast = src[0]
        narrow = cast.op is Ops.CAST and cast.src[0].dtype.is_float and cast.src[0].dtype.bits < cast.dtype.bits
        return cast if narrow and through(cast.src[0], RENAMING)[1].op in MEMORY else None

    nodes = toposort(roots)
    if not any(u.op is Ops.CONTIGUOUS and u.src[0].op is Ops.CAST for u in nodes):
        return list(roots)
    done = rebuild(nodes, rule)
    return [done[r] for r in roots]


def is_broadcast(view: UOp) -> bool:
    """Whether elements of a view share memory."""
    base = view_base(view)
    while view is not base:
        if view.op is Ops.EXPAND and not all(map(same, view.shape, view.src[0].shape)):
            return True
        view = view.src[0]
    return False


def address(view: UOp, index: Index | None = None) -> UOp | None:
    """The row-major address in the node below a chain of movement ops of the element at `index` (of any element, if
    there is none); None if padding shows."""
    return _address(view, through(view, RENAMING)[0], index)


def _address(view: UOp, chain: list[UOp], index: Index | None = None) -> UOp | None:
    bottom = chain[-1].src[0] if chain else view
    bare = bottom
    for v in reversed(chain):
        bare = bare if v.op is Ops.DETACH else v.replace(src=(bare,))
    memory = UOp(Ops.PARAM, bottom.dtype, (), ParamArg(0, numel_max(size_max(s) for s in bottom.shape)))
    build = ElementBuilder(lambda u: memory if u is bottom else None, lambda u: u)
    if index is None:
        index = tuple(ZERO if s == 1 else build.range(s, reduce=False, number=i) for i, s in enumerate(view.shape))
    load = simplify(build.value(bare, index))
    return load.src[1] if load.op is Ops.LOAD and len(load.src) == 2 else None


def walk(roots: Iterable[UOp], ends: Container[UOp], values_only: bool = True) -> list[UOp]:
    """Every node below `roots`, sources first; what only lies below `ends`, or only gradients ask for, is left out."""
    done: dict[UOp, None] = {}
    above: list[tuple[UOp, Iterator[UOp]]] = []

    def below(u: UOp) -> Iterator[UOp]:
        return reversed(u.src[:1] if values_only and u.op is Ops.CUSTOM_GRADIENT else u.src)

    for u in reversed([*roots]):
        if u in done:
            continue
        rest = iter(()) if u in ends else below(u)
        while True:
            for s in rest:
                if s not in done:
                    if s.src and s not in ends:
                        above.append((u, rest))
                        u, rest = s, below(s)
                        break
                    done[s] = None
            else:
                done[u] = None
                if not above:
                    break
                u, rest = above.pop()
    return list(done)
