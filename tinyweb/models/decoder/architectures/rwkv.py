"""RWKV-7 (Peng et al. 2025), in the layout of flash-linear-attention's checkpoints."""

from __future__ import annotations

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import DecoderConfig, LayerConfig, MlpConfig, Names, NormConfig, TimeMixConfig

NAMES = Names(
    embedding="embeddings", embedding_norm="layers.0.pre_norm", before_attention="attn_norm", before_mlp="ffn_norm",
    gate_up=("ffn.key",), down="ffn.value", mlp_shift="ffn.x_k",
)  # fmt: skip


def rwkv7(c: Config) -> tuple[DecoderConfig, Names]:
    """States that are decayed and rewritten; the MLP, too, sees the token before."""
    if c.values.get("attn") is not None:
        raise ModelFormatError(f"{c.where}: 'attn' is not supported: all layers must have a state")
    count, hidden = fields.layer_count(c), fields.hidden_size(c)
    norm = NormConfig("layer", c.number("norm_eps", 0, 1, 1e-5), bias=c.flag("norm_bias", True))
    mixers = _mixers(c, count, hidden, norm)
    mlp = MlpConfig(_width(c, hidden), fields.activation(c, default="sqrelu"), gated=False, shifted=True)
    layers = [LayerConfig(mixer, mlp, before_attention=norm, before_mlp=norm) for mixer in mixers]
    first = norm if c.flag("norm_first", True) else None
    values = {**c.values, "max_position_embeddings": None}  # the length of training texts limits nothing
    return fields.decoder(Config(values, c.where), layers, norm, embedding_norm=first), NAMES


def _mixers(c: Config, count: int, hidden: int, norm: NormConfig) -> list[TimeMixConfig]:
    given = c.values.get("num_heads")
    width = c.integer("head_dim", 1, 4096, 64 if given is None else hidden // c.integer("num_heads", 1, 4096))
    if hidden % width:
        raise ModelFormatError(f"{c.where}: 'hidden_size' {hidden} is no multiple of 'head_dim' {width}")
    values = c.values.get("value_dim")
    if any(v != hidden for v in (values if isinstance(values, list) else [hidden if values is None else values])):
        raise ModelFormatError(f"{c.where}: 'value_dim' must be 'hidden_size', found {str(values)[:60]}")
    decay, rate, gate, value = (
        c.integer(f"{kind}_low_rank_dim", 1, 1 << 16, usual)
        for kind, usual in (("decay", 64), ("a", 64), ("gate", 128), ("v", 16))
    )
    heads = NormConfig("layer", norm.eps * width, bias=True)
    return [TimeMixConfig(hidden // width, width, decay, rate, gate, value, heads, i == 0) for i in range(count)]


def _width(c: Config, hidden: int) -> int:
    if c.values.get("intermediate_size") is not None:
        return c.integer("intermediate_size", 1, 1 << 20)
    return -(-int(hidden * c.number("hidden_ratio", 0.01, 1000, 4)) // 32) * 32
