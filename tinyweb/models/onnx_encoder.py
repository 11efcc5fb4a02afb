"""An encoder's graph of ONNX in the place of an `Encoder`: what `Embedder` pools."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tinyweb.device import Device
from tinyweb.dtype import dtypes
from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.formats.onnx import OnnxModel, Port
from tinyweb.formats.onnx.folder import OnnxFolder
from tinyweb.models.encoder import is_encoder
from tinyweb.models.encoder.architectures import read_config
from tinyweb.models.onnx_decoder import token_limit
from tinyweb.tensor import Tensor

HIDDEN = ("last_hidden_state", "token_embeddings", "hidden_states")  # what exporters call the output that is pooled
GIVEN = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
USUAL_POSITIONS = 512  # where neither the graph nor config.json says how many tokens it reads


@dataclass(frozen=True)
class GraphConfig:
    """What is known of the network without its parts: as of `EncoderConfig`."""

    model_type: str
    hidden_size: int
    positions: int
    vocab_size: int
    layers: range


class OnnxEncoder:
    """A graph from token ids to hidden states. `weights`: initializers, and what is made of them alone, by name."""

    layers: tuple[()] = ()
    activations = "float"

    def __init__(self, graph: OnnxModel, config: Config, device: str | None = None):
        self._graph, self.device = graph, device
        self._hidden = _hidden(graph)
        if unknown := [p.name for p in graph.inputs if p.name not in GIVEN or len(p.shape or ()) != 2]:
            raise NotImplementedError(
                f"input {unknown[0]!r} is none that a text gives: {', '.join(GIVEN)}, each (batch, tokens)"
            )
        if "input_ids" not in [p.name for p in graph.inputs]:
            raise NotImplementedError("the graph has no input input_ids")
        width = (self._hidden.shape or (None,))[-1]
        self.config = GraphConfig(
            config.word("model_type", "graph"),
            width if isinstance(width, int) else config.integer("hidden_size", 1, 1 << 20),
            _positions(config),
            config.integer("vocab_size", 1, 1 << 24),
            range(config.integer("num_hidden_layers", 0, 1 << 16, 0)),
        )
        self(Tensor(np.zeros((1, 2), np.int32), device=device))  # what is known is computed once
        self.weights = graph.weights(Device[device or Device.DEFAULT].name)

    @property
    def parameter_count(self) -> int:
        """Elements of initializers of at least two axes."""
        return sum(prod(t.shape) for t in self._graph.graph.constants.values() if len(t.shape) > 1)

    def __call__(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Hidden states (batch, tokens, hidden), float32, of ids (batch, tokens). `mask` (batch, tokens): what is 0 or
        false is padding; None: there is none. ValueError for ids of another shape."""
        if ids.ndim != 2 or not ids.dtype.is_int:
            raise ValueError(f"an encoder needs integer ids of shape (batch, tokens), got {ids.dtype.name} {ids.shape}")
        batch, tokens = (int(s) for s in ids.shape if isinstance(s, int))
        place = Tensor.arange(tokens, dtype=dtypes.int32, device=self.device).reshape(1, tokens).expand(batch, tokens)
        whole = (place >= 0).cast(dtypes.int32)
        given: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": whole if mask is None else (mask != 0).cast(dtypes.int32),
            "token_type_ids": np.zeros((batch, tokens), np.int64),
            "position_ids": place,
        }
        hidden: Tensor = self._graph(**{p.name: given[p.name] for p in self._graph.inputs})[self._hidden.name]
        return hidden.float()


def _positions(config: Config) -> int:
    """Tokens that it reads: some families need places for more."""
    return read_config(config)[0].positions if is_encoder(config) else token_limit(config, USUAL_POSITIONS)


def _hidden(graph: OnnxModel) -> Port:
    """The output that is pooled."""
    states = [p for p in graph.outputs if len(p.shape or ()) == 3]
    for name in HIDDEN:
        for p in states:
            if p.name == name:
                return p
    if len(states) != 1:
        names = ", ".join(f"{p.name} {list(p.shape or ())}" for p in graph.outputs)
        raise NotImplementedError(f"the graph gives {names}: vectors need hidden states (batch, tokens, width), as "
                                  f"Optimum exports them with --task feature-extraction ({HIDDEN[0]})")  # fmt: skip
    return states[0]


def load_encoder(folder: OnnxFolder, quant: str | None = None, device: str | None = None) -> OnnxEncoder:
    """The encoder of a folder's graph: that of `quant` ("f32", "f16", "q8", "q4"), None: q4 if it is there, else the
    next. ModelFormatError where the folder or the graph is damaged, or none is of this quantisation;
    NotImplementedError for a graph that gives no hidden states, saying what it has."""
    graph = folder.open(quant)
    try:
        return OnnxEncoder(graph, folder.config, device)
    except TypeError as error:  # shapes that the graph does not take
        raise ModelFormatError(f"{graph.path}: {error}") from None
