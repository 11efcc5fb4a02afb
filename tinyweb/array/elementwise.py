"""Methods that work on each element: operands, casts, arithmetic with broadcasting and promotion, bits, comparisons."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

import numpy as np

from tinyweb.array.bits import reinterpret
from tinyweb.array.core import Scalar, TensorCore, leaf
from tinyweb.array.movement import Movement, broadcast_shapes
from tinyweb.array.packing import check_fits
from tinyweb.device import uncollected
from tinyweb.dtype import DType, DTypeLike, dtypes, promote, to_dtype
from tinyweb.graph.ir import COMPARISON, Ops, Size, UOp, substitute

Flag: TypeAlias = bool  # within the class, bool, int and float are methods
Whole: TypeAlias = int
Real: TypeAlias = "int | float"


class Elementwise(Movement):
    """Arithmetic, bits, comparisons, choices and casts."""

    __slots__ = ()

    # -- operands -----------------------------------------------------------------------------------------------------
    def _operand(self, other: Any, method: str) -> Self:
        """`other` as a tensor on this device. A Python number takes this dtype, but a float makes float32 of integers;
        ValueError for a whole number that this dtype cannot hold."""
        if isinstance(other, np.generic):
            other = other.item()
        if isinstance(other, bool | int | float | UOp):
            try:
                return self._new(self._literal(other))
            except ValueError as e:
                raise ValueError(f"{method}: {e}") from None
        try:
            o = other if isinstance(other, TensorCore) else type(self)(other, device=self.device)
        except TypeError as e:
            raise TypeError(f"{method}: {e}") from None
        if o.device != self.device:
            raise ValueError(f"{method}: tensors live on {self.device} and {o.device}: move one with .to()")
        return self._new(o.uop)

    def _literal(self, value: Scalar | UOp) -> UOp:
        if isinstance(value, UOp):
            return value.cast(dtypes.int32)
        dtype = promote(self.dtype, type(value))
        check_fits(value, dtype)
        return UOp.const(value, dtype)

    def _together(self, method: str, *others: Any) -> list[Self]:
        """This tensor and `others` broadcast to one shape and promoted to one dtype."""
        parts = [self, *(self._operand(o, method) for o in others)]
        dtype = promote(*(p.dtype for p in parts))
        shape = broadcast_shapes(method, *(p.shape for p in parts))
        return [p._spread(dtype, shape) for p in parts]

    def _pair(self, other: Any, method: str) -> tuple[Self, Self]:
        """Both operands broadcast to one shape and promoted to one dtype."""
        a, b = self._together(method, other)
        return a, b

    def _spread(self, dtype: DType, shape: Any) -> Self:
        t = self.cast(dtype)
        return t if not t.shape and t.uop.op in (Ops.CONST, Ops.VARIABLE, Ops.BIND) else t._broadcast_to(shape)

    def _binary(self, op: Ops, other: Any, method: str) -> Self:
        a, b = self._pair(other, method)
        return a._new(UOp(op, a.dtype, (a.uop, b.uop)))

    def _unary(self, op: Ops) -> Self:
        """A function of floats; integers are taken as float32."""
        x = self._floating()
        return x._new(UOp(op, x.dtype, (x.uop,)))

    def _floating(self) -> Self:
        return self if self.dtype.is_float else self.cast(dtypes.float32)

    def _constant(self, value: Scalar) -> Self:
        """A number of this dtype, of shape ()."""
        return self._new(UOp.const(value, self.dtype))

    def _with_gradients(self, inputs: Sequence[Self], rule: Callable[[Self], Sequence[Self]]) -> Self:
        """This value, whose gradients with respect to `inputs` are rule(gradient that arrives), in their order, instead
        of those of the expression it was computed by."""
        upstream = self._new(leaf(self._constant(0)._broadcast_to(self.shape).uop))
        pairs = [part.uop for pair in zip(inputs, rule(upstream), strict=True) for part in pair]
        if not self.dtype.is_float:
            return self
        return self._new(UOp(Ops.CUSTOM_GRADIENT, self.dtype, (self.uop, upstream.uop, *pairs)))

    def _with_later_gradients(self, inputs: Sequence[Self], rule: Callable[..., Sequence[Self]]) -> Self:
        """As `_with_gradients`, of rule(*inputs, gradient that arrives), which is called once gradients are asked for:
        for rules that take long to write down. It may refer to no other tensors."""
        if not self.dtype.is_float:
            return self
        new = functools.partial(self._wrap, device=self.device)

        def later(nodes: Sequence[UOp], upstream: UOp) -> list[UOp]:
            return [g.uop for g in rule(*map(new, nodes), new(upstream))]

        return self._new(UOp(Ops.CUSTOM_GRADIENT, self.dtype, (self.uop, *(x.uop for x in inputs)), later))

    def _repeated(self, times: int, step: Callable[[Self], Self]) -> Self:
        """What `step` makes of this value in memory, and of its results after that, so many times. The step is called
        once: its nodes are then made anew for each time."""
        if times < 1:
            return self
        before, node = leaf(self.uop), self.uop
        made = step(self._new(before)).uop
        with uncollected():
            for _ in range(times):
                node = substitute(made, {before: UOp(Ops.CONTIGUOUS, self.dtype, (node,))})
        return self._new(node)

    def detach(self) -> Self:
        """The same value, through which no gradient flows."""
        return self._new(UOp(Ops.DETACH, self.dtype, (self.uop,)))

    # -- facts --------------------------------------------------------------------------------------------------------
    def is_floating_point(self) -> Flag:
        """Whether the dtype is a float."""
        return self.dtype.is_float

    @property
    def itemsize(self) -> Whole:
        """Bytes of one element."""
        return self.dtype.itemsize

    def nelement(self) -> Size:
        """The number of elements."""
        return self.numel()

    def ndimension(self) -> Whole:
        """The number of axes."""
        return self.ndim

    def is_signed(self) -> Flag:
        """Whether the dtype has negative numbers."""
        return self.dtype.is_signed

    # -- casts --------------------------------------------------------------------------------------------------------
    def cast(self, dtype: DTypeLike) -> Self:
        """Values converted to `dtype` (floats to integers by truncation)."""
        dtype = to_dtype(dtype)
        return self if dtype is self.dtype else self._new(UOp(Ops.CAST, dtype, (self.uop,)))

    def type(self, dtype: DTypeLike) -> Self:
        """The same as `cast`."""
        return self.cast(dtype)

    def type_as(self, other: TensorCore) -> Self:
        """Values converted to the dtype of `other`."""
        return self.cast(other.dtype)

    def bitcast(self, dtype: DTypeLike) -> Self:
        """The same bits as another dtype; where it has another width the last axis grows or shrinks by the ratio.

        ValueError where the last axis does not hold whole elements of the dtype.
        """
        return self._new(reinterpret(self.uop, to_dtype(dtype), "bitcast"))

    def float(self) -> Self:
        """Values as float32."""
        return self.cast(dtypes.float32)

    def double(self) -> Self:
        """Values as float64."""
        return self.cast(dtypes.float64)

    def half(self) -> Self:
        """Values as float16."""
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Values as bfloat16."""
        return self.cast(dtypes.bfloat16)

    def int(self) -> Self:
        """Values as int32."""
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """Values as int64."""
        return self.cast(dtypes.int64)

    def short(self) -> Self:
        """Values as int16."""
        return self.cast(dtypes.int16)

    def char(self) -> Self:
        """Values as int8."""
        return self.cast(dtypes.int8)

    def byte(self) -> Self:
        """Values as uint8."""
        return self.cast(dtypes.uint8)

    def bool(self) -> Self:
        """Whether values differ from 0."""
        return self.cast(dtypes.bool)

    # -- arithmetic ---------------------------------------------------------------------------------------------------
    def add(self, other: Any, alpha: Real = 1) -> Self:
        """self + alpha · other; of two booleans: or."""
        a, b = self._pair(other, "add")
        if a.dtype.kind == "bool":
            return a._binary(Ops.OR, b, "add")
        return a._binary(Ops.ADD, b if alpha == 1 else b.mul(alpha), "add")

    def mul(self, other: Any) -> Self:
        """self · other; of two booleans: and."""
        a, b = self._pair(other, "mul")
        return a._binary(Ops.AND if a.dtype.kind == "bool" else Ops.MUL, b, "mul")

    multiply = mul

    def neg(self) -> Self:
        """-self. TypeError for booleans."""
        if self.dtype.kind == "bool":
            raise TypeError("neg: booleans have no negative: use logical_not")
        return self._new(UOp(Ops.NEG, self.dtype, (self.uop,)))

    negative = neg

    def positive(self) -> Self:
        """self. TypeError for booleans."""
        if self.dtype.kind == "bool":
            raise TypeError("positive: booleans have no sign")
        return self

    def sub(self, other: Any, alpha: Real = 1) -> Self:
        """self - alpha · other. TypeError for two booleans."""
        a, b = self._pair(other, "sub")
        if a.dtype.kind == "bool":
            raise TypeError("sub: booleans cannot be subtracted: use ^ or logical_not")
        return a.add((b if alpha == 1 else b.mul(alpha)).neg())

    subtract = sub

    def rsub(self, other: Any, alpha: Real = 1) -> Self:
        """other - alpha · self."""
        a, b = self._pair(other, "rsub")
        return b.sub(a, alpha)

    def _divide(self, other: Any) -> Self:
        a, b = (t._floating() for t in self._pair(other, "div"))
        return a._new(UOp(Ops.DIV, a.dtype, (a.uop, b.uop)))

    def square(self) -> Self:
        """self · self; of booleans int32."""
        x = self.int() if self.dtype.kind == "bool" else self
        return x.mul(x)

    def reciprocal(self) -> Self:
        """1 / self; of integers in float32."""
        return self._unary(Ops.RECIPROCAL)

    def abs(self) -> Self:
        """The magnitude, +0 of both zeros; the gradient at 0 is 0."""
        if self.dtype.kind in ("uint", "bool"):
            return self._same()
        if self.dtype.is_int:
            return self.maximum(self.neg())
        # not max(x, -x): of zeros with different signs either may be the larger one
        return self.equal(0).where(0, self.less(0).where(self.neg(), self))

    absolute = abs

    def maximum(self, other: Any) -> Self:
        """The larger of two, NaN if either is; equal operands share the gradient."""
        return self._binary(Ops.MAX, other, "maximum")

    def minimum(self, other: Any) -> Self:
        """The smaller of two, NaN if either is; equal operands share the gradient."""
        a, b = self._pair(other, "minimum")
        if a.dtype.kind == "bool":
            return a._binary(Ops.AND, b, "minimum")
        if a.dtype.is_float:
            return a.neg().maximum(b.neg()).neg()
        # the complement reverses the order of integers of both kinds without overflow
        return a.bitwise_not().maximum(b.bitwise_not()).bitwise_not()

    # -- bits ---------------------------------------------------------------------------------------------------------
    def _bits(self, op: Ops, other: Any, method: str) -> Self:
        a, b = self._pair(other, method)
        if a.dtype.is_float:
            raise TypeError(f"{method}: floats have no bitwise operations, got {self.dtype.name} and {b.dtype.name}")
        return a._binary(op, b, method)

    def bitwise_and(self, other: Any) -> Self:
        """The bits that both have; of booleans: and. TypeError for floats."""
        return self._bits(Ops.AND, other, "bitwise_and")

    def bitwise_or(self, other: Any) -> Self:
        """The bits that either has; of booleans: or. TypeError for floats."""
        return self._bits(Ops.OR, other, "bitwise_or")

    def bitwise_xor(self, other: Any) -> Self:
        """The bits that just one of them has. TypeError for floats."""
        return self._bits(Ops.XOR, other, "bitwise_xor")

    def bitwise_not(self) -> Self:
        """All bits inverted; of booleans: not. TypeError for floats."""
        if self.dtype.kind == "bool":
            return self._binary(Ops.XOR, True, "bitwise_not")
        return self._bits(Ops.XOR, -1 if self.dtype.is_signed else self.dtype.max, "bitwise_not")

    def bitwise_left_shift(self, other: Any) -> Self:
        """The bits moved to higher places. TypeError for floats."""
        return self._bits(Ops.SHL, other, "bitwise_left_shift")

    def bitwise_right_shift(self, other: Any) -> Self:
        """The bits moved to lower places, the sign kept. TypeError for floats."""
        return self._bits(Ops.SHR, other, "bitwise_right_shift")

    lshift, rshift = bitwise_left_shift, bitwise_right_shift

    # -- comparisons --------------------------------------------------------------------------------------------------
    def _compare(self, op: Ops, other: Any, method: str, reverse: Flag = False) -> Self:
        assert op in COMPARISON
        d = self.dtype
        if isinstance(other, int) and not isinstance(other, Flag) and d.is_int and not d.min <= other <= d.max:
            # a number that this dtype cannot hold is larger (smaller) than all that it holds
            answer = op is Ops.LESS and (other > 0) is not reverse
            return self._new(UOp.const(answer, dtypes.bool))._broadcast_to(self.shape)
        a, b = self._pair(other, method)
        if reverse:
            a, b = b, a
        return a._new(UOp(op, dtypes.bool, (a.uop, b.uop)))

    def less(self, other: Any) -> Self:
        """self < other, elementwise, as bool; False for NaN."""
        return self._compare(Ops.LESS, other, "less")

    def greater(self, other: Any) -> Self:
        """self > other, elementwise, as bool; False for NaN."""
        return self._compare(Ops.LESS, other, "greater", reverse=True)

    def eq(self, other: Any) -> Self:
        """self == other, elementwise, as bool; False for NaN."""
        return self._compare(Ops.EQUAL, other, "eq")

    def ne(self, other: Any) -> Self:
        """self != other, elementwise, as bool; True for NaN."""
        return self.eq(other).logical_not()

    def less_equal(self, other: Any) -> Self:
        """self <= other, elementwise, as bool; False for NaN."""
        return self._compare(Ops.LESS, other, "less_equal").logical_or(self._compare(Ops.EQUAL, other, "less_equal"))

    def greater_equal(self, other: Any) -> Self:
        """self >= other, elementwise, as bool; False for NaN."""
        more = self._compare(Ops.LESS, other, "greater_equal", reverse=True)
        return more.logical_or(self._compare(Ops.EQUAL, other, "greater_equal"))

    lt, gt, le, ge = less, greater, less_equal, greater_equal
    equal, not_equal = eq, ne

    # -- logic --------------------------------------------------------------------------------------------------------
    def logical_not(self) -> Self:
        """True where an element is 0."""
        return self.bool().bitwise_xor(True)

    def _logic(self, op: Ops, other: Any, method: str) -> Self:
        a, b = self._pair(other, method)
        return a.bool()._binary(op, b.bool(), method)

    def logical_and(self, other: Any) -> Self:
        """True where neither is 0."""
        return self._logic(Ops.AND, other, "logical_and")

    def logical_or(self, other: Any) -> Self:
        """True where not both are 0."""
        return self._logic(Ops.OR, other, "logical_or")

    def logical_xor(self, other: Any) -> Self:
        """True where just one is 0."""
        return self._logic(Ops.XOR, other, "logical_xor")

    # -- choice -------------------------------------------------------------------------------------------------------
    def where(self, a: Any, b: Any) -> Self:
        """`a` where this condition is true (not 0), else `b`: `condition.where(a, b)`, `Tensor.where(condition, a, b)`.

        All three broadcast; the dtype is the common one of `a` and `b`, where Python's numbers give way.
        """
        if not isinstance(self, TensorCore):
            raise TypeError(f"where: the condition must be a tensor, got {type(self).__name__}")
        condition = self.bool()
        if isinstance(a, TensorCore | np.ndarray | Sequence):
            x = condition._operand(a, "where")
            y = x._operand(b, "where")
        elif isinstance(b, TensorCore | np.ndarray | Sequence):
            y = condition._operand(b, "where")
            x = y._operand(a, "where")
        else:
            x, y = condition._operand(a, "where"), condition._operand(b, "where")
        dtype = promote(x.dtype, y.dtype)
        shape = broadcast_shapes("where", condition.shape, x.shape, y.shape)
        parts = (condition._spread(dtypes.bool, shape), x._spread(dtype, shape), y._spread(dtype, shape))
        return self._new(UOp(Ops.WHERE, dtype, tuple(p.uop for p in parts)))

    def masked_fill(self, mask: TensorCore, value: Any) -> Self:
        """`value` (a number or a tensor of shape ()) where the boolean `mask` is true, in this tensor's dtype."""
        if mask.dtype is not dtypes.bool:
            raise TypeError(f"masked_fill: the mask must be bool, got {mask.dtype.name}")
        filled = self._operand(value, "masked_fill")
        if filled.shape:
            raise ValueError(f"masked_fill: the value must be a number or of shape (), got {filled.shape}")
        return self._new(mask.uop).where(filled.cast(self.dtype), self)
