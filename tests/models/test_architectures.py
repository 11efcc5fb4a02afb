"""Every architecture against `transformers`, with random weights: a text read at once, and token by token."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.models.decoder_folders import (
    BIASED,
    CONVOLUTIONS,
    EARLIER,
    EXPERTS,
    LATENTS,
    LATER,
    LLAMA_LIKE,
    OTHERS,
    SCALINGS,
    SIZES,
    STATES,
    Small,
)
from tests.samples import slow_unless
from tinyweb import Tensor, Variable, dtypes, jit
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.huggingface import Config
from tinyweb.models import load
from tinyweb.models.decoder import delta, selective, state_space, time_mix
from tinyweb.models.decoder.architectures import read_config
from tinyweb.nn.quantize import QuantizedWeight, quantize
from tinyweb.nn.rotary import frequencies
from tinyweb.nn.stack import Stack
from tinyweb.tracing import capture

MODELS = LLAMA_LIKE | OTHERS | EXPERTS | CONVOLUTIONS | LATENTS | STATES | EARLIER | LATER | BIASED
QUICK = ("Falcon, groups", "OPT", "Nemotron", "Apertus", "Hunyuan")  # of those made of the same parts as others
# those that are put together in another way than one of the same name, of parts that others have
AGAIN = (
    "Llama, biases", "Qwen 2, windows", "Phi-4 mini, short", "Cohere, norms", "GPT-NeoX, in a row", "Phi-2, norms",
    "StableLM, side by side", "EXAONE 4, windows", "Llama 4, no experts", "LFM2, biases", "Mamba-2, biases",
    "Granite 4, experts", "MPT, three heads", "yarn", "linear", "Ministral", "SmolLM 3", "Phi-3", "Gemma", "OLMo 3",
    "Cohere 2", "ERNIE 4.5", "StarCoder 2", "Qwen3-MoE", "Granite-MoE", "OLMoE", "Bamba", "Falcon Mamba",
    "DeepSeek-V2 Lite", "Qwen 2", "Granite 4",
)  # fmt: skip
MODELS |= {kind: Small("LlamaForCausalLM", {"rope_parameters": values}) for kind, values in SCALINGS.items()}
PROMPT, STEPS = 9, 20
TOLERANCE = 1e-4
SAMPLES = {"WASM": ("Gemma 3", "GPT-2", "Mamba-2"), "WEBGPU": ("Llama 3", "Mamba-2")}  # where not all are asked for


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: tmp_path_factory.mktemp("model") for name in MODELS}


@pytest.fixture(scope="module")
def judged(folders: dict[str, Path]):
    """The folder of a model, two texts with the same beginning, and the reference's logits of both."""

    @cache
    def of(name: str):
        small, folder = MODELS[name], folders[name]
        small.write(folder)
        texts = np.random.default_rng(3).integers(0, 67, (2, PROMPT + STEPS))
        texts[1, :PROMPT] = texts[0, :PROMPT]
        return folder, texts, small.logits(folder, texts)

    return of


def check(folder: Path, texts: np.ndarray, want: np.ndarray, device: str, steps: int, tolerance: float = TOLERANCE):
    """One text read at once; then the other one's tokens behind the common beginning, one by one from the cache."""
    model, ids = load(folder, context=PROMPT + STEPS, device=device), texts.astype(np.int32)
    got = model(Tensor(ids[:1], device=device)).numpy()
    np.testing.assert_allclose(got, want[:1], atol=tolerance)
    if not model.rewinds:
        model(Tensor(ids[1:, :PROMPT], device=device))
    model.ids[: PROMPT + STEPS] = Tensor(ids[1], device=device)
    start, decode = Variable("start_pos", 0, model.context - 1), jit(model.decode, freeze=False)
    for at in range(PROMPT, PROMPT + steps):
        np.testing.assert_allclose(decode(start.bind(at)).numpy()[0], want[1, at], atol=tolerance)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow)
        if name in AGAIN or (name in EARLIER | LATER and name not in QUICK)
        else name
        for name in MODELS
    ],
)
def test_against_transformers(judged, name: str) -> None:
    folder, texts, want = judged(name)
    assert 0.3 < want.std() < 30
    check(folder, texts, want, "CPU", STEPS)


