"""Values that bring their gradients along, for what is computed by steps that differentiate badly or slowly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tinyweb.array.core import TensorCore, leaf
from tinyweb.graph.ir import Ops, UOp

T = TypeVar("T", bound=TensorCore)


def with_gradients(value: T, inputs: Sequence[T], gradients: Callable[[T], Sequence[T]]) -> T:
    """`value`, whose gradient with respect to each of `inputs` is what `gradients(g)` gives, g arriving at the value.

    Gradients have the shapes and dtypes of the inputs. They are expressions like any other, so that they have
    gradients in their turn.
    """
    zero = value._new(UOp.const(0, value.dtype))._broadcast_to(value.shape)
    upstream = value._new(leaf(zero.uop))
    pairs = zip(inputs, gradients(upstream), strict=True)
    src = (value.uop, upstream.uop, *(u for x, g in pairs for u in (x.uop, g.uop)))
    return value._new(UOp(Ops.CUSTOM_GRADIENT, value.dtype, src))
