"""What a value of the IR means, as Z3 terms, written apart from the compiler.

`Numbers` speaks of mathematical integers: index arithmetic never leaves its range, other integers wrap around by an
explicit remainder. `Words` speaks of bit-vectors as wide as the dtype, and of IEEE floats. Both know that a RANGE stays
below its size and a VARIABLE within its bounds; what they cannot see into (memory, floats in `Numbers`) is any value of
its dtype. Division by zero gives 0, shifting by too much gives 0 or copies of the sign.
"""

from __future__ import annotations

from collections.abc import Callable

import z3

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import ELEMENTWISE, Ops, UOp

FREE = (Ops.RANGE, Ops.SPECIAL, Ops.VARIABLE)


class Terms:
    """Terms for nodes, each node once; `facts` is what holds of the free ones among them."""

    def __init__(self) -> None:
        self.facts: list[z3.BoolRef] = []
        self.known: dict[UOp, z3.ExprRef] = {}

    def __call__(self, root: UOp) -> z3.ExprRef:
        stack = [root]
        while stack:
            u = stack[-1]
            # what a load is from does not matter for its value: that may be anything
            src = u.src if u.op in ELEMENTWISE or u.op in (*FREE, Ops.BIND) else self.looks_into(u)
            waiting = [s for s in src if s not in self.known]
            if u in self.known:
                stack.pop()
            elif waiting:
                stack.extend(waiting)
            else:
                stack.pop()
                self.known[u] = self.one(u, [self.known[s] for s in src])
        return self.known[root]

    def looks_into(self, u: UOp) -> tuple[UOp, ...]:
        return ()

    def one(self, u: UOp, src: list[z3.ExprRef]) -> z3.ExprRef:
        raise NotImplementedError

    def fresh(self, u: UOp) -> str:
        name = u.arg.name if u.op is Ops.RANGE else u.arg[0] if u.op is Ops.VARIABLE else u.op.name.lower()
        return f"{name}${len(self.known)}"


# -- mathematical integers -------------------------------------------------------------------------------------------
def floor_quotient(a: z3.ArithRef, d: z3.ArithRef) -> z3.ArithRef:
    """Z3 rounds so that the remainder is not negative: that is floor for positive divisors alone."""
    if z3.is_int_value(d):
        n = d.as_long()
        return a / d if n > 0 else (-a) / z3.IntVal(-n) if n else z3.IntVal(0)
    return z3.If(d > 0, a / d, z3.If(d < 0, (-a) / (-d), 0))


def wrapped(value: z3.ArithRef, dtype: DType) -> z3.ArithRef:
    """A number as an integer type holds it; index arithmetic is taken not to overflow."""
    if dtype.kind == "index":
        return value
    low = int(dtype.min)
    return (value - low) % (1 << dtype.bits) + low


def computed_lane(vector: UOp, i: int) -> tuple[UOp, ...]:
    """A lane of a vector, as it is computed for that lane alone; nothing where it is read or comes out of a loop."""
    if vector.op is Ops.STACK:
        return (vector.src[i],)
    if vector.op not in ELEMENTWISE:
        return ()
    return (vector.replace(src=tuple(UOp(Ops.LANE, s.dtype, (s,), i) if s.shape else s for s in vector.src)),)


