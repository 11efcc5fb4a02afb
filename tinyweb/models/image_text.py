"""Texts and pictures as vectors of one space: the dot product says how well a text describes a picture.

    model = load("clip-vit-base-patch32")
    texts = model.encode(["a photo of a cat", "a photo of a dog"])
    pictures = model.encode_images([pixels])        # uint8 (H, W, 3)
    texts @ pictures.T                              # cosines
    model.logits(texts, pictures)                   # as the model was trained: scaled, with SigLIP's bias

What pictures go through before the network is in preprocessor_config.json (`Preprocessing`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.huggingface import Checkpoint, ModelFolder
from tinyweb.formats.source import open_model
from tinyweb.formats.tokenizer import filled_with, read_backend
from tinyweb.models.embedding import Embedder, EmbeddingSettings
from tinyweb.models.encoder import Encoder
from tinyweb.models.encoder.architectures.image_text import (
    HIGHEST,
    IMAGE_NAMES,
    TEXT_NAMES,
    ImageTextConfig,
    is_image_text,
    read_image_text,
)
from tinyweb.models.encoder.image import ImageEncoder
from tinyweb.models.preprocessing import Preprocessing
from tinyweb.nn.layers import Linear
from tinyweb.nn.precision import Recipe
from tinyweb.sources import EMBED, locate
from tinyweb.tensor import Tensor
from tinyweb.tracing import jit

TOKENS, MOST_AT_ONCE = 256, 8  # patches and pictures that run at a time where there are many pictures


class Projection:
    """A matrix behind a network, from its vectors to those of the common space; it is never quantised. `width`: their
    numbers."""

    def __init__(self, layer: Linear, width: int):
        self.layer, self.width = layer, width

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, width that comes in) → (batch, width)."""
        return self.layer(x, "float")


def _normalized(x: Tensor) -> Tensor:
    return x / (x * x).sum(1, keepdim=True).sqrt().maximum(1e-12)


