"""BERT and RoBERTa: encoders in the layout of Hugging Face's `BertModel` (Devlin et al. 2018; Liu et al. 2019).

    model = Bert.from_folder("all-MiniLM-L6-v2", quant="q8")
    hidden = model(ids, mask)          # (batch, tokens) int32, bool → (batch, tokens, hidden) float32

What is notable:
- Norms come after the sums (post-norm); embeddings of words, positions and token types are added up and normed.
- Every token attends to every token that `mask` keeps. Texts are padded on the right.
- RoBERTa and XLM-RoBERTa are the same network; their first position is the row behind the padding token's.
- The head for classification ("pooler") is not loaded: embeddings come from the hidden states (`models.embedding`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tinyweb.device import Device
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.huggingface import Checkpoint, Config, ModelFolder
from tinyweb.nn.layers import Embedding, Linear
from tinyweb.nn.norms import LayerNorm
from tinyweb.nn.parameters import parameter
from tinyweb.nn.quantize import ACTIVATIONS, BITS, QuantizedWeight, activations_for, quantize
from tinyweb.tensor import Tensor

MODELS = ("bert", "roberta", "xlm-roberta", "camembert")  # `model_type` of those that this network is
QUANTS = ("f32", "f16", "q8", "q4")
ACTIVATION: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": Tensor.gelu,
    "gelu_python": Tensor.gelu,
    "gelu_new": lambda x: x.gelu("tanh"),
    "gelu_fast": lambda x: x.gelu("tanh"),
    "gelu_pytorch_tanh": lambda x: x.gelu("tanh"),
    "quick_gelu": Tensor.quick_gelu,
    "relu": Tensor.relu,
    "silu": Tensor.silu,
    "swish": Tensor.silu,
}


@dataclass(frozen=True)
class BertConfig:
    """The numbers that make a BERT, by their names in config.json. `first_position`: the row of the first position."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    first_position: int = 0

    @classmethod
    def from_json(cls, c: Config) -> Self:
        """Checks a config.json; ModelFormatError names the field that is missing, wrong or not supported."""
        kind = c.word("model_type", "bert")
        if kind not in MODELS:
            raise ModelFormatError(f"{c.where} is a model of type {kind[:40]!r}; supported here: {', '.join(MODELS)}")
        if (positions := c.word("position_embedding_type", "absolute")) != "absolute":
            raise ModelFormatError(
                f"{c.where}: 'position_embedding_type' {positions[:40]!r} is not supported, only 'absolute'"
            )
        if (activation := c.word("hidden_act", "gelu")) not in ACTIVATION:
            raise ModelFormatError(
                f"{c.where}: 'hidden_act' {activation[:40]!r} is not supported; known: {', '.join(ACTIVATION)}"
            )
        if c.flag("is_decoder", False) or c.flag("add_cross_attention", False):
            raise ModelFormatError(f"{c.where} is a decoder, whose tokens see only what is before them; use an encoder")
        heads, hidden = c.integer("num_attention_heads", 1, 1024), c.integer("hidden_size", 2, 1 << 16)
        if hidden % heads:
            raise ModelFormatError(f"{c.where}: 'hidden_size' {hidden} is no multiple of 'num_attention_heads' {heads}")
        rows = c.integer("max_position_embeddings", 1, 1 << 20)
        first = 0 if kind == "bert" else c.integer("pad_token_id", 0, 1 << 20, 1) + 1
        if first >= rows:
            raise ModelFormatError(f"{c.where}: 'max_position_embeddings' {rows} leaves no position behind {first - 1}")
        return cls(
            model_type=kind,
            vocab_size=c.integer("vocab_size", 1, 1 << 22),
            hidden_size=hidden,
            intermediate_size=c.integer("intermediate_size", 1, 1 << 20),
            num_hidden_layers=c.integer("num_hidden_layers", 0, 1024),
            num_attention_heads=heads,
            max_position_embeddings=rows,
            type_vocab_size=c.integer("type_vocab_size", 1, 1 << 16, 2),
            layer_norm_eps=c.number("layer_norm_eps", 0, 1, 1e-12),
            hidden_act=activation,
            first_position=first,
        )

    @property
    def positions(self) -> int:
        """The longest text, in tokens."""
        return self.max_position_embeddings - self.first_position


