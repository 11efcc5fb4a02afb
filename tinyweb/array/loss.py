"""Losses, by PyTorch's names: how far an input is from its target, as one number or, with reduction="none", many."""

from __future__ import annotations

import math
from typing import Any, Self

from tinyweb.array.activation import Activation
from tinyweb.array.core import TensorCore
from tinyweb.array.normalization import Normalization
from tinyweb.graph.ir import Shape, numel_max, size_max
from tinyweb.graph.schedule.indexing import same

REDUCTIONS = ("mean", "sum", "none")


def _alike(a: Shape, b: Shape) -> bool:
    """Whether two shapes are equal, symbolic sizes too."""
    return len(a) == len(b) and all(map(same, a, b))


class Loss(Activation, Normalization):
    """Methods `input.…_loss(target)`. `reduction` is "mean", "sum" or "none"."""

    __slots__ = ()

    def _reduced(self, reduction: str, method: str) -> Self:
        if reduction not in REDUCTIONS:
            raise ValueError(f"{method}: reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
        return self if reduction == "none" else self.sum() if reduction == "sum" else self.mean()

    def _with_target(self, target: Any, method: str) -> tuple[Self, Self]:
        """Both as floats of one shape."""
        x, t = self._pair(target, method)
        return x._floating(), t._floating()

    def _with_equal_target(self, target: Any, method: str) -> tuple[Self, Self]:
        """Both as floats; ValueError where the shapes differ."""
        x, t = self._with_target(target, method)
        given = target.shape if isinstance(target, TensorCore) else t.shape
        for shape in (self.shape, given):
            if not _alike(x.shape, shape):
                raise ValueError(f"{method}: {self.shape} needs targets of its shape, got {given}")
        return x, t

    # -- of numbers ---------------------------------------------------------------------------------------------------
    def mse_loss(self, target: TensorCore, reduction: str = "mean") -> Self:
        """(input - target)²."""
        x, t = self._with_target(target, "mse_loss")
        return x.sub(t).square()._reduced(reduction, "mse_loss")

    def l1_loss(self, target: TensorCore, reduction: str = "mean") -> Self:
        """|input - target|."""
        x, t = self._with_target(target, "l1_loss")
        return x.sub(t).abs()._reduced(reduction, "l1_loss")

    def smooth_l1_loss(self, target: TensorCore, reduction: str = "mean", beta: float = 1.0) -> Self:
        """d² / (2 beta) for d = |input - target| below beta, else d - beta / 2."""
        if beta < 0:
            raise ValueError(f"smooth_l1_loss: beta must not be negative, got {beta}")
        if beta == 0:
            return self.l1_loss(target, reduction)
        x, t = self._with_target(target, "smooth_l1_loss")
        d = x.sub(t).abs()
        return d.less(beta).where(d.square().mul(0.5 / beta), d.sub(0.5 * beta))._reduced(reduction, "smooth_l1_loss")

    def huber_loss(self, target: TensorCore, reduction: str = "mean", delta: float = 1.0) -> Self:
        """d² / 2 for d = |input - target| up to delta, else delta · (d - delta / 2) (Huber 1964)."""
        if delta <= 0:
            raise ValueError(f"huber_loss: delta must be positive, got {delta}")
        x, t = self._with_target(target, "huber_loss")
        d = x.sub(t).abs()
        far = d.sub(0.5 * delta).mul(delta)
        return d.less_equal(delta).where(d.square().mul(0.5), far)._reduced(reduction, "huber_loss")

    def poisson_nll_loss(
        self,
        target: TensorCore,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduction: str = "mean",
    ) -> Self:
        """exp(input) - target · input, or with log_input=False input - target · log(input + eps); `full` adds
        Stirling's approximation of log(target!) where the target is above 1."""
        x, t = self._with_target(target, "poisson_nll_loss")
        loss = x.exp().sub(t.mul(x)) if log_input else x.sub(t.mul(x.add(eps).log()))
        if full:
            large = t.greater(1)
            safe = large.where(t, 1.0)
            stirling = safe.mul(safe.log()).sub(safe).add(safe.mul(2 * math.pi).log().mul(0.5))
            loss = loss.add(large.where(stirling, 0.0))
        return loss._reduced(reduction, "poisson_nll_loss")

    def gaussian_nll_loss(
        self,
        target: TensorCore,
        var: TensorCore | float,
        full: bool = False,
        eps: float = 1e-6,
        reduction: str = "mean",
    ) -> Self:
        """(log var + (input - target)² / var) / 2, var being at least `eps` (without a gradient there); `full` adds
        log(2π) / 2."""
        x, t = self._with_target(target, "gaussian_nll_loss")
        if isinstance(var, int | float) and var < 0:
            raise ValueError(f"gaussian_nll_loss: var must not be negative, got {var}")
        v = x._operand(var, "gaussian_nll_loss")._floating()
        if v.ndim == x.ndim - 1 and v.ndim and v.shape == x.shape[:-1]:
            v = v.unsqueeze(-1)
        elif v.ndim and (v.shape[:-1] != x.shape[:-1] or v.shape[-1:] not in ((1,), x.shape[-1:])):
            raise ValueError(f"gaussian_nll_loss: var {v.shape} must have the shape {x.shape}, or 1 as last size")
        v = v.add(v.clamp(min=eps).sub(v).detach())
        loss = v.log().add(x.sub(t).square().div(v)).mul(0.5)
        if full:
            loss = loss.add(0.5 * math.log(2 * math.pi))
        return loss._reduced(reduction, "gaussian_nll_loss")

    def kl_div(self, target: TensorCore, reduction: str = "mean", log_target: bool = False) -> Self:
        """target · (log(target) - input) of log-probabilities `input` and probabilities `target` (or their logarithms).

        reduction="batchmean" divides the sum by the first axis, as the definition has it.
        """
        x, t = self._with_target(target, "kl_div")
        loss = t.exp().mul(t.sub(x)) if log_target else t.xlogy(t).sub(t.mul(x))
        if reduction == "batchmean":
            return loss.sum().div(loss._count((0,)) if loss.ndim else 1.0)
        return loss._reduced(reduction, "kl_div")

    # -- of yes and no ------------------------------------------------------------------------------------------------
    def binary_cross_entropy(
        self, target: TensorCore, weight: TensorCore | None = None, reduction: str = "mean"
    ) -> Self:
        """-(t log p + (1 - t) log(1 - p)) of probabilities p; logarithms count as at least -100."""
        x, t = self._with_equal_target(target, "binary_cross_entropy")
        yes, no = x.log().clamp(min=-100.0), x.neg().add(1.0).log().clamp(min=-100.0)
        loss = t.mul(yes).add(t.neg().add(1.0).mul(no)).neg()
        # PyTorch's gradient, which is finite at 0 and 1
        steepness = x.neg().add(1.0).mul(x).maximum(1e-12)
        loss = loss._with_gradients([x, t], lambda g: [g.mul(x.sub(t)).div(steepness), g.mul(no.sub(yes))])
        return loss._weighted(weight, "binary_cross_entropy")._reduced(reduction, "binary_cross_entropy")

    def binary_cross_entropy_with_logits(
        self,
        target: TensorCore,
        weight: TensorCore | None = None,
        reduction: str = "mean",
        pos_weight: TensorCore | None = None,
    ) -> Self:
        """`binary_cross_entropy` of sigmoid(input), without overflow; `pos_weight` multiplies the positive part."""
        x, t = self._with_equal_target(target, "binary_cross_entropy_with_logits")
        no = x.neg().log_sigmoid().neg()  # -log(1 - p)
        if pos_weight is None:
            loss = no.sub(x.mul(t))
        else:
            positive = x.log_sigmoid().neg().mul(t)._weighted(pos_weight, "binary_cross_entropy_with_logits")
            loss = positive.add(t.neg().add(1.0).mul(no))
        loss = loss._weighted(weight, "binary_cross_entropy_with_logits")
        return loss._reduced(reduction, "binary_cross_entropy_with_logits")

    binary_crossentropy = binary_cross_entropy
    binary_crossentropy_logits = binary_cross_entropy_with_logits

    def _weighted(self, weight: TensorCore | None, method: str) -> Self:
        if weight is None:
            return self
        x, w = self._pair(weight, method)
        if not _alike(x.shape, self.shape):
            raise ValueError(f"{method}: weight {weight.shape} does not broadcast to the input's {self.shape}")
        return x.mul(w)

    def soft_margin_loss(self, target: TensorCore, reduction: str = "mean") -> Self:
        """log(1 + e^(-target · input)), targets ±1."""
        x, t = self._with_target(target, "soft_margin_loss")
        if not _alike(x.shape, self.shape):
            raise ValueError(f"soft_margin_loss: targets {target.shape} do not broadcast to the input's {self.shape}")
        return x.mul(t).log_sigmoid().neg()._reduced(reduction, "soft_margin_loss")

    def multilabel_soft_margin_loss(
        self, target: TensorCore, weight: TensorCore | None = None, reduction: str = "mean"
    ) -> Self:
        """The mean over the last axis of `binary_cross_entropy_with_logits`."""
        x, t = self._with_equal_target(target, "multilabel_soft_margin_loss")
        loss = x.binary_cross_entropy_with_logits(t, weight, "none")
        return loss.mean(-1)._reduced(reduction, "multilabel_soft_margin_loss")

    # -- of classes ---------------------------------------------------------------------------------------------------
    def nll_loss(
        self,
        target: TensorCore,
        weight: TensorCore | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Self:
        """-input[class]: log-probabilities (N, C, …) or (C,), integer classes (N, …) or ().

        `weight` (C,) is a factor for each class; targets equal to `ignore_index` do not count. The mean is over the
        factors. (A class outside of 0 … C-1 counts as a loss of 0.)
        """
        return self._of_classes(target, weight, ignore_index, reduction, 0.0, "nll_loss")

    def cross_entropy(
        self,
        target: TensorCore,
        weight: TensorCore | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Self:
        """`nll_loss` of log_softmax(input): logits (N, C, …) or (C,), and integer classes (N, …) or (), or
        probabilities of the input's shape.

        With `label_smoothing` s the target is (1 - s) times itself plus s / C for every class.
        """
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"cross_entropy: label_smoothing must be within 0 and 1, got {label_smoothing}")
        if not self.ndim:
            raise ValueError("cross_entropy: the input has no axis of classes")
        _, total, shifted = self._wide()._softmax_parts(min(1, self.ndim - 1), None, "cross_entropy")
        t = self._operand(target, "cross_entropy")
        if not t.dtype.is_float:
            loss = shifted._of_classes(
                t, weight, ignore_index, reduction, label_smoothing, "cross_entropy", total.log()
            )
            return loss.cast(self._floating().dtype)
        log_p = shifted.sub(total.log())
        axis, classes = log_p._class_axis("cross_entropy")
        if t.shape != self.shape:
            raise ValueError(f"cross_entropy: input {self.shape} and probabilities {t.shape} must have one shape")
        t = t.mul(1 - label_smoothing).add(label_smoothing / classes) if label_smoothing else t
        loss = log_p.mul(t).mul(log_p._per_class(weight, classes, "cross_entropy")).sum(axis).neg()
        if reduction == "mean":  # over the samples, whatever the weights
            loss = loss.sum().div(self._count(tuple(a for a in range(self.ndim) if a != axis)))
        else:
            loss = loss._reduced(reduction, "cross_entropy")
        return loss.cast(self._floating().dtype)

    def sparse_categorical_crossentropy(
        self,
        target: TensorCore,
        ignore_index: int = -1,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """`cross_entropy` whose classes are the last axis."""
        x = self.movedim(-1, 1) if self.ndim > 2 else self
        return x.cross_entropy(target, None, ignore_index, reduction, label_smoothing)

    def _class_axis(self, method: str) -> tuple[int, int]:
        axis = min(1, self.ndim - 1)
        classes = self.shape[axis]
        if not isinstance(classes, int):
            raise ValueError(f"{method}: the number of classes must not be symbolic")
        return axis, classes

    def _per_class(self, weight: TensorCore | None, classes: int, method: str) -> Self:
        """Factors of classes, ready to go with this tensor."""
        if weight is None:
            return self._constant(1)
        if weight.shape != (classes,):
            raise ValueError(f"{method}: weight {weight.shape} needs one element for each of {classes} classes")
        return self._operand(weight, method)._reshape((classes, *(1,) * max(self.ndim - 2, 0)))

    def _of_classes(
        self,
        target: TensorCore,
        weight: TensorCore | None,
        ignore_index: int,
        reduction: str,
        smoothing: float,
        method: str,
        less: Self | None = None,
    ) -> Self:
        """`nll_loss` of this less a number for each sample: that has no gradient summed over classes."""
        if reduction not in REDUCTIONS:
            raise ValueError(f"{method}: reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
        if not self.ndim:
            raise ValueError(f"{method}: the input has no axis of classes")
        axis, classes = self._class_axis(method)
        t = self._operand(target, method)
        if not t.dtype.is_int or t.shape != (*self.shape[:axis], *self.shape[axis + 1 :]):
            raise ValueError(
                f"{method}: input {self.shape} needs integer classes {(*self.shape[:axis], *self.shape[axis + 1 :])}, "
                f"got {t.dtype.name} {t.shape}"
            )
        x = self._floating()
        place = self._iota(classes)._reshape((classes, *(1,) * max(self.ndim - 2, 0)))
        counts = t.ne(ignore_index)
        hit = place.eq(t.unsqueeze(axis))
        hit = hit.logical_and(counts.unsqueeze(axis)) if 0 <= ignore_index < size_max(classes) else hit
        factors = x._per_class(weight, classes, method)
        loss = hit.where(x.mul(factors), 0).sum(axis).neg()
        if less is not None:
            less, known = less.squeeze(axis), t.greater_equal(0).logical_and(t.less(classes)).logical_and(counts)
            share = less if weight is None else less.mul(hit.where(factors, 0).sum(axis))
            loss = loss.add(known.where(share, 0))
        if smoothing:
            x = x if less is None else x.sub(less.unsqueeze(axis))  # all classes have a part of it
            everywhere = counts.unsqueeze(axis).where(x.mul(factors), 0).sum(axis).neg()
            loss = loss.mul(1 - smoothing).add(everywhere.mul(smoothing / classes))
        if reduction == "none":
            return loss
        total = loss.sum()
        if reduction == "sum":
            return total
        if weight is None:
            count = counts.cast(x.dtype).sum()
            # a kernel of the gradient counts again for every few samples, which must not take more than they do
            return total.div(count.contiguous() if numel_max(t.shape) > 4 * classes else count)
        return total.div(hit.where(factors, 0).sum())

    # -- of margins ---------------------------------------------------------------------------------------------------
    def hinge_embedding_loss(self, target: TensorCore, margin: float = 1.0, reduction: str = "mean") -> Self:
        """input where the target is 1, max(0, margin - input) where it is -1."""
        x, t = self._with_target(target, "hinge_embedding_loss")
        loss = t.eq(-1).where(x.neg().add(margin).relu(), 0.0).add(t.eq(1).where(x, 0.0))
        loss = t.eq(1).logical_or(t.eq(-1)).where(loss, x.add(x.neg().add(margin).relu()))
        return loss._reduced(reduction, "hinge_embedding_loss")

    def margin_ranking_loss(
        self, other: TensorCore, target: TensorCore, margin: float = 0.0, reduction: str = "mean"
    ) -> Self:
        """max(0, -target · (self - other) + margin), targets ±1."""
        if not self.ndim == other.ndim == target.ndim:
            raise ValueError(
                f"margin_ranking_loss: shapes {self.shape}, {other.shape} and {target.shape} must have as many axes"
            )
        a, b, t = self._floating()._together("margin_ranking_loss", other, target)
        # the gradient at the kink is that of the positive side
        return t.neg().mul(a.sub(b)).add(margin)._above_zero()._reduced(reduction, "margin_ranking_loss")

    def _above_zero(self) -> Self:
        """max(x, 0) whose gradient at 0 is 1."""
        return self.less(0).where(0, self)

    def cosine_embedding_loss(
        self, other: TensorCore, target: TensorCore, margin: float = 0.0, reduction: str = "mean"
    ) -> Self:
        """1 - cosine where the target is 1, max(0, cosine - margin) where it is -1; vectors along the last axis."""
        if self.ndim != other.ndim:
            raise ValueError(f"cosine_embedding_loss: {self.shape} and {other.shape} must have as many axes")
        a, b = self._floating()._pair(other, "cosine_embedding_loss")
        t = a._operand(target, "cosine_embedding_loss")
        # the small number and its place are PyTorch's
        small = 1e-12
        dot, aa, bb = a.mul(b).sum(-1), a.square().sum(-1).add(small), b.square().sum(-1).add(small)
        cosine = dot.div(aa.mul(bb).sqrt())
        apart = cosine.sub(margin)._above_zero()
        if len(t.shape) != len(cosine.shape) or not all(map(same, t.shape, cosine.shape)):
            raise ValueError(f"cosine_embedding_loss: {self.shape} needs targets {cosine.shape}, got {t.shape}")
        loss = t.eq(1).where(cosine.neg().add(1.0), t.eq(-1).where(apart, 0.0))
        return loss._reduced(reduction, "cosine_embedding_loss")

    def triplet_margin_loss(
        self,
        positive: TensorCore,
        negative: TensorCore,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ) -> Self:
        """max(0, distance to `positive` - distance to `negative` + margin) (Balntas et al. 2016).

        With `swap` the distance from positive to negative counts where it is the smaller one. ValueError for a margin
        that is not above 0.
        """
        if not margin > 0:
            raise ValueError(f"triplet_margin_loss: margin must be above 0, got {margin}")
        if not self.ndim == positive.ndim == negative.ndim:
            raise ValueError(
                f"triplet_margin_loss: {self.shape}, {positive.shape} and {negative.shape} must have as many axes"
            )
        near = self.pairwise_distance(positive, p, eps)
        far = self.pairwise_distance(negative, p, eps)
        if swap:
            far = far.minimum(self._operand(positive, "triplet_margin_loss").pairwise_distance(negative, p, eps))
        return near.sub(far).add(margin)._above_zero()._reduced(reduction, "triplet_margin_loss")

    def multi_margin_loss(
        self,
        target: TensorCore,
        p: int = 1,
        margin: float = 1.0,
        weight: TensorCore | None = None,
        reduction: str = "mean",
    ) -> Self:
        """Σ max(0, margin - input[class] + input[other])ᵖ / C over the other classes: (N, C) or (C,), classes (N,) or
        ()."""
        x, t = self._floating(), self._operand(target, "multi_margin_loss")
        if x.ndim not in (1, 2) or not t.dtype.is_int or t.shape != x.shape[:-1] or p not in (1, 2):
            raise ValueError(
                f"multi_margin_loss: needs (N, C) with integer classes (N,), and p 1 or 2; got {x.shape}, "
                f"{t.dtype.name} {t.shape} and p {p}"
            )
        _, classes = x._class_axis("multi_margin_loss")
        hit = x._iota(classes).eq(t.unsqueeze(-1))
        chosen = hit.where(x, 0).sum(-1, keepdim=True)
        gap = x.sub(chosen).add(margin).relu()
        loss = gap if p == 1 else gap.square()
        if weight is not None:
            loss = loss.mul(hit.where(x._per_class(weight, classes, "multi_margin_loss"), 0).sum(-1, keepdim=True))
        return hit.where(0, loss).sum(-1).div(classes)._reduced(reduction, "multi_margin_loss")

    def multilabel_margin_loss(self, target: TensorCore, reduction: str = "mean") -> Self:
        """Σ max(0, 1 - input[class] + input[other]) / C over the target's classes, which end at the first -1, and all
        classes that are not among them."""
        x, t = self._floating(), self._operand(target, "multilabel_margin_loss")
        if x.ndim not in (1, 2) or not t.dtype.is_int or t.shape != x.shape:
            raise ValueError(
                f"multilabel_margin_loss: needs (N, C) with integer classes (N, C), got {x.shape} and {t.shape}"
            )
        classes = x._fixed(x.ndim - 1, "multilabel_margin_loss")
        place = x._iota(classes)
        ended = t.less(0)
        before = place.unsqueeze(0).less_equal(place.unsqueeze(1))  # (j, i): i ≤ j
        valid = ended.unsqueeze(-2).logical_and(before).any(-1).logical_not()
        hit = place.unsqueeze(0).eq(t.unsqueeze(-1)).logical_and(valid.unsqueeze(-1))  # (…, j, class)
        chosen = hit.where(x.unsqueeze(-2), 0).sum(-1)
        among = hit.any(-2)
        gap = x.unsqueeze(-2).sub(chosen.unsqueeze(-1)).add(1.0).relu()
        counts = valid.unsqueeze(-1).logical_and(among.logical_not().unsqueeze(-2))
        return counts.where(gap, 0).sum((-2, -1)).div(classes)._reduced(reduction, "multilabel_margin_loss")
