"""Every encoder against `transformers`, with small random weights."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from tests.models.encoder_folders import ENCODERS, random_model
from tests.samples import slow_unless
from tinyweb import Tensor
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.config import AttentionConfig
from tinyweb.models.encoder import Encoder, load
from tinyweb.models.encoder.architectures import read_config
from tinyweb.models.encoder.config import DisentangledConfig
from tinyweb.models.encoder.disentangled import rows_by_distance
from tinyweb.nn.rotary import frequencies

TOLERANCE = 1e-4
TOKENS = 17
Made = Callable[[str], tuple[Path, PreTrainedModel]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The folder of an encoder, and the reference."""

    @cache
    def of(name: str) -> tuple[Path, PreTrainedModel]:
        folder, model = tmp_path_factory.mktemp("model"), ENCODERS[name].model()
        model.save_pretrained(folder)
        return folder, model

    return of


def check(folder: Path, reference: PreTrainedModel, device: str | None = None) -> Encoder:
    """Texts of three lengths side by side, with types of tokens where there are some; and one without padding."""
    rng = np.random.default_rng(0)
    ids = rng.integers(4, 60, (3, TOKENS)).astype(np.int32)
    mask = np.arange(TOKENS) < np.array([[TOKENS], [4], [1]])
    ids = np.where(mask, ids, reference.config.pad_token_id).astype(np.int32)
    arrays = {"input_ids": ids, "attention_mask": mask.astype(np.int32)}
    if "token_type_ids" in inspect.signature(reference.forward).parameters:
        most = getattr(reference.config, "type_vocab_size", 0)
        arrays["token_type_ids"] = (rng.random((3, TOKENS)) * max(most, 1)).astype(np.int32)
    with torch.no_grad():
        want = reference(**{n: torch.tensor(a).long() for n, a in arrays.items()}).last_hidden_state.numpy()
        alone = reference(input_ids=torch.tensor(ids[:1]).long()).last_hidden_state.numpy()
    model = load(folder, device=device)
    kinds = Tensor(arrays["token_type_ids"], device=device) if "token_type_ids" in arrays else None
    got = model(Tensor(ids, device=device), Tensor(mask, device=device), kinds).numpy()
    assert 0.3 < want.std() < 30
    np.testing.assert_allclose(got[mask], want[mask], atol=TOLERANCE)
    np.testing.assert_allclose(model(Tensor(ids[:1], device=device)).numpy(), alone, atol=TOLERANCE)
    return model


@pytest.mark.parametrize("name", ENCODERS)
def test_against_transformers(made: Made, name: str) -> None:
    folder, reference = made(name)
    assert check(folder, reference).parameter_count == sum(p.numel() for p in reference.parameters())


@pytest.mark.parametrize(
    ("name", "device"),
    slow_unless(
        lambda name, device: name in {"WASM": ("BERT", "DeBERTa"), "WEBGPU": ("ModernBERT", "DeBERTa")}[device],
        ENCODERS,
        ("WASM", "WEBGPU"),
    ),
)
def test_devices(made: Made, name: str, device: str) -> None:
    check(*made(name), device)


def test_first_fields_of_nomic(made: Made) -> None:
    """As files on the hub have them."""
    now = json.loads((made("Nomic")[0] / "config.json").read_text())
    first = {"architectures": ["NomicBertModel"], "model_type": "nomic_bert", "vocab_size": 64, "n_embd": 48,
             "n_layer": 2, "n_head": 4, "n_inner": 72, "n_positions": 40, "layer_norm_epsilon": 1e-12,
             "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "activation_function": "swiglu",
             "type_vocab_size": 2}  # fmt: skip
    assert read_config(Config(first, "first")) == read_config(Config(now, "now"))
    with pytest.raises(ModelFormatError, match="'prenorm' 'True' is not supported"):
        read_config(Config({**first, "prenorm": True}, "config.json"))


def test_ntk_scaling(made: Made) -> None:
    """GTE v1.5's: the base times the factor, all frequencies divided by factor^(2/width)."""
    now = json.loads((made("GTE")[0] / "config.json").read_text())
    del now["rope_parameters"]
    before = {**now, "architectures": ["NewModel"], "model_type": "new", "rope_theta": 500.0,
              "rope_scaling": {"type": "ntk", "factor": 2.0}}  # fmt: skip
    config, _ = read_config(Config(before, "config.json"))
    mixer = config.layers[0].mixer
    assert isinstance(mixer, AttentionConfig) and mixer.rotary is not None
    found = frequencies(12, mixer.rotary.theta, mixer.rotary.scaling)
    np.testing.assert_allclose(found, [1000.0 ** (-i / 6) / 2 ** (1 / 6) for i in range(6)], rtol=1e-6)
    with pytest.raises(ModelFormatError, match="'pack_qkv' 'False' is not supported"):
        read_config(Config({**before, "pack_qkv": False}, "config.json"))


