"""Fields of config.json, from a GGUF file's metadata, of architectures of 2025 that mix kinds of layers or learn their
activations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.errors import ModelFormatError
from tinyweb.formats.gguf.facts import Facts
from tinyweb.formats.gguf.fields import Fields, rms, rotary, sizes, windows


def qwen3_next(f: Facts) -> Fields:
    """Layers without a matrix of queries have the delta rule. Heads of values, their width, and those of keys are told
    as the numbers of a state-space model."""
    heads, inner = f.own.integer("ssm.time_step_rank", 1, 1 << 16), f.integer("ssm.inner_size", 1 << 20)
    attends = [f.has(f"blk.{i}.attn_q.weight") for i in range(f.layers)]
    return sizes(f) | rms(f) | rotary(f, 0.25) | {
        "hidden_act": "silu", "attention_bias": any(t.endswith("attn_q.bias") for t in f.file.tensors),
        "linear_num_value_heads": heads, "linear_value_head_dim": inner // heads,
        "linear_num_key_heads": f.integer("ssm.group_count", 1 << 16),
        "linear_key_head_dim": f.integer("ssm.state_size", 1 << 16),
        "linear_conv_kernel_dim": f.integer("ssm.conv_kernel", 64),
        "layer_types": ["full_attention" if there else "linear_attention" for there in attends],
    }  # fmt: skip


def apertus(f: Facts) -> Fields:
    return sizes(f) | rms(f) | rotary(f) | {
        "hidden_act": "xielu", "attention_bias": f.has("blk.0.attn_q.bias"),
    }  # fmt: skip


def xielu(f: Facts) -> Mapping[str, npt.NDArray[np.float32]]:
    """The numbers of each layer's activation, by the checkpoint's names: GGUF has them in its metadata, as lists over
    layers or one number for all."""
    found: dict[str, npt.NDArray[np.float32]] = {}
    for part in ("alpha_p", "alpha_n", "beta", "eps"):
        given = f.file.metadata.get(f"xielu.{part}")
        each = np.asarray(given if isinstance(given, np.ndarray) else [given] * f.layers)
        if each.shape != (f.layers,) or each.dtype.kind != "f" or not np.isfinite(each).all():
            raise ModelFormatError(f"{f.where}: 'xielu.{part}' must have a number for each layer")
        shape = (1,) if part.startswith("alpha") else ()
        for i, value in enumerate(each.astype(np.float32)):
            found[f"model.layers.{i}.mlp.act_fn.{part}"] = value.reshape(shape)
    return found


def gemma3n(f: Facts) -> Fields:
    """What is cut of MLPs is said in deviations, by Hugging Face as a share of a normal distribution."""
    cuts = f.own.values.get("activation_sparsity_scale")
    each: list[Any] = cuts.tolist() if isinstance(cuts, np.ndarray) else [cuts] * f.layers
    if len(each) != f.layers or any(type(cut) is not float or math.isnan(cut) for cut in each):
        raise ModelFormatError(f"{f.where}: 'activation_sparsity_scale' must have a number for each layer")
    table = f.file.tensors.get("per_layer_token_embd.weight")
    found = sizes(f) | rotary(f) | rms(f) | windows(f, lambda i: (i + 1) % 5 != 0)
    return found | f.optional({"final_logit_softcapping": "final_logit_softcapping"}) | {
        "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False,
        "rope_local_base_freq": f.number("rope.freq_base_swa", 10000.0),
        "activation_sparsity_pattern": [round(NormalDist().cdf(cut), 6) for cut in each],
        "num_kv_shared_layers": f.integer("attention.shared_kv_layers", 1024),
        "hidden_size_per_layer_input": f.integer("embedding_length_per_layer_input", 1 << 16),
        "vocab_size_per_layer_input": table.shape[0] if table is not None and table.shape else 1,
        "altup_num_inputs": f.integer("altup.num_inputs", 64), "altup_active_idx": f.integer("altup.active_idx", 64),
        "laurel_rank": _rank(f),
    }  # fmt: skip


def _rank(f: Facts) -> int:
    first = f.file.tensors.get("blk.0.laurel_l.weight")
    return first.shape[0] if first is not None and first.shape else 64
