"""Models in GGUF files are those of the folders they were made from: configuration, tensors, logits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf as package
import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file, save_file

from tests.formats.gguf.converted import SHIFTED, convert
from tests.formats.gguf.files import Kind, write
from tests.models.decoder_folders import (
    BIASED,
    CONVOLUTIONS,
    EARLIER,
    EXPERTS,
    LATENTS,
    LATER,
    LLAMA_LIKE,
    NO_HEADS,
    OTHERS,
    SCALINGS,
    STATES,
    WINDOWED,
    Small,
)
from tinyweb import Tensor, dtypes
from tinyweb.errors import ModelFormatError
from tinyweb.formats.gguf import GgufModel
from tinyweb.formats.gguf.weights import GgufWeights
from tinyweb.models import load
from tinyweb.models.decoder.architectures import ARCHITECTURES

LONG = {
    "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [1.0, 2.0, 3.0, 9.0],
}  # fmt: skip
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}

# name -> llama.cpp's name of the architecture, the model
MODELS: dict[str, tuple[str, Small]] = {
    "Llama 3": ("llama", LLAMA_LIKE["Llama 3"]),
    "Llama, biases": ("llama", LLAMA_LIKE["Llama, biases"]),
    "Llama, yarn": ("llama", Small("LlamaForCausalLM", {"rope_parameters": SCALINGS["yarn"]})),
    "Llama, linear": ("llama", Small("LlamaForCausalLM", {"rope_parameters": SCALINGS["linear"], "head_dim": 12})),
    "Mixtral": ("llama", Small("MixtralForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2})),
    "Qwen 2": ("qwen2", LLAMA_LIKE["Qwen 2"]),
    "Qwen 3": ("qwen3", LLAMA_LIKE["Qwen 3"]),
    "Qwen 2 MoE": ("qwen2moe", Small("Qwen2MoeForCausalLM", {**MOE, "shared_expert_intermediate_size": 40})),
    "Qwen 3 MoE": ("qwen3moe", Small("Qwen3MoeForCausalLM", {**MOE, "head_dim": 12, "norm_topk_prob": True})),
    "Gemma": ("gemma", Small("GemmaForCausalLM", {"head_dim": 12})),
    "Gemma 2": ("gemma2", Small("Gemma2ForCausalLM", {**WINDOWED, "head_dim": 8, "query_pre_attn_scalar": 8})),
    "Gemma 3": ("gemma3", Small("Gemma3ForCausalLM", {
        **WINDOWED, "head_dim": 8, "query_pre_attn_scalar": 8, "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
        },
    }, config="Gemma3TextConfig")),
    "Phi 2": ("phi2", Small("PhiForCausalLM", {**NO_HEADS, "hidden_act": "gelu_new"})),
    "Phi 3": ("phi3", Small("Phi3ForCausalLM", {**WINDOWED})),
    "Phi 3, long": ("phi3", Small("Phi3ForCausalLM", {
        "original_max_position_embeddings": 16, "rope_parameters": LONG,
    })),
    "OLMo 2": ("olmo2", Small("Olmo2ForCausalLM")),
    "OLMo 3": ("olmo2", Small("Olmo3ForCausalLM", {
        **WINDOWED, "layer_types": ["sliding_attention", "full_attention"],
    })),
    "Granite": ("granite", Small("GraniteForCausalLM", {
        "attention_multiplier": 0.3, "embedding_multiplier": 3.0, "residual_multiplier": 0.6, "logits_scaling": 1.7,
    })),
    "StableLM": ("stablelm", Small("StableLmForCausalLM", {"use_qkv_bias": True})),
    "StableLM, side by side": ("stablelm", Small("StableLmForCausalLM", {
        "qk_layernorm": True, "use_parallel_residual": True,
    })),
    "Command R": ("command-r", Small("CohereForCausalLM", {"logit_scale": 0.4})),
    "Command R, norms": ("command-r", Small("CohereForCausalLM", {"use_qk_norm": True})),
    "Cohere 2": ("cohere2", Small("Cohere2ForCausalLM", {
        **WINDOWED, "layer_types": ["sliding_attention", "full_attention"],
    })),
    "GPT-2": ("gpt2", Small("GPT2LMHeadModel", {"n_inner": 40, "n_embd": 32, "n_layer": 2, "n_head": 4,
                                                "n_positions": 64})),
    "GPT-NeoX": ("gptneox", Small("GPTNeoXForCausalLM", {"rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
    }})),
    "StarCoder 2": ("starcoder2", Small("Starcoder2ForCausalLM", {**WINDOWED})),
    "SmolLM 3": ("smollm3", Small("SmolLM3ForCausalLM", {"num_hidden_layers": 4, "tie_word_embeddings": False})),
    "OLMo": ("olmo", Small("OlmoForCausalLM", {"clip_qkv": 0.5})),
    "OLMoE": ("olmoe", Small("OlmoeForCausalLM", {"num_experts": 5, "num_experts_per_tok": 3, "clip_qkv": 0.5})),
    "Granite MoE": ("granitemoe", EXPERTS["Granite-MoE"]),
    "gpt-oss": ("gpt-oss", replace(EXPERTS["gpt-oss"], changes=EXPERTS["gpt-oss"].changes | {"swiglu_limit": 7.0})),
    "DeepSeek V2 Lite": ("deepseek2", LATENTS["DeepSeek-V2 Lite"]),
    "DeepSeek V2": ("deepseek2", replace(LATENTS["DeepSeek-V2"], changes=LATENTS["DeepSeek-V2"].changes | {
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 16,
            "mscale": 0.5, "mscale_all_dim": 0.5,
        },
    })),
    "DeepSeek V3": ("deepseek2", LATENTS["DeepSeek-V3"]),
    "LFM2": ("lfm2", CONVOLUTIONS["LFM2, biases"]),
    "Mamba-2": ("mamba2", STATES["Mamba-2"]),
    "Mamba": ("mamba", STATES["Mamba"]),
    "Falcon Mamba": ("mamba", STATES["Falcon Mamba"]),
    "Falcon": ("falcon", replace(EARLIER["Falcon"], changes={"ffn_hidden_size": 40})),
    "Falcon, groups": ("falcon", EARLIER["Falcon, groups"]),
    "BLOOM": ("bloom", BIASED["BLOOM"]),
    "MPT": ("mpt", BIASED["MPT"]),
    "Hunyuan": ("hunyuan-dense", LATER["Hunyuan"]),
    "Falcon 2": ("falcon", replace(EARLIER["Falcon, groups"], changes=EARLIER["Falcon, groups"].changes | {
        "num_ln_in_parallel_attn": 1, "tie_word_embeddings": False,
    })),
    "Granite 4": ("granitehybrid", STATES["Granite 4"]),
    "Granite 4, experts": ("granitehybrid", replace(
        STATES["Granite 4, experts"], changes=STATES["Granite 4, experts"].changes | {"mamba_proj_bias": False},
    )),
    "Llama 4": ("llama4", replace(EXPERTS["Llama 4"], changes=EXPERTS["Llama 4"].changes | {
        "no_rope_layers": [1, 1, 1, 0], "attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1,
    })),
    "Apertus": ("apertus", LATER["Apertus"]),
    "Qwen3-Next": ("qwen3next", replace(STATES["Qwen3-Next"], changes=STATES["Qwen3-Next"].changes | {
        "mlp_only_layers": [],
    })),
    "Gemma 3n": ("gemma3n", replace(OTHERS["Gemma 3n"], changes=OTHERS["Gemma 3n"].changes | {
        "intermediate_size": 40,
    })),
    "BERT": ("bert", Small("BertModel", {**NO_HEADS}, config="BertConfig")),
    "ModernBERT": ("modern-bert", Small("ModernBertModel", {
        "num_hidden_layers": 4, "local_attention": 8, "num_key_value_heads": None, "pad_token_id": 0,
    }, config="ModernBertConfig")),
    "Nomic": ("nomic-bert", Small("NomicBertModel", {**NO_HEADS, "pad_token_id": 0}, config="NomicBertConfig")),
}  # fmt: skip


@pytest.fixture(params=MODELS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, Path]:
    architecture, small = MODELS[request.param]
    small.write(tmp_path / "folder")
    return request.param, tmp_path / "folder", convert(tmp_path / "folder", tmp_path / "m.gguf", architecture)


def test_configuration_and_tensors(pair: tuple[str, Path, Path]) -> None:
    name, folder, path = pair
    model = GgufModel(path)
    small = MODELS[name][1]
    assert model.config.values["architectures"] == [small.architecture]
    kind = small.config or small.architecture.replace("ForCausalLM", "Config").replace("LMHeadModel", "Config")
    ours = getattr(transformers, kind)(**model.config.values).to_dict()
    theirs = getattr(transformers, kind).from_pretrained(folder).to_dict()
    for key in ("transformers_version", "dtype", "_name_or_path", "architectures"):
        ours.pop(key, None), theirs.pop(key, None)
    differs = {k: (ours.get(k), theirs.get(k)) for k in ours | theirs if not alike(ours.get(k), theirs.get(k))}
    differs = {k: v for k, v in differs.items() if not explained(name, k, *v)}
    assert not differs

    weights, expected = model.weights(), load_file(folder / "model.safetensors")
    expected = {n: v for n, v in expected.items() if not n.startswith("pooler.")}
    assert set(weights) == set(expected)
    for tensor, values in expected.items():
        found = weights.read(tensor, values.shape)
        np.testing.assert_allclose(
            found, values, atol=3e-7 if MODELS[name][0] in SHIFTED or tensor.endswith("A_log") else 0
        )


def test_projections_of_qwen3_next_in_one_tensor(tmp_path: Path) -> None:
    """As the first converters wrote them."""
    architecture, small = MODELS["Qwen3-Next"]
    small.write(tmp_path / "folder")
    config = json.loads((tmp_path / "folder/config.json").read_text())
    (tmp_path / "folder/config.json").write_text(json.dumps(config | {"as_at_first": True}))
    model = GgufModel(convert(tmp_path / "folder", tmp_path / "m.gguf", architecture))
    (name,) = (n for n in model.weights() if n.endswith("in_proj_qkvz.weight"))
    values = load_file(tmp_path / "folder/model.safetensors")[name]
    np.testing.assert_array_equal(model.weights().read(name, values.shape), values)


def test_numbers_of_an_activation_that_are_missing(tmp_path: Path) -> None:
    architecture, small = MODELS["Apertus"]
    small.write(tmp_path / "folder")
    path = convert(tmp_path / "folder", tmp_path / "m.gguf", architecture)
    facts = GgufModel(path)._facts
    for value in (np.array([0.5], np.float32), None, "x", np.array([np.nan, 1], np.float32)):
        facts.file.metadata["xielu.beta"] = value
        with pytest.raises(ModelFormatError, match=r"'xielu\.beta' must have a number for each layer"):
            GgufWeights(facts)


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, int | float):
        return a == b or abs(a - b) <= 1e-6 * abs(b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    return bool(a == b)


def explained(name: str, key: str, ours: Any, theirs: Any) -> bool:
    """What a GGUF file says otherwise, or need not say."""
    if key == "rope_parameters" and "alpha" in theirs:  # a larger base
        return ours == {"rope_type": "default", "rope_theta": pytest.approx(1e4 * 50 ** (12 / 10), rel=1e-6)}
    if key == "rope_parameters":  # factors of each frequency are longrope
        return ours["rope_type"] == "longrope" and theirs["rope_type"] in ("llama3", "longrope")
    if key == "head_dim":  # the width of a head follows
        return bool(theirs is None and ours == 8)
    unused = (
        "chunk_size",
        "intermediate_size",
        "max_position_embeddings",
        "num_attention_heads",
        "num_key_value_heads",
    )
    earlier = ("num_kv_heads", "intermediate_size", "num_key_value_heads")
    other: dict[str, tuple[str, ...]] = dict.fromkeys(
        ("Falcon", "Falcon, groups", "Falcon 2", "BLOOM", "MPT"), (*earlier, *unused[2:3])
    )
    other |= dict.fromkeys(("Mamba", "Falcon Mamba"), ("expand", *unused[2:]))
    other |= {"Mamba-2": unused, "GPT-2": earlier[1:], "BERT": ("num_key_value_heads",),
              "Nomic": ("num_key_value_heads", "tie_word_embeddings")}  # fmt: skip
    # ids of tokens come with a tokenizer, which these have not
    return key in ("pad_token_id", "bos_token_id", "eos_token_id") or key in other.get(name, ())


KNOWN = [n for n, (_, small) in MODELS.items() if small.architecture in ARCHITECTURES]


@pytest.mark.parametrize("name", [n if n == "Llama 3" else pytest.param(n, marks=pytest.mark.slow) for n in KNOWN])
def test_logits(name: str, tmp_path: Path) -> None:
    architecture, small = MODELS[name]
    small.write(tmp_path / "folder")
    path = convert(tmp_path / "folder", tmp_path / "m.gguf", architecture)
    ids = np.random.randint(0, 67, (2, 20)).astype(np.int32)
    want = load(tmp_path / "folder", context=24)(Tensor(ids)).numpy()
    got = load(GgufModel(path), context=24)(Tensor(ids)).numpy()
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_rwkv7(tmp_path: Path) -> None:
    """Which `transformers` does not know."""
    small = STATES["RWKV-7"]
    small.write(tmp_path / "folder")
    model = GgufModel(convert(tmp_path / "folder", tmp_path / "m.gguf", "rwkv7"))
    weights, expected = model.weights(), load_file(tmp_path / "folder" / "model.safetensors")
    assert {
        name for name in set(weights) - set(expected) if not name.startswith("model.layers.0.attn.v_lora.")
    } == set()
    for tensor, values in expected.items():
        np.testing.assert_array_equal(weights.read(tensor, values.shape), values)
    ids = np.random.randint(0, 67, (1, 5))
    got = load(model, context=8)(Tensor(ids.astype(np.int32))).numpy()
    np.testing.assert_allclose(got, small.logits(tmp_path / "folder", ids), atol=1e-4)


WIDE = Small("LlamaForCausalLM", {"intermediate_size": 64})


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in (Kind.BF16, Kind.Q4_0, Kind.Q5_1)]


@pytest.mark.parametrize("kind", [Kind.F16, Kind.Q8_0, *SLOW])
def test_logits_of_stored_types(kind: Any, tmp_path: Path) -> None:
    """A file of half floats or quantised numbers is the folder whose numbers were rounded so."""
    folder = tmp_path / "folder"
    WIDE.write(folder)
    path = convert(folder, tmp_path / "m.gguf", "llama", kind)
    rounded = {
        name: v if v.ndim == 1 else package.quants.dequantize(package.quants.quantize(v, kind), kind)
        for name, v in load_file(folder / "model.safetensors").items()
    }
    save_file(rounded, folder / "model.safetensors")
    exact = load(folder, context=24, cache="f32")
    stored = load(GgufModel(path), context=24, activations="float", cache="f32")
    ids = np.random.randint(0, 67, (1, 20)).astype(np.int32)
    np.testing.assert_allclose(stored(Tensor(ids)).numpy(), exact(Tensor(ids)).numpy(), atol=2e-5)
    save_file({n: v if v.ndim == 1 else v.astype(np.float16) for n, v in rounded.items()}, folder / "model.safetensors")
    want, got = load(folder, context=24), load(GgufModel(path), "f16", context=24)
    assert got.weights.keys() == want.weights.keys()
    assert all(got.weights[n].dtype == want.weights[n].dtype for n in want.weights if "norm" not in n)
    np.testing.assert_allclose(got(Tensor(ids)).numpy(), want(Tensor(ids)).numpy(), atol=2e-5)


def test_parts_of_experts_are_decoded_alone(tmp_path: Path) -> None:
    """An expert's matrix is some rows of a tensor that holds all of them."""
    small = Small("Qwen3MoeForCausalLM", {**MOE, "moe_intermediate_size": 32})
    small.write(tmp_path / "folder")
    weights = GgufModel(convert(tmp_path / "folder", tmp_path / "m.gguf", "qwen3moe", Kind.Q8_0)).weights()
    for name, values in load_file(tmp_path / "folder" / "model.safetensors").items():
        if ".experts." in name:
            assert weights.dtype(name) == dtypes.float16
            expected = package.quants.dequantize(package.quants.quantize(values, Kind.Q8_0), Kind.Q8_0)
            np.testing.assert_array_equal(weights.read(name, values.shape), expected)