@pytest.mark.parametrize(
    ("name", "device"), slow_unless(lambda name, device: name in SAMPLES[device], MODELS, ("WASM", "WEBGPU"))
)
def test_devices(judged, name: str, device: str) -> None:
    check(*judged(name), device, 3 if name in SAMPLES[device] else STEPS)


@pytest.mark.parametrize(
    "name",
    [
        "GPT-2",
        "LFM2",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("Gemma 3", "Gemma 3n", "Llama 4", "gpt-oss", "DeepSeek-V3")
        ),
    ],
)
def test_entry_points(judged, name: str) -> None:
    """Blocks whose last tokens are not of the text, decoding behind them, going on from the middle, and checking."""
    folder, texts, want = judged(name)
    model, ids, want = load(folder, context=PROMPT + STEPS), texts[0].astype(np.int32), want[0]
    start, count = Variable("start_pos", 0, model.context - 1), Variable("count", 1, 8)

    def same(got: Tensor, at: int) -> None:
        np.testing.assert_allclose(got.numpy()[0], want[at], atol=TOLERANCE)

    model.ids[: len(ids)] = Tensor(ids)
    prefill = jit(lambda start, count: model.prefill(8, start, count), freeze=False)
    decode = jit(model.decode, freeze=False)
    same(prefill(start.bind(0), count.bind(8)), 7)
    same(prefill(start.bind(8), count.bind(5)), 12)  # what lies behind the 13 is harmless
    model.ids[13:] = Tensor.zeros(int(model.ids.shape[0]) - 13, dtype=dtypes.int32)
    same(prefill(start.bind(8), count.bind(5)), 12)
    model.ids[: len(ids)] = Tensor(ids)
    for at in (13, 14):
        same(decode(start.bind(at)), at)
    same(prefill(start.bind(10), count.bind(8)), 17)
    assert model.verify(8, start.bind(18)).numpy().tolist() == want[18:26].argmax(-1).tolist()


@pytest.mark.parametrize(
    "name",
    ["Mamba-2", *(pytest.param(n, marks=pytest.mark.slow) for n in ("Mamba", "Granite 4", "Qwen3-Next", "RWKV-7"))],
)
def test_states(judged, name: str) -> None:
    """What is behind a block's text leaves no trace, a new text finds nothing of the last, and calls may go back."""
    folder, texts, want = judged(name)
    model, ids = load(folder, context=PROMPT + STEPS), texts.astype(np.int32)
    start, count = Variable("start_pos", 0, model.context - 1), Variable("count", 1, 8)
    prefill = jit(lambda start, count: model.prefill(8, start, count), freeze=False)
    decode = jit(model.decode, freeze=False)
    for text in (0, 1):
        model.ids[: len(ids[0])] = Tensor(ids[text])
        for begin, taken in ((0, 8), (8, 5), (13, 1), (14, 8)):
            got = prefill(start.bind(begin), count.bind(taken)).numpy()[0]
            np.testing.assert_allclose(got, want[text, begin + taken - 1], atol=TOLERANCE)
        np.testing.assert_allclose(decode(start.bind(22)).numpy()[0], want[text, 22], atol=TOLERANCE)
    model = load(folder, context=PROMPT + STEPS)
    for begin, end, batches in ((0, 9, (1, 2)), (9, 10, (1, 2)), (10, 19, (1,)), (9, 10, (1, 2)), (0, 9, (1,))):
        for batch in batches:
            got = model(Tensor(ids[:batch, begin:end]), begin).numpy()
            np.testing.assert_allclose(got, want[:batch, begin:end], atol=TOLERANCE)
    with pytest.raises(ValueError, match="position 12 cannot come next: a state knows what it has read, 9 tokens"):
        model(Tensor(ids[:1, :1]), 12)
    assert "layer0.state.sums" in model.state and "verified" not in model.state


