"""Computing what tensors ask for, and keeping every other tensor right when memory changes.

Only here do updates in place happen. Before one does, every live tensor that reads the version it replaces and is no
view of the memory is computed, or gets a copy of that version. Afterwards all live tensors refer to what now lies in
memory: what has been computed once is not computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from weakref import ref

from tinyweb.across import prepare
from tinyweb.array.storage import (
    Storage,
    Value,
    aliases,
    change,
    drop_history,
    in_memory,
    leaf,
    live_values,
    owns_memory,
    readers_beside_memory,
    replace_all,
    replace_versions,
    replaced,
    shaped,
    tensors_beside_memory,
    with_history,
)
from tinyweb.device import Device, Recorder, bindings, current_recorder, not_recording, uncollected, uninterrupted
from tinyweb.graph.ir import Ops, UOp, below, numel_max, size_max
from tinyweb.graph.schedule import Schedule, schedule, schedule_across, spans
from tinyweb.graph.schedule.views import is_broadcast, view_base, walk
from tinyweb.graph.target import Target
from tinyweb.memory import BUFFERS, reserve

_due: list[tuple[ref[Value], Recorder | None]] = []


def realize_all(tensors: Sequence[Value]) -> None:
    """Compute tensors in one schedule per device; afterwards each is memory, or a view of memory."""
    for device in dict.fromkeys(t.device for t in tensors):
        here = [t for t in (*tensors, *due()) if t.device == device]
        while not _step(device, here):
            pass
        done = {id(t) for t in here}
        _due[:] = [(held, r) for held, r in _due if (t := held()) is not None and id(t) not in done]


def realize_with_next(t: Value) -> None:
    """Compute `t`, just updated in place, together with whatever is computed next on its device: nobody else may ask
    for it (the running statistics of a norm), and what it waits for would pile up."""
    _due.append((ref(t), current_recorder()))


def due() -> list[Value]:
    """What is to be computed with what is computed next, here or in this recording."""
    here = current_recorder()
    return [t for held, recorder in _due if recorder is here and (t := held()) is not None]


def forget_due(recorder: Recorder) -> None:
    """After a recording: what was due in it is in its plan, or gone with an exception."""
    _due[:] = [(held, r) for held, r in _due if r is not recorder]


@dataclass
class _Work:
    """Nodes to compute, each with the storage (if any) that gets the memory."""

    nodes: dict[UOp, Storage | None] = field(default_factory=dict)

    def ask(self, t: Value, own: bool = False) -> None:
        """For the value of `t`, or of the memory it is a view of; `own`: even if it lies in memory of another."""
        base = view_base(t.uop)
        if in_memory(t.uop) and not (own and t.storage.memory is None):
            return
        if base.op is Ops.ASSIGN and t.storage.memory is base.buffer:
            self.nodes.setdefault(base, None)
            return
        mine = aliases(t.storage, base)
        if base.op in (Ops.BUFFER, Ops.ASSIGN):
            # memory of another tensor: as a value of its own it can be given memory
            value = leaf(base)
            for x, u in zip(mine, replace_all([x.uop for x in mine], {base: value}), strict=True):
                change(x, u)
            base = value
        whole = _only_renamed(t.uop, base) or is_broadcast(t.uop) or len(mine) > 1
        self.nodes.setdefault(base if whole else t.uop, t.storage)

    @property
    def roots(self) -> list[UOp]:
        return [n if n.op in (Ops.ASSIGN, Ops.CONTIGUOUS) else UOp(Ops.CONTIGUOUS, n.dtype, (n,)) for n in self.nodes]


def _only_renamed(u: UOp, base: UOp) -> bool:
    while u is not base:
        if u.op not in (Ops.RESHAPE, Ops.DETACH):
            return False
        u = u.src[0]
    return True


def _step(device: str, tensors: Sequence[Value], own: bool = False) -> bool:
    """Compute `tensors`, or a part of what they need; whether nothing is left to do."""
    if current_recorder() is not None and _compute_outside(tensors):
        return False
    work = _Work()
    for t in tensors:
        work.ask(t, own)
    if not work.nodes:
        return True
    if (elsewhere := _update_elsewhere(device, work)) is not None:
        _compute(elsewhere[0], _Work({elsewhere[1]: None}))
        return False
    if not _have_one_binding(work.roots):
        # one variable has several values: the updates before the last are carried out first, with theirs
        updates = [u for u in walk(work.nodes, ()) if u.op is Ops.ASSIGN]
        if updates and list(work.nodes) != updates[:1]:
            work = _Work({updates[0]: None})
    _compute(device, work)
    return False


def _update_elsewhere(device: str, work: _Work) -> tuple[str, UOp] | None:
    """An update in place on other devices that is asked for, if there is one: it is carried out there first."""
    here = Device.members(device)
    for u in walk(work.nodes, ()) if any(map(spans, work.nodes)) else ():
        if u.op is Ops.COPY and u.arg.source != here:
            update = next((x for x in walk(u.src, ()) if x.op is Ops.ASSIGN), None)
            if update is not None:
                return ",".join(u.arg.source), update
    return None


def _compute(device: str, work: _Work) -> None:
    updates = [u for u in walk(work.nodes, ()) if u.op is Ops.ASSIGN]
    old = {replaced(u) for u in updates}
    table: dict[UOp, UOp] = {u: u.buffer for u in updates if u not in old}
    copies = _keep(device, work, old, table) if updates else set()
    if copies is not None:
        _run(device, work, table, old, copies)


def _run(device: str, work: _Work, table: dict[UOp, UOp], old: set[UOp], copies: Iterable[UOp]) -> None:
    """Carry out `work`, which replaces the versions `old` of memory, of which `copies` are kept; let all live tensors
    refer to the results."""
    roots = work.roots
    values = bindings(roots)
    copies = list(copies)
    if current_recorder() is None:  # before anything is worked out: sizes may be beyond all bounds
        results = sum(_nbytes(r) for r in roots if r.op is Ops.CONTIGUOUS)
        reserve(Device.place(device).runtime, results, "a computation")
    with uncollected():
        plan = _schedule(device, [*roots, *(UOp(Ops.CONTIGUOUS, v.dtype, (v,)) for v in copies)])
    launch = prepare(plan, device, values)
    owners: dict[UOp, Storage] = {}
    leaves = {t.uop for t in live_values() if t.requires_grad}
    for (node, storage), buffer in zip(work.nodes.items(), plan.results, strict=False):
        if node.op is not Ops.ASSIGN:
            table[node] = shaped(buffer, node.shape, values)
            if _needs_gradient(node, leaves):
                table[node] = with_history(table[node], node)
            if storage is not None:
                owners.setdefault(buffer, storage)  # equal values are one memory, which one of them gets
    for version, buffer in zip(copies, plan.results[len(roots) :], strict=True):
        table[version] = buffer
    commit = _replacement(table, old)
    with uninterrupted():
        launch()
        for t, u in commit:
            change(t, u)
        for buffer, storage in owners.items():
            storage.memory = buffer


def _schedule(device: str, roots: Sequence[UOp]) -> Schedule:
    """For the device, or all that take part."""
    recorder, members = current_recorder(), Device.members(device)

    def target(name: str) -> Target:
        return (recorder and recorder.target) or Device[name].runtime.target

    if len(members) == 1 and not any(map(spans, roots)):
        return schedule(roots, target(device))
    return schedule_across(roots, members, target)


def _needs_gradient(node: UOp, leaves: set[UOp]) -> bool:
    """Whether a gradient of `node` may reach one of `leaves` below it."""
    nodes = below([node] if leaves else (), lambda u: u.dtype.is_float and u.op is not Ops.DETACH)
    return any(u in leaves and u is not node for u in nodes)


def _replacement(table: dict[UOp, UOp], old: set[UOp]) -> list[tuple[Value, UOp]]:
    """What live tensors become when nodes are replaced and versions of memory in `old` are gone."""
    recorder = current_recorder()
    tensors = [t for t in tensors_beside_memory() if not (recorder and recorder.is_outside(t.storage.number))]
    new = replace_versions([t.uop for t in tensors], table, old)
    return [(t, u) for t, u in zip(tensors, new, strict=True) if u is not t.uop]


def _readers(old: set[UOp], table: dict[UOp, UOp]) -> list[tuple[Value, set[UOp]]]:
    """Live tensors that read versions in `old`, with these, although `table` will have been applied to them."""
    tensors = [t for t in tensors_beside_memory() if not owns_memory(t)]
    reads: dict[UOp, set[UOp]] = {}
    none: set[UOp] = set()
    for u in walk([t.uop for t in tensors], {**table, **dict.fromkeys(old)}):
        if u in table:
            reads[u] = none
        elif u in old:
            reads[u] = {u}
        else:
            found = [r for s in u.src if (r := reads.get(s))]
            reads[u] = none if not found else found[0] if len(found) == 1 else set().union(*found)
    return [(t, reads[t.uop]) for t in tensors if reads[t.uop]]


def _keep(device: str, work: _Work, old: set[UOp], table: dict[UOp, UOp]) -> set[UOp] | None:
    """Adds to `work` what must be computed while versions in `old` are still there; returns those to be copied.

    A value that is no larger than what it reads is rather computed than given copies to be computed from later. None
    if tensors from outside of a recording had to be computed for that, so that graphs have changed.
    """
    recorder = current_recorder()
    tried: set[Storage] = set()
    while True:
        readers = _readers(old, {**table, **{n: n for n in work.nodes}})
        outside = [t for t, _ in readers if recorder and recorder.is_outside(t.storage.number)]
        if outside:
            with not_recording():
                for t in outside:
                    own(t)
            return None
        for t, versions in readers:
            if t.storage not in tried and t.device == device:
                tried.add(t.storage)
                if (nodes := _joined(work, t, versions, {*table, *old})) is not None:
                    work.nodes = nodes
                    break
        else:
            return {v for _, versions in readers for v in versions}


def _joined(work: _Work, t: Value, versions: set[UOp], updates: set[UOp]) -> dict[UOp, Storage | None] | None:
    """The nodes of `work` and what computes `t`, if that is cheaper than copies of the versions it reads, and possible
    in one schedule without further updates."""
    more = _Work(dict(work.nodes))
    more.ask(t, own=True)
    asked = next(reversed(more.nodes))
    if asked in work.nodes or _elements(asked) > sum(map(_elements, versions)):
        return None
    if any(u.op is Ops.ASSIGN and u not in updates for u in walk([asked], ())):
        return None
    return more.nodes if _have_one_binding(more.roots) else None


def _nbytes(u: UOp) -> int:
    return u.dtype.nbytes(_elements(u))


def _elements(u: UOp) -> int:
    return numel_max(size_max(s) for s in u.shape)


def _have_one_binding(roots: Sequence[UOp]) -> bool:
    """Whether every variable has one value in all of `roots`."""
    try:
        bindings(roots)
    except ValueError:
        return False
    return True


def own(t: Value) -> None:
    """Give `t` and what shares its storage memory of their own, with all updates so far carried out."""
    while not _step(t.device, [t], own=True):
        pass
    drop_history(t)


def _compute_outside(tensors: Sequence[Value]) -> bool:
    """Within a recording: compute for real what the function uses of pending values from outside of it, as a replay
    must not compute (or update) them again. Whether there was anything."""
    recorder = current_recorder()
    assert recorder is not None
    below = set(walk((t.uop for t in tensors), ()))
    asked = {id(t) for t in tensors}
    outside = [
        t
        for t in live_values()
        if recorder.is_outside(t.storage.number)
        and not in_memory(t.uop)
        and (id(t) in asked or (_reads_memory(t.uop) and (t.uop in below or view_base(t.uop) in below)))
    ]
    with not_recording():
        realize_all(outside)
    return bool(outside)


def _reads_memory(u: UOp) -> bool:
    return any(x.op is Ops.BUFFER for x in walk([u], ()))


def settle(used: set[UOp], changed: set[UOp]) -> None:
    """Before a recorded plan runs: carry out pending updates of memory it uses, and keep what live tensors read of the
    memory it is about to change."""
    while others := readers_beside_memory():
        pending = [(t, u) for t in others if not in_memory(t.uop) for u in walk([t.uop], ()) if u.op is Ops.ASSIGN]
        update = next(((t, u) for t, u in pending if u.buffer in used), None)
        if update is None:
            break
        _compute(update[0].device, _Work({update[1]: None}))
    if changed and others:
        by_device: dict[str, set[UOp]] = {}
        for b in changed:
            if (memory := BUFFERS.get(b)) is not None:
                by_device.setdefault(memory.device, set()).add(b)
        for device, own in by_device.items():
            work = _Work()
            copies = _keep(device, work, own, {})
            if work.nodes or copies:
                _run(device, work, {}, own, copies or ())
            else:  # nobody reads it: only histories that did are dropped
                for t, u in _replacement({}, own):
                    change(t, u)
