"""Cross-encoders: how well passages answer queries, for pairs that are read together (Nogueira and Cho 2019).

reranker = Reranker.from_folder("ms-marco-MiniLM-L6-v2")
reranker.score([("how do plants eat", "Leaves turn light into sugar."), ("how do plants eat", "Trains run on rails.")])
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import tokenizers

from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.control_tokens import ControlTokens, guarded_backend, understood
from tinyweb.formats.huggingface import Config, ModelFolder
from tinyweb.formats.source import open_model
from tinyweb.formats.tokenizer import read_backend
from tinyweb.models import encoder
from tinyweb.models.embedding import LENGTHS, batch_size, pad, padded_lengths
from tinyweb.models.encoder import Encoder
from tinyweb.models.encoder.head import Head, read_head
from tinyweb.nn.precision import Recipe
from tinyweb.sources import EMBED, locate
from tinyweb.tensor import Tensor
from tinyweb.tracing import jit


class Reranker:
    """An encoder with a head that gives one score, and its tokenizer. `sigmoid`: scores are between 0 and 1."""

    def __init__(self, model: Encoder, head: Head, backend: tokenizers.Tokenizer, max_length: int, sigmoid: bool):
        self.model, self.head, self.backend, self.sigmoid = model, head, backend, sigmoid
        self.max_length = max_length
        self.backend.no_padding()
        self.backend.enable_truncation(max_length)
        self._run = jit(self.scores)

    @classmethod
    def from_folder(
        cls, source: str | Path | ModelFolder, quant: str | Recipe | None = None, device: str | None = None,
        activations: str | None = None, *, max_length: int | None = None,
    ) -> Self:  # fmt: skip
        """Reads a Hugging Face folder of a model `…ForSequenceClassification` with one class.

        `quant`, `activations`: as of `encoder.load`. `max_length`: tokens after which pairs are cut, the longer text
        first; at most what the encoder reads.

        Raises ModelFormatError for a folder that is missing, damaged or not supported; TinywebError for an option that
        cannot be.
        """
        folder = open_model(locate(source, EMBED)) if isinstance(source, str | Path) else source
        config = read_head(folder.config)
        model = encoder.load(folder, quant, device, activations)
        if max_length is not None and not 3 <= max_length <= model.config.positions:
            raise TinywebError(
                f"pairs of {max_length} tokens are not possible: {folder.path} allows 3 to {model.config.positions}"
            )
        length = max_length or model.config.positions
        return cls(model, Head(config, model.load), read_backend(folder), length, _sigmoid(folder.config))

    def scores(self, ids: Tensor, types: Tensor, lengths: Tensor) -> Tensor:
        """Scores (batch,) of ids (batch, tokens), of which the first `lengths` (batch,) are a pair."""
        tokens = ids.shape[1]
        assert isinstance(tokens, int)
        inside = Tensor.arange(tokens, device=ids.device).unsqueeze(0) < lengths.unsqueeze(1)
        kinds = types if self.model.config.token_types > 1 else None  # whatever the tokenizer says
        found = self.head(self.model(ids, inside, kinds), lengths)
        return found.sigmoid() if self.sigmoid else found

    def score(self, pairs: Sequence[tuple[str, str]]) -> npt.NDArray[np.float32]:
        """Scores (pairs,) float32 of (query, passage), the better the higher."""
        control, backend = self._guarded  # a text that names a special token is text
        texts = [(control.guard(a), control.guard(b)) for a, b in pairs]
        with understood():
            read = backend.encode_batch(texts, add_special_tokens=True)
        out = np.empty(len(read), np.float32)
        waiting = sorted(range(len(read)), key=lambda i: len(read[i].ids))
        for length in padded_lengths(self.max_length, (*LENGTHS, 2048)):
            fits = [i for i in waiting if len(read[i].ids) <= length]
            waiting = waiting[len(fits) :]
            while fits:
                count = batch_size(length) if 2 * len(fits) > batch_size(length) else 1
                now, fits = fits[:count], fits[count:]
                ids, lengths = pad([read[i].ids for i in now], count, length)
                types, _ = pad([read[i].type_ids for i in now], count, length)
                out[now] = self._run(*(Tensor(x, device=self.model.device) for x in (ids, types, lengths))).numpy()[
                    : len(now)
                ]
        return out

    @cached_property
    def _guarded(self) -> tuple[ControlTokens, tokenizers.Tokenizer]:
        return guarded_backend(self.backend)


def _sigmoid(c: Config) -> bool:
    """What a cross-encoder's file says of its last step; usually a sigmoid."""
    own = c.section("sentence_transformers") or Config({}, c.where)
    name = own.word("activation_fn", c.word("sbert_ce_default_activation_function", "Sigmoid")).rpartition(".")[2]
    if name not in ("Sigmoid", "Identity"):
        raise ModelFormatError(f"{c.where}: 'activation_fn' {name[:40]!r} is not supported, only Sigmoid and Identity")
    return name == "Sigmoid"