class Numbers(Terms):
    """Integers and bools; of floats nothing is known. With `elements`, an element of memory that the kernel does not
    write is one value in all loads whose gates hold; this takes longer."""

    def __init__(self, elements: bool = False) -> None:
        super().__init__()
        self.elements = elements
        self.loaded: dict[tuple[UOp, UOp], list[tuple[z3.BoolRef, z3.ArithRef]]] = {}

    def looks_into(self, u: UOp) -> tuple[UOp, ...]:
        if u.op is Ops.LANE:
            return computed_lane(u.src[0], u.arg)
        return u.src[2:] if self._reads_an_element(u) else ()

    def _reads_an_element(self, u: UOp) -> bool:
        if not self.elements or u.op is not Ops.LOAD or not u.dtype.is_int or u.src[0].op is not Ops.PARAM:
            return False
        # the first argument is what the kernel writes; vectors of a program have several elements
        return u.src[0].arg.slot > 0 and (not u.shape or bool(u.lanes))

    def one(self, u: UOp, src: list[z3.ExprRef]) -> z3.ExprRef:
        if u.op is Ops.LANE and src:
            return src[0]
        if u.dtype.kind == "bool":
            return self._bool(u, src)
        if u.dtype.is_float or u.dtype.kind == "void":
            return z3.Real(self.fresh(u))
        match u.op:
            case Ops.CONST:
                return z3.IntVal(u.arg)
            case Ops.BIND:
                return src[0]
            case Ops.RANGE | Ops.SPECIAL | Ops.VARIABLE:
                x = z3.Int(self.fresh(u))
                low, high = (0, src[0] - 1) if u.op is not Ops.VARIABLE else u.arg[1:]
                self.facts += [x >= low, x <= high]
                return x
        if self._reads_an_element(u):
            gate, value = src[0] if src else z3.BoolVal(True), self.anything(u)
            others = self.loaded.setdefault((u.src[0], u.src[1]), [])
            self.facts += [z3.Implies(z3.And(gate, g), value == v) for g, v in others]
            others.append((gate, value))
            return value
        if u.op not in ELEMENTWISE or any(s.dtype.is_float for s in u.src):
            return self.anything(u)
        match u.op:
            case Ops.ADD:
                return wrapped(src[0] + src[1], u.dtype)
            case Ops.MUL:
                return wrapped(src[0] * src[1], u.dtype)
            case Ops.MULADD:
                return wrapped(src[0] * src[1] + src[2], u.dtype)
            case Ops.NEG:
                return wrapped(-src[0], u.dtype)
            case Ops.FLOORDIV:
                return wrapped(floor_quotient(src[0], src[1]), u.dtype)
            case Ops.MOD:
                if z3.is_int_value(src[1]) and src[1].as_long() > 0:
                    return src[0] % src[1]
                return z3.If(src[1] == 0, 0, src[0] - floor_quotient(src[0], src[1]) * src[1])
            case Ops.MAX:
                return z3.If(src[0] < src[1], src[1], src[0])
            case Ops.WHERE:
                return z3.If(src[0], src[1], src[2])
            case Ops.CAST:
                if u.src[0].dtype.kind == "bool":
                    return z3.If(src[0], 1, 0)
                of = u.src[0].dtype
                if of.kind != "index" and u.dtype.min <= of.min and of.max <= u.dtype.max:
                    return src[0]
                return self._to_index(src[0]) if u.dtype.kind == "index" else wrapped(src[0], u.dtype)
            case Ops.BITCAST if u.src[0].dtype.is_int:
                return wrapped(src[0], u.dtype)
        return self._bits(u, src)

    def _to_index(self, x: z3.ArithRef) -> z3.ArithRef:
        """Wider integers wrap around when they become an index."""
        return (x + 2**31) % 2**32 - 2**31

    def anything(self, u: UOp) -> z3.ArithRef:
        x = z3.Int(self.fresh(u))
        self.facts += [x >= int(u.dtype.min), x <= int(u.dtype.max)]
        return x

    def _bits(self, u: UOp, src: list[z3.ExprRef]) -> z3.ArithRef:
        a, b = src
        number = b.as_long() if z3.is_int_value(b) else None
        match u.op:
            case Ops.SHR if number is not None and 0 <= number < u.dtype.bits:
                return a / (1 << number)
            case Ops.SHL if number is not None and 0 <= number < u.dtype.bits:
                return wrapped(a * (1 << number), u.dtype)
            case Ops.AND if number is not None and number >= 0 and number & (number + 1) == 0:
                return a % (number + 1)
            case Ops.XOR if _is_sign(u.src[1]):
                return z3.If(b == 0, a, -1 - a)
            case Ops.XOR if number == -1:
                return -1 - a
        signed = u.dtype.is_signed
        x, y = (z3.Int2BV(s, u.dtype.bits) for s in src)
        return z3.BV2Int(_word_operation(u.op, x, y, signed), signed)

    def _bool(self, u: UOp, src: list[z3.ExprRef]) -> z3.BoolRef:
        if u.op is Ops.CONST:
            return z3.BoolVal(u.arg)
        seen = u.op in ELEMENTWISE and not any(s.dtype.is_float for s in u.src) and u.op is not Ops.BITCAST
        return _truth(u, src, _less_number) if seen else z3.Bool(self.fresh(u))


