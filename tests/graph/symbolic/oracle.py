"""What an integer expression means, computed apart from the compiler: on all values of its free nodes at once, by
NumPy, and as a Z3 term. And random expressions to try it on."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence

import numpy as np
import z3

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Axis, Ops, UOp, UPat, as_index, toposort

ARITY = dict.fromkeys((Ops.NEG, Ops.CAST, Ops.BITCAST), 1) | dict.fromkeys((Ops.WHERE, Ops.MULADD), 3)
ARITY |= dict.fromkeys((Ops.ADD, Ops.MUL, Ops.FLOORDIV, Ops.MOD, Ops.MAX, Ops.LESS, Ops.EQUAL), 2)
ARITY |= dict.fromkeys((Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR), 2)
FREE = (Ops.RANGE, Ops.VARIABLE, Ops.SPECIAL)


def RANGE(name: str, size: int | UOp, order: int = 0) -> UOp:
    return UOp(Ops.RANGE, dtypes.index, (as_index(size),), Axis(name, order))


def leaf(name: str, low: int, high: int, dtype: DType = dtypes.index) -> UOp:
    return UOp(Ops.VARIABLE, dtype, (), (name, low, high))


# -- NumPy -----------------------------------------------------------------------------------------------------------
def free_nodes(roots: Iterable[UOp]) -> list[UOp]:
    """Sources first: the size of a range comes before the range."""
    return [u for u in toposort(roots) if u.op in FREE]


def all_values(roots: Iterable[UOp], most: int = 20000, seed: int = 0) -> dict[UOp, np.ndarray]:
    """Columns of values of the free nodes: every combination, or a random choice of `most` of them and all corners."""
    free = free_nodes(roots)
    spans = [_values(u.vmin, u.vmax, seed) for u in free]
    if math.prod(map(len, spans)) <= most:
        grid = np.meshgrid(*spans, indexing="ij") if free else []
    else:
        chance = np.random.default_rng(seed)
        corners = list(itertools.islice(itertools.product(*((s[0], s[-1]) for s in spans)), 2000))
        grid = [np.concatenate([chance.choice(s, most), [c[i] for c in corners]]) for i, s in enumerate(spans)]
    columns = {u: g.ravel().astype(np.int64) for u, g in zip(free, grid)}
    # a range stays below its size
    legal = np.ones(len(columns[free[0]]), bool) if free else np.ones(1, bool)
    for u in free:
        if u.op is Ops.RANGE:
            legal &= columns[u] < meaning(u.src[0], columns)[0]
    return {u: c[legal] for u, c in columns.items()}


def _values(low: int, high: int, seed: int) -> np.ndarray:
    """All numbers of an interval; of one with very many the ends and some between."""
    if high - low < 1 << 16:
        return np.arange(low, high + 1)
    some = np.random.default_rng(seed).integers(low, high, 4000, endpoint=True)
    return np.unique([low, low + 1, *(n for n in (-1, 0, 1) if low <= n <= high), high - 1, high, *some])


def meaning(root: UOp, columns: dict[UOp, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(values, whether they are defined) of `root`, one per row. Index arithmetic that leaves int32 is undefined."""
    count = len(next(iter(columns.values()))) if columns else 1
    known: dict[UOp, tuple[np.ndarray, np.ndarray]] = {u: (c, np.ones(len(c), bool)) for u, c in columns.items()}
    for u in root.toposort():
        if u not in known:
            known[u] = _one(u, [known[s] for s in u.src], count)
    return known[root]