@dataclass
class Layer:
    """One block. The projections of query, key and value are one matrix, rows in this order."""

    qkv: Linear
    output: Linear
    attention_norm: LayerNorm
    up: Linear
    down: Linear
    norm: LayerNorm


class Bert:
    """A loaded encoder. `activations`: "float" or "int8", what quantised weights are multiplied with; it may be changed
    before plans are captured."""

    def __init__(
        self, config: BertConfig, checkpoint: Checkpoint, quant: str | None, device: str | None = None,
        activations: str | None = None,
    ):  # fmt: skip
        self.config, self.quant, self.device = config, quant, device
        self.activations = activations or activations_for(Device[device or Device.DEFAULT].runtime.target)
        self._act = ACTIVATION[config.hidden_act]
        load = _Loader(config, checkpoint, quant, device)
        width = config.hidden_size
        self.words = Embedding.of(load.matrix("embeddings.word_embeddings", config.vocab_size, width, table=True))
        positions = load.read("embeddings.position_embeddings.weight", config.max_position_embeddings, width)
        self.positions = parameter(positions[config.first_position :], device)
        types = load.read("embeddings.token_type_embeddings.weight", config.type_vocab_size, width)
        self.types = parameter(types, device)
        self.norm = load.norm("embeddings.LayerNorm")
        self.layers = [load.layer(f"encoder.layer.{i}.") for i in range(config.num_hidden_layers)]

    @classmethod
    def from_folder(
        cls, path: str | Path, quant: str | None = None, device: str | None = None, activations: str | None = None
    ) -> Self:
        """Reads config.json and the safetensors checkpoint of a Hugging Face folder.

        `quant`: "f32", "f16", "q8" or "q4"; None keeps the checkpoint's precision (bfloat16 becomes float16).
        `activations`: what quantised weights are multiplied with: "float", or "int8", rounded on the fly; None: "int8"
        where the device has integer dot products.

        Raises ModelFormatError for a folder that is missing, damaged or of another architecture; TinywebError for a
        `quant` or `activations` that cannot be.
        """
        if quant is not None and quant not in QUANTS:
            raise TinywebError(f"unknown quantisation {quant!r}: choose one of {', '.join(QUANTS)}")
        if activations is not None and activations not in ACTIVATIONS:
            raise TinywebError(f"unknown activations {activations!r}: choose one of {', '.join(ACTIVATIONS)}")
        folder = ModelFolder(path)
        return cls(BertConfig.from_json(folder.config), folder.weights(), quant, device, activations)

    def __call__(self, ids: Tensor, mask: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        """Hidden states (batch, tokens, hidden), float32, of ids (batch, tokens).

        `mask` (batch, tokens): what is 0 or false is padding, which nothing attends to; None: there is none.
        `token_types` (batch, tokens): None means 0 everywhere. Raises ValueError for ids of another shape, or too long.
        """
        c = self.config
        if ids.ndim != 2 or not ids.dtype.is_int:
            raise ValueError(f"Bert needs integer ids of shape (batch, tokens), got {ids.dtype.name} {ids.shape}")
        batch, tokens = (int(s) for s in ids.shape if isinstance(s, int))
        if not 1 <= tokens <= c.positions:
            raise ValueError(f"{tokens} tokens: this model reads 1 to {c.positions}")
        kinds = self.types[0] if token_types is None else self.types.embedding(token_types)
        x: Tensor = self.norm(self.words(ids) + self.positions[:tokens] + kinds)
        keep = None if mask is None else (mask != 0).reshape(batch, 1, 1, tokens)
        for layer in self.layers:
            # in memory what a product reads again and again
            x = layer.attention_norm(x + layer.output(self._attend(layer, x, keep), self.activations)).contiguous()
            inner = self._act(layer.up(x, self.activations)).contiguous()
            x = layer.norm(x + layer.down(inner, self.activations)).contiguous()
        return x

    def _attend(self, layer: Layer, x: Tensor, keep: Tensor | None) -> Tensor:
        c = self.config
        batch, tokens, width = x.shape
        qkv = layer.qkv(x, self.activations).reshape(batch, tokens, 3, c.num_attention_heads, -1)
        # turned once, not once for each key
        query, key, value = (qkv[:, :, i].permute(0, 2, 1, 3).contiguous() for i in range(3))
        mixed = query.scaled_dot_product_attention(key, value, keep)
        return mixed.permute(0, 2, 1, 3).reshape(batch, tokens, width)

    @property
    def parameter_count(self) -> int:
        """Numbers the model was trained to hold, without the pooler."""
        c = self.config
        width, inner = c.hidden_size, c.intermediate_size
        layer = 4 * width * width + 2 * width * inner + 9 * width + inner
        return (c.vocab_size + c.max_position_embeddings + c.type_vocab_size + 2) * width + c.num_hidden_layers * layer


class _Loader:
    """Reads parameters by their names in a checkpoint, checks shapes, brings them into the wanted precision."""

    def __init__(self, config: BertConfig, checkpoint: Checkpoint, quant: str | None, device: str | None):
        self.config, self.checkpoint, self.quant, self.device = config, checkpoint, quant, device
        found = (p for p in ("", "bert.", "roberta.") if p + "embeddings.word_embeddings.weight" in checkpoint)
        self.prefix = next(found, "")

    def read(self, name: str, *shape: int) -> npt.NDArray[Any]:
        return self.checkpoint.read(self.prefix + name, shape)

    def layer(self, prefix: str) -> Layer:
        c = self.config
        width, inner, attention = c.hidden_size, c.intermediate_size, prefix + "attention."
        return Layer(
            qkv=self.linear([attention + "self." + part for part in ("query", "key", "value")], width, width),
            output=self.linear([attention + "output.dense"], width, width),
            attention_norm=self.norm(attention + "output.LayerNorm"),
            up=self.linear([prefix + "intermediate.dense"], inner, width),
            down=self.linear([prefix + "output.dense"], width, inner),
            norm=self.norm(prefix + "output.LayerNorm"),
        )

    def norm(self, name: str) -> LayerNorm:
        width = self.config.hidden_size
        norm = LayerNorm(width, self.config.layer_norm_eps, elementwise_affine=False)
        # checkpoints converted from the first release have its names
        old = self.prefix + name + ".gamma" in self.checkpoint
        norm.weight = parameter(self.read(name + (".gamma" if old else ".weight"), width), self.device)
        norm.bias = parameter(self.read(name + (".beta" if old else ".bias"), width), self.device)
        return norm

    def linear(self, names: list[str], rows: int, width: int) -> Linear:
        """Matrices (rows, width), one below the other."""
        weight = np.concatenate([self.read(name + ".weight", rows, width) for name in names])
        bias = np.concatenate([self.read(name + ".bias", rows) for name in names])
        return Linear.of(self._stored(weight, self.quant), parameter(bias, self.device))

    def matrix(self, name: str, rows: int, width: int, table: bool = False) -> Tensor | QuantizedWeight:
        """A weight (rows, width). With 4-bit weights a `table` keeps 8 bits: it is what all else is computed from."""
        quant = "q8" if table and self.quant == "q4" else self.quant
        return self._stored(self.read(name + ".weight", rows, width), quant)

    def _stored(self, values: npt.NDArray[Any], quant: str | None) -> Tensor | QuantizedWeight:
        if quant in BITS:
            quantized = quantize(values, BITS[quant], self.device)
            if quantized is not None:
                return quantized
        stored = self.checkpoint.dtype(self.prefix + "embeddings.word_embeddings.weight")
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        # bfloat16 and float32 reach farther than float16
        if quant == "f32" or (quant is None and stored.bits > 16) or np.isinf(half).any():
            return Tensor(values.astype(np.float32), device=self.device)
        return Tensor(half, device=self.device)