def test_one_matrix_of_queries_keys_and_values(tmp_path: Path) -> None:
    """As the first converters wrote Phi 2."""
    rows = np.random.randn(96, 32).astype(np.float32)
    sizes = {"embedding_length": 32, "block_count": 1, "attention.head_count": 4, "context_length": 8,
             "feed_forward_length": 40, "attention.layer_norm_epsilon": 1e-5}  # fmt: skip
    metadata = {"general.architecture": "phi2"} | {f"phi2.{k}": v for k, v in sizes.items()}
    tensors = {"token_embd.weight": rows, "blk.0.attn_qkv.weight": rows, "blk.0.attn_qkv.bias": rows[:, 0].copy()}
    weights = GgufModel(write(tmp_path / "a", metadata, tensors)).weights()
    for i, name in enumerate("qkv"):
        prefix = f"model.layers.0.self_attn.{name}_proj"
        np.testing.assert_array_equal(weights.read(f"{prefix}.weight", (32, 32)), rows[32 * i : 32 * i + 32])
        np.testing.assert_array_equal(weights.read(f"{prefix}.bias", (32,)), rows[32 * i : 32 * i + 32, 0])


SIZES = {"embedding_length": 32, "block_count": 1, "attention.head_count": 4, "context_length": 8,
         "feed_forward_length": 40, "attention.layer_norm_rms_epsilon": 1e-5}  # fmt: skip
