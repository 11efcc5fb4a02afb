"""Sentence embeddings: pooling and normalisation beside PyTorch, tokens beside transformers, folders of all kinds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tests.formats.gguf.converted import convert
from tests.formats.gguf.test_tokenizer import CONTROL, NORMAL, phantom
from tests.models.encoder_folders import PIECES, SIZES, random_model, word_pieces, write_folder, write_json
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.huggingface import Config
from tinyweb.models import load
from tinyweb.models.embedding import Embedder, padded_lengths
from tinyweb.models.encoder.architectures import read_config

TEXTS = [
    "the cat sat.",
    "Trees, trees, TREES?",
    "",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h",
]


def vectors_of(model: PreTrainedModel, texts: list[str], pooling: str, longest: int = 40) -> np.ndarray:
    """One text at a time, as PyTorch would do it."""
    fast = PreTrainedTokenizerFast(tokenizer_object=word_pieces(), pad_token="[PAD]", model_max_length=longest)
    rows = []
    for text in texts:
        read = fast(text, truncation=True, return_tensors="pt")
        with torch.no_grad():
            hidden = model(input_ids=read["input_ids"]).last_hidden_state[0]
        rows.append({
            "mean": lambda h: h.mean(0),
            "cls": lambda h: h[0],
            "max": lambda h: h.max(0).values,
            "mean_sqrt_len": lambda h: h.sum(0) / len(h) ** 0.5,
            "lasttoken": lambda h: h[-1],
        }[pooling](hidden))  # fmt: skip
    return torch.nn.functional.normalize(torch.stack(rows)).numpy()


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return random_model(num_hidden_layers=1)


@pytest.mark.parametrize(
    ("pooling", "fields"),
    [
        ("mean", {"pooling_mode_mean_tokens": True}),
        ("cls", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}),
        ("max", {"pooling_mode_max_tokens": True}),
        ("mean_sqrt_len", {"pooling_mode": "mean_sqrt_len"}),
    ],
)
def test_pooling(pooling: str, fields: dict[str, object], model: PreTrainedModel, tmp_path: Path) -> None:
    embedder = Embedder.from_folder(write_folder(tmp_path, model, **fields))
    got = embedder.encode(TEXTS)
    assert got.dtype == np.float32 and got.shape == (4, 48)
    np.testing.assert_allclose(got, vectors_of(model, TEXTS, pooling), atol=1e-4)


def test_pieces_of_deberta(tmp_path: Path) -> None:
    """Its tokenizer chooses the likeliest pieces."""
    words = ["▁the", "▁cat", "▁", "s", "▁sat", ".", "▁tree", "T", *"abcdefghijklmnopqr"]
    vocab = [*((token, 0.0) for token in ("[PAD]", "[CLS]", "[SEP]", "[UNK]")), *((w, -len(w) - 0.1) for w in words)]
    tokenizer = transformers.DebertaV2Tokenizer(vocab=vocab, unk_id=3)
    reference = random_model("DeBERTa")
    reference.save_pretrained(tmp_path), tokenizer.save_pretrained(tmp_path)
    texts = ["the cats  sat.", "TREE trees", "", "a [SEP] ü b\nc"]
    embedder = load(tmp_path)
    assert embedder.tokens(texts[:3]) == tokenizer(texts[:3])["input_ids"]
    rows = []
    for ids in embedder.tokens(texts):
        with torch.no_grad():
            rows.append(reference(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(0))
    want = torch.nn.functional.normalize(torch.stack(rows)).numpy()
    np.testing.assert_allclose(embedder.encode(texts), want, atol=1e-4)


def test_many_texts_of_all_lengths(model: PreTrainedModel, tmp_path: Path) -> None:
    """The order of the texts, and which run side by side, changes nothing."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdefg"), n)) for n in rng.integers(1, 38, 21)]
    got = Embedder.from_folder(write_folder(tmp_path, model), max_length=36).encode(texts)
    np.testing.assert_allclose(got, vectors_of(model, texts, "mean", 36), atol=1e-4)


