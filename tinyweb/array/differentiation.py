"""Gradients: of a tensor with respect to others, and `.backward()` into `.grad`."""

from __future__ import annotations

from typing import Any, Self

from tinyweb.array.core import TensorCore, live_tensors
from tinyweb.array.creation import Creation
from tinyweb.array.ctc import Sequences
from tinyweb.graph.autodiff import gradient as differentiate
from tinyweb.graph.ir import Ops, UOp


class Differentiation(Creation):
    """Derivatives as lazy tensors."""

    __slots__ = ()

    def gradient(
        self,
        *targets: TensorCore,
        gradient: TensorCore | None = None,
        allow_unused: bool | None = None,
        materialize_grads: bool = False,
    ) -> list[Any]:
        """The derivatives of this one-element tensor with respect to `targets`: tensors of their shapes and dtypes.

        With `gradient` (this tensor's shape), of sum(self · gradient). Lazy: realise the loss together with the
        gradients, `loss.realize(*loss.gradient(a, b))`, and they share kernels. Gradients of gradients are gradients
        of such graphs.

        A target this tensor does not depend on is a ValueError, unless `allow_unused`: then it has None; with
        `materialize_grads` zeros.

        ValueError for a tensor of more than one element without `gradient`; TypeError where either is not of a float
        dtype.
        """
        upstream = self._upstream(gradient, "gradient")
        for t in targets:
            if not isinstance(t, TensorCore):
                raise TypeError(f"gradient: targets must be tensors, got {type(t).__name__}")
            if not t.dtype.is_float:
                raise TypeError(f"gradient: a target must be of a float dtype, got {t.dtype.name}")
        root, upstream, *wanted = (self.uop, upstream, *(t.uop for t in targets))
        found = differentiate(root, upstream, wanted)
        if materialize_grads and allow_unused is False:
            raise ValueError("gradient: materialize_grads gives zeros for what is unused: allow_unused cannot be False")
        if materialize_grads:
            zeros = (t._same().full_like(0).uop for t in targets if isinstance(t, Sequences))
            found = [z if g is None else g for z, g in zip(zeros, found, strict=True)]
        for t, g in zip(targets, found, strict=True):
            if g is None and not allow_unused:
                raise ValueError(
                    f"gradient: this {self.shape} tensor does not depend on the target {t!r}: "
                    "was it detached, cast to integers, or changed after it was used?"
                )
        return [None if g is None else t._wrap(g, t.device) for t, g in zip(targets, found, strict=True)]

    def backward(self, gradient: TensorCore | None = None) -> Self:
        """Adds the derivative of this tensor to `.grad` of every tensor with `requires_grad` that it depends on.

        Arguments and errors are those of `gradient`; ValueError if there is none, so if memory it was computed
        from has been updated in place.
        """
        upstream = self._upstream(gradient, "backward")
        leaves = [t for t in live_tensors() if t.requires_grad]
        root, upstream, *wanted = (self.uop, upstream, *(t.uop for t in leaves))
        found = differentiate(root, upstream, wanted)
        if all(g is None for g in found):
            raise ValueError(
                f"backward: this {self.shape} tensor depends on no tensor with requires_grad: was it detached, or has "
                "memory it was computed from been updated since?"
            )
        for t, g in zip(leaves, found, strict=True):
            if g is not None:
                mine = t._new(g)
                t.grad = mine if t.grad is None else t._new(UOp(Ops.ADD, t.dtype, (t.grad.uop, g)))
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Whether `.backward()` gives this tensor a `.grad`."""
        if requires_grad and not self.dtype.is_float:
            raise TypeError(f"requires_grad_: only tensors of a float dtype have gradients, got {self.dtype.name}")
        self.requires_grad = requires_grad
        return self

    def _upstream(self, gradient: Any, method: str) -> UOp:
        if not self.dtype.is_float:
            raise TypeError(f"{method}: only tensors of a float dtype have gradients, got {self.dtype.name}")
        if gradient is None:
            if self.numel() != 1:
                raise ValueError(
                    f"{method}: the tensor has shape {self.shape}, not one element: reduce it, or pass gradient="
                )
            return self._new(UOp.const(1, self.dtype))._broadcast_to(self.shape).uop
        if not isinstance(gradient, TensorCore) or gradient.shape != self.shape:
            got = gradient.shape if isinstance(gradient, TensorCore) else type(gradient).__name__
            raise ValueError(f"{method}: gradient= must be a tensor of this tensor's shape {self.shape}, got {got}")
        return gradient.uop.cast(self.dtype)
