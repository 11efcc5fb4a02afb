"""What is served: language models with what makes their answers, and models that make vectors of texts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.api.errors import ApiError
from tinyweb.api.one_by_one import OneByOne
from tinyweb.api.scheduler import Engine, Scheduler
from tinyweb.errors import TinywebError
from tinyweb.formats.huggingface import ModelFolder
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models.chat import Chat, Settings
from tinyweb.models.decoder.batch import Batch
from tinyweb.models.decoder.model import Decoder
from tinyweb.models.decoder.paged import pages_for
from tinyweb.models.embedding import Embedder
from tinyweb.models.image_text import open_embedder

CHUNK = 64  # tokens of prompts that a step reads at least, beside the next ones of answers
CONTEXTS, LEAST_PAGES = 4, 16  # whole contexts that the cache holds where nothing was said; pages for each answer
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Options:
    """How models are served: `quant`, `context`, `device`, `cache`: as of `models.load`; `parallel`: answers at a time;
    `cache_tokens`: positions that the paged cache has for all of them, None: for some whole contexts;
    `chat_template`: a file in place of a model's own."""

    quant: str | None = None
    context: int | None = None
    device: str | None = None
    cache: str | None = None
    parallel: int = 64
    cache_tokens: int | None = None
    chat_template: Path | None = None


@dataclass
class Vectors:
    """Vectors of texts. `opened`: the model, opened when it is first needed; its methods run in the thread that
    computes."""

    opened: Callable[[], Embedder]
    _embedder: Embedder | None = field(default=None, init=False)

    @property
    def embedder(self) -> Embedder:
        """The model."""
        if self._embedder is None:
            self._embedder = self.opened()
        return self._embedder

    def encode(self, texts: Sequence[str], kind: str) -> tuple[npt.NDArray[np.float32], int]:
        """The vectors (texts, dimensions) float32, and how many tokens were read."""
        count = sum(len(ids) for ids in self.embedder.tokens(texts, kind))
        return self.embedder.encode(texts, kind), count


@dataclass
class Served:
    """A model by the name that requests call it. `engine` and `tokenizer`: of one that makes texts; `settings`: how it
    chooses tokens where a request does not say; `note`: what is worth knowing about it."""

    name: str
    vectors: Vectors
    engine: Engine | None = None
    tokenizer: Tokenizer | None = None
    settings: Settings = field(default_factory=Settings)
    context: int = 0
    note: str | None = None
    created: int = field(default_factory=lambda: int(time.time()))

    def writer(self) -> tuple[Engine, Tokenizer]:
        """What makes texts; ApiError where this is a model of vectors."""
        if self.engine is None or self.tokenizer is None:
            raise ApiError(
                400, f"{self.name} makes vectors of texts: ask /v1/embeddings", "model", "model_not_supported"
            )
        return self.engine, self.tokenizer

    def card(self) -> dict[str, Any]:
        """What /v1/models tells of it."""
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "tinyweb"}


def serve_model(folder: ModelFolder, name: str, options: Options, progress: Progress | None = None) -> Served:
    """Reads a model and prepares it. Raises as `models.load`; TinywebError for a model that neither writes nor makes
    vectors, and for a cache too small for one context."""
    from tinyweb.models import encoder, is_embedder, load
    from tinyweb.models.encoder.architectures.image_text import is_image_text
    from tinyweb.models.encoder.head import has_head

    config = folder.config
    if encoder.is_encoder(config) and has_head(config):
        raise TinywebError(f"{folder.path} gives scores of pairs of texts, which the protocol has no request for")
    vectors = Vectors(lambda: open_embedder(folder, options.quant, options.device, max_length=options.context))
    if encoder.is_encoder(config) or is_embedder(folder) or is_image_text(config):
        note = vectors.embedder.note
        return Served(name, vectors, note=note)
    tokenizer = Tokenizer.from_folder(folder, options.chat_template)
    model = load(folder, options.quant, options.context, options.device, cache=options.cache)
    engine, note = make_engine(model, tokenizer, options, progress)
    return Served(name, vectors, engine, tokenizer, Settings.of_folder(folder), model.context, note)


def make_engine(
    model: Any, tokenizer: Tokenizer, options: Options, progress: Progress | None = None
) -> tuple[Engine, str | None]:
    """What makes the answers of a language model, and what is to be known about it."""
    if not isinstance(model, Decoder) or not model.rewinds:
        why = "a graph of ONNX" if not isinstance(model, Decoder) else "a model whose layers have states"
        note = f"{why} makes one answer at a time: others wait"
        return OneByOne(Chat(model, tokenizer, progress=progress)), note
    tokens = options.cache_tokens
    if tokens is not None and tokens < model.context:
        raise TinywebError(
            f"a cache of {tokens} tokens cannot hold one context of {model.context}: raise --cache-tokens, or lower "
            "--context"
        )
    whole = pages_for(model, model.context)
    pages = min(max(CONTEXTS * whole, options.parallel * LEAST_PAGES), options.parallel * whole)
    pages = pages if tokens is None else pages_for(model, tokens)
    batch = Batch(model, pages, options.parallel + CHUNK)
    batch.prepare(progress)
    return Scheduler(batch, options.parallel), None
