"""From a tensor graph to kernel calls: fusion, kernel construction, order, memory."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import (
    AxisKind,
    BufferArg,
    KernelInfo,
    Ops,
    Ordered,
    ParamArg,
    Space,
    Spread,
    UOp,
    numel_max,
    reached,
    rebuild,
    size_max,
    toposort,
)
from tinyweb.graph.ir.spec import spec_level, verify
from tinyweb.graph.ir.tensor_spec import tensor_spec
from tinyweb.graph.schedule.attention import softmaxes, unmerged
from tinyweb.graph.schedule.calls import KernelCall, numbered
from tinyweb.graph.schedule.canonical import canonical_form, placeholder
from tinyweb.graph.schedule.fusion import Fusion
from tinyweb.graph.schedule.indexing import ZERO, ElementBuilder, both, flat_index, present, reshape_index
from tinyweb.graph.schedule.known import Parts, known
from tinyweb.graph.schedule.long_reductions import in_parts
from tinyweb.graph.schedule.memory_plan import MemoryPlan, plan_memory
from tinyweb.graph.schedule.ordered import expand_ordered, placed
from tinyweb.graph.schedule.reshapes import before_reshapes
from tinyweb.graph.schedule.segments import Built, in_segments
from tinyweb.graph.schedule.shared_rows import by_rows
from tinyweb.graph.schedule.views import address, converted_where_read, walk
from tinyweb.graph.schedule.whole_rows import held_rows
from tinyweb.graph.schedule.work import MOST_REPEATED, executed, needed, repeats, verify_work
from tinyweb.graph.symbolic import simplify
from tinyweb.graph.target import Target

_buffer_ids = itertools.count()


def new_buffer(size: int, dtype: DType, spread: Spread | None = None) -> UOp:
    """A BUFFER node that stands for device memory of its own: `size` elements, on several devices with a `spread`."""
    return UOp(Ops.BUFFER, dtype, (), BufferArg(Space.DEVICE, next(_buffer_ids), size, spread))


@dataclass(frozen=True)
class Schedule:
    """The calls in order, the buffer each root's value ends in, and where temporaries live."""

    calls: tuple[KernelCall, ...]
    results: tuple[UOp, ...]
    memory: MemoryPlan

    @property
    def temporaries(self) -> tuple[UOp, ...]:
        return tuple(self.memory.pool_of)

    @property
    def variables(self) -> list[UOp]:
        """The VARIABLEs the kernels depend on, by name."""
        found = {v for k in {c.kernel for c in self.calls} for v in k.variables()}
        return sorted(found, key=lambda v: str(v.arg[0]))


@dataclass
class _Store:
    """What one realised node, or several (a SINK), ask of their kernel."""

    node: UOp
    form: UOp
    kernel: UOp | None = None
    buffers: tuple[UOp, ...] = ()
    reads: frozenset[UOp] = frozenset()  # the nodes whose memory it loads (a BUFFER, or an ASSIGN's version of it)

    @property
    def nodes(self) -> tuple[UOp, ...]:
        return self.node.src if self.node.op is Ops.SINK else (self.node,)


@dataclass(frozen=True)
class _Recipe:
    """The kernel of a form: the memory in its slots and the leaves it reads, by their numbers in the form."""

    kernel: UOp | None = None
    slots: tuple[int, ...] = ()
    reads: frozenset[int] = frozenset()


def schedule(roots: Sequence[UOp], target: Target | type[Target] = Target) -> Schedule:
    """Schedule everything `roots` ask for. A root is a CONTIGUOUS (its value gets a new buffer) or an ASSIGN. Of
    the `target` its numbers for memory are read.

    Returns the calls in an order that respects data dependencies, writes in place coming after all reads of the old
    value.
    """

    def work_out(roots: Sequence[UOp]) -> Parts:
        built = _built(placed(roots, target.scattered_stores), target)
        calls = built.finished(built.calls)
        return calls, built.results, plan_memory([c.buffers for c in calls], built.temporaries)

    calls, results, memory = known(roots, target, work_out, new_buffer)
    return Schedule(tuple(calls), tuple(results), memory)


