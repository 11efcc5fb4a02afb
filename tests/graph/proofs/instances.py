"""Nodes that the rules of the table apply to, of any dtype: after a rule's own pattern, or cut from what kernels do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

from tests.graph.symbolic.oracle import RANGE, Maker, leaf
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import COMPARISON, Ops, ParamArg, UOp, UPat
from tinyweb.graph.ir.invariants import common

FLOAT_CONSTANTS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -4.0, 3.0, 0.1, 2.0**-14, 2.0**14, 2.0**15, float("inf"), float("nan"),
)  # fmt: skip


def large_leaves(dtype: DType) -> list[UOp]:
    """Free nodes of a dtype: of an integer type one that takes every value, and narrow ones; loops as kernels have
    them, one of symbolic size."""
    if dtype is dtypes.index:
        n = leaf("n", 1, 4)
        loops = [RANGE("x", 4096, 0), RANGE("y", 333, 1), RANGE("w", 4, 2), RANGE("r", n, 3)]
        return [*loops, n, leaf("s", -50, 900), RANGE("one", 1, 4), leaf("two", 2, 2)]
    low, high = int(dtype.min), int(dtype.max)
    return [
        leaf("x", low, high, dtype), leaf("y", 0, 7, dtype), leaf("z", max(low, -2), 3, dtype),
        leaf("top", high - 5, high, dtype), leaf("one", 1, 1, dtype),
    ]  # fmt: skip


class Instances(Maker):
    """Random nodes for a pattern; besides small constants also the ends of the dtype."""

    def constant(self, dtype: DType | None = None, values: object = None) -> UOp:
        dtype = dtype or self.dtype
        if values is None and dtype.is_int and self.chance.random() < 0.2:
            return UOp.const(self.chance.choice((dtype.min, dtype.max, dtype.max - 1, dtype.max // 2 + 1)), dtype)
        return super().constant(dtype, values)  # type: ignore[arg-type]


class Chosen(Maker):
    """The one node for a pattern whose wildcards are given leaves and whose constants are given numbers."""

    def __init__(self, leaves: list[UOp], numbers: list[int], op: int):
        super().__init__(random.Random(op), leaves)
        self.waiting, self.numbers = list(leaves), list(numbers)

    def constant(self, dtype: DType | None = None, values: object = None) -> UOp:
        return UOp.const(self.numbers.pop(0) if self.numbers else 0, dtype or self.dtype)

    def integer(self, depth: int) -> UOp:
        return self.waiting.pop(0) if len(self.waiting) > 1 else self.waiting[0]

    def boolean(self, depth: int) -> UOp:
        return leaf(f"b{len(self.waiting)}", 0, 1, dtypes.bool)


def named_constants(pattern: UPat) -> int:
    """How many constants of any value a pattern asks for."""
    own = int(pattern.ops == frozenset({Ops.CONST}) and pattern.arg is None)
    return own + sum(map(named_constants, pattern.src or ()))


def every_small_instance(pattern: UPat, dtype: DType, spans: list[tuple[int, int]]) -> Iterator[UOp]:
    """The pattern with all numbers of a narrow dtype as constants, and leaves over the given intervals."""
    everything = range(int(dtype.min), int(dtype.max) + 1)
    count = named_constants(pattern)
    for first, (a, b) in product(spans, ((int(dtype.min), int(dtype.max)), (0, 3), (1, 1))):
        leaves = [leaf("p", *first, dtype), leaf("q", a, b, dtype), leaf("r", 0, 5, dtype)]
        for numbers in product(everything, repeat=min(count, 2)):
            for op in range(3 if pattern.ops is not None and 1 < len(pattern.ops) < 5 else 1):
                u = Chosen(leaves, [*numbers], op).instance(pattern, {})
                if u is not None and is_legal(u):
                    yield u


def is_legal(root: UOp) -> bool:
    """Whether every node obeys the invariants that hold in all stages; free nodes may be of any dtype here."""
    return all(
        invariant.holds(u)
        for u in root.toposort()
        for invariant in common
        if u.op is not Ops.VARIABLE and u.op in invariant.ops
    )


def divided(maker: Maker) -> Iterator[UOp]:
    """Divisions as index arithmetic has them, of the maker's dtype."""
    chance = maker.chance
    small = [u for u in maker.leaves if u.vmax - u.vmin < 400 and u.vmin >= 0 and u.op is not Ops.CONST]
    i, j = (chance.choice(small) for _ in range(2))
    c, k = chance.choice((2, 3, 4, 5, 8)), chance.choice((1, 2, 3, 4))
    yield from (i * c + j, (i * (c * k) + j * c + k) // c, (i * (c * k) + j * c + k) % c, (i * c + j) // (c * k))
    yield from ((i * c + j) % (c * k), (i * (c + 1) + j) // c, (i * (c + 1) + j) % c, (i // c + k) // k, (i // c) % k)
    yield from ((i % (c * k)) // c, (i % (c * k)) % c, (i % c * k + j) % (c * k), i // c * c + i % c)
    yield from (i // c % k * c + i % c, i // (c * k) * k + i // c % k, (i + k - c) // c, (i + k - c) % c, i // -c)
    narrow = chance.choice((leaf("a", 0, c - 1, maker.dtype), leaf("b", 0, 1, maker.dtype)))
    yield from ((i * c + narrow) // (c * 2), (i * c + narrow) % (c * 2), (i * c + narrow) < c * k, (i * (c + 1)) % c)
    yield from ((narrow * (c + 1) + narrow) // c, (narrow * (c - 1)) % c, (i * c + narrow).equal(c * k))
    if maker.dtype is dtypes.index:
        n = next(u for u in maker.leaves if u.op is Ops.VARIABLE and u.arg[0] == "n")
        r = next(u for u in maker.leaves if u.op is Ops.RANGE and u.arg.name == "r")
        yield from ((i * n + r) // n, (i * n + r) % n, (i * n + r) // n * n + (i * n + r) % n, (i * n + n + r) // n)
        yield from (r < n, r.equal(n), (i * n + r) % (n * 2), n <= r, (i * n) % n)


def casts(dtype: DType, types: list[DType]) -> Iterator[UOp]:
    """Casts of casts from a dtype through all others."""
    for x in (leaf("x", 0, 1, dtype) if dtype is dtypes.bool else leaf("x", -3, 3, dtype), _full(dtype)):
        for inner, outer in product(types, types):
            for op in (Ops.CAST, Ops.BITCAST):
                u = UOp(op, outer, (UOp(op, inner, (x,)),))
                # the bits of a float say more than its value
                apart = op is Ops.BITCAST and not all(d.is_int for d in (dtype, inner, outer))
                if is_legal(u) and x.dtype is not inner and not apart:
                    yield u


def _full(dtype: DType) -> UOp:
    if dtype.is_float:
        return UOp(Ops.VARIABLE, dtype, (), ("x", 0, 0))
    return leaf("x", int(dtype.min), int(dtype.max), dtype)


def float_instance(pattern: UPat, dtype: DType, chance: random.Random, bound: dict[str, UOp]) -> UOp | None:
    """As Maker.instance, for floats."""
    if pattern.name in bound:
        return bound[pattern.name]
    if pattern.ops is None:
        x, y = (UOp(Ops.VARIABLE, dtype, (), (name, 0, 0)) for name in "xy")
        kinds = (x, y, x, x * x, x + UOp.const(2.0, dtype), leaf("i", -8, 8, dtypes.int8).cast(dtype), x + y)
        made = chance.choice(kinds)
    else:
        op = chance.choice(sorted(pattern.ops))
        if op is Ops.CONST:
            value = pattern.arg if pattern.arg is not None else chance.choice(FLOAT_CONSTANTS)
            made = UOp.const(value, dtype)
        else:
            src = [float_instance(p, dtype, chance, bound) for p in pattern.src or ()]
            if None in src or not src:
                return None
            made = UOp(op, dtypes.bool if op in COMPARISON else dtype, tuple(s for s in src if s is not None))
    if pattern.name is not None:
        bound[pattern.name] = made
    return made


def accesses(chance: random.Random) -> Iterator[UOp]:
    """Loads and stores with and without gates, and one-turn loops in them."""
    x, one = RANGE("x", 40, 0), RANGE("one", 1, 1)
    p = UOp(Ops.PARAM, dtypes.float32, (), ParamArg(0, 100))
    index = chance.choice((x, x * 2 + one, one, leaf("two", 2, 2)))
    for gate in (None, UOp.const(True, dtypes.bool), UOp.const(False, dtypes.bool), x < 7):
        yield p.load(index, gate)
        yield p.store(index, chance.choice((p.load(x), UOp.const(1.0, dtypes.float32))), gate)
