"""Mixtures of experts of com.microsoft: of many MLPs each token goes through a few
(https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyweb.formats.onnx.call import Call
from tinyweb.formats.onnx.operators.common import cast, fixed
from tinyweb.formats.onnx.registry import op
from tinyweb.formats.onnx.stored import fields, packed_blocks
from tinyweb.nn.quantized_weight import QuantizedWeight
from tinyweb.nn.stack import Stack
from tinyweb.tensor import Tensor

MICROSOFT = "com.microsoft"
KINDS = ("relu", "relu2", "gelu", "silu", "identity", "swiglu", "geglu")
APART, WOVEN, JOINED = 0, 1, 2  # how the rows of gates and of what they gate lie in the first layer


def _floats(call: Call, place: int, weight: Any, bias: Any) -> Stack | None:
    """Matrices (experts, out, in) of floats, quantised where that is wanted."""
    if weight is None:
        return None
    experts, rows, width = (fixed(n) for n in weight.shape)
    array, bias = call.array(place, weight), None if bias is None else call.given(bias).float().reshape(-1)
    around, made = call.around, None
    if array is not None:
        flat = array.reshape(experts * rows, width)
        made = around.kept.quantised(flat.T, True, call.node.inputs[place], around.activations)
    return Stack(call.given(weight).reshape(-1, width) if made is None else made.weight, rows, bias)


def _stored(call: Call, at: Sequence[int], values: Sequence[Any], width: int, bits: int) -> Stack | None:
    """Matrices (experts, out, in) as bytes, with scales, maybe zero points (their places: `at`), and bias."""
    *given, bias = values
    if given[0] is None:
        return None
    packed, scales, zeros = (None if v is None else call.array(i, v) for i, v in zip(at, given))
    if packed is None or scales is None or (zeros is None and given[2] is not None):
        raise call.unsupported("weights of experts that are computed")
    experts, rows, block = *packed.shape[:2], call.integer("block_size", 0)
    blocks, every = (width // block if block else 1), experts * rows
    if packed.dtype != np.uint8 or packed.size * 8 != every * width * bits or scales.size != every * blocks:
        raise call.error(
            f"weights of shape {list(packed.shape)} with scales of {list(scales.shape)} are not those of {width} "
            f"columns in {bits} bits, in blocks of {block or width}"
        )
    if zeros is not None:
        if not block:  # those of all rows lie together
            zeros = fields(zeros.reshape(experts, -1), bits)[:, :rows]
        if zeros.size != (every if not block else every * -(-blocks * bits // 8)):
            raise call.error(f"zero points of shape {list(given[2].shape)} do not go with {blocks} blocks of a row")
        zeros = zeros.reshape(every, -1)

    def make() -> QuantizedWeight:
        bytes_of = packed.reshape(every, blocks, -1)
        return packed_blocks(bytes_of, scales.reshape(every, blocks), zeros, bits, call.device)

    weight = call.around.kept.matrix(given, call.node.inputs[at[0]], make)
    return Stack(weight, rows, None if bias is None else call.given(bias).float().reshape(-1))


def _through(stack: Stack, x: Tensor, chosen: Tensor) -> Tensor:
    """Rows of quantised matrices may go on beyond the width."""
    missing = fixed(stack.weight.shape[1]) - fixed(x.shape[-1])
    return stack(x.pad([(0, 0), (0, 0), (0, missing)]) if missing else x, chosen)


def _activated(call: Call, kind: str, x: Tensor) -> Tensor:
    if kind == "gelu":
        return x.gelu("tanh")
    if kind == "relu2":
        return x.relu().square()
    return x if kind == "identity" else x.silu() if kind == "silu" else x.relu()


def _gated(call: Call, kind: str, gate: Tensor, up: Tensor) -> Tensor:
    if kind == "geglu":
        return gate.gelu("tanh") * up
    if kind != "swiglu":
        return _activated(call, kind, gate) * up
    limit, late = call.real("swiglu_limit", math.inf), call.integer("swiglu_limit_after_activation", 0)
    if math.isfinite(limit):
        gate, up = gate if late else gate.minimum(limit), up.clamp(-limit, limit)
    gate = gate * (gate * call.real("activation_alpha", 1.0)).sigmoid()
    gate = gate.minimum(limit) if late and math.isfinite(limit) else gate
    return gate * (up + call.real("activation_beta", 0.0))


def _inner(call: Call, first: Tensor, other: Tensor | None) -> Tensor:
    """What the second layer reads, of the first one's (tokens, chosen, width)."""
    kind, how = call.choice("activation_type", "relu", KINDS), call.integer("swiglu_fusion", APART)
    if how not in (APART, WOVEN, JOINED):
        raise call.error(f"swiglu_fusion is {how}, not one of 0, 1, 2")
    if other is not None:
        return _gated(call, kind, first, other)
    if kind not in ("swiglu", "geglu"):
        return _activated(call, kind, first)
    if how == APART:
        raise call.error(f"{kind} needs weights of a third layer, or swiglu_fusion 1 or 2")
    parts = first.unflatten(-1, (-1, 2) if how == WOVEN else (2, -1))
    return _gated(call, kind, *((parts[..., i] if how == WOVEN else parts[..., i, :]) for i in (0, 1)))


