"""A text-generation graph of ONNX as a chat: what `Decoder` is for a checkpoint, for a graph that was exported.

What is notable:
- The graph is taken as it is: ids go in, and with them positions, a mask, and what it keeps of earlier tokens (inputs
  `past_key_values.*`); logits come out, and what is to be kept (outputs `present.*`).
- What is kept lies on the device, in caches of a fixed length that are updated in place. The graph would give back what
  it was given with the new tokens' behind it; only the new ones are stored, where it would join both.
- The valid length is symbolic: one set of kernels serves every position.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.device import Device
from tinyweb.dtype import dtypes
from tinyweb.errors import TinywebError
from tinyweb.formats.huggingface import Config
from tinyweb.formats.onnx import OnnxModel, Port
from tinyweb.formats.onnx.folder import OnnxFolder
from tinyweb.graph.ir import Size, UOp, Variable
from tinyweb.graph.schedule.indexing import same
from tinyweb.models.chat import VERIFY, positions
from tinyweb.models.decoder import DEFAULT_CONTEXT, check_precision
from tinyweb.models.decoder.cache import Cache
from tinyweb.nn import sampling
from tinyweb.nn.quantize import activations_for
from tinyweb.tensor import Tensor

PAST, PRESENT = "past", "present"
GIVEN = {
    "input_ids": 2, "attention_mask": 2, "position_ids": 2, "cache_position": 1, "token_type_ids": 2,
    "use_cache_branch": 1, "num_logits_to_keep": 0, "logits_to_keep": 0,
}  # fmt: skip
"""Inputs that a chat can give, with how many axes they have."""
LIMITS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")  # tokens, in config.json


@dataclass
class Past:
    """An input that grows along `axis`, and the cache that stands for it: rows along the last axis but one."""

    port: Port
    axis: int
    cache: Cache
    kind: str
    grown: int = 0  # how often it has been written in a run of the graph

    @classmethod
    def of(cls, port: Port, room: int, kind: str | None, device: str | None) -> Past:
        """`room`: positions that it holds."""
        shape = port.shape or ()
        open_axes = [i for i, s in enumerate(shape) if not isinstance(s, int) and i > 0]
        if len(open_axes) != 1 or len(shape) < 3 or port.dtype not in (dtypes.float32, dtypes.float16):
            raise NotImplementedError(
                f"input {port.name!r} is {port.type} of shape {list(shape)}: a cache needs one axis beside the first "
                "whose size is open, that of positions, and floats"
            )
        sizes = [s if isinstance(s, int) else room if i == open_axes[0] else 1 for i, s in enumerate(shape)]
        kind = kind or ("f32" if port.dtype is dtypes.float32 else "f16")
        order = _rows(len(shape), open_axes[0])
        return cls(port, open_axes[0], Cache(tuple(sizes[i] for i in order), kind, device), kind)

    @property
    def order(self) -> list[int]:
        """The graph's axes as the cache has them."""
        return _rows(len(self.port.shape or ()), self.axis)

    def read(self, stop: Size) -> Tensor:
        """What the graph is given: positions before `stop`."""
        back = [self.order.index(i) for i in range(len(self.order))]
        found = self.cache.read(0, stop).permute(*back)
        assert self.port.dtype is not None
        return found if found.dtype is self.port.dtype else found.cast(self.port.dtype)

    def grow(self, start: Size, new: Tensor, axis: int) -> Tensor:
        """Keeps new positions from `start` on; all of them so far."""
        if axis != self.axis:
            raise NotImplementedError(f"{self.port.name!r} grows along axis {axis}, where axis {self.axis} is open")
        self.grown += 1
        self.cache.write(start, new.permute(*self.order).float())
        return self.read(start + new.shape[axis])


def _rows(ndim: int, axis: int) -> list[int]:
    """The axes in the order in which `axis` is the last but one."""
    others = [i for i in range(ndim) if i != axis]
    return [*others[:-1], axis, others[-1]]


