"""From a tensor graph to kernel calls: fusion, kernel construction, order, memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import BufferArg, KernelInfo, Ops, ParamArg, Space, UOp, size_max, size_prod, substitute, toposort
from tinyweb.graph.ir.spec import kernel_spec, tensor_spec, verify
from tinyweb.graph.schedule.fusion import Fusion
from tinyweb.graph.schedule.indexing import ZERO, ElementBuilder, flat_index
from tinyweb.graph.schedule.memory import MemoryPlan, plan_memory
from tinyweb.graph.symbolic import simplify

_buffer_ids = itertools.count()


def new_buffer(size: int, dtype: DType) -> UOp:
    """A BUFFER node that stands for device memory of its own: `size` elements."""
    return UOp(Ops.BUFFER, dtype, (), BufferArg(Space.DEVICE, next(_buffer_ids), size))


@dataclass(frozen=True)
class KernelCall:
    """One launch: the kernel (a SINK of the kernel form) and its buffers in slot order."""

    kernel: UOp
    buffers: tuple[UOp, ...]


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
    """What one realised node asks of its kernel."""

    node: UOp
    memory: UOp
    kernel: UOp | None = None
    buffers: tuple[UOp, ...] = ()
    reads: frozenset[UOp] = frozenset()  # the nodes whose memory it loads (a BUFFER, or an ASSIGN's version of it)


def schedule(roots: Sequence[UOp]) -> Schedule:
    """Schedule everything `roots` ask for. A root is a CONTIGUOUS (its value gets a new buffer) or an ASSIGN.

    Returns the calls in an order that respects data dependencies, writes in place coming after all reads of the old
    value.
    """
    roots = _strip(roots)
    copied: set[UOp] = set()
    while True:
        sink = UOp(Ops.SINK, dtypes.void, tuple(dict.fromkeys(roots)))
        verify("tensor", sink, tensor_spec)
        stores = _stores(sink)
        clash = next((s.node for s in stores if _reads_elsewhere(s)), None)
        if clash is None:
            break
        # the value to be written depends on other places of the same memory: compute it completely first
        assert clash not in copied
        fresh = clash.replace(src=(clash.src[0], UOp(Ops.CONTIGUOUS, clash.dtype, (clash.src[1],))))
        copied.add(fresh)
        table = {clash: fresh}
        roots = [substitute(r, table) for r in roots]
    ordered = _order(stores)
    memory_of = {s.node: s.memory for s in stores}
    calls = tuple(KernelCall(s.kernel, s.buffers) for s in ordered if s.kernel is not None)
    for call in calls:
        verify("schedule", call.kernel, kernel_spec)
    results = tuple(memory_of[r] for r in roots)
    kept = set(results) | {s.memory for s in stores if s.node.op is Ops.ASSIGN}
    temporaries = [s.memory for s in stores if s.memory not in kept]
    return Schedule(calls, results, plan_memory([c.buffers for c in calls], temporaries))


def _strip(roots: Sequence[UOp]) -> Sequence[UOp]:
    """Without the nodes that only gradients ask for: identities and ends of differentiation."""
    done: dict[UOp, UOp] = {}
    for u in toposort(roots):
        src = tuple(done[s] for s in u.src)
        marked = u.op in (Ops.LEAF, Ops.DETACH, Ops.CUSTOM_GRADIENT)
        done[u] = src[0] if marked else u if src == u.src else u.replace(src=src)
    return [done[r] for r in roots]


def _stores(sink: UOp) -> list[_Store]:
    fusion = Fusion(sink)
    memory: dict[UOp, UOp] = {}
    for node in fusion.realized:
        memory[node] = (
            node.buffer
            if node.op is Ops.ASSIGN
            else new_buffer(size_max(size_prod(size_max(s) for s in node.shape)), node.dtype)
        )
    return [_build(node, memory) for node in fusion.realized]


def _build(node: UOp, memory: dict[UOp, UOp]) -> _Store:
    """The kernel that computes `node` into its memory."""
    target = memory[node]
    slots: dict[UOp, UOp] = {}
    reads: set[UOp] = set()

    def leaf(u: UOp) -> UOp | None:
        if u is node:
            return None
        if u.op is Ops.BUFFER or u in memory:
            reads.add(u)
            return u if u.op is Ops.BUFFER else memory[u]
        return None

    def slot(buffer: UOp) -> UOp:
        if buffer not in slots:
            slots[buffer] = UOp(Ops.PARAM, buffer.dtype, (), ParamArg(len(slots), buffer.arg.size))
        return slots[buffer]

    out = slot(target)
    build = ElementBuilder(leaf, slot)
    value_node = node.src[1] if node.op is Ops.ASSIGN else node
    shape = value_node.shape
    if any(size_max(s) == 0 for s in shape):
        return _Store(node, target)
    index = tuple(ZERO if s == 1 else build.range(s, reduce=False, number=i) for i, s in enumerate(shape))
    if node.op is Ops.ASSIGN:
        place = _place(node.src[0], index)
        if node.src[0].op is not Ops.BUFFER:
            reads.update(u for u in _versions(node.src[0]))
    else:
        place = flat_index(index, shape)
    kernel = simplify(out.store(place, build.value(value_node, index)).sink(arg=KernelInfo()))
    return _renumber(_Store(node, target, kernel, tuple(slots), frozenset(reads)))


def _renumber(store: _Store) -> _Store:
    """Drop memory that simplification found to be unused, and number the rest without gaps."""
    assert store.kernel is not None
    used = {u.arg.slot: u for u in store.kernel.toposort() if u.op is Ops.PARAM}
    if len(used) < len(store.buffers):
        kept = sorted(used)
        table = {used[s]: used[s].replace(arg=ParamArg(i, used[s].arg.size)) for i, s in enumerate(kept)}
        store.kernel = substitute(store.kernel, table)
        store.buffers = tuple(store.buffers[s] for s in kept)
    return store


def _place(view: UOp, index: tuple[UOp, ...]) -> UOp:
    """The flat address in the BUFFER behind `view` of the element at `index`."""

    def leaf(u: UOp) -> UOp | None:
        return u.buffer if u.op in (Ops.BUFFER, Ops.ASSIGN) else None

    def slot(buffer: UOp) -> UOp:
        return UOp(Ops.PARAM, buffer.dtype, (), ParamArg(0, buffer.arg.size))

    load = ElementBuilder(leaf, slot).value(view, index)
    if load.op is not Ops.LOAD or len(load.src) != 2:
        raise ValueError("an in-place update needs a view made of reshape, permute, shrink and flip")
    return load.src[1]


def _versions(view: UOp) -> list[UOp]:
    """The ASSIGN a view looks at, if any."""
    while view.op not in (Ops.BUFFER, Ops.ASSIGN):
        view = view.src[0]
    return [view] if view.op is Ops.ASSIGN else []


def _reads_elsewhere(s: _Store) -> bool:
    """Whether a kernel loads the memory it stores to at another index than the one it stores."""
    if s.kernel is None or s.node.op is not Ops.ASSIGN:
        return False
    stores = {u.src[0]: u.src[1] for u in s.kernel.src}
    return any(
        u.op is Ops.LOAD and u.src[0] in stores and u.src[1] is not stores[u.src[0]] for u in s.kernel.toposort()
    )


def _order(stores: list[_Store]) -> list[_Store]:
    """Producers before users; an in-place write after every reader of the version it replaces."""
    by_node = {s.node: s for s in stores}
    after: dict[UOp, set[UOp]] = {s.node: {r for r in s.reads if r in by_node} for s in stores}
    for s in stores:
        if s.node.op is not Ops.ASSIGN:
            continue
        previous = _versions(s.node.src[0])
        replaced = previous[0] if previous else s.memory
        for other in stores:
            if other is not s and replaced in other.reads and other.node is not s.node:
                if other.node.op is Ops.ASSIGN and s.node in toposort([other.node.src[0]]):
                    continue
                after[s.node].add(other.node)
    done: dict[UOp, _Store] = {}
    state: dict[UOp, int] = {}
    for s in stores:
        stack = [(s.node, False)]
        while stack:
            n, leaving = stack.pop()
            if leaving:
                done[n] = by_node[n]
                state[n] = 2
                continue
            if state.get(n) == 2:
                continue
            if state.get(n) == 1:
                raise NotImplementedError(
                    "a kernel reads both the old and the new value of memory that is updated in place: "
                    "call .contiguous() on the old value first"
                )
            state[n] = 1
            stack.append((n, True))
            stack.extend(
                (d, False) for d in sorted(after[n], key=lambda d: list(by_node).index(d)) if state.get(d) != 2
            )
    return list(done.values())
