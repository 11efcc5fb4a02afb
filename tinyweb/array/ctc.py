"""Connectionist temporal classification: the likelihood of a label sequence under frames without an alignment."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from tinyweb.array.core import TensorCore
from tinyweb.array.gathering import Gathering
from tinyweb.array.loss import REDUCTIONS
from tinyweb.array.moments import Moments
from tinyweb.array.padding import Padding
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import UOp


class Sequences(Gathering, Padding, Moments):
    """ctc_loss."""

    __slots__ = ()

    def ctc_loss(
        self,
        targets: TensorCore,
        input_lengths: Any,
        target_lengths: Any,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
    ) -> Self:
        """-log p(targets) under log-probabilities (T, N, C) or (T, C) (Graves et al. 2006, the forward recursion).

        `targets` are integers (N, S) or (S,), padded behind `target_lengths` (N,) with anything; frames behind
        `input_lengths` (N,) do not count. The mean is that of losses divided by their target lengths (at least 1).
        Infinite losses, of targets that do not fit their frames, become 0 with `zero_infinity`. One kernel per frame.
        """
        t = self._operand(targets, "ctc_loss")
        if not t.dtype.is_int:
            raise TypeError(f"ctc_loss: targets must be integers, got {t.dtype.name}")
        t = t.int()
        if self.ndim == 2:
            reduced = "sum" if reduction == "none" else reduction
            return self.unsqueeze(1).ctc_loss(
                t._reshape((1, *t.shape[-1:])), input_lengths, target_lengths, blank, reduced, zero_infinity
            )
        if reduction not in REDUCTIONS:
            raise ValueError(f"ctc_loss: reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
        frames, batch, classes = (self._fixed(i, "ctc_loss") for i in range(3)) if self.ndim == 3 else (0, 0, 0)
        if not frames or t.ndim != 2 or t.shape[0] != batch or not 0 <= blank < classes:
            raise ValueError(
                f"ctc_loss: needs (T, N, C), targets (N, S) and a blank below C; got {self.shape}, {t.shape}, {blank}"
            )
        labels = t._fixed(1, "ctc_loss")
        n_frames = self._lengths(input_lengths, batch, frames, "input_lengths")
        n_labels = self._lengths(target_lengths, batch, labels, "target_lengths")
        states = 2 * labels + 1
        # blank, label, blank, label, …, blank; states that end a label's repetition may be reached from two before
        odd = self._iota(states).remainder(2).eq(1)
        spread = t.repeat_interleave(2, 1).pad([(0, 0), (1, 0)]) if labels else t.pad([(0, 0), (0, 1)])
        label = odd.where(spread, blank).contiguous()
        before = label.pad([(0, 0), (2, 0)], value=-1).shrink([None, (0, states)])
        may_skip = odd.logical_and(label.ne(before))
        place = label._reshape((1, batch, states))._broadcast_to((frames, batch, states))
        x = self._floating()
        # states have the number of the next frame beside them, which a half float has up to 2048
        wide = x.cast(dtypes.float32) if x.dtype.bits < 32 else x
        emission = wide.gather(2, place).permute(1, 0, 2).contiguous()
        state = self._iota(states)

        def moved(a: Self, by: int) -> Self:
            return a.pad([(0, 0), (by, 0)], value=-math.inf).shrink([None, (0, states)])

        def at(frame: int, number: Self) -> Self:
            """The emissions of a frame, whose number is in memory: the kernel of every frame is the same one."""
            own = emission._pick(number._reshape((batch,)), 1)
            return own._with_gradients([emission], lambda g: [g.unsqueeze(1)._pad_along(1, frame, frames - 1 - frame)])

        first = emission.shrink([None, (0, 1), None])._reshape((batch, states))
        alpha = state.less(2).where(first, -math.inf)
        number = self._new(UOp.const(1, dtypes.int32))._broadcast_to((batch, 1)).cast(alpha.dtype)
        table = type(self).cat([alpha, number], axis=1).contiguous()
        for frame in range(1, frames):
            alpha, number = table._along(1, 0, states), table._along(1, states, states + 1)
            whole = number.int()
            ways = [alpha, moved(alpha, 1), may_skip.where(moved(alpha, 2), -math.inf)]
            alpha = n_frames.greater(whole).where(_log_of_sum(ways).add(at(frame, whole)), alpha)
            table = type(self).cat([alpha, number.add(1)], axis=1).contiguous()
        alpha = table._along(1, 0, states)
        last = n_labels.mul(2)
        ends = state.eq(last).logical_or(state.eq(last.sub(1)))
        loss: Self = _log_of_sum([ends.where(alpha, -math.inf)], -1).neg().cast(x.dtype)
        if zero_infinity:
            loss = loss.eq(math.inf).where(0.0, loss)
        if reduction == "mean":
            return loss.div(n_labels._reshape((batch,)).maximum(1).cast(loss.dtype)).mean()
        return loss.sum() if reduction == "sum" else loss

    def _lengths(self, given: Any, batch: int, most: int, name: str) -> Self:
        """A length for each of a batch, (batch, 1); those known at the call are looked at."""
        known = None if isinstance(given, TensorCore) else np.atleast_1d(np.asarray(given))
        n = self._operand(given if known is None else known, "ctc_loss").atleast_1d()
        if n.shape not in ((batch,), (batch, 1)) or not n.dtype.is_int:
            raise ValueError(f"ctc_loss: {name} must be {batch} integers, got {n.dtype.name} {n.shape}")
        if known is not None and not ((known >= 0) & (known <= most)).all():
            raise ValueError(f"ctc_loss: {name} must be from 0 to {most}, got {given}")
        return n.int()._reshape((batch, 1))


def _log_of_sum(parts: list[Any], axis: int | None = None) -> Any:
    """log Σ eˣ of several tensors, or along an axis of one; -inf, without a gradient, where all are."""
    largest = parts[0] if axis is None else parts[0].max(axis, keepdim=True)
    for p in parts[1:]:
        largest = largest.maximum(p)
    none = largest.eq(-math.inf)
    shift = none.where(0.0, largest).detach()
    total: Any = None
    for p in parts:
        # what is -inf has no gradient: neither does the difference of two
        e = p.eq(-math.inf).where(0.0, p.eq(-math.inf).where(0.0, p.sub(shift)).exp())
        total = e if total is None else total.add(e)
    if axis is not None:
        total = total.sum(axis, keepdim=True)
    result = none.where(-math.inf, none.where(1.0, total).log().add(shift))
    return result if axis is None else result.squeeze(axis)
