"""Operators of com.microsoft that onnxruntime's optimisers and quantiser put in place of several others:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call
from tinyweb.formats.onnx.operators.common import cast, fixed, wide
from tinyweb.formats.onnx.operators.contrib import MICROSOFT, attend, embed_layer_normalization
from tinyweb.formats.onnx.operators.convolution import conv
from tinyweb.formats.onnx.operators.linear import fused_matmul, gemm
from tinyweb.formats.onnx.operators.normalization import normal_groups
from tinyweb.formats.onnx.operators.quantization import matmul_integer_to_float
from tinyweb.formats.onnx.operators.recurrent import recurrent
from tinyweb.formats.onnx.registry import op
from tinyweb.tensor import Tensor

# 4-bit numbers of bitsandbytes: floats of two bits of exponent and one of mantissa, over the largest; NF4 (QLoRA,
# Dettmers et al. 2023, arXiv 2305.14314, appendix E)
FP4 = [0, 0.0625 / 12, 8 / 12, 1, 4 / 12, 6 / 12, 2 / 12, 3 / 12]
NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip


def activated(call: Call, x: Tensor, numbers: list[float]) -> Tensor:
    """What the attribute `activation` makes of values; `numbers` are its parameters, in order."""
    name = call.text("activation", "")

    def at(i: int, default: float) -> float:
        return numbers[i] if i < len(numbers) else default

    if name == "Clip":
        return x.clamp(at(0, -math.inf), at(1, math.inf))
    if name == "LeakyRelu":
        return x.leaky_relu(at(0, 0.01))
    if name == "HardSigmoid":
        return (x * at(0, 0.2) + at(1, 0.5)).clamp(0, 1)
    if name == "Gelu":
        return x.gelu()
    if name not in ("", "Relu", "Sigmoid", "Tanh"):
        raise call.unsupported(f"the activation {name}")
    found: Tensor = getattr(x, name.lower())() if name else x
    return found


def _parameters(call: Call) -> list[float]:
    each = [call.real(f"activation_{name}", None) for name in ("alpha", "beta")]
    return [v for v in each if v is not None]


@op("FusedConv", domain=MICROSOFT, stored=(0, 1))
def fused_conv(call: Call, x: Any, w: Any, b: Tensor | None = None, more: Tensor | None = None) -> Tensor:
    y = conv(call, x, w, b)
    return cast(activated(call, y if more is None else y + more, call.reals("activation_params", [])), y.dtype)


@op("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None, more: Tensor | None = None) -> Tensor:
    """Channels last: x (N, n…, C), w (out, k…, C / groups)."""
    y = conv(call, x.movedim(-1, 1), w.movedim(-1, 1), b).movedim(1, -1)
    return cast(activated(call, y if more is None else y + more, call.reals("activation_params", [])), x.dtype)


@op("FusedGemm", domain=MICROSOFT, stored=(0, 1))
def fused_gemm(call: Call, a: Any, b: Any, c: Tensor | None = None) -> Tensor:
    y = gemm(call, a, b, c)
    return cast(activated(call, y, _parameters(call)), y.dtype)


@op("FusedMatMulActivation", domain=MICROSOFT, stored=(1,))
def fused_matmul_activation(call: Call, a: Tensor, b: Any) -> Tensor:
    y = fused_matmul(call, a, b)
    return cast(activated(call, y, _parameters(call)), y.dtype)


@op("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(call: Call, x: Tensor, bias: Tensor) -> Tensor:
    """Over all axes from one on, taken together. The bias is repeated within a batch or over batches."""
    axis = call.integer("axis", 1) % x.ndim
    if not call.integer("is_inner_broadcast", 0) and bias.ndim < x.ndim:
        bias = bias.reshape(*bias.shape[:1], *(1,) * (x.ndim - bias.ndim), *bias.shape[1:])
    y = wide(x) + bias
    return cast(y.reshape(*x.shape[:axis], -1).softmax(-1).reshape(*x.shape), x.dtype)


@op("BiasDropout", domain=MICROSOFT)
def bias_dropout(
    call: Call, x: Tensor, bias: Tensor, residual: Tensor | None = None, ratio: Any = None, training: Any = None
) -> Any:
    if training is not None and bool(call.known(training, "training_mode").reshape(())):
        raise call.unsupported("dropout while training")
    y = x + bias
    y = cast(y if residual is None else y + residual, x.dtype)
    return y, y.eq(y) | True


@op("CDist", domain=MICROSOFT)
def cdist(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """Distances of all rows of a (M, N) to all of b (K, N)."""
    metric = call.choice("metric", "sqeuclidean", ("euclidean", "sqeuclidean"))
    squares = (wide(a).unsqueeze(1) - wide(b).unsqueeze(0)).square().sum(-1)
    return cast(squares if metric == "sqeuclidean" else squares.sqrt(), a.dtype)


@op("GemmFastGelu", domain=MICROSOFT, stored=(1,))
def gemm_fast_gelu(call: Call, x: Tensor, w: Any, bias: Tensor | None = None) -> Tensor:
    y = fused_matmul(call, x, w)
    return cast(wide(y if bias is None else y + bias).gelu("tanh"), x.dtype)


@op("GroupNorm", domain=MICROSOFT)
def group_norm(call: Call, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Channels last as it is said; with `activation` 1 its SiLU."""
    last = bool(call.integer("channels_last", 1))
    y = normal_groups(call, x.movedim(-1, 1) if last else x, call.integer("groups"))
    y = y.movedim(1, -1) if last else y
    axes = (1,) * (0 if last else x.ndim - 2)
    y = y * gamma.reshape(-1, *axes) + beta.reshape(-1, *axes)
    return cast(y.silu() if call.integer("activation", 0) else y, x.dtype)