@pytest.mark.parametrize(
    ("name", "module", "size"),
    [
        ("Mamba", selective, "CHUNK"),
        pytest.param("Falcon Mamba", selective, "CHUNK", marks=pytest.mark.slow),
        ("Mamba-2", state_space, "CHUNK"),
        ("RWKV-7", time_mix, "PIECE"),
        ("Qwen3-Next", delta, "PIECE"),
    ],
)
def test_a_text_longer_than_what_is_read_at_once(
    judged, monkeypatch: pytest.MonkeyPatch, name: str, module: ModuleType, size: str
) -> None:
    folder, texts, want = judged(name)
    monkeypatch.setattr(module, size, 12)
    got = load(folder, context=PROMPT + STEPS)(Tensor(texts.astype(np.int32))).numpy()
    np.testing.assert_allclose(got, want, atol=TOLERANCE)


def test_a_token_again_and_again(judged) -> None:
    """The same key is removed and written in each step: tokens of a chunk depend on each other as far as they can."""
    folder, _, _ = judged("RWKV-7")
    ids = np.full((1, 40), 5)
    got = load(folder, context=40)(Tensor(ids.astype(np.int32))).numpy()
    np.testing.assert_allclose(got, MODELS["RWKV-7"].logits(folder, ids), atol=TOLERANCE)


@pytest.mark.parametrize("name", ["GPT-NeoX", "Mixtral", "DeepSeek-V2"])
def test_weights_in_8_bits(judged, name: str) -> None:
    """Fused matrices, rows in another order, biases and norms beside integers; rows of chosen experts."""
    folder, texts, want = judged(name)
    model = load(folder, "q8", context=PROMPT + STEPS)
    got = model(Tensor(texts[:1].astype(np.int32))).numpy()
    assert 1e-4 < np.abs(got - want[:1]).mean() / want.std() < 0.05
    assert model.weights["lm_head.weight"].dtype.bits == 8


@pytest.mark.parametrize(("name", "most"), [("Mistral", 6), ("Gemma", 6), ("Qwen 3", 7), ("GPT-2", 6), ("Mamba-2", 7)])
def test_kernels_per_token(judged, name: str, most: int) -> None:
    """In decode, of a layer; norms of queries and keys are one."""
    folder, _, _ = judged(name)
    model = load(folder)
    start = Variable("start_pos", 0, model.context - 1).bind(5)
    assert len(capture(lambda: model.decode(start)).calls) <= most * len(model.layers) + 1


def test_every_parameter_is_counted(judged) -> None:
    for name in (
        "GPT-2",
        "Phi-2",
        "Qwen2-MoE",
        "gpt-oss",
        "DeepSeek-V2",
        "StableLM, side by side",
        "Gemma 2",
        "Gemma 3n",
        "Llama 4",
        "Mamba-2",
        "RWKV-7",
        "Qwen3-Next",
    ):
        folder, _, _ = judged(name)
        model = load(folder, context=8)
        values = load_file(folder / "model.safetensors")
        assert model.parameter_count == sum(v.size for v in values.values()), name
        buffers = [t.uop.buffer for t in model.weights.values()]
        assert len(set(buffers)) == len(buffers)