def _mixed(
    call: Call, x: Tensor, scores: Tensor, weights: Tensor | None, first: Stack | None, second: Stack | None,
    third: Stack | None,
) -> Tensor:  # fmt: skip
    """Of the experts with the highest scores (tokens, experts) the weighted sum, in the shape of `x`. Each token reads
    the rows of its own experts alone."""
    if call.integer("use_sparse_mixer", 0):
        raise call.unsupported("use_sparse_mixer")
    if first is None or second is None:
        raise call.error("the weights of a layer are missing")
    k, count = call.integer("k", 1), fixed(scores.shape[-1])
    if not 1 <= k <= count == first.count == second.count:
        raise call.error(f"{k} of {count} experts, with weights of {first.count} and {second.count}")
    held = x.float().reshape(-1, 1, x.shape[-1])
    best, chosen = scores.float().topk(k)
    if weights is not None:
        best = weights.float().gather(-1, chosen)
        best = best / best.sum(-1, True) if call.integer("normalize_routing_weights", 0) else best
    elif call.integer("normalize_routing_weights", 0):
        best = best.softmax(-1)  # that of all, divided by the sum of the chosen
    else:
        best = scores.float().softmax(-1).gather(-1, chosen)
    inner = _inner(call, _through(first, held, chosen), None if third is None else _through(third, held, chosen))
    y = (_through(second, inner, chosen) * best.unsqueeze(-1)).sum(1)
    return cast(y.reshape(*x.shape), x.dtype)


@op("MoE", domain=MICROSOFT, keeps=True, stored=tuple(range(2, 8)))
def moe(
    call: Call, x: Tensor, scores: Tensor, w1: Any, b1: Any = None, w2: Any = None, b2: Any = None, w3: Any = None,
    b3: Any = None,
) -> Tensor:  # fmt: skip
    each = (_floats(call, i, w, b) for i, w, b in ((2, w1, b1), (4, w2, b2), (6, w3, b3)))
    return _mixed(call, x, scores, None, *each)


@op("QMoE", domain=MICROSOFT, keeps=True, stored=tuple(range(2, 14)))
def q_moe(
    call: Call, x: Tensor, scores: Tensor, w1: Any, s1: Any, b1: Any, w2: Any, s2: Any = None, b2: Any = None,
    w3: Any = None, s3: Any = None, b3: Any = None, z1: Any = None, z2: Any = None, z3: Any = None,
    weights: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Weights stay the integers that they are: a quantised matrix of the rows of all experts."""
    if call.text("quant_type", "int") != "int" or call.integer("weights_prepacked", -1) > 0:
        raise call.unsupported("weights other than raw integers")
    bits = call.integer("expert_weight_bits", 4)
    stacks, width = [], fixed(x.shape[-1])
    for i, (w, s, z, b) in enumerate(((w1, s1, z1, b1), (w2, s2, z2, b2), (w3, s3, z3, b3))):
        own = call.integer(f"fc{i + 1}_expert_weight_bits", bits)
        if own not in (2, 4, 8):
            raise call.unsupported(f"weights of {own} bits")
        columns = fixed(w2.shape[2]) * 8 // own if i == 1 and w2 is not None else width
        stacks.append(_stored(call, (2 + 3 * i, 3 + 3 * i, 11 + i), (w, s, z, b), columns, own))
    return _mixed(call, x, scores, weights, *stacks)