EMBEDDING = {"token_embd.weight": np.ones((7, 32), np.float32)}


def llama(path: Path, tensors: dict[str, Any] | None = None, **changes: Any) -> GgufModel:
    """A Llama of one layer with some metadata changed (`__` is a dot), or left out where it is None."""
    own = SIZES | {k.replace("__", "."): v for k, v in changes.items()}
    metadata = {"general.architecture": "llama"} | {f"llama.{k}": v for k, v in own.items() if v is not None}
    return GgufModel(write(path, metadata, EMBEDDING | (tensors or {})))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_count": None}, "llama lacks 'block_count'"),
        ({"block_count": "two"}, "llama: 'block_count' must be an integer"),
        ({"attention__head_count": 0}, "llama: 'attention.head_count' must be an integer from 1 to"),
        ({"attention__head_count_kv": [2, 1]}, "llama: 'attention.head_count_kv' must be an integer"),
        ({"attention__value_length": 16}, "values of heads are not as wide as keys"),
        ({"rope__scaling__type": "odd", "rope__scaling__factor": 2.0}, "rotary scaling 'odd' is not supported"),
        ({"attention__layer_norm_rms_epsilon": None}, "lacks 'attention.layer_norm_rms_epsilon'"),
        ({"expert_count": -1.5}, "'expert_count' must be an integer"),
        ({"attention__max_alibi_bias": 8.0}, "'attention.max_alibi_bias' is not supported"),
    ],
)
def test_configurations_that_cannot_be(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match=message):
        llama(tmp_path / "a", **changes)


