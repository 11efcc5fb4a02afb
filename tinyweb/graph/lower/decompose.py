"""Operations the target lacks, in terms of those it has."""

from __future__ import annotations

from tinyweb.dtype import BY_NAME, dtypes
from tinyweb.graph.ir import TRANSCENDENTAL, AxisKind, Ops, UOp, rebuild
from tinyweb.graph.lower.constructors import make
from tinyweb.graph.lower.transcendental import BRANCHING, CORRECTIONS, EXPANSIONS
from tinyweb.graph.lower.transcendental.build import Branches
from tinyweb.graph.lower.transcendental.ieee import divide, invert_root
from tinyweb.graph.target import Target


def decompose(kernel: UOp, target: Target) -> UOp:
    """The kernel without transcendental functions, unless the target has them itself; with division, square roots and
    comparisons corrected where the target's are not those of IEEE 754."""
    branches = Branches()
    roots: dict[UOp, UOp] = {}  # square roots, and what they are taken of

    def decomposed(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is Ops.EXP2 and u.dtype is dtypes.float32 and 0 < (u.arg or 0) <= target.exp2_digits:
            return u.with_sources((_fused(src[0]),))
        if u.op in TRANSCENDENTAL and not (u.op in target.native_math and u.dtype is dtypes.float32):
            return _expand(u, src, target, branches)
        if u.op in CORRECTIONS and not target.ieee and u.src[0].dtype is dtypes.float32:
            if u.op is Ops.SQRT:
                roots[u] = src[0]
            elif u.src[-1] in roots and u.op is Ops.RECIPROCAL:
                return invert_root(roots[u.src[-1]])
            elif u.src[-1] in roots and u.op is Ops.DIV:
                return divide(src[0], src[1], is_root=True)
            return CORRECTIONS[u.op](*src)
        if u.op in (Ops.FLOORDIV, Ops.MOD) and target.branches and u.dtype in (dtypes.int32, dtypes.uint32):
            constant = src[1].op is Ops.CONST
            if not constant and any(r.arg.kind is AxisKind.VECTOR for r in u.lanes):
                return _vector_division(u, *src)
        return None

    return rebuild(kernel.toposort(), decomposed)[kernel]


def _fused(x: UOp) -> UOp:
    """a · b + c by one operation."""
    product = next((s for s in x.src if s.op is Ops.MUL), None) if x.op is Ops.ADD else None
    if product is None:
        return x
    return UOp(Ops.MULADD, x.dtype, (*product.src, x.src[x.src[0] is product]))


def _expand(u: UOp, src: tuple[UOp, ...], target: Target, branches: Branches) -> UOp:
    function = EXPANSIONS.get(u.op)
    if function is None:
        raise NotImplementedError(f"{u.op.name} is not supported on {target.name}")
    more = {"branches": branches} if target.branches and u.op in BRANCHING else {}
    if u.dtype is dtypes.float64:
        return function(*src, target.ieee, **more)
    return function(*(x.cast(dtypes.float32) for x in src), target.ieee, **more).cast(u.dtype)


def _vector_division(u: UOp, a: UOp, b: UOp) -> UOp:
    """FLOORDIV or MOD of 32 bits by a division of float64, which vectors have: an exact quotient that is not whole is
    further from whole numbers than it is rounded."""
    x, y = (s.cast(dtypes.float64) for s in (a, b))
    floor = x.alu(Ops.DIV, y).alu(Ops.FLOOR)
    # the whole number is in the last digits of a float of 2**52 and more, where it wraps around
    bits = (floor + 1.5 * 2.0**52).bitcast(dtypes.uint64).cast(dtypes.uint32)
    value = bits if u.dtype is dtypes.uint32 else bits.bitcast(u.dtype)
    if u.op is Ops.MOD:
        value = a - value * b
    return value if b.vmin > 0 else b.equal(0).where(UOp.const(0, u.dtype), value)


def floor_division(u: UOp, a: UOp, b: UOp) -> UOp:
    """FLOORDIV or MOD of any integers in terms of divisions of numbers ≥ 0 by numbers > 0; 0 where b is 0.

    With m = -1 for a negative numerator, else 0:  floor(a / b) = ((a ^ m) // b) ^ m  for b > 0.
    """
    dtype = u.dtype
    if dtype.kind == "uint":
        safe = _node(Ops.MAX, b, UOp.const(1, dtype))
        quotient = UOp(Ops.FLOORDIV, dtype, (a, safe))
        value = quotient if u.op is Ops.FLOORDIV else UOp(Ops.MOD, dtype, (a, safe))
        return value if b.vmin > 0 else b.equal(0).where(UOp.const(0, dtype), value)
    minus = UOp.const(-1, dtype)
    if b.vmin > 0 or dtype is dtypes.index:
        numerator, divisor = a, b
        if b.vmin <= 0:
            flip = b < UOp.const(0, dtype)
            numerator = flip.where(_node(Ops.MUL, a, minus), a)
            divisor = _node(Ops.MAX, flip.where(_node(Ops.MUL, b, minus), b), UOp.const(1, dtype))
        sign = _node(Ops.SHR, numerator, UOp.const(dtype.bits - 1, dtype))
        # the mask changes nothing; it shows that the numerator is not negative
        positive = _node(Ops.AND, _node(Ops.XOR, numerator, sign), UOp.const((1 << (dtype.bits - 1)) - 1, dtype))
        quotient = UOp(Ops.FLOORDIV, dtype, (positive, divisor))
    else:
        # the magnitude of the smallest number fits the unsigned type alone
        unsigned, zero = BY_NAME[f"u{dtype.name}"], UOp.const(0, dtype)
        flip = b < zero
        sign = flip.where(zero < a, a < zero).where(minus, zero)
        positive = _node(Ops.XOR, flip.where(_node(Ops.MUL, a, minus), a), sign).bitcast(unsigned)
        magnitude = flip.where(_node(Ops.MUL, b, minus), b).bitcast(unsigned)
        divisor = _node(Ops.MAX, magnitude, UOp.const(1, unsigned))
        quotient = UOp(Ops.FLOORDIV, unsigned, (positive, divisor)).bitcast(dtype)
    value = quotient = _node(Ops.XOR, quotient, sign)
    if u.op is Ops.MOD:
        value = _node(Ops.ADD, a, _node(Ops.MUL, _node(Ops.MUL, quotient, b), minus))
    return value if b.vmin > 0 else b.equal(0).where(UOp.const(0, dtype), value)


def _node(op: Ops, a: UOp, b: UOp) -> UOp:
    return make(op, a.dtype, (a, b))
