"""Interval arithmetic on integer nodes, and the normal form of sizes.

`interval` answers for every integer or bool node an inclusive (min, max) that its value never leaves; where nothing
better is known it is the dtype's own range. `fold_size` brings a size expression into one canonical polynomial, so that
equal sizes are the same node.
"""

from __future__ import annotations

from functools import reduce
from operator import add, mul
from typing import TYPE_CHECKING

from tinyweb.dtype import dtypes
from tinyweb.graph.ir.ops import Ops

if TYPE_CHECKING:
    from tinyweb.graph.ir.uop import Size, UOp


def interval(u: UOp) -> tuple[int, int]:
    """Inclusive bounds of an integer or bool node."""
    if u.dtype.is_float or u.dtype.kind == "void":
        raise TypeError(f"{u} has no integer bounds")
    whole = (int(u.dtype.min), int(u.dtype.max))
    low, high = _interval(u, whole)
    # an intermediate that may leave the dtype wraps around: then nothing is known
    return (low, high) if whole[0] <= low and high <= whole[1] else whole


def _interval(u: UOp, whole: tuple[int, int]) -> tuple[int, int]:
    op = u.op
    if op is Ops.CONST:
        return int(u.arg), int(u.arg)
    if op is Ops.VARIABLE:
        return u.arg[1], u.arg[2]
    if op is Ops.BIND:
        return u.src[0].bounds
    if op in (Ops.RANGE, Ops.SPECIAL):
        return 0, max(u.src[0].vmax - 1, 0)
    if op is Ops.CAST and u.src[0].dtype.kind in ("int", "uint", "index", "bool"):
        low, high = u.src[0].bounds
        return (low, high) if whole[0] <= low and high <= whole[1] else whole
    if op is Ops.WHERE:
        (a, b), (c, d) = u.src[1].bounds, u.src[2].bounds
        return min(a, c), max(b, d)
    if op is Ops.STACK:
        return min(s.vmin for s in u.src), max(s.vmax for s in u.src)
    if op is Ops.LANE:
        return u.src[0].bounds
    if op is Ops.NEG:
        return -u.src[0].vmax, -u.src[0].vmin
    if len(u.src) != 2 or u.src[0].dtype.is_float or u.src[1].dtype.is_float or op in (Ops.LOAD, Ops.REDUCE):
        return whole
    (a, b), (c, d) = u.src[0].bounds, u.src[1].bounds
    if op is Ops.ADD:
        return a + c, b + d
    if op is Ops.MUL:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if op is Ops.MAX:
        return max(a, c), max(b, d)
    if op is Ops.FLOORDIV and (c > 0 or d < 0):
        corners = (a // c, a // d, b // c, b // d)
        return min(corners), max(corners)
    if op is Ops.MOD and c > 0:
        return (a % c, b % c) if c == d and a // c == b // c else (0, min(d - 1, b) if a >= 0 else d - 1)
    if op is Ops.AND and u.dtype.kind == "bool":
        return a & c, b & d
    if op is Ops.OR and u.dtype.kind == "bool":
        return a | c, b | d
    if op is Ops.XOR and u.dtype.kind == "bool":
        return (a ^ c, a ^ c) if a == b and c == d else (0, 1)
    if op is Ops.AND and (a >= 0 or c >= 0):
        return 0, min(x for x, low in ((b, a), (d, c)) if low >= 0)
    if op is Ops.SHL and c == d and c >= 0:
        return a << c, b << c
    if op is Ops.SHR and c == d and c >= 0:
        return a >> c, b >> c
    if op is Ops.LESS:
        return int(b < c), int(a < d)
    if op is Ops.EQUAL:
        return int(a == b == c == d), int(not (b < c or d < a))
    return whole


def _key(u: UOp) -> tuple[int, str, int, bytes]:
    return u.order_key


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
    return {(u,): 1}


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
