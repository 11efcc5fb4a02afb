"""Encoder–decoders as ONNX graphs (Whisper, T5): two functions that share a state on the device.

What is notable:
- `encode` runs the encoder once, and what the decoder's layers make of its states (keys and values of cross-attention);
  these stay on the device.
- `decode` takes the ids so far, reads the last of them, and keeps its keys and values. A loop around it is a text: the
  id that it gives is put behind the others.
- How many ids there are, and so which position is read, is told by the shape of `ids`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tinyweb.device import Device
from tinyweb.dtype import DType, dtypes
from tinyweb.errors import ModelFormatError
from tinyweb.formats.onnx import OnnxModel, Port
from tinyweb.formats.onnx.folder import OnnxFolder
from tinyweb.graph.ir import Size, size_max
from tinyweb.models.onnx_decoder import PAST, Past, logits_port
from tinyweb.sources.wanted import ENCODER, FIRST, FOLLOWING, MERGED
from tinyweb.tensor import Tensor

CROSS = ".encoder."  # in the names of what is kept of the encoder's states
STATES = "last_hidden_state"  # of the encoder
GIVEN = ("input_ids", "encoder_hidden_states", "encoder_attention_mask", "use_cache_branch")


class OnnxSeq2Seq:
    """An encoder and a decoder. `first` is the decoder without a cache, `following` the one with; both are one graph
    where these were merged. `examples`: inputs of the encoder, of the shapes that it is used with. `room`: ids of a
    text, at most. `weights`: what calls have used so far, by name. Keys and values, `own` of the ids and `cross` of the
    encoder's states, and the `mask` of these live between calls."""

    def __init__(
        self, encoder: OnnxModel, first: OnnxModel, following: OnnxModel, examples: Mapping[str, Tensor], room: int,
        device: str | None = None,
    ):  # fmt: skip
        self._encoder, self._first, self._following = encoder, first, following
        self.room, self.device = room, device
        pasts = [p for p in following.inputs if p.name.startswith(PAST)]
        self.own = {p.name: Past.of(p, room, None, device) for p in pasts if CROSS not in p.name}
        self._result = logits_port(following)
        if unknown := [p.name for g in (first, following) for p in g.inputs
                       if p.name not in GIVEN and not p.name.startswith(PAST)]:  # fmt: skip
            raise NotImplementedError(f"input {unknown[0]!r} of the decoder is none of {', '.join(GIVEN)}, past…")
        if STATES not in [p.name for p in encoder.outputs]:
            raise NotImplementedError(f"the encoder has no output {STATES}")
        self.weights: dict[str, Tensor] = {}
        states = self._states(examples)
        self.longest, self._width = size_max(states.shape[1]), states.shape[2]
        self.cross = {p.name: self._cross(p) for p in pasts if CROSS in p.name}
        self.mask = _zeros((1, self.longest), dtypes.int32, device)
        for past in self.own.values():  # a bundle's state begins as zeros
            for t in past.cache.tensors().values():
                t.assign(Tensor.zeros(*t.shape, dtype=t.dtype, device=device)).realize()

    @property
    def graphs(self) -> list[OnnxModel]:
        """Those that it was made of."""
        return [self._encoder, self._first, self._following]

    def _cross(self, port: Port) -> Tensor:
        """Memory for keys or values of the encoder's states."""
        shape = port.shape or ()
        if len(shape) != 4 or not isinstance(shape[1], int) or not isinstance(shape[3], int) or port.dtype is None:
            raise NotImplementedError(
                f"input {port.name!r} has the shape {list(shape)}: (batch, heads, positions, width) with heads and "
                "width known is needed"
            )
        return _zeros((1, shape[1], self.longest, shape[3]), port.dtype, self.device)

    def _states(self, inputs: Mapping[str, Any]) -> Tensor:
        found: Tensor = self._encoder(**inputs)[STATES]
        return found

    def encode(self, **inputs: Tensor) -> dict[str, Tensor]:
        """The encoder's states (1, positions, width) by the name that its graph has for them. What the decoder needs of
        them stays on the device."""
        states = self._states(inputs)
        count: Size = states.shape[1]
        mask = inputs.get("attention_mask")
        whole = Tensor.ones(1, self.longest, dtype=dtypes.int32, device=self.device)
        seen = whole[:, :count] if mask is None else (mask != 0).cast(dtypes.int32)
        found = self._run(self._first, 0, {
            "input_ids": Tensor.zeros(1, 1, dtype=dtypes.int32, device=self.device),  # what is kept depends on no id
            "encoder_hidden_states": states,
            "encoder_attention_mask": seen,
            "use_cache_branch": np.zeros(1, np.bool_),
        })  # fmt: skip
        for name, memory in self.cross.items():
            memory[:, :, :count] = found[name.replace("past_key_values", "present")].cast(memory.dtype)
        if not isinstance(count, int):
            self.mask.assign(whole * 0)
        self.mask[:, :count] = seen
        return {STATES: states}

    def decode(self, ids: Tensor) -> dict[str, Tensor]:
        """`logits` (vocabulary,) of what comes behind ids (count,), and the likeliest `next` (1,), int32. The last of
        the ids is read; what is before it was the last of them in earlier calls."""
        start: Size = ids.shape[0] - 1
        found = self._run(self._following, start, {
            "input_ids": ids[start : start + 1].reshape(1, 1),
            "encoder_hidden_states": Tensor.zeros(1, self.longest, self._width, device=self.device),  # in the cache
            "encoder_attention_mask": self.mask,
            "use_cache_branch": np.ones(1, np.bool_),
        })  # fmt: skip
        logits: Tensor = found[self._result.name].float().reshape(-1)
        return {"logits": logits, "next": logits.argmax(-1).cast(dtypes.int32).reshape(1)}

    def _run(self, graph: OnnxModel, start: Size, given: dict[str, Any]) -> dict[str, Any]:
        """Runs a decoder's graph on the ids at `start` and behind it."""
        count = given["encoder_hidden_states"].shape[1]
        every = given | {name: past.read(start) for name, past in self.own.items()}
        every |= {name: memory[:, :, :count] for name, memory in self.cross.items()}
        following = graph is self._following and bool(given["use_cache_branch"][0])
        for past in self.own.values():
            past.grown = 0
        growing = {name: partial(past.grow, start) for name, past in self.own.items()} if following else {}
        found = graph.run({p.name: every[p.name] for p in graph.inputs}, growing)
        if left := [name for name in growing if self.own[name].grown != 1]:
            raise NotImplementedError(f"the graph does not put new positions behind its input {left[0]!r} once")
        device = Device[self.device or Device.DEFAULT].name
        for part, model in zip(("encoder", "decoder.first", "decoder"), self.graphs):
            self.weights |= {f"{part}.{name}": t for name, t in model.weights(device).items()}
        return found


def _zeros(shape: tuple[int, ...], dtype: DType, device: str | None) -> Tensor:
    """Memory that is 0 at first."""
    return (
        Tensor.empty(*shape, dtype=dtype, device=device)
        .assign(Tensor.zeros(*shape, dtype=dtype, device=device))
        .realize()
    )


def load_seq2seq(
    folder: OnnxFolder, examples: Mapping[str, Tensor], quant: str | None = None, room: int | None = None,
    device: str | None = None,
) -> OnnxSeq2Seq:  # fmt: skip
    """The graphs of a folder: `encoder_model`, and `decoder_model_merged` or `decoder_model` with
    `decoder_with_past_model`, of one precision (`OnnxFolder.graph`). `room`: None, what config.json says, at most 512.

    ModelFormatError where one is missing; NotImplementedError for graphs of another make, saying what they have.
    """
    encoder = folder.open(quant, (ENCODER,))
    try:
        first = following = folder.open(quant, (MERGED,))
    except ModelFormatError:
        first, following = (folder.open(quant, (stem,)) for stem in (FIRST, FOLLOWING))
    most = folder.config.integer("max_target_positions", 2, 1 << 20, 512)
    return OnnxSeq2Seq(encoder, first, following, examples, min(room or most, most), device)
