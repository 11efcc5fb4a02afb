"""Encoder–decoders as folders of ONNX graphs, as Optimum and transformers.js lay them out, of small random weights."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import onnx
import torch
import transformers
from onnx import helper
from torch import nn
from transformers import DynamicCache, EncoderDecoderCache

from tests.models.onnx_folders import IDS, PAST, TOTAL

ENCODED = "encoder_sequence_length"
KINDS = ("decoder.key", "decoder.value", "encoder.key", "encoder.value")


def t5() -> Any:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
        relative_attention_max_distance=20, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
    return model


def whisper() -> Any:
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        vocab_size=96, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_source_positions=20, num_mel_bins=8,
        max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config).eval()


class Encoder(nn.Module):
    def __init__(self, model: Any):
        super().__init__()
        self.model, self.masked = model.get_encoder(), model.config.model_type == "t5"

    def forward(self, x: torch.Tensor, *mask: torch.Tensor) -> Any:
        return (self.model(x, attention_mask=mask[0]) if self.masked else self.model(x)).last_hidden_state


class Decoder(nn.Module):
    """With `past` (self-attention, then what was made of the encoder's states, for each layer), or without."""

    def __init__(self, model: Any, past: bool):
        super().__init__()
        self.model, self.past, self.masked = model, past, model.config.model_type == "t5"

    def forward(self, ids: torch.Tensor, states: torch.Tensor, *more: torch.Tensor) -> Any:
        mask, rest = (more[0], more[1:]) if self.masked else (None, more)
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        for i in range(len(rest) // 4):
            cache.self_attention_cache.update(rest[4 * i], rest[4 * i + 1], i)
            cache.cross_attention_cache.update(rest[4 * i + 2], rest[4 * i + 3], i)
            cache.is_updated[i] = True
        found = self.model(
            decoder_input_ids=ids, encoder_outputs=(states,), past_key_values=cache, use_cache=True,
            **({"attention_mask": mask} if self.masked else {}),
        )  # fmt: skip
        own, cross = (c.layers for c in (found.past_key_values.self_attention_cache,
                                         found.past_key_values.cross_attention_cache))  # fmt: skip
        parts = [(a.keys, a.values, b.keys, b.values) for a, b in zip(own, cross)]
        return found.logits, *(t for four in parts for t in (four[:2] if self.past else four))


def export(module: nn.Module, path: Path, given: dict[str, torch.Tensor], axes: dict[str, Any], out: list[str]) -> None:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), tuple(given.values()), path, input_names=list(given), output_names=out, dynamic_axes=axes,
            opset_version=17, dynamo=False,
        )  # fmt: skip


def merge(folder: Path) -> None:
    """Both decoders as one graph that chooses by `use_cache_branch`, as Optimum writes decoder_model_merged."""
    plain, cached = (onnx.load(folder / f"{name}.onnx") for name in ("decoder_model", "decoder_with_past_model"))
    outputs, branches = [o.name for o in plain.graph.output], []
    for prefix, made in (("then", cached), ("else", plain)):
        graph = made.graph
        inputs = {i.name for i in graph.input}
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [n if n in inputs or not n else f"{prefix}/{n}" for n in names]
        for constant in graph.initializer:
            constant.name = f"{prefix}/{constant.name}"
        own = {o.name for o in graph.output}
        nodes = [helper.make_node("Identity", [n.replace("present", "past_key_values")], [f"{prefix}/{n}"])
                 for n in outputs if n not in own]  # fmt: skip
        ports = [helper.make_tensor_value_info(f"{prefix}/{o.name}", o.type.tensor_type.elem_type, None)
                 for o in plain.graph.output]  # fmt: skip
        branches.append(helper.make_graph([*graph.node, *nodes], prefix, [], ports, graph.initializer))
    choose = helper.make_node("If", ["use_cache_branch"], outputs, then_branch=branches[0], else_branch=branches[1])
    every = {i.name: i for i in (*plain.graph.input, *cached.graph.input)}
    flag = helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1])
    graph = helper.make_graph([choose], "merged", [*every.values(), flag], plain.graph.output)
    onnx.save(helper.make_model(graph, opset_imports=plain.opset_import), folder / "decoder_model_merged.onnx")
    for name in ("decoder_model", "decoder_with_past_model"):
        (folder / f"{name}.onnx").unlink()


def write_folder(folder: Path, model: Any, merged: bool = False) -> Path:
    """encoder_model, decoder_model and decoder_with_past_model in `onnx`; or the decoders as one graph."""
    (folder / "onnx").mkdir(parents=True)
    c = model.config
    (folder / "config.json").write_text(json.dumps(c.to_dict(), default=str))
    text = c.model_type == "t5"
    layers, heads, width = (2, 4, 8)
    ids = torch.ones(2, 6, dtype=torch.int64)
    mask = {"attention_mask": ids} if text else {}
    source = {"input_ids": ids} | mask if text else {"input_features": torch.randn(2, 8, 40)}
    axes: dict[str, Any] = {n: {0: IDS[0], 1: ENCODED} for n in source} if text else {"input_features": {0: IDS[0]}}
    axes["last_hidden_state"] = {0: IDS[0], 1: ENCODED} if text else {0: IDS[0]}
    export(Encoder(model), folder / "onnx/encoder_model.onnx", source, axes, ["last_hidden_state"])
    length = 6 if text else 20
    names = [f"{i}.{kind}" for i in range(layers) for kind in KINDS]
    states = {"encoder_hidden_states": torch.randn(2, length, 32)}
    axes = {"encoder_hidden_states": {0: IDS[0], 1: ENCODED}, "encoder_attention_mask": {0: IDS[0], 1: ENCODED}}
    axes |= {"input_ids": dict(enumerate(IDS)), "logits": dict(enumerate(IDS))}
    axes |= {f"past_key_values.{n}": {0: IDS[0], 2: PAST if "decoder" in n else ENCODED} for n in names}
    axes |= {f"present.{n}": {0: IDS[0], 2: TOTAL if "decoder" in n else ENCODED} for n in names}
    given = {"input_ids": ids[:, :3]} | states | ({"encoder_attention_mask": ids} if text else {})
    presents = [f"present.{n}" for n in names]
    export(Decoder(model, False), folder / "onnx/decoder_model.onnx", given, axes, ["logits", *presents])
    given["input_ids"] = ids[:, :1]
    given |= {f"past_key_values.{n}": torch.randn(2, heads, 5 if "decoder" in n else length, width) for n in names}
    own = [n for n in presents if "decoder" in n]
    export(Decoder(model, True), folder / "onnx/decoder_with_past_model.onnx", given, axes, ["logits", *own])
    if merged:
        merge(folder / "onnx")
    return folder