class ImageEmbedder:
    """Pictures to vectors. `projection` None: the network's vectors are those of the common space."""

    def __init__(self, model: ImageEncoder, projection: Projection | None, preprocessing: Preprocessing):
        self.model, self.projection, self.preprocessing = model, projection, preprocessing
        self._run = jit(self.vectors)

    @property
    def dimensions(self) -> int:
        """Numbers of a vector."""
        return self.model.config.hidden_size if self.projection is None else self.projection.width

    @property
    def batch(self) -> int:
        """Pictures that run side by side where there are many."""
        return min(max(TOKENS // self.model.config.positions, 1), MOST_AT_ONCE)

    def vectors(self, pixels: Tensor) -> Tensor:
        """pixels uint8 (batch, size, size, 3) → (batch, dimensions) float32, of length 1."""
        p, device = self.preprocessing, pixels.device
        mean, deviation = np.array(p.mean), np.array(p.deviation)
        factor, shift = (Tensor(v.astype(np.float32), device=device) for v in (p.scale / deviation, -mean / deviation))
        x = self.model((pixels.float() * factor + shift).contiguous())
        return _normalized(x if self.projection is None else self.projection(x))

    def encode_images(self, images: Sequence[Any]) -> npt.NDArray[np.float32]:
        """Vectors (images, dimensions) float32, of length 1, of pictures: arrays uint8 (H, W, 3), or Pillow's.

        ValueError for what is no picture."""
        out = np.empty((len(images), self.dimensions), np.float32)
        done = 0
        while done < len(images):
            count = self.batch if 2 * (len(images) - done) > self.batch else 1
            now = [self.preprocessing(image) for image in images[done : done + count]]
            filled = np.stack(now + [np.zeros_like(now[0])] * (count - len(now)))
            out[done : done + len(now)] = self._run(Tensor(filled, device=self.model.device)).numpy()[: len(now)]
            done += len(now)
        return out


class ImageText(Embedder):
    """Texts, and where the file has that tower pictures, to vectors. `logit_scale`, `logit_bias`: what a dot product is
    multiplied with, and what is added, where the model was trained; 1 and 0 where the file does not say it."""

    def __init__(
        self, model: Encoder, backend: tokenizers.Tokenizer, settings: EmbeddingSettings, projection: Projection,
        images: ImageEmbedder | None, pad: int | None = None, end: int | None = None, scale: float = 1.0,
        bias: float = 0.0,
    ):  # fmt: skip
        super().__init__(model, backend, settings, [projection])
        self.images, self.pad, self.end, self.logit_scale, self.logit_bias = images, pad, end, scale, bias

    @property
    def lengths(self) -> tuple[int, ...]:
        return super().lengths if self.pad is None else (self.settings.max_length,)

    def tokens(self, texts: Sequence[str], kind: str = "passage") -> list[list[int]]:
        """Token ids of texts, special tokens added; what is too long is cut, and where the model wants it what is short
        is filled."""
        rows = super().tokens(texts, kind)
        if self.pad is None:
            return rows
        return [row + [self.pad] * (self.settings.max_length - len(row)) for row in rows]

    def vectors(self, ids: Tensor, lengths: Tensor) -> Tensor:
        if self.end is not None:
            tokens = ids.shape[1]
            assert isinstance(tokens, int)
            inside = Tensor.arange(tokens, device=ids.device).unsqueeze(0) < lengths.unsqueeze(1)
            mark = ids if self.end == HIGHEST else ids.eq(self.end).int()
            lengths = inside.where(mark, -1).argmax(1).int() + 1  # the first of the largest
        return super().vectors(ids, lengths)

    def encode_images(self, images: Sequence[Any]) -> npt.NDArray[np.float32]:
        """As of `ImageEmbedder`. TinywebError where the file has texts only."""
        if self.images is None:
            raise TinywebError("this file has the tower of texts only: load the whole model for pictures")
        return self.images.encode_images(images)

    def logits(self, texts: npt.NDArray[np.float32], images: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """(texts, images): dot products of their vectors, scaled as in training."""
        found: npt.NDArray[np.float32] = (texts @ images.T * self.logit_scale + self.logit_bias).astype(np.float32)
        return found


def load_image_text(
    folder: ModelFolder, quant: str | Recipe | None = None, device: str | None = None, activations: str | None = None,
    *, max_length: int | None = None,
) -> ImageText | ImageEmbedder:  # fmt: skip
    """Reads CLIP or SigLIP: both towers, or the one that a file has. `quant`, `activations`: as of `encoder.load`.
    `max_length`: tokens after which texts are cut.

    Raises ModelFormatError for what is missing, damaged or not supported; TinywebError for an option that cannot be.
    """
    config = read_image_text(folder.config)
    checkpoint = folder.weights()
    images = None
    if config.image is not None:
        model = ImageEncoder(config.image, IMAGE_NAMES, checkpoint, quant, device, activations)
        preprocessing = Preprocessing.of_folder(folder, config.image.size, config.family == "CLIP")
        layer = model.load.plain("visual_projection", config.width, False) if config.family == "CLIP" else None
        images = ImageEmbedder(model, None if layer is None else Projection(layer, config.width), preprocessing)
    if config.text is None:
        assert images is not None
        return images
    return _texts(folder, checkpoint, config, images, quant, device, activations, max_length)


def open_embedder(
    source: str | Path | ModelFolder, quant: str | Recipe | None = None, device: str | None = None, *,
    max_length: int | None = None, prefixes: Mapping[str, str] | None = None, pooling: str | None = None,
) -> Embedder:  # fmt: skip
    """Whatever makes vectors of texts: an `Embedder` of sentences, or an `ImageText`. Arguments and errors: as of
    `Embedder.from_folder`."""
    folder = open_model(locate(source, EMBED)) if isinstance(source, str | Path) else source
    if not is_image_text(folder.config):
        return Embedder.from_folder(folder, quant, device, max_length=max_length, prefixes=prefixes, pooling=pooling)
    if pooling is not None:
        raise TinywebError(f"{folder.path} has one vector for each text already: leave out --pooling")
    found = load_image_text(folder, quant, device, max_length=max_length)
    if isinstance(found, ImageEmbedder):
        raise ModelFormatError(f"{folder.path} has the tower of pictures only: texts need the whole model")
    found.settings = replace(found.settings, prefixes={**found.settings.prefixes, **(prefixes or {})})
    return found


def _texts(
    folder: ModelFolder, checkpoint: Checkpoint, config: ImageTextConfig, images: ImageEmbedder | None,
    quant: str | Recipe | None, device: str | None, activations: str | None, max_length: int | None,
) -> ImageText:  # fmt: skip
    c = config.text
    assert c is not None
    model = Encoder(c, TEXT_NAMES, checkpoint, quant, device, activations)
    backend = read_backend(folder)
    if (words := backend.get_vocab_size(with_added_tokens=True)) > c.vocab_size:
        raise ModelFormatError(f"{folder.path}: tokenizer.json has {words} tokens, the model {c.vocab_size}")
    longest = max_length or c.positions
    if not 3 <= longest <= c.positions or (config.filled and longest != c.positions):
        allowed = f"{c.positions} only" if config.filled else f"3 to {c.positions}"
        raise TinywebError(f"texts of {longest} tokens are not possible: {folder.path} allows {allowed}")
    pad = _pad(folder, backend, config) if config.filled else None
    if pad is not None and pad >= c.vocab_size:
        raise ModelFormatError(
            f"{folder.path}: short texts are to be filled with token {pad}, the model has {c.vocab_size}"
        )
    name, bias = ("text_projection", False) if config.family == "CLIP" else (model.load.prefix + "head", True)
    layer = model.load.plain(name, config.width, bias)
    settings = EmbeddingSettings(pooling=("lasttoken",), max_length=longest)
    scale, shift = math.exp(min(_number(checkpoint, "logit_scale"), 80)), _number(checkpoint, "logit_bias")
    return ImageText(model, backend, settings, Projection(layer, config.width), images, pad, config.end, scale, shift)


def _number(checkpoint: Checkpoint, name: str) -> float:
    """A tensor of one number; 0 where there is none."""
    if name not in checkpoint:
        return 0.0
    return float(checkpoint.read(name, (1,) if checkpoint.entry(name).shape else ()).reshape(()))


def _pad(folder: ModelFolder, backend: tokenizers.Tokenizer, config: ImageTextConfig) -> int:
    """The token that texts are filled with."""
    if (told := filled_with(folder)) is not None:
        return told
    given = folder.read_config("tokenizer_config.json", required=False).values.get("pad_token")
    text = given.get("content") if isinstance(given, dict) else given
    found = backend.token_to_id(text) if isinstance(text, str) else None
    return config.pad if found is None else found
