"""The chat loop: context rule, cache reuse, limits, seeds, and text that equals its tokens."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.models.conftest import LLAMA3
from tinyweb import Tensor
from tinyweb.errors import TinywebError
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models import load
from tinyweb.models.chat import Chat, Settings, choose_block, draft
from tinyweb.models.fit import Fitted, fit_messages

Messages = Sequence[Mapping[str, str]]
GREEDY = Settings(temperature=0, max_tokens=24)
STORY = [{"role": "user", "content": "Tell me a story about a fox."}]


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


# -- the rule ----------------------------------------------------------------------------------------------------------
def words(messages: Messages) -> list[int]:
    """A stand-in for a tokenizer: one id per word."""
    return [len(w) for m in messages for w in m["content"].split()]


SYSTEM, LONG = message("system", "a b c"), message("user", "w " * 10)
TURNS = [message("user", "u u"), message("assistant", "v v v"), message("user", "x x"), message("assistant", "y y y")]


def test_everything_fits() -> None:
    fitted = fit_messages([SYSTEM, *TURNS, LONG], 100, 50, words)
    assert (len(fitted.ids), fitted.dropped) == (23, 0)


@pytest.mark.parametrize(
    ("context", "max_tokens", "kept", "dropped"),
    [
        (48, 25, 23, 0),  # room for half of the context is enough
        (46, 25, 23, 0),
        (45, 25, 23, 0),
        (44, 22, 18, 2),  # the first turn goes, question and answer together
        (35, 17, 18, 2),
        (34, 17, 13, 4),
        (29, 99, 13, 4),  # only what must stay is left: a shorter answer is accepted
    ],
)
def test_oldest_turns_go_first(context: int, max_tokens: int, kept: int, dropped: int) -> None:
    fitted = fit_messages([SYSTEM, *TURNS, LONG], context, max_tokens, words)
    assert (len(fitted.ids), fitted.dropped) == (kept, dropped)
    assert fitted.ids == words([SYSTEM, *TURNS[dropped:], LONG])


def said(system: int, question: int) -> list[dict[str, str]]:
    return [message("system", "s " * system), *TURNS, message("user", "w " * question)]


@pytest.mark.parametrize(
    ("messages", "context", "max_tokens", "what"),
    [
        (
            said(3, 10),
            24,
            99,
            r"The system prompt and the message together are too long by 1 tokens: the prompt takes 13 \(3 the sys",
        ),
        (
            [LONG],
            10,
            1,
            r"The message is too long by 1 tokens: .* \(10 the message\), and this model reads at most 10 .*, for",
        ),
        (
            said(90, 2),
            100,
            40,
            r"The system prompt is too long by 8 tokens: the prompt takes 92 \(90 the system prompt, 2 the",
        ),
        (said(8, 84), 100, 40, r"The system prompt and the message together are too long by 8 tokens: .* shorten them"),
        (
            said(90, 90),
            100,
            40,
            r"The system prompt and the message together are too long by 96 tokens: .* 16 are kept",
        ),
        (
            [SYSTEM],
            3,
            1,
            r"The system prompt is too long by 1 tokens: the prompt takes 3 \(3 the system prompt\), and th",
        ),
    ],
)
def test_what_is_too_long_is_said(messages: Messages, context: int, max_tokens: int, what: str) -> None:
    with pytest.raises(TinywebError, match=what):
        fit_messages(messages, context, max_tokens, words)


def by_the_rule(messages: Messages, context: int, max_tokens: int, encode: Callable[[Messages], list[int]]) -> Fitted:
    """One turn after the other is left out until the rest fits."""
    first = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
    reserve, start = min(max_tokens, context // 2), first
    while True:
        ids = encode([*messages[:first], *messages[start:]])
        if len(ids) + reserve <= context:
            return Fitted(ids, start - first)
        if start >= len(messages) - 1:
            if len(ids) + min(reserve, 16) <= context:
                return Fitted(ids, start - first)
            raise TinywebError("too long by")
        start += 1
        while start < len(messages) - 1 and messages[start]["role"] != "user":
            start += 1


def greeting(messages: Messages) -> list[int]:
    """Says more to short conversations."""
    return [*words(messages), *([7] * 6 if len(messages) < 4 else [])]


def forgetful(messages: Messages) -> list[int]:
    """Leaves out most of the answers before the last."""
    return [i for m in messages for i in words([m])[: 2 if m["role"] == "assistant" else None]]


def strict(messages: Messages) -> list[int]:
    """Refuses two questions in a row, and answers at the start."""
    before = "assistant"
    for m in messages:
        if m["role"] != "system":
            if m["role"] == before:
                raise TinywebError("Roles must alternate.")
            before = m["role"]
    return words(messages)


def talkative(messages: Messages) -> list[int]:
    """Refuses short conversations."""
    if len(messages) < 2:
        raise TinywebError("Say more.")
    return words(messages)


@pytest.mark.parametrize("encode", [words, greeting, forgetful, strict, talkative])
def test_the_fewest_turns_go(encode: Callable[[Messages], list[int]]) -> None:
    rng = Random(f"fit {encode.__name__}")
    outcomes: Counter[str] = Counter()
    for round in range(200):
        orderly = rng.random() < 0.6
        messages = [message("system", "s " * rng.randrange(5)) for _ in range(rng.randrange(3))]
        for i in range(1 + rng.randrange(60 if round % 3 == 0 else 8)):
            role = ("user", "assistant")[i % 2] if orderly else rng.choice(("user", "user", "assistant", "tool"))
            messages.append(message(role, f"{'w' * rng.randrange(9)} " * rng.choice((2, 5, 9, 60))))
        context, max_tokens = 20 + rng.randrange(200), 1 + rng.randrange(100)
        results: list[Fitted | str] = []
        for fit in (by_the_rule, fit_messages):
            try:
                results.append(fit(messages, context, max_tokens, encode))
            except TinywebError as error:
                results.append("too long" if "too long by" in str(error) else str(error))
        assert results[0] == results[1]
        first = results[0]
        outcomes["refused" if isinstance(first, str) else "cut" if first.dropped else "whole"] += 1
    assert min(outcomes[name] for name in ("refused", "cut", "whole")) > 5


def test_a_long_conversation_is_read_a_few_times() -> None:
    counts: list[int] = []

    def encode(messages: Messages) -> list[int]:
        ids = words(messages)
        counts.append(len(ids))
        return ids

    turns = [message("user", "a b c"), message("assistant", "d e f g h")]
    for repeat in (1000, 4000):
        counts.clear()
        fitted = fit_messages([SYSTEM, *turns * repeat, LONG], 512, 256, encode)
        assert 240 < len(fitted.ids) <= 256
        # all of it once, then no more than about what is kept
        assert counts[0] == 8 * repeat + 13 and len(counts) < 8 and max(counts[1:]) < 400
    counts.clear()
    fit_messages([SYSTEM, *turns, LONG], 512, 256, encode)
    assert len(counts) == 1


def test_small_answers_need_little_room() -> None:
    assert fit_messages([LONG], 11, 1, words).dropped == 0


# -- blocks and guesses ------------------------------------------------------------------------------------------------
def test_blocks_cost_little_beyond_the_tokens() -> None:
    def cover(tokens: int) -> list[int]:
        taken: list[int] = []
        while tokens > 0:
            taken.append(choose_block((256, 64, 8, 1), tokens))
            tokens -= taken[-1]
        return taken

    assert [cover(n) for n in (1, 8, 9, 64)] == [[1], [8], [8, 1], [64]]
    assert cover(600) == [256, 256, 64, 8, 8, 8]
    for n in range(1, 600):
        assert n <= sum(cover(n)) <= max(n + 5, 1.35 * n)


def test_drafts_are_what_followed_the_latest_place_that_reads_alike() -> None:
    assert draft([1, 2, 3, 9, 1, 2, 4, 7, 1, 2], 3) == [4, 7, 1]
    assert draft([5, 1, 2, 3, 9, 8, 1, 2, 4, 5, 1, 2], 2) == [3, 9]  # three alike before two
    assert draft([7, 7, 7], 4) == [7]
    assert draft([1, 2, 3], 4) == draft([1], 4) == []


# -- the loop ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def chat(model_folder: Path) -> Chat:
    return Chat(load(model_folder, "q8"), Tokenizer.from_folder(model_folder))


@pytest.fixture(scope="module")
def steady_chat(model_folder: Path) -> Chat:
    """Activations are not rounded: how many tokens are computed at a time changes logits by some 1e-6 only."""
    model = load(model_folder, "q8", activations="float")
    return Chat(model, Tokenizer.from_folder(model_folder))


def test_text_is_the_text_of_the_tokens(chat: Chat) -> None:
    parts = list(chat.generate(STORY, Settings(temperature=0, max_tokens=200)))
    assert parts[-1].token in chat.tokenizer.eos and parts[-1].text == ""
    assert "".join(p.text for p in parts) == chat.tokenizer.decode([p.token for p in parts])
    assert chat.statistics.tokens_per_second > 0 and chat.statistics.first_token_seconds > 0


def test_a_shared_beginning_is_read_once(chat: Chat) -> None:
    first = [message("user", "My name is Ada.")]
    text, tokens = chat.answer(first, GREEDY)
    second = [*first, message("assistant", text), message("user", "What is my name?")]
    answer, _ = chat.answer(second, GREEDY)
    # all of the first prompt and of the answer, but for the end token, which was never read
    assert chat.statistics.reused >= len(chat.tokenizer.prompt(first)) + len(tokens) - 1
    assert "Ada" in answer
    chat.answer([message("user", "Hello!")], GREEDY)
    afresh, _ = chat.answer(second, GREEDY)
    assert chat.statistics.reused <= 5 and afresh == answer  # the header of the first message


def test_the_last_token_of_a_known_prompt_is_read_again(steady_chat: Chat) -> None:
    once = steady_chat.answer(STORY, GREEDY)
    assert steady_chat.answer(STORY, GREEDY) == once
    assert steady_chat.statistics.reused == len(steady_chat.tokenizer.prompt(STORY)) - 1


def test_breaking_off_does_no_harm(steady_chat: Chat) -> None:
    whole = steady_chat.answer(STORY, GREEDY)
    for part in steady_chat.generate(STORY, GREEDY):
        if part.text:
            break
    assert steady_chat.answer(STORY, GREEDY) == whole


def test_seeds(steady_chat: Chat) -> None:
    def tell(seed: int) -> str:
        return steady_chat.answer(STORY, Settings(temperature=1.0, max_tokens=24, seed=seed))[0]

    assert tell(1) == tell(1) == tell(1 + 2**32)
    assert len({tell(s) for s in range(-2, 3)}) > 2


def test_sampling_without_heat_is_greedy(steady_chat: Chat) -> None:
    greedy = steady_chat.answer(STORY, GREEDY)
    for settings in (
        Settings(temperature=1.0, top_k=1, max_tokens=24),
        Settings(temperature=1.0, top_p=0.0, max_tokens=24),
        Settings(temperature=1e-6, max_tokens=24),
    ):
        assert steady_chat.answer(STORY, settings) == greedy


def test_repetition_penalty_changes_words(chat: Chat) -> None:
    heavy = Settings(temperature=0, repetition_penalty=5.0, max_tokens=24, seed=3)
    _, tokens = chat.answer(STORY, heavy)
    assert tokens != chat.answer(STORY, GREEDY)[1]
    assert len(set(tokens)) == len(tokens)


def test_max_tokens(chat: Chat) -> None:
    for n in (1, 2, 5):
        assert len(chat.answer(STORY, Settings(temperature=0, max_tokens=n))[1]) == n


def test_long_conversations_lose_their_beginning(chat: Chat) -> None:
    turns = [message("system", "You are TinyChat."), message("user", "My name is Zed.")]
    for i in range(30):
        turns += [message("assistant", "A cow says moo! " * 3), message("user", f"What is {i} plus 2?")]
    text, _ = chat.answer(turns, GREEDY)
    assert chat.statistics.dropped > 0 and "31" in text
    with pytest.raises(TinywebError, match="too long"):
        chat.answer([message("user", "word " * 600)], GREEDY)


def test_context_is_used_to_its_end(make_llama, reference, model_folder: Path) -> None:  # type: ignore[no-untyped-def]
    """Greedy ids up to the last position are those of `transformers`; a prompt may fill the context."""
    folder = make_llama(tie_word_embeddings=True, rope_parameters=LLAMA3)
    tokenizer = Tokenizer.from_folder(model_folder)
    tokenizer.eos = ()
    chat = Chat(load(folder, context=20), tokenizer)
    prompt = [int(i) for i in np.random.default_rng(5).integers(0, 517, 20)]
    ids = list(chat.generate_ids(prompt[:15], Settings(temperature=0, max_tokens=99)))
    assert len(ids) == 6  # positions 15 … 19, and the token after them
    want = reference(folder, np.array([prompt[:15] + ids[:5]]))[0, 14:].argmax(-1)
    assert ids == want.tolist()
    assert len(list(chat.generate_ids(prompt, Settings(temperature=0, max_tokens=99)))) == 1
    for wrong in ([], [*prompt, 1]):
        with pytest.raises(TinywebError, match="1 to 20 are possible"):
            next(chat.generate_ids(wrong))


def test_cache_survives_calls_of_the_model(steady_chat: Chat) -> None:
    """A call with another batch size has caches of its own."""
    whole = steady_chat.answer(STORY, GREEDY)
    steady_chat.model(Tensor(np.zeros((2, 5), np.int32))).numpy()  # type: ignore[operator]
    assert steady_chat.answer(STORY, GREEDY) == whole


@pytest.mark.parametrize("speculate", [1, 3, 50])
def test_guessing_ahead_changes_nothing(steady_chat: Chat, speculate: int) -> None:
    chat = steady_chat
    repeat = [message("user", "Say it again: the fox and the hen and the fox and the hen and the fox and the hen.")]
    for messages, tokens in ((repeat, 24), (STORY, 24), (repeat, 3)):
        plain = chat.answer(messages, Settings(temperature=0, max_tokens=tokens))
        chat.forget()
        assert chat.answer(messages, Settings(temperature=0, max_tokens=tokens, speculate=speculate)) == plain
        cached = chat._cached
        assert chat.model.ids.numpy()[: len(cached)].tolist() == cached
    hot = Settings(temperature=0.8, max_tokens=8, seed=1, speculate=0)
    assert chat.answer(repeat, replace(hot, speculate=speculate)) == chat.answer(repeat, hot)


def test_guesses_that_are_right_cost_no_decode(steady_chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text that the model says anyway stands in the prompt's place of guesses."""
    chat = steady_chat
    prompt = chat.tokenizer.prompt(STORY)
    said = list(chat.generate_ids(prompt, GREEDY))
    known = [*prompt, *said]
    monkeypatch.setattr("tinyweb.models.chat.draft", lambda ids, count: known[len(ids) : len(ids) + count])
    launched: list[str] = []
    launch = chat._launch

    def note(entry: str, **variables: int) -> None:
        launched.append(entry)
        launch(entry, **variables)

    monkeypatch.setattr(chat, "_launch", note)
    chat.forget()
    assert list(chat.generate_ids(prompt, replace(GREEDY, speculate=7))) == said
    assert launched.count("verify_8") == -(-(len(said) - 1) // 8) and launched.count("greedy") <= 2
