"""Multi-head attention as a layer, with PyTorch's arguments, names and initial weights."""

from __future__ import annotations

import math

from tinyweb.array.activation import is_training
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import size_max
from tinyweb.nn.layers import Linear
from tinyweb.nn.parameters import constant, learned
from tinyweb.tensor import Tensor


class MultiheadAttention:
    """Attention in `num_heads` subspaces (Vaswani et al. 2017): (L, N, E), (N, L, E) with `batch_first`, or (L, E).

    `in_proj_weight` (3 · E, E) makes query, key and value, or, where `kdim` or `vdim` differ, `q_proj_weight`,
    `k_proj_weight` and `v_proj_weight`; `in_proj_bias` (3 · E,); `out_proj` is a Linear. `add_bias_kv` adds a learned
    key and value (`bias_k`, `bias_v`) to each sequence, `add_zero_attn` one of zeros.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False, *,
        device: str | None = None, dtype: DType = dtypes.float32,
    ):  # fmt: skip
        if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: a width of {embed_dim} does not divide into {num_heads} heads")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.add_zero_attn = add_zero_attn
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.in_proj_weight = self.q_proj_weight = self.k_proj_weight = self.v_proj_weight = None
        glorot = [
            learned(Tensor.xavier_uniform(*shape, device=device).cast(dtype))
            for shape in (
                [(3 * embed_dim, embed_dim)]
                if self.kdim == self.vdim == embed_dim
                else [(embed_dim, embed_dim), (embed_dim, self.kdim), (embed_dim, self.vdim)]
            )
        ]
        if len(glorot) == 1:
            (self.in_proj_weight,) = glorot
        else:
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = glorot
        self.in_proj_bias = constant((3 * embed_dim,), 0, device, dtype) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, False, device=device, dtype=dtype)
        self.out_proj.bias = constant((embed_dim,), 0, device, dtype) if bias else None
        self.bias_k = self.bias_v = None
        if add_bias_kv:
            std = math.sqrt(2 / (embed_dim + 1))
            self.bias_k, self.bias_v = (
                learned(Tensor.normal(1, 1, embed_dim, std=std, device=device).cast(dtype)) for _ in range(2)
            )

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The output (of the query's shape), and the weights (N, L, S), or (N, heads, L, S) if not averaged, or None.

        Masks are boolean, true where a key must not be seen, or floats to be added: `key_padding_mask` (N, S),
        `attn_mask` (L, S) or (N · heads, L, S). `is_causal` stands for the mask of all later keys where none is given.
        """
        if query.ndim == 2:
            axis = 0 if self.batch_first else 1
            padding = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
            y, w = self(
                query.unsqueeze(axis), key.unsqueeze(axis), value.unsqueeze(axis), padding, need_weights, attn_mask,
                average_attn_weights, is_causal,
            )  # fmt: skip
            return y.squeeze(axis), None if w is None else w.squeeze(0)
        if not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        for name, t, width in (("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim)):
            if t.ndim != 3 or t.shape[-1] != width:
                raise ValueError(f"MultiheadAttention: {name} needs 3 (or 2) axes, the last of {width}, got {t.shape}")
        q, k, v = self._projected(query, key, value)
        batch, length, _ = q.shape
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (t.cat(b.expand(batch, 1, self.embed_dim), axis=1) for t, b in ((k, self.bias_k), (v, self.bias_v)))
        if self.add_zero_attn:
            k, v = (t.pad([(0, 0), (0, 1), (0, 0)]) for t in (k, v))
        heads = self.num_heads
        q, k, v = (t.reshape(batch, t.shape[1], heads, -1).transpose(1, 2) for t in (q, k, v))
        mask = self._mask(q, size_max(k.shape[-2]), key_padding_mask, attn_mask, is_causal)
        p = self.dropout if is_training(None) else 0.0
        weights = None
        if need_weights:
            scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(self.embed_dim // heads))
            weights = (scores if mask is None else scores + mask).softmax(-1).dropout(p, True)
            y = weights @ v
        else:
            y = q.scaled_dot_product_attention(k, v, mask, p)
        out = self.out_proj(y.transpose(1, 2).reshape(batch, length, self.embed_dim))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        return out if self.batch_first else out.transpose(0, 1), weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        e = self.embed_dim
        if self.in_proj_weight is not None:
            wq, wk, wv = (self.in_proj_weight[i * e : (i + 1) * e] for i in range(3))
        else:
            assert self.q_proj_weight is not None and self.k_proj_weight is not None and self.v_proj_weight is not None
            wq, wk, wv = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        bias = self.in_proj_bias
        bq, bk, bv = (None if bias is None else bias[i * e : (i + 1) * e] for i in range(3))
        return query.linear(wq, bq), key.linear(wk, bk), value.linear(wv, bv)

    def _mask(
        self, q: Tensor, keys: int, padding: Tensor | None, mask: Tensor | None, is_causal: bool
    ) -> Tensor | None:
        """What is added to scores (N, heads, L, keys)."""
        batch, heads, length, _ = q.shape
        added = None
        if mask is None and is_causal:
            mask = Tensor.ones(length, keys, dtype=dtypes.bool, device=q.device).triu(1)
        if mask is not None:
            added = self._filled(mask, keys)
            if added.ndim == 3:
                added = added.reshape(batch, heads, length, keys)
        if padding is not None:
            hidden = self._filled(padding, keys).reshape(batch, 1, 1, keys)
            added = hidden if added is None else added + hidden
        return added

    @staticmethod
    def _filled(mask: Tensor, keys: int) -> Tensor:
        """As floats to add, with zeros for the keys that were put behind those of the caller."""
        added = mask.where(-math.inf, 0.0) if mask.dtype is dtypes.bool else mask.float()
        return added.pad([*((0, 0),) * (added.ndim - 1), (0, keys - size_max(added.shape[-1]))])
