"""The repetition penalty makes what was said less likely, whatever the sign of its logit, for 64 tokens."""

from __future__ import annotations

import numpy as np
import pytest

from tinyweb import Tensor, Variable
from tinyweb.nn.sampling import sample

VOCABULARY = 9
POSITION = Variable("start_pos", 0, 199)


def likeliest(logits: np.ndarray, ids: np.ndarray, position: int, penalty: float) -> int:
    floats, integers = Tensor(np.array([0, 1, penalty, 0], np.float32)), Tensor(np.zeros(2, np.int32))
    at = POSITION.bind(position)
    return int(sample(Tensor(logits[None]), Tensor(ids).realize(), at, floats, integers).numpy()[position + 1])


@pytest.mark.parametrize(
    ("said", "unsaid", "penalty", "taken"),
    [
        (-1.0, -1.5, 1.0, "said"),
        (-1.0, -1.5, 1.4, "said"),
        (-1.0, -1.5, 1.6, "unsaid"),  # -1 becomes -1.6
        (-1.0, -0.5, 0.4, "said"),  # below 1 it is a reward
        (0.8, 0.7, 1.3, "unsaid"),  # 0.8 becomes 0.62
        (3.0, 2.0, 1.4, "said"),
        (3.0, 2.0, 1.6, "unsaid"),  # 3 becomes 1.875
        (0.0, -0.5, 9.0, "said"),  # nothing makes 0 less
        (1.0, -0.5, 9.0, "said"),  # and a positive logit does not become negative
    ],
)
def test_a_token_said_before(said: float, unsaid: float, penalty: float, taken: str) -> None:
    logits = np.full(VOCABULARY, -50, np.float32)
    logits[3], logits[5] = said, unsaid
    ids = np.zeros(201, np.int32)
    ids[:3] = 3, 3, 1
    assert likeliest(logits, ids, 2, penalty) == (3 if taken == "said" else 5)


@pytest.mark.parametrize(("ago", "counts"), [(0, True), (1, True), (62, True), (63, True), (64, False), (65, False)])
def test_how_far_it_looks_back(ago: int, counts: bool) -> None:
    """63 tokens before the last one; not at what comes after it."""
    logits = np.full(VOCABULARY, -50, np.float32)
    logits[3], logits[5] = -1.0, -1.5
    ids = np.ones(201, np.int32)
    position = 120
    ids[position - ago] = 3
    ids[position + 1 :] = 5
    assert likeliest(logits, ids, position, 2.0) == (5 if counts else 3)
