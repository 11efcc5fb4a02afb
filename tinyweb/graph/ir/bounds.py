"""Interval arithmetic on integer nodes, and the normal form of sizes.

`interval` answers for every integer or bool node an inclusive (min, max) that its value never leaves; where nothing
better is known it is the dtype's own range. `fold_size` brings a size expression into one canonical polynomial, so that
equal sizes are the same node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, reduce
from operator import add, mul
from typing import TYPE_CHECKING, TypeAlias

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir.ops import Ops

if TYPE_CHECKING:
    from tinyweb.graph.ir.uop import Size, UOp


Interval: TypeAlias = "tuple[int, int]"


def interval(u: UOp) -> Interval:
    """Inclusive bounds of an integer or bool node."""
    whole = _whole(u.dtype)
    if whole is None:
        raise TypeError(f"{u} has no integer bounds")
    rule = _RULES.get(u.op)
    if rule is None:
        return whole
    found = rule(u)
    # an intermediate that may leave the dtype wraps around: then nothing is known
    return whole if found is None or found[0] < whole[0] or whole[1] < found[1] else found


@cache
def _whole(dtype: DType) -> Interval | None:
    """All that a dtype holds."""
    return None if dtype.is_float or dtype.kind == "void" else (int(dtype.min), int(dtype.max))


def _cast(u: UOp) -> Interval | None:
    return None if _whole(u.src[0].dtype) is None else u.src[0].bounds


def _staged(u: UOp) -> Interval | None:
    """What is loaded of a STAGE is one of its values, or 0 where a gate is false."""
    if u.src[0].op is not Ops.STAGE:
        return None
    low, high = u.src[0].src[0].bounds
    return (low, high) if len(u.src) == 2 else (min(low, 0), max(high, 0))


def _choice(u: UOp) -> Interval:
    condition, x, y = u.src
    (a, b), (c, d) = x.bounds, y.bounds
    if condition.op is Ops.LESS and condition.src[0] is x:
        b = min(b, condition.src[1].vmax - 1)
    if condition.op is Ops.LESS and condition.src[0] is y:
        c = max(c, condition.src[1].vmin)
    return min(a, c), max(b, d)


def _product(a: int, b: int, c: int, d: int) -> Interval:
    if a >= 0 and c >= 0:
        return a * c, b * d
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def _quotient(a: int, b: int, c: int, d: int) -> Interval | None:
    if c <= 0 <= d:
        return None
    corners = (a // c, a // d, b // c, b // d)
    return min(corners), max(corners)


def _remainder(a: int, b: int, c: int, d: int) -> Interval | None:
    if c <= 0:
        return None
    return (a % c, b % c) if c == d and a // c == b // c else (0, min(d - 1, b) if a >= 0 else d - 1)


def _and(a: int, b: int, c: int, d: int) -> Interval | None:
    return (0, min(x for x, low in ((b, a), (d, c)) if low >= 0)) if a >= 0 or c >= 0 else None


def _two(of: Callable[[int, int, int, int], Interval | None]) -> Callable[[UOp], Interval | None]:
    """The rule of an operation on two integers or bools, of (a, b) and (c, d)."""

    def rule(u: UOp) -> Interval | None:
        x, y = u.src[0], u.src[-1]
        return None if x.dtype.is_float or y.dtype.is_float else of(*x.bounds, *y.bounds)

    return rule


def _bool_or(
    of: Callable[[int, int, int, int], Interval | None], other: Callable[[int, int, int, int], Interval | None]
) -> Callable[[UOp], Interval | None]:
    on_bool, on_int = _two(of), _two(other)
    return lambda u: on_bool(u) if u.dtype.kind == "bool" else on_int(u)


_RULES: dict[Ops, Callable[[UOp], Interval | None]] = {
    Ops.CONST: lambda u: (int(u.arg), int(u.arg)),
    Ops.VARIABLE: lambda u: (u.arg[1], u.arg[2]),
    Ops.BIND: lambda u: u.src[0].bounds,
    Ops.RANGE: lambda u: (0, max(u.src[0].vmax - 1, 0)),
    Ops.SPECIAL: lambda u: (0, max(u.src[0].vmax - 1, 0)),
    Ops.SUBGROUP_SIZE: lambda u: (4, 128),
    Ops.CAST: _cast,
    Ops.LOAD: _staged,
    Ops.WHERE: _choice,
    Ops.LOOKUP: lambda u: (min(u.arg.numbers), max(u.arg.numbers)),
    Ops.STACK: lambda u: (min(s.vmin for s in u.src), max(s.vmax for s in u.src)),
    Ops.LANE: lambda u: u.src[0].bounds,
    Ops.NEG: lambda u: (-u.src[0].vmax, -u.src[0].vmin),
    Ops.ADD: _two(lambda a, b, c, d: (a + c, b + d)),
    Ops.MUL: _two(_product),
    Ops.MAX: _two(lambda a, b, c, d: (max(a, c), max(b, d))),
    Ops.FLOORDIV: _two(_quotient),
    Ops.MOD: _two(_remainder),
    Ops.AND: _bool_or(lambda a, b, c, d: (a & c, b & d), _and),
    Ops.OR: _bool_or(lambda a, b, c, d: (a | c, b | d), lambda a, b, c, d: None),
    Ops.XOR: _bool_or(lambda a, b, c, d: (a ^ c, a ^ c) if a == b and c == d else (0, 1), lambda a, b, c, d: None),
    Ops.SHL: _two(lambda a, b, c, d: (a << c, b << c) if c == d and 0 <= c < 64 else None),
    Ops.SHR: _two(lambda a, b, c, d: (a >> c, b >> c) if c == d and c >= 0 else None),
    Ops.LESS: _two(lambda a, b, c, d: (int(b < c), int(a < d))),
    Ops.EQUAL: _two(lambda a, b, c, d: (int(a == b == c == d), int(not (b < c or d < a)))),
}


def _key(u: UOp) -> tuple[int, str, int, bytes]:
    return u.order_key


ROUNDED = (Ops.MAX, Ops.FLOORDIV, Ops.MOD)  # of sizes, beside sums and products
Monomials = dict[tuple["UOp", ...], int]  # sorted factors -> coefficient


def polynomial(u: UOp) -> Monomials:
    """The expression as a sum of products; what is not a sum or a product counts as a factor of its own."""
    if u.op is Ops.CONST:
        return {(): int(u.arg)} if u.arg else {}
    if u.op is Ops.BIND:
        return polynomial(u.src[0])
    if u.op is Ops.ADD:
        out = dict(polynomial(u.src[0]))
        for m, c in polynomial(u.src[1]).items():
            out[m] = out.get(m, 0) + c
        return {m: c for m, c in out.items() if c}
    if u.op is Ops.MUL:
        out = {}
        for m, c in polynomial(u.src[0]).items():
            for n, d in polynomial(u.src[1]).items():
                key = tuple(sorted(m + n, key=_key))
                out[key] = out.get(key, 0) + c * d
        return {m: c for m, c in out.items() if c}
    if _is_quotient(u):
        return _divided(polynomial(u.src[0]), int(u.src[1].arg))
    if u.op in ROUNDED:
        inner = tuple(from_polynomial(polynomial(s)) for s in u.src)
        u = u if inner == u.src else u.replace(src=inner)
    return {(u,): 1}


def _divided(p: Monomials, d: int) -> Monomials:
    """p // d for a number d > 0, with whole parts of coefficients outside, and x // e // d as one quotient."""
    whole = {m: q for m, c in p.items() if (q := c // d)}
    rest = {m: r for m, c in p.items() if (r := c % d)}
    inner = [m for m in rest if m]
    if len(inner) == 1 and len(inner[0]) == 1 and rest[inner[0]] == 1:
        (f,) = inner[0]
        if _is_quotient(f):
            e = int(f.src[1].arg)
            rest = dict(polynomial(f.src[0])) | {(): polynomial(f.src[0]).get((), 0) + rest.get((), 0) * e}
            rest, d = {m: c for m, c in rest.items() if c}, d * e
    if rest:
        x = from_polynomial(rest)
        low, high = (b // d for b in x.bounds)
        node = x // d if low != high else None
        key = () if node is None else (node,)
        whole[key] = whole.get(key, 0) + (low if node is None else 1)
    return {m: c for m, c in whole.items() if c}


def _is_quotient(u: UOp) -> bool:
    return u.op is Ops.FLOORDIV and u.src[1].op is Ops.CONST and u.src[1].arg > 0


def without_quotients(p: Monomials) -> tuple[Monomials, int]:
    """(q, k): a sum q of which numbers k · p are at least as large; x - (d - 1) ≤ (x // d) · d ≤ x for numbers d."""
    scale = 1
    for _ in range(8):
        found = next((f for m in p if len(m) == 1 for f in m if _is_quotient(f)), None)
        if found is None:
            break
        x, d, c = found.src[0], int(found.src[1].arg), p[(found,)]
        rest = {m: k * d for m, k in p.items() if m != (found,)}
        for m, k in polynomial(x if c < 0 else x - (d - 1)).items():
            rest[m] = rest.get(m, 0) + k * c
        p, scale = {m: k for m, k in rest.items() if k}, scale * d
    return p, scale


def size_bounds(u: UOp) -> Interval:
    """Bounds of a size, which see that quotients grow with what is divided: 0 … 1 of n - 2 · (n // 2)."""
    low, high = u.bounds
    p = polynomial(u)
    if sum(len(m) > 0 for m in p) < 2:
        return low, high
    under, k = without_quotients(p)
    over, n = without_quotients({m: -c for m, c in p.items()})
    return max(low, -(-from_polynomial(under).vmin // k)), min(high, -from_polynomial(over).vmin // n)


def from_polynomial(p: Monomials) -> UOp:
    """The canonical node of a polynomial: terms by their factors, the constant last."""
    from tinyweb.graph.ir.uop import UOp

    products = {reduce(mul, m): c for m, c in p.items() if m}
    terms = [t if (c := products[t]) == 1 else t * c for t in sorted(products, key=_key)]
    if constant := p.get((), 0):
        terms.append(UOp.const(constant, dtypes.index))
    return reduce(add, terms) if terms else UOp.const(0, dtypes.index)


def fold_size(u: UOp) -> Size:
    """A size in canonical form: an int where it is constant."""
    out = from_polynomial(polynomial(u))
    return int(out.arg) if out.op is Ops.CONST else out
