"""Text-generation models as folders of ONNX graphs, as transformers.js lays them out, of small random weights."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from onnx import TensorProto, helper, numpy_helper
from torch import nn

PAST, TOTAL = "past_sequence_length", "past_sequence_length + sequence_length"
IDS = ["batch_size", "sequence_length"]
VOCABULARY = 4096  # that of the tokenizer beside


def llama(seed: int = 0, width: int = 32) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, eos_token_id=4, bos_token_id=0,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def gpt2(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=128,
                                     eos_token_id=4, bos_token_id=0)  # fmt: skip
    return transformers.GPT2LMHeadModel(config).eval()


def mistral(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = transformers.MistralConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, sliding_window=8, eos_token_id=4, bos_token_id=0,
    )  # fmt: skip
    return transformers.MistralForCausalLM(config).eval()


def caches(config: Any) -> list[str]:
    return [f"{i}.{kind}" for i in range(config.num_hidden_layers) for kind in ("key", "value")]


class WithCache(nn.Module):
    """The cache as inputs and outputs: what is exported."""

    def __init__(self, model: Any, placed: bool):
        super().__init__()
        self.model, self.placed = model, placed

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, *more: torch.Tensor) -> Any:
        at, past = (more[0], more[1:]) if self.placed else (None, more)
        cache = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        found = self.model(ids, attention_mask=mask, position_ids=at, past_key_values=cache, use_cache=True)
        return found.logits, *(t for layer in found.past_key_values.layers for t in (layer.keys, layer.values))


def export_graph(model: Any, path: Path, placed: bool = True) -> None:
    """As Optimum exports it: `past_key_values.*` are joined with what is new. `placed`: positions are an input."""
    c, names = model.config, caches(model.config)
    heads = getattr(c, "num_key_value_heads", c.num_attention_heads)
    past = [torch.zeros(2, heads, 5, c.hidden_size // c.num_attention_heads) for _ in names]
    given = {"input_ids": torch.ones(2, 3, dtype=torch.int64), "attention_mask": torch.ones(2, 8, dtype=torch.int64)}
    given |= {"position_ids": torch.arange(5, 8).repeat(2, 1)} if placed else {}
    axes = {n: dict(enumerate(IDS)) for n in (*given, "logits")} | {"attention_mask": {0: IDS[0], 1: TOTAL}}
    axes |= {f"past_key_values.{n}": {0: IDS[0], 2: PAST} for n in names}
    axes |= {f"present.{n}": {0: IDS[0], 2: TOTAL} for n in names}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            WithCache(model, placed).eval(), (*given.values(), *past), path, opset_version=17, dynamo=False,
            input_names=[*given, *(f"past_key_values.{n}" for n in names)], dynamic_axes=axes,
            output_names=["logits", *(f"present.{n}" for n in names)],
        )  # fmt: skip


class Grouped:
    """A Llama with `GroupQueryAttention`, as ONNX Runtime's model builder writes it."""

    def __init__(self, model: Any, half: bool = False, bits: int | None = None):
        self.config, self.half, self.bits = model.config, half, bits
        self.weights = {n: t.detach().numpy() for n, t in model.state_dict().items()}
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.count = 0

    def add(self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        self.count += 1
        names = [f"{op}_{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, f"{op}_{self.count}", domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, name: str, value: Any) -> str:
        array = np.asarray(value)
        self.constants[name] = array.astype(np.float16) if self.half and array.dtype == np.float32 else array
        return name

    def linear(self, x: str, name: str) -> str:
        w = self.weights[f"{name}.weight"]
        if self.bits is None or "lm_head" in name:
            return self.add("MatMul", x, self.constant(name, np.ascontiguousarray(w.T)))
        rows, width = w.shape
        blocks = w.reshape(rows, width // 16, 16)
        scales = np.abs(blocks).max(-1) / 7 + 1e-9
        codes = np.clip(np.rint(blocks / scales[..., None]) + 8, 0, 15).astype(np.uint8)
        self.weights[f"{name}.weight"] = ((codes - 8.0) * scales[..., None]).reshape(rows, width).astype(np.float32)
        packed = codes[..., ::2] | codes[..., 1::2] << 4
        inputs = (self.constant(f"{name}.q", packed), self.constant(f"{name}.s", scales.astype(np.float32)))
        return self.add("MatMulNBits", x, *inputs, domain="com.microsoft", K=width, N=rows, bits=4, block_size=16)

    def norm(self, x: str, name: str) -> str:
        scale = self.constant(name, self.weights[f"{name}.weight"])
        return self.add("SimplifiedLayerNormalization", x, scale, axis=-1, epsilon=self.config.rms_norm_eps)

    def layer(self, x: str, i: int, lengths: str, total: str, tables: tuple[str, str]) -> tuple[str, list[str]]:
        c, name = self.config, f"model.layers.{i}."
        h = self.norm(x, name + "input_layernorm")
        q, k, v = (self.linear(h, f"{name}self_attn.{p}_proj") for p in "qkv")
        y, *present = self.add(
            "GroupQueryAttention", q, k, v, *(f"past_key_values.{i}.{n}" for n in ("key", "value")), lengths, total,
            *tables, outputs=3, domain="com.microsoft", num_heads=c.num_attention_heads,
            kv_num_heads=c.num_key_value_heads, do_rotary=1,
        )  # fmt: skip
        x = self.add("Add", x, self.linear(y, name + "self_attn.o_proj"))
        h = self.norm(x, name + "post_attention_layernorm")
        gate, up = (self.linear(h, f"{name}mlp.{p}_proj") for p in ("gate", "up"))
        silu = self.add("Mul", gate, self.add("Sigmoid", gate))
        return self.add("Add", x, self.linear(self.add("Mul", silu, up), name + "mlp.down_proj")), present

    def model(self) -> Any:
        c = self.config
        width = c.hidden_size // c.num_attention_heads
        angles = np.outer(np.arange(c.max_position_embeddings), 10000.0 ** (-np.arange(0, width, 2) / width))
        tables = (self.constant("cos", np.cos(angles).astype(np.float32)),
                  self.constant("sin", np.sin(angles).astype(np.float32)))  # fmt: skip
        one, axis = self.constant("one", np.array([1], np.int64)), self.constant("axis", np.array([1], np.int64))
        sums = self.add("Sub", self.add("ReduceSum", "attention_mask", axis, keepdims=0), one)
        lengths = self.add("Cast", sums, to=TensorProto.INT32)
        total = self.add("Gather", self.add("Shape", "attention_mask"), self.constant("second", np.array(1, np.int64)))
        total = self.add("Cast", total, to=TensorProto.INT32)
        embedded = self.constant("embed", self.weights["model.embed_tokens.weight"])
        x, presents = self.add("Gather", embedded, "input_ids"), []
        for i in range(c.num_hidden_layers):
            x, present = self.layer(x, i, lengths, total, tables)
            presents += present
        logits = self.linear(self.norm(x, "model.norm"), "lm_head")
        for made, name in zip([logits, *presents], ["logits", *(f"present.{n}" for n in caches(c))]):
            kind = TensorProto.FLOAT if name == "logits" or not self.half else TensorProto.FLOAT16
            self.nodes.append(helper.make_node("Cast", [made], [name], to=kind))
        return self.made(TensorProto.FLOAT16 if self.half else TensorProto.FLOAT, width)

    def made(self, kind: int, width: int) -> Any:
        c, port = self.config, helper.make_tensor_value_info
        shape = [IDS[0], c.num_key_value_heads, PAST, width]
        inputs = [port("input_ids", TensorProto.INT64, IDS), port("attention_mask", TensorProto.INT64, [IDS[0], TOTAL])]
        inputs += [port(f"past_key_values.{n}", kind, shape) for n in caches(c)]
        outputs = [port("logits", TensorProto.FLOAT, [*IDS, c.vocab_size])]
        outputs += [port(f"present.{n}", kind, [*shape[:2], TOTAL, width]) for n in caches(c)]
        constants = [numpy_helper.from_array(v, n) for n, v in self.constants.items()]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, constants)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def grouped(model: Any, path: Path, data: bool = False, **options: Any) -> Any:
    """Writes the graph; the weights as they are in it, by name. `data`: its numbers lie in a file beside it."""
    graph = Grouped(model, **options)
    made = graph.model()
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(made, path, save_as_external_data=data, location=f"{path.name}_data", size_threshold=64)
    return graph.weights


def write_folder(folder: Path, model: Any, like: Path) -> Path:
    """config.json and a tokenizer (of the model folder `like`), beside which graphs go."""
    (folder / "onnx").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(model.config.to_dict(), default=str))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(like / name, folder / name)
    return folder