def _one(u: UOp, src: list[tuple[np.ndarray, np.ndarray]], count: int) -> tuple[np.ndarray, np.ndarray]:
    values = [s[0] for s in src]
    fine = np.logical_and.reduce([s[1] for s in src]) if src else np.ones(count, bool)
    match u.op:
        case Ops.CONST:
            return np.full(count, int(u.arg), np.int64), fine
        case Ops.WHERE:
            # a target computes both sides before it chooses, so both have to be defined
            return np.where(values[0].astype(bool), values[1], values[2]), fine
        case Ops.LESS:
            return (values[0] < values[1]).astype(np.int64), fine
        case Ops.EQUAL:
            return (values[0] == values[1]).astype(np.int64), fine
        case Ops.FLOORDIV | Ops.MOD:
            fine = fine & (values[1] != 0)
            divisor = np.where(values[1] == 0, 1, values[1])
            # floor division spelled by truncating division
            quotient = np.sign(values[0]) * np.sign(divisor) * (abs(values[0]) // abs(divisor))
            quotient = quotient - ((quotient * divisor != values[0]) & ((values[0] < 0) != (divisor < 0)))
            out = quotient if u.op is Ops.FLOORDIV else values[0] - quotient * divisor
        case Ops.SHL | Ops.SHR:
            fine = fine & (values[1] >= 0) & (values[1] < u.dtype.bits)
            amount = np.clip(values[1], 0, 31)
            out = values[0] << amount if u.op is Ops.SHL else values[0] >> amount
        case Ops.ADD:
            out = values[0] + values[1]
        case Ops.MUL:
            out = values[0] * values[1]
        case Ops.MULADD:
            out = values[0] * values[1] + values[2]
        case Ops.MAX:
            out = np.maximum(values[0], values[1])
        case Ops.AND:
            out = values[0] & values[1]
        case Ops.OR:
            out = values[0] | values[1]
        case Ops.XOR:
            out = values[0] ^ values[1]
        case Ops.NEG:
            out = -values[0]
        case Ops.CAST | Ops.BITCAST:
            out = values[0]
        case _:
            raise AssertionError(f"no meaning for {u}")
    if u.dtype.kind == "bool":
        return (out != 0).astype(np.int64), fine
    if u.dtype.kind == "index":
        return out, fine & (out >= u.dtype.min) & (out <= u.dtype.max)
    bits = u.dtype.bits
    if bits == 64:  # as wide as the numbers here
        return out, fine & (u.dtype.is_signed | (out >= 0))
    out = out & ((1 << bits) - 1)
    return (np.where(out >> (bits - 1), out - (1 << bits), out) if u.dtype.is_signed else out), fine


def assert_same(before: UOp, after: UOp, most: int = 20000) -> None:
    """Wherever `before` is defined, `after` is, and has the same value."""
    columns = all_values([before, after], most)
    (a, defined), (b, still) = meaning(before, columns), meaning(after, columns)
    wrong = defined & ~(still & (a == b))
    if wrong.any():
        row = int(np.argmax(wrong))
        where = {str(u.arg): int(c[row]) for u, c in columns.items()}
        raise AssertionError(
            f"{show(before)}  →  {show(after)}: {a[row]} became {b[row]} (defined: {still[row]}) at {where}"
        )


def show(u: UOp) -> str:
    """One line, for messages."""
    match u.op:
        case Ops.CONST:
            return str(u.arg)
        case Ops.RANGE:
            return f"{u.arg.name}<{show(u.src[0])}"
        case Ops.VARIABLE:
            return "{}:{}[{},{}]".format(u.arg[0], u.dtype.short, *u.arg[1:])
    return f"{u.op.name}.{u.dtype.short}({', '.join(map(show, u.src))})"


# -- Z3 --------------------------------------------------------------------------------------------------------------
def as_z3(root: UOp, facts: list[z3.BoolRef]) -> z3.ExprRef:
    """The term for `root` over mathematical integers; `facts` receives what holds of its free nodes."""
    known: dict[UOp, z3.ExprRef] = {}
    for u in root.toposort():
        src = [known[s] for s in u.src]
        match u.op:
            case Ops.CONST:
                known[u] = z3.BoolVal(u.arg) if u.dtype is dtypes.bool else z3.IntVal(u.arg)
            case Ops.VARIABLE | Ops.RANGE:
                known[u] = z3.Int(u.arg[0] if u.op is Ops.VARIABLE else u.arg.name)
                high = known[u] <= u.arg[2] if u.op is Ops.VARIABLE else known[u] < src[0]
                facts += [known[u] >= u.vmin, high]
            case Ops.ADD:
                known[u] = src[0] + src[1]
            case Ops.MUL:
                known[u] = src[0] * src[1]
            case Ops.FLOORDIV:  # Z3 rounds so that the remainder is not negative: floor for positive divisors
                assert u.src[1].vmin > 0
                known[u] = src[0] / src[1]
            case Ops.MOD:
                assert u.src[1].vmin > 0
                known[u] = src[0] % src[1]
            case Ops.MAX:
                known[u] = z3.If(src[0] < src[1], src[1], src[0])
            case Ops.WHERE:
                known[u] = z3.If(*src)
            case Ops.LESS:
                known[u] = src[0] < src[1]
            case Ops.EQUAL:
                known[u] = src[0] == src[1]
            case Ops.AND:
                known[u] = z3.And(*src)
            case Ops.OR:
                known[u] = z3.Or(*src)
            case Ops.XOR:
                known[u] = z3.Xor(*src)
            case _:
                raise AssertionError(f"no Z3 term for {u}")
    return known[root]


def prove_same(before: UOp, after: UOp, given: UOp | None = None) -> None:
    """Z3 finds no values of the free nodes (where `given` holds) that tell the two apart."""
    facts: list[z3.BoolRef] = []
    a, b = as_z3(before, facts), as_z3(after, facts)
    solver = z3.Solver()
    solver.set("timeout", 60_000)
    if given is not None:
        facts.append(as_z3(given, facts))
    solver.add(*facts, a != b)
    answer = solver.check()
    assert answer == z3.unsat, (
        f"{show(before)}  →  {show(after)}: {answer} {solver.model() if answer == z3.sat else ''}"
    )


# -- random expressions ----------------------------------------------------------------------------------------------
def index_leaves() -> list[UOp]:
    n = leaf("n", 1, 4)
    return [
        RANGE("i", 3, 0), RANGE("j", 8, 1), RANGE("k", 5, 2), RANGE("r", n, 3), n, leaf("s", -3, 4), RANGE("one", 1, 4),
    ]  # fmt: skip


def small_leaves(dtype: DType) -> list[UOp]:
    """Leaves of a data type: one of every value it has, and two narrow ones."""
    low, high = int(dtype.min), int(dtype.max)
    return [leaf("x", low, high, dtype), leaf("y", 0, 7, dtype), leaf("z", max(low, -2), 3, dtype)]


class Maker:
    """Random expressions: `chance` may be random.Random or hypothesis' Random."""

    def __init__(self, chance: random.Random, leaves: Sequence[UOp]):
        self.chance, self.leaves, self.dtype = chance, list(leaves), leaves[0].dtype

    def constant(self, dtype: DType | None = None, values: Sequence[int] | None = None) -> UOp:
        values = values or (0, 1, -1, 2, 3, 4, 5, 6, 7, 8, 12, 16, -2, -3)
        return UOp.const(self.chance.choice(values), dtype or self.dtype)

    def integer(self, depth: int) -> UOp:
        if depth == 0:
            return self.chance.choice(self.leaves) if self.chance.random() < 0.8 else self.constant()
        a = self.integer(depth - 1)
        kind = self.chance.random()
        if kind < 0.30:
            return a + self.integer(self.chance.randrange(depth))
        if kind < 0.45:
            return a * self.constant()
        if kind < 0.50:
            return a * self.integer(self.chance.randrange(depth))
        if kind < 0.80:
            divisor = self.constant(values=(1, 2, 3, 4, 6, 8, 8, 16, 12, -2, -4))
            if self.chance.random() < 0.1:
                divisor = self.chance.choice(self.leaves)
            return a // divisor if self.chance.random() < 0.5 else a % divisor
        if kind < 0.85:
            return a.maximum(self.integer(self.chance.randrange(depth)))
        if kind < 0.88:
            return a.alu(self.chance.choice((Ops.AND, Ops.OR, Ops.XOR)), self.constant(values=(0, 1, 3, 7, 15, -1)))
        if kind < 0.90:
            return a.alu(self.chance.choice((Ops.SHL, Ops.SHR)), self.constant(values=(0, 1, 2)))
        if kind < 0.92:
            return a.alu(Ops.NEG)
        return self.boolean(depth - 1).where(a, self.integer(self.chance.randrange(depth)))

    def boolean(self, depth: int) -> UOp:
        kind = self.chance.random()
        if depth == 0 or kind < 0.5:
            a, b = self.integer(max(depth - 1, 0)), self.constant()
            if self.chance.random() < 0.3:
                b = self.integer(max(depth - 1, 0))
            return self.chance.choice((a < b, b < a, a >= b, a <= b, a.equal(b)))
        if kind < 0.55:
            return self.boolean(depth - 1).logical_not()
        if kind < 0.6:
            return self.boolean(depth - 1).where(self.boolean(depth - 1), self.boolean(depth - 1))
        if kind < 0.62:
            return UOp.const(self.chance.random() < 0.5, dtypes.bool)
        a = self.boolean(depth - 1)
        b = self.boolean(self.chance.randrange(depth))
        return a.alu(self.chance.choice((Ops.AND, Ops.AND, Ops.OR, Ops.XOR, Ops.EQUAL, Ops.LESS)), b)

    def expression(self, depth: int) -> UOp:
        return self.integer(depth) if self.chance.random() < 0.7 else self.boolean(depth)

    def instance(self, pattern: UPat, bound: dict[str, UOp], dtype: DType | None = None) -> UOp | None:
        """A random node that the pattern may match; None where this dtype offers none."""
        if pattern.name in bound:
            return bound[pattern.name]
        allowed = [d for d in (self.dtype, dtypes.bool) if (pattern.dtype is None or d in pattern.dtype)]
        if not allowed and pattern.dtype is not None and all(d.is_int for d in pattern.dtype):
            allowed = sorted(pattern.dtype, key=lambda d: d.name)  # what the leaves are cast to
        if dtype is not None:
            allowed = [d for d in allowed if d is dtype]
        if not allowed:
            return None
        made = self._instance(pattern, bound, self.chance.choice(allowed))
        if made is not None and pattern.name is not None:
            bound[pattern.name] = made
        return made

    def _instance(self, pattern: UPat, bound: dict[str, UOp], dtype: DType) -> UOp | None:
        depth = self.chance.randrange(3)
        if pattern.ops is None:
            return self.boolean(depth) if dtype is dtypes.bool else self.integer(depth)
        known = [op for op in sorted(pattern.ops) if op is Ops.CONST or op in ARITY]
        if not known:
            return None
        op = self.chance.choice(known)
        if op is Ops.CONST:
            if pattern.arg is not None:
                return UOp.const(pattern.arg, dtype)
            return self.constant(dtype)
        source_type = None if op in (Ops.LESS, Ops.EQUAL, Ops.CAST) else dtype
        if (op in (Ops.LESS, Ops.EQUAL) and dtype is not dtypes.bool) or (op is Ops.BITCAST and dtype is dtypes.bool):
            return None
        patterns = pattern.src or (pattern.every or UPat(),) * ARITY[op]
        src: list[UOp] = []
        for i, p in enumerate(patterns):
            kind = dtypes.bool if op is Ops.WHERE and i == 0 else source_type
            if op in (Ops.LESS, Ops.EQUAL) and src:
                kind = src[0].dtype
            made = self.instance(p, bound, kind)
            if made is None:
                return None
            src.append(made)
        alike = src[1:] if op is Ops.WHERE else src
        same = all(s.dtype is alike[0].dtype for s in alike) and (source_type is None or alike[0].dtype is dtype)
        return UOp(op, dtype, tuple(src)) if same else None