def test_prefixes(model: PreTrainedModel, tmp_path: Path) -> None:
    """From the folder's prompts, its name, or the caller."""
    named = write_folder(tmp_path / "my-e5-small-v2", model)
    embedder = Embedder.from_folder(named)
    assert embedder.settings.prefixes == {"query": "query: ", "passage": "passage: "}
    assert embedder.tokens(["cat"], "query") == [word_pieces().encode("query: cat").ids]
    assert Embedder.from_folder(named, prefixes={"query": "q: "}).settings.prefixes["query"] == "q: "
    write_json(named / "config_sentence_transformers.json", {"prompts": {"query": "find: ", "document": "text: "}})
    assert Embedder.from_folder(named).settings.prefixes == {"query": "find: ", "passage": "text: "}
    with pytest.raises(ValueError, match="query or a passage"):
        embedder.tokens(["cat"], "title")


def test_settings_of_a_folder(model: PreTrainedModel, tmp_path: Path) -> None:
    plain = write_folder(tmp_path / "plain", model, modules=False)
    found = Embedder.from_folder(plain).settings
    assert (found.pooling, found.normalize, found.max_length) == (("mean",), True, 40)
    write_json(plain / "sentence_bert_config.json", {"max_seq_length": 8, "do_lower_case": True})
    short = Embedder.from_folder(plain)
    assert short.tokens([TEXTS[3]])[0][-1] == 3 and len(short.tokens([TEXTS[3]])[0]) == 8
    assert short.tokens(["THE CAT"]) == short.tokens(["the cat"])
    with pytest.raises(TinywebError, match="41 tokens"):
        Embedder.from_folder(plain, max_length=41)


def test_a_pooling_that_the_folder_does_not_say(model: PreTrainedModel, tmp_path: Path, model_folder: Path) -> None:
    """Is a guess, which is named, and may be chosen."""
    plain = write_folder(tmp_path / "plain", model, modules=False)
    guessed = Embedder.from_folder(plain)
    assert guessed.note is not None and "--pooling" in guessed.note and "language model" not in guessed.note
    last = Embedder.from_folder(plain, pooling="lasttoken")
    assert last.note is None and last.dimensions == guessed.dimensions
    np.testing.assert_allclose(last.encode(TEXTS), vectors_of(model, TEXTS, "lasttoken"), atol=1e-4)
    said = Embedder.from_folder(write_folder(tmp_path / "said", model))
    assert said.note is None
    chat = Embedder.from_folder(model_folder)
    assert chat.note is not None and "This is a language model" in chat.note
    with pytest.raises(TinywebError, match="there is no pooling 'best': choose cls, max, mean"):
        Embedder.from_folder(plain, pooling="best")


@pytest.mark.parametrize(
    ("file", "value", "message"),
    [
        ("modules.json", [{"type": "x.Transformer", "path": ""}, {"type": "x.LSTM", "path": "d"}], "'LSTM'"),
        ("modules.json", [{"type": "x.Pooling", "path": "1_Pooling"}], "lists Pooling"),
        ("modules.json", [{"type": "x.Pooling", "path": "../other"}], "no folder of this model"),
        ("modules.json", {}, "no JSON array"),
        ("1_Pooling/config.json", {"pooling_mode_weightedmean_tokens": True}, "weightedmean"),
        ("1_Pooling/config.json", {}, "no pooling"),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "include_prompt": False}, "include_prompt"),
        ("config_sentence_transformers.json", {"prompts": {"query": 3}}, "'query' must be a string"),
    ],
)
def test_refuses(file: str, value: object, message: str, model: PreTrainedModel, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, model)
    (folder / file).write_text(json.dumps(value))
    with pytest.raises(ModelFormatError, match=message):
        Embedder.from_folder(folder)


def test_refuses_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, random_model(vocab_size=20, num_hidden_layers=1))
    with pytest.raises(ModelFormatError, match="not of one model"):
        Embedder.from_folder(folder)


def test_padded_lengths() -> None:
    assert padded_lengths(512) == (32, 128, 512)
    assert padded_lengths(256) == (32, 128, 256)
    assert padded_lengths(20) == (20,)


