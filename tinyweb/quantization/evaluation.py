"""What quantisation does to a model's answers, beside the same model with the weights that it came with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.models.decoder import Decoder
from tinyweb.tensor import Tensor
from tinyweb.tracing import jit

Each = Callable[[], None]


@dataclass(frozen=True)
class Predictions:
    """Of the tokens of texts, each after those before it. `losses`: minus the logarithm of the probability that the
    model gave to the token; `likeliest`: the token that it gave most."""

    losses: npt.NDArray[np.float32]
    likeliest: npt.NDArray[np.intp]

    @property
    def perplexity(self) -> float:
        """e to the mean loss."""
        return float(np.exp(self.losses.mean(dtype=np.float64)))


def predict(model: Decoder, texts: Sequence[npt.NDArray[np.int32]], each: Each = lambda: None) -> Predictions:
    """What a language model says of texts of token ids, each (tokens,) of one length within its context."""
    run = jit(lambda ids: model.project(model.forward(ids, 0, model.caches)[0]).realize(), freeze=False)
    losses, likeliest = [], []
    for text in texts:
        logits = run(Tensor(text[None], device=model.device)).numpy()[:-1]
        largest = logits.max(1, keepdims=True)
        total = np.log(np.exp(logits - largest).sum(1)) + largest[:, 0]
        losses.append(total - logits[np.arange(len(logits)), text[1:]])
        likeliest.append(logits.argmax(1))
        each()
    return Predictions(np.concatenate(losses), np.concatenate(likeliest))


def compare_predictions(before: Predictions, after: Predictions) -> dict[str, Any]:
    """For a report: how many tokens; perplexity before and after, and its growth as a part; the part of tokens after
    which both have the same likeliest one."""
    return {
        "tokens": len(before.losses),
        "perplexity": {"f32": before.perplexity, "quantised": after.perplexity},
        "perplexity_growth": after.perplexity / before.perplexity - 1,
        "agreement": float((before.likeliest == after.likeliest).mean()),
    }


def compare_vectors(before: npt.NDArray[np.float32], after: npt.NDArray[np.float32]) -> dict[str, Any]:
    """For a report: of vectors (pieces of text, dimensions) the mean and the least cosine between before and after;
    the part of pieces whose nearest other one is the same, where there is a choice: of three pieces or more."""
    first, second = (v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in (before, after))
    cosines = (first * second).sum(1)
    nearest = []
    for vectors in (first, second):
        similar = vectors @ vectors.T
        np.fill_diagonal(similar, -np.inf)
        nearest.append(similar.argmax(1))
    found = {"pieces": len(before), "cosine": {"mean": float(cosines.mean()), "least": float(cosines.min())}}
    return found | ({"agreement": float((nearest[0] == nearest[1]).mean())} if len(before) > 2 else {})
