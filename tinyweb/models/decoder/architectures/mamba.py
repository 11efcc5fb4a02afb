"""Mamba (Gu and Dao 2023), Mamba-2 (2024), and decoders of which most layers are that and some have attention."""

from __future__ import annotations

import math
from dataclasses import replace

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import experts, fields, llama
from tinyweb.models.decoder.config import (
    AttentionConfig,
    DecoderConfig,
    ExpertsConfig,
    LayerConfig,
    MixerConfig,
    MlpConfig,
    Names,
    NormConfig,
    SelectiveConfig,
    StateSpaceConfig,
)

KINDS = {"mamba": False, "attention": True, "linear_attention": False, "full_attention": True}
INFINITE = (math.inf, "Infinity", {"__float__": "Infinity"})  # JSON has no such number


NAMES = Names(prefixes=("backbone.",), embedding="embeddings", norm="norm_f", before_attention="norm")


def mamba(c: Config, inner: NormConfig | None = None) -> tuple[DecoderConfig, Names]:
    """Mamba: nothing but states, and no MLP. `inner`: the norm of what the states are told."""
    norm, hidden = fields.rms(c, "layer_norm_epsilon", 1e-5), fields.hidden_size(c)
    auto = c.values.get("time_step_rank", "auto") == "auto"
    mixer = SelectiveConfig(
        c.integer("intermediate_size", 1, 1 << 20, hidden * c.integer("expand", 1, 64, 2)),
        c.integer("state_size", 1, 4096, 16),
        c.integer("conv_kernel", 1, 64, 4),
        math.ceil(hidden / 16) if auto else c.integer("time_step_rank", 1, 1 << 16), fields.activation(c), inner,
        c.flag("use_bias", False), c.flag("use_conv_bias", True),
    )  # fmt: skip
    layers = [LayerConfig(mixer, None, before_attention=norm)] * fields.layer_count(c)
    return fields.decoder(c, layers, norm, tied=True), NAMES


def falcon_mamba(c: Config) -> tuple[DecoderConfig, Names]:
    """Falcon Mamba (Zuo et al. 2024): with norms of steps, and of what is written to the state and read of it."""
    return mamba(c, NormConfig("rms", c.number("mixer_rms_eps", 0, 1, 1e-6), weight=False))


def mamba2(c: Config) -> tuple[DecoderConfig, Names]:
    """Mamba-2: nothing but states, and no MLP."""
    norm = fields.rms(c, "layer_norm_epsilon", 1e-5)
    groups = c.integer("n_groups", 1, 1024, 8)
    mixer = StateSpaceConfig(
        c.integer("num_heads", 1, 4096, 128), c.integer("head_dim", 1, 4096, 64), c.integer("state_size", 1, 4096, 128),
        groups, c.integer("conv_kernel", 1, 64, 4), fields.activation(c), norm, groups, c.flag("use_bias", False),
        c.flag("use_conv_bias", True), *_steps(c),
    )  # fmt: skip
    layers = [LayerConfig(_checked(c, mixer, c.integer("expand", 1, 64, 2)), None, before_attention=norm)]
    return fields.decoder(c, layers * fields.layer_count(c), norm, tied=False), NAMES


def _mixer(c: Config) -> StateSpaceConfig:
    """The state of a layer, as files say it that have attention beside it."""
    norm, hidden = fields.rms(c), fields.hidden_size(c)
    heads, groups = c.integer("mamba_n_heads", 1, 4096, 128), c.integer("mamba_n_groups", 1, 1024, 1)
    expand = c.integer("mamba_expand", 1, 64, 2)
    given = c.values.get("mamba_d_head", "auto")
    width = expand * hidden // heads if given == "auto" else c.integer("mamba_d_head", 1, 4096)
    mixer = StateSpaceConfig(
        heads, width, c.integer("mamba_d_state", 1, 4096, 256), groups, c.integer("mamba_d_conv", 1, 64, 4),
        fields.activation(c), norm, groups, c.flag("mamba_proj_bias", False), c.flag("mamba_conv_bias", True),
        *_steps(c),
    )  # fmt: skip
    return _checked(c, mixer, expand)