@pytest.mark.parametrize("quant", [None, "q8"])
def test_only_chosen_experts_are_read(quant: str | None) -> None:
    """The others may be anything, and rows of matrices are never copied together."""
    count, rows, width = 7, 24, 64
    values = np.random.default_rng(0).standard_normal((count, rows, width)).astype(np.float32)
    x = Tensor(np.ones((2, 1, width), np.float32))
    chosen = Tensor(np.array([[1, 4], [4, 6]], np.int32))
    flat = values.reshape(-1, width)
    weight = quantize(flat, 8) if quant else Tensor(flat)
    assert weight is not None
    want = Stack(weight, rows, None)(x, chosen).numpy()
    np.testing.assert_allclose(want, values.sum(-1)[[[1, 4], [4, 6]]], atol=0.5 if quant else 1e-4)
    unknown = np.isin(np.arange(count), [1, 4, 6], invert=True).repeat(rows)
    if isinstance(weight, QuantizedWeight):
        scales = weight.scales.numpy()
        scales[unknown] = np.nan
        weight = QuantizedWeight(weight.values, Tensor(scales))
    else:
        weight = Tensor(np.where(unknown[:, None], np.float32(np.nan), flat))
    stack = Stack(weight, rows, None)
    np.testing.assert_array_equal(stack(x, chosen).numpy(), want)
    plan = capture(lambda: stack(x, chosen).realize())
    assert len(plan.calls) == 1 and not plan.pool_bytes


def rewritten(folder: Path, to: Path, config: dict[str, Any], rename: Callable[[str], str]) -> Path:
    (to / "config.json").write_text(json.dumps(config))
    save_file({rename(k): v for k, v in load_file(folder / "model.safetensors").items()}, to / "model.safetensors")
    return to


def test_a_checkpoint_of_the_network_without_its_head(judged, tmp_path: Path) -> None:
    """As GPT-2's first checkpoints: names without the prefix, the head is the embedding."""
    folder, texts, want = judged("GPT-2")
    config = json.loads((folder / "config.json").read_text())
    made = rewritten(folder, tmp_path, config, lambda name: name.removeprefix("transformer."))
    check(made, texts, want, "CPU", 1)


@pytest.mark.parametrize(
    "name", ["Gemma 3", *(pytest.param(n, marks=pytest.mark.slow) for n in ("Gemma 3n", "Llama 4"))]
)
def test_the_language_model_of_one_that_reads_pictures(judged, tmp_path: Path, name: str) -> None:
    folder, texts, want = judged(name)
    text = json.loads((folder / "config.json").read_text())
    whole = text["architectures"][0].replace("ForCausalLM", "ForConditionalGeneration")
    config = {"architectures": [whole], "text_config": text}
    check(rewritten(folder, tmp_path, config, lambda name: f"language_model.{name}"), texts, want, "CPU", 1)