class OnnxDecoder:
    """A text-generation graph with its state: what a chat needs (`ChatModel`). Use one instance for one conversation at
    a time.

    `context`, `ids`, `logits`, `sampling_f`, `sampling_i`, `verified`, `weights`, `state`, `cache`: as of `Decoder`;
    the cache of input NAME is called NAME. `rewinds`: True, as there is nothing but caches.
    """

    rewinds = True

    def __init__(
        self, graph: OnnxModel, config: Config, context: int, device: str | None = None, cache: str | None = None
    ):
        self.graph, self.context, self.device = graph, context, device
        self.positions = positions(context)
        ports = {p.name: p for p in graph.inputs}
        self.pasts = {n: Past.of(p, self.positions, cache, device) for n, p in ports.items() if n.startswith(PAST)}
        self.result = logits_port(graph)
        self.vocab_size = _vocabulary(self.result, config)
        self.cache = next(iter(self.pasts.values())).kind
        self.inputs = [p for n, p in ports.items() if n not in self.pasts]
        for port in self.inputs:
            if port.name not in GIVEN or len(port.shape or ()) != GIVEN[port.name]:
                raise NotImplementedError(
                    f"input {port.name!r}, {port.type} of shape {port.shape}, is none that a chat can give: "
                    f"{', '.join(GIVEN)}, and caches (past…)"
                )
        self.ids = Tensor.empty(self.positions, dtype=dtypes.int32, device=device)
        self.logits = Tensor.empty(1, self.vocab_size, device=device)
        self.sampling_f = Tensor.empty(4, device=device)
        self.sampling_i = Tensor.empty(2, dtype=dtypes.int32, device=device)
        self.verified = Tensor.empty(VERIFY, dtype=dtypes.int32, device=device)

    @property
    def layer_count(self) -> int:
        """How many layers keep something: a key and a value each."""
        return len(self.pasts) // 2

    @property
    def parameter_count(self) -> int:
        """Elements of what is multiplied with or looked up in: initializers of at least two axes."""
        return sum(prod(t.shape) for t in self.graph.graph.constants.values() if len(t.shape) > 1)

    # -- the graph ----------------------------------------------------------------------------------------------------
    def forward(self, tokens: Tensor, start: Size) -> Tensor:
        """Logits (1, tokens, vocab), float32, of ids (1, tokens) at positions start, start + 1, …; updates the
        caches."""
        count = tokens.shape[1]
        assert isinstance(count, int)
        given: dict[str, Any] = {p.name: self._input(p, tokens, start, count) for p in self.inputs}
        for past in self.pasts.values():
            past.grown = 0
        given |= {name: past.read(start) for name, past in self.pasts.items()}
        try:
            found = self.graph.run(given, {name: partial(past.grow, start) for name, past in self.pasts.items()})
        except TypeError as e:  # a batch of two, say
            raise NotImplementedError(f"the graph takes no ids of shape (1, {count}): {e}") from None
        if left := [name for name, past in self.pasts.items() if past.grown != 1]:
            raise NotImplementedError(f"the graph does not put new positions behind its input {left[0]!r} once: it is "
                                      "no cache that could be kept in place")  # fmt: skip
        logits: Tensor = found[self.result.name]
        if not same(logits.numel(), count * self.vocab_size):
            raise NotImplementedError(f"the graph gives logits of shape {list(logits.shape)}, not those of "
                                      f"{self.vocab_size} tokens for each of {count}")  # fmt: skip
        return logits.float().reshape(1, count, self.vocab_size)

    def _input(self, port: Port, tokens: Tensor, start: Size, count: int) -> Any:
        place = Tensor.arange(count, dtype=dtypes.int32, device=self.device) + Tensor(start, device=self.device)
        kind = np.dtype(np.int64) if port.dtype is None else port.dtype.numpy
        match port.name:
            case "input_ids":
                return tokens
            case "attention_mask":
                whole = Tensor.ones(1, self.positions, dtype=dtypes.int32, device=self.device)
                return whole[:, : start + count]
            case "position_ids":
                return place.reshape(1, count)
            case "cache_position":
                return place
            case "token_type_ids":
                return Tensor.zeros(1, count, dtype=dtypes.int32, device=self.device)
            case "use_cache_branch":
                return np.ones(1, np.bool_)
        return np.full((), count, kind)  # of how many tokens logits are wanted

    def __call__(self, tokens: Tensor | npt.ArrayLike, start_pos: int = 0) -> Tensor:
        """Logits (1, tokens, vocab), float32, of ids (1, tokens) at positions start_pos, start_pos + 1, …

        Positions before `start_pos` are taken from earlier calls. ValueError where the ids have no such shape or leave
        the context.
        """
        tokens = tokens if isinstance(tokens, Tensor) else Tensor(tokens)
        count = tokens.shape[1] if tokens.ndim == 2 and tokens.shape[0] == 1 else 0
        if not isinstance(count, int) or count < 1 or not tokens.dtype.is_int:
            raise ValueError(f"a graph reads integer ids of shape (1, tokens), got {tokens.dtype.name} {tokens.shape}")
        if start_pos < 0 or start_pos + count > self.context:
            raise ValueError(f"{count} tokens from position {start_pos} leave the context of {self.context}")
        start = Variable("start_pos", 0, min(self.context - 1, self.positions - count)).bind(start_pos)
        return self.forward(tokens, start).realize()

    # -- entry points of a chat ---------------------------------------------------------------------------------------
    def prefill(self, block: int, start_pos: UOp, count: UOp) -> Tensor:
        """As `Decoder.prefill`."""
        tokens = self.ids[start_pos : start_pos + block].reshape(1, block)
        return self.logits.assign(self.forward(tokens, start_pos)[0, count - 1 : count])

    def decode(self, start_pos: UOp) -> Tensor:
        """As `Decoder.decode`."""
        tokens = self.ids[start_pos : start_pos + 1].reshape(1, 1)
        return self.logits.assign(self.forward(tokens, start_pos)[0])

    def sample(self, start_pos: UOp) -> Tensor:
        """As `Decoder.sample`."""
        return sampling.sample(self.logits, self.ids, start_pos, self.sampling_f, self.sampling_i)

    def greedy(self, start_pos: UOp) -> Tensor:
        """As `Decoder.greedy`."""
        return sampling.greedy(self.logits, self.ids, start_pos)

    def verify(self, block: int, start_pos: UOp) -> Tensor:
        """As `Decoder.verify`."""
        tokens = self.ids[start_pos : start_pos + block].reshape(1, block)
        return self.verified.assign(self.forward(tokens, start_pos)[0].argmax(-1).cast(dtypes.int32))

    # -- memory -------------------------------------------------------------------------------------------------------
    @property
    def activations(self) -> str:
        """What those matrices are multiplied with that allow it: "float", "half", "scaled-half" or "int8"."""
        target = Device[self.device or Device.DEFAULT].runtime.target
        return self.graph.activations or activations_for(target, dtypes.float32)

    @activations.setter
    def activations(self, kind: str) -> None:
        self.graph.activations = kind

    @property
    def weights(self) -> dict[str, Tensor]:
        """Initializers, and what is made of them alone, that runs have used so far, by their names in the graph."""
        return self.graph.weights(Device[self.device or Device.DEFAULT].name)

    @property
    def state(self) -> dict[str, Tensor]:
        """Memory that lives between calls."""
        caches = {f"{name}.{part}".rstrip("."): t for name, past in self.pasts.items()
                  for part, t in past.cache.tensors().items()}  # fmt: skip
        rest = {"logits": self.logits, "sampling_f": self.sampling_f, "sampling_i": self.sampling_i}
        return {"ids": self.ids, **caches, **rest, "verified": self.verified}


