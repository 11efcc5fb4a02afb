"""What makes one score of hidden states: the head of models that were trained to judge pairs of texts."""

from __future__ import annotations

from dataclasses import dataclass

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import NormConfig
from tinyweb.models.decoder.mlp import ACTIVATIONS
from tinyweb.models.encoder.architectures import family
from tinyweb.models.encoder.loader import EncoderLoader
from tinyweb.tensor import Tensor

SUFFIX = "ForSequenceClassification"
SCORED = ("Bert", "Roberta", "XLMRoberta", "Camembert", "DebertaV2", "ModernBert")


@dataclass(frozen=True)
class HeadConfig:
    """score(norm(f(dense(x)))), x the first token's hidden state or (`mean`) that of all; f is an `activation`.

    `dense` and `score`: names in the checkpoint; `{}` is where the encoder's parts begin.
    """

    dense: str
    score: str
    activation: str = "tanh"
    bias: bool = True
    norm: NormConfig | None = None
    norm_name: str = ""
    mean: bool = False


def has_head(c: Config) -> bool:
    """Whether a config.json names a model for classes or scores of texts."""
    named = c.values.get("architectures")
    return isinstance(named, list) and any(isinstance(name, str) and name.endswith(SUFFIX) for name in named)


def read_head(c: Config) -> HeadConfig:
    """The head that a config.json describes; ModelFormatError where it gives no single score or is not known."""
    found = family(c)
    labels = c.section("id2label")
    if (count := 2 if labels is None else len(labels.values)) != 1:
        raise ModelFormatError(f"{c.where}: 'id2label' has {count} classes; only models that give one score are read")
    if found == "Bert":
        return HeadConfig("{}pooler.dense", "classifier")
    if found in ("Roberta", "XLMRoberta", "Camembert"):
        return HeadConfig("classifier.dense", "classifier.out_proj")
    if found == "DebertaV2":
        return HeadConfig("pooler.dense", "classifier", fields.activation(c, "pooler_hidden_act", "gelu"))
    if found != "ModernBert":
        known = ", ".join(name + SUFFIX for name in SCORED)
        raise ModelFormatError(f"{c.where} names {found}{SUFFIX}; those that give scores: {known}")
    if (pooling := c.word("classifier_pooling", "cls")) not in ("cls", "mean"):
        raise ModelFormatError(f"{c.where}: 'classifier_pooling' {pooling[:40]!r} is not supported, only cls and mean")
    norm = NormConfig("layer", c.number("norm_eps", 0, 1, 1e-5), bias=c.flag("norm_bias", False))
    activation, bias = fields.activation(c, "classifier_activation", "gelu"), c.flag("classifier_bias", False)
    return HeadConfig("head.dense", "classifier", activation, bias, norm, "head.norm", pooling == "mean")


class Head:
    """The head of an encoder, never quantised: it is small."""

    def __init__(self, config: HeadConfig, load: EncoderLoader):
        c, hidden = config, load.config.hidden_size
        self.config = c
        self.dense = load.plain(c.dense.format(load.prefix), hidden, c.bias)
        self.norm = load.norm(c.norm_name, c.norm) if c.norm else None
        self.score = load.plain(c.score, 1, True)

    def __call__(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """Scores (batch,) of hidden states (batch, tokens, hidden), of which the first `lengths` are a text."""
        x = hidden[:, 0]
        if self.config.mean:
            tokens = hidden.shape[1]
            assert isinstance(tokens, int)
            inside = Tensor.arange(tokens, device=hidden.device).unsqueeze(0) < lengths.unsqueeze(1)
            x = inside.unsqueeze(-1).where(hidden, 0.0).sum(1) / lengths.float().unsqueeze(-1)
        x = ACTIVATIONS[self.config.activation](self.dense(x, "float"))
        return self.score(x if self.norm is None else self.norm(x), "float")[:, 0]
