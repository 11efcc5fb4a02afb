"""From config.json to the parts of an encoder: one function for each family, and the table of names that it serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.encoder.architectures import bert, deberta, decoders, modern
from tinyweb.models.encoder.config import EncoderConfig, EncoderNames

Read = Callable[[Config], tuple[EncoderConfig, EncoderNames]]

ARCHITECTURES: dict[str, Read] = {
    "Bert": bert.bert,
    "Roberta": bert.roberta,
    "XLMRoberta": bert.roberta,
    "Camembert": bert.roberta,
    "DistilBert": bert.distilbert,
    "MPNet": bert.mpnet,
    "JinaBert": bert.jina,
    "DebertaV2": deberta.deberta,
    "ModernBert": modern.modernbert,
    "NomicBert": modern.nomic,
    "New": modern.new,
    "Gte": modern.new,
}
"""By the names in `architectures` of config.json, without `Model` or `For…`."""

MODEL_TYPES = {
    "bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert",
    "distilbert": "DistilBert", "mpnet": "MPNet", "modernbert": "ModernBert", "nomic_bert": "NomicBert", "new": "New",
    "gte": "Gte", "deberta-v2": "DebertaV2",
}  # fmt: skip
"""By `model_type`, in files without `architectures`."""

LONGEST = 1 << 17  # tokens of a text, whatever a file says: tables of angles and distances have a row for each


def family(c: Config) -> str | None:
    """The row of ARCHITECTURES for a config.json; None where there is none."""
    named = c.values.get("architectures")
    if not named:
        return MODEL_TYPES.get(c.word("model_type", ""))
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    starts = [name.removesuffix("Model") if name.endswith("Model") else name.partition("For")[0] for name in names]
    return next((start for start in starts if start in ARCHITECTURES), None)


def read_config(c: Config) -> tuple[EncoderConfig, EncoderNames]:
    """The encoder that a config.json describes, and what its checkpoint calls the parts.

    Raises ModelFormatError, which names the field that is missing, wrong or not supported.
    """
    config, names = _read(c)
    if config.first_position is None:  # else the checkpoint has a row for each
        config = replace(config, positions=min(config.positions, LONGEST))
    return config, names


def _read(c: Config) -> tuple[EncoderConfig, EncoderNames]:
    found = family(c)
    if found is None and (language_model := decoders.family(c)):
        return decoders.decoder(c, language_model)
    if found is None:
        named = c.values.get("architectures") or c.values.get("model_type") or "no architecture"
        what = ", ".join(map(str, named)) if isinstance(named, list) else str(named)
        known = ", ".join(f"{name}Model" for name in ARCHITECTURES)
        raise ModelFormatError(f"{c.where} names {what[:80]}; encoders supported here: {known}")
    if c.flag("is_decoder", False) or c.flag("add_cross_attention", False):
        raise ModelFormatError(f"{c.where} is a decoder, whose tokens see only what is before them; use an encoder")
    # each head has a key and a value of its own, whatever the file says
    return ARCHITECTURES[found](Config({**c.values, "num_key_value_heads": None}, c.where))