def logits_port(graph: OnnxModel) -> Port:
    """The output that says what comes next."""
    found = [p for p in graph.outputs if not p.name.startswith(PRESENT)]
    named = [p for p in found if p.name == "logits"] or found
    if len(named) != 1 or len(named[0].shape or ()) != 3:
        raise NotImplementedError(f"outputs {', '.join(p.name for p in found) or 'none'}: a chat needs one of logits, "
                                  "(batch, tokens, vocabulary)")  # fmt: skip
    return named[0]


def _vocabulary(logits: Port, config: Config) -> int:
    size = (logits.shape or (None,))[-1]
    return size if isinstance(size, int) else config.integer("vocab_size", 1, 1 << 24)


def token_limit(config: Config, usual: int) -> int:
    """How many tokens config.json says that a model reads; `usual` where it does not."""
    return min((config.integer(n, 1, 1 << 31) for n in LIMITS if config.values.get(n) is not None), default=usual)


def load_graph(
    folder: OnnxFolder, quant: str | None = None, context: int | None = None, device: str | None = None,
    cache: str | None = None,
) -> OnnxDecoder:  # fmt: skip
    """The chat of a folder's graph: that of `quant` ("f32", "f16", "q8", "q4"), None: q4 if it is there, else the next.

    `context`, `cache`: as of `models.decoder.load`. ModelFormatError where the folder or the graph is damaged, or no
    graph is of this quantisation; NotImplementedError for a graph that no chat can be made of, saying what it has.
    """
    check_precision(None, None, cache)
    graph = folder.open(quant)
    if not any(p.name.startswith(PAST) for p in graph.inputs):
        raise NotImplementedError(
            f"{graph.path} has no inputs past…: a chat needs a text-generation graph with a cache, as Optimum exports "
            "with --task text-generation-with-past"
        )
    most = token_limit(folder.config, DEFAULT_CONTEXT)
    if context is not None and not 1 <= context <= most:
        raise TinywebError(f"a context of {context} tokens is not possible: {folder.path} allows 1 to {most}")
    return OnnxDecoder(graph, folder.config, context or min(most, DEFAULT_CONTEXT), device, cache)