def _checked(c: Config, mixer: StateSpaceConfig, expand: int) -> StateSpaceConfig:
    if mixer.heads * mixer.width != expand * fields.hidden_size(c):
        raise ModelFormatError(
            f"{c.where}: {mixer.heads} state heads of {mixer.width} elements are not {expand} times 'hidden_size' "
            f"{fields.hidden_size(c)}"
        )
    if mixer.heads % mixer.groups:
        raise ModelFormatError(f"{c.where}: {mixer.heads} state heads do not divide into {mixer.groups} groups")
    return mixer


def _steps(c: Config) -> tuple[float, float]:
    """The least and the largest step."""
    given = c.values.get("time_step_limit")
    if given is None:
        return 0.0, math.inf
    found = [math.inf if v in INFINITE else v for v in given] if isinstance(given, list | tuple) else []
    if len(found) != 2 or any(type(v) not in (int, float) for v in found) or not 0 <= found[0] < found[1]:
        raise ModelFormatError(f"{c.where}: 'time_step_limit' must be two numbers from 0 up, found {str(given)[:60]}")
    return float(found[0]), float(found[1])


def granite_hybrid(c: Config) -> tuple[DecoderConfig, Names]:
    """Granite 4 (IBM 2025): Granite's scales, an MLP for all tokens, and experts beside it or none."""
    config, names = llama.granite(c)
    width = c.integer("shared_intermediate_size", 1, 1 << 20, 1024)
    shared = MlpConfig(width, fields.activation(c))
    fused, down = ("shared_mlp.input_linear",), "shared_mlp.output_linear"
    names = Names(gate_up=fused, down=down, state_space="mamba.")
    mlp: MlpConfig | ExpertsConfig | None = shared
    if c.integer("num_local_experts", 0, 4096, 8):
        sparse, names = experts.granite_moe(c)
        names = replace(names, shared_gate_up=fused, shared_down=down, state_space="mamba.")
        mlp = sparse.layers[0].mlp
        assert isinstance(mlp, ExpertsConfig)
        mlp = replace(mlp, shared=shared)
    attention = config.layers[0].mixer
    if c.values.get("position_embedding_type") != "rope":
        assert isinstance(attention, AttentionConfig)
        attention = replace(attention, rotary=None)
    config = replace(config, layers=tuple(replace(layer, mlp=mlp) for layer in config.layers))
    return _mixed(config, _attends(c), attention, _mixer(c)), names


def bamba(c: Config) -> tuple[DecoderConfig, Names]:
    """Bamba (IBM 2024): half of each head turned, where there is attention."""
    attention = fields.attention(c, fields.rotary(c, part=0.5))
    layers = llama.layers(c, [attention] * fields.layer_count(c))
    attends = c.ids("attn_layer_indices")
    names = Names(
        norm="final_layernorm", before_mlp="pre_ff_layernorm", state_space="mamba.",
        gate_up=("feed_forward.gate_proj", "feed_forward.up_proj"), down="feed_forward.down_proj",
    )  # fmt: skip
    config = fields.decoder(c, layers, fields.rms(c, default=1e-5))
    return _mixed(config, [i in attends for i in range(len(layers))], attention, _mixer(c)), names


def _mixed(config: DecoderConfig, attends: list[bool], attention: MixerConfig, state: MixerConfig) -> DecoderConfig:
    each = zip(config.layers, attends, strict=True)
    layers = tuple(replace(layer, mixer=attention if there else state) for layer, there in each)
    return replace(config, layers=layers)


def _attends(c: Config) -> list[bool]:
    """For each layer whether it has attention in place of a state."""
    key = "layer_types" if c.values.get("layer_types") is not None else "layers_block_type"
    return fields.kinds_of_layers(c, KINDS, lambda _: False, key)