def test_models_that_cannot_be(tmp_path: Path) -> None:
    def refuse(message: str, metadata: dict[str, Any], tensors: dict[str, Any]) -> None:
        with pytest.raises(ModelFormatError, match=message):
            GgufModel(write(tmp_path / "a", metadata, tensors)).weights()

    refuse("holds a model of architecture 'rwkv6'; known: llama, ", {"general.architecture": "rwkv6"}, EMBEDDING)
    whole = {"general.architecture": "llama"} | {f"llama.{k}": v for k, v in SIZES.items()}
    refuse("has no table 'token_embd.weight'", whole, {})
    one = np.ones((32, 32), np.float32)
    refuse(
        "'blk.0.attn_sinks.weight', for which LlamaForCausalLM has no",
        whole,
        EMBEDDING | {"blk.0.attn_sinks.weight": one},
    )
    refuse("'output.scale', for which", whole, EMBEDDING | {"output.scale": one})
    refuse(
        "'blk.0.attn_q.weight' has shape .7, 32., which does not fit",
        whole,
        EMBEDDING | {"blk.0.attn_q.weight": one[:7]},
    )
    refuse("'rope_freqs.weight' has shape .32, 32., must be one row", whole, EMBEDDING | {"rope_freqs.weight": one})
    model = GgufModel(write(tmp_path / "a", whole, EMBEDDING | {"blk.0.ffn_up.weight": one[:5].astype(np.int8)}))
    with pytest.raises(ModelFormatError, match="holds int8, weights must be floating point"):
        model.weights().read("model.layers.0.mlp.up_proj.weight", (5, 32))
    with pytest.raises(ModelFormatError, match=r"has no tensor 'lm_head\.weight'"):
        model.weights().read("lm_head.weight", (5, 32))
    with pytest.raises(ModelFormatError, match=r"holds nothing that would be tokenizer\.json"):
        model.text("tokenizer.json", required=True)
    named = GgufModel(write(tmp_path / "a", whole | {"tokenizer.ggml.model": [1, 2]}, EMBEDDING))
    with pytest.raises(ModelFormatError, match=r"'tokenizer\.ggml\.model' must be"):
        named.text("tokenizer.json")


