"""BERT and those that are BERT but for their positions and names: norms follow the sums, positions are a table."""

from __future__ import annotations

from dataclasses import replace

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import AttentionConfig, LayerConfig, MlpConfig, NormConfig
from tinyweb.models.encoder.config import EncoderConfig, EncoderNames, RelativeConfig

NAMES = EncoderNames(
    prefixes=("bert.", "roberta."), embedding="embeddings.word_embeddings", positions="embeddings.position_embeddings",
    layer="encoder.layer.{}.", qkv=("attention.self.query", "attention.self.key", "attention.self.value"),
    output="attention.output.dense", after_attention="attention.output.LayerNorm",
    gate_up=("intermediate.dense",), down="output.dense", after_mlp="output.LayerNorm",
)  # fmt: skip


def attention(c: Config, bias: bool = True) -> AttentionConfig:
    """Heads that know no positions of their own."""
    return fields.attention(c, lambda width: None, bias=bias, output_bias=bias)


def encoder(
    c: Config, model_type: str, each: AttentionConfig, mlp: MlpConfig, norm: NormConfig, first: int | None = 0
) -> EncoderConfig:
    """An encoder of equal layers, whose norms follow the sums. `first`: the row of the first position."""
    rows = fields.positions(c)
    if first is not None and first >= rows:
        raise ModelFormatError(f"{c.where}: 'max_position_embeddings' {rows} leaves no position behind {first - 1}")
    layer = LayerConfig(each, mlp, after_attention=norm, after_mlp=norm)
    return EncoderConfig(
        vocab_size=c.integer("vocab_size", 1, 1 << 22),
        hidden_size=fields.hidden_size(c),
        positions=rows - (first or 0),
        layers=(layer,) * fields.layer_count(c),
        model_type=model_type,
        embedding_norm=norm,
        norm_sums=True,
        first_position=first,
        token_types=c.integer("type_vocab_size", 0, 1 << 16, 2),
    )


def layer_norm(c: Config, eps: float = 1e-12) -> NormConfig:
    return NormConfig("layer", c.number("layer_norm_eps", 0, 1, eps), bias=True)


def _absolute(c: Config) -> None:
    if (kind := c.word("position_embedding_type", "absolute")) != "absolute":
        raise ModelFormatError(f"{c.where}: 'position_embedding_type' {kind[:40]!r} is not supported, only 'absolute'")


def bert(c: Config) -> tuple[EncoderConfig, EncoderNames]:
    """BERT (Devlin et al. 2018)."""
    _absolute(c)
    mlp = fields.mlp(c, gated=False, bias=True, default="gelu")
    return encoder(c, c.word("model_type", "bert"), attention(c), mlp, layer_norm(c)), NAMES


def roberta(c: Config) -> tuple[EncoderConfig, EncoderNames]:
    """RoBERTa (Liu et al. 2019), XLM-RoBERTa, CamemBERT: the first position is the row behind the padding token's."""
    config, names = bert(c)
    first = c.integer("pad_token_id", 0, 1 << 20, 1) + 1
    norm, layer = layer_norm(c), config.layers[0]
    assert isinstance(layer.mixer, AttentionConfig) and isinstance(layer.mlp, MlpConfig)
    return encoder(c, config.model_type, layer.mixer, layer.mlp, norm, first), names


def mpnet(c: Config) -> tuple[EncoderConfig, EncoderNames]:
    """MPNet (Song et al. 2020): scores have a bias by distance, the same in all layers; no token types."""
    mlp = fields.mlp(c, gated=False, bias=True, default="gelu")
    buckets = c.integer("relative_attention_num_buckets", 32, 32, 32)
    names = replace(
        NAMES, prefixes=("mpnet.",), qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
        output="attention.attn.o", after_attention="attention.LayerNorm",
    )  # fmt: skip
    # the padding token's position is 1, whatever its id
    made = encoder(c, "mpnet", attention(c), mlp, layer_norm(c), 2)
    return replace(made, token_types=0, relative=RelativeConfig(buckets)), names


def jina(c: Config) -> tuple[EncoderConfig, EncoderNames]:
    """Jina embeddings v2 (Günther et al. 2023): ALiBi in place of a table of positions, gated MLPs."""
    if (kind := c.word("position_embedding_type", "absolute")) != "alibi":
        raise ModelFormatError(f"{c.where}: 'position_embedding_type' {kind[:40]!r} is not supported, only 'alibi'")
    kind, activations = c.word("feed_forward_type", "original"), {"geglu": "gelu", "reglu": "relu"}
    if kind not in activations:
        raise ModelFormatError(
            f"{c.where}: 'feed_forward_type' {kind[:40]!r} is not supported, only {', '.join(activations)}"
        )
    mlp = MlpConfig(c.integer("intermediate_size", 1, 1 << 20), activations[kind], down_bias=True)
    names = replace(NAMES, gate_up=("mlp.gated_layers",), down="mlp.wo", after_mlp="mlp.layernorm")
    made = encoder(c, "jina_bert", attention(c), mlp, layer_norm(c), None)
    return replace(made, relative=RelativeConfig()), names


def distilbert(c: Config) -> tuple[EncoderConfig, EncoderNames]:
    """DistilBERT (Sanh et al. 2019): names of its own, no token types."""
    own = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers",
           "intermediate_size": "hidden_dim", "hidden_act": "activation"}  # fmt: skip
    c = Config({**c.values, **{theirs: c.values.get(name) for theirs, name in own.items()}}, c.where)
    norm, mlp = NormConfig("layer", 1e-12, bias=True), fields.mlp(c, gated=False, bias=True, default="gelu")
    names = replace(
        NAMES, prefixes=("distilbert.",), layer="transformer.layer.{}.", output="attention.out_lin",
        qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"), after_attention="sa_layer_norm",
        gate_up=("ffn.lin1",), down="ffn.lin2", after_mlp="output_layer_norm",
    )  # fmt: skip
    return replace(encoder(c, "distilbert", attention(c), mlp, norm), token_types=0), names
