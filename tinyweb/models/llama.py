"""Llama: decoder-only language models in the layout of Hugging Face's `LlamaForCausalLM` (Touvron et al. 2023).

    model = Llama.from_folder("Llama-3.2-1B-Instruct", quant="q8")
    logits = model(Tensor([[128000, 9906]]))              # (1, 2, vocab)

What is notable:
- RMS norms before attention and before the MLP, no biases (unless the config asks for them), SwiGLU, rotary positions,
  fewer key/value heads than query heads, input and output embeddings tied or not.
- Weights stay as they are stored (half floats, 8 or 4 bit integers) and are widened as a kernel reads them;
  activations, the key/value cache and the logits are float32. What is multiplied with quantised weights is itself
  rounded to 8 bits (`activations`) where the processor multiplies integers faster.
- The cache lies on the device and is updated in place; its valid length is symbolic, so that one set of kernels serves
  every position.
- `prefill`, `decode`, `sample`, `greedy` and `verify` are the entry points of a chat: they work on `state` alone, and
  nothing but the position goes in from the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tinyweb.device import Device
from tinyweb.dtype import dtypes
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.huggingface import Checkpoint, Config, ModelFolder
from tinyweb.graph.ir import Size, UOp, Variable
from tinyweb.models.chat import VERIFY, positions
from tinyweb.nn import sampling
from tinyweb.nn.layers import Embedding, Linear
from tinyweb.nn.norms import RMSNorm
from tinyweb.nn.parameters import parameter
from tinyweb.nn.quantize import ACTIVATIONS, BITS, QuantizedWeight, activations_for, quantize
from tinyweb.nn.rotary import Rotary, RotaryScaling
from tinyweb.tensor import Tensor

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")
QUANTS = ("f32", "f16", "q8", "q4")
DEFAULT_CONTEXT = 4096  # where the caller names none; long contexts cost memory


@dataclass(frozen=True)
class LlamaConfig:
    """The numbers that make a Llama, by their names in config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: RotaryScaling = field(default_factory=RotaryScaling)
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False

    @classmethod
    def from_json(cls, c: Config) -> Self:
        """Checks a config.json; ModelFormatError names the field that is missing, wrong or not supported."""
        named = c.values.get("architectures") or []
        if not isinstance(named, list) or not set(map(str, named)) & set(ARCHITECTURES):
            found = ", ".join(map(str, named))[:80] if isinstance(named, list) and named else "no architecture"
            raise ModelFormatError(f"{c.where} names {found}; supported here: {', '.join(ARCHITECTURES)}")
        heads, hidden = c.integer("num_attention_heads", 1, 1024), c.integer("hidden_size", 2, 1 << 16)
        kv_heads = c.integer("num_key_value_heads", 1, heads, heads)
        if "head_dim" not in c.values and hidden % heads:
            raise ModelFormatError(f"{c.where}: 'hidden_size' {hidden} is no multiple of 'num_attention_heads' {heads}")
        head_dim = c.integer("head_dim", 2, 1024, hidden // heads)
        if heads % kv_heads:
            raise ModelFormatError(f"{c.where}: {heads} attention heads are no multiple of {kv_heads} key/value heads")
        if head_dim % 2:
            raise ModelFormatError(f"{c.where}: 'head_dim' must be even for rotary positions, found {head_dim}")
        if (activation := c.word("hidden_act", "silu")) not in ("silu", "swish"):
            raise ModelFormatError(f"{c.where}: 'hidden_act' {activation!r} is not supported, only 'silu'")
        positions = c.integer("max_position_embeddings", 1, 1 << 30)
        window = c.integer("sliding_window", 1, 1 << 30, 1 << 30)
        theta, scaling = _rotary(c, positions)
        return cls(
            vocab_size=c.integer("vocab_size", 1, 1 << 22),
            hidden_size=hidden,
            intermediate_size=c.integer("intermediate_size", 1, 1 << 20),
            num_hidden_layers=c.integer("num_hidden_layers", 1, 1024),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            # within the window, sliding attention is full attention
            max_position_embeddings=min(positions, window),
            rms_norm_eps=c.number("rms_norm_eps", 0, 1, 1e-6),
            rope_theta=theta,
            rope_scaling=scaling,
            tie_word_embeddings=c.flag("tie_word_embeddings", False),
            attention_bias=c.flag("attention_bias", False),
            mlp_bias=c.flag("mlp_bias", False),
        )


def _rotary(c: Config, positions: int) -> tuple[float, RotaryScaling]:
    """Base and scaling, from `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before)."""
    given = c.section("rope_parameters") or c.section("rope_scaling")
    theta = c.number("rope_theta", 1, 1e12, 10000.0)
    if given is None:
        return theta, RotaryScaling()
    theta = given.number("rope_theta", 1, 1e12, theta)
    kind = given.word("rope_type", given.word("type", "default"))
    if kind == "default":
        return theta, RotaryScaling()
    if kind == "linear":
        return theta, RotaryScaling(kind, given.number("factor", 1e-3, 1e6))
    if kind != "llama3":
        raise ModelFormatError(
            f"{given.where}: rotary scaling {kind!r} is not supported; known: default, linear, llama3"
        )
    low, high = given.number("low_freq_factor", 1e-3, 1e6), given.number("high_freq_factor", 1e-3, 1e6)
    if low >= high:
        raise ModelFormatError(
            f"{given.where}: 'low_freq_factor' must be below 'high_freq_factor', found {low:g} and {high:g}"
        )
    original = given.integer("original_max_position_embeddings", 1, 1 << 30, positions)
    return theta, RotaryScaling(kind, given.number("factor", 1e-3, 1e6), low, high, original)


@dataclass
class Layer:
    """One block. The projections of query, key and value are one matrix, rows in this order."""

    attention_norm: RMSNorm
    qkv: Linear
    output: Linear
    mlp_norm: RMSNorm
    gate: Linear
    up: Linear
    down: Linear


class Llama:
    """A loaded model with its state. Use one instance for one conversation at a time.

    `context`: positions of the cache. `activations`: "float" or "int8", what quantised weights are multiplied with; it
    may be changed before plans are captured. `weights`: all parameters by name. `state`: memory that lives between
    calls: `ids` int32 (positions,), `logits` float32 (1, vocab), `sampling_f` float32 (4,), `sampling_i` int32 (2,),
    `verified` int32 (VERIFY,) (docs/bundle.md), and `layerN.kv` float32 (2, key/value heads, positions, head_dim).
    """

    def __init__(
        self, config: LlamaConfig, checkpoint: Checkpoint, quant: str | None, context: int, device: str | None = None,
        activations: str | None = None,
    ):  # fmt: skip
        self.config, self.quant, self.context, self.device = config, quant, context, device
        self.activations = activations or activations_for(Device[device or Device.DEFAULT].runtime.target)
        load = _Loader(config, checkpoint, quant, device)
        self.embedding = Embedding.of(load.table("model.embed_tokens"))
        self.layers = [load.layer(f"model.layers.{i}.") for i in range(config.num_hidden_layers)]
        self.norm = load.norm("model.norm")
        self.head = Linear.of(self.embedding.weight if config.tie_word_embeddings else load.table("lm_head"))
        self.positions = positions(context)
        self.rotary = Rotary(config.head_dim, self.positions, config.rope_theta, config.rope_scaling, device)

        self.ids = Tensor.empty(self.positions, dtype=dtypes.int32, device=device)
        self.logits = Tensor.empty(1, config.vocab_size, device=device)
        self.sampling_f = Tensor.empty(4, device=device)
        self.sampling_i = Tensor.empty(2, dtype=dtypes.int32, device=device)
        self.verified = Tensor.empty(VERIFY, dtype=dtypes.int32, device=device)
        self.caches = self._new_caches(1)
        self._batch_caches: dict[int, list[Tensor]] = {}

    @classmethod
    def from_folder(
        cls, path: str | Path, quant: str | None = None, context: int | None = None, device: str | None = None,
        activations: str | None = None,
    ) -> Self:  # fmt: skip
        """Reads config.json and the safetensors checkpoint of a Hugging Face folder.

        `quant`: "f32", "f16", "q8" or "q4"; None keeps the checkpoint's precision (bfloat16 becomes float16).
        `context`: positions to make room for; without it what the model allows, at most 4096.
        `activations`: what quantised weights are multiplied with: "float", or "int8", rounded on the fly; None: "int8"
        where the device has integer dot products.

        Raises ModelFormatError for a folder that is missing, damaged or of another architecture; TinywebError for a
        `quant`, `context` or `activations` that cannot be.
        """
        if quant is not None and quant not in QUANTS:
            raise TinywebError(f"unknown quantisation {quant!r}: choose one of {', '.join(QUANTS)}")
        if activations is not None and activations not in ACTIVATIONS:
            raise TinywebError(f"unknown activations {activations!r}: choose one of {', '.join(ACTIVATIONS)}")
        folder = ModelFolder(path)
        config = LlamaConfig.from_json(folder.config)
        limit = config.max_position_embeddings
        if context is not None and not 1 <= context <= limit:
            raise TinywebError(f"a context of {context} tokens is not possible: {folder.path} allows 1 to {limit}")
        return cls(config, folder.weights(), quant, context or min(limit, DEFAULT_CONTEXT), device, activations)

    # -- the network --------------------------------------------------------------------------------------------------
    def forward(self, tokens: Tensor, start: Size, caches: list[Tensor]) -> Tensor:
        """Hidden states (batch, tokens, hidden) before the last norm, for ids (batch, tokens) at positions start,
        start + 1, …

        Reads and updates `caches`, which must hold all positions before `start`.
        """
        x = self.embedding(tokens)
        for layer, cache in zip(self.layers, caches, strict=True):
            mixed = self._attention(layer, layer.attention_norm(x), start, cache)
            x = x + layer.output(mixed, self.activations)
            h = layer.mlp_norm(x)
            gated = layer.gate(h, self.activations).silu() * layer.up(h, self.activations)
            x = x + layer.down(gated, self.activations)
        return x

    def _attention(self, layer: Layer, h: Tensor, start: Size, cache: Tensor) -> Tensor:
        """Causal self-attention of h (batch, tokens, hidden) → (batch, tokens, heads · head_dim)."""
        c = self.config
        heads, kv_heads, width = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        batch, tokens, _ = h.shape
        assert isinstance(batch, int) and isinstance(tokens, int)
        qkv = layer.qkv(h, self.activations).reshape(batch, tokens, heads + 2 * kv_heads, width)

        # keys and values of these tokens go into the cache, all sequences' heads side by side
        key, value = qkv[:, :, heads : heads + kv_heads], qkv[:, :, heads + kv_heads :]
        both = Tensor.stack(self.rotary(key, start), value).permute(0, 1, 3, 2, 4)
        cache[:, :, start : start + tokens] = both.reshape(2, batch * kv_heads, tokens, width)
        seen = cache[:, :, : start + tokens].unsqueeze(2)  # (2, batch · kv_heads, 1, positions, width)

        group = heads // kv_heads  # query heads that share a key/value head
        query = self.rotary(qkv[:, :, :heads], start).reshape(batch, tokens, kv_heads, group, width)
        query = query.permute(0, 2, 3, 1, 4).reshape(batch * kv_heads, group, tokens, width)
        scores = (query @ seen[0].transpose(-1, -2)) * (1 / math.sqrt(width))
        if tokens > 1:
            position = Tensor.arange(tokens, device=h.device).unsqueeze(1) + Tensor(start, device=h.device)
            later = Tensor.arange(self.positions, device=h.device)[: start + tokens].unsqueeze(0) > position
            scores = later.where(-math.inf, scores)
        mixed = scores.softmax(-1) @ seen[1]  # (batch · kv_heads, group, tokens, width)
        mixed = mixed.reshape(batch, kv_heads, group, tokens, width).permute(0, 3, 1, 2, 4)
        return mixed.reshape(batch, tokens, heads * width)

    def project(self, x: Tensor) -> Tensor:
        """Logits (…, vocab) of hidden states (…, hidden)."""
        return self.head(self.norm(x), self.activations)

    def __call__(self, tokens: Tensor, start_pos: int = 0) -> Tensor:
        """Logits (batch, tokens, vocab), float32, of ids (batch, tokens) at positions start_pos, start_pos + 1, …

        Positions before `start_pos` are taken from earlier calls with the same batch size. Raises ValueError where
        the ids have no such shape or leave the context.
        """
        if tokens.ndim != 2 or not tokens.dtype.is_int or not all(isinstance(s, int) and s > 0 for s in tokens.shape):
            raise ValueError(
                f"Llama needs integer ids of shape (batch, tokens), got {tokens.dtype.name} {tokens.shape}"
            )
        batch, count = (int(s) for s in tokens.shape if isinstance(s, int))
        if start_pos < 0 or start_pos + count > self.context:
            raise ValueError(f"{count} tokens from position {start_pos} leave the context of {self.context}")
        caches = self.caches if batch == 1 else self._batch_caches.setdefault(batch, self._new_caches(batch))
        # the variable's range keeps the last token inside the cache, however many there are
        start = Variable("start_pos", 0, min(self.context - 1, self.positions - count)).bind(start_pos)
        return self.project(self.forward(tokens, start, caches)).realize()

    # -- entry points of a chat ---------------------------------------------------------------------------------------
    def prefill(self, block: int, start_pos: UOp, count: UOp) -> Tensor:
        """Reads ids[start_pos … start_pos + block) into the cache; leaves the logits of token `count` − 1 of them in
        `logits`.

        Tokens behind `count` may be anything: later calls write over what they leave in the cache.
        """
        tokens = self.ids[start_pos : start_pos + block].reshape(1, block)
        x = self.forward(tokens, start_pos, self.caches)
        return self.logits.assign(self.project(x[0, count - 1 : count]))

    def decode(self, start_pos: UOp) -> Tensor:
        """Reads ids[start_pos] into the cache; leaves its logits in `logits`."""
        tokens = self.ids[start_pos : start_pos + 1].reshape(1, 1)
        return self.logits.assign(self.project(self.forward(tokens, start_pos, self.caches))[0])

    def sample(self, start_pos: UOp) -> Tensor:
        """Draws the next token by `sampling_f` and `sampling_i` and writes it to ids[start_pos + 1]."""
        return sampling.sample(self.logits, self.ids, start_pos, self.sampling_f, self.sampling_i)

    def greedy(self, start_pos: UOp) -> Tensor:
        """Writes the likeliest next token to ids[start_pos + 1]."""
        return sampling.greedy(self.logits, self.ids, start_pos)

    def verify(self, block: int, start_pos: UOp) -> Tensor:
        """Reads ids[start_pos … start_pos + block) into the cache; leaves the likeliest token after each in
        `verified`."""
        tokens = self.ids[start_pos : start_pos + block].reshape(1, block)
        logits = self.project(self.forward(tokens, start_pos, self.caches)[0])
        return self.verified.assign(logits.argmax(-1).cast(dtypes.int32))

    # -- memory -------------------------------------------------------------------------------------------------------
    @property
    def weights(self) -> dict[str, Tensor]:
        """All parameters by name, each memory once."""
        found = _named("model.embed_tokens", self.embedding)
        for i, layer in enumerate(self.layers):
            for name, part in vars(layer).items():
                found |= _named(f"model.layers.{i}.{name}", part)
        found |= _named("model.norm", self.norm)
        if not self.config.tie_word_embeddings:
            found |= _named("lm_head", self.head)
        return found | {"rotary": self.rotary.table}

    @property
    def state(self) -> dict[str, Tensor]:
        """The memory that lives between calls, by name."""
        caches = {f"layer{i}.kv": cache for i, cache in enumerate(self.caches)}
        rest = {"logits": self.logits, "sampling_f": self.sampling_f, "sampling_i": self.sampling_i}
        return {"ids": self.ids, **caches, **rest, "verified": self.verified}

    @property
    def parameter_count(self) -> int:
        """Numbers the model was trained to hold, the tied embedding once."""
        c = self.config
        attention = c.hidden_size * c.head_dim * 2 * (c.num_attention_heads + c.num_key_value_heads)
        mlp = 3 * c.hidden_size * c.intermediate_size
        tables = (1 if c.tie_word_embeddings else 2) * c.vocab_size * c.hidden_size
        biases = (
            (c.num_attention_heads + 2 * c.num_key_value_heads) * c.head_dim + c.hidden_size if c.attention_bias else 0
        )
        biases += 2 * c.intermediate_size + c.hidden_size if c.mlp_bias else 0
        return tables + c.num_hidden_layers * (attention + mlp + biases + 2 * c.hidden_size) + c.hidden_size

    def _new_caches(self, batch: int) -> list[Tensor]:
        c = self.config
        shape = (2, batch * c.num_key_value_heads, self.positions, c.head_dim)
        return [Tensor.empty(*shape, device=self.device) for _ in range(c.num_hidden_layers)]


def _named(prefix: str, layer: Linear | Embedding | RMSNorm) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in layer.tensors().items()}


