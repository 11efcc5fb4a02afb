"""Random configs of encoders beside `transformers`: texts of different lengths side by side, and alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.models.encoder_folders import Small, write_folder
from tests.models.test_encoder import check
from tests.models.variations import Draw, Fields, flags, maybe

ACTIVATIONS = ("gelu", "relu", "silu", "gelu_new")
TOKENS: Fields = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}


def bert(d: Draw) -> Fields:
    heads = d.of(1, 2, 3, 4)
    return {
        "hidden_size": heads * d.of(8, 12, 16), "num_attention_heads": heads, "num_hidden_layers": d.of(1, 2, 3),
        "intermediate_size": d.of(33, 40, 72), "hidden_act": d.choice(ACTIVATIONS), "layer_norm_eps": d.eps(),
        "type_vocab_size": d.of(1, 2, 3), "max_position_embeddings": d.of(40, 64),
    }  # fmt: skip


def distilbert(d: Draw) -> Fields:
    heads = d.of(1, 2, 4)
    return {
        "dim": heads * d.of(8, 12), "n_heads": heads, "n_layers": d.of(1, 2), "hidden_dim": d.of(33, 72),
        "activation": d.of("gelu", "relu"), **flags(d, "sinusoidal_pos_embds"),
    }  # fmt: skip


def modern(d: Draw) -> Fields:
    f, count = bert(d), d.of(2, 4)
    kinds = maybe(d, "layer_types", d.kinds(count, "sliding_attention", "full_attention"))
    return {
        **f, **TOKENS, **kinds, "num_hidden_layers": count, "hidden_activation": f.pop("hidden_act"),
        "norm_eps": f.pop("layer_norm_eps"), "local_attention": d.of(4, 8, 100),
        **flags(d, "attention_bias", "mlp_bias", "norm_bias"),
    }  # fmt: skip


def deberta(d: Draw) -> Fields:
    kinds = d.of(["p2c", "c2p"], ["c2p"], ["p2c"])
    return {
        **bert(d), "relative_attention": True, "pos_att_type": kinds, "position_buckets": d.of(-1, 8, 16),
        "max_relative_positions": d.of(12, 40), "norm_rel_ebd": d.of("none", "layer_norm"),
        **flags(d, "share_att_key", "position_biased_input"),
    }  # fmt: skip


ENCODERS: dict[str, Callable[[Draw], Fields]] = {
    "BertModel": bert,
    "RobertaModel": lambda d: {**bert(d), "pad_token_id": 1},
    "XLMRobertaModel": lambda d: {**bert(d), "pad_token_id": 1},
    "CamembertModel": lambda d: {**bert(d), "pad_token_id": 1},
    "DistilBertModel": distilbert,
    "ModernBertModel": modern,
    "MPNetModel": lambda d: {**bert(d), "max_position_embeddings": 200},
    "DebertaV2Model": deberta,
    "NomicBertModel": lambda d: {**bert(d), "hidden_act": "silu"},
    "GteModel": lambda d: {**bert(d), "type_vocab_size": 1},
}


def judged(architecture: str, seed: int, folder: Path) -> None:
    reference = Small(architecture, ENCODERS[architecture](Draw(f"{architecture} {seed}"))).model()
    check(write_folder(folder, reference), reference)


@pytest.mark.parametrize("architecture", ["ModernBertModel", "MPNetModel"])
def test_a_sample(architecture: str, tmp_path: Path) -> None:
    judged(architecture, 4, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("architecture", ENCODERS)
def test_every_architecture(architecture: str, seed: int, tmp_path: Path) -> None:
    judged(architecture, seed, tmp_path)
