"""Segments of a graph: what lies between values that are asked to be in memory.

How a segment is scheduled depends on nothing outside of it, so that steps that are repeated, each from memory to
memory, are scheduled once for all of them: segments of one form, in which the memory that is read is numbered instead
of named, have the same kernels. Constants and views of memory belong to all segments that need them.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tinyweb.graph.ir import MOVEMENT, BufferArg, Ops, Space, UOp, numel_max, rebuild, toposort
from tinyweb.graph.ir.kernel_spec import kernel_spec
from tinyweb.graph.ir.movement import reshape
from tinyweb.graph.ir.spec import verify
from tinyweb.graph.schedule.calls import Call, KernelCall, within_limit
from tinyweb.graph.schedule.dominators import is_constant
from tinyweb.graph.schedule.multi_output import join

REPEATED = 2  # segments for each form from which they are scheduled apart: several may be better off together
VIEWS = MOVEMENT - {Ops.PAD} | {Ops.NEG}  # what costs nothing wherever it is needed


@dataclass(frozen=True)
class Built:
    """Kernels with their buffers, in order, as they are before small ones are joined and large ones divided.
    `stored` are the nodes that got memory, and those of the roots."""

    calls: list[Call]
    results: tuple[UOp, ...]
    temporaries: list[UOp]
    max_inputs: int
    stored: frozenset[UOp]

    def finished(self, calls: Sequence[Call], device: str = "") -> list[KernelCall]:
        """Some of the calls, neighbours in time: small ones joined, and each within the number of buffers."""
        joined = (KernelCall(*call, device) for call in join(calls))
        found = [part for call in joined for part in within_limit(call, self.max_inputs)]
        for call in found:
            verify("schedule", call.kernel, kernel_spec)
        return found


@dataclass(frozen=True)
class Segment:
    """Values in memory and what they are computed of: BUFFERs and other such values, which `form` has numbered."""

    values: tuple[UOp, ...]
    form: UOp
    reads: tuple[UOp, ...]
    views: dict[UOp, UOp]  # what it shares with others, and what that is in the form


def in_segments(roots: Sequence[UOp], build: Callable[[Sequence[UOp]], Built], new: Callable[[UOp], UOp]) -> Built:
    """What `build` makes of the roots, each form of a segment built once. `new`: a buffer like another."""
    while True:
        parts = segments(roots)
        forms = dict.fromkeys(part.form for part in parts)
        if REPEATED * len(forms) >= len(parts):
            return build(roots)
        known = {form: build(form.src) for form in forms}
        uses = Counter(u for part in parts for u in part.views)
        once = {u for part in parts for u, v in part.views.items() if uses[u] > 1 and v in known[part.form].stored}
        if not once:
            break
        roots = _stored(roots, once)  # for all of them
    memory: dict[UOp, UOp] = {}
    calls: list[Call] = []
    between: list[UOp] = []
    for part in parts:
        built = known[part.form]
        own = {b: new(b) for b in (*built.results, *built.temporaries)}
        between += own.values()
        own |= {_numbered(i, u): memory.get(u, u) for i, u in enumerate(part.reads)}
        memory |= {u: own[b] for u, b in zip(part.values, built.results, strict=True)}
        calls += [(kernel, tuple([own[b] for b in buffers])) for kernel, buffers in built.calls]
    results = tuple(memory[r] for r in roots)
    kept = set(results)
    return Built(calls, results, [b for b in between if b not in kept], built.max_inputs, frozenset(memory))


def segments(roots: Sequence[UOp]) -> list[Segment]:
    """The segments of a graph, each after those whose values it reads; none where memory is updated in place, which
    makes an order of what reads it, and where values are on several devices."""
    order = toposort(roots)
    if any(u.op in (Ops.ASSIGN, Ops.COPY) or (u.op is Ops.BUFFER and u.src) for u in order):
        return []
    shared: set[UOp] = set()
    for u in order:
        if _is_value(u) or u.op is Ops.BUFFER or is_constant(u) or (u.op in VIEWS and u.src[0] in shared):
            shared.add(u)
    number = {u: i for i, u in enumerate(u for u in order if u not in shared or u.op is Ops.CONTIGUOUS)}
    same = list(range(len(number)))

    def first(i: int) -> int:
        while same[i] != i:
            same[i] = i = same[same[i]]
        return i

    for u, i in number.items():
        for s in u.src:
            if s not in shared:
                a, b = first(number[s]), first(i)
                same[max(a, b)] = min(a, b)
    groups: dict[int, list[UOp]] = {}
    for u, i in number.items():
        groups.setdefault(first(i), []).append(u)
    found = [_segment(nodes) for nodes in groups.values()]
    done = _ordered(found, [number[nodes[-1]] for nodes in groups.values()])
    circle = set(range(len(found))).difference(done)
    rest = sorted((u for i, nodes in enumerate(groups.values()) if i in circle for u in nodes), key=number.__getitem__)
    return [*(found[i] for i in done), *([_segment(rest)] if circle else [])]


def _is_value(u: UOp) -> bool:
    """Whether a value is in memory, of a size that is known."""
    return u.op is Ops.CONTIGUOUS and all(isinstance(n, int) for n in u.shape)


def _ordered(found: Sequence[Segment], position: Sequence[int]) -> list[int]:
    """The numbers of segments by their positions, each after all that it needs; without those that need each other, and
    what needs these."""
    owner = {u: i for i, segment in enumerate(found) for u in segment.values}
    needs = [{owner[u] for u in segment.reads if u in owner} for segment in found]
    users: list[list[int]] = [[] for _ in found]
    for i, needed in enumerate(needs):
        for j in needed:
            users[j].append(i)
    left = [len(needed) for needed in needs]
    ready = [(position[i], i) for i, count in enumerate(left) if not count]
    heapq.heapify(ready)
    done: list[int] = []
    while ready:
        done.append(heapq.heappop(ready)[1])
        for i in users[done[-1]]:
            left[i] -= 1
            if not left[i]:
                heapq.heappush(ready, (position[i], i))
    return done


def _segment(nodes: list[UOp]) -> Segment:
    """Of nodes in order."""
    reads: list[UOp] = []
    done: dict[UOp, UOp] = {}
    views: list[UOp] = []
    for u in nodes:
        todo = [s for s in u.src if s not in done]
        while todo:
            s = todo.pop()
            if s in done:
                continue
            if s.op in (Ops.BUFFER, Ops.CONTIGUOUS):
                done[s] = reshape(_numbered(len(reads), s), s.shape)
                reads.append(s)
            elif missing := [x for x in s.src if x not in done]:
                todo += [s, *missing]
            else:
                done[s] = s.with_sources(tuple([done[x] for x in s.src]))
                views.append(s)
        done[u] = u.with_sources(tuple([done[s] for s in u.src]))
    values = tuple(u for u in nodes if u.op is Ops.CONTIGUOUS)
    form = UOp(Ops.SINK, src=tuple(done[u] for u in values))
    return Segment(values, form, tuple(reads), {u: done[u] for u in views})


def _numbered(i: int, u: UOp) -> UOp:
    """A BUFFER that stands for memory by its number."""
    return UOp(Ops.BUFFER, u.dtype, (), BufferArg(Space.DEVICE, -1 - i, numel_max(u.shape)))


def _stored(roots: Sequence[UOp], nodes: set[UOp]) -> list[UOp]:
    """The roots with some nodes in memory."""

    def stored(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        same = u.with_sources(src)
        return UOp(Ops.CONTIGUOUS, u.dtype, (same,)) if u in nodes else same

    done = rebuild(toposort(roots), stored)
    return [done[r] for r in roots]