@op("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(
    call: Call, x: Tensor, gamma: Tensor, beta: Tensor, skip: Tensor, bias: Tensor | None = None
) -> Any:
    last = bool(call.integer("channels_last", 1))
    axes = (1,) * (0 if last else x.ndim - 2)
    rows = skip if skip.ndim == x.ndim else skip.reshape(*skip.shape[:1], *(1,) * (x.ndim - 2), -1)
    rows = rows if skip.ndim == x.ndim or last else rows.movedim(-1, 1)
    y = x + rows
    y = y if bias is None else y + bias.reshape(-1, *axes)
    return group_norm(call, y, gamma, beta), y


@op("QAttention", domain=MICROSOFT, stored=(0, 1))
def q_attention(
    call: Call, x: Any, w: Any, b: Tensor, x_scale: Tensor, w_scale: Tensor, mask: Tensor | None = None,
    x_zero: Any = None, w_zero: Any = None, past: Tensor | None = None,
) -> Any:  # fmt: skip
    """Attention of a product of integers."""
    y = matmul_integer_to_float(call, x, w, x_scale.reshape(-1), w_scale.reshape(-1), x_zero, w_zero, b)
    return attend(call, y, [fixed(y.shape[-1]) // 3] * 3, mask, past)


@op("DynamicQuantizeLSTM", domain=MICROSOFT, stored=(1, 2, 8, 9, 10, 11))
def dynamic_quantize_lstm(
    call: Call, x: Tensor, w: Any, r: Any, b: Tensor | None, lengths: Tensor | None, h0: Tensor | None,
    c0: Tensor | None, peepholes: Tensor | None, w_scale: Any, w_zero: Any, r_scale: Any, r_zero: Any,
) -> Any:  # fmt: skip
    """Weights (directions, in, 4 · hidden) of bytes; what they are multiplied with stays float."""
    floats = [_floats(call, place, *each) for place, *each in ((1, w, w_scale, w_zero), (2, r, r_scale, r_zero))]
    return recurrent(call, x, *floats, b, lengths, h0, c0, peepholes, kind="LSTM")


def _floats(call: Call, place: int, integers: Any, scale: Any, zero: Any) -> Tensor:
    """(integers − zero) · scale for each direction, or each of its rows, turned."""
    known = [call.array(at, v) for at, v in ((place, integers), (2 * place + 6, scale), (2 * place + 7, zero))]
    if any(v is None for v in known):
        whole, s, z = (call.given(v).cast(dtypes.float32) for v in (integers, scale, zero))
        axes = whole.shape[0], 1, -1
        turned: Tensor = ((whole - z.reshape(*axes)) * s.reshape(*axes)).transpose(1, 2)
        return turned

    def made() -> Any:
        whole, s, z = (np.asarray(v).astype(np.float32) for v in known)
        axes = len(whole), 1, -1
        return np.ascontiguousarray(((whole - z.reshape(axes)) * s.reshape(axes)).transpose(0, 2, 1))

    name = call.node.inputs[place]
    found: Tensor = call.around.kept.derived(("floats", call.node.path, name), f"{name}.floats", made)
    return found


@op("QEmbedLayerNormalization", domain=MICROSOFT)
def q_embed_layer_normalization(
    call: Call, ids: Tensor, segments: Tensor | None, words: Tensor, places: Tensor, kinds: Tensor | None,
    gamma: Tensor, beta: Tensor, mask: Tensor | None, *scales: Tensor,
) -> Any:  # fmt: skip
    """The same as EmbedLayerNormalization, of tables of bytes with a scale each."""
    each = zip((words, places, kinds, gamma, beta), scales[:5], scales[5:], strict=True)
    tables = [None if t is None else (t.cast(dtypes.int32) - z.cast(dtypes.int32)).cast(dtypes.float32) * s
              for t, s, z in each]  # fmt: skip
    return embed_layer_normalization(call, ids, segments, *tables, mask)[:2]


@op("MatMulBnb4", domain=MICROSOFT, host=(1,))
def matmul_bnb4(call: Call, a: Tensor, b: Any, largest: Tensor) -> Tensor:
    """Weights (N, K) in blocks of 4-bit numbers of bitsandbytes, each with its largest absolute value."""
    n, k, block = call.integer("N"), call.integer("K"), call.integer("block_size")
    table = np.array(NF4 if call.integer("quant_type", 1) else [*FP4, *(-v for v in FP4)], np.float32)
    halves = np.asarray(b).reshape(-1)
    codes = np.stack([halves >> 4, halves & 15], -1).reshape(-1)[: n * k]
    numbers = call.around.kept.derived(("bnb4", call.node.path), call.node.inputs[1], lambda: table[codes])
    if block < 1 or codes.size != n * k:
        raise call.error(f"{codes.size} weights are not {n} × {k}")
    scale = largest.reshape(-1, 1).expand(-(-n * k // block), block).reshape(-1)[: n * k]
    return cast(wide(a).matmul((numbers * scale).reshape(n, k).transpose(0, 1)), a.dtype)