@pytest.mark.parametrize("heads", [4, 6])
def test_jina(heads: int, tmp_path: Path) -> None:
    """By its definition, for it is no part of `transformers`: ALiBi (Press et al. 2022) and GEGLU in BERT's places."""
    rng, width, wide, shift = np.random.default_rng(5), 48, 40, "encoder.layer.0."
    shapes = {
        "embeddings.word_embeddings.weight": (64, width), "embeddings.token_type_embeddings.weight": (2, width),
        **{f"{shift}attention.self.{part}.weight": (width, width) for part in ("query", "key", "value")},
        f"{shift}attention.output.dense.weight": (width, width), f"{shift}mlp.gated_layers.weight": (2 * wide, width),
        f"{shift}mlp.wo.weight": (width, wide),
        **{f"{shift}attention.self.{part}.bias": (width,) for part in ("query", "key", "value")},
        f"{shift}attention.output.dense.bias": (width,), f"{shift}mlp.wo.bias": (width,),
    }  # fmt: skip
    norms = ("embeddings.LayerNorm", f"{shift}attention.output.LayerNorm", f"{shift}mlp.layernorm")
    shapes |= {f"{norm}.{kind}": (width,) for norm in norms for kind in ("weight", "bias")}
    w = {name: (rng.standard_normal(shape) * 0.2).astype(np.float32) for name, shape in shapes.items()}
    save_file({name: torch.tensor(value) for name, value in w.items()}, tmp_path / "model.safetensors")
    config = {"architectures": ["JinaBertForMaskedLM"], "model_type": "bert", "vocab_size": 64, "hidden_size": width,
              "intermediate_size": wide, "num_hidden_layers": 1, "num_attention_heads": heads, "layer_norm_eps": 1e-12,
              "max_position_embeddings": 40, "position_embedding_type": "alibi",
              "feed_forward_type": "geglu"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", np.float32(0))

    def normed(x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * w[f"{name}.weight"] + w[f"{name}.bias"]

    ids, length = rng.integers(0, 64, (1, 9)).astype(np.int32), 7
    x = w["embeddings.word_embeddings.weight"][ids[0, :length]] + w["embeddings.token_type_embeddings.weight"][0]
    x = normed(x, norms[0])
    q, k, v = (
        linear(x, f"{shift}attention.self.{part}").reshape(length, heads, -1).swapaxes(0, 1)
        for part in ("query", "key", "value")
    )
    slopes = {4: [2**-2, 2**-4, 2**-6, 2**-8], 6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]}[heads]
    place = np.arange(length)
    scores = q @ k.swapaxes(1, 2) / np.sqrt(width // heads)
    scores -= np.abs(place - place[:, None]) * np.array(slopes)[:, None, None]
    weights = torch.softmax(torch.tensor(scores), -1).numpy()
    mixed = (weights @ v).swapaxes(0, 1).reshape(length, width)
    x = normed(x + linear(mixed, f"{shift}attention.output.dense"), norms[1])
    gate, up = np.split(linear(x, f"{shift}mlp.gated_layers"), 2, -1)
    gated = torch.nn.functional.gelu(torch.tensor(gate)).numpy() * up
    want = normed(x + linear(gated, f"{shift}mlp.wo"), norms[2])
    got = load(tmp_path)(Tensor(ids), Tensor(np.arange(9)[None] < length)).numpy()[0, :length]
    np.testing.assert_allclose(got, want, atol=TOLERANCE)
    with pytest.raises(ModelFormatError, match="'feed_forward_type' 'original'"):
        read_config(Config({**config, "feed_forward_type": "original"}, "config.json"))


def test_far_tokens(made: Made) -> None:
    """Distances that share a row of MPNet's table."""
    folder, reference = made("MPNet")
    ids = np.random.default_rng(1).integers(4, 60, (1, 190)).astype(np.int32)
    with torch.no_grad():
        want = reference(input_ids=torch.tensor(ids).long()).last_hidden_state.numpy()
    np.testing.assert_allclose(load(folder)(Tensor(ids)).numpy(), want, atol=TOLERANCE)


@pytest.mark.parametrize(("buckets", "farthest"), [(256, 512), (32, 64), (6, 1000), (-1, 512)])
def test_rows_of_distances(buckets: int, farthest: int) -> None:
    """DeBERTa's, those of v3 first; and farther ones than it has been trained on."""
    reach = buckets if buckets > 0 else farthest
    c = DisentangledConfig(reach, farthest, buckets > 0, keys=True, queries=True, shared=True, norm=None)
    distance = torch.arange(-699, 700)
    if buckets > 0:
        distance = make_log_bucket_position(distance, buckets, farthest).long()
    want = torch.clamp(distance + reach, 0, 2 * reach - 1).numpy()
    np.testing.assert_array_equal(rows_by_distance(c, 700), want)


def test_refuses_a_tensor_without_a_place(made: Made, tmp_path: Path) -> None:
    folder, _ = made("BERT")
    values = load_file(folder / "model.safetensors")
    values["encoder.layer.0.attention.self.layer_norm_q.weight"] = torch.ones(48)
    save_file(values, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(ModelFormatError, match=r"layer_norm_q\.weight', for which"):
        load(tmp_path)


@pytest.mark.parametrize("act", ["gelu_new", "relu", "silu", "quick_gelu"])
def test_activations(act: str, tmp_path: Path) -> None:
    model = random_model(hidden_act=act, num_hidden_layers=1)
    model.save_pretrained(tmp_path)
    check(tmp_path, model)


def test_positions_behind_the_padding_token(made: Made) -> None:
    assert load(made("RoBERTa")[0]).config.positions == 38


def test_names_of_other_checkpoints(tmp_path: Path) -> None:
    """Below a prefix, with the names that the first release gave norms."""
    model = random_model(num_hidden_layers=1)
    model.save_pretrained(tmp_path)
    old = {
        "bert." + k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
        for k, v in load_file(tmp_path / "model.safetensors").items()
    }
    save_file(old, tmp_path / "model.safetensors")
    check(tmp_path, model)


def test_precisions(tmp_path: Path) -> None:
    model = random_model(hidden_size=64, intermediate_size=96)
    model.save_pretrained(tmp_path)
    ids = Tensor(np.arange(4, 36, dtype=np.int32).reshape(2, 16))
    want = load(tmp_path, "f32")(ids).numpy()
    errors = [float(np.abs(load(tmp_path, q)(ids).numpy() - want).mean()) for q in ("f16", "q8", "q4")]
    assert 0 < errors[0] < 1e-3 < errors[1] < 0.03 < errors[2] < 0.5


def test_older_fields(made: Made) -> None:
    """ModernBERT's config as it was before transformers 5, and one without `architectures`."""
    now = json.loads((made("ModernBERT")[0] / "config.json").read_text())
    before = dict(now)
    rope = before.pop("rope_parameters")
    del before["layer_types"]
    before |= {"global_rope_theta": rope["full_attention"]["rope_theta"], "global_attn_every_n_layers": 3,
               "local_rope_theta": rope["sliding_attention"]["rope_theta"]}  # fmt: skip
    assert read_config(Config(before, "then")) == read_config(Config(now, "now"))
    bert = json.loads((made("BERT")[0] / "config.json").read_text())
    assert read_config(Config({**bert, "architectures": None}, "without")) == read_config(Config(bert, "with"))
    masked = {**bert, "architectures": ["BertForMaskedLM"]}
    assert read_config(Config(masked, "of another task")) == read_config(Config(bert, "with"))


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("BERT", {"architectures": ["DebertaModel"]}, "names DebertaModel; encoders supported here: BertModel"),
    ("BERT", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ("BERT", {"hidden_act": "mish"}, "'hidden_act' 'mish'"),
    ("BERT", {"num_attention_heads": 5}, "multiple of"),
    ("BERT", {"is_decoder": True}, "decoder"),
    ("BERT", {"vocab_size": "many"}, "vocab_size"),
    ("DeBERTa", {"conv_kernel_size": 3}, "'conv_kernel_size' '3' is not supported, only 0"),
    ("DeBERTa", {"pos_att_type": ["p2p"]}, "'pos_att_type'"),
    ("DeBERTa", {"pos_att_type": None}, "'relative_attention' without"),
    ("DeBERTa", {"position_buckets": 90}, "'position_buckets' must be"),
    ("RoBERTa", {"max_position_embeddings": 2}, "leaves no position behind 1"),
    ("ModernBERT", {"layer_types": ["full_attention"]}, "'layer_types' must name 4 layers"),
    ("ModernBERT", {"local_attention": 0}, "'local_attention' must be an integer"),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED, ids=[f"{r[0]}: {r[2]}" for r in REFUSED])
def test_what_is_refused(made: Made, name: str, changes: dict[str, Any], message: str) -> None:
    values = json.loads((made(name)[0] / "config.json").read_text()) | changes
    with pytest.raises(ModelFormatError, match=message):
        read_config(Config(values, "config.json"))


def test_refuses_weights_of_another_shape(tmp_path: Path) -> None:
    random_model(num_hidden_layers=1).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hidden_size": 96}))
    with pytest.raises(ModelFormatError, match="shape"):
        load(tmp_path)


def test_refuses_arguments(made: Made) -> None:
    folder, _ = made("BERT")
    with pytest.raises(TinywebError, match="quantisation"):
        load(folder, "q9")
    model = load(folder)
    with pytest.raises(ValueError, match="41 tokens"):
        model(Tensor(np.zeros((1, 41), np.int32)))
    with pytest.raises(ValueError, match="shape"):
        model(Tensor(np.zeros(4, np.int32)))
