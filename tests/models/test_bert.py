"""The encoder beside `transformers`, on small random weights."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.bert_folders import random_model
from tinyweb import Tensor
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.models.bert import Bert

TOLERANCE = 1e-4


def compare(folder: Path, reference: torch.nn.Module, device: str | None = None, types: bool = False) -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(4, 60, (3, 11)).astype(np.int32)
    mask = np.arange(11) < np.array([[11], [4], [1]])
    kinds = (rng.random((3, 11)) < 0.5).astype(np.int32) if types else np.zeros((3, 11), np.int32)
    ids = np.where(mask, ids, reference.config.pad_token_id).astype(np.int32)
    with torch.no_grad():
        arrays = {"input_ids": ids, "attention_mask": mask.astype(int), "token_type_ids": kinds}
        want = reference(**{n: torch.tensor(a) for n, a in arrays.items()}).last_hidden_state.numpy()
    model = Bert.from_folder(folder, device=device)
    given = [Tensor(x, device=device) for x in ((ids, mask, kinds) if types else (ids, mask))]
    np.testing.assert_allclose(model(*given).numpy()[mask], want[mask], atol=TOLERANCE)
    assert model.parameter_count == sum(p.numel() for p in reference.parameters())


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu", "silu"])
def test_activations(act: str, tmp_path: Path) -> None:
    model = random_model(hidden_act=act, num_hidden_layers=1)
    model.save_pretrained(tmp_path)
    compare(tmp_path, model)


def test_layers_types_eps(tmp_path: Path) -> None:
    model = random_model(layer_norm_eps=1e-2, type_vocab_size=3)
    model.save_pretrained(tmp_path)
    compare(tmp_path, model, types=True)


def test_roberta_counts_positions_behind_the_padding_token(tmp_path: Path) -> None:
    model = random_model("roberta", pad_token_id=1, type_vocab_size=1)
    model.save_pretrained(tmp_path)
    compare(tmp_path, model)
    assert Bert.from_folder(tmp_path).config.positions == 38


@pytest.mark.parametrize("device", ["WASM", "WEBGPU"])
def test_devices(device: str, tmp_path: Path) -> None:
    model = random_model(num_hidden_layers=1)
    model.save_pretrained(tmp_path)
    compare(tmp_path, model, device)


def test_names_of_other_checkpoints(tmp_path: Path) -> None:
    """Below a prefix, with the names that the first release gave norms."""
    model = random_model(num_hidden_layers=1)
    model.save_pretrained(tmp_path)
    old = {
        "bert." + k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
        for k, v in load_file(tmp_path / "model.safetensors").items()
    }
    save_file(old, tmp_path / "model.safetensors")
    compare(tmp_path, model)


def test_precisions(tmp_path: Path) -> None:
    model = random_model(hidden_size=64, intermediate_size=96)
    model.save_pretrained(tmp_path)
    ids = Tensor(np.arange(4, 36, dtype=np.int32).reshape(2, 16))
    want = Bert.from_folder(tmp_path, "f32")(ids).numpy()
    errors = [float(np.abs(Bert.from_folder(tmp_path, q)(ids).numpy() - want).mean()) for q in ("f16", "q8", "q4")]
    assert 0 < errors[0] < 1e-3 < errors[1] < 0.03 < errors[2] < 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "deberta"}, "type 'deberta'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"hidden_act": "mish"}, "hidden_act"),
        ({"num_attention_heads": 5}, "multiple of"),
        ({"hidden_size": 96}, "shape"),
        ({"is_decoder": True}, "decoder"),
        ({"vocab_size": "many"}, "vocab_size"),
    ],
)
def test_refuses(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    random_model(num_hidden_layers=1).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ModelFormatError, match=message):
        Bert.from_folder(tmp_path)


def test_refuses_arguments(tmp_path: Path) -> None:
    random_model(num_hidden_layers=0).save_pretrained(tmp_path)
    with pytest.raises(TinywebError, match="quantisation"):
        Bert.from_folder(tmp_path, "q3")
    model = Bert.from_folder(tmp_path)
    with pytest.raises(ValueError, match="41 tokens"):
        model(Tensor(np.zeros((1, 41), np.int32)))
    with pytest.raises(ValueError, match="shape"):
        model(Tensor(np.zeros(4, np.int32)))
