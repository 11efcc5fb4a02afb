"""Text of an answer as it comes, and where it ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tinyweb.api.generation import Generation, Piece
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models.chat import Settings

TEXT = "Once upon a time, there was a curious dog — and a café 🐕 who lived in a green garden."


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_folder(Path(__file__).parents[2] / "assets" / "models" / "tinychat-7m")


def answer(
    tokenizer: Tokenizer, ids: list[int], stops: tuple[str, ...] = (), most: int = 1000, chances: int | None = None
):
    """The pieces of an answer that has these tokens, or begins with them."""
    pieces: list[Piece] = []
    made = Generation(tokenizer, [7], Settings(max_tokens=most), 1000, pieces.append, stops, chances)
    logits = np.random.default_rng(0).standard_normal((len(ids), tokenizer.vocab_size)).astype(np.float32) * 5
    for token, row in zip(ids, logits):
        if made.ended:
            break
        made.push(token, None if chances is None else row)
    return made, pieces, logits


def said(pieces: list[Piece]) -> str:
    return "".join(p.text for p in pieces)


def test_ends(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT)
    made, pieces, _ = answer(tokenizer, [*ids, tokenizer.eos[0]])
    assert said(pieces) == TEXT and pieces[-1].finish == "stop" and pieces[-1].produced == len(ids) + 1 and made.ended
    made, pieces, _ = answer(tokenizer, ids, most=7)
    assert said(pieces) == tokenizer.decode(ids[:7]) and pieces[-1].finish == "length" and made.produced == 7


@pytest.mark.parametrize(
    "stop", [" time", "e, th", "dog — and", "🐕", "O", "garden.", "no such text", "a a", "upon a t"]
)
def test_stop_texts_never_show(tokenizer: Tokenizer, stop: str) -> None:
    """In one token, in many, in half of one: what comes before is given out, nothing of the rest."""
    _, pieces, _ = answer(tokenizer, [*tokenizer.encode(TEXT), tokenizer.eos[0]], ("never", stop))
    assert said(pieces) == TEXT.partition(stop)[0]
    assert [p.last for p in pieces] == [False] * (len(pieces) - 1) + [True] and pieces[-1].finish == "stop"
    for end in range(len(pieces)):
        assert stop not in said(pieces[:end])


def test_the_first_of_several_stop_texts(tokenizer: Tokenizer) -> None:
    """The one that is complete first."""
    _, pieces, _ = answer(tokenizer, tokenizer.encode(TEXT), (" there", "time", "upon a time, the"))
    assert said(pieces) == "Once upon a "


@pytest.mark.parametrize("stops", [(), ("curious",), ("🐕 who",)])
def test_chances_belong_to_the_text(tokenizer: Tokenizer, stops: tuple[str, ...]) -> None:
    ids = tokenizer.encode(TEXT)
    _, pieces, logits = answer(tokenizer, [*ids, tokenizer.eos[0]], stops, chances=3)
    told = [t for p in pieces for t in p.tokens]
    text = said(pieces)
    assert [t.chance.token for t in told] == ids[: len(told)] and all(t.offset <= len(text) for t in told)
    assert len(told) == len(ids) if not stops else tokenizer.decode(ids[: len(told)]).startswith(text)
    for each, row in zip(told, logits):
        wide = row.astype(np.float64)
        chances = wide - np.log(np.exp(wide - wide.max()).sum()) - wide.max()
        np.testing.assert_allclose(each.chance.logprob, chances[each.chance.token], rtol=1e-6)
        assert [o.token for o in each.others] == list(np.argsort(-chances)[:3])


def test_text_of_tokens(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("Hello there, dog")
    assert "".join(map(tokenizer.token_text, ids)) == "Hello there, dog"
    assert tokenizer.token_text(tokenizer.eos[0])
