"""RWKV-7 by the paper's equations (arXiv 2503.14456, sections 3 and 4), one token after the other in float64."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

Array = npt.NDArray[np.float64]
CONFIG = {
    "architectures": ["RWKV7ForCausalLM"], "model_type": "rwkv7", "vocab_size": 67, "hidden_size": 32, "head_dim": 8,
    "num_hidden_layers": 3, "decay_low_rank_dim": 6, "a_low_rank_dim": 5, "gate_low_rank_dim": 7, "v_low_rank_dim": 4,
    "intermediate_size": 48, "norm_eps": 1e-5, "hidden_act": "sqrelu", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def write(folder: Path, **changes: object) -> None:
    """A folder of random weights."""
    c = CONFIG | changes
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(7)
    hidden, wide, vocab = (int(str(c[key])) for key in ("hidden_size", "intermediate_size", "vocab_size"))
    shapes: dict[str, tuple[int, ...]] = {"model.embeddings.weight": (vocab, hidden), "lm_head.weight": (vocab, hidden)}
    norms = ["model.norm", "model.layers.0.pre_norm"]
    for i in range(int(str(c["num_hidden_layers"]))):
        layer = f"model.layers.{i}."
        norms += [layer + "attn_norm", layer + "ffn_norm", layer + "attn.g_norm"]
        shapes |= {f"{layer}attn.x_{kind}": (1, 1, hidden) for kind in "rwkvag"}
        shapes |= {f"{layer}attn.{kind}_proj.weight": (hidden, hidden) for kind in "rkvo"}
        shapes |= {f"{layer}attn.{name}": (hidden,) for name in ("k_k", "k_a")}
        shapes |= {layer + "attn.r_k": (hidden // int(str(c["head_dim"])), int(str(c["head_dim"])))}
        for kind, key in (("w", "decay"), ("a", "a"), ("g", "gate"), ("v", "v")):
            if kind == "v" and i == 0:
                continue
            rank = int(str(c[f"{key}_low_rank_dim"]))
            shapes[f"{layer}attn.{kind}_lora.lora.0.weight"] = (rank, hidden)
            shapes[f"{layer}attn.{kind}_lora.lora.2.weight"] = (hidden, rank)
            if kind != "g":
                shapes[f"{layer}attn.{kind}_lora.lora.2.bias"] = (hidden,)
        shapes |= {layer + "ffn.x_k": (hidden,), layer + "ffn.key.weight": (wide, hidden)}
        shapes |= {layer + "ffn.value.weight": (hidden, wide)}
    weights = {name: random.standard_normal(shape) * 0.3 for name, shape in shapes.items()}
    for name in norms:
        weights[name + ".weight"] = random.standard_normal(hidden) * 0.2 + 0.7
        weights[name + ".bias"] = random.standard_normal(hidden) * 0.2
    save_file({name: v.astype(np.float32) for name, v in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(c))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


class Reference:
    """The model of a folder; `step` reads a token and gives its logits."""

    def __init__(self, folder: Path):
        self.config = json.loads((folder / "config.json").read_text())
        self.w = {name: v.astype(np.float64) for name, v in load_file(folder / "model.safetensors").items()}
        hidden, width = self.config["hidden_size"], self.config["head_dim"]
        self.heads, self.width, layers = hidden // width, width, range(self.config["num_hidden_layers"])
        self.sums = [np.zeros((self.heads, width, width)) for _ in layers]
        self.last = [[np.zeros(hidden), np.zeros(hidden)] for _ in layers]

    def norm(self, x: Array, name: str) -> Array:
        x = (x - x.mean()) / np.sqrt(x.var() + self.config["norm_eps"])
        return x * self.w[name + ".weight"] + self.w[name + ".bias"]

    def low_rank(self, x: Array, name: str, between: str) -> Array:
        h = self.w[f"{name}_lora.lora.0.weight"] @ x
        h = {"tanh": np.tanh, "sigmoid": sigmoid, "": lambda v: v}[between](h)
        bias = self.w.get(f"{name}_lora.lora.2.bias", np.zeros(()))
        up: Array = self.w[f"{name}_lora.lora.2.weight"] @ h + bias
        return up

    def time_mix(self, x: Array, i: int, first: Array | None) -> tuple[Array, Array]:
        name, w = f"model.layers.{i}.attn", self.w
        before, self.last[i][0] = self.last[i][0], x
        r, d, k, v, a, g = (x + (before - x) * w[f"{name}.x_{kind}"].reshape(-1) for kind in "rwkvag")
        decay = np.exp(-np.exp(-0.5) * sigmoid(self.low_rank(d, f"{name}.w", "tanh")))
        receptance, key = w[f"{name}.r_proj.weight"] @ r, w[f"{name}.k_proj.weight"] @ k
        value = w[f"{name}.v_proj.weight"] @ v
        if first is None:
            first = value
        else:
            value = value + (first - value) * sigmoid(self.low_rank(v, f"{name}.v", ""))
        rate, gate = sigmoid(self.low_rank(a, f"{name}.a", "")), self.low_rank(g, f"{name}.g", "sigmoid")
        removed = (key * w[f"{name}.k_k"]).reshape(self.heads, self.width)
        removed = removed / np.linalg.norm(removed, axis=-1, keepdims=True)
        key = key * (1 + (rate - 1) * w[f"{name}.k_a"])
        out = []
        for h in range(self.heads):
            part = slice(h * self.width, (h + 1) * self.width)
            transition = np.diag(decay[part]) - np.outer(removed[h], removed[h] * rate[part])
            self.sums[i][h] = self.sums[i][h] @ transition + np.outer(value[part], key[part])
            y = self.sums[i][h] @ receptance[part]
            y = (y - y.mean()) / np.sqrt(y.var() + self.width * self.config["norm_eps"])
            y = y * w[f"{name}.g_norm.weight"][part] + w[f"{name}.g_norm.bias"][part]
            out.append(y + (receptance[part] * key[part] * w[f"{name}.r_k"][h]).sum() * value[part])
        return w[f"{name}.o_proj.weight"] @ (np.concatenate(out) * gate), first

    def step(self, token: int) -> Array:
        x, first = self.norm(self.w["model.embeddings.weight"][token], "model.layers.0.pre_norm"), None
        for i in range(len(self.sums)):
            layer = f"model.layers.{i}."
            mixed, first = self.time_mix(self.norm(x, layer + "attn_norm"), i, first)
            x = x + mixed
            h = self.norm(x, layer + "ffn_norm")
            before, self.last[i][1] = self.last[i][1], h
            h = self.w[layer + "ffn.key.weight"] @ (h + (before - h) * self.w[layer + "ffn.x_k"])
            x = x + self.w[layer + "ffn.value.weight"] @ np.maximum(h, 0) ** 2
        logits: Array = self.w["lm_head.weight"] @ self.norm(x, "model.norm")
        return logits


def logits(folder: Path, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Logits (batch, tokens, vocabulary) of ids (batch, tokens), each text from its beginning."""
    texts = []
    for text in ids:
        model = Reference(folder)
        texts.append([model.step(int(token)) for token in text])
    return np.array(texts, np.float32)