class _Loader:
    """Reads parameters by their names in a checkpoint, checks shapes, brings them into the wanted precision."""

    def __init__(self, config: LlamaConfig, checkpoint: Checkpoint, quant: str | None, device: str | None):
        self.config, self.checkpoint, self.quant, self.device = config, checkpoint, quant, device

    def layer(self, prefix: str) -> Layer:
        c = self.config
        width, q_rows, kv_rows = c.hidden_size, c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        projections = [(attention + "q_proj", q_rows), (attention + "k_proj", kv_rows), (attention + "v_proj", kv_rows)]
        return Layer(
            attention_norm=self.norm(prefix + "input_layernorm"),
            qkv=self.linear(projections, width, c.attention_bias),
            output=self.linear([(attention + "o_proj", width)], q_rows, c.attention_bias),
            mlp_norm=self.norm(prefix + "post_attention_layernorm"),
            gate=self.linear([(mlp + "gate_proj", c.intermediate_size)], width, c.mlp_bias),
            up=self.linear([(mlp + "up_proj", c.intermediate_size)], width, c.mlp_bias),
            down=self.linear([(mlp + "down_proj", width)], c.intermediate_size, c.mlp_bias),
        )

    def norm(self, name: str) -> RMSNorm:
        weight = self.checkpoint.read(name + ".weight", (self.config.hidden_size,))
        return RMSNorm.of(parameter(weight, self.device), self.config.rms_norm_eps)

    def table(self, name: str) -> Tensor | QuantizedWeight:
        """An embedding (vocab, hidden). With 4-bit weights it keeps 8 bits: every token passes it twice."""
        values = self.checkpoint.read(name + ".weight", (self.config.vocab_size, self.config.hidden_size))
        return self.matrix(values, "q8" if self.quant == "q4" else self.quant)

    def linear(self, parts: list[tuple[str, int]], width: int, with_bias: bool) -> Linear:
        """Matrices (rows, width) given as (name, rows), one below the other."""
        weight = np.concatenate([self.checkpoint.read(name + ".weight", (rows, width)) for name, rows in parts])
        bias = None
        if with_bias:
            values = np.concatenate([self.checkpoint.read(name + ".bias", (rows,)) for name, rows in parts])
            bias = parameter(values, self.device)
        return Linear.of(self.matrix(weight, self.quant), bias)

    def matrix(self, values: npt.NDArray[Any], quant: str | None) -> Tensor | QuantizedWeight:
        if quant in BITS:
            quantized = quantize(values, BITS[quant], self.device)
            if quantized is not None:
                return quantized
        stored = self.checkpoint.dtype("model.embed_tokens.weight")
        if quant == "f32" or (quant is None and stored.bits > 16):
            return Tensor(values.astype(np.float32), device=self.device)
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        if np.isinf(half).any():  # bfloat16 and float32 reach farther than float16
            return Tensor(values.astype(np.float32), device=self.device)
        return Tensor(half, device=self.device)
