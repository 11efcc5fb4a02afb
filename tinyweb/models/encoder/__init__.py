"""Encoders: one network, whose parts the architecture named in config.json chooses.

- `config`: the parts, as records; most are those of decoders.
- `architectures`: from config.json to those records, a function for each family.
- `loader`: the checkpoint's tensors.
- `attention`, `layer`, `model`: the network. Norms, MLPs and rotary positions are those of `models.decoder`.

- `head`: one score of the hidden states.

What is made of hidden states is elsewhere: sentence embeddings in `models.embedding`, scores of pairs in
`models.reranking`.
"""

from __future__ import annotations

from pathlib import Path

from tinyweb.formats.huggingface import Config
from tinyweb.formats.source import open_model
from tinyweb.models.decoder import ModelSource, check_precision
from tinyweb.models.encoder.architectures import family, read_config
from tinyweb.models.encoder.config import EncoderConfig
from tinyweb.models.encoder.model import Encoder
from tinyweb.nn.precision import Recipe
from tinyweb.sources import EMBED, locate

__all__ = ["Encoder", "EncoderConfig", "is_encoder", "load"]


def is_encoder(c: Config) -> bool:
    """Whether a config.json names an encoder that is known."""
    return family(c) is not None


def load(
    source: str | Path | ModelSource, quant: str | Recipe | None = None, device: str | None = None,
    activations: str | None = None,
) -> Encoder:  # fmt: skip
    """Reads an encoder: a Hugging Face folder (config.json and safetensors) or a GGUF file, here or on the hub
    (tinyweb/sources), or what offers the same.

    `quant`: as of `decoder.load`.
    `activations`: what weights are multiplied with, as of `decoder.load`.

    Raises ModelFormatError for a folder that is missing, damaged or of an architecture that is not known; TinywebError
    for a `quant` or `activations` that cannot be.
    """
    check_precision(quant, activations)
    folder = open_model(locate(source, EMBED)) if isinstance(source, str | Path) else source
    config, names = read_config(folder.config)
    return Encoder(config, names, folder.weights(), quant, device, activations)
