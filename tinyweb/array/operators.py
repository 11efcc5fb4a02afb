"""Python's operators on tensors."""

from __future__ import annotations

from typing import Any, Self

from tinyweb.array.core import TensorCore
from tinyweb.array.division import Division


class Operators(Division):
    """+ - * / // % ** & | ^ ~ << >> < <= > >= == !=, with numbers on either side."""

    __slots__ = ()

    def __neg__(self) -> Self:
        return self.neg()

    def __pos__(self) -> Self:
        return self.positive()

    def __abs__(self) -> Self:
        return self.abs()

    def __invert__(self) -> Self:
        return self.bitwise_not()

    def __round__(self, digits: int = 0) -> Self:
        return self.round(digits)

    def __add__(self, o: Any) -> Self:
        return self.add(o)

    def __radd__(self, o: Any) -> Self:
        return self._operand(o, "add").add(self)

    def __sub__(self, o: Any) -> Self:
        return self.sub(o)

    def __rsub__(self, o: Any) -> Self:
        return self.rsub(o)

    def __mul__(self, o: Any) -> Self:
        return self.mul(o)

    def __rmul__(self, o: Any) -> Self:
        return self._operand(o, "mul").mul(self)

    def __truediv__(self, o: Any) -> Self:
        return self.div(o)

    def __rtruediv__(self, o: Any) -> Self:
        return self._operand(o, "div").div(self)

    def __floordiv__(self, o: Any) -> Self:
        return self.floor_divide(o)

    def __rfloordiv__(self, o: Any) -> Self:
        return self._operand(o, "floor_divide").floor_divide(self)

    def __mod__(self, o: Any) -> Self:
        return self.remainder(o)

    def __rmod__(self, o: Any) -> Self:
        return self._operand(o, "remainder").remainder(self)

    def __divmod__(self, o: Any) -> tuple[Self, Self]:
        return self.floor_divide(o), self.remainder(o)

    def __pow__(self, o: Any) -> Self:
        return self.pow(o)

    def __rpow__(self, o: Any) -> Self:
        return (
            self.exp2()
            if isinstance(o, int | float) and o == 2 and self.dtype.is_float
            else self._operand(o, "pow").pow(self)
        )

    def __and__(self, o: Any) -> Self:
        return self.bitwise_and(o)

    def __rand__(self, o: Any) -> Self:
        return self.bitwise_and(o)

    def __or__(self, o: Any) -> Self:
        return self.bitwise_or(o)

    def __ror__(self, o: Any) -> Self:
        return self.bitwise_or(o)

    def __xor__(self, o: Any) -> Self:
        return self.bitwise_xor(o)

    def __rxor__(self, o: Any) -> Self:
        return self.bitwise_xor(o)

    def __lshift__(self, o: Any) -> Self:
        return self.bitwise_left_shift(o)

    def __rlshift__(self, o: Any) -> Self:
        return self._operand(o, "bitwise_left_shift").bitwise_left_shift(self)

    def __rshift__(self, o: Any) -> Self:
        return self.bitwise_right_shift(o)

    def __rrshift__(self, o: Any) -> Self:
        return self._operand(o, "bitwise_right_shift").bitwise_right_shift(self)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_int:
            raise TypeError(f"only integer tensors of one element can be an index, got {self.dtype.name}")
        return int(self.item())

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        if self.shape:
            raise TypeError(
                f"format: {spec!r} is for one number, not for a tensor of shape {self.shape}: use .tolist()"
            )
        return format(self.item(), spec)

    def __lt__(self, o: Any) -> Self:
        return self.less(o)

    def __gt__(self, o: Any) -> Self:
        return self.greater(o)

    def __le__(self, o: Any) -> Self:
        return self.less_equal(o)

    def __ge__(self, o: Any) -> Self:
        return self.greater_equal(o)

    def __eq__(self, o: Any) -> Self:  # type: ignore[override]
        # what is no number at all is not equal, as Python has it
        return NotImplemented if o is None or isinstance(o, str) else self.eq(o)

    def __ne__(self, o: Any) -> Self:  # type: ignore[override]
        return NotImplemented if o is None or isinstance(o, str) else self.ne(o)

    __hash__ = TensorCore.__hash__

    # NumPy arrays and numbers on the left leave the operation to the tensor
    __array_priority__ = 1000
    __array_ufunc__ = None
