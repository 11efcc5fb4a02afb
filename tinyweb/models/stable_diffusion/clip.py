"""CLIP's text encoder (Radford et al. 2021), and OpenCLIP's: what Stable Diffusion 1.x and 2.x know of the prompt.

What is notable:
- A transformer with learned positions and layer norms before attention and MLP; each token sees those before it.
- Stable Diffusion takes the states of all tokens, behind the last norm. The 2.x models take them from the layer before
  the last: their configs (and our reader of original checkpoints) leave the last layer out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.stable_diffusion.layers import Reader, attend
from tinyweb.nn.layers import Embedding
from tinyweb.nn.quantize import QuantizedWeight
from tinyweb.tensor import Tensor

ACTIVATIONS = ("quick_gelu", "gelu")


@dataclass(frozen=True)
class TextConfig:
    """The numbers that make a text encoder, by their names in text_encoder/config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    hidden_act: str = "quick_gelu"
    layer_norm_eps: float = 1e-5

    @classmethod
    def from_json(cls, c: Config) -> Self:
        """Checks a config.json; ModelFormatError names the field that is missing or wrong."""
        act = c.word("hidden_act", "quick_gelu")
        if act not in ACTIVATIONS:
            raise ModelFormatError(f"{c.where}: 'hidden_act' must be quick_gelu or gelu, found {act[:40]!r}")
        width, heads = c.integer("hidden_size", 1, 1 << 14, 512), c.integer("num_attention_heads", 1, 256, 8)
        if width % heads:
            raise ModelFormatError(f"{c.where}: 'hidden_size' {width} does not divide into {heads} heads")
        return cls(
            vocab_size=c.integer("vocab_size", 1, 1 << 22, 49408),
            hidden_size=width,
            intermediate_size=c.integer("intermediate_size", 1, 1 << 18, 2048),
            num_hidden_layers=c.integer("num_hidden_layers", 1, 256, 12),
            num_attention_heads=heads,
            max_position_embeddings=c.integer("max_position_embeddings", 1, 1 << 16, 77),
            hidden_act=act,
            layer_norm_eps=c.number("layer_norm_eps", 0, 1, 1e-5),
        )


class Layer:
    """One block of the transformer."""

    def __init__(self, read: Reader, c: TextConfig):
        attention = read.at("self_attn")
        self.layer_norm1 = read.layer_norm("layer_norm1", c.hidden_size, c.layer_norm_eps)
        self.qkv = attention.linear(["q_proj", "k_proj", "v_proj"], c.hidden_size, c.hidden_size)
        self.out_proj = attention.linear("out_proj", c.hidden_size, c.hidden_size)
        self.layer_norm2 = read.layer_norm("layer_norm2", c.hidden_size, c.layer_norm_eps)
        self.fc1 = read.linear("mlp.fc1", c.intermediate_size, c.hidden_size)
        self.fc2 = read.linear("mlp.fc2", c.hidden_size, c.intermediate_size)
        self._heads, self._quick = c.num_attention_heads, c.hidden_act == "quick_gelu"

    def __call__(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.layer_norm1(x)).contiguous()
        x = x + self.out_proj(attend(*qkv.chunk(3, axis=-1), heads=self._heads, causal=True))
        y = self.fc1(self.layer_norm2(x))
        return x + self.fc2((y.quick_gelu() if self._quick else y.gelu()).contiguous())


class TextEncoder:
    """Ids (N, L), int32, L up to `max_position_embeddings`, to states (N, L, hidden_size), float32."""

    def __init__(self, config: TextConfig, read: Reader):
        self.config = config
        read = read.at("text_model")
        table = read.values("embeddings.token_embedding.weight", config.vocab_size, config.hidden_size)
        self.token_embedding = Embedding.of(read.stored(table))
        places = read.values("embeddings.position_embedding.weight", config.max_position_embeddings, config.hidden_size)
        position = read.stored(places)
        self.position_embedding = position.dense() if isinstance(position, QuantizedWeight) else position
        self.layers = [Layer(read.at("encoder", "layers", i), config) for i in range(config.num_hidden_layers)]
        self.final_layer_norm = read.layer_norm("final_layer_norm", config.hidden_size, config.layer_norm_eps)

    def __call__(self, ids: Tensor) -> Tensor:
        if ids.ndim != 2 or not isinstance(length := ids.shape[1], int) or length > self.config.max_position_embeddings:
            raise ValueError(
                f"the text encoder needs ids (N, at most {self.config.max_position_embeddings}), got {ids.shape}"
            )
        x = (self.token_embedding(ids) + self.position_embedding[:length].float()).contiguous()
        for layer in self.layers:
            x = layer(x)
        return self.final_layer_norm(x)