def build(roots: Sequence[UOp], target: Target | type[Target] = Target) -> Built:
    """The kernels of `schedule`."""
    return _built(_strip(roots, target.scattered_stores), target)


def _built(roots: Sequence[UOp], target: Target | type[Target]) -> Built:
    """The kernels of roots without what only gradients ask for."""
    if target.shared_bytes:  # tiles convert what they copy
        roots = converted_where_read(roots)
    recipes: dict[UOp, _Recipe] = {}
    return in_segments(
        roots, lambda some: _built_whole(some, target, recipes), lambda like: new_buffer(like.arg.size, like.dtype)
    )


def _built_whole(
    roots: Sequence[UOp], target: Target | type[Target], recipes: dict[UOp, _Recipe], rows: bool = True
) -> Built:
    """The kernels of a segment, or of all. `rows`: sums of what is made of products are sums of the sums of rows, if
    all these are held."""
    given, split = roots, frozenset[UOp]()
    if rows and target.shared_bytes:
        roots, split = by_rows(roots)
    roots, scratch = expand_ordered(roots, new_buffer)
    stored: frozenset[UOp] = frozenset()
    apart: frozenset[UOp] = frozenset()
    while True:
        sink = UOp(Ops.SINK, dtypes.void, tuple(dict.fromkeys(roots)))
        verify("tensor", sink, tensor_spec)
        fusion = Fusion(
            sink, stored, apart, target.checked_uses, target.converted_uses, target.scattered_loads, target.max_buffers,
            target.shared_bytes,
        )  # fmt: skip
        if not fusion.cheaper <= apart:
            apart |= fusion.cheaper
            continue
        within_rows = before_reshapes(roots, fusion.merged, target.shared_bytes > 0)
        if within_rows != roots:
            roots = within_rows
            continue
        if not split <= fusion.held:
            return _built_whole(given, target, recipes, rows=False)
        at_once = placed(roots, target.scattered_stores, fusion.realized)
        if at_once != roots:
            roots = at_once
            continue
        memory = _memory(fusion)
        stores = _together(fusion, [_build(node, memory, recipes) for node in memory], memory, recipes)
        if repeated := _repeated(fusion, stores, target):
            stored |= repeated
            continue
        clashes = {s.node for s in stores if _reads_elsewhere(s)}
        if not clashes:
            break
        # values to be written that depend on other places of the same memory are computed completely first
        roots = _compute_first(roots, clashes)
    ordered = _order(stores, memory, recipes)
    between: list[UOp] = []

    def temporary(size: int, dtype: DType) -> UOp:
        between.append(new_buffer(size, dtype))
        return between[-1]

    calls = list(in_parts(((s.kernel, s.buffers) for s in ordered if s.kernel is not None), target, temporary))
    if spec_level():
        for s in ordered:
            if s.kernel is not None:
                verify_work(s.form, s.kernel, target)
    results = tuple(memory[r] for r in roots)
    kept = set(results) | {m for node, m in memory.items() if node.op is Ops.ASSIGN and m not in scratch}
    temporaries = [m for m in dict.fromkeys(memory.values()) if m not in kept]
    return Built(calls, results, [*temporaries, *between], fusion.max_inputs, frozenset(memory))