# -- older files -------------------------------------------------------------------------------------------------------
def older(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """The config as it was before transformers 5 brought everything about rotary positions into one place."""
    rope = dict(config.pop("rope_parameters"))
    if "full_attention" in rope:
        near, far = dict(rope["sliding_attention"]), dict(rope["full_attention"])
        config |= {"rope_theta": far.pop("rope_theta"), "rope_scaling": far}
        if name == "Gemma 3":
            config |= {"rope_local_base_freq": near["rope_theta"], "sliding_window_pattern": 2}
        del config["layer_types"]
        config["num_hidden_layers"] = 2
        return config
    if name == "GPT-NeoX":
        return config | {"rotary_emb_base": rope["rope_theta"], "rotary_pct": rope["partial_rotary_factor"]}
    config |= {key: rope.pop(key) for key in ("rope_theta", "partial_rotary_factor") if key in rope}
    rope["type"] = {"longrope": "su"}.get(kind := rope.pop("rope_type"), kind)
    return config | ({} if kind == "default" else {"rope_scaling": rope})


@pytest.mark.parametrize(
    "name", ["Llama 3", "Phi-4 mini, long", "Gemma 3", "GPT-NeoX", "Phi-2", "StableLM", "Cohere", "SmolLM 3"]
)
def test_older_fields(judged, name: str) -> None:
    folder, _, _ = judged(name)
    now = json.loads((folder / "config.json").read_text())
    before = older(name, json.loads(json.dumps(now)))
    assert before != now and "rope_parameters" not in before
    assert read_config(Config(before, "then")) == read_config(Config(now, "now"))


def test_usual_patterns_of_layers() -> None:
    """Where a file does not name its layers, each family has its own."""
    sizes = {**SIZES, "num_hidden_layers": 8, "sliding_window": 6, "head_dim": 8}

    def windows(architecture: str, **more: Any) -> str:
        config, _ = read_config(Config({"architectures": [architecture], **sizes, **more}, "config.json"))
        marks = [("w" if a.window else ".") + ("" if a.rotary else "n") for a in (x.mixer for x in config.layers)]
        return " ".join(marks)

    assert windows("LlamaForCausalLM") == ". . . . . . . ."
    assert windows("MistralForCausalLM") == "w w w w w w w w"
    assert windows("Qwen2ForCausalLM", use_sliding_window=True, max_window_layers=6) == ". . . . . . w w"
    assert windows("Gemma2ForCausalLM") == "w . w . w . w ."
    assert windows("Gemma3ForCausalLM") == "w w w w w . w w"
    assert windows("Olmo3ForCausalLM") == "w w w . w w w ."
    assert windows("Cohere2ForCausalLM") == "w w w .n w w w .n"
    assert windows("Exaone4ForCausalLM", sliding_window_pattern="LLG") == "w w .n w w .n w w"
    assert windows("Exaone4ForCausalLM", sliding_window_pattern=2) == "w .n w .n w .n w .n"
    assert windows("SmolLM3ForCausalLM") == ". . . .n . . . .n"


@pytest.mark.parametrize(
    ("name", "longest"),
    [("Mistral", 64), ("Llama, dynamic scaling", 64), ("Ministral 3", 64), ("Phi-4 mini, long", 64)],
)
def test_how_long_a_text_may_be(judged, name: str, longest: int) -> None:
    """Windows limit nothing, dynamic scaling reaches farther than the positions of training."""
    folder, _, _ = judged(name)
    assert load(folder, context=longest).context == longest
    with pytest.raises(TinywebError, match=f"allows 1 to {longest}"):
        load(folder, context=longest + 1)


def test_layers_without_positions_limit_no_text() -> None:
    """What reaches farther than the positions of training by its angles does so beside them, too."""
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    values = {"architectures": ["SmolLM3ForCausalLM"], **SIZES, "rope_parameters": rope, "no_rope_layers": [1, 0]}
    assert read_config(Config(values, "config.json"))[0].positions == 2 * SIZES["max_position_embeddings"]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("Gemma 2", {"layer_types": ["full_attention"]}, "'layer_types' must name 2 layers"),
    ("Gemma 2", {"layer_types": ["full_attention", "linear_attention"]}, "'layer_types' must name 2 layers"),
    ("Gemma 2", {"attn_logit_softcapping": -1}, "'attn_logit_softcapping' must be a number"),
    ("Gemma 3n", {"num_kv_shared_layers": 4}, "no layer of the first 1 has keys and values for layer 1"),
    ("Gemma 3n", {"activation_sparsity_pattern": [0.5]}, "must be a number from 0 to 0.9999, or 5 of them"),
    ("Gemma 3n", {"altup_active_idx": 3}, "'altup_active_idx' must be an integer from 0 to 2"),
    ("Gemma 3", {"use_bidirectional_attention": True}, "is no decoder"),
    ("Phi-2", {"rope_parameters": {"partial_rotary_factor": 0.4}}, "turns 3 of 8 elements"),
    ("Phi-4 mini, long", {"rope_parameters": {"rope_type": "longrope"}}, "'short_factor' must be a list of 4 numbers"),
    ("SmolLM 3", {"no_rope_layers": [1, 2]}, "'no_rope_layers' must be a list of 2 zeros and ones"),
    ("GPT-2", {"n_embd": None}, "lacks 'n_embd'"),
    ("Mistral", {"sliding_window": 0}, "'sliding_window' must be an integer from 1"),
    ("Llama 4", {"layer_types": ["sliding_attention"] * 4}, "each full_attention or chunked_attention"),
    ("Llama 3", {"rope_parameters": {"rope_type": "yarn", "factor": 2, "rope_theta": 1}}, "must be above 1 for yarn"),
    ("RWKV-7", {"attn": {"layers": [0]}}, "'attn' is not supported"),
    ("RWKV-7", {"head_dim": 7}, "'hidden_size' 32 is no multiple of 'head_dim' 7"),
    ("RWKV-7", {"value_dim": [64]}, "'value_dim' must be 'hidden_size'"),
    ("Mamba-2", {"n_groups": 3}, "8 state heads do not divide into 3 groups"),
    ("Mamba-2", {"head_dim": 9}, "8 state heads of 9 elements are not 2 times 'hidden_size' 32"),
    ("Mamba-2", {"time_step_limit": [1]}, "'time_step_limit' must be two numbers"),
    ("Granite 4", {"layer_types": ["mamba", "rwkv", "mamba"]}, "each mamba or attention"),
    ("BLOOM", {"apply_residual_connection_post_layernorm": True}, "is not supported, only False"),
    ("MPT", {"attn_config": {"alibi": False}}, "'alibi' 'False' is not supported, only True"),
    ("MPT", {"attn_config": {"clip_qkv": -1}}, "'clip_qkv' must be a number"),
    ("Qwen3-Next", {"linear_num_key_heads": 3}, "4 heads of values are no multiple of 3 of keys"),
    ("Qwen3-Next", {"layer_types": ["mamba", "full_attention"]}, "each linear_attention or full_attention"),
    ("LFM2", {"layer_types": ["conv", "full_attention", "mamba"]}, "each conv or full_attention"),
    ("DeepSeek-V2", {"topk_method": "noaux_tc"}, "'topk_method' 'noaux_tc' is not supported"),
    ("DeepSeek-V3", {"n_group": 3}, "8 experts do not divide into 3 groups"),
    ("DeepSeek-V3", {"num_experts_per_tok": 5}, "'num_experts_per_tok' must be an integer from 1 to 4"),
    ("Mixtral", {"num_experts_per_tok": 6}, "'num_experts_per_tok' must be an integer from 1 to 5"),
    ("gpt-oss", {"swiglu_alpha": 2}, "'swiglu_alpha' 2 is not supported"),
    ("Llama 3", {"rope_parameters": {"rope_type": "yarn", "factor": 2, "beta_fast": 0.5}}, "'beta_slow' is above"),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED, ids=[f"{r[0]}: {r[2]}" for r in REFUSED])
