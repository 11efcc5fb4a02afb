"""Decoder-only language models: one network, whose parts the architecture named in config.json chooses.

- `config`: the parts, as records.
- `architectures`: from config.json to those records, a function for each family.
- `loader`: the checkpoint's tensors.
- `cache`: what layers keep of each position.
- `divided`: a model divided among devices.
- `norm`; `attention`, `latent`, `convolution`, `state_space`, `selective`, `time_mix`, with their `state`; `mlp`,
  `experts`; `streams`, `layer`, `model`: the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tinyweb.device import Device
from tinyweb.errors import TinywebError
from tinyweb.formats.huggingface import Checkpoint, Config
from tinyweb.formats.source import open_model
from tinyweb.kinds import ACTIVATIONS, CACHES, KINDS, STORED
from tinyweb.models.decoder.architectures import read_config
from tinyweb.models.decoder.config import DecoderConfig
from tinyweb.models.decoder.model import Decoder
from tinyweb.nn.precision import Recipe
from tinyweb.sources import CHAT, locate

DEFAULT_CONTEXT = 4096  # where the caller names none; long contexts cost memory

__all__ = ["DEFAULT_CONTEXT", "Decoder", "DecoderConfig", "ModelSource", "load"]


class ModelSource(Protocol):
    """What a model is read from: `config`, the fields of config.json, and the checkpoint's tensors by their names in
    Hugging Face's layout. A `ModelFolder` is one."""

    @property
    def path(self) -> Path: ...
    @property
    def config(self) -> Config: ...
    def weights(self) -> Checkpoint: ...


def check_precision(quant: str | Recipe | None, activations: str | None, cache: str | None = None) -> None:
    """TinywebError for a quantisation, activations or a cache that are none; None is whatever suits."""
    if isinstance(quant, str) and quant not in (STORED, *KINDS):
        raise TinywebError(f"unknown quantisation {quant!r}: choose one of {', '.join((STORED, *KINDS))}")
    if activations is not None and activations not in ACTIVATIONS:
        raise TinywebError(f"unknown activations {activations!r}: choose one of {', '.join(ACTIVATIONS)}")
    if cache is not None and cache not in CACHES:
        raise TinywebError(f"unknown cache {cache!r}: choose one of {', '.join(CACHES)}")


def load(
    source: str | Path | ModelSource, quant: str | Recipe | None = None, context: int | None = None,
    device: str | Sequence[str] | None = None, activations: str | None = None, cache: str | None = None,
) -> Decoder:  # fmt: skip
    """Reads a language model: a Hugging Face folder (config.json and safetensors) or a GGUF file, here or on the hub
    (tinyweb/sources), or what offers the same.

    `quant`: "f32", "f16", "q8" or "q4"; "stored" or None keeps what is stored: the blocks of quantised matrices of GGUF
    files as they are (of types that cannot be held the nearest one), else the checkpoint's precision (bfloat16 becomes
    float16). Or a `Recipe` (`nn.precision`).
    `context`: positions to make room for; without it what the model allows, at most 4096.
    `device`: where it lies and runs; several, `["CPU", "CPU:1"]` or `"CPU,CPU:1"`, divide it (`divided.shard_decoder`).
    `activations`: what weights are multiplied with: "float", or rounded on the fly: "int8" with quantised ones,
    "half" (float16, of 16 tokens or more at a time, and queries beside a float16 cache) with float16 ones, and with
    quantised ones, whose values are rounded so, too. Beyond ±65504 "half" holds them there, and "scaled-half" scales a
    token's as one, which takes one more kernel for each matrix. None: "int8" where the device has integer dot products;
    else, where it multiplies matrices of float16, "half" for files of float16, and "scaled-half" for those of bfloat16
    and float32; else "float".
    `cache`: what is kept of each position, "f16", "f32", "q8" or "q4"; None: "f32" beside float32 weights, else "f16".

    Raises ModelFormatError for a folder that is missing, damaged or of an architecture that is not known; TinywebError
    for a `quant`, `context`, `activations` or `cache` that cannot be, and as `shard_decoder`.
    """
    from tinyweb.models.decoder.divided import shard_decoder

    check_precision(quant, activations, cache)
    folder = open_model(locate(source, CHAT)) if isinstance(source, str | Path) else source
    config, names = read_config(folder.config)
    if context is not None and not 1 <= context <= config.positions:
        raise TinywebError(
            f"a context of {context} tokens is not possible: {folder.path} allows 1 to {config.positions}"
        )
    chosen = context or min(config.positions, DEFAULT_CONTEXT)
    first, *others = members = Device.members(device or Device.DEFAULT)
    where = first if others else device
    assert where is None or isinstance(where, str)
    model = Decoder(config, names, folder.weights(), quant, chosen, where, activations, cache)
    return shard_decoder(model, members) if others else model
