"""Counts of one program: nothing is run. Loops' steps, grids and gates are evaluated, so that counts are exact.

Enumerated are the values of only those loops and hardware indices that a count depends on. Where these have more than
LIMIT combinations, a seeded sample of them stands for all, and the counts say that they are not `exact`. So they do
where an address, a gate or a loop's size comes from memory: such an access counts as one of new memory, such a gate as
true, such a loop with the most steps it may have.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import (
    COMPARISON,
    ELEMENTWISE,
    TRANSCENDENTAL,
    Fragments,
    Ops,
    Size,
    Space,
    UOp,
    as_index,
    size_max,
)
from tinyweb.graph.lower.conversion import BITS
from tinyweb.graph.program import Program
from tinyweb.native_runtimes.interpreter.spelling import COMPUTE

Array: TypeAlias = npt.NDArray[Any]
Path: TypeAlias = "tuple[UOp, ...]"

LIMIT = 1 << 18  # rows enumerated at once
SAMPLES = 4  # workgroups whose addresses are enumerated: all, if there are no more
SUBGROUP = 32  # threads, as most hardware has it
HARDWARE = [(kind, dim) for kind in ("grid", "thread") for dim in range(3)]
# values in the registers of others: parts, groups, and the same bits by another name
ALIASES = (Ops.LANE, Ops.STACK, Ops.BITCAST, Ops.AFTER)
UNKNOWN = (Ops.LOAD, Ops.SUBGROUP)
COMPUTED = frozenset({*ELEMENTWISE, Ops.F16_TO_F32, Ops.F32_TO_F16})


@dataclass(frozen=True)
class Counts:
    """Of one launch. A multiply-add is one of `multiply_adds` and two of `operations`."""

    operations: int  # of arithmetic on values, not on addresses
    multiply_adds: int
    transcendental: int  # functions that the target computes itself
    loaded: int  # bytes of device memory, as threads ask for them
    stored: int
    group_loaded: int  # each address once in a workgroup (CPU: in a step of the grid)
    group_stored: int
    once: int  # each kernel's memory once
    shared_loads: int  # words of 32 bits
    shared_stores: int
    barriers: int  # that a thread passes
    registers: int  # values of 32 bits that live at once
    exact: bool  # all but the figures of workgroups, which are those of a few where there are many


def count(program: Program, variables: Mapping[str, int] | None = None) -> Counts:
    """Everything. Variables that are not given have the largest value they may have."""
    return _Counter(program, variables or {}).counts()


def operations(program: Program, variables: Mapping[str, int] | None = None) -> int:
    """Those on values: not of addresses, of masks alone, or that only name the same bits otherwise.

    A sign that is changed is part of the operation that takes the value, as in a difference; see `joined` for others. A
    multiply-add is two, a dot product of small integers two for each pair, and a vector as many as it has lanes. What a
    gate leaves out counts: it is loads and stores that have gates.
    """
    counter = _Counter(program, variables or {})
    return sum(counter.executions(path) * each for u, path in counter.places if (each := counter.operations(u)))


def _operations(u: UOp) -> int:
    if u.op is Ops.DOT and isinstance(u.arg, Fragments):  # a thread's share of what its subgroup multiplies
        (rows, steps), (columns, _) = u.arg.a.shape, u.arg.b.shape
        return 2 * rows * columns * steps // math.prod(u.arg.threads)
    if u.op is Ops.DOT:  # of words four products and the sums of them
        return 7 * _lanes(u) if u.src[1].dtype is dtypes.uint32 else 2 * _lanes(u.src[1])
    values = u.src[0].dtype if u.op in COMPARISON else u.dtype
    if u.op not in COMPUTED or values.kind in ("index", "bool") or is_name(u):
        return 0
    return (2 if u.op is Ops.MULADD and not is_conversion(u) else 1) * _lanes(u)


def joined(uops: Sequence[UOp]) -> set[UOp]:
    """Nodes that hardware carries out within another one: the comparison of a maximum or minimum, an equality beside
    `less` of the same values (≤ and its negation), shifts and masks by which a field of bits is taken from a word or
    put into it, all of a byte that becomes a float, the logic of conversions by bits, the sign that is dropped from a
    float that another operation takes."""
    users: dict[UOp, list[UOp]] = {}
    for u in uops:
        for s in set(u.src):
            users.setdefault(s, []).append(u)
    found: set[UOp] = set()
    for u in uops:
        if u.op is Ops.WHERE:
            found |= {c for c in (u.src[0], *u.src[0].src) if c.op in COMPARISON and set(c.src) == set(u.src[1:])}
        elif u.op is Ops.OR or (u.op is Ops.AND and all(map(_is_negation, u.src))):
            pair = u.src if u.op is Ops.OR else tuple(s.src[0] for s in u.src)
            for less, equal in (pair, pair[::-1]):
                if less.op is Ops.LESS and equal.op is Ops.EQUAL and set(less.src) == set(equal.src):
                    found.add(equal)
                if equal.op is Ops.SHL and _is_constant(equal.src[1]):
                    found.update(x for x in (equal, equal.src[0]) if x.op is Ops.SHL or _is_masked(x))
                if _is_masked(less):
                    found.add(less)
        elif u.op is Ops.F16_TO_F32 and u.src[0].op is Ops.SHR and _is_constant(u.src[0].src[1]):
            found.add(u.src[0])
        elif u.op is Ops.BITCAST and u.dtype.is_float and _is_masked(u.src[0]):
            bits = u.src[0].src[1]
            found |= {u.src[0]} if (bits.src[0] if bits.src else bits).arg == 0x7FFFFFFF else set()
        elif u.op is Ops.CAST and u.dtype.is_float and _is_byte(u.src[0]):
            found.add(u.src[0])
        if _is_masked(u) and u.src[0].op is Ops.SHR and _is_constant(u.src[0].src[1]):
            found.add(u.src[0])
        elif u.op is Ops.SHR and _is_constant(u.src[1]) and (up := _unnamed(u.src[0])).op is Ops.SHL:
            found.update({up} if _is_constant(up.src[1]) else ())
    converting: set[UOp] = set()
    for u in reversed(uops):
        if (u.op in ALIASES or _is_logic(u)) and u in users:
            converting |= {u} if all(x in converting or is_conversion(x) for x in users[u]) else set()
    return {u for u in found if len(users[u]) == 1} | converting


def addresses(uops: Sequence[UOp]) -> set[UOp]:
    """Integers that only say where memory lies, or how far a loop goes: an index that memory holds, counted from the
    end and compared with a size, is as much of an address as one that loops give. What is made of floats is a value."""
    values: set[UOp] = set()
    for u in reversed(uops):
        if u.op is Ops.STORE:
            values.add(u.src[2])
        elif u.op not in (Ops.LOAD, Ops.RANGE) and (u in values or u.op not in COMPUTED.union(ALIASES)):
            values.update(u.src)
    floats: set[UOp] = set()
    for u in uops:
        if u.dtype.is_float or (u.op not in (Ops.LOAD, Ops.RANGE) and not floats.isdisjoint(u.src)):
            floats.add(u)
    return {u for u in uops if u.op in COMPUTED and u not in values and u not in floats}


def _is_negation(u: UOp) -> bool:
    return u.op is Ops.XOR and u.dtype is dtypes.bool and _is_constant(u.src[1]) and len(u.src[0].src) == 2


def _is_masked(u: UOp) -> bool:
    return u.op is Ops.AND and _is_constant(u.src[1])


def _unnamed(u: UOp) -> UOp:
    return _unnamed(u.src[0]) if u.op is Ops.BITCAST else u


def is_conversion(u: UOp) -> bool:
    """Whether a float is made of an integer by its bits (`graph/lower/conversion.py`): those of 2²³ are set above the
    field of a word, and one multiply-add takes 2²³ off again. That is one operation, as the instruction is."""
    if u.op not in (Ops.ADD, Ops.MULADD) or not u.dtype.is_float or not all(map(_is_constant, u.src[1:])):
        return False
    bits = u.src[0].src[0] if u.src[0].op is Ops.BITCAST else u
    if bits.op not in (Ops.AND, Ops.OR) or not _is_logic(bits):
        return False
    set_bits = bits.src[1].src or (bits.src[1],)
    return all(int(s.arg) & BITS == BITS for s in set_bits)


def _is_logic(u: UOp) -> bool:
    return u.op in (Ops.AND, Ops.OR, Ops.XOR, Ops.SHR) and u.dtype is dtypes.uint32 and _is_constant(u.src[1])


def _is_byte(u: UOp) -> bool:
    """Whether all lanes are bytes of words, with their signs or without."""
    u = _unnamed(u)
    if u.op not in (Ops.SHR, Ops.AND):
        return False
    by = u.src[1].src if u.src[1].op is Ops.STACK else u.src[1:]
    return {s.arg for s in by} == ({24} if u.op is Ops.SHR else {255})


def _is_constant(u: UOp) -> bool:
    return all(s.op is Ops.CONST for s in (u.src if u.op is Ops.STACK else (u,)))


def is_name(u: UOp) -> bool:
    """Whether an operation is none of its own: the same bits as another type, or another sign, or one of the two words
    of 64 bits, which to processors of 32 bits are two registers."""
    if u.op is Ops.MUL:
        factor = u.src[1].src[0] if u.src[1].op is Ops.STACK else u.src[1]
        return u.dtype.is_int and factor.op is Ops.CONST and factor.arg == -1
    if u.op is Ops.CAST:
        word = u.src[0].dtype is dtypes.index or (u.src[0].dtype.is_int and u.src[0].dtype.bits == 64)
        return word and u.dtype.bits == 32 and u.dtype.is_int
    if u.op is Ops.SHR:
        return u.dtype.bits == 64 and u.src[1].op is Ops.CONST and u.src[1].arg == 32
    return u.op in (Ops.BITCAST, Ops.NEG)


def _lanes(u: UOp) -> int:
    return math.prod(map(size_max, u.shape))


def _multiply_adds(u: UOp) -> int:
    if u.op is Ops.MULADD and u.dtype.kind == "index":
        return 0
    return _operations(u) // 2 if u.op in (Ops.MULADD, Ops.DOT) else 0


class _Counter:
    def __init__(self, program: Program, variables: Mapping[str, int]):
        self.program, self.variables, self.exact = program, variables, True
        self.random = np.random.default_rng(0)
        self.uncounted = joined(program.uops) | addresses(program.uops)
        self.places: list[tuple[UOp, Path]] = []  # with the loops around each node
        path: Path = ()
        for u in program.uops:
            if u.op is Ops.END:
                path = path[:-1]
            self.places.append((u, path))
            if u.op is Ops.RANGE:
                path = (*path, u)
        grid = [self._number(s) for s in program.grid]
        self.extents = dict(zip(HARDWARE, [*grid, *program.workgroup], strict=True))
        self.groups, self.threads = math.prod(grid), math.prod(program.workgroup)
        self._leaves: dict[UOp, frozenset[UOp]] = {}
        self._executions: dict[tuple[Path, UOp | None], float] = {}

    def operations(self, u: UOp) -> int:
        """Of one execution of a node."""
        return 0 if u in self.uncounted else _operations(u)

    # -- values ------------------------------------------------------------------------------------------------------
    def _number(self, size: Size) -> int:
        return int(self.values([as_index(size)], {})[0][0])

    def leaves(self, u: UOp) -> frozenset[UOp]:
        """The loops and hardware indices, and what is not known, that a value depends on."""
        stack = [u]
        while stack:
            top = stack[-1]
            if top in self._leaves:
                stack.pop()
            elif top.op in (Ops.RANGE, Ops.SPECIAL, *UNKNOWN):
                self._leaves[stack.pop()] = frozenset({top})
            elif missing := [s for s in top.src if s not in self._leaves]:
                stack += missing
            else:
                self._leaves[stack.pop()] = frozenset().union(*(self._leaves[s] for s in top.src))
        return self._leaves[u]

    def known(self, u: UOp) -> bool:
        """Whether a value follows from loops and hardware indices."""
        return not any(leaf.op in UNKNOWN for leaf in self.leaves(u))

    def values(self, wanted: Sequence[UOp], given: Mapping[UOp, Array]) -> list[Array]:
        """One row for each of what is given; one row where nothing is asked for that differs."""
        done = dict(given)
        stack = list(wanted)
        while stack:
            u = stack[-1]
            if u in done:
                stack.pop()
                continue
            if missing := [s for s in u.src if s not in done]:
                stack += missing
                continue
            src = [done[s] for s in u.src]
            if u.op is Ops.CONST:
                done[u] = np.array([u.arg]).astype(u.dtype.numpy)
            elif u.op is Ops.VARIABLE:
                done[u] = np.array([self.variables.get(u.arg[0], u.arg[2])], np.int32)
            elif u.op is Ops.SUBGROUP_SIZE:
                done[u] = np.array([SUBGROUP], np.int32)
            elif u.op is Ops.STACK:
                done[u] = np.stack(np.broadcast_arrays(*src), -1)
            elif u.op is Ops.LANE:
                done[u] = src[0][:, u.arg]
            else:
                done[u] = COMPUTE[u.op](u, *src)
        return [done[u] for u in wanted]

    # -- enumeration -------------------------------------------------------------------------------------------------
    def _with_sizes(self, leaves: Iterable[UOp]) -> set[UOp]:
        """And what the sizes of loops among them depend on."""
        found: set[UOp] = set()
        stack = list(leaves)
        while stack:
            u = stack.pop()
            if u not in found:
                found.add(u)
                if u.op is Ops.RANGE and self.known(u.src[0]):
                    stack.extend(self.leaves(u.src[0]))
        return found

    def _sizes(self, loop: UOp, given: Mapping[UOp, Array]) -> Array:
        if not self.known(loop.src[0]):
            self.exact = False
            return np.array([size_max(loop.src[0])])
        return np.maximum(self.values([loop.src[0]], given)[0].astype(np.int64), 0)

    def _rows(self, path: Path, leaves: Iterable[UOp], fixed: Mapping[UOp, Array]) -> tuple[dict[UOp, Array], float]:
        """All combinations of values of the leaves, loops being ragged; and how many each row stands for."""
        wanted = self._with_sizes(leaves) - set(fixed)
        given: dict[UOp, Array] = dict(fixed)
        rows, weight = 1, 1.0
        specials = sorted((u for u in wanted if u.op is Ops.SPECIAL), key=lambda u: u.arg)
        for u in [*specials, *(r for r in path if r in wanted)]:
            sizes = np.array([self.extents[u.arg]]) if u.op is Ops.SPECIAL else self._sizes(u, given)
            sizes = np.broadcast_to(sizes, (rows,))
            total = int(sizes.sum())
            chosen = np.arange(total) if total <= LIMIT else np.sort(self.random.integers(0, total, LIMIT))
            if total > LIMIT:
                self.exact = False
                weight *= total / LIMIT
            ends = np.cumsum(sizes)
            of = np.searchsorted(ends, chosen, side="right")
            given = {k: v if k in fixed or len(v) == 1 else v[of] for k, v in given.items()}
            given[u] = (chosen - (ends - sizes)[of]).astype(np.int32)
            rows = len(chosen)
        # one row is broadcast by NumPy, and stands for itself
        return {k: v if k in fixed else np.broadcast_to(v, (rows,)) for k, v in given.items()}, weight

    def executions(self, path: Path, gate: UOp | None = None, width: int = 1) -> int:
        """How often all threads come to what lies in these loops, with a gate that is true; times the lanes."""
        if (path, gate) not in self._executions:
            self._executions[path, gate] = self._count(path, gate)
        return round(self._executions[path, gate] * width)

    def _count(self, path: Path, gate: UOp | None) -> float:
        if gate is not None and not self.known(gate):
            self.exact, gate = False, None
        sizes = [r.src[0] for r in path if self.known(r.src[0])]
        wanted = self._with_sizes(frozenset().union(*map(self.leaves, [*sizes, *([gate] if gate is not None else [])])))
        given, weight = self._rows(path, wanted, {})
        each: Array = np.ones(1)
        for r in path:
            if r not in wanted:
                each = each * self._sizes(r, given)
        used = {u.arg for u in wanted if u.op is Ops.SPECIAL}
        weight *= math.prod(n for key, n in self.extents.items() if key not in used)
        if gate is not None:
            true = self.values([gate], given)[0].astype(np.float64)
            each = each * (true if true.ndim == 1 else true.mean(-1))
        rows = max((len(v) for v in given.values()), default=1)
        return weight * float(np.broadcast_to(each, (rows,)).sum())

    # -- addresses ---------------------------------------------------------------------------------------------------
    def _addresses(self, u: UOp, path: Path, fixed: Mapping[UOp, Array]) -> Array | None:
        """Those of a load or store in one workgroup, each once; None where they come from memory."""
        index, gate = u.src[1], _gate(u)
        if not self.known(index):
            return None
        if gate is not None and not self.known(gate):
            self.exact, gate = False, None
        size = u.src[0].buffer.arg.size
        leaves = self.leaves(index) | (self.leaves(gate) if gate is not None else frozenset())
        if self._extent(leaves, fixed) <= LIMIT:
            given, _ = self._rows(path, leaves, fixed)
            found = self.values([index, *([gate] if gate is not None else [])], given)
            at = found[0]
            if gate is not None:
                chosen = found[1]
                if chosen.ndim < at.ndim:
                    chosen = chosen[:, None]
                elif chosen.ndim > at.ndim:  # lanes that lie side by side, with a gate for each
                    at = at[:, None] + np.arange(chosen.shape[1])
                at, chosen = np.broadcast_arrays(at, chosen)
                at = at[chosen]
            begin = np.unique(at)
        else:
            begin = self._sums(index, path, fixed)
            self.exact &= gate is None
        width = 1 if index.shape or (gate is not None and gate.shape) else _width(u)
        everywhere = np.unique(begin.astype(np.int64)[:, None] + np.arange(width))
        inside: Array = everywhere[(everywhere >= 0) & (everywhere < size)]
        return inside

    def _extent(self, leaves: Iterable[UOp], fixed: Mapping[UOp, Array]) -> int:
        return math.prod(
            self.extents[u.arg] if u.op is Ops.SPECIAL else size_max(u.src[0])
            for u in self._with_sizes(leaves) - set(fixed)
        )

    def _sums(self, index: UOp, path: Path, fixed: Mapping[UOp, Array]) -> Array:
        """All values of an index with more combinations than can be enumerated: terms that share no loop are
        enumerated alone, and their different values added up."""
        parts: list[tuple[set[UOp], list[UOp]]] = []
        for term in _terms(index):
            leaves, terms = self._with_sizes(self.leaves(term)) - set(fixed), [term]
            for other in [p for p in parts if p[0] & leaves]:
                parts.remove(other)
                leaves, terms = leaves | other[0], terms + other[1]
            parts.append((leaves, terms))
        found = np.zeros(1, np.int64)
        for leaves, terms in sorted(parts, key=lambda p: self._extent(p[0], fixed)):
            given, _ = self._rows(path, leaves, fixed)
            more = np.unique(sum(v.astype(np.int64) for v in self.values(terms, given)))
            if len(found) * len(more) > 16 * LIMIT:
                self.exact = False
                more = self.random.choice(more, max(16 * LIMIT // len(found), 1), replace=False)
            found = np.unique(found[:, None] + more)
        return found

    def _in_groups(self, accesses: Sequence[tuple[UOp, Path]]) -> int:
        """Bytes of one parameter that workgroups touch, each counting an address once."""
        unknown = sum(self.executions(path, _gate(u), _width(u)) for u, path in accesses if not self.known(u.src[1]))
        memory: DType = accesses[0][0].src[0].buffer.dtype
        specials = {u for u in self.program.uops if u.op is Ops.SPECIAL and u.arg[0] == "grid"}
        total, sampled = 0, self._sampled()
        for group in sampled:
            fixed = {u: np.array([group[u.arg[1]]], np.int32) for u in specials}
            found = [a for u, path in accesses if (a := self._addresses(u, path, fixed)) is not None]
            total += len(np.unique(np.concatenate(found))) if found else 0
        return memory.nbytes(unknown + round(total * self.groups / len(sampled)))

    def _sampled(self) -> list[tuple[int, int, int]]:
        """Workgroups whose mean stands for all."""
        flat = list(range(self.groups))
        if self.groups > SAMPLES:
            flat = np.random.default_rng(0).choice(self.groups, SAMPLES, replace=False).tolist()
        x, y, _ = (self.extents["grid", d] for d in range(3))
        return [(i % x, i // x % y, i // (x * y)) for i in flat]

    # -- all of it ---------------------------------------------------------------------------------------------------
    def counts(self) -> Counts:
        totals: defaultdict[str, int] = defaultdict(int)
        accesses: defaultdict[tuple[Ops, UOp], list[tuple[UOp, Path]]] = defaultdict(list)
        issued: defaultdict[tuple[Ops, UOp], int] = defaultdict(int)
        for u, path in self.places:
            if self.groups and (each := self.operations(u)):
                times = self.executions(path)
                totals["operations"] += times * each
                totals["multiply_adds"] += times * _multiply_adds(u)
                totals["transcendental"] += times * _lanes(u) * (u.op in TRANSCENDENTAL)
            elif u.op is Ops.BARRIER:
                totals["barriers"] += self.executions(path) // max(self.groups * self.threads, 1)
            elif u.op in (Ops.LOAD, Ops.STORE):
                memory = u.src[0].buffer
                if memory.op is Ops.PARAM:
                    accesses[u.op, memory].append((u, path))
                    issued[u.op, memory] += self.executions(path, _gate(u), _width(u))
                elif memory.arg.space is Space.SHARED:
                    which = "shared_loads" if u.op is Ops.LOAD else "shared_stores"
                    totals[which] += memory.dtype.nbytes(self.executions(path, _gate(u), _width(u))) // 4
        exact = self.exact
        moved: defaultdict[tuple[str, Ops], int] = defaultdict(int)
        for (op, memory), places in accesses.items():
            elements = issued[op, memory]
            moved["issued", op] += memory.dtype.nbytes(elements)
            moved["group", op] += min(self._in_groups(places), memory.dtype.nbytes(elements)) if self.groups else 0
            moved["once", op] += memory.dtype.nbytes(min(elements, memory.arg.size))
        return Counts(
            **{name: totals[name] for name in (
                "operations", "multiply_adds", "transcendental", "shared_loads", "shared_stores", "barriers")},
            loaded=moved["issued", Ops.LOAD], stored=moved["issued", Ops.STORE],
            group_loaded=moved["group", Ops.LOAD], group_stored=moved["group", Ops.STORE],
            once=moved["once", Ops.LOAD] + moved["once", Ops.STORE],
            registers=registers(self.program.uops), exact=exact,
        )  # fmt: skip


def _gate(u: UOp) -> UOp | None:
    position = 2 if u.op is Ops.LOAD else 3
    return u.src[position] if len(u.src) > position else None


def _width(u: UOp) -> int:
    """Elements of a load or store."""
    return _lanes(u if u.op is Ops.LOAD else u.src[2])


def _terms(index: UOp) -> list[UOp]:
    if index.op is Ops.ADD:
        return [t for s in index.src for t in _terms(s)]
    if index.op is Ops.MUL and index.src[1].op is Ops.CONST and index.src[0].op is Ops.ADD:
        return [t.alu(Ops.MUL, index.src[1]) for t in _terms(index.src[0])]
    return [index]


def registers(uops: Sequence[UOp]) -> int:
    """The most values that live at once in a thread, in words of 32 bits, were the program carried out as it stands.

    A value lives until its last use; one from outside of a loop that is used within it, until the loop's end. Constants
    and names for parts of others take none. REGISTER memory lives from its first access to its last.
    """
    path: list[int] = []
    loops: list[tuple[int, ...]] = []
    ends: dict[int, int] = {}
    for i, u in enumerate(uops):
        if u.op is Ops.END:
            ends[path.pop()] = i
        loops.append(tuple(path))
        if u.op is Ops.RANGE:
            path.append(i)
    born: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    held: dict[UOp, tuple[UOp, ...]] = {}

    def use(value: UOp, at: int) -> None:
        born.setdefault(value, at)
        around = [loop for loop in loops[at] if loop > born[value]]
        last[value] = max(last.get(value, at), ends[around[0]] if around else at)

    for i, u in enumerate(uops):
        for s in u.src:
            for value in held.get(s, ()):
                use(value, i)
        if u.op in ALIASES:
            held[u] = tuple(dict.fromkeys(v for s in u.src for v in held.get(s, ())))
        elif u.op is Ops.BUFFER and u.arg.space is Space.REGISTER:
            held[u] = (u,)
        elif u.op in ELEMENTWISE or u.op in (
            Ops.LOAD, Ops.DOT, Ops.SPECIAL, Ops.RANGE, Ops.SUBGROUP, Ops.SUBGROUP_SIZE, Ops.F16_TO_F32, Ops.F32_TO_F16,
        ):  # fmt: skip
            held[u], born[u] = (u,), i
            last[u] = ends[i] if u.op is Ops.RANGE else i
    change = [0] * (len(uops) + 1)
    for value, begin in born.items():
        change[begin] += _words(value)
        change[last[value]] -= _words(value)  # what is made of a value may take its place
    most = now = 0
    for step in change:
        now += step
        most = max(most, now)
    return most


def _words(u: UOp) -> int:
    lanes = u.arg.size if u.op is Ops.BUFFER else _lanes(u)
    return lanes if u.dtype.kind in ("bool", "index") else -(-u.dtype.nbytes(lanes) // 4)