def _is_sign(u: UOp) -> bool:
    """Whether all bits of a value are equal: a number shifted down to its sign."""
    return u.op is Ops.SHR and u.dtype.is_signed and u.src[1].op is Ops.CONST and u.src[1].arg == u.dtype.bits - 1


def _less_number(u: UOp, a: z3.ExprRef, b: z3.ExprRef) -> z3.BoolRef:
    return a < b


def _truth(u: UOp, src: list[z3.ExprRef], less: Callable[[UOp, z3.ExprRef, z3.ExprRef], z3.BoolRef]) -> z3.BoolRef:
    """Operations whose result is a bool; their sources are bools too, or compared."""
    of_bools = u.src[0].dtype.kind == "bool"
    match u.op:
        case Ops.LESS:
            return z3.And(z3.Not(src[0]), src[1]) if of_bools else less(u, src[0], src[1])
        case Ops.EQUAL:
            return z3.fpEQ(*src) if z3.is_fp(src[0]) else src[0] == src[1]
        case Ops.AND | Ops.MUL:
            return z3.And(*src)
        case Ops.OR | Ops.MAX | Ops.ADD:
            return z3.Or(*src)
        case Ops.XOR:
            return z3.Xor(*src)
        case Ops.WHERE:
            return z3.If(*src)
        case Ops.CAST:
            if of_bools:
                return src[0]
            return z3.Not(z3.fpIsZero(src[0])) if z3.is_fp(src[0]) else src[0] != 0
    raise AssertionError(f"no term for {u}")


# -- words -----------------------------------------------------------------------------------------------------------
SORTS = {
    dtypes.float16: z3.FPSort(5, 11), dtypes.bfloat16: z3.FPSort(8, 8), dtypes.float32: z3.FPSort(8, 24),
    dtypes.float64: z3.FPSort(11, 53),
}  # fmt: skip
NEAREST, TO_ZERO = z3.RNE(), z3.RTZ()


def _word_operation(op: Ops, a: z3.BitVecRef, b: z3.BitVecRef, signed: bool) -> z3.BitVecRef:
    match op:
        case Ops.AND:
            return a & b
        case Ops.OR:
            return a | b
        case Ops.XOR:
            return a ^ b
        case Ops.SHL:
            return a << b
        case Ops.SHR:
            return a >> b if signed else z3.LShR(a, b)
    raise AssertionError(f"no term for {op}")


