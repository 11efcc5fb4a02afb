"""How models read text: language models, and what makes vectors of texts, by one interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tinyweb.errors import TinywebError
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models.decoder import Decoder
from tinyweb.models.embedding import Embedder
from tinyweb.nn.state import get_state_dict
from tinyweb.quantization.evaluation import compare_predictions, compare_vectors, predict
from tinyweb.quantization.texts import Ids, blocks
from tinyweb.tensor import Tensor
from tinyweb.tracing import jit

PIECE = 64  # tokens of a text that a vector is made of


class Reader(Protocol):
    """A model with what it takes to read a text."""

    @property
    def model(self) -> Any: ...
    @property
    def device(self) -> str | None: ...

    def blocks(self, text: str, least: int, what: str) -> list[Ids]:
        """Token ids in blocks of one length, at least so many; TinywebError, naming `what`, where there are too few."""

    def read(self, ids: Tensor) -> Any:
        """Runs the network on ids (1, tokens)."""

    def measure(self, texts: Sequence[Ids], each: Callable[[], None]) -> Any:
        """What it says of texts, to be compared."""

    def compare(self, before: Any, after: Any) -> dict[str, Any]:
        """What was measured of two, for a report."""

    def weight_bytes(self) -> int:
        """Bytes of all weights."""


@dataclass(frozen=True)
class ChatReader:
    """A language model: each token is predicted from those before it."""

    model: Decoder
    tokenizer: Tokenizer

    @property
    def device(self) -> str | None:
        return self.model.device

    def blocks(self, text: str, least: int, what: str) -> list[Ids]:
        ids = self.tokenizer.encode(text)
        vocabulary = self.model.config.vocab_size
        if ids and max(ids) >= vocabulary:
            raise TinywebError(f"{what} has the token {max(ids)}, but the model's vocabulary ends at {vocabulary - 1}")
        bos = self.tokenizer.bos
        return blocks(ids, self.model.context, bos if bos is None or bos < vocabulary else None, least, what)

    def read(self, ids: Tensor) -> Any:
        return self.model.project(self.model.forward(ids, 0, self.model.caches))

    def measure(self, texts: Sequence[Ids], each: Callable[[], None]) -> Any:
        return predict(self.model, texts, each)

    def compare(self, before: Any, after: Any) -> dict[str, Any]:
        return compare_predictions(before, after)

    def weight_bytes(self) -> int:
        return sum(t.nbytes() for t in self.model.weights.values())


@dataclass(frozen=True)
class EmbedReader:
    """What makes vectors of texts: of pieces of a text that are as long as usual ones."""

    model: Embedder

    @property
    def device(self) -> str | None:
        return self.model.model.device

    def blocks(self, text: str, least: int, what: str) -> list[Ids]:
        lines = [line for line in text.splitlines() if line.strip()]
        ids = [i for row in self.model.tokens(lines) for i in row]
        return blocks(ids, min(self.model.settings.max_length, PIECE), None, least, what)

    def read(self, ids: Tensor) -> Any:
        return self.model.model(ids)

    def measure(self, texts: Sequence[Ids], each: Callable[[], None]) -> npt.NDArray[np.float32]:
        run = jit(self.model.vectors, freeze=False)
        found = []
        for text in texts:
            ids = Tensor(text[None], device=self.device)
            lengths = Tensor(np.array([len(text)], np.int32), device=self.device)
            found.append(run(ids, lengths).numpy()[0])
            each()
        return np.stack(found)

    def compare(self, before: Any, after: Any) -> dict[str, Any]:
        return compare_vectors(before, after)

    def weight_bytes(self) -> int:
        tensors = {id(t): t for t in get_state_dict(self.model).values()}
        return sum(t.nbytes() for t in tensors.values())
