"""Attention and rotary positions."""

from __future__ import annotations

import math
from typing import Any

from tinyweb.dtype import DType, dtypes
from tinyweb.formats.onnx.call import Call
from tinyweb.formats.onnx.operators.common import cast, fixed
from tinyweb.formats.onnx.registry import op
from tinyweb.graph.ir import Size, size_max
from tinyweb.graph.schedule.indexing import same
from tinyweb.tensor import Tensor


def heads_apart(x: Tensor, heads: int) -> Tensor:
    """(N, L, heads · d) → (N, heads, L, d)."""
    n, length, width = x.shape
    return x.reshape(n, length, heads, fixed(width) // heads).permute(0, 2, 1, 3)


def heads_together(x: Tensor) -> Tensor:
    n, heads, length, width = x.shape
    return x.permute(0, 2, 1, 3).reshape(n, length, fixed(heads) * fixed(width))


def repeated(x: Tensor, times: int) -> Tensor:
    """Each head for `times` heads of queries."""
    if times == 1:
        return x
    n, heads, length, width = x.shape
    return x.unsqueeze(2).expand(n, heads, times, length, width).reshape(n, fixed(heads) * times, length, width)


def positions(n: Size, device: str) -> Tensor:
    return Tensor.arange(size_max(n), dtype=dtypes.int32, device=device)[:n]


def allowed(
    call: Call, queries: Size, keys: Size, offset: int | Tensor, count: Tensor | None, device: str
) -> Tensor | None:
    """What each query may see: (1 or N, 1, queries, keys). `offset`: keys before the first query; `count`: of the keys
    that are there, for each of the batch."""
    causal = call.integer("is_causal", 0)
    left, right = call.integer("left_window_size", -1), call.integer("right_window_size", -1)
    at = positions(queries, device).reshape(1, 1, queries, 1)
    j = positions(keys, device).reshape(1, 1, 1, keys)
    p = at + (offset.reshape(-1, 1, 1, 1) if isinstance(offset, Tensor) else offset)
    parts = []
    if causal:
        parts.append(j <= p)
    if left >= 0:
        parts.append(j >= p - left)
    if right >= 0:
        parts.append(j <= p + right)
    if count is not None:
        parts.append(j < count.reshape(-1, 1, 1, 1))
    found: Tensor | None = None
    for part in parts:
        found = part if found is None else found & part
    return found


def whole_mask(mask: Tensor, keys: Size) -> Tensor:
    """A mask as long as the keys; what it leaves out is not seen."""
    if same(keys, mask.shape[-1]):
        return mask
    keys = fixed(keys)
    missing = keys - fixed(mask.shape[-1])
    if missing <= 0:
        return mask
    around = [(0, 0)] * (mask.ndim - 1) + [(0, missing)]
    if mask.dtype is dtypes.bool:
        return mask.pad(around)
    inside = Tensor.arange(keys, dtype=dtypes.int32, device=mask.device) < fixed(mask.shape[-1])
    return inside.where(mask.pad(around), -math.inf)


@op("Attention")
def attention(
    call: Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, count: Tensor | None = None,
) -> Any:  # fmt: skip
    flat = q.ndim == 3
    if flat:
        q = heads_apart(q, call.integer("q_num_heads"))
        k, v = (heads_apart(t, call.integer("kv_num_heads")) for t in (k, v))
    past = 0
    if past_key is not None and past_value is not None:
        past = fixed(past_key.shape[2])
        k, v = call.grown(past_key, k, 2), call.grown(past_value, v, 2)
    present, queries, keys = (k, v), q.shape[2], k.shape[2]
    times = fixed(q.shape[1]) // fixed(k.shape[1])
    k, v = repeated(k, times), repeated(v, times)
    dtype, precision = q.dtype, call.integer("softmax_precision", 0)
    work = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    chosen: DType | None = call.kind(precision).dtype if precision else None
    scale = call.real("scale", None) or 1 / math.sqrt(fixed(q.shape[-1]))
    scores = (q.cast(work) * scale).matmul(k.cast(work).transpose(-1, -2))
    mode, shown = call.integer("qk_matmul_output_mode", 0), scores
    cap = call.real("softcap", 0.0)
    offset: int | Tensor = past
    if count is not None:
        count = count.cast(dtypes.int32)
        offset = count - fixed(queries) if past_key is None else past
    seen = allowed(call, queries, keys, offset, count, q.device)
    guarded = seen is not None and count is not None
    capped_first = True

    def with_mask(s: Tensor) -> Tensor:
        nonlocal guarded
        if mask is not None:
            m, guarded = whole_mask(mask, keys), True
            s = m.where(s, -math.inf) if m.dtype is dtypes.bool else s + m.cast(work)
        return s if seen is None else seen.where(s, -math.inf)

    if cap and capped_first:
        scores = (scores / cap).tanh() * cap
    shown = scores if mode == 1 else shown
    scores = with_mask(scores)
    shown = scores if mode == 2 else shown
    weights = _softmax(scores if chosen is None else scores.cast(chosen), guarded).cast(work)
    shown = weights if mode == 3 else shown
    y = weights.matmul(v.cast(work))
    return cast(heads_together(y) if flat else y, dtype), *present, cast(shown, dtype)


def _softmax(scores: Tensor, guarded: bool) -> Tensor:
    """Along keys; a query that sees none gets zeros."""
    if not guarded:
        return scores.softmax(-1)
    top: Any = scores.max(-1, True)
    top = top if isinstance(top, Tensor) else top[0]
    none = top.eq(-math.inf)
    e = (scores - none.where(0.0, top)).exp()
    total: Tensor = e / none.where(1.0, e.sum(-1, True))
    return total


@op("FlexAttention", domain="ai.onnx.preview")
def flex_attention(call: Call, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    times = fixed(q.shape[1]) // fixed(k.shape[1])
    k, v = repeated(k, times), repeated(v, times)
    precision = call.integer("softmax_precision", 0)
    work = dtypes.float64 if q.dtype is dtypes.float64 else dtypes.float32
    chosen = call.kind(precision).dtype if precision else work
    assert chosen is not None
    scale = call.real("scale", None) or 1 / math.sqrt(fixed(q.shape[-1]))
    scores = ((q.cast(work) * scale).matmul(k.cast(work).transpose(-1, -2))).cast(chosen)
    if "score_mod" in call.node.graphs:
        (scores,) = call.run(call.graph("score_mod"), [scores])
    weights = _softmax(call.lift(scores), True)
    if "prob_mod" in call.node.graphs:
        (weights,) = call.run(call.graph("prob_mod"), [weights])
    return cast(call.lift(weights).cast(work).matmul(v.cast(work)), q.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """(N, L, heads, d) turned by angles (N, L, 1, d / 2)."""
    half = fixed(x.shape[-1]) // 2
    if interleaved:
        pairs = x.reshape(*x.shape[:-1], half, 2)
        a, b = pairs[..., 0], pairs[..., 1]
        return Tensor.stack(a * cos - b * sin, a * sin + b * cos, axis=-1).reshape(*x.shape)
    a, b = x[..., :half], x[..., half:]
    return Tensor.cat(a * cos - b * sin, a * sin + b * cos, axis=-1)


@op("RotaryEmbedding")
def rotary_embedding(call: Call, x: Tensor, cos: Tensor, sin: Tensor, at: Tensor | None = None) -> Tensor:
    flat = x.ndim == 3
    y = x.reshape(x.shape[0], x.shape[1], call.integer("num_heads"), -1) if flat else x.permute(0, 2, 1, 3)
    width = call.integer("rotary_embedding_dim", 0) or fixed(y.shape[-1])
    if at is not None:
        cos, sin = cos.take(at, 0), sin.take(at, 0)
    turned = rotate(y[..., :width], cos.unsqueeze(2), sin.unsqueeze(2), bool(call.integer("interleaved", 0)))
    if width < fixed(y.shape[-1]):
        turned = Tensor.cat(turned, y[..., width:], axis=-1)
    return cast(turned.reshape(*x.shape) if flat else turned.permute(0, 2, 1, 3), x.dtype)


@op("CausalConvWithState")
def causal_conv_with_state(
    call: Call, x: Tensor, w: Tensor, b: Tensor | None = None, past: Tensor | None = None
) -> Any:
    n, channels, k = fixed(x.shape[0]), fixed(x.shape[1]), fixed(w.shape[-1])
    before = Tensor.zeros(n, channels, k - 1, dtype=x.dtype, device=x.device) if past is None else past
    long = Tensor.cat(before, x, axis=2) if k > 1 else x
    y = cast(long.conv1d(w, b, groups=channels), x.dtype)
    if call.choice("activation", "none", ("none", "silu", "swish")) != "none":
        y = cast(y * y.sigmoid(), x.dtype)
    length = fixed(long.shape[2])
    return y, long[:, :, length - (k - 1) :]


@op("LinearAttention")
def linear_attention(
    call: Call, q: Tensor, k: Tensor, v: Tensor, past: Tensor | None = None, decay: Tensor | None = None,
    beta: Tensor | None = None,
) -> Any:  # fmt: skip
    """One step after the other, unrolled."""
    heads, shared = call.integer("q_num_heads"), call.integer("kv_num_heads")
    rule = call.choice("update_rule", "gated_delta", ("linear", "gated", "delta", "gated_delta"))
    dtype, f32 = q.dtype, dtypes.float32
    q, k, v = (heads_apart(t.cast(f32), h) for t, h in ((q, heads), (k, shared), (v, shared)))
    n, _, steps, width = (fixed(s) for s in k.shape)
    scale = call.real("scale", 0.0) or 1 / math.sqrt(width)
    out = fixed(v.shape[-1])
    s = Tensor.zeros(n, shared, width, out, device=q.device) if past is None else past.cast(f32)
    g = None if decay is None or "gated" not in rule else heads_apart(decay.cast(f32), shared).exp()
    rate = None
    if beta is not None and "delta" in rule:
        rate = beta.cast(f32).permute(0, 2, 1).unsqueeze(-1)  # (N, heads or 1, L, 1)
    rows = []
    for t in range(steps):
        key, value = k[:, :, t].unsqueeze(-1), v[:, :, t].unsqueeze(-2)
        if g is not None:
            s = s * g[:, :, t].unsqueeze(-1)
        new = value
        if "delta" in rule:
            new = (value - (s * key).sum(2, True)) * (1.0 if rate is None else rate[:, :, t].unsqueeze(-1))
        s = (s + key * new).contiguous()
        rows.append((q[:, :, t].unsqueeze(-1) * scale * repeated(s, heads // shared)).sum(2))
    y = heads_together(Tensor.stack(*rows, axis=2))
    return cast(y, dtype), cast(s, dtype if past is None else past.dtype)