def test_what_is_refused(judged, name: str, changes: dict[str, Any], message: str) -> None:
    folder, _, _ = judged(name)
    values = json.loads((folder / "config.json").read_text()) | changes
    with pytest.raises(ModelFormatError, match=message):
        read_config(Config(values, "config.json"))


ODD: list[Any] = [
    None, -1, 0, 1, 7, 1 << 62, 0.5, 1e300, 1e-300, math.inf, True, False, "", "x", [], [[]], [1], {}, {"a": 1},
    ["conv", "full_attention"], {"full_attention": 3},
]  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_odd_fields(name: str) -> None:
    """Whatever stands in a field, the file is read, and angles are numbers, or it is refused."""
    small, random = MODELS[name], np.random.default_rng(0)
    values = json.loads(small.described().to_json_string()) | {"architectures": [small.architecture]}
    read = 0
    for key in [*values, "rope_scaling", "layer_types", "partial_rotary_factor", "rope_theta", "quantization_config"]:
        inner = (
            [*values[key], "factor", "mscale", "original_max_position_embeddings"] if key == "rope_parameters" else []
        )
        for _ in range(3 + 10 * len(inner)):
            odd = ODD[random.integers(len(ODD))]
            if inner and random.random() < 0.9:
                odd = {**values[key], inner[random.integers(len(inner))]: odd}
            try:
                config, _ = read_config(Config({**values, key: odd}, "config.json"))
            except ModelFormatError as error:
                assert "config.json" in str(error)
                continue
            read += 1
            for rotary in {r for layer in config.layers if (r := getattr(layer.mixer, "rotary", None)) is not None}:
                assert np.isfinite(frequencies(rotary.turned, rotary.theta, rotary.scaling, 64)).all(), (key, odd)
    assert read > 10
