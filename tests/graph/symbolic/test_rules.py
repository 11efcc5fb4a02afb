"""Every rule of the table, alone: it is made to apply, and what it returns has the value of what it was given."""

from __future__ import annotations

import random
from collections import Counter

from tests.graph.symbolic.oracle import Maker, assert_same, index_leaves, leaf, show, small_leaves
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.symbolic import simplify
from tinyweb.graph.symbolic.rules import integer_rules

TYPES = (dtypes.index, dtypes.int8, dtypes.uint8)
NEEDED = 5  # different nodes each rule has to be seen changing


def leaves(dtype: DType) -> list[UOp]:
    return index_leaves() if dtype is dtypes.index else small_leaves(dtype)


def children_simplified(u: UOp) -> UOp:
    """What a rule meets in a rewrite: simple sources."""
    return u.replace(src=tuple(simplify(s) for s in u.src)) if u.src else u


def test_every_integer_rule_applies_and_keeps_the_value() -> None:
    applied: Counter[int] = Counter()

    def attempt(i: int, u: UOp) -> None:
        if applied[i] >= 40:
            return
        pattern, function = integer_rules[i]
        for names in pattern.match(u, {}):
            out = function(**names)
            if out is not None and out is not u:
                assert out.dtype is u.dtype, (show(u), show(out))
                assert_same(u, out, most=3000)
                applied[i] += 1
                return

    for seed in range(60):
        chance = random.Random(seed)
        for dtype in TYPES:
            maker = Maker(chance, leaves(dtype))
            # nodes made after the rule's own pattern …
            for i, (pattern, _) in enumerate(integer_rules):
                u = maker.instance(pattern, {})
                if u is not None:
                    attempt(i, u)
                    attempt(i, children_simplified(u))
    # … and nodes that occur in larger expressions, for the rules that ask for more than the pattern says
    seed = 0
    while min(applied[i] for i in range(len(integer_rules))) < NEEDED and seed < 3000:
        chance = random.Random(1000 + seed)
        maker = Maker(chance, leaves(TYPES[seed % 3]))
        for u in [*maker.integer(3).toposort(), *maker.boolean(3).toposort(), *special(maker)]:
            for i in range(len(integer_rules)):
                if applied[i] < NEEDED:
                    attempt(i, u)
                    attempt(i, children_simplified(u))
        seed += 1
    never = [
        f"{i}: {integer_rules[i][1].__name__} on {integer_rules[i][0].ops}"
        for i in range(len(integer_rules))
        if applied[i] < NEEDED
    ]
    assert not never, never


def special(maker: Maker) -> list[UOp]:
    """Shapes of expressions that random ones seldom take."""
    i, j, k, r, n, *_ = index_leaves()
    c = maker.chance.choice((2, 3, 4, 6))
    x = maker.chance.choice((i, j, k)) * c + maker.chance.choice((i, j, k))
    small = maker.dtype if maker.dtype is not dtypes.index else dtypes.int8
    y = leaf("y", int(small.min), int(small.max), small)
    narrow = maker.chance.choice((dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32))
    wide = maker.chance.choice((dtypes.int16, dtypes.uint16, dtypes.int32))
    return [
        (x * n + r) // n, (x * n + r) % n, (i * n + r) // (n * 2), (x * c + i) // (c * c), (i * (c + 1) + k) // c,
        r < n, n <= r, (x // c) * c + x % c, (j // c % 2) * c + j % c, (j * c // 2) // c + 1,
        y.cast(wide).cast(narrow), y.cast(wide).cast(wide), y.cast(dtypes.bool).cast(wide).cast(narrow),
        y.bitcast(dtypes.int8).bitcast(dtypes.uint8), (i + 1) // -c, UOp(Ops.CAST, y.dtype, (y,)),
    ]  # fmt: skip
