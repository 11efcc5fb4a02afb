"""Operators of com.microsoft that exported transformers use:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call
from tinyweb.formats.onnx.operators.attention import heads_apart, heads_together, positions, rotate
from tinyweb.formats.onnx.operators.blocks import EIGHT_BITS, blocked_matrix, packed_matrix
from tinyweb.formats.onnx.operators.common import cast, dtype_of, fixed, wide
from tinyweb.formats.onnx.registry import op
from tinyweb.graph.schedule.indexing import same
from tinyweb.tensor import Tensor

MICROSOFT = "com.microsoft"


# -- activations ------------------------------------------------------------------------------------------------------
@op("FastGelu", domain=MICROSOFT)
def fast_gelu(call: Call, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return cast(wide(x if bias is None else x + bias).gelu("tanh"), x.dtype)


@op("BiasGelu", domain=MICROSOFT)
def bias_gelu(call: Call, x: Tensor, bias: Tensor) -> Tensor:
    return cast(wide(x + bias).gelu(), x.dtype)


@op("QuickGelu", domain=MICROSOFT)
def quick_gelu(call: Call, x: Tensor) -> Tensor:
    return cast(x * (x * call.real("alpha", 1.702)).sigmoid(), x.dtype)


@op("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(call: Call, x: Tensor, bias: Tensor) -> Tensor:
    a, b = (x + bias).chunk(2, -1)
    return cast(a * b.gelu(), x.dtype)


@op("BiasAdd", domain=MICROSOFT)
def bias_add(call: Call, x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return cast(x + bias + skip, x.dtype)


# -- weights of few bits ----------------------------------------------------------------------------------------------
def codes(packed: Tensor, bits: int) -> Tensor:
    """Bytes (…, n) as unsigned integers (…, n · 8 / bits), the first lowest."""
    if bits == 8:
        return packed
    each = 8 // bits
    shifts = Tensor(np.arange(0, 8, bits, dtype=np.uint8), device=packed.device)
    parts = packed.unsqueeze(-1).bitwise_right_shift(shifts).bitwise_and((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], fixed(packed.shape[-1]) * each)


def zeros_of(zero: Tensor | None, rows: int, blocks: int, bits: int) -> Any:
    """The zero points of (rows, blocks), packed row by row or floats; the middle where there are none."""
    if zero is None:
        return float(1 << (bits - 1))
    if zero.dtype.is_float:
        return zero.reshape(rows, blocks, 1).cast(dtypes.float32)
    flat = codes(zero.reshape(rows, -1), bits)
    return flat.shrink([None, (0, blocks)]).reshape(rows, blocks, 1).cast(dtypes.float32)


@op("MatMulNBits", domain=MICROSOFT, keeps=True, stored=(1, 2, 3))
def matmul_n_bits(
    call: Call, a: Tensor, b: Any, scales: Any, zero: Any = None, places: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Weights that are the same in every call are a quantised matrix; `accuracy_level` 4 rounds what it is multiplied
    with to 8 bits where the device has instructions for such products, all others keep floats."""
    n, k = call.integer("N"), call.integer("K")
    bits, block = call.integer("bits", 4), call.integer("block_size")
    if bits not in (2, 4, 8):
        raise call.unsupported(f"weights of {bits} bits")
    blocks = -(-k // block)
    if places is None:
        rounds = call.integer("accuracy_level", 0) == EIGHT_BITS
        matrix = packed_matrix(call, (1, 2, 3), (b, scales, zero), (n, k), blocks, bits, rounds)
        if matrix is not None:
            y = matrix.transposed.times(a)
            return cast(y if bias is None else y + bias, a.dtype)
    b, scales, zero = (call.given(v) for v in (b, scales, zero))
    whole = codes(b.reshape(n, blocks, -1), bits).cast(dtypes.float32)
    scale = scales.reshape(n, blocks, 1).cast(dtypes.float32)
    if places is not None:
        flat = whole.reshape(n, blocks * block)[:, :k]
        at = places[:k].cast(dtypes.int32)
        z = zeros_of(zero, n, blocks, bits)
        z = z.reshape(n, blocks).take(at, 1) if isinstance(z, Tensor) else z
        w = (flat - z) * scale.reshape(n, blocks).take(at, 1)
    else:
        w = ((whole - zeros_of(zero, n, blocks, bits)) * scale).reshape(n, blocks * block)[:, :k]
    y = wide(a).matmul(w.transpose(0, 1))
    return cast(y if bias is None else y + bias, a.dtype)


@op("GatherBlockQuantized", domain=MICROSOFT, keeps=True, stored=(0, 2, 3))
def gather_block_quantized(call: Call, data: Any, index: Tensor, scales: Any, zero: Any = None) -> Tensor:
    axis, along = call.integer("gather_axis", 0), call.integer("quantize_axis", 1)
    block, bits = call.integer("block_size", 128), call.integer("bits", 4)
    packed = dtype_of(data) is dtypes.uint8
    ndim = len(data.shape)
    axis, along = axis % ndim, along % ndim
    if axis != 0 or along != ndim - 1:
        raise call.unsupported("gather_axis other than the first and quantize_axis other than the last")
    at = index.cast(dtypes.int32)
    n = fixed(data.shape[0])
    at = (at < 0).where(at + n, at)
    table, width = None, fixed(data.shape[-1]) * (8 // bits if packed else 1)
    if packed and ndim == 2 and width % block == 0:
        table = packed_matrix(call, (0, 2, 3), (data, scales, zero), (n, width), width // block, bits)
    elif not packed:
        table = blocked_matrix(call, (0, 2, 3), (data, scales, zero), along, block)
    if table is not None:
        return table.rows(at)
    data, scales, zero = (call.given(v) for v in (data, scales, zero))
    picked, scale = data.take(at, 0), scales.take(at, 0).cast(dtypes.float32)
    whole = codes(picked, bits) if packed else picked
    values: Tensor = whole.cast(dtypes.float32)
    width, blocks = fixed(values.shape[-1]), fixed(scale.shape[-1])
    z: Any = float(1 << (bits - 1)) if packed else 0.0
    if zero is not None:
        own = zero.take(at, 0)
        own = codes(own, bits) if packed else own
        z = own[..., :blocks].cast(dtypes.float32).unsqueeze(-1)
    missing = blocks * block - width
    if missing:
        values = values.pad([(0, 0)] * (values.ndim - 1) + [(0, missing)])
    parts = (values.reshape(*values.shape[:-1], blocks, block) - z) * scale.unsqueeze(-1)
    y: Tensor = parts.reshape(*values.shape[:-1], blocks * block)[..., :width]
    return cast(y, scales.dtype)


# -- attention --------------------------------------------------------------------------------------------------------
@op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(call: Call, x: Tensor, at: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Positions: one, that of the first token, or (N, L)."""
    width = 2 * fixed(cos.shape[-1])
    length = x.shape[1] if x.ndim == 3 else x.shape[2]
    heads = call.integer("num_heads", 0) or (fixed(x.shape[2]) // width if x.ndim == 3 else fixed(x.shape[1]))
    y = x.reshape(x.shape[0], length, heads, fixed(x.shape[2]) // heads) if x.ndim == 3 else x.permute(0, 2, 1, 3)
    if at.numel() == 1:
        at = at.reshape(1, 1).cast(dtypes.int32) + positions(length, x.device)
    y = turned(y, at, cos, sin, bool(call.integer("interleaved", 0)))
    return cast(y.reshape(*x.shape) if x.ndim == 3 else y.permute(0, 2, 1, 3), x.dtype)


def turned(x: Tensor, at: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """(N, L, heads, d), of which as many elements are turned as the tables are wide twice."""
    width = 2 * fixed(cos.shape[-1])
    c, s = (t.take(at.cast(dtypes.int32), 0).unsqueeze(2) for t in (cos, sin))
    y = rotate(x[..., :width], c, s, interleaved)
    return Tensor.cat(y, x[..., width:], axis=-1) if width < fixed(x.shape[-1]) else y


def weighted(
    call: Call, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, bias: Tensor | None, sinks: Any = None
) -> Tensor:
    """softmax(q kᵀ · scale + bias) v of what is seen, heads apart. `sinks`: scores of a key beside the others whose
    value is 0, one for all or one for each head."""
    scale = call.real("scale", 0.0) or 1 / math.sqrt(fixed(q.shape[-1]))
    scores = (wide(q) * scale).matmul(wide(k).transpose(-1, -2))
    if cap := call.real("softcap", 0.0):
        scores = (scores / cap).tanh() * cap
    scores = scores if bias is None else scores + bias
    scores = scores if seen is None else seen.where(scores, call.real("mask_filter_value", -math.inf))
    if sinks is None:
        plain: Tensor = scores.softmax(-1).matmul(wide(v))
        return cast(plain, q.dtype)
    largest = scores.max(-1, keepdim=True).maximum(sinks)
    weights: Tensor = (scores - largest).exp()
    total = weights.sum(-1, keepdim=True) + (sinks - largest).exp()
    y: Tensor = (weights / total).matmul(wide(v))
    return cast(y, q.dtype)


@op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    call: Call, q: Tensor, k: Tensor | None, v: Tensor | None, past_key: Tensor | None, past_value: Tensor | None,
    lengths: Tensor, total: Tensor, cos: Tensor | None = None, sin: Tensor | None = None, at: Tensor | None = None,
    bias: Tensor | None = None, sinks: Tensor | None = None, *more: Any,
) -> Any:  # fmt: skip
    """`lengths` (N,): keys that count, less 1. `sinks` (heads,); smooth softmax has those of 0. New keys follow those
    of the past, whose buffer grows by them."""
    if any(m is not None for m in more):
        raise call.unsupported("quantised caches")
    heads, shared = call.integer("num_heads"), call.integer("kv_num_heads")
    n, length = fixed(q.shape[0]), fixed(q.shape[1])
    if k is None or v is None:
        width = fixed(q.shape[2]) // (heads + 2 * shared)
        q, k, v = (q[..., a * width : b * width] for a, b in
                   ((0, heads), (heads, heads + shared), (heads + shared, heads + 2 * shared)))  # fmt: skip
    past = 0 if past_key is None else past_key.shape[2]
    # keys of the past, for each of the batch: a cache holds nothing else
    cached = past_key is not None and call.grows(past_key)
    before = lengths.reshape(-1, 1).cast(dtypes.int32) + 1 - length
    if cached:
        before = Tensor(past, dtype=dtypes.int32, device=q.device).reshape(1, 1)
    places = before + Tensor.arange(length, dtype=dtypes.int32, device=q.device)
    q4, k4 = (t.reshape(n, length, h, -1) for t, h in ((q, heads), (k, shared)))
    if call.integer("do_rotary", 0):
        if cos is None or sin is None:
            raise call.error("do_rotary needs tables of cosines and sines")
        where = places.maximum(0) if at is None else at
        q4, k4 = (turned(t, where, cos, sin, bool(call.integer("rotary_interleaved", 0))) for t in (q4, k4))
    q4, k4 = cast(q4, q.dtype).permute(0, 2, 1, 3), cast(k4, k.dtype).permute(0, 2, 1, 3)
    v4 = heads_apart(v, shared)
    if past_key is not None and past_value is not None:
        k4, v4 = call.grown(past_key, k4, 2), call.grown(past_value, v4, 2)
    window = call.integer("local_window_size", -1)
    seen: Tensor | None = None
    if not cached or length > 1 or window >= 0:  # the last token sees all of a cache
        j = positions(k4.shape[2], q.device).reshape(1, 1, 1, 1, -1)
        i = places.reshape(-1, 1, 1, length, 1)
        seen = j <= i
        seen = seen if window < 0 else seen & (j > i - window)
    if bias is not None:  # (1 or N, 1 or heads, L, keys)
        bias = bias.unsqueeze(2) if bias.shape[1] == 1 else bias.reshape(bias.shape[0], shared, -1, *bias.shape[2:])
    # heads of queries that share one of keys lie side by side: keys are not repeated
    q5 = q4.reshape(n, shared, heads // shared, length, -1)
    beside: Any = 0.0 if call.integer("smooth_softmax", 0) > 0 else None
    beside = beside if sinks is None else wide(sinks).reshape(1, shared, heads // shared, 1, 1)
    y = weighted(call, q5, k4.unsqueeze(2), v4.unsqueeze(2), seen, bias, beside)
    return heads_together(y.reshape(n, heads, length, -1)), k4, v4


def _one_of(packed: Tensor, i: int) -> Tensor:
    """Of (N, L, heads, …, d) one part as (N, L, heads · d)."""
    n, length, heads, _, width = packed.shape
    return packed[:, :, :, i].reshape(n, length, fixed(heads) * fixed(width))


@op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    call: Call, q: Tensor, k: Tensor | None = None, v: Tensor | None = None, bias: Tensor | None = None,
    key_mask: Tensor | None = None, score_bias: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, *more: Any,
) -> Any:  # fmt: skip
    if any(m is not None for m in more):
        raise call.unsupported("caches in buffers that are shared")
    heads = call.integer("num_heads")
    if q.ndim == 5 and k is None:  # (N, L, heads, 3, d)
        q, k, v = (_one_of(q, i) for i in range(3))
    if k is not None and k.ndim == 5:  # (N, L, heads, 2, d)
        k, v = (_one_of(k, i) for i in range(2))
    if k is None or v is None:
        raise call.unsupported("keys and values are missing")
    if bias is not None:
        width = fixed(q.shape[2])
        q, k = q + bias[:width], k + bias[width : 2 * width] if k.ndim == 3 else k
        v = v + bias[2 * width :] if v.ndim == 3 else v
    q4 = heads_apart(q, heads)
    k4, v4 = (heads_apart(t, heads) if t.ndim == 3 else t for t in (k, v))
    if past_key is not None and past_value is not None:
        k4, v4 = call.grown(past_key, k4, 2), call.grown(past_value, v4, 2)
    keys, queries = k4.shape[2], q4.shape[2]
    j = positions(keys, q.device).reshape(1, 1, 1, keys)
    seen: Tensor | None = None
    if key_mask is not None:
        if key_mask.ndim == 1 and same(key_mask.shape[0], q.shape[0]):
            seen = j < key_mask.reshape(q.shape[0], 1, 1, 1)
        elif key_mask.ndim == 2:
            seen = key_mask.cast(dtypes.bool).reshape(q.shape[0], 1, 1, keys)
        elif key_mask.ndim == 3:
            seen = key_mask.cast(dtypes.bool).unsqueeze(1)
        else:
            raise call.unsupported(f"a mask of shape {list(key_mask.shape)}")
    if call.integer("unidirectional", 0):
        before = 0 if same(keys, queries) else fixed(keys) - fixed(queries)
        causal = j <= positions(queries, q.device).reshape(1, 1, queries, 1) + before
        seen = causal if seen is None else seen & causal
    return heads_together(weighted(call, q4, k4, v4, seen, score_bias)), k4, v4


@op("Attention", domain=MICROSOFT)
def attention(
    call: Call, x: Tensor, w: Tensor, b: Tensor | None = None, mask: Tensor | None = None, past: Tensor | None = None,
    score_bias: Tensor | None = None, *more: Any,
) -> Any:  # fmt: skip
    """One product for queries, keys and values: w (in, q + k + v)."""
    if any(m is not None for m in more):
        raise call.unsupported("caches in buffers that are shared")
    y = x.matmul(w)
    sizes = call.integers("qkv_hidden_sizes", []) or [fixed(w.shape[1]) // 3] * 3
    return attend(call, y if b is None else y + b, sizes, mask, past, score_bias)


def attend(
    call: Call, y: Tensor, sizes: Sequence[int], mask: Tensor | None, past: Tensor | None,
    score_bias: Tensor | None = None,
) -> Any:  # fmt: skip
    """Attention of queries, keys and values side by side; `past` (2, N, heads, L, d) has keys and values before them.
    Its result, and all keys and values."""
    if call.integer("do_rotary", 0):
        raise call.unsupported("rotary positions within")
    q, k, v = y.split(list(sizes), -1)
    before = (None, None) if past is None else (past[0], past[1])
    found, keys, values = multi_head_attention(call, q, k, v, None, mask, score_bias, *before)
    return (found, Tensor.stack(keys, values, axis=0)) if len(call.node.outputs) > 1 else found


@op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    call: Call, ids: Tensor, segments: Tensor | None, words: Tensor, places: Tensor, kinds: Tensor | None,
    gamma: Tensor, beta: Tensor, mask: Tensor | None = None, at: Tensor | None = None,
) -> Any:  # fmt: skip
    length = ids.shape[1]
    x = words.take(ids.cast(dtypes.int32), 0)
    x = x + (places[:length] if at is None else places.take(at.cast(dtypes.int32), 0))
    if segments is not None and kinds is not None:
        x = x + kinds.take(segments.cast(dtypes.int32), 0)
    y = wide(x)
    centred = y - y.mean(-1, True)
    normal = centred * (centred.square().mean(-1, True) + call.real("epsilon", 1e-12)).rsqrt()
    count = Tensor.zeros(ids.shape[0], dtype=dtypes.int32, device=ids.device) if mask is None else mask.sum(1)
    return cast(normal * gamma + beta, words.dtype), cast(count, dtypes.int32), cast(x, words.dtype)
