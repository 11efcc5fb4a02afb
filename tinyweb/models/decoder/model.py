"""A decoder-only language model with its memory: what runs, and what an exported page runs.

What is notable:
- Weights stay as they are stored (half floats, 8 or 4 bit integers) and are widened as a kernel reads them, as does the
  key/value cache; activations and logits are float32. What is multiplied with weights is itself rounded
  (`activations`) where the processor multiplies 8-bit integers, or matrices of half floats, faster.
- The cache lies on the device and is updated in place; its valid length is symbolic, so that one set of kernels serves
  every position.
- `prefill`, `decode`, `sample`, `greedy` and `verify` are the entry points of a chat: they work on `state` alone, and
  nothing but the position goes in from the host.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tinyweb.device import Device
from tinyweb.dtype import dtypes
from tinyweb.formats.huggingface import Checkpoint
from tinyweb.graph.ir import Size, UOp, Variable
from tinyweb.models.chat import VERIFY, positions
from tinyweb.models.decoder.cache import Cache, Start, kind_beside
from tinyweb.models.decoder.config import (
    STATES,
    AttentionConfig,
    DecoderConfig,
    LatentConfig,
    LayerConfig,
    MixerConfig,
    Names,
    RotaryConfig,
)
from tinyweb.models.decoder.layer import Layer
from tinyweb.models.decoder.loader import Loader
from tinyweb.models.decoder.state import State
from tinyweb.models.decoder.streams import Streams
from tinyweb.nn import sampling
from tinyweb.nn.layers import Embedding
from tinyweb.nn.precision import Recipe
from tinyweb.nn.quantize import activations_for
from tinyweb.nn.rotary import Rotary
from tinyweb.tensor import Tensor


class Decoder:
    """A loaded model with its state. Use one instance for one conversation at a time.

    `context`: positions of the cache. `activations`: "float", "half", "scaled-half" or "int8", what weights are
    multiplied with (see `load`); it may be changed before plans are captured. `parameter_count`: numbers the model
    was trained to hold, the tied embedding once. `weights`: all parameters by name. `state`: memory that lives
    between calls: `ids` int32 (positions,), `logits` float32 (1, vocab), `sampling_f` float32 (4,), `sampling_i`
    int32 (2,), `verified` int32 (VERIFY,) (docs/bundle.md), and for each layer its cache, `layerN.kv` (2, key/value
    heads, positions, width of a head) where it has attention, with `layerN.kv.scales` and `layerN.kv.least` where
    that is of integers. `cache`: how positions are kept. `rewinds`: whether a text can go on from any of its
    positions; a state can go on from the last token it has read only, or begin anew.
    """

    def __init__(
        self, config: DecoderConfig, names: Names, checkpoint: Checkpoint, quant: str | Recipe | None, context: int,
        device: str | None = None, activations: str | None = None, cache: str | None = None,
    ):  # fmt: skip
        self.config, self.quant, self.context, self.device = config, quant, context, device
        self.positions = positions(context)
        load = Loader(config, names, checkpoint, quant, device)
        self.embedding = Embedding.of(load.embedding())
        self.activations = activations or activations_for(Device[device or Device.DEFAULT].runtime.target, load.stored)
        self.learned = load.positions(self.positions) if config.learned_positions else None
        self.rotaries: dict[RotaryConfig, Rotary] = {}
        self.layers = [
            Layer(layer, load, load.prefix + names.layer.format(i), self._rotary(layer.mixer), config.streams)
            for i, layer in enumerate(config.layers)
        ]
        first = config.embedding_norm
        self.embedding_norm = None if first is None else load.norm(load.prefix + names.embedding_norm, first)
        self.streams = None if config.streams is None else Streams(config.streams, load, len(self.layers))
        self.norm = load.norm(load.prefix + names.norm, config.norm)
        self.head = load.head(config, self.embedding.weight)
        self.parameter_count = load.count

        self.ids = Tensor.empty(self.positions, dtype=dtypes.int32, device=device)
        self.logits = Tensor.empty(1, config.vocab_size, device=device)
        self.sampling_f = Tensor.empty(4, device=device)
        self.sampling_i = Tensor.empty(2, dtype=dtypes.int32, device=device)
        self.verified = Tensor.empty(VERIFY, dtype=dtypes.int32, device=device)
        self.rewinds = not any(isinstance(layer.mixer, STATES) for layer in config.layers)
        self.cache = cache or kind_beside(self.embedding.tensors()["weight"].dtype is dtypes.float32)
        self.forget()

    def forget(self) -> None:
        """Begin anew with empty caches and states."""
        self.caches = self._new_caches(1)
        self._batch_caches: dict[int, list[Cache | State]] = {}
        self._read: dict[int, npt.NDArray[np.int32]] = {}  # ids behind which states stand, by the size of the batch

    # -- the network --------------------------------------------------------------------------------------------------
    def forward(
        self, tokens: Tensor, start: Start, caches: Sequence[Cache | State], count: Size | None = None
    ) -> Tensor:
        """Hidden states (batch, tokens, hidden) before the last norm, for ids (batch, tokens) at positions start,
        start + 1, …, or each at its own, int32 (batch, tokens).

        Reads and updates `caches`, which must hold all positions before `start`. `count`: how many tokens are of the
        text; states do not see the others. None: all.
        """
        read = tokens.shape[1] if count is None else count
        x = self.embedding(tokens)
        if self.config.embedding_scale != 1:
            x = x * self.config.embedding_scale
        if self.learned is not None:
            at = start if isinstance(start, Tensor) else slice(start, start + tokens.shape[1])
            x = x + self.learned[at].float()
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        gifts, passed = None, dict[str, Tensor]()
        if self.streams is not None:
            gifts = self.streams.gifts(tokens, x, self.activations)
            x = self.streams.divided(x, self.activations)
        for i, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            x = layer(x, start, read, cache, passed, self.activations, None if gifts is None else gifts[:, :, i])
        return x if self.streams is None else self.streams.joined(x, self.activations)

    def project(self, x: Tensor) -> Tensor:
        """Logits (…, vocab) of hidden states (…, hidden)."""
        c = self.config
        logits = self.head(self.norm(x), self.activations)
        if c.logit_scale != 1:
            logits = logits * c.logit_scale
        if c.logit_softcap is not None:
            logits = (logits * (1 / c.logit_softcap)).tanh() * c.logit_softcap
        return logits

    def __call__(self, tokens: Tensor | npt.ArrayLike, start_pos: int = 0) -> Tensor:
        """Logits (batch, tokens, vocab), float32, of ids (batch, tokens) at positions start_pos, start_pos + 1, …

        Positions before `start_pos` are taken from earlier calls with the same batch size. Rotary positions whose
        scaling depends on a text's length (dynamic, LongRoPE) are those of a text of start_pos + tokens, where the
        entry points of a chat have those of the whole context. Raises ValueError where
        the ids have no such shape or leave the context, or where a model with a state has not read what is before.
        """
        tokens = tokens if isinstance(tokens, Tensor) else Tensor(tokens)
        if tokens.ndim != 2 or not tokens.dtype.is_int or not all(isinstance(s, int) and s > 0 for s in tokens.shape):
            raise ValueError(
                f"a decoder needs integer ids of shape (batch, tokens), got {tokens.dtype.name} {tokens.shape}"
            )
        if tokens.device != self.ids.device:
            tokens = tokens.to(self.ids.device).realize()
        batch, count = (int(s) for s in tokens.shape if isinstance(s, int))
        if start_pos < 0 or start_pos + count > self.context:
            raise ValueError(f"{count} tokens from position {start_pos} leave the context of {self.context}")
        if not self.rewinds:
            self._go_back(tokens, start_pos)
        if batch > 1 and batch not in self._batch_caches:
            self._batch_caches[batch] = self._new_caches(batch)
        caches = self.caches if batch == 1 else self._batch_caches[batch]
        # the variable's range keeps the last token inside the cache, however many there are
        start = Variable("start_pos", 0, min(self.context - 1, self.positions - count)).bind(start_pos)
        for rotary in self.rotaries.values():
            rotary.suit(start_pos + count)
        try:
            return self.project(self.forward(tokens, start, caches)).realize()
        finally:
            for rotary in self.rotaries.values():
                rotary.suit(None)

    def _go_back(self, tokens: Tensor, start: int) -> None:
        """Makes states stand before `start`, by reading again what is before it; notes the ids that come."""
        ids = tokens.numpy().astype(np.int32)
        batch = len(ids)
        read = self._read.get(batch, ids[:, :0])
        if start > read.shape[1]:
            raise ValueError(
                f"position {start} cannot come next: a state knows what it has read, {read.shape[1]} tokens"
            )
        if 0 < start < read.shape[1]:
            self._read[batch] = read[:, :0]
            self(Tensor(read[:, :start], device=self.device))
        self._read[batch] = np.concatenate([read[:, :start], ids], axis=1)

    # -- entry points of a chat ---------------------------------------------------------------------------------------
    def prefill(self, block: int, start_pos: UOp, count: UOp) -> Tensor:
        """Reads ids[start_pos … start_pos + block) into the cache; leaves the logits of token `count` − 1 of them in
        `logits`.

        Tokens behind `count` may be anything: later calls write over what they leave in the cache, and a state does not
        see them.
        """
        tokens = self.ids[start_pos : start_pos + block].reshape(1, block)
        x = self.forward(tokens, start_pos, self.caches, count)
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

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return self.config.vocab_size

    @property
    def layer_count(self) -> int:
        """How many layers the network has."""
        return len(self.layers)

    # -- memory -------------------------------------------------------------------------------------------------------
    @property
    def weights(self) -> dict[str, Tensor]:
        """All parameters by name, each memory once."""
        found = _named("model.embed_tokens", self.embedding.tensors())
        if self.learned is not None:
            found["model.embed_positions.weight"] = self.learned
        for i, layer in enumerate(self.layers):
            found |= _named(f"model.layers.{i}", layer.tensors())
        if self.embedding_norm is not None:
            found |= _named("model.embed_norm", self.embedding_norm.tensors())
        if self.streams is not None:
            found |= _named("model.streams", self.streams.tensors())
        found |= _named("model.norm", self.norm.tensors())
        head = self.head.tensors()
        found |= _named("lm_head", {n: t for n, t in head.items() if n == "bias" or not self.config.tied})
        tables = {f"rotary{i or ''}": rotary.table for i, rotary in enumerate(self.rotaries.values())}
        return found | tables

    @property
    def state(self) -> dict[str, Tensor]:
        """The memory that lives between calls, by name."""
        names = [f"layer{i}.{layer.mixer.cache_name}" for i, layer in enumerate(self.layers)]
        caches: dict[str, Tensor] = {}
        for name, cache, layer in zip(names, self.caches, self.config.layers, strict=True):
            if source(layer) is not None:
                continue
            caches |= {f"{name}.{part}".rstrip("."): t for part, t in cache.tensors().items()}
        rest = {"logits": self.logits, "sampling_f": self.sampling_f, "sampling_i": self.sampling_i}
        found = {"ids": self.ids, **caches, **rest}
        return found | {"verified": self.verified} if self.rewinds else found

    def _rotary(self, mixer: MixerConfig) -> Rotary | None:
        """The table for a kind of layers, made once."""
        if not isinstance(mixer, AttentionConfig | LatentConfig) or mixer.rotary is None:
            return None
        c = mixer.rotary
        if c not in self.rotaries:
            width = mixer.width if isinstance(mixer, AttentionConfig) else c.turned
            self.rotaries[c] = Rotary(
                width, self.positions, c.theta, c.scaling, self.device, turned=c.turned, context=self.context
            )
        return self.rotaries[c]

    def _new_caches(self, batch: int) -> list[Cache | State]:
        caches: list[Cache | State] = []
        for layer in self.layers:
            shared = source(layer.config)
            caches.append(
                layer.memory(batch, self.positions, self.cache, self.device) if shared is None else caches[shared]
            )
        return caches


def source(layer: LayerConfig) -> int | None:
    """The layer whose cache this one reads."""
    return layer.mixer.keys_of if isinstance(layer.mixer, AttentionConfig) else None


def _named(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}