def test_a_gguf_file(model: PreTrainedModel, tmp_path: Path) -> None:
    """Network, tokenizer and pooling of one file."""
    folder = write_folder(tmp_path / "folder", model, pooling_mode_cls_token=True)
    kinds = [CONTROL if piece.startswith("[") else NORMAL for piece in PIECES]
    tokenizer = {"model": "bert", "tokens": list(map(phantom, PIECES)), "token_type": kinds, "cls_token_id": 2,
                 "padding_token_id": 0, "unknown_token_id": 1, "seperator_token_id": 3}  # fmt: skip
    more = {f"tokenizer.ggml.{name}": value for name, value in tokenizer.items()} | {"bert.pooling_type": 2}
    path = convert(folder, tmp_path / "m.gguf", "bert", more=more)
    embedder = load(path)
    assert isinstance(embedder, Embedder) and embedder.settings.pooling == ("cls",)
    np.testing.assert_allclose(embedder.encode(TEXTS), Embedder.from_folder(folder).encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "more"),
    [
        ("Qwen3ForCausalLM", {}),
        ("Qwen3Model", {}),
        ("Gemma3TextModel", {"sliding_window": 6}),
        ("Gemma3TextModel", {"sliding_window": 6, "use_bidirectional_attention": True}),
    ],
)
def test_a_decoder(architecture: str, more: dict[str, Any], tmp_path: Path) -> None:
    """As Qwen3-Embedding: each token sees what is before it, the last one's hidden state is the vector."""
    name = architecture.removesuffix("Model").removesuffix("ForCausalLM")
    torch.manual_seed(3)
    config = getattr(transformers, f"{name}Config")(**SIZES, head_dim=12, num_key_value_heads=2, **more)
    network = getattr(transformers, architecture)(config).eval()
    folder = write_folder(tmp_path, network, pooling_mode_lasttoken=True, pooling_mode_mean_tokens=False)
    embedder = load(folder)
    assert isinstance(embedder, Embedder) and embedder.settings.pooling == ("lasttoken",)
    inner = network.model if architecture.endswith("ForCausalLM") else network
    np.testing.assert_allclose(embedder.encode(TEXTS), vectors_of(inner, TEXTS, "lasttoken"), atol=1e-4)


def test_a_decoder_with_what_is_not_read() -> None:
    values = {**SIZES, "architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2}
    with pytest.raises(ModelFormatError, match="has experts, which embeddings are not made with"):
        read_config(Config(values, "config.json"))


def test_dense_layers(model: PreTrainedModel, tmp_path: Path) -> None:
    """As EmbeddingGemma: two layers between pooling and normalisation."""
    folder = write_folder(tmp_path, model)
    entries = json.loads((folder / "modules.json").read_text())
    rng, shapes, layers = np.random.default_rng(2), [(60, 48), (32, 60)], []
    for i, (shape, kind) in enumerate(zip(shapes, ("linear.Identity", "activation.Tanh"))):
        where = folder / f"{i + 2}_Dense"
        where.mkdir()
        weight = {"linear.weight": torch.tensor(rng.standard_normal(shape).astype(np.float32))}
        if i:
            weight["linear.bias"] = torch.tensor(rng.standard_normal(shape[0]).astype(np.float32))
        layers.append(weight)
        save_file(weight, where / "model.safetensors")
        write_json(where / "config.json", {"in_features": shape[1], "out_features": shape[0], "bias": bool(i),
                                           "activation_function": f"torch.nn.modules.{kind}"})  # fmt: skip
        entries.insert(i + 2, {"path": where.name, "type": "sentence_transformers.models.Dense"})
    write_folder(tmp_path / "plain", model)
    write_json(folder / "modules.json", [e for e in entries if "Normalize" not in e["type"]])
    embedder = Embedder.from_folder(folder)
    assert embedder.dimensions == 32 and not embedder.settings.normalize
    write_json(tmp_path / "plain" / "modules.json", entries[:2])
    hidden = Embedder.from_folder(tmp_path / "plain").encode(TEXTS)
    want = torch.tensor(hidden) @ layers[0]["linear.weight"].T @ layers[1]["linear.weight"].T + layers[1]["linear.bias"]
    np.testing.assert_allclose(embedder.encode(TEXTS), want.tanh().numpy(), atol=1e-4)
    write_json(folder / "2_Dense" / "config.json", {"in_features": 47, "out_features": 60})
    with pytest.raises(ModelFormatError, match="'in_features' 47 is not the width"):
        Embedder.from_folder(folder)


def test_load(model: PreTrainedModel, tmp_path: Path) -> None:
    """An encoder is loaded as what makes vectors of texts."""
    embedder = load(write_folder(tmp_path, model), context=8)
    assert isinstance(embedder, Embedder) and embedder.settings.max_length == 8
    assert embedder.encode(TEXTS).shape == (4, 48)
