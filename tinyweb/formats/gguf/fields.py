"""Fields of config.json that many architectures of GGUF files have, from the file's metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyweb.errors import ModelFormatError
from tinyweb.formats.gguf.facts import MOST, PATTERN, Facts

Fields = dict[str, Any]


def sizes(f: Facts) -> Fields:
    """What every decoder has."""
    if f.own.integer("attention.value_length", 1, 1 << 16, f.head_dim) != f.head_dim:
        raise ModelFormatError(f"{f.where}: values of heads are not as wide as keys, which is not supported")
    return {
        "hidden_size": f.hidden,
        "intermediate_size": f.own.integer("feed_forward_length", 0, 1 << 20, 0),
        "num_hidden_layers": f.layers,
        "num_attention_heads": f.heads,
        "num_key_value_heads": f.own.integer("attention.head_count_kv", 1, 1024, f.heads),
        "head_dim": f.head_dim,
        "max_position_embeddings": f.own.integer("context_length", 1, MOST),
    }


def rotary(f: Facts, part: float = 1.0) -> Fields:
    """Base, scaling and how much of a head is turned; `part`: what counts where config.json does not say it."""
    found: Fields = {"rope_theta": f.number("rope.freq_base", 10000.0), "rope_scaling": scaling(f)}
    turned = f.integer("rope.dimension_count", 1 << 16, f.head_dim) / f.head_dim
    return found | ({"partial_rotary_factor": turned} if turned != part else {})


def scaling(f: Facts) -> Fields | None:
    if factors := _factors(f):
        return factors
    kind = f.own.word("rope.scaling.type", "none")
    factor = f.number("rope.scaling.factor", f.number("rope.scale_linear", 1.0))
    if kind == "yarn":
        found: Fields = {"rope_type": "yarn", "factor": factor}
        length = f.integer("rope.scaling.original_context_length", MOST, f.integer("context_length"))
        more = {"beta_fast": "rope.scaling.yarn_beta_fast", "beta_slow": "rope.scaling.yarn_beta_slow",
                "attention_factor": "rope.scaling.yarn_attn_factor"}  # fmt: skip
        return found | {"original_max_position_embeddings": length} | f.optional(more)
    if kind in ("linear", "none") or "rope.scaling.type" not in f.own.values:
        return {"rope_type": "linear", "factor": factor} if factor not in (0.0, 1.0) else None
    raise ModelFormatError(
        f"{f.where}: rotary scaling {kind[:40]!r} is not supported; known: none, linear, yarn, longrope"
    )


def _factors(f: Facts) -> Fields | None:
    """What each frequency is divided by, one list for all lengths or one for short texts and one for long ones."""
    found = []
    for choice in (
        ("rope_factors_short.weight", "rope_freqs.weight"),
        ("rope_factors_long.weight", "rope_freqs.weight"),
    ):
        tensor = next((f.file.tensors[n] for n in choice if f.has(n)), None)
        if tensor is None:
            return None
        if len(tensor.shape) != 1 or tensor.shape[0] > 1 << 16:
            raise ModelFormatError(f"{f.where}: tensor {tensor.name[:80]!r} has shape {tensor.shape}, must be one row")
        found.append([float(v) for v in tensor.numpy()])
    length = f.integer("rope.scaling.original_context_length", MOST, f.integer("context_length"))
    return {
        "rope_type": "longrope", "short_factor": found[0], "long_factor": found[1],
        "attention_factor": f.number("rope.scaling.attn_factor", 1.0), "original_max_position_embeddings": length,
        "factor": f.integer("context_length") / max(length, 1),
    }  # fmt: skip


def windows(f: Facts, usual: Callable[[int], bool] | None = None) -> Fields:
    """The sliding window, and which layers have it: as the file says, else as is `usual`."""
    wide = f.integer("attention.sliding_window", MOST, 0)
    if not wide:
        return {"sliding_window": None}
    pattern = f.own.values.get(PATTERN)
    if isinstance(pattern, np.ndarray) and pattern.dtype == bool and len(pattern) == f.layers:
        slides = [bool(p) for p in pattern]
    elif type(pattern) is int and 0 < pattern <= 1024:
        slides = [(i + 1) % pattern != 0 for i in range(f.layers)]
    elif pattern is not None:
        raise ModelFormatError(f"{f.where}: {PATTERN!r} must be a number of layers, or true or false for each")
    elif usual is not None:
        slides = [usual(i) for i in range(f.layers)]
    else:
        return {"sliding_window": wide}
    kinds = ["sliding_attention" if s else "full_attention" for s in slides]
    return {"sliding_window": wide, "layer_types": kinds}


def rms(f: Facts) -> Fields:
    return {"rms_norm_eps": f.number("attention.layer_norm_rms_epsilon")}


def layer_norm(f: Facts, name: str = "layer_norm_eps") -> Fields:
    return {name: f.number("attention.layer_norm_epsilon")}


def biases(f: Facts) -> Fields:
    return {"attention_bias": f.has("blk.0.attn_q.bias"), "mlp_bias": f.has("blk.0.ffn_up.bias")}


def kv_heads(f: Facts) -> tuple[int, list[bool]]:
    """How many heads keys have, and which layers have attention: those that have heads at all."""
    heads = f.own.values.get("attention.head_count_kv", f.heads)
    each = heads.tolist() if isinstance(heads, np.ndarray) else [heads] * f.layers
    if len(each) != f.layers or not all(type(h) is int and 0 <= h <= 1024 for h in each) or not any(each):
        raise ModelFormatError(f"{f.where}: 'attention.head_count_kv' must have a number for each layer")
    return max(each), [bool(h) for h in each]