class Words(Terms):
    """Everything as the machine holds it: an index is 32 bits wide."""

    def one(self, u: UOp, src: list[z3.ExprRef]) -> z3.ExprRef:
        if u.dtype.kind == "bool" and u.op is not Ops.VARIABLE:
            return z3.BoolVal(u.arg) if u.op is Ops.CONST else _truth(u, src, _less_word)
        if u.dtype.is_float:
            return self._float(u, src)
        bits, signed = u.dtype.bits, u.dtype.is_signed
        match u.op:
            case Ops.CONST:
                return z3.BitVecVal(u.arg, bits)
            case Ops.VARIABLE if u.dtype.kind == "bool":
                return z3.Bool(self.fresh(u))
            case Ops.RANGE | Ops.SPECIAL | Ops.VARIABLE:
                x = z3.BitVec(self.fresh(u), bits)
                if u.op is not Ops.VARIABLE:
                    self.facts += [x >= 0, x < src[0]]
                elif (u.arg[1], u.arg[2]) != (u.dtype.min, u.dtype.max):
                    low, high = z3.BitVecVal(u.arg[1], bits), z3.BitVecVal(u.arg[2], bits)
                    self.facts += [low <= x, x <= high] if signed else [z3.ULE(low, x), z3.ULE(x, high)]
                return x
            case Ops.ADD:
                return src[0] + src[1]
            case Ops.MUL:
                return src[0] * src[1]
            case Ops.MULADD:
                return src[0] * src[1] + src[2]
            case Ops.NEG:
                return -src[0]
            case Ops.FLOORDIV | Ops.MOD:
                return self._division(u, *src)
            case Ops.MAX:
                return z3.If(_less_word(u, src[0], src[1]), src[1], src[0])
            case Ops.WHERE:
                return z3.If(*src)
            case Ops.CAST if u.src[0].dtype.kind == "bool":
                return z3.If(src[0], z3.BitVecVal(1, bits), z3.BitVecVal(0, bits))
            case Ops.CAST if u.src[0].dtype.is_float:
                return _saturated(src[0], u.dtype)
            case Ops.CAST:
                of = u.src[0].dtype
                if bits <= of.bits:
                    return z3.Extract(bits - 1, 0, src[0])
                return (z3.SignExt if of.is_signed else z3.ZeroExt)(bits - of.bits, src[0])
            case Ops.BITCAST:
                return z3.fpToIEEEBV(src[0]) if u.src[0].dtype.is_float else src[0]
        return _word_operation(u.op, src[0], src[1], signed)

    def _division(self, u: UOp, a: z3.BitVecRef, d: z3.BitVecRef) -> z3.BitVecRef:
        zero = z3.BitVecVal(0, u.dtype.bits)
        if not u.dtype.is_signed:
            return z3.If(d == 0, zero, z3.UDiv(a, d) if u.op is Ops.FLOORDIV else z3.URem(a, d))
        quotient, rest = a / d, z3.SRem(a, d)
        crooked = z3.And(rest != 0, (rest < 0) != (d < 0))
        if u.op is Ops.FLOORDIV:
            return z3.If(d == 0, zero, z3.If(crooked, quotient - 1, quotient))
        return z3.If(d == 0, zero, z3.If(crooked, rest + d, rest))

    def _float(self, u: UOp, src: list[z3.ExprRef]) -> z3.ExprRef:
        sort = SORTS[u.dtype]
        match u.op:
            case Ops.CONST:
                return z3.FPVal(u.arg, sort)
            case Ops.VARIABLE:
                return z3.FP(self.fresh(u), sort)
            case Ops.CAST if u.src[0].dtype.is_float:
                return z3.fpFPToFP(NEAREST, src[0], sort)
            case Ops.CAST if u.src[0].dtype.kind == "bool":
                return z3.If(src[0], z3.FPVal(1.0, sort), z3.FPVal(0.0, sort))
            case Ops.CAST:
                of = z3.fpSignedToFP if u.src[0].dtype.is_signed else z3.fpUnsignedToFP
                return of(NEAREST, src[0], sort)
            case Ops.BITCAST:
                return src[0] if z3.is_fp(src[0]) else z3.fpBVToFP(src[0], sort)
            case Ops.WHERE:
                return z3.If(*src)
            case Ops.NEG:
                return z3.fpNeg(src[0])
            case Ops.ADD:
                return z3.fpAdd(NEAREST, *src)
            case Ops.MUL:
                return z3.fpMul(NEAREST, *src)
            case Ops.DIV:
                return z3.fpDiv(NEAREST, *src)
            case Ops.MAX:  # a NaN stays one
                less = z3.If(z3.fpLT(src[0], src[1]), src[1], src[0])
                return z3.If(z3.fpIsNaN(src[1]), src[1], less)
        raise AssertionError(f"no term for {u}")


def _saturated(x: z3.FPRef, dtype: DType) -> z3.BitVecRef:
    """A float cut to an integer; what is outside of the range becomes its end, NaN becomes 0."""
    bits, signed = dtype.bits, dtype.is_signed
    low, high = (z3.BitVecVal(int(n), bits) for n in (dtype.min, dtype.max))
    inside = (z3.fpToSBV if signed else z3.fpToUBV)(TO_ZERO, x, z3.BitVecSort(bits))
    below = z3.fpLEQ(x, z3.FPVal(float(dtype.min), x.sort()))
    above = z3.fpGEQ(x, z3.FPVal(2.0 ** (bits - signed), x.sort()))
    return z3.If(z3.fpIsNaN(x), z3.BitVecVal(0, bits), z3.If(below, low, z3.If(above, high, inside)))


def _less_word(u: UOp, a: z3.ExprRef, b: z3.ExprRef) -> z3.BoolRef:
    if z3.is_fp(a):
        return z3.fpLT(a, b)
    return a < b if u.src[0].dtype.is_signed else z3.ULT(a, b)


def differ(a: z3.ExprRef, b: z3.ExprRef) -> z3.BoolRef:
    """That two terms are told apart: down to the sign of zero, any NaN being like any other."""
    if z3.is_fp(a):
        alike = z3.And(z3.fpEQ(a, b), z3.fpIsNegative(a) == z3.fpIsNegative(b))
        return z3.Not(z3.Or(z3.And(z3.fpIsNaN(a), z3.fpIsNaN(b)), alike))
    return a != b
