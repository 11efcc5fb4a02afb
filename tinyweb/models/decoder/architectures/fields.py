"""The fields of config.json that architectures share, each checked as it is read: ModelFormatError names what is wrong.

Fields have moved over the years; both places are looked at (`rope_parameters` since transformers 5, `rope_theta` and
`rope_scaling` before).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.config import (
    AttentionConfig,
    DecoderConfig,
    LatentConfig,
    LayerConfig,
    MixerConfig,
    MlpConfig,
    NormConfig,
    RotaryConfig,
)
from tinyweb.nn.rotary import SCALINGS, RotaryScaling

MOST = 1 << 30  # of positions
ENDLESS = 1 << 20  # positions of a model that counts none
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "gelu_sigmoid",
    "relu": "relu",
    "relu2": "relu_squared",
    "sqrelu": "relu_squared",
}
KINDS = ("full_attention", "sliding_attention")


def layer_count(c: Config) -> int:
    return c.integer("num_hidden_layers", 1, 1024)


def positions(c: Config) -> int:
    return c.integer("max_position_embeddings", 1, MOST)


def rms(c: Config, key: str = "rms_norm_eps", default: float = 1e-6, offset: float = 0.0) -> NormConfig:
    return NormConfig("rms", c.number(key, 0, 1, default), offset=offset)


def layer_norm(c: Config, key: str = "layer_norm_eps", bias: bool = True) -> NormConfig:
    return NormConfig("layer", c.number(key, 0, 1, 1e-5), bias=bias)


def activation(c: Config, key: str = "hidden_act", default: str = "silu") -> str:
    name = c.word(key, default)
    if name not in ACTIVATIONS:
        raise ModelFormatError(f"{c.where}: {key!r} {name[:40]!r} is not supported; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def mlp(
    c: Config, gated: bool = True, bias: bool | None = None, default: str = "silu", key: str = "hidden_act"
) -> MlpConfig:
    """`bias` None: as `mlp_bias` says. `key`: the activation's, or `hidden_act` where the file has none of it."""
    wide = c.integer("intermediate_size", 1, 1 << 20)
    name = activation(c, key if c.values.get(key) is not None else "hidden_act", default)
    return MlpConfig(wide, name, gated, c.flag("mlp_bias", False) if bias is None else bias)


