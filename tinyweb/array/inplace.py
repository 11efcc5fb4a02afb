"""In-place forms: `x += y`, `x.add_(y)`: the method's result is written into the tensor's memory (see `assign`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tinyweb.array.core import TensorCore
from tinyweb.array.differentiation import Differentiation

_RANKS = {"bool": 0, "uint": 1, "int": 1}  # floats: 2


def _form(name: str) -> Callable[..., Any]:
    """The in-place form of the method `name`."""

    def method(self: InPlace, *args: Any, **keywords: Any) -> InPlace:
        return self._become(f"{name}_", getattr(self, name)(*args, **keywords))

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"`{name}`, written into this tensor's memory; returns the tensor."
    return method


class InPlace(Differentiation):
    """Methods that end in _ and the augmented operators. The tensor keeps its shape and dtype, as in PyTorch: TypeError
    where a float would have to become an integer, or an integer a bool; ValueError where the result is larger."""

    __slots__ = ()

    def _become(self, method: str, value: TensorCore) -> Self:
        if _RANKS.get(value.dtype.kind, 2) > _RANKS.get(self.dtype.kind, 2):
            raise TypeError(
                f"{method}: the result is {value.dtype.name}, which this {self.dtype.name} tensor cannot hold"
            )
        return self._update(method, value)

    def copy_(self, source: Any) -> Self:
        """Write `source` (broadcast to this shape, cast to this dtype) into this tensor's memory."""
        x = source if isinstance(source, TensorCore) else type(self)(source, dtype=self.dtype, device=self.device)
        return self._update("copy_", x)

    def fill_(self, value: Any) -> Self:
        """Write one number everywhere."""
        return self._update("fill_", type(self)(value, dtype=self.dtype, device=self.device))

    def zero_(self) -> Self:
        """Write zeros everywhere."""
        return self.fill_(0)

    __iadd__ = add_ = _form("add")
    __isub__ = sub_ = _form("sub")
    __imul__ = mul_ = _form("mul")
    __itruediv__ = div_ = _form("div")
    __ifloordiv__ = floor_divide_ = _form("floor_divide")
    __imod__ = remainder_ = _form("remainder")
    __ipow__ = pow_ = _form("pow")
    __iand__ = bitwise_and_ = _form("bitwise_and")
    __ior__ = bitwise_or_ = _form("bitwise_or")
    __ixor__ = bitwise_xor_ = _form("bitwise_xor")
    __ilshift__ = bitwise_left_shift_ = _form("bitwise_left_shift")
    __irshift__ = bitwise_right_shift_ = _form("bitwise_right_shift")
    neg_ = _form("neg")
    abs_ = _form("abs")
    clamp_ = _form("clamp")
    relu_ = _form("relu")
    exp_ = _form("exp")
    sqrt_ = _form("sqrt")
    sigmoid_ = _form("sigmoid")
    tanh_ = _form("tanh")
    lerp_ = _form("lerp")
    masked_fill_ = _form("masked_fill")
    addcmul_ = _form("addcmul")
    addcdiv_ = _form("addcdiv")
    scatter_ = _form("scatter")
    scatter_add_ = _form("scatter_add")
    index_add_ = _form("index_add")
    index_copy_ = _form("index_copy")
    index_fill_ = _form("index_fill")
    index_put_ = _form("index_put")
    masked_scatter_ = _form("masked_scatter")
    tril_ = _form("tril")
    triu_ = _form("triu")
