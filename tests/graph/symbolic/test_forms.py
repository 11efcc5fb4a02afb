"""The forms that expressions are brought into are recorded: a rule that stops applying, or goes another way, shows.

That they have the same values is tested beside (test_simplify.py, test_rules.py, proofs). What the compiler makes of
an index depends on the very form: which divisions are left, what an inner loop repeats. After a change that is meant,
`python -m tests.graph.symbolic.test_forms` writes the record anew.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.graph.lower.hand_kernels import param
from tests.graph.recorded import changed, write
from tests.graph.symbolic.oracle import (
    RANGE,
    Maker,
    all_values,
    assert_same,
    index_leaves,
    leaf,
    meaning,
    show,
    small_leaves,
)
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, UOp, Variable, as_index
from tinyweb.graph.symbolic import (
    const_factor,
    divides,
    proves_less,
    simplify,
    simplify_given,
    split_by,
)
from tinyweb.graph.symbolic.compare import conjunction, equal, less, limits
from tinyweb.graph.symbolic.division import LAWS, residues
from tinyweb.graph.symbolic.linear import exact_quotient, fits, from_linear, linear
from tinyweb.graph.symbolic.rules import keep, keeps_shape, to_constant

RECORD = Path(__file__).with_name("forms.txt")
HOW = "python -m tests.graph.symbolic.test_forms"
T = TypeVar("T")
Results = dict[str, dict[str, str]]


class Chance(random.Random):
    """The same in every version of Python, of which `random()` alone is promised."""

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]
        return seq[int(self.random() * len(seq))]

    def randrange(self, start: int, *rest: Any) -> int:
        return int(self.random() * start)


def say(value: object) -> str:
    if isinstance(value, UOp):
        return show(value)
    if isinstance(value, tuple | list):
        return f"({', '.join(map(say, value))})"
    if isinstance(value, dict):
        return say(list(value.items()))
    return str(value)


def made(count: int, leaves: Sequence[UOp], depth: int, seed: int) -> list[UOp]:
    return [Maker(Chance(seed + n), leaves).expression(depth) for n in range(count)]


ROW, J, V = RANGE("i", 12, 0), RANGE("j", 7, 1), RANGE("v", 8, 2)
N, M = Variable("n", 1, 9), Variable("m", -1, 9)
K = RANGE("k", N, 3)
FAR = leaf("far", 9, 14)
B, C = leaf("b", 0, 1, dtypes.bool), leaf("c", 0, 1, dtypes.bool)
YES, NO = UOp.const(True, dtypes.bool), UOp.const(False, dtypes.bool)
KINDS = {
    "index": index_leaves,
    "int8": lambda: small_leaves(dtypes.int8),
    "uint8": lambda: small_leaves(dtypes.uint8),
    "int32": lambda: [leaf("x", -(2**31), 2**31 - 1, dtypes.int32), leaf("y", 0, 2**20, dtypes.int32)],
}


# -- parts of the record -----------------------------------------------------------------------------------------
def of_random() -> Results:
    """Whatever comes: the form, the form where something holds, and what is known of it."""
    found: Results = {}
    for kind, leaves in KINDS.items():
        for depth in (1, 2, 3, 4):
            before = made(30, leaves(), depth, 1000 * depth)
            forms = {f"{n}": f"{show(u)} → {show(simplify(u))}" for n, u in enumerate(before)}
            found[f"{kind} {depth}"] = forms
            whole = [u for u in before if u.dtype.is_int]
            known = {"factors": "\n".join(f"{show(u)}: {const_factor(simplify(u))}" for u in whole)}
            if kind == "index":
                gates = [Maker(Chance(n), leaves()).boolean(1) for n in range(len(before))]
                known["given"] = "\n".join(show(simplify_given(u, g)) for u, g in zip(before, gates))
                known["strides"] = "\n".join(
                    say([split_by(u, r) for r in leaves() if r.op is Ops.RANGE]) for u in whole
                )
                known["less"] = say([proves_less(simplify(a), simplify(b)) for a, b in pairwise(whole)])
                known["multiples"] = say([divides(u, n) for u in whole for n in (2, 3, 4, leaves()[4])])
            found[f"{kind} {depth} known"] = known
    return found


def sums() -> Iterator[UOp]:
    for a, b, c in product((1, 2, 3, 4, 8, 9, -1, -4), (0, 1, 4, 5, -3), (0, 1, 7, -8, 33)):
        yield ROW * a + J * b + c


def residues_of(x: UOp, d: UOp) -> UOp | None:
    return residues(x, d)


def of_divisions() -> Results:
    """Each law alone, and all together: sums by constants; and what is made of quotients and remainders."""
    found: Results = {}
    for d in (1, 2, 3, 4, 5, 8, 12, 32):
        by = as_index(d)
        terms = [simplify(u) for u in sums()]
        found[f"sums by {d}"] = {law.__name__: "\n".join(say(law(u, by)) for u in terms) for law in LAWS}
        found[f"sums by {d}"]["residues"] = "\n".join(say(residues(u, by)) for u in terms)
        found[f"sums by {d}"]["simplified"] = "\n".join(say((simplify(u // by), simplify(u % by))) for u in terms[::3])
    inner = [ROW * 9 + J, ROW * 4 + V + 3, ROW - J, ROW * 6 + 1]
    for a, b in product((2, 3, 4, 6), (2, 3, 8)):
        nested = [y for x in inner for y in (x // a, x % a, x // a % b, x // (a * b), x % (a * b))]
        laws = {law.__name__: "\n".join(say(law(simplify(u), as_index(b))) for u in nested) for law in LAWS}
        joined = [
            y for x in inner for y in (
                x // a * a + x % a, x // a * (a * 2) + x % a * 2, x // a % b * a + x % a, x // (a * b) * b + x // a % b,
                (x + a) // a * a + x % a, x // a * a - x % a, x % a * 3 + x // a * (3 * a) + J, (x // a + 2) // b,
            )
        ]  # fmt: skip
        found[f"nested {a} {b}"] = laws | {"joined": "\n".join(show(simplify(u)) for u in joined)}
    symbolic_sums = [
        ROW * N + K,
        ROW * N + N + K,
        N * 3 + 2,
        ROW * (N * 2) + K,
        K + 1,
        ROW * N * 4,
        (ROW * N + K) * 2,
        N * N + N,
    ]
    found["symbolic"] = {
        say(d): "\n".join(
            say([*(law(simplify(u), d) for law in LAWS), exact_quotient(simplify(u), d)]) for u in symbolic_sums
        )
        for d in (N, simplify(N * 2), simplify(N + 1), as_index(4))
    }
    # what wraps around must not be taken for a number: near the ends of a type, and near a quarter of it
    spans = [(dtypes.uint8, 0, 255), (dtypes.int8, -128, 127)]
    spans += [(dtypes.int8, low, high) for low in (-33, -32, -31, -9) for high in (8, 15, 16, 17, 18, 30, 100)]
    for dtype, low, high in spans:
        x = leaf("x", low, high, dtype)
        around = [
            x,
            x + 3,
            x * 2,
            x * 4 + 1,
            x * -1,
            x // 4,
            x % 8,
            x // 16,
            x // 2 + 3,
            x // 4 + 31,
            x % 16 // 2 + x * 8,
        ]
        found[f"{dtype.name} {low} {high}"] = {
            law.__name__: "\n".join(
                say(law(simplify(u), UOp.const(d, dtype))) for u in around for d in (1, 2, 4, 7, 16)
            )
            for law in (*LAWS, residues_of)
        }
    whole = [ROW, ROW * 3 + J, K, ROW * N + K, K * 5 + J]
    found["of symbolic quotients"] = {
        f"{n}": "\n".join(show(simplify(u)) for u in (
            x // N * N + x % N, x // N * N * 2 + x % N * 2, x // N * N - x % N,
            x // (N * 2) * (N * 2) + x % (N * 2) + 1, x // M * M + x % M, x // N * M + x % N,
        )) for n, x in enumerate(whole)
    }  # fmt: skip
    return found


def compared() -> list[UOp]:
    """Sums with small rests, also such that lie in a block that does not begin at 0."""
    some = (
        ROW, ROW * 8 + V, ROW * 4, ROW - J, J * -2, ROW * 3 + J * 6, K, ROW * N + K, ROW // 3, V + 1, ROW * 8 + FAR,
        FAR - ROW * 8, ROW * -8 - FAR, ROW * 16 + J * 8 + FAR, ROW * 4 + V * 4 - FAR,
    )  # fmt: skip
    return [simplify(u) for u in some]


def gated() -> Iterator[tuple[UOp, list[UOp]]]:
    """Sums that are bounded, and expressions in their terms."""
    for a, b, low, high in product((-3, -1, 1, 2), (-2, 1, 4), (None, -3, 0, 5), (None, 2, 9, 20)):
        total = simplify(ROW * a + J * b)
        parts = [total < high + 1] if high is not None else []
        parts += [(total < low).logical_not()] if low is not None else []
        if parts and (low is None or high is None or low <= high):
            yield (
                reduce(lambda p, q: p & q, parts),
                [ROW // 3, J % 4, total // 4, total % 8, ROW + J * 2 < 9, J.maximum(3)],
            )


def of_gates() -> Results:
    return {show(gate): {f"{n}": show(simplify_given(u, gate)) for n, u in enumerate(asked)} for gate, asked in gated()}


def of_comparisons() -> Results:
    found: Results = {}
    values = compared()
    for limit in (-9, 0, 1, 7, 8, 9, 24, 31, 32, 96, 103):
        pairs = [(u, as_index(limit)) for u in values] + [(as_index(limit), u) for u in values]
        found[f"with {limit}"] = {
            "less": say([less(a, b) for a, b in pairs]), "equal": say([equal(a, b) for a, b in pairs]),
            "form": say([simplify(a < b) for a, b in pairs]),
        }  # fmt: skip
    found["of two"] = {
        f"{n}": say([(less(a, b), equal(a, b), proves_less(a, b), simplify(a.maximum(b))) for b in values])
        for n, a in enumerate([*values, N, simplify(N * 4), simplify(N * 12)])
    }
    for dtype in (dtypes.int8, dtypes.uint8):
        x, y = leaf("x", int(dtype.min), int(dtype.max), dtype), leaf("y", 0, 7, dtype)
        some = [simplify(u) for u in (x, y, y * 4, y * 16 + 15, y * 17 + 8, x + 1, y * -1, y * 3 + x)]
        found[dtype.name] = {
            f"{n}": say([(less(a, b), equal(a, b)) for b in [*some, UOp.const(5, dtype), UOp.const(127, dtype)]])
            for n, a in enumerate(some)
        }
    parts = [
        ROW < 5,
        ROW < 9,
        ROW >= 2,
        ROW >= 5,
        ROW.equal(3),
        J < 4,
        J >= 4,
        (ROW < 5).logical_not(),
        B,
        B.logical_not(),
        C,
    ]
    found["gates"] = {
        f"{n}": say([(conjunction(a & b), simplify(a | b), simplify(a ^ b), simplify(a.where(b, C))) for b in parts])
        for n, a in enumerate(map(simplify, parts))
    }
    found["gates"]["limits"] = say([limits(simplify(p)) for p in parts])
    many = UOp.const(True, dtypes.bool)
    for n in range(34):
        many = many & (RANGE(f"r{n}", 70, n) < 50)
        if n >= 29:
            found["gates"][f"{n} clauses"] = say([conjunction(many), simplify(many.logical_not())])
    return found


def of_sums() -> Results:
    """Sums as terms and back, at the ends of types; sums and products that are long."""
    found: Results = {}
    for dtype in (dtypes.index, dtypes.int8, dtypes.uint8):
        x, y = leaf("x", 0, 7, dtype), leaf("y", -3 if dtype.is_signed else 0, 9, dtype)
        some = [x * 3 + y, x * 100 + 100, (x + y) * 4 - x, (x * y) * 2 + x, x - x, x * 128 + x * 128, (x + 1) * 255]
        found[dtype.name] = {
            "terms": say([linear(u) for u in some]),
            "sums": say([from_linear(*linear(u), dtype) for u in some]),
            "fits": say(
                [fits({x: a, y: b}, c, dtype) for a, b, c in product((0, 1, 17, 18, 36), (0, -1, 14, 15), (0, 1, -128))]
            ),
            "factors": say([const_factor(u) for u in [*some, x * 64 + y * 32, x // 2, x * 6 // 3, x * 6 % 4]]),
        }  # fmt: skip
    for count in (2, 15, 16, 17, 18, 23, 24, 25, 26, 30):
        leaves = [RANGE(f"r{n}", 7, n) for n in range(count)]
        total, factor = leaves[0], leaves[0]
        for r in leaves[1:]:
            total, factor = total + r * 3 + 1, factor * r
        plain = reduce(lambda a, b: a + b, leaves)
        powers = leaves[0] * 5
        for _ in range(count // 4):
            powers = powers * powers
        backwards = as_index(2) + (total + 5)
        found[f"long {count}"] = {
            "sum": show(simplify(total)), "product": show(simplify(factor * 6 * 2)),
            "terms": say([linear(total), linear(plain)]),
            "power": str(len(simplify(powers).toposort())), "outwards": show(simplify(backwards)),
        }  # fmt: skip
    return found


def of_floats() -> Results:
    """What is exact on floats, and what looks so."""
    found: Results = {}
    for dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64):
        x = param(1, 12, dtype).load(ROW)
        y = (x + 1.0).alu(Ops.EXP2)
        some: list[UOp] = []
        for c in (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 16384.0, 32768.0, 2.0**-14, 2.0**-15, float("inf"), 0.1):
            const = UOp.const(c, dtype)
            some += [x + const, y + const, x * x + const, x * const, x.alu(Ops.DIV, const), const * x, x.maximum(const)]
            some += [(x + const) + 0.0, (x * const) * (x * const) + 0.0, const + const, const.alu(Ops.DIV, const + 1.0)]
        some += [
            x.alu(Ops.NEG).alu(Ops.NEG),
            x.maximum(x),
            x < x,
            x.equal(x),
            x.cast(dtypes.float32).cast(dtype),
            x.cast(dtypes.float64),
        ]
        some += [
            x.cast(d).cast(e) for d, e in product((dtypes.float16, dtypes.int32, dtypes.int8), (dtype, dtypes.int8))
        ]
        found[dtype.name] = {f"{n}": show(simplify(u)) for n, u in enumerate(some)}
    kinds = [dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.float16, dtypes.float32]
    for a in kinds:
        ends = (0, 1) if a is dtypes.bool else (int(a.min), int(a.max)) if a.is_int else None
        x = leaf("x", *ends, a) if ends else param(1, 12, a).load(ROW)
        near = [x] + ([leaf("x", 0, top, a) for top in (100, 2048, 2049)] if a is dtypes.int16 else [])
        casts = [u.cast(b).cast(c) for u in near for b, c in product(kinds, kinds)]
        found[f"casts of {a.name}"] = {"all": "\n".join(show(simplify(u)) for u in casts)}
    return found


def of_bits() -> Results:
    found: Results = {}
    for dtype in (dtypes.int8, dtypes.uint8, dtypes.int32):
        x, y = leaf("x", int(dtype.min), int(dtype.max), dtype), leaf("y", 0, 7, dtype)
        for op in (Ops.AND, Ops.OR, Ops.XOR, Ops.MAX, Ops.SHL, Ops.SHR):
            numbers = (0, 1, 3, 4, 7, 8, 15) + (() if op in (Ops.SHL, Ops.SHR) else (-1, 127))
            constants = [UOp.const(n if dtype.is_signed else n & 255, dtype) for n in numbers]
            some = [u.alu(op, c) for u in (x, y, x // 4) for c in constants]
            some += [x.alu(op, b).alu(op, c) for b in constants for c in constants[1:4]]
            some += [x.alu(op, y), y.alu(op, x), x.alu(op, x), (y + 1).alu(op, y)]
            found[f"{dtype.name} {op.name}"] = {"all": "\n".join(show(simplify(u)) for u in some)}
    x, y = leaf("x", -9, 9), leaf("y", -9, 9)
    gates = [x < y, (x < y).logical_not(), x.equal(y), B, UOp.const(True, dtypes.bool)]
    found["choices"] = {
        f"{n}": say([simplify(u) for u in (
            g.where(x, y), g.where(y, x), g.where(x, x), g.where(B, C), g.where(YES, B), g.where(B, NO),
            g.where(C, YES), g.where(NO, C), g.where(g.where(x, y), x), g.where(x, g.where(x, y)),
            C.where(g.where(x, y), y),
            C.where(g.where(y, x), y), C.where(x, g.where(x, y)), g.logical_not().where(x, y), g & (g | C), g | (g & C),
            g & (g.logical_not() | C), g | (g.logical_not() & C), g * C, g.maximum(C), g.equal(C), g < C, g ^ C,
            (g | C).logical_not(), g.equal(True), g.equal(False), g.logical_not() ^ C,
        )]) for n, g in enumerate(gates)
    }  # fmt: skip
    return found


PARTS: dict[str, Callable[[], Results]] = {
    "random": of_random, "divisions": of_divisions, "comparisons": of_comparisons, "sums": of_sums,
    "floats": of_floats, "bits": of_bits, "gates": of_gates,
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_forms_are_what_was_meant(part: str) -> None:
    different = changed(RECORD, part, PARTS[part]())
    assert not different, f"not as recorded (`{HOW}` if that is meant):\n" + "\n".join(d[:1500] for d in different)


def test_every_law_keeps_quotient_and_remainder() -> None:
    """On every sum by every divisor, for all values."""
    for law in LAWS:
        applied = 0
        for d in (1, 2, 3, 4, 8, 12):
            for u in [simplify(s) for s in sums()][::9]:
                found = law(u, as_index(d))
                if found is not None:
                    assert_same(u // d, found[0])
                    assert_same(u % d, found[1])
                    applied += 1
        assert applied or law.__name__ in ("of_remainder", "of_quotient", "by_symbolic"), law.__name__


def test_comparisons_keep_their_value() -> None:
    values = compared()
    for a in values:
        for limit in (-20, -9, 0, 1, 8, 15, 16, 17, 24, 32, 50):
            b = as_index(limit)
            for before in (a < b, b < a, a.equal(b)):
                assert_same(before, simplify(before))
        for b in values[::3]:
            for before in (a < b, a.equal(b)):
                assert_same(before, simplify(before), most=2000)


def test_gates_of_sums_keep_the_value_where_they_hold() -> None:
    """And say more: the terms are bounded by what the others leave."""
    shorter = 0
    for gate, asked in gated():
        columns = all_values([gate, *asked])
        holds = meaning(gate, columns)[0].astype(bool)
        for before in asked:
            after = simplify_given(before, gate)
            values, defined = meaning(after, columns)
            assert (defined & (values == meaning(before, columns)[0]))[holds].all(), (
                f"{show(before)} given {show(gate)}"
            )
            shorter += len(after.toposort()) < len(simplify(before).toposort())
    assert shorter > 50


@pytest.mark.parametrize("low", [-128, -33, -32, -31, -2, 0])
def test_quotients_of_small_integers(low: int) -> None:
    """Near the ends of the type, and where a constant that is added would leave it."""
    for high in (15, 16, 17, 100, 127):
        x = leaf("x", low, high, dtypes.int8)
        for u in (x, x + 3, x * 2, x // 2 + 3, x // 16, x // 4 + 31, x * 4 + 1):
            for d in (2, 7, 16):
                assert_same(u // d, simplify(u // d))
                assert_same(u % d, simplify(u % d))


def test_what_may_stand_for_an_array() -> None:
    """Equal shapes; anything for a scalar; a scalar for the lanes of a kernel."""
    scalar, other = leaf("x", 0, 9), leaf("y", 0, 9)
    array, longer = Tensor.empty(3, dtype=dtypes.int32).uop, Tensor.empty(4, dtype=dtypes.int32).uop
    lane = RANGE("lane", 4)
    lanes = lane.replace(arg=replace(lane.arg, kind=AxisKind.VECTOR)) + scalar
    assert array.shape == (3,) and lanes.shape == (4,) and lanes.lanes
    for old, new, may in (
        (scalar, other, True), (scalar, array, True), (array, array, True), (array, scalar, False),
        (array, longer, False), (lanes, scalar, True), (lanes, lanes, True),
    ):  # fmt: skip
        assert keeps_shape(old, new) == may
        assert keep(old, new) is (new if may else None)
    assert to_constant(array, 1) is None and to_constant(scalar, 1) is UOp.const(1, scalar.dtype)
    assert to_constant(lanes, 1) is UOp.const(1, lanes.dtype)


if __name__ == "__main__":
    write(RECORD, {name: make() for name, make in PARTS.items()}, HOW)