def _compute_first(roots: Sequence[UOp], updates: set[UOp]) -> list[UOp]:
    """The roots with the values of `updates` put into memory before they are written to their place."""

    def first(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return u.with_sources((src[0], UOp(Ops.CONTIGUOUS, u.dtype, (src[1],)))) if u in updates else None

    done = rebuild(toposort(roots), first)
    return [done[r] for r in roots]


def _strip(roots: Sequence[UOp], scattered: bool = False) -> Sequence[UOp]:
    """Without the nodes that only gradients ask for: identities and ends of differentiation."""
    done: dict[UOp, UOp] = {}
    for u in walk(roots, ()):
        if u.op in (Ops.LEAF, Ops.DETACH, Ops.CUSTOM_GRADIENT):
            done[u] = done[u.src[0]]
        else:
            done[u] = u.with_sources(tuple([done[s] for s in u.src]))
    return placed([done[r] for r in roots], scattered)


def _repeated(fusion: Fusion, stores: Sequence[_Store], target: Target | type[Target]) -> frozenset[UOp]:
    """The maxima of scores without memory in kernels that would compute them more than once, and the reductions of
    products whose rows no workgroup holds."""
    found: set[UOp] = set()
    for s in stores if fusion.attention or fusion.held or fusion.shared else ():
        inside = _inside(fusion, s)
        for shared in fusion.shared if s.kernel is not None else ():
            alone = len(shared.ends) > 1 and s.node.op is not Ops.SINK
            if shared.products in inside and (alone or not _is_one_pass(s, target)):
                found.add(shared.products)
        maxima = inside & fusion.attention
        held = inside & fusion.held
        if s.kernel is not None and (maxima or held):
            again, rows = repeats(s.form, s.kernel, target), held_rows(s.kernel, target) is not None
            # scores that something else has put into memory: their exponentials are computed for every column
            found |= maxima if again or not (rows or softmaxes(s.kernel)) else set()
            found |= held if again or not rows else set()
    return frozenset(found)


def _inside(fusion: Fusion, s: _Store) -> set[UOp]:
    """The nodes that a kernel computes."""
    return set(reached(s.nodes, lambda u: [x for x in u.src if x not in fusion.realized]))


def _is_one_pass(s: _Store, target: Target | type[Target]) -> bool:
    """Whether a kernel computes each product of its rows once, and holds it until all that is made of it is known."""
    assert s.kernel is not None
    one = held_rows(s.kernel, target) is not None or softmaxes(s.kernel)
    return bool(one) and executed(s.kernel, target) <= MOST_REPEATED * needed(s.form)


def _together(
    fusion: Fusion, stores: list[_Store], memory: dict[UOp, UOp], recipes: dict[UOp, _Recipe]
) -> list[_Store]:
    """With one kernel for results of the same rows of products, where none needs another, none is written over, and
    their axes are the same."""
    for shared in fusion.shared:
        some = [s for s in stores if s.kernel is not None and shared.products in _inside(fusion, s)]
        if len(some) < 2 or any(isinstance(n.arg, Ordered) for s in some for n in s.nodes):
            continue
        needs = defaultdict(list, {n: [*s.reads] for s in stores for n in s.nodes})
        above = set(reached((r for s in some for r in s.reads), needs.__getitem__))
        nodes = tuple(n for s in some for n in s.nodes)
        if not above.isdisjoint(nodes):
            continue
        both = _build(UOp(Ops.SINK, dtypes.void, nodes), memory, recipes)
        assert both.kernel is not None
        read = {u.src[0] for u in both.kernel.toposort() if u.op is Ops.LOAD}
        written = {u.src[0] for u in both.kernel.src}
        axes = frozenset[UOp]().union(*(u.ranges for u in both.kernel.src))
        alike = len({r.arg.name for r in axes}) == len(axes)
        apart = len(written) == len(nodes) and read.isdisjoint(written)
        if alike and apart and len(both.buffers) <= fusion.max_inputs + 1:
            stores = [s for s in stores if s not in some[:-1]]
            stores[stores.index(some[-1])] = both
    return stores


def _memory(fusion: Fusion) -> dict[UOp, UOp]:
    """The BUFFER of every node that gets memory, in an order in which they can be computed."""
    return {
        node: node.buffer
        if node.op is Ops.ASSIGN
        else new_buffer(numel_max(size_max(s) for s in node.shape), node.dtype)
        for node in fusion.realized
    }


def _build(
    node: UOp, memory: dict[UOp, UOp], recipes: dict[UOp, _Recipe], copies: dict[UOp, UOp] | None = None
) -> _Store:
    """The kernel that computes `node`, or all that a SINK has, into its memory. Of `copies` it reads the values instead
    of the keys."""
    nodes = node.src if node.op is Ops.SINK else (node,)

    def leaf(u: UOp) -> tuple[UOp, UOp] | None:
        if u in nodes:
            return None
        if copies and u in copies:
            u = copies[u]
        if u.op is Ops.BUFFER:
            return u, u
        return (u, memory[u]) if u in memory else None

    targets = [memory[n] for n in nodes]
    form = canonical_form(node, targets, leaf)
    recipe = recipes.get(form.root)
    if recipe is None:
        recipe = recipes[form.root] = _recipe(form.root, targets)
    if recipe.kernel is None:
        return _Store(node, form.root)
    reads = {form.leaves[i] for i in recipe.reads}
    reads.update(v for n in nodes if n.op is Ops.ASSIGN and (v := _replaced(n)).op is Ops.ASSIGN)
    buffers = tuple(form.memories[k] for k in recipe.slots)
    return _Store(node, form.root, recipe.kernel, buffers, frozenset(reads))


def _recipe(form: UOp, targets: Sequence[UOp]) -> _Recipe:
    """The kernel of a form that stores to memory like `targets`."""
    slots: dict[int, UOp] = {}
    reads: set[int] = set()

    def leaf(u: UOp) -> UOp | None:
        found = placeholder(u)
        if found is None:
            return None
        reads.add(found[0])
        return found[1]

    def slot(param: UOp) -> UOp:
        if param.arg.slot not in slots:
            slots[param.arg.slot] = param.replace(arg=ParamArg(len(slots), param.arg.size))
        return slots[param.arg.slot]

    outs = [slot(UOp(Ops.PARAM, t.dtype, (), ParamArg(i, t.arg.size))) for i, t in enumerate(targets)]
    build = ElementBuilder(leaf, slot)
    stores: list[UOp] = []
    for node, out in zip(form.src if form.op is Ops.SINK else (form,), outs, strict=True):
        value_node = node.src[1] if node.op is Ops.ASSIGN else node
        if any(size_max(s) == 0 for s in value_node.shape):
            return _Recipe()
        stores += _stores(node, value_node, out, build)
    kernel = simplify(UOp(Ops.SINK, dtypes.void, tuple(stores), KernelInfo()))
    # memory that simplification found to be unused is dropped
    kernel, kept = numbered(kernel)
    order = list(slots)
    return _Recipe(kernel, tuple(order[i] for i in kept), frozenset(reads))


def _stores(node: UOp, value_node: UOp, out: UOp, build: ElementBuilder) -> list[UOp]:
    """What puts each element of a form's node to its place in `out`."""
    shape = value_node.shape
    ordered = node.arg.axis if isinstance(node.arg, Ordered) else None
    apart = shape if ordered is not None else unmerged(value_node)
    index = tuple(
        ZERO
        if size_max(s) == 1
        else build.range(s, reduce=False, number=i, kind=AxisKind.ORDERED if i == ordered else AxisKind.LOOP)
        for i, s in enumerate(apart)
    )
    index = index if apart == shape else reshape_index(index, shape, apart)
    some = functools.reduce(both, map(present, apart), None)
    gate: UOp | None = None
    place: UOp | None
    picked: UOp | None = None
    if node.op is Ops.ASSIGN and node.src[0].op is Ops.TAKE:
        picked = simplify(build.value(node.src[0], index))
        assert picked.op is Ops.LOAD and picked.src[0] is out
        place, gate = picked.src[1], picked.src[2] if len(picked.src) > 2 else None
    elif node.op is Ops.ASSIGN:
        place = address(node.src[0], index)
        if place is None:
            raise ValueError("an in-place update needs a view made of reshape, permute, shrink and flip")
    else:
        place = flat_index(index, shape)
    stores = [out.store(place, build.value(value_node, index), both(gate, some))]
    if node.op is Ops.ASSIGN and len(node.src) == 3:
        trace = address(node.src[2], index)
        assert picked is not None and trace is not None
        stores.append(out.store(trace, picked, some))
    return stores


def _replaced(update: UOp) -> UOp:
    """The version of its memory that an ASSIGN replaces: a BUFFER, or the ASSIGN before it."""
    view = update.src[0]
    while view.op not in (Ops.BUFFER, Ops.ASSIGN):
        view = view.src[0]
    return view


def _reads_elsewhere(s: _Store) -> bool:
    """Whether a kernel loads the memory it stores to at another index than the one it stores."""
    if s.kernel is None or s.node.op is not Ops.ASSIGN or isinstance(s.node.arg, Ordered):
        return False
    stores = {u.src[0]: u.src[1] for u in s.kernel.src}
    return any(
        u.op is Ops.LOAD and u.src[0] in stores and u.src[1] is not stores[u.src[0]] for u in s.kernel.toposort()
    )


def _order(stores: list[_Store], memory: dict[UOp, UOp], recipes: dict[UOp, _Recipe]) -> list[_Store]:
    """Producers before users; an in-place write after every reader of the version it replaces.

    Where a reader needs that write itself (it uses the old and the new value) it reads a copy of the old version.
    """
    by_node = {s.node: s for s in stores}
    owner = {n: s.node for s in stores for n in s.nodes}
    needs: dict[UOp, dict[UOp, None]] = {s.node: {owner[r]: None for r in s.reads if r in owner} for s in stores}
    readers: dict[UOp, list[UOp]] = {}
    for s in stores:
        for r in s.reads:
            readers.setdefault(r, []).append(s.node)
    before = [  # (reader of a version, what updates it, the version)
        (r, s.node, _replaced(n))
        for s in stores
        for n in s.nodes
        if n.op is Ops.ASSIGN
        for r in readers.get(_replaced(n), ())
        if r is not s.node
    ]
    everything = {n: dict(needed) for n, needed in needs.items()}
    for r, update, _ in before:
        everything[update][r] = None
    ordered = _sorted(everything)
    if ordered is not None:
        return [by_node[n] for n in ordered]
    late: dict[UOp, dict[UOp, UOp]] = {}
    for r, update, old in before:
        if not _is_needed(update, r, needs):
            needs[update][r] = None
            continue
        copy = UOp(Ops.CONTIGUOUS, old.dtype, (old,))
        late.setdefault(r, {})[old] = copy
        if copy not in memory:
            memory[copy] = new_buffer(numel_max(old.shape), old.dtype)
            by_node[copy] = _build(copy, memory, recipes)
            needs[copy] = {owner[old]: None} if old.op is Ops.ASSIGN else {}
        needs[update][copy] = needs[r][copy] = None
    for r, copies in late.items():
        by_node[r] = _build(r, memory, recipes, copies)
    ordered = _sorted(needs)
    assert ordered is not None
    return [by_node[n] for n in ordered]


def _is_needed(node: UOp, user: UOp, needs: dict[UOp, dict[UOp, None]]) -> bool:
    """Whether `node` must come before `user`."""
    return any(n is node for n in reached(needs[user], needs.__getitem__))


def _sorted(needs: dict[UOp, dict[UOp, None]]) -> list[UOp] | None:
    """The keys, each after all it needs, else in their order; None if some need each other."""
    position = {n: i for i, n in enumerate(needs)}
    done: dict[UOp, None] = {}
    entered: set[UOp] = set()
    for first in needs:
        stack = [(first, False)]
        while stack:
            n, leaving = stack.pop()
            if leaving:
                done[n] = None
            elif n not in done:
                if n in entered:
                    return None
                entered.add(n)
                stack.append((n, True))
                stack.extend((d, False) for d in sorted(needs[n], key=position.__getitem__) if d not in done)
    return list(done)
