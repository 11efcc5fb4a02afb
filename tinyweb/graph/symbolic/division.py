"""Laws of floor division.

A law looks at x and a divisor d > 0 and returns (quotient, remainder), equal to (x // d, x % d) and simpler than these,
or None. The rule table uses the first for FLOORDIV and the second for MOD, so a law proven once serves both.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TypeAlias

from tinyweb.graph.ir.ops import Ops
from tinyweb.graph.ir.uop import UOp
from tinyweb.graph.symbolic.linear import (
    Terms,
    add_scaled,
    exact_quotient,
    fits,
    from_linear,
    interval_of,
    linear,
    proves_less,
)

Law: TypeAlias = Callable[[UOp, UOp], "tuple[UOp, UOp] | None"]


def _number(d: UOp) -> int:
    return int(d.arg) if d.op is Ops.CONST else 0


def one_block(x: UOp, d: UOp) -> tuple[UOp, UOp] | None:
    """All of x lies in one multiple of d: (2·8 + v) // 8 → 2 where 0 ≤ v < 8."""
    q = x.vmin // d.vmin
    if x.vmin >= 0 and x.vmax < d.vmin:
        q = 0
    elif d.op is not Ops.CONST:
        return (UOp.const(0, x.dtype), x) if x.vmin >= 0 and proves_less(x, d) else None
    elif x.vmax // d.vmin != q:
        return None
    if q == 0:
        return UOp.const(0, x.dtype), x
    quotient = UOp.const(q, x.dtype)
    return quotient, x - quotient * d


