"""A decoder against `transformers`: odd sizes, every option of the config, the cache, every precision, every device."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.conftest import LLAMA3
from tests.samples import slow_unless
from tinyweb import Tensor, Variable
from tinyweb.dtype import dtypes
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.models import load
from tinyweb.models.decoder import Decoder
from tinyweb.tracing import capture

Make = Callable[..., Path]
Reference = Callable[[Path, np.ndarray], np.ndarray]
TOLERANCE = 1e-4


def prompt(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 517, shape)


def run(model: Decoder, ids: np.ndarray, start: int = 0) -> np.ndarray:
    return model(Tensor(ids.astype(np.int32), device=model.device), start).numpy()


@pytest.mark.parametrize(
    ("tokens", "tied"), slow_unless(lambda tokens, tied: tied is (tokens in (1, 64)), (1, 7, 64, 300), (True, False))
)
def test_against_transformers(make_llama: Make, reference: Reference, tied: bool, tokens: int) -> None:
    folder = make_llama(tie_word_embeddings=tied, rope_parameters=LLAMA3)
    ids = prompt(1, tokens)
    got = run(load(folder), ids)
    assert got.shape == (1, tokens, 517) and got.dtype == np.float32
    np.testing.assert_allclose(got, reference(folder, ids), atol=TOLERANCE)


OPTIONS: dict[str, dict[str, Any]] = {
    "all heads their own": {"num_key_value_heads": 6},
    "one key head": {"num_key_value_heads": 1},
    "wide heads": {"head_dim": 48},
    "narrow heads": {"head_dim": 10},
    "attention bias": {"attention_bias": True},
    "mlp bias": {"mlp_bias": True},
    "another theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    "linear scaling": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "scaling by a step": {"rope_parameters": {**LLAMA3, "low_freq_factor": 4.0}},
    "eps": {"rms_norm_eps": 1e-2},
    "mistral": {"architecture": "mistral", "sliding_window": None},
}


@pytest.mark.parametrize(
    "option",
    slow_unless(lambda option: option not in ("all heads their own", "wide heads", "another theta", "eps"), OPTIONS),
)
def test_options(make_llama: Make, reference: Reference, option: str) -> None:
    folder = make_llama(**OPTIONS[option])
    ids = prompt(1, 19)
    np.testing.assert_allclose(run(load(folder), ids), reference(folder, ids), atol=TOLERANCE)


def test_batch(make_llama: Make, reference: Reference) -> None:
    folder = make_llama(tie_word_embeddings=True, rope_parameters=LLAMA3)
    model, ids = load(folder), prompt(3, 11)
    want = reference(folder, ids)
    np.testing.assert_allclose(run(model, ids[:, :8]), want[:, :8], atol=TOLERANCE)
    np.testing.assert_allclose(run(model, ids[:, 8:], 8), want[:, 8:], atol=TOLERANCE)


def test_cache(make_llama: Make, reference: Reference) -> None:
    """A text read in pieces of any size, and read again from somewhere in its middle, gives the same logits."""
    folder = make_llama(tie_word_embeddings=True, rope_parameters=LLAMA3)
    model, ids = load(folder, context=100), prompt(1, 100)
    want = reference(folder, ids)
    at = 0
    for size in (5, 1, 1, 64, 3, 1, 25):
        np.testing.assert_allclose(run(model, ids[:, at : at + size], at), want[:, at : at + size], atol=TOLERANCE)
        at += size
    assert at == 100
    changed = ids.copy()
    changed[:, 50:] = prompt(1, 50, seed=1)
    np.testing.assert_allclose(run(model, changed[:, 50:], 50), reference(folder, changed)[:, 50:], atol=TOLERANCE)


@pytest.mark.parametrize("device", ["WASM", "WEBGPU"])
def test_devices(make_llama: Make, reference: Reference, device: str) -> None:
    folder = make_llama(tie_word_embeddings=True, rope_parameters=LLAMA3)
    model, ids = load(folder, device=device), prompt(1, 9)
    want = reference(folder, ids)
    np.testing.assert_allclose(run(model, ids[:, :8]), want[:, :8], atol=TOLERANCE)
    np.testing.assert_allclose(run(model, ids[:, 8:], 8), want[:, 8:], atol=TOLERANCE)


def test_interpreter(make_llama: Make, reference: Reference) -> None:
    folder = make_llama(
        num_hidden_layers=1, hidden_size=32, intermediate_size=24, num_attention_heads=4, vocab_size=24, head_dim=8
    )
    ids = prompt(1, 3) % 24
    np.testing.assert_allclose(
        run(load(folder, context=8, device="INTERPRETER"), ids), reference(folder, ids), atol=TOLERANCE
    )


def test_sharded_checkpoint(make_llama: Make, reference: Reference) -> None:
    folder = make_llama(tie_word_embeddings=False, shard="300KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    ids = prompt(1, 5)
    np.testing.assert_allclose(run(load(folder), ids), reference(folder, ids), atol=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_checkpoints_stay_half(make_llama: Make, reference: Reference, dtype: torch.dtype) -> None:
    folder = make_llama(dtype=dtype)
    model, ids = load(folder, cache="f32"), prompt(1, 9)
    np.testing.assert_allclose(run(model, ids), reference(folder, ids), atol=TOLERANCE)
    assert model.weights["model.layers.0.qkv.weight"].dtype is dtypes.float16


def test_precisions(make_llama: Make, reference: Reference) -> None:
    """Each precision stores what it says, and errs as much as it may."""
    folder = make_llama(tie_word_embeddings=False, intermediate_size=320)
    ids = prompt(1, 32)
    want = reference(folder, ids)
    spread = want.std()
    errors, sizes = {}, {}
    for quant in ("f32", "f16", "q8", "q4"):
        model = load(folder, quant, context=64)
        errors[quant] = float(np.abs(run(model, ids) - want).mean() / spread)
        sizes[quant] = sum(t.nbytes() for n, t in model.weights.items() if n.startswith("model.layers"))
    assert errors["f32"] < 1e-6 < errors["f16"] < 2e-3 < errors["q8"] < 0.04 < errors["q4"] < 0.4
    assert sizes["f16"] / sizes["f32"] == pytest.approx(0.5, abs=0.01)
    assert sizes["q8"] / sizes["f32"] == pytest.approx(8.5 / 32, abs=0.01)
    assert sizes["q4"] / sizes["f32"] == pytest.approx(4.5 / 32, abs=0.01)


def test_weights_beyond_half_precision_stay_single(make_llama: Make, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = make_llama()
    values = load_file(folder / "model.safetensors")
    values["model.layers.0.mlp.up_proj.weight"][0, 0] = 1e6
    shutil.copyfile(folder / "config.json", tmp_path / "config.json")
    save_file({k: v.bfloat16() for k, v in values.items()}, tmp_path / "model.safetensors")
    weights = load(tmp_path).weights
    assert weights["model.layers.0.up.weight"].dtype is dtypes.float32
    assert weights["model.layers.0.gate.weight"].dtype is dtypes.float16


# -- entry points ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("quant", ["f16", "q8", "q4"])
def test_kernels_per_token(model_folder: Path, quant: str) -> None:
    """At most 6 per layer and 8 for the rest, the sampling included."""
    model = load(model_folder, quant, activations="float")
    start = Variable("start_pos", 0, model.context - 1).bind(5)
    decode = capture(lambda: model.decode(start).realize())
    sample = capture(lambda: model.sample(start).realize())
    greedy = capture(lambda: model.greedy(start).realize())
    layers = len(model.config.layers)
    assert len(decode.calls) + len(sample.calls) <= 6 * layers + 8
    assert len(greedy.calls) <= 2
    assert len(decode.kernels) <= 6 + 3  # the layers share theirs, but for the first, which looks up its tokens


def test_kernels_per_token_with_rounded_activations(model_folder: Path) -> None:
    """One more for each input of matrices: its scales and its integers are stored by one kernel."""
    model = load(model_folder, "q8", activations="int8")
    start = Variable("start_pos", 0, model.context - 1).bind(5)
    decode = capture(lambda: model.decode(start).realize())
    assert len(decode.calls) <= 10 * len(model.config.layers) + 3


def test_entry_points_see_the_same_as_a_call(make_llama: Make, reference: Reference) -> None:
    folder = make_llama(tie_word_embeddings=True, rope_parameters=LLAMA3)
    model, ids = load(folder, context=64), prompt(1, 40).astype(np.int32)
    want = reference(folder, ids.astype(np.int64))[0]
    start, count = Variable("start_pos", 0, 63), Variable("count", 1, 64)
    model.ids[:40] = Tensor(ids[0])
    model.ids.realize()
    got = model.prefill(64, start.bind(0), count.bind(30)).numpy()  # what lies behind the 30 is harmless
    np.testing.assert_allclose(got[0], want[29], atol=TOLERANCE)
    for position in range(30, 40):
        np.testing.assert_allclose(model.decode(start.bind(position)).numpy()[0], want[position], atol=TOLERANCE)
    model.greedy(start.bind(39)).realize()
    assert model.ids.numpy()[40] == want[39].argmax()
    assert model.logits.shape == (1, 517)
    model.ids[32:40] = Tensor(ids[0, 32:])  # greedy has written behind them only
    assert model.verify(8, start.bind(32)).numpy().tolist() == want[32:40].argmax(-1).tolist()


def test_names_and_shapes_of_memory(make_llama: Make) -> None:
    folder = make_llama(tie_word_embeddings=False)
    model = load(folder, "q8", context=100)
    state = {name: (t.shape, t.dtype) for name, t in model.state.items()}
    assert state == {
        "ids": ((128,), dtypes.int32),
        **{f"layer{i}.kv": ((2, 2, 128, 32), dtypes.float16) for i in range(3)},
        "logits": ((1, 517), dtypes.float32),
        "sampling_f": ((4,), dtypes.float32),
        "sampling_i": ((2,), dtypes.int32),
        "verified": ((8,), dtypes.int32),
    }
    buffers = [t.uop.buffer for t in model.weights.values()]
    assert len(set(buffers)) == len(buffers)
    assert model.weights["model.layers.2.qkv.weight"].shape == (320, 6, 32)
    assert model.weights["model.layers.2.qkv.scales"].shape == (320, 6)
    assert model.parameter_count == sum(int(np.prod(s)) for s in torch_shapes(folder))


def torch_shapes(folder: Path) -> list[tuple[int, ...]]:
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as f:
        return [tuple(f.get_slice(k).get_shape()) for k in f.keys()]  # noqa: SIM118


# -- refusals ----------------------------------------------------------------------------------------------------------
def test_calls_outside_of_the_context(make_llama: Make) -> None:
    model = load(make_llama(), context=16)
    with pytest.raises(ValueError, match="17 tokens from position 0 leave the context of 16"):
        model(Tensor(np.zeros((1, 17), np.int32)))
    with pytest.raises(ValueError, match="leave the context"):
        model(Tensor(np.zeros((1, 2), np.int32)), 15)
    with pytest.raises(ValueError, match=r"shape \(batch, tokens\)"):
        model(Tensor(np.zeros(4, np.int32)))
    with pytest.raises(ValueError, match="integer ids"):
        model(Tensor(np.zeros((1, 4), np.float32)))


def test_ids_of_other_kinds_and_devices(make_llama: Make) -> None:
    folder, ids = make_llama(), [[1, 5, 9]]
    want = run(load(folder), np.array(ids))
    model = load(folder, device="WASM")
    for given in (ids, np.array(ids), Tensor(ids), Tensor(ids, device="WASM")):
        np.testing.assert_allclose(model(given).numpy(), want, atol=TOLERANCE)
    with pytest.raises(ValueError, match="integer ids"):
        model([[1.5]])


def test_options_that_cannot_be(make_llama: Make) -> None:
    with pytest.raises(TinywebError, match=r"unknown quantisation 'q9': choose one of stored, f32, f16, q8"):
        load(make_llama(), "q9")
    for context in (0, 513):
        with pytest.raises(TinywebError, match="allows 1 to 512"):
            load(make_llama(), context=context)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"architectures": ["T5ForCausalLM"]}, "names T5ForCausalLM; supported here: LlamaForCausalLM"),
    ({"architectures": None}, "names no architecture"),
    ({"architectures": "LlamaForCausalLM"}, "names no architecture"),
    ({"hidden_size": None}, "lacks 'hidden_size'"),
    ({"hidden_size": "192"}, "'hidden_size' must be an integer"),
    ({"hidden_size": 1 << 40}, "'hidden_size' must be an integer from 2 to 65536"),
    ({"hidden_size": 193, "head_dim": None}, "'hidden_size' 193 is no multiple"),
    ({"hidden_size": 384}, r"has shape \(517, 192\), config.json makes it \(517, 384\)"),
    ({"vocab_size": 518}, r"has shape \(517, 192\), config.json makes it \(518, 192\)"),
    ({"num_hidden_layers": 4}, r"no tensor 'model\.layers\.3\.input_layernorm\.weight'"),
    ({"num_hidden_layers": 1 << 20}, "'num_hidden_layers' must be"),
    ({"num_key_value_heads": 4}, "6 attention heads are no multiple of 4"),
    ({"num_key_value_heads": 7}, "'num_key_value_heads' must be an integer from 1 to 6"),
    ({"head_dim": 33}, "'head_dim' must be even"),
    ({"hidden_act": "tanh"}, "'hidden_act' 'tanh' is not supported"),
    ({"rms_norm_eps": "tiny"}, "'rms_norm_eps' must be a number"),
    ({"tie_word_embeddings": 1}, "'tie_word_embeddings' must be true or false"),
    ({"rope_parameters": {"rope_type": "axial", "factor": 2}}, "rotary scaling 'axial' is not supported"),
    ({"rope_parameters": {"rope_type": "llama3", "factor": 2}}, "lacks 'low_freq_factor'"),
    ({"rope_parameters": {**LLAMA3, "low_freq_factor": 5.0}}, "'low_freq_factor' is above"),
    ({"rope_parameters": None, "rope_scaling": {"type": "su", "factor": 2}}, "rotary scaling 'su'"),
    ({"rope_parameters": [1]}, "'rope_parameters' must be an object"),
    ({"attention_bias": True}, r"no tensor 'model\.layers\.0\.self_attn\.q_proj\.bias'"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[str(r[0]) for r in REFUSED])
def test_folders_that_are_refused(make_llama: Make, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = make_llama(tie_word_embeddings=False)
    config = json.loads((folder / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(ModelFormatError, match=message) as error:
        load(tmp_path)
    assert "\n" not in str(error.value)


def test_older_rotary_fields(make_llama: Make, reference: Reference, tmp_path: Path) -> None:
    """`rope_theta` and `rope_scaling`, as folders made before transformers 5 have them."""
    folder = make_llama(tie_word_embeddings=True, rope_parameters=LLAMA3)
    config = json.loads((folder / "config.json").read_text())
    scaling = config.pop("rope_parameters")
    config |= {"rope_theta": scaling.pop("rope_theta"), "rope_scaling": scaling}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    ids = prompt(1, 7)
    np.testing.assert_allclose(run(load(tmp_path), ids), reference(folder, ids), atol=TOLERANCE)
