"""The forms that expressions are brought into are recorded: a rule that stops applying, or goes another way, shows.

That they have the same values is tested beside (test_simplify.py, test_rules.py, proofs). What the compiler makes of
an index depends on the very form: which divisions are left, what an inner loop repeats. After a change that is meant,
`python -m tests.graph.symbolic.test_forms` writes the record anew.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.graph.lower.hand_kernels import param
from tests.graph.recorded import changed, write
from tests.graph.symbolic.oracle import RANGE, Maker, assert_same, index_leaves, leaf, show, small_leaves
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, Variable, as_index
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
N = Variable("n", 1, 9)
K = RANGE("k", N, 3)
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
                known["strides"] = "\n".join(say([split_by(u, r) for r in leaves()]) for u in whole)
                known["less"] = say([proves_less(simplify(a), simplify(b)) for a, b in pairwise(whole)])
                known["multiples"] = say([divides(u, n) for u in whole for n in (2, 3, 4, leaves()[4])])
            found[f"{kind} {depth} known"] = known
    return found


def sums() -> Iterator[UOp]:
    for a, b, c in product((1, 2, 3, 4, 8, 9, -1, -4), (0, 1, 4, 5, -3), (0, 1, 7, -8, 33)):
        yield ROW * a + J * b + c


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
    wide = [leaf("x", 0, 255, dtypes.uint8), leaf("x", -128, 127, dtypes.int8), leaf("x", -9, 100, dtypes.int8)]
    for x in wide:
        around = [x, x + 3, x * 2, x * 4 + 1, x * -1, x // 4, x % 8]
        found[f"{x.dtype.name} {x.vmin}"] = {
            law.__name__: "\n".join(say(law(simplify(u), UOp.const(d, x.dtype))) for u in around for d in (1, 2, 4, 7))
            for law in LAWS
        }
    return found


def of_comparisons() -> Results:
    found: Results = {}
    values = [
        simplify(u)
        for u in (ROW, ROW * 8 + V, ROW * 4, ROW - J, J * -2, ROW * 3 + J * 6, K, ROW * N + K, ROW // 3, V + 1)
    ]
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
        powers = leaves[0] * 5
        for _ in range(count // 4):
            powers = powers * powers
        backwards = as_index(2) + (total + 5)
        found[f"long {count}"] = {
            "sum": show(simplify(total)), "product": show(simplify(factor * 6 * 2)), "terms": say(linear(total)),
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
    "floats": of_floats, "bits": of_bits,
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


if __name__ == "__main__":
    write(RECORD, {name: make() for name, make in PARTS.items()}, HOW)