def whole_multiples(x: UOp, d: UOp) -> tuple[UOp, UOp] | None:
    """Terms that d divides leave: (8·a + b) // 4 → 2·a + b // 4; the constant becomes the smallest that keeps the
    numerator from being negative: (i − 1) // 2 → (i + 1) // 2 − 1."""
    c = _number(d)
    terms, constant = linear(x)
    if not c or not fits(terms, constant, x.dtype):
        return None
    out = {t: k // c for t, k in terms.items() if k % c == 0}
    rest = {t: k for t, k in terms.items() if k % c}
    return _without(x, d, out, rest, constant, c)


def _without(x: UOp, d: UOp, out: Terms, rest: Terms, constant: int, c: int) -> tuple[UOp, UOp] | None:
    kept = _small_constant(rest, constant, c, x)
    if (not out and kept == constant) or not fits(rest, kept, x.dtype):
        return None
    quotient = from_linear(out, (constant - kept) // c, x.dtype)
    if not rest and not kept:
        return quotient, UOp.const(0, x.dtype)
    r = from_linear(rest, kept, x.dtype)
    return (quotient if not rest and kept < c else quotient + r // d), r % d


def _small_constant(rest: Terms, constant: int, c: int, x: UOp) -> int:
    kept = constant % c
    low, high = interval_of(rest, kept)
    if low < 0:
        lifted = kept + c * -(low // c)
        # far from the ends of the dtype, else the sum could leave it
        if low > x.dtype.min // 4 and high + lifted < x.dtype.max // 4:
            return lifted
    return kept


def residues_in_block(x: UOp, d: UOp) -> tuple[UOp, UOp] | None:
    """Coefficients reduced modulo d bring x into one block: (9·i + j) // 8 → i where i + j < 8."""
    c = _number(d)
    terms, constant = linear(x)
    if not c or not fits(terms, constant, x.dtype):
        return None
    for reduced in ({t: k % c for t, k in terms.items()}, {t: _toward_zero(k, c) for t, k in terms.items()}):
        if reduced == terms:
            continue
        low, high = interval_of(reduced, constant)
        if (q := low // c) == high // c:
            out = {t: (k - reduced[t]) // c for t, k in terms.items() if k != reduced[t]}
            rest = {t: k for t, k in reduced.items() if k}
            return from_linear(out, q, x.dtype), from_linear(rest, constant - q * c, x.dtype)
    return None


def _toward_zero(k: int, c: int) -> int:
    return k % c if k >= 0 else -(-k % c)


def common_factor(x: UOp, d: UOp) -> tuple[UOp, UOp] | None:
    """A factor of d that divides all terms but a small rest leaves: (8·a + v) // 32 → a // 4 and
    (8·a + v) % 32 → 8·(a % 4) + v where 0 ≤ v < 8."""
    c = _number(d)
    terms, constant = linear(x)
    if c < 2 or not terms or not fits(terms, constant, x.dtype):
        return None
    for g in sorted({gcd(k, c) for k in terms.values()} - {1}, reverse=True):
        rest = {t: k for t, k in terms.items() if k % g}
        low, high = interval_of(rest, constant)
        q = low // g
        if high // g != q:
            continue
        reduced = from_linear({t: k // g for t, k in terms.items() if k % g == 0}, q, x.dtype)
        divisor = UOp.const(c // g, x.dtype)
        return reduced // divisor, from_linear({reduced % divisor: g}, 0, x.dtype) + from_linear(
            rest, constant - q * g, x.dtype
        )
    return None


def of_quotient(x: UOp, d: UOp) -> tuple[UOp, UOp] | None:
    """((y // a) + k) // c → (y + a·k) // (a·c); the remainder is left alone."""
    c = _number(d)
    terms, constant = linear(x)
    if not c or len(terms) != 1:
        return None
    ((t, k),) = terms.items()
    if t.op is not Ops.FLOORDIV or k != 1 or (a := _number(t.src[1])) <= 0 or not _in_range(x, a * c, a * constant):
        return None
    if not fits({t.src[0]: 1}, a * constant, x.dtype):  # and so does x
        return None
    return (t.src[0] + a * constant) // (a * c), x % d


def of_remainder(x: UOp, d: UOp) -> tuple[UOp, UOp] | None:
    """(y % m) // c → (y // c) % (m // c) and (y % m) % c → y % c where c divides m."""
    c = _number(d)
    if x.op is not Ops.MOD or not c or (m := _number(x.src[1])) <= 0 or m % c:
        return None
    y = x.src[0]
    return (y // d) % (m // c), y % d


def _in_range(x: UOp, *numbers: int) -> bool:
    return all(x.dtype.min <= n <= x.dtype.max for n in numbers)


def residues(x: UOp, d: UOp) -> UOp | None:
    """For remainders alone, coefficients modulo d, and without inner remainders by a multiple of d:
    (5·i + y % 8) % 4 → (i + y) % 4."""
    c = _number(d)
    terms, constant = linear(x)
    if not c or not fits(terms, constant, x.dtype):
        return None
    reduced: Terms = {}
    for t, k in terms.items():
        if t.op is Ops.MOD and (m := _number(t.src[1])) > 0 and m * k % c == 0:
            inner, inner_constant = linear(t.src[0])
            if fits(inner, inner_constant, x.dtype):
                add_scaled(reduced, inner, k)
                constant += inner_constant * k
                continue
        add_scaled(reduced, {t: k})
    reduced = {t: r for t, k in reduced.items() if (r := _toward_zero(k, c))}
    if reduced == terms:
        return None
    kept = _small_constant(reduced, constant, c, x)
    return from_linear(reduced, kept, x.dtype) % d if fits(reduced, kept, x.dtype) else None


def by_symbolic(x: UOp, d: UOp) -> tuple[UOp, UOp] | None:
    """As whole_multiples, for a divisor that is an expression: (i·n + j) // n → i where 0 ≤ j < n."""
    if d.op is Ops.CONST or x.dtype.kind != "index":
        return None
    terms, constant = linear(x)
    quotients: list[UOp] = []
    rest: Terms = {}
    for t, k in terms.items():
        q = exact_quotient(t * k, d) if k != 1 else exact_quotient(t, d)
        if q is None:
            rest[t] = k
        else:
            quotients.append(q)
    if not quotients:
        # n·i + n + j: the part in VARIABLEs alone may be divisible though none of its terms is
        fixed = {t: k for t, k in terms.items() if not t.ranges}
        q = exact_quotient(from_linear(fixed, constant, x.dtype), d) if fixed else None
        if q is None:
            return None
        quotients, rest, constant = [q], {t: k for t, k in terms.items() if t.ranges}, 0
    total = quotients[0]
    for q in quotients[1:]:
        total = total + q
    if not rest and not constant:
        return total, UOp.const(0, x.dtype)
    r = from_linear(rest, constant, x.dtype)
    return total + r // d, r % d


LAWS: tuple[Law, ...] = (
    one_block, whole_multiples, common_factor, of_remainder, of_quotient, residues_in_block, by_symbolic,
)  # fmt: skip


def recombine(terms: Terms, constant: int) -> tuple[Terms, int] | None:
    """A quotient and a remainder of one number in one sum: (x // c)·c·k + (x % c)·k → x·k, and the same with further
    divisions: ((x // c) % b)·c + x % c → x % (b·c), (x // (a·c))·c + (x // a) % c → x // a."""
    for r, k in terms.items():
        if r.op is not Ops.MOD:
            continue
        x, d = r.src
        c = _number(d)
        if c <= 0:
            whole = d * (x // d)  # in canonical order
            if d.vmin > 0 and terms.get(whole) == k:
                return _replaced(terms, constant, (r, whole), x, k)
            continue
        for q, kq in terms.items():
            if kq != k * c or q is r:
                continue
            if q.op is Ops.FLOORDIV and q.src[1] is d and _same_modulo(q.src[0], x, c):
                return _replaced(terms, constant, (r, q), q.src[0], k)
            if not q.src:
                continue
            inner = q.src[0]
            if q.op is Ops.MOD and inner.op is Ops.FLOORDIV and inner.src[1] is d and (b := _number(q.src[1])) > 0:
                y = inner.src[0]
                if _same_modulo(y, x, c) and _in_range(x, b * c):
                    return _replaced(terms, constant, (r, q), y % (b * c), k)
            if q.op is x.op is Ops.FLOORDIV and (a := _number(x.src[1])) > 0 and _number(q.src[1]) == a * c:  # noqa: SIM102
                if _same_modulo(inner, x.src[0], a * c):
                    return _replaced(terms, constant, (r, q), inner // a, k)
    return None


def _same_modulo(x: UOp, y: UOp, c: int) -> bool:
    """Whether x − y is provably a multiple of c."""
    if x is y:
        return True
    if x.dtype.kind != "index":
        return False
    difference = dict(linear(x)[0])
    add_scaled(difference, linear(y)[0], -1)
    return (linear(x)[1] - linear(y)[1]) % c == 0 and all(k % c == 0 for k in difference.values())


def _replaced(terms: Terms, constant: int, old: tuple[UOp, UOp], new: UOp, k: int) -> tuple[Terms, int]:
    out = {t: n for t, n in terms.items() if t not in old}
    new_terms, new_constant = linear(new)
    add_scaled(out, new_terms, k)
    return out, constant + new_constant * k
