"""DeBERTa v2 and v3 (He et al. 2021, 2023): BERT whose scores know content and position apart."""

from __future__ import annotations

import math
from dataclasses import replace

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.encoder.architectures import bert
from tinyweb.models.encoder.config import DisentangledConfig, EncoderConfig, EncoderNames

KINDS = ("c2p", "p2c")  # content to position, position to content


def deberta(c: Config) -> tuple[EncoderConfig, EncoderNames]:
    """A base model of v3, v2 without its convolution, or a network that was trained further."""
    hidden = fields.hidden_size(c)
    for key, value in {"conv_kernel_size": 0, "embedding_size": hidden}.items():
        if c.values.get(key) not in (None, value):
            raise ModelFormatError(f"{c.where}: {key!r} {str(c.values[key])[:40]!r} is not supported, only {value}")
    norm, kinds = bert.layer_norm(c, 1e-7), _kinds(c)
    each = bert.attention(c)
    each = replace(each, scale=1 / math.sqrt(each.width * (1 + len(kinds))))
    if c.integer("attention_head_size", 1, 1 << 16, each.width) != each.width:
        raise ModelFormatError(f"{c.where}: 'attention_head_size' must be hidden_size / num_attention_heads")
    mlp = fields.mlp(c, gated=False, bias=True, default="gelu")
    first = 0 if c.flag("position_biased_input", True) else None
    made = bert.encoder(c, "deberta-v2", each, mlp, norm, first)
    types = c.integer("type_vocab_size", 0, 1 << 16, 0)
    names = replace(
        bert.NAMES, prefixes=("deberta.",),
        qkv=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"),
    )  # fmt: skip
    return replace(made, token_types=types, disentangled=_places(c, kinds, made.positions)), names


def _kinds(c: Config) -> list[str]:
    """What scores have beside that of two contents."""
    given = c.values.get("pos_att_type")
    if given is None:
        return []
    words = given.lower().split("|") if isinstance(given, str) else given
    if not isinstance(words, list) or any(not isinstance(w, str) or w.strip() not in KINDS for w in words):
        raise ModelFormatError(
            f"{c.where}: 'pos_att_type' {str(given)[:40]!r} is not supported, only {'|'.join(KINDS)}"
        )
    return sorted({w.strip() for w in words})


def _places(c: Config, kinds: list[str], positions: int) -> DisentangledConfig | None:
    if not c.flag("relative_attention", False):
        return None
    if not kinds:
        raise ModelFormatError(f"{c.where}: 'relative_attention' without 'pos_att_type' is not supported")
    farthest = c.integer("max_relative_positions", -1, fields.MOST, -1)
    farthest = positions if farthest < 1 else farthest
    buckets = c.integer("position_buckets", -1, 1 << 16, -1)
    if buckets > 0 and not 4 <= buckets < 2 * (farthest - 1):
        raise ModelFormatError(
            f"{c.where}: 'position_buckets' must be at least 4 and below twice the farthest distance {farthest - 1}, "
            f"found {buckets}"
        )
    normed = "layer_norm" in [part.strip() for part in c.word("norm_rel_ebd", "none").lower().split("|")]
    return DisentangledConfig(
        reach=buckets if buckets > 0 else farthest,
        farthest=farthest,
        buckets=buckets > 0,
        keys="c2p" in kinds,
        queries="p2c" in kinds,
        shared=c.flag("share_att_key", False),
        norm=bert.layer_norm(c, 1e-7) if normed else None,
    )
