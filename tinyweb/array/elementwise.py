"""Methods that work on each element: arithmetic with broadcasting and promotion, comparisons, functions, casts."""

from __future__ import annotations

import math
from typing import Any, Self, TypeAlias

from tinyweb.array.core import Scalar, TensorCore
from tinyweb.array.movement import Movement, broadcast_shapes
from tinyweb.dtype import DType, dtypes, promote
from tinyweb.graph.ir import COMPARISON, Ops, UOp

Flag: TypeAlias = bool  # within the class, bool is a method


class Elementwise(Movement):
    """Everything that maps elements to elements."""

    __slots__ = ()

    # -- operands -----------------------------------------------------------------------------------------------------
    def _pair(self, other: Any, method: str) -> tuple[Self, Self]:
        """Both operands broadcast to one shape and promoted to one dtype.

        Python numbers take the tensor's dtype where it can hold their kind.
        """
        if isinstance(other, TensorCore):
            if other.device != self.device:
                raise ValueError(f"{method}: tensors live on {self.device} and {other.device}: move one with .to()")
            o = self._new(other.uop)
        elif isinstance(other, bool | int | float | UOp):
            o = self._new(self._literal(other))
        else:
            o = type(self)(other, device=self.device)
        dtype = promote(self.dtype, o.dtype)
        shape = broadcast_shapes(method, self.shape, o.shape)
        return self._operand(dtype, shape), o._operand(dtype, shape)

    def _literal(self, value: Scalar | UOp) -> UOp:
        if isinstance(value, UOp):
            return value.cast(dtypes.int32)
        if isinstance(value, bool):
            return UOp.const(value, dtypes.bool)
        if isinstance(value, float) and not self.dtype.is_float:
            return UOp.const(value, dtypes.float32)
        if self.dtype.kind == "bool":
            return UOp.const(value, dtypes.int32)
        return UOp.const(value, self.dtype)

    def _operand(self, dtype: DType, shape: Any) -> Self:
        t = self.cast(dtype)
        return t if not t.shape and t.uop.op in (Ops.CONST, Ops.VARIABLE, Ops.BIND) else t._broadcast_to(shape)

    def _binary(self, op: Ops, other: Any, method: str, reverse: Flag = False) -> Self:
        a, b = self._pair(other, method)
        if reverse:
            a, b = b, a
        dtype = dtypes.bool if op in COMPARISON else a.dtype
        return self._new(UOp(op, dtype, (a.uop, b.uop)))

    def _unary(self, op: Ops) -> Self:
        """A function of floats; integers are taken as float32."""
        x = self if self.dtype.is_float else self.cast(dtypes.float32)
        return x._new(UOp(op, x.dtype, (x.uop,)))

    # -- casts --------------------------------------------------------------------------------------------------------
    def cast(self, dtype: DType) -> Self:
        """Values converted to `dtype` (floats to integers by truncation)."""
        if not isinstance(dtype, DType):
            raise TypeError(f"cast: expected one of tinyweb.dtypes, got {dtype!r}")
        return self if dtype is self.dtype else self._new(UOp(Ops.CAST, dtype, (self.uop,)))

    def type(self, dtype: DType) -> Self:
        return self.cast(dtype)

    def bitcast(self, dtype: DType) -> Self:
        """The same bits as another dtype of the same width."""
        if dtype.bits != self.dtype.bits:
            raise ValueError(f"bitcast: {self.dtype.name} has {self.dtype.bits} bits, {dtype.name} has {dtype.bits}")
        return self if dtype is self.dtype else self._new(UOp(Ops.BITCAST, dtype, (self.uop,)))

    def float(self) -> Self:
        return self.cast(dtypes.float32)

    def half(self) -> Self:
        return self.cast(dtypes.float16)

    def int(self) -> Self:
        return self.cast(dtypes.int32)

    def bool(self) -> Self:
        return self.cast(dtypes.bool)

    # -- arithmetic ---------------------------------------------------------------------------------------------------
    def add(self, o: Any, reverse: Flag = False) -> Self:
        a, b = self._pair(o, "add")
        if a.dtype.kind == "bool":
            return a._binary(Ops.OR, b, "add")
        return self._new(UOp(Ops.ADD, a.dtype, (b.uop, a.uop) if reverse else (a.uop, b.uop)))

    def mul(self, o: Any, reverse: Flag = False) -> Self:
        a, b = self._pair(o, "mul")
        if a.dtype.kind == "bool":
            return a._binary(Ops.AND, b, "mul")
        return self._new(UOp(Ops.MUL, a.dtype, (b.uop, a.uop) if reverse else (a.uop, b.uop)))

    def neg(self) -> Self:
        if self.dtype.kind == "bool":
            raise TypeError("neg: booleans have no negative: use logical_not")
        return self._new(UOp(Ops.NEG, self.dtype, (self.uop,)))

    def sub(self, o: Any, reverse: Flag = False) -> Self:
        a, b = self._pair(o, "sub")
        if a.dtype.kind == "bool":
            raise TypeError("sub: booleans cannot be subtracted: use ^ or logical_not")
        return b.add(a.neg()) if reverse else a.add(b.neg())

    def div(self, o: Any, reverse: Flag = False) -> Self:
        """True division; integers give float32."""
        a, b = self._pair(o, "div")
        if not a.dtype.is_float:
            a, b = a.cast(dtypes.float32), b.cast(dtypes.float32)
        if reverse:
            a, b = b, a
        return self._new(UOp(Ops.DIV, a.dtype, (a.uop, b.uop)))

    def floordiv(self, o: Any, reverse: Flag = False) -> Self:
        """Division rounded to minus infinity."""
        a, b = self._pair(o, "floordiv")
        if reverse:
            a, b = b, a
        if a.dtype.is_float:
            return a.div(b).floor()
        return self._new(UOp(Ops.FLOORDIV, a.dtype, (a.uop, b.uop)))

    def mod(self, o: Any, reverse: Flag = False) -> Self:
        """The remainder with the sign of the divisor."""
        a, b = self._pair(o, "mod")
        if reverse:
            a, b = b, a
        if a.dtype.is_float:
            return a.sub(a.div(b).floor().mul(b))
        return self._new(UOp(Ops.MOD, a.dtype, (a.uop, b.uop)))

    def maximum(self, o: Any) -> Self:
        return self._binary(Ops.MAX, o, "maximum")

    def minimum(self, o: Any) -> Self:
        a, b = self._pair(o, "minimum")
        if a.dtype.kind == "bool":
            return a._binary(Ops.AND, b, "minimum")
        if a.dtype.is_float:
            return a.neg().maximum(b.neg()).neg()
        # the complement reverses the order of integers of both kinds without overflow
        return a.bitwise_not().maximum(b.bitwise_not()).bitwise_not()

    def clamp(self, min: Any = None, max: Any = None) -> Self:
        if min is None and max is None:
            raise ValueError("clamp: give a minimum, a maximum or both")
        x = self if min is None else self.maximum(min)
        return x if max is None else x.minimum(max)

    clip = clamp

    def pow(self, o: Any, reverse: Flag = False) -> Self:
        """Power; whole and half exponents given as numbers are exact products and roots."""
        if not reverse and isinstance(o, int | float) and not isinstance(o, bool):
            if o == int(o) and 0 <= abs(o) <= 16:
                n = abs(int(o))
                out = self._new(UOp.const(1, self.dtype))._broadcast_to(self.shape)
                square = self
                while n:
                    if n & 1:
                        out = out.mul(square)
                    n >>= 1
                    if n:
                        square = square.mul(square)
                return out if o >= 0 else out.reciprocal()
            if o == 0.5:
                return self.sqrt()
            if o == -0.5:
                return self.rsqrt()
        a, b = self._pair(o, "pow")
        if reverse:
            a, b = b, a
        as_int = not a.dtype.is_float
        base, e = (a.float(), b.float()) if as_int else (a, b)
        magnitude = base.abs().log2().mul(e).exp2()
        odd = e.mod(2.0).equal(1.0)
        whole = e.floor().equal(e)
        signed = (base.less(0)).where(odd.where(magnitude.neg(), whole.where(magnitude, math.nan)), magnitude)
        result = e.equal(0).where(1.0, signed)
        return result.round().cast(a.dtype) if as_int else result

    def reciprocal(self) -> Self:
        return self._unary(Ops.RECIPROCAL)

    def abs(self) -> Self:
        return self if self.dtype.kind in ("uint", "bool") else self.maximum(self.neg())

    def sign(self) -> Self:
        one, none = self._new(UOp.const(1, self.dtype)), self._new(UOp.const(0, self.dtype))
        negative = one if self.dtype.kind in ("uint", "bool") else one.neg()
        return self.equal(0).where(none, self.less(0).where(negative, one))

    def lerp(self, end: Any, weight: Any) -> Self:
        return self.add(self._pair(end, "lerp")[1].sub(self).mul(weight))

    def square(self) -> Self:
        return self.mul(self)

    # -- bits ---------------------------------------------------------------------------------------------------------
    def bitwise_and(self, o: Any) -> Self:
        return self._binary(Ops.AND, o, "bitwise_and")

    def bitwise_or(self, o: Any) -> Self:
        return self._binary(Ops.OR, o, "bitwise_or")

    def bitwise_xor(self, o: Any) -> Self:
        return self._binary(Ops.XOR, o, "bitwise_xor")

    def bitwise_not(self) -> Self:
        if self.dtype.kind == "bool":
            return self.bitwise_xor(True)
        ones = -1 if self.dtype.is_signed else self.dtype.max
        return self.bitwise_xor(self._new(UOp.const(ones, self.dtype)))

    def lshift(self, n: Any) -> Self:
        return self._binary(Ops.SHL, n, "lshift")

    def rshift(self, n: Any) -> Self:
        return self._binary(Ops.SHR, n, "rshift")

    # -- comparisons --------------------------------------------------------------------------------------------------
    def less(self, o: Any) -> Self:
        return self._binary(Ops.LESS, o, "less")

    def greater(self, o: Any) -> Self:
        return self._binary(Ops.LESS, o, "greater", reverse=True)

    def equal(self, o: Any) -> Self:
        return self._binary(Ops.EQUAL, o, "equal")

    def not_equal(self, o: Any) -> Self:
        return self.equal(o).logical_not()

    def logical_not(self) -> Self:
        return self.bool().bitwise_xor(True)

    def logical_and(self, o: Any) -> Self:
        a, b = self._pair(o, "logical_and")
        return a.bool().bitwise_and(b.bool())

    def logical_or(self, o: Any) -> Self:
        a, b = self._pair(o, "logical_or")
        return a.bool().bitwise_or(b.bool())

    def isnan(self) -> Self:
        return self.not_equal(self)

    def isinf(self) -> Self:
        return self.abs().equal(math.inf) if self.dtype.is_float else self.not_equal(self)

    def where(self, a: Any, b: Any) -> Self:
        """`a` where this (boolean) tensor is true, else `b`."""
        condition = self.bool()
        x = a if isinstance(a, TensorCore) else None
        y = b if isinstance(b, TensorCore) else None
        if x is None and y is not None:
            ty = self._new(y.uop)
            tx = self._new(ty._literal(a)) if isinstance(a, bool | int | float) else type(self)(a, device=self.device)
        elif x is not None and y is None:
            tx = self._new(x.uop)
            ty = self._new(tx._literal(b)) if isinstance(b, bool | int | float) else type(self)(b, device=self.device)
        else:
            tx, ty = type(self)(a, device=self.device), type(self)(b, device=self.device)
        dtype = promote(tx.dtype, ty.dtype)
        shape = broadcast_shapes("where", condition.shape, tx.shape, ty.shape)
        parts = (condition._operand(dtypes.bool, shape), tx._operand(dtype, shape), ty._operand(dtype, shape))
        return self._new(UOp(Ops.WHERE, dtype, tuple(p.uop for p in parts)))

    def masked_fill(self, mask: TensorCore, value: Any) -> Self:
        return self._new(mask.uop).where(value, self)

    # -- functions ----------------------------------------------------------------------------------------------------
    def exp2(self) -> Self:
        return self._unary(Ops.EXP2)

    def log2(self) -> Self:
        return self._unary(Ops.LOG2)

    def sqrt(self) -> Self:
        return self._unary(Ops.SQRT)

    def rsqrt(self) -> Self:
        return self.sqrt().reciprocal()

    def sin(self) -> Self:
        return self._unary(Ops.SIN)

    def cos(self) -> Self:
        return (math.pi / 2 - (self if self.dtype.is_float else self.float())).sin()

    def tan(self) -> Self:
        return self.sin().div(self.cos())

    def exp(self) -> Self:
        return (self if self.dtype.is_float else self.float()).mul(1 / math.log(2)).exp2()

    def log(self) -> Self:
        return self.log2().mul(math.log(2))

    def log1p(self) -> Self:
        return self.add(1.0).log()

    def floor(self) -> Self:
        return self if not self.dtype.is_float else self._unary(Ops.FLOOR)

    def trunc(self) -> Self:
        return self if not self.dtype.is_float else self._unary(Ops.TRUNC)

    def ceil(self) -> Self:
        return self if not self.dtype.is_float else self.neg().floor().neg()

    def round(self) -> Self:
        """To the nearest integer, halves to the even one."""
        if not self.dtype.is_float:
            return self
        down = self.floor()
        rest = self.sub(down)
        up = rest.greater(0.5).logical_or(rest.equal(0.5).logical_and(down.mod(2.0).equal(1.0)))
        return up.where(down.add(1.0), down)

    def sigmoid(self) -> Self:
        return self.neg().exp().add(1.0).reciprocal()

    def tanh(self) -> Self:
        return self.mul(2.0).sigmoid().mul(2.0).sub(1.0)

    # -- operators ----------------------------------------------------------------------------------------------------
    def __neg__(self) -> Self:
        return self.neg()

    def __abs__(self) -> Self:
        return self.abs()

    def __invert__(self) -> Self:
        return self.bitwise_not()

    def __add__(self, o: Any) -> Self:
        return self.add(o)

    def __radd__(self, o: Any) -> Self:
        return self.add(o, True)

    def __sub__(self, o: Any) -> Self:
        return self.sub(o)

    def __rsub__(self, o: Any) -> Self:
        return self.sub(o, True)

    def __mul__(self, o: Any) -> Self:
        return self.mul(o)

    def __rmul__(self, o: Any) -> Self:
        return self.mul(o, True)

    def __truediv__(self, o: Any) -> Self:
        return self.div(o)

    def __rtruediv__(self, o: Any) -> Self:
        return self.div(o, True)

    def __floordiv__(self, o: Any) -> Self:
        return self.floordiv(o)

    def __rfloordiv__(self, o: Any) -> Self:
        return self.floordiv(o, True)

    def __mod__(self, o: Any) -> Self:
        return self.mod(o)

    def __rmod__(self, o: Any) -> Self:
        return self.mod(o, True)

    def __pow__(self, o: Any) -> Self:
        return self.pow(o)

    def __rpow__(self, o: Any) -> Self:
        return self.pow(o, True)

    def __and__(self, o: Any) -> Self:
        return self.bitwise_and(o)

    def __or__(self, o: Any) -> Self:
        return self.bitwise_or(o)

    def __xor__(self, o: Any) -> Self:
        return self.bitwise_xor(o)

    def __lshift__(self, o: Any) -> Self:
        return self.lshift(o)

    def __rshift__(self, o: Any) -> Self:
        return self.rshift(o)

    def __lt__(self, o: Any) -> Self:
        return self.less(o)

    def __gt__(self, o: Any) -> Self:
        return self.greater(o)

    def __le__(self, o: Any) -> Self:
        return self.less(o).logical_or(self.equal(o))

    def __ge__(self, o: Any) -> Self:
        return self.greater(o).logical_or(self.equal(o))

    def __eq__(self, o: Any) -> Self:  # type: ignore[override]
        return self.equal(o)

    def __ne__(self, o: Any) -> Self:  # type: ignore[override]
        return self.not_equal(o)

    __hash__ = TensorCore.__hash__