def attention(c: Config, rotary: Callable[[int], RotaryConfig | None], **parts: Any) -> AttentionConfig:
    """Sizes of the heads, and whatever else an architecture says; `rotary` is given the width of a head.

    Biases are as `attention_bias` says where `parts` do not.
    """
    heads, hidden = c.integer("num_attention_heads", 1, 1024), hidden_size(c)
    kv_heads = c.integer("num_key_value_heads", 1, heads, heads)
    if c.values.get("head_dim") is None and hidden % heads:
        raise ModelFormatError(f"{c.where}: 'hidden_size' {hidden} is no multiple of 'num_attention_heads' {heads}")
    width = c.integer("head_dim", 1, 1024, hidden // heads)
    if heads % kv_heads:
        raise ModelFormatError(f"{c.where}: {heads} attention heads are no multiple of {kv_heads} key/value heads")
    if "bias" not in parts:
        parts["bias"] = parts["output_bias"] = c.flag("attention_bias", False)
    return AttentionConfig(heads, kv_heads, width, parts.pop("scale", 1 / math.sqrt(width)), rotary(width), **parts)


def hidden_size(c: Config) -> int:
    return c.integer("hidden_size", 2, 1 << 16)


def decoder(
    c: Config, layers: Sequence[LayerConfig], norm: NormConfig, tied: bool = False, **parts: Any
) -> DecoderConfig:
    """`tied`: what counts where the file does not say it. Of a text without an end the file says no length."""
    endless = not any(isinstance(layer.mixer, AttentionConfig | LatentConfig) for layer in layers)
    trained = ENDLESS if endless and c.values.get("max_position_embeddings") is None else positions(c)
    return DecoderConfig(
        vocab_size=c.integer("vocab_size", 1, 1 << 22),
        hidden_size=hidden_size(c),
        positions=min((reach for layer in layers if (reach := _reach(trained, layer.mixer))), default=trained),
        layers=tuple(layers),
        norm=norm,
        tied=c.flag("tie_word_embeddings", tied),
        **parts,
    )


def _reach(trained: int, mixer: MixerConfig) -> int | None:
    """The longest text, by the angles: dynamic scaling has no longer one in the file than those of training. None:
    there are no angles."""
    if not isinstance(mixer, AttentionConfig | LatentConfig) or mixer.rotary is None:
        return None
    scaling = mixer.rotary.scaling
    return max(trained, min(int(trained * scaling.factor), MOST)) if scaling.kind == "dynamic" else trained


# -- which layers see what ---------------------------------------------------------------------------------------------
def sliding(c: Config, usual: Callable[[int], bool]) -> list[bool]:
    """For each layer whether it sees a window only: `layer_types`, or where the file has none what is `usual`."""
    count = layer_count(c)
    kinds = c.values.get("layer_types")
    if kinds is None:
        return [usual(i) for i in range(count)]
    if not isinstance(kinds, list) or len(kinds) != count or any(k not in KINDS for k in kinds):
        raise ModelFormatError(
            f"{c.where}: 'layer_types' must name {count} layers, each {' or '.join(KINDS)}, found {str(kinds)[:60]}"
        )
    return [k == KINDS[1] for k in kinds]


def kinds_of_layers(
    c: Config, kinds: Mapping[str, bool], usual: Callable[[int], bool], key: str = "layer_types"
) -> list[bool]:
    """For each layer what `kinds` has for the word that `key` says; or what is `usual`."""
    count, found = layer_count(c), c.values.get(key)
    if found is None:
        return [usual(i) for i in range(count)]
    if (
        not isinstance(found, list)
        or len(found) != count
        or any(not isinstance(k, str) or k not in kinds for k in found)
    ):
        raise ModelFormatError(
            f"{c.where}: '{key}' must name {count} layers, each {' or '.join(kinds)}, found {str(found)[:60]}"
        )
    return [kinds[k] for k in found]


def window(c: Config) -> int | None:
    """`sliding_window`; none where it is absent."""
    return c.integer("sliding_window", 1, MOST) if c.values.get("sliding_window") is not None else None


def no_windows(c: Config) -> list[int | None]:
    return [None] * layer_count(c)


def windows(c: Config, usual: Callable[[int], bool]) -> list[int | None]:
    """The window of each layer; None: all positions before it."""
    wide = window(c)
    return [wide if s else None for s in sliding(c, usual)]


# -- rotary positions --------------------------------------------------------------------------------------------------
def rotary(
    c: Config,
    theta: float = 10000.0,
    part: float = 1.0,
    interleaved: bool = False,
    kinds: Mapping[str, str] | None = None,
) -> Callable[[int], RotaryConfig]:
    """Rotary positions as a function of a head's width, where there are two kinds of layers those of full attention.

    `theta` and `part` (how much of a head is turned) count where the file does not say them; `kinds`: other names of
    scalings.
    """
    given = rope(c)
    given = given.section(KINDS[0]) or given
    return _rotary(c, given, theta, part, interleaved, kinds or {})


def rope(c: Config) -> Config:
    """What a file says of rotary positions in one place; empty where it says nothing there."""
    return c.section("rope_parameters") or c.section("rope_scaling") or Config({}, c.where)


def local_rotary(c: Config, theta: float) -> Callable[[int], RotaryConfig]:
    """Those of the layers with a window: never scaled in files that do not tell the two kinds apart."""
    given = c.section("rope_parameters") or Config({}, c.where)
    own = given.section(KINDS[1]) or Config({"rope_theta": theta}, c.where)
    return _rotary(c, own, theta, 1.0, False, {})


def _rotary(
    c: Config, given: Config, theta: float, part: float, interleaved: bool, kinds: Mapping[str, str]
) -> Callable[[int], RotaryConfig]:
    theta = given.number("rope_theta", 1, 1e12, c.number("rope_theta", 1, 1e12, theta))
    part = given.number("partial_rotary_factor", 0, 1, c.number("partial_rotary_factor", 0, 1, part))

    def of(width: int) -> RotaryConfig:
        turned = int(width * part)
        if width % 2:
            raise ModelFormatError(f"{c.where}: 'head_dim' must be even for rotary positions, found {width}")
        if turned % 2 or not turned:
            raise ModelFormatError(
                f"{c.where}: 'partial_rotary_factor' {part:g} turns {turned} of {width} elements: "
                "their number must be even and more than 0"
            )
        return RotaryConfig(theta, turned, _scaling(c, given, theta, turned, kinds), interleaved)

    return of


def _scaling(c: Config, given: Config, theta: float, turned: int, kinds: Mapping[str, str]) -> RotaryScaling:
    kind = given.word("rope_type", given.word("type", "default"))
    kind = kinds.get(kind, kind)
    if kind not in SCALINGS:
        raise ModelFormatError(
            f"{given.where}: rotary scaling {kind[:40]!r} is not supported; known: {', '.join(SCALINGS)}"
        )
    if kind == "default":
        return RotaryScaling()
    longest = positions(c)
    original = given.integer("original_max_position_embeddings", 1, MOST, longest)
    original = c.integer("original_max_position_embeddings", 1, MOST, original)
    if kind == "longrope":
        return _longrope(given, turned, longest, original)
    factor = given.number("factor", 1e-3, 1e6)
    if kind == "dynamic":
        return RotaryScaling(kind, factor, original=longest)
    if kind == "llama3":
        low, high = given.number("low_freq_factor", 1e-3, 1e6), given.number("high_freq_factor", 1e-3, 1e6)
        return replace(
            _turns(given, low, high, "low_freq_factor", "high_freq_factor"), kind=kind, factor=factor, original=original
        )
    if kind == "yarn":
        if theta <= 1:
            raise ModelFormatError(f"{given.where}: 'rope_theta' must be above 1 for yarn, found {theta:g}")
        low, high = given.number("beta_slow", 1e-3, 1e6, 1), given.number("beta_fast", 1e-3, 1e6, 32)
        found = _turns(given, low, high, "beta_slow", "beta_fast")
        whole = given.flag("truncate", True)
        magnitude = given.number("attention_factor", 0, 1e3, _yarn_magnitude(given, factor))
        return replace(found, kind=kind, factor=factor, original=original, whole_pairs=whole, magnitude=magnitude)
    return RotaryScaling(kind, factor)


def _turns(given: Config, low: float, high: float, low_name: str, high_name: str) -> RotaryScaling:
    if low > high:
        raise ModelFormatError(f"{given.where}: {low_name!r} is above {high_name!r}, found {low:g} and {high:g}")
    return RotaryScaling(low=low, high=high)


def _yarn_magnitude(given: Config, factor: float) -> float:
    some, all_dims = given.number("mscale", 0, 1e3, 0), given.number("mscale_all_dim", 0, 1e3, 0)
    return growth(factor, some) / growth(factor, all_dims) if some and all_dims else growth(factor, 1)


def growth(factor: float, weight: float) -> float:
    """By how much YaRN makes scores of texts larger that are `factor` times as long."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1


def _longrope(given: Config, turned: int, longest: int, original: int) -> RotaryScaling:
    factor = given.number("factor", 1e-3, 1e6, longest / original)
    usual = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(max(original, 2)))
    return RotaryScaling(
        "longrope",
        factor,
        original=original,
        short=_factors(given, "short_factor", turned // 2),
        long=_factors(given, "long_factor", turned // 2),
        magnitude=given.number("attention_factor", 0, 1e3, usual),
    )


def _factors(given: Config, key: str, count: int) -> tuple[float, ...]:
    found = given.values.get(key)
    if (
        not isinstance(found, list)
        or len(found) != count
        or not all(type(v) in (int, float) and 0 < v < 1e9 for v in found)
    ):
        raise ModelFormatError(f"{given.where}: {key!r} must be a list of {count} numbers above 0")
    return tuple(float(v) for v in found)