def test_rows_of_no_numbers(tmp_path: Path) -> None:
    """An empty matrix is one of no columns, in another order of rows as well."""
    weights = llama(tmp_path / "a", {"blk.0.attn_q.weight": np.zeros((32, 0), np.float32)}).weights()
    assert weights.read("model.layers.0.self_attn.q_proj.weight", (32, 0)).shape == (32, 0)


def test_tensors_that_are_one_in_a_checkpoint(tmp_path: Path) -> None:
    sizes = {"embedding_length": 32, "block_count": 1, "attention.head_count": 4, "context_length": 8,
             "expert_feed_forward_length": 5, "expert_count": 3, "expert_used_count": 1,
             "attention.layer_norm_rms_epsilon": 1e-5}  # fmt: skip
    metadata = {"general.architecture": "gpt-oss"} | {f"gpt-oss.{k}": v for k, v in sizes.items()}
    gate, up = (np.random.randn(3, 5, 32).astype(np.float32) for _ in range(2))

    def weights(**tensors: Any) -> Any:
        named = {f"blk.0.ffn_{name}_exps.weight": v for name, v in tensors.items()}
        return GgufModel(write(tmp_path / "a", metadata, EMBEDDING | named)).weights()

    found = weights(gate=gate, up=up, down=gate)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    both = found.read(name, (3, 32, 10))
    np.testing.assert_array_equal(both[..., ::2], gate.swapaxes(1, 2))
    np.testing.assert_array_equal(both[..., 1::2], up.swapaxes(1, 2))
    np.testing.assert_array_equal(found.read("model.layers.0.mlp.experts.down_proj", (3, 32, 5)), gate.swapaxes(1, 2))
    with pytest.raises(ModelFormatError, match=r"lacks the tensor 'blk\.0\.ffn_up_exps\.weight'"):
        weights(gate=gate)
    for other in (up[:2], up[:, :, :3], up[0]):
        with pytest.raises(ModelFormatError, match="which do not fit each other"):
            weights(gate=gate, up=other)
    with pytest.raises(ModelFormatError, match="for which GptOssForCausalLM has no place"):
        weights(up=up)


