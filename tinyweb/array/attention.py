"""Attention: softmax of scores between queries and keys, weighting values."""

from __future__ import annotations

import math
from typing import Self

from tinyweb.array.core import TensorCore
from tinyweb.array.neural import Neural
from tinyweb.dtype import dtypes
from tinyweb.graph.schedule.indexing import same


class Attention(Neural):
    """scaled_dot_product_attention."""

    __slots__ = ()

    def scaled_dot_product_attention(
        self,
        key: TensorCore,
        value: TensorCore,
        attn_mask: TensorCore | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Self:
        """softmax(q kᵀ · scale + mask) v (Vaswani et al. 2017): (…, heads, queries, width of v), this tensor's dtype.

        self (…, heads, queries, d), key (…, heads, keys, d), value (…, heads, keys, w). A boolean mask keeps where
        true, a float mask is added; both broadcast to the scores (…, queries, keys). A row that keeps nothing gives
        zeros. `is_causal` lets query i see keys 0 … i. `scale` is 1 / sqrt(d) where None. `dropout_p` drops weights,
        training or not. With `enable_gqa`, groups of query heads share one key/value head (Ainslie et al. 2023).
        """
        method = "scaled_dot_product_attention"
        q, k, v = self, self._operand(key, method), self._operand(value, method)
        if min(q.ndim, k.ndim, v.ndim) < 2:
            raise ValueError(f"{method}: query {q.shape}, key {k.shape} and value {v.shape} need at least 2 axes")
        if enable_gqa:
            if min(q.ndim, k.ndim, v.ndim) < 3:
                raise ValueError(f"{method}: enable_gqa needs an axis of heads, got {q.shape} and {k.shape}")
            k, v = q._shared_heads(k, method), q._shared_heads(v, method)
        width = q.shape[-1]
        if not isinstance(width, int) or not same(k.shape[-1], width):
            raise ValueError(f"{method}: query {q.shape} and key {k.shape} differ in their last axis")
        if not same(k.shape[-2], v.shape[-2]):
            raise ValueError(f"{method}: key {k.shape} and value {v.shape} differ in their last axis but one")
        wide = dtypes.float64 if q.dtype is dtypes.float64 else dtypes.float32
        scores = q.matmul(k.transpose(-1, -2), wide).mul(1 / math.sqrt(width) if scale is None else scale)
        if is_causal:
            if attn_mask is not None:
                raise ValueError(f"{method}: give a mask or is_causal, not both")
            rows, columns = (scores._iota(s) for s in scores.shape[-2:])
            scores = (columns.unsqueeze(0) <= rows.unsqueeze(1)).where(scores, -math.inf)
            weights = scores.softmax(-1)
        elif attn_mask is not None:
            mask = self._operand(attn_mask, method)
            scores = mask.where(scores, -math.inf) if mask.dtype is dtypes.bool else scores.add(mask.cast(wide))
            largest = scores.max(-1, keepdim=True)
            none = largest.eq(-math.inf)
            e = scores.sub(none.where(0.0, largest)).exp()
            total = e.sum(-1, keepdim=True)
            weights = e.div(none.where(1.0, total))
        else:
            weights = scores.softmax(-1)
        weights = weights.dropout(dropout_p, True)
        return weights.matmul(v.cast(wide), wide).cast(self.dtype)

    def _shared_heads(self, t: Self, method: str) -> Self:
        """Keys or values, each head repeated for the group of this query's heads that shares it."""
        heads, shared = self.shape[-3], t.shape[-3]
        if same(heads, shared):
            return t
        if not isinstance(heads, int) or not isinstance(shared, int) or not shared or heads % shared:
            raise ValueError(f"{method}: {heads} query heads are no multiple of {shared} key/value heads")
        return t.repeat_interleave(heads // shared, -3)
