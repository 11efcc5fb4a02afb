"""Integer expressions as sums: Σ coefficient · term + constant.

A *term* is a node that is neither a sum, nor a constant, nor a product with a constant. The canonical sum is
((t1·c1 + t2·c2) + …) + constant with the terms by `UOp.order_key`: outer loops first, so what does not vary with an
inner loop is one common prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import TypeAlias

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import below
from tinyweb.graph.ir.bounds import from_polynomial, polynomial, without_quotients
from tinyweb.graph.ir.on_node import on_node
from tinyweb.graph.ir.ops import Ops
from tinyweb.graph.ir.uop import Size, UOp, as_index
from tinyweb.graph.symbolic.fold import wrap

Terms: TypeAlias = dict[UOp, int]

# Longer sums are left as written: normalising every partial sum of a chain would take quadratic time.
LONGEST = 24


def order(u: UOp) -> tuple[int, str, int, bytes]:
    return u.order_key


# -- from nodes to sums and back -------------------------------------------------------------------------------------
def linear(u: UOp) -> tuple[Terms, int]:
    """(terms, constant) of an integer node; coefficients are wrapped to its dtype. Do not change the dict."""
    known: tuple[Terms, int] | None = u.__dict__.get("_linear")
    if known is None:
        known = u.__dict__["_linear"] = _linear(u)
    return known


def _linear(u: UOp) -> tuple[Terms, int]:
    terms: Terms = {}
    constant = visits = 0
    stack = [(u, 1)]
    while stack:
        n, k = stack.pop()
        visits += 1
        if visits > 4 * LONGEST or len(terms) > LONGEST:
            return {u: 1}, 0
        if n.op is Ops.CONST:
            constant += k * n.arg
        elif n.op is Ops.ADD:
            stack.extend(((n.src[1], k), (n.src[0], k)))
        elif n.op is Ops.MUL and n.src[1].op is Ops.CONST:
            stack.append((n.src[0], k * n.src[1].arg))
        elif n.op is Ops.MUL and n.src[0].op is Ops.CONST:
            stack.append((n.src[1], k * n.src[0].arg))
        elif n.op is Ops.NEG:
            stack.append((n.src[0], -k))
        else:
            terms[n] = terms.get(n, 0) + k
    return {t: w for t, k in terms.items() if (w := wrap(k, u.dtype))}, wrap(constant, u.dtype)


def add_scaled(into: Terms, terms: Terms, by: int = 1) -> None:
    """into += by · terms; terms that cancel are dropped."""
    for t, k in terms.items():
        total = into.get(t, 0) + k * by
        if total:
            into[t] = total
        else:
            into.pop(t, None)


def from_linear(terms: Terms, constant: int, dtype: DType) -> UOp:
    """The canonical sum."""
    total: UOp | None = None
    for t in sorted(terms, key=order):
        k = wrap(terms[t], dtype)
        if k == 0:
            continue
        part = t if k == 1 else t * k
        total = part if total is None else total + part
        total.__dict__["_is_sum"] = True  # every prefix of a canonical sum is one
    if total is None:
        return UOp.const(constant, dtype)
    if wrap(constant, dtype):
        total = total + constant
        total.__dict__["_is_sum"] = True
    return total


def isolated(a: UOp, b: UOp, r: UOp) -> tuple[int, Terms, int] | None:
    """(k, terms, constant) with a - b = k·r + Σ terms + constant, where only k·r varies with the range r (or is a
    cast of it); None where that is not so.
    """
    (left, c), (right, d) = linear(a), linear(b)
    terms = dict(left)
    add_scaled(terms, right, -1)
    own = [t for t in terms if r in t.ranges]
    if len(own) != 1 or (own[0] is not r and (own[0].op is not Ops.CAST or own[0].src[0] is not r)):
        return None
    return terms.pop(own[0]), terms, c - d


def interval_of(terms: Terms, constant: int = 0) -> tuple[int, int]:
    """Bounds of the sum as a number, without wraparound."""
    low = high = constant
    for t, k in terms.items():
        a, b = t.bounds
        low, high = (low + k * a, high + k * b) if k > 0 else (low + k * b, high + k * a)
    return low, high


def fits(terms: Terms, constant: int, dtype: DType) -> bool:
    """Whether the sum is the number it means: if it cannot wrap around, or is index arithmetic that can be written."""
    if dtype.kind == "index":
        return dtype.min <= constant <= dtype.max and all(dtype.min <= k <= dtype.max for k in terms.values())
    low, high = interval_of(terms, constant)
    return dtype.min <= low and high <= dtype.max


# -- facts about expressions -----------------------------------------------------------------------------------------
def const_factor(expr: Size) -> int:
    """The largest integer ≥ 0 known to divide the expression whatever its free nodes are; 0 for the constant 0."""
    return abs(expr) if isinstance(expr, int) else on_node(expr, "_factor", _const_factor, _is_whole)


def _is_whole(u: UOp) -> bool:
    return u.dtype.is_int


def _const_factor(u: UOp) -> int:
    def of(i: int) -> int:
        factor: int = u.src[i].__dict__["_factor"]
        return factor

    if u.op is Ops.CONST:
        return abs(int(u.arg))
    if u.bounds == (0, 0):
        return 0
    if u.op in (Ops.ADD, Ops.MUL, Ops.NEG):
        factors = [of(i) for i in range(len(u.src))]
        factor = gcd(*factors) if u.op is Ops.ADD else prod(factors)
        # arithmetic that wraps around keeps only powers of two, and of those no more than the dtype has bits
        return factor if factor == 0 or cannot_wrap(u) else min(factor & -factor, 1 << (u.dtype.bits - 1))
    if u.op is Ops.MOD:
        return gcd(of(0), of(1))
    if u.op is Ops.FLOORDIV and u.src[1].op is Ops.CONST and (c := abs(u.src[1].arg)) and of(0) % c == 0:
        return int(of(0) // c)
    if u.op is Ops.MAX:
        return gcd(of(0), of(1))
    if u.op is Ops.WHERE:
        return gcd(of(1), of(2))
    if u.op is Ops.BIND:
        return of(0)
    if u.op is Ops.CAST and u.src[0].dtype.is_int and u.src[0].vmin >= u.dtype.min and u.src[0].vmax <= u.dtype.max:
        return of(0)
    return 1


def cannot_wrap(u: UOp) -> bool:
    if u.dtype.kind == "index":
        return True
    (a, b), (c, d) = u.src[0].bounds, u.src[-1].bounds
    results = [-a, -b] if u.op is Ops.NEG else [a + c, b + d] if u.op is Ops.ADD else [a * c, a * d, b * c, b * d]
    return bool(u.dtype.min <= min(results) and max(results) <= u.dtype.max)


def divides(expr: Size, n: Size) -> bool:
    """Whether the expression is provably a multiple of `n` (an int other than 0, or an expression that is never 0)."""
    if isinstance(n, UOp) and n.op is Ops.CONST:
        n = int(n.arg)
    if isinstance(n, int):
        return n != 0 and const_factor(expr) % n == 0
    return exact_quotient(as_index(expr), n) is not None


def exact_quotient(x: UOp, d: UOp) -> UOp | None:
    """x / d where d, an expression in VARIABLEs, divides x as a polynomial; else None."""
    if x.op is Ops.CONST and x.arg == 0:
        return x
    if x is d:
        return UOp.const(1, x.dtype)
    divisor, rest = polynomial(d), polynomial(x)
    if not divisor:
        return None
    lead = max(divisor, key=_degree)
    quotient: dict[tuple[UOp, ...], int] = {}
    for _ in range(64):
        if not rest:
            return from_polynomial(quotient)
        top = max(rest, key=_degree)
        left = list(top)
        for f in lead:
            if f not in left:
                return None
            left.remove(f)
        k, remainder = divmod(rest[top], divisor[lead])
        if remainder:
            return None
        quotient[tuple(left)] = quotient.get(tuple(left), 0) + k
        for m, c in divisor.items():
            key = tuple(sorted((*left, *m), key=order))
            total = rest.get(key, 0) - k * c
            if total:
                rest[key] = total
            else:
                rest.pop(key, None)
    return None


def _degree(m: tuple[UOp, ...]) -> tuple[int, list[tuple[int, str, int, bytes]]]:
    return len(m), [f.order_key for f in m]


def proves_less(a: UOp, b: UOp) -> bool:
    """Whether a < b always holds, for index expressions; knows that a RANGE stays below its symbolic size."""
    if a.vmax < b.vmin:
        return True
    if a.dtype.kind != "index" or not any(_is_symbolic(u) for u in (*linear(a)[0], *linear(b)[0])):
        return False
    rest = polynomial(b - 1 - a)
    # push every range to the end of its interval that makes the difference smallest
    while ranges := {f for m in rest for f in m if f.op is Ops.RANGE}:
        r = max(ranges, key=order)
        lower = UOp.const(0, dtypes.index)
        if any(not dtypes.index.min <= c <= dtypes.index.max for c in rest.values()):
            return False
        for m, c in rest.items():
            others = [f for f in m if f is not r]
            if len(others) == len(m):
                lower = lower + _product(m) * c
            elif any(f.vmin < 0 for f in others):
                return False
            elif c < 0:
                lower = lower + _product([*others, *[_last(r)] * (len(m) - len(others))]) * c
        rest = polynomial(lower)
    low = 0
    for m, c in without_quotients(rest)[0].items():
        a_low, a_high = _product(m).bounds if m else (1, 1)
        low += c * (a_low if c > 0 else a_high)
    return low >= 0


def _last(r: UOp) -> UOp:
    """The last step of a RANGE, which is met only if there is one: of max(x, 0) steps there are x then."""
    size = r.src[0]
    if size.op is Ops.MAX and size.src[1].op is Ops.CONST and size.src[1].arg <= 0:
        size = size.src[0]
    return size - 1


def _product(factors: Sequence[UOp]) -> UOp:
    out = UOp.const(1, dtypes.index)
    for f in factors:
        out = f if out.op is Ops.CONST else out * f
    return out


def _is_symbolic(u: UOp) -> bool:
    factors = below([u], lambda n: n.op is Ops.MUL)
    return any(n.op is Ops.VARIABLE or (n.op is Ops.RANGE and n.src[0].op is not Ops.CONST) for n in factors)