def test_latent_attention_of_the_first_converters(tmp_path: Path) -> None:
    """One matrix from the latent to keys and values, and widths of heads by the usual keys."""
    sizes = {"embedding_length": 32, "block_count": 1, "attention.head_count": 4, "context_length": 8,
             "feed_forward_length": 40, "attention.layer_norm_rms_epsilon": 1e-5, "attention.key_length": 14,
             "attention.value_length": 10, "attention.kv_lora_rank": 24, "rope.dimension_count": 6,
             "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 5}  # fmt: skip
    metadata = {"general.architecture": "deepseek2"} | {f"deepseek2.{k}": v for k, v in sizes.items()}
    matrix = np.random.randn(4 * 18, 24).astype(np.float32)
    model = GgufModel(write(tmp_path / "a", metadata, EMBEDDING | {"blk.0.attn_kv_b.weight": matrix}))
    values = model.config.values
    assert [values[f"{k}_head_dim"] for k in ("qk_nope", "qk_rope", "v")] == [8, 6, 10]
    found = model.weights().read("model.layers.0.self_attn.kv_b_proj.weight", (72, 24))
    np.testing.assert_array_equal(found, matrix)


def test_equal_numbers_of_all_layers_are_one(tmp_path: Path) -> None:
    model = llama(tmp_path / "a", attention__head_count_kv=[2, 2], feed_forward_length=[40])
    assert model.config.values["num_key_value_heads"] == 2 and model.config.values["intermediate_size"] == 40
    assert model.config.where == str(tmp_path / "a") and model.path == tmp_path / "a"


def test_windows_of_layers(tmp_path: Path) -> None:
    """By a list, by a number, or as is usual for the architecture."""

    def kinds(pattern: Any) -> list[str]:
        own = {**SIZES, "block_count": 4, "attention.sliding_window": 5, "logit_scale": 1.0,
               "attention.layer_norm_epsilon": 1e-5}  # fmt: skip
        if pattern is not None:
            own["attention.sliding_window_pattern"] = pattern
        metadata = {"general.architecture": "cohere2"} | {f"cohere2.{k}": v for k, v in own.items()}
        return [k[0] for k in GgufModel(write(tmp_path / "a", metadata, EMBEDDING)).config.values["layer_types"]]

    assert kinds([True, False, False, True]) == list("sffs")
    assert kinds(2) == list("sfsf") and kinds(None) == list("sssf")
    for pattern in ([True], 0, "two"):
        with pytest.raises(ModelFormatError, match="sliding_window_pattern' must be a number of layers, or"):
            kinds(pattern)
