"""Methods of neural networks: linear layers, attention, embeddings, losses."""

from __future__ import annotations

import math
from typing import Self

from tinyweb.array.pooling import Pooling
from tinyweb.array.core import TensorCore
from tinyweb.dtype import dtypes
from tinyweb.graph.schedule.indexing import same


class Neural(Pooling):
    """Layers as functions."""

    __slots__ = ()

    def linear(self, weight: TensorCore, bias: TensorCore | None = None) -> Self:
        """self @ weightᵀ + bias, `weight` being (out, in) as PyTorch stores it; the result has this tensor's dtype."""
        w = self._new(weight.uop)
        if w.ndim != 2 or not same(w.shape[1], self.shape[-1]):
            raise ValueError(f"linear: weight {w.shape} needs shape (out, {self.shape[-1]}) for an input {self.shape}")
        x = self.unsqueeze(0) if self.ndim == 1 else self
        y = x._contract(w, self.dtype if self.dtype.is_float else w.dtype)
        if bias is not None:
            y = y.add(bias)
        return y.squeeze(0) if self.ndim == 1 else y

    def embedding(self, ids: TensorCore) -> Self:
        """Rows of this (rows, width) table picked by integer ids: ids.shape + (width,)."""
        return self.take(ids, 0)

    def one_hot(self, classes: int) -> Self:
        """int32 of shape (…, classes): 1 where the class index equals this integer tensor's element."""
        return self.unsqueeze(-1).equal(self._iota(classes)).int()

    def scaled_dot_product_attention(
        self,
        key: TensorCore,
        value: TensorCore,
        attn_mask: TensorCore | None = None,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Self:
        """softmax(q kᵀ · scale + mask) v (Vaswani et al. 2017), as torch.nn.functional names it.

        self (…, heads, queries, d), key and value (…, kv_heads, keys, d). With `enable_gqa`, groups of query heads
        share one
        key/value head (Ainslie et al. 2023). A boolean mask keeps where true; a float mask is added. `is_causal` lets
        query i
        see keys 0 … i.
        """
        q, k, v = self, self._new(key.uop), self._new(value.uop)
        if enable_gqa and not same(q.shape[-3], k.shape[-3]):
            heads, kv_heads = q.shape[-3], k.shape[-3]
            if not isinstance(heads, int) or not isinstance(kv_heads, int) or heads % kv_heads:
                raise ValueError(f"attention: {heads} query heads are no multiple of {kv_heads} key/value heads")
            k = k.repeat_interleave(heads // kv_heads, -3)
            v = v.repeat_interleave(heads // kv_heads, -3)
        width = q.shape[-1]
        if not isinstance(width, int) or not same(k.shape[-1], width):
            raise ValueError(f"attention: query {q.shape} and key {k.shape} differ in their last axis")
        scores = q.matmul(k.transpose(-1, -2), dtypes.float32).mul(1 / math.sqrt(width) if scale is None else scale)
        if is_causal:
            if attn_mask is not None:
                raise ValueError("attention: give a mask or is_causal, not both")
            rows, columns = (scores._iota(s) for s in scores.shape[-2:])
            scores = (columns.unsqueeze(0) <= rows.unsqueeze(1)).where(scores, -math.inf)
        elif attn_mask is not None:
            mask = self._new(attn_mask.uop)
            scores = mask.where(scores, -math.inf) if mask.dtype is dtypes.bool else scores.add(mask)
        return scores.softmax(-1).matmul(v.float(), dtypes.float32).cast(self.dtype)

    def cross_entropy(self, target: TensorCore) -> Self:
        """Mean negative log likelihood of integer class `target` (…) under logits (…, classes)."""
        classes = self.shape[-1]
        if not isinstance(classes, int):
            raise ValueError("cross_entropy: the number of classes must not be symbolic")
        hot = self._new(target.uop).one_hot(classes)
        return self.log_softmax(-1).mul(hot).sum(-1).mean().neg()
