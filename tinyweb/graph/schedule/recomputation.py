"""Elementwise work that a kernel would carry out again because it needs a value for several elements.

A step of a stencil reads four neighbours of each element: fused with the step before, each neighbour is computed from
four of its own. What is fused that way grows by a factor with every step, in operations and in text. Places that a
gather picks rows at, and weights of rows, would be computed for each column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from tinyweb.graph.ir import ELEMENTWISE, MOVEMENT, TRANSCENDENTAL, Ops, UOp, numel_max, reached, through
from tinyweb.graph.schedule.dominators import is_constant
from tinyweb.graph.schedule.work import LAUNCH

STORED = 4  # operations that storing an element and loading it again may cost
SURE = 4  # times as many operations as a launch takes: of joins both sides are counted, known indices leave one of many
FUNCTION = 16  # operations of a transcendental function, or of a division
DIVISIONS = frozenset({Ops.DIV, Ops.RECIPROCAL, Ops.SQRT})
EXPENSIVE = 8  # operations from which both sides of a join are not computed for every element
BROADCAST = 8  # operations from which a value is stored before it is broadcast: fewer may be done once for a loop
MOST = 1 << 10  # operations that are counted
MOST_USERS = 1 << 8  # nodes that are looked at for a sum
LONG = 48  # operations that no second kernel carries out again, however few elements there are: its text grows
WRITTEN = 64  # operations that parts of a value are written out in, all of them together


Users: TypeAlias = "Mapping[UOp, Sequence[UOp]]"
IsMemory: TypeAlias = "Callable[[UOp], bool]"
"""Of a node below, whether it is loaded."""


def padded(order: Iterable[UOp]) -> dict[UOp, int]:
    """Elements of elementwise values with the border that they get, of those that get one."""
    found: dict[UOp, int] = {}
    for v in order:
        if v.op is Ops.PAD:
            x = through(v.src[0], (Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP))[1]
            if x.op in ELEMENTWISE:
                found[x] = max(found.get(x, 0), numel_max(v.shape))
    return found


def worth_storing(u: UOp, users: Users, borders: Mapping[UOp, int], is_memory: IsMemory) -> bool:
    """Whether memory for an elementwise value costs less than computing it at each place where it is read. `borders`:
    of all values, those `padded`.
    """
    size = numel_max(u.shape)
    apart, joined, parts = _places(u, size, users, borders)
    if joined <= size and parts < 2:
        return False
    operations = _operations(u, is_memory)
    # parts of parts: most of what is written out is there for parts below already
    if parts > 1 and operations * parts > WRITTEN and operations >= 2 * _operations(u, is_memory, again=False):
        return True
    again = (joined if operations > EXPENSIVE else apart) - size
    return operations * again > SURE * LAUNCH + STORED * size


def worth_storing_once(u: UOp, count: int, is_memory: IsMemory, walked: int = 0) -> bool:
    """Whether memory for a value costs less than computing it for each of `count` elements. `walked`: for so many it is
    computed if loops that it does not vary with, inside of the others, have it once: where its divisions are counted.
    """
    size = numel_max(u.shape)
    for times, functions, launch in ((count, TRANSCENDENTAL, 1), (walked, TRANSCENDENTAL | DIVISIONS, SURE)):
        operations = _operations(u, is_memory, functions) if times > size else 0
        if operations >= BROADCAST and operations * (times - size) > launch * LAUNCH + STORED * size:
            return True
    return False


def in_sums(order: Sequence[UOp], users: Users) -> set[UOp]:
    """Values that go into two sums or more, themselves or by elementwise work on them. `order`: sources first."""
    sums: dict[UOp, tuple[UOp, ...]] = {}
    for u in reversed(order):
        found = dict.fromkeys(v for v in users[u] if v.op is Ops.REDUCE)
        for v in users[u]:
            if len(found) < 2 and (v.op in MOVEMENT or v.op in ELEMENTWISE):
                found |= dict.fromkeys(sums[v])
        sums[u] = tuple(islice(found, 2))
    return {u for u, found in sums.items() if len(found) > 1}


def worth_sharing(u: UOp, users: Users, is_memory: IsMemory, is_one_kernel: Callable[[UOp, UOp], bool]) -> bool:
    """Whether memory for a value, one of those `in_sums`, costs less than computing it in each kernel that needs it.
    What a recurrent network carries from step to step would be computed from all steps before in each of the following
    ones. `is_one_kernel`: of the value and a sum at its own places, whether one kernel has all sums along these rows.
    """
    if len(set(users[u])) == 1:
        return False
    size = numel_max(u.shape)
    larger, own = _sums_of(u, size, users)
    if len(larger) < 2 and len(own) < 2:
        return False
    # how many more there are says little: of those behind what is carried on, that is what they read
    operations = _operations(u, is_memory)
    if len(larger) > 1:
        return operations > LONG or operations * size > SURE * LAUNCH + STORED * size
    return operations > LONG and not is_one_kernel(u, own[0])


def _sums_of(u: UOp, size: int, users: Users) -> tuple[list[UOp], list[UOp]]:
    """Sums that a value, or elementwise work on it, goes into: of more elements, up to two, and at its own places."""
    larger, own = dict[UOp, None](), dict[UOp, None]()
    for x in islice(_made_of(u, users), MOST_USERS):
        for v in users[x]:
            if v.op is Ops.REDUCE and numel_max(v.src[0].shape) >= size:
                (larger if numel_max(v.src[0].shape) > size else own)[v] = None
        if len(larger) > 1:
            break
    return [*larger], [*own]


def _made_of(u: UOp, users: Users) -> Iterator[UOp]:
    """A value, and elementwise work on it."""
    return reached([u], lambda x: [v for v in users[x] if v.op in MOVEMENT or v.op in ELEMENTWISE])


def is_summed(u: UOp, users: Users) -> bool:
    """Whether a sum reads a value, with elementwise work between them: tiles of sums keep what they read again."""
    made = islice(_made_of(u, users), MOST_USERS + 1)
    return any(i == MOST_USERS or any(v.op is Ops.REDUCE for v in users[x]) for i, x in enumerate(made))


def _places(u: UOp, size: int, users: Users, borders: Mapping[UOp, int]) -> tuple[int, int, int]:
    """How many elements of a value are read by way of its views, each view once: those that it has, and those that are
    computed where a view, or what is made of it, has a border and a choice of what lies behind that: a side of a join.
    And how many of the views are parts of it. A part of a view, the rest of it being constant, is read where the view
    is, or by way of views of its own.
    """
    apart = joined = 0
    read: dict[UOp, tuple[int, int]] = {}
    todo, seen = [(u, u, size, size)], {u}
    while todo:
        x, view, inside, whole = todo.pop()
        made: list[UOp] = []
        for below, v in _readers(x, users):
            if v.op is Ops.TAKE and v.src[0] is below:
                apart, joined = apart + numel_max(v.shape), joined + numel_max(v.shape)
            elif v.op not in MOVEMENT and not _is_part(v, below):
                made.append(v)
            elif v not in seen:
                seen.add(v)
                sizes = (min(inside, numel_max(v.shape)), _joined(v, whole)) if v.op in MOVEMENT else (inside, whole)
                todo.append((v, v if v.op in MOVEMENT else view, *sizes))
        if made:
            before = read.get(view, (0, 0))[1]
            above = islice(_elementwise_on(made, users), MOST_USERS) if len(made) > 1 and borders else ()
            bordered = sum(n for v in above if (n := borders.get(v, 0)) < 2 * size)  # more is a side of a join
            read[view] = inside, max(before, whole, sum(borders.get(v, 0) for v in made), bordered)
    parts = sum(inside < size for inside, _ in read.values())
    return apart + sum(a for a, _ in read.values()), joined + sum(j for _, j in read.values()), parts


def _elementwise_on(values: Sequence[UOp], users: Users) -> Iterator[UOp]:
    """Values, and what is made of them element by element."""
    return reached(values, lambda x: [v for v in users[x] if v.op in ELEMENTWISE] if x.op in ELEMENTWISE else [])


def _is_part(v: UOp, x: UOp) -> bool:
    """Whether a choice is one between a value and constants by constants, as in the gradient of a join."""
    return v.op is Ops.WHERE and all(s is x or is_constant(s) for s in v.src)


def _readers(u: UOp, users: Users) -> Iterator[tuple[UOp, UOp]]:
    """What reads a value, or the same elements in another shape, with what it reads."""
    for v in users[u]:
        if v.op is Ops.RESHAPE:
            yield from _readers(v, users)
        else:
            yield u, v


def _joined(v: UOp, whole: int) -> int:
    return numel_max(v.shape) if v.op is Ops.PAD else min(whole, numel_max(v.shape))


def _operations(u: UOp, is_memory: IsMemory, functions: frozenset[Ops] = TRANSCENDENTAL, again: bool = True) -> int:
    """Of one element of a value, those of what it reads at several places at each if they are counted `again`."""
    count = 0
    todo: list[tuple[UOp, tuple[UOp, ...]]] = [(u, ())]
    seen = set(todo)
    while todo and count < MOST:
        v, views = todo.pop()
        if v is not u and is_memory(v):
            continue
        if v.op in ELEMENTWISE:
            count += FUNCTION if v.op in functions else v.op is not Ops.NEG
        elif v.op not in MOVEMENT and v.op is not Ops.TAKE:
            continue
        elif again:
            views = (*views, v)
        for s in v.src:
            if (s, views) not in seen:
                seen.add((s, views))
                todo.append((s, views))
    return count
