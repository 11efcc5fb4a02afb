"""The rules of a chat by their definitions, and its loop with a model small enough to be computed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.huggingface import ModelFolder
from tinyweb.graph.ir import UOp
from tinyweb.models.chat import (
    Chat,
    Settings,
    choose_block,
    draft,
    entry_points,
    positions,
    prefill_blocks,
    usual_calls,
    verify_block,
)


# -- numbers -----------------------------------------------------------------------------------------------------------
def test_sizes_that_follow_from_the_context() -> None:
    for context in range(1, 600):
        assert prefill_blocks(context) == tuple(b for b in (256, 64, 8) if b <= context)
        assert verify_block(context) == (8 if context >= 8 else 0)
        assert positions(context) % 64 == 0 and 0 <= positions(context) - (context + 1) < 64


@pytest.mark.parametrize("blocks", [(256, 64, 8, 1), (64, 8, 1), (8, 1), (1,), (5, 3, 1)])
def test_the_block_is_the_first_of_the_cheapest_cover(blocks: tuple[int, ...]) -> None:
    """A launch costs three tokens beside its own; of equals the largest block. What is longer than a block takes it."""
    costs = [0]
    for tokens in range(1, 300):
        ways = [3 + b + costs[max(tokens - b, 0)] for b in blocks]
        costs.append(min(ways))
        want = blocks[0] if tokens >= blocks[0] else blocks[ways.index(min(ways))]
        assert choose_block(blocks, tokens) == want


def followed(ids: list[int], count: int) -> list[int]:
    for n in (4, 3, 2):
        places = [i for i in range(len(ids) - n) if ids[i : i + n] == ids[len(ids) - n :]] if len(ids) > n else []
        if places:
            return ids[places[-1] + n :][:count]
    return []


def test_drafts_by_definition() -> None:
    random = np.random.default_rng(0)
    found = 0
    for _ in range(600):
        ids = random.integers(0, 3, random.integers(0, 12)).tolist()
        count = int(random.integers(1, 5))
        assert draft(ids, count) == followed(ids, count), (ids, count)
        found += bool(followed(ids, count))
    assert 100 < found < 590
    assert draft([1, 2, 3, 4, 9, 2, 3, 4, 7, 1, 2, 3, 4], 1) == [9]  # four alike before three
    assert draft([1, 5, 1], 1) == []


def test_usual_calls() -> None:
    names = ["prefill_256", "prefill_8", "decode", "sample", "greedy", "verify_8"]
    assert usual_calls(names) == dict(zip(names, (1, 1, 64, 64, 64, 8), strict=True))
    assert usual_calls(names, 100) == dict(zip(names, (1, 1, 100, 100, 100, 12), strict=True))
    assert usual_calls(names, 7) == dict(zip(names, (1, 1, 7, 7, 7, 1), strict=True))


# -- settings ----------------------------------------------------------------------------------------------------------
def of_folder(path: Path, **given: Any) -> Settings:
    (path / "config.json").write_text("{}")
    (path / "generation_config.json").write_text(json.dumps(given))
    return Settings.of_folder(ModelFolder(path))


def test_settings_of_a_folder(tmp_path: Path) -> None:
    assert of_folder(tmp_path) == Settings() == Settings(256, 0.7, 40, 0.95, 1.0, 0, 0)
    (tmp_path / "generation_config.json").unlink()
    assert Settings.of_folder(ModelFolder(tmp_path)) == Settings()
    least = {"max_new_tokens": 1, "temperature": 0, "top_k": 0, "top_p": 0, "repetition_penalty": 0.01}
    most = {"max_new_tokens": 2**31 - 1, "temperature": 100, "top_k": 2**31 - 1, "top_p": 1, "repetition_penalty": 100}
    assert of_folder(tmp_path, **least) == Settings(1, 0.0, 0, 0.0, 0.01)
    assert of_folder(tmp_path, **most) == Settings(2**31 - 1, 100.0, 2**31 - 1, 1.0, 100.0)
    assert of_folder(tmp_path, do_sample=False, temperature=0.5).temperature == 0
    assert of_folder(tmp_path, do_sample=True, temperature=0.5).temperature == 0.5
    below = {"max_new_tokens": 0, "temperature": -0.1, "top_k": -1, "top_p": -0.1, "repetition_penalty": 0.009}
    above = {"max_new_tokens": 2**31, "temperature": 100.1, "top_k": 2**31, "top_p": 1.1, "repetition_penalty": 100.1}
    for key, value in [*below.items(), *above.items(), ("do_sample", 1)]:
        with pytest.raises(ModelFormatError, match=f"generation_config.json: '{key}' must be"):
            of_folder(tmp_path, **{key: value})


def test_greedy() -> None:
    assert Settings(temperature=0).greedy
    for other in (Settings(), Settings(temperature=0, repetition_penalty=1.1), Settings(repetition_penalty=1.0)):
        assert not other.greedy


# -- the loop ----------------------------------------------------------------------------------------------------------
VOCABULARY = 11


class Model:
    """The next token follows from all tokens read so far: a sum of multiples that no two orders share."""

    rewinds = True

    def __init__(self, context: int, device: str = "CPU"):
        self.context, self.device = context, device
        self.size = positions(context)
        self.read = self.state(self.size)
        self.ids, self.logits = self.state(self.size), self.state(1)
        self.sampling_f, self.sampling_i = self.state(4, np.float32), self.state(2)
        self.verified = self.state(8)
        self.asked: dict[str, tuple[tuple[int, int], ...]] = {}

    def state(self, count: int, dtype: Any = np.int32) -> Tensor:
        return Tensor(np.zeros(count, dtype), device=self.device).contiguous().realize()

    def note(self, name: str, *variables: UOp) -> None:
        self.asked[name] = tuple(v.src[0].arg[1:] for v in variables)

    def after(self, count: UOp | Tensor) -> Tensor:
        """What follows the first `count` tokens read."""
        at = Tensor.arange(self.size, device=self.device)
        return ((at < count).where(self.read * (at * at + 1), 0)).sum().reshape(1) % VOCABULARY

    def take(self, start: UOp, block: int) -> None:
        self.read[start : start + block] = self.ids[start : start + block] + 1

    def prefill(self, block: int, start_pos: UOp, count: UOp) -> Tensor:
        self.note(f"prefill_{block}", start_pos, count)
        self.take(start_pos, block)
        self.logits[0:1] = self.after(start_pos + count).cast("int32")
        return self.logits.realize()

    def decode(self, start_pos: UOp) -> Tensor:
        self.note("decode", start_pos)
        self.take(start_pos, 1)
        self.logits[0:1] = self.after(start_pos + 1).cast("int32")
        return self.logits.realize()

    def greedy(self, start_pos: UOp) -> Tensor:
        self.note("greedy", start_pos)
        self.ids[start_pos + 1 : start_pos + 2] = self.logits
        return self.ids.realize()

    def sample(self, start_pos: UOp) -> Tensor:
        """Also the settings count: each in a way that tells it from the others."""
        self.note("sample", start_pos)
        f, i = self.sampling_f, self.sampling_i
        extra = (f[0] * 2 + f[1] * 4 + f[2] * 8 + f[3]).cast("int32") + i[0] * 3 + i[1]
        self.ids[start_pos + 1 : start_pos + 2] = ((self.logits + extra) % VOCABULARY).cast("int32")
        return self.ids.realize()

    def verify(self, block: int, start_pos: UOp) -> Tensor:
        self.note(f"verify_{block}", start_pos)
        self.take(start_pos, block)
        self.verified[:] = Tensor.stack([self.after(start_pos + i + 1)[0] for i in range(block)]).cast("int32")
        return self.verified.realize()


class OneWay(Model):
    """A state: it knows how much it has read, and forgets all else where it is told to go on from another place."""

    rewinds = False

    def __init__(self, context: int):
        super().__init__(context)
        self.stands = self.state(1)

    def take(self, start: UOp, block: int, count: UOp | None = None) -> None:
        begins, at = Tensor(start), Tensor.arange(block)
        taken = Tensor(block if count is None else count)
        there = (begins == 0) | (begins == self.stands)
        self.read[:] = there.where((Tensor.arange(self.size) < begins).where(self.read, 0), 7)
        ids = (at < taken).where(self.ids[start : start + block] + 1, 0)
        self.read[start : start + block] = there.where(ids, 7)
        self.stands[:] = begins + taken

    def prefill(self, block: int, start_pos: UOp, count: UOp) -> Tensor:
        self.take(start_pos, block, count)
        self.logits[0:1] = self.after(start_pos + count).cast("int32")
        return self.logits.realize()


class Words:
    """A tokenizer of words that are numbers."""

    eos: tuple[int, ...] = ()
    completes = False

    def prompt(self, messages: Sequence[Any]) -> list[int]:
        return [int(w) for m in messages for w in m["content"].split()]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f"<{i}>" for i in ids)


def expected(prompt: Sequence[int], extra: int = 0) -> Iterator[int]:
    ids = list(prompt)
    while True:
        total = sum((token + 1) * (i * i + 1) for i, token in enumerate(ids))
        ids.append((total % VOCABULARY + extra) % VOCABULARY)
        yield ids[-1]


def first(count: int, prompt: Sequence[int], extra: int = 0) -> list[int]:
    return [token for _, token in zip(range(count), expected(prompt, extra), strict=False)]


@pytest.fixture(scope="module")
def chat() -> Chat:
    told: list[tuple[str, int, int]] = []
    chat = Chat(Model(70), Words(), progress=lambda *what: told.append(what))
    assert told[:7] == [("planning", i, 6) for i in range(7)]
    assert told[7:] == [("compiling kernels for CPU", i, 1) for i in range(2)]
    return chat


GREEDY = Settings(temperature=0, max_tokens=5)


def test_a_state_goes_on_where_it_stands_or_begins_anew() -> None:
    chat = Chat(OneWay(70), Words())
    settings = replace(GREEDY, speculate=4)
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    said = list(chat.generate_ids(prompt, settings))
    assert said == first(5, prompt) and chat.statistics.reused == 0
    longer = [*prompt, *said, 8, 9]
    assert list(chat.generate_ids(longer, settings)) == first(5, longer)
    assert chat.statistics.reused == len(prompt) + 4
    for text in ([*longer[:-1], 7], prompt, [*prompt, 1]):
        assert list(chat.generate_ids(text, settings)) == first(5, text)
        assert chat.statistics.reused == 0
    for count, _ in enumerate(chat.generate_ids(prompt, settings)):
        if count == 2:
            break
    assert list(chat.generate_ids(prompt, settings)) == first(5, prompt)


def test_entry_points(chat: Chat) -> None:
    """A position is inside of the context, and a block that begins there inside of the cache."""
    model = chat.model
    assert isinstance(model, Model)
    one = (0, 69)
    assert model.asked == {
        "prefill_64": ((0, 64), (1, 64)), "prefill_8": (one, (1, 8)), "decode": (one,), "sample": (one,),
        "greedy": (one,), "verify_8": (one,),
    }  # fmt: skip
    small = Model(3)
    assert list(entry_points(small)) == ["decode", "sample", "greedy"]
    edge = Model(63)
    assert list(entry_points(edge)) == ["prefill_8", "decode", "sample", "greedy", "verify_8"]
    assert edge.asked["prefill_8"] == ((0, 56), (1, 8)) and edge.asked["verify_8"] == ((0, 56),)


PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 15])
def test_tokens_follow_from_everything_read(chat: Chat, length: int) -> None:
    chat.forget()
    assert list(chat.generate_ids(PROMPT[:length], GREEDY)) == first(5, PROMPT[:length])
    assert chat.statistics.prompt_ids == PROMPT[:length] and chat.statistics.reused == 0


def test_settings_reach_the_device(chat: Chat) -> None:
    for settings, extra in (
        (Settings(5, temperature=1.5, top_k=0, top_p=0.0, repetition_penalty=0.0), 3),
        (Settings(5, temperature=1, top_k=2, top_p=0.5, repetition_penalty=0.25), 2 + 2 + 2 + 6),
        (Settings(5, temperature=1, top_k=1, top_p=0.5, repetition_penalty=1, seed=5), 2 + 2 + 8 + 3 + 5),
        (Settings(5, temperature=0, top_k=0, top_p=0, repetition_penalty=0.5), 4),
        (Settings(5, temperature=0, top_k=1, top_p=0, repetition_penalty=0.5, seed=2**32 + 1), 4 + 3 + 1),
    ):
        assert list(chat.generate_ids(PROMPT, settings)) == first(5, PROMPT, extra)
    for seed, stored in ((0, 0), (-1, -1), (2**31 - 1, 2**31 - 1), (2**31, -(2**31)), (-(2**31) - 1, 2**31 - 1)):
        list(chat.generate_ids(PROMPT, Settings(1, seed=seed)))
        assert chat.model.sampling_i.numpy().tolist() == [40, stored]


def test_usual_settings(chat: Chat) -> None:
    usual = list(chat.generate_ids(PROMPT, Settings()))
    assert len(usual) == 71 - len(PROMPT)
    assert list(chat.generate_ids(PROMPT)) == usual
    said = [{"role": "user", "content": " ".join(map(str, PROMPT))}]
    assert chat.answer(said)[1] == [part.token for part in chat.generate(said)] == usual


def test_what_is_reused(chat: Chat) -> None:
    chat.forget()
    said = list(chat.generate_ids(PROMPT, GREEDY))
    for prompt, reused in (
        ([*PROMPT, *said, 1], 15 + 4),  # the last token was never read
        (PROMPT, 14),  # its last one is read again, for the logits
        (PROMPT[:5], 4),
        ([*PROMPT[:4], 0, 0], 4),
        ([0, *PROMPT], 0),
    ):
        assert list(chat.generate_ids(prompt, GREEDY)) == first(5, prompt)
        assert chat.statistics.reused == reused, prompt
    list(chat.generate_ids(PROMPT, GREEDY))
    chat.forget()
    list(chat.generate_ids(PROMPT, GREEDY))
    assert chat.statistics.reused == 0


def test_where_an_answer_ends(chat: Chat) -> None:
    many = Settings(temperature=0, max_tokens=99)
    for length in (1, 15, 64, 65, 69, 70):
        prompt = (PROMPT * 5)[:length]
        assert list(chat.generate_ids(prompt, many)) == first(71 - length, prompt), length
    for n in (1, 2, 9):
        assert len(list(chat.generate_ids(PROMPT, Settings(temperature=0, max_tokens=n)))) == n
    for wrong in ([], [1] * 71):
        with pytest.raises(
            TinywebError, match=f"The prompt has {len(wrong)} tokens, and 1 to 70 are possible: shorten it"
        ):
            next(chat.generate_ids(wrong))


def test_parts_and_statistics(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    said = first(20, PROMPT)
    message = [{"role": "user", "content": " ".join(map(str, PROMPT))}]
    end = said[3]
    count = said.index(end) + 1
    monkeypatch.setattr(chat.tokenizer, "eos", (end,), raising=False)
    parts = list(chat.generate(message, Settings(temperature=0, max_tokens=20)))
    assert [p.token for p in parts] == said[:count]
    assert [p.text for p in parts] == [f"<{t}>" for t in said[: count - 1]] + [""]
    monkeypatch.setattr(chat.tokenizer, "eos", (), raising=False)
    text, ids = chat.answer(message, GREEDY)
    assert (text, ids) == ("".join(f"<{t}>" for t in said[:5]), said[:5])
    clock = iter([10.0, 12.5, 13.0, 14.5, 15.0, 16.5])
    monkeypatch.setattr("tinyweb.models.chat.time.perf_counter", lambda: next(clock))
    chat.answer(message, GREEDY)
    assert chat.statistics.first_token_seconds == 2.5 and chat.statistics.tokens_per_second == 1.0
    monkeypatch.setattr("tinyweb.models.chat.time.perf_counter", lambda: 0.0)
    chat.answer(message, Settings(temperature=0, max_tokens=1))
    assert chat.statistics.tokens_per_second == 0 and chat.statistics.dropped == 0


def test_turns_that_were_dropped(chat: Chat) -> None:
    turns = [{"role": "user", "content": "1 2 3 " * 12}, {"role": "assistant", "content": "4"}]
    last = {"role": "user", "content": "5 6"}
    assert chat.answer([*turns, last], Settings(temperature=0, max_tokens=40))[1] == first(40, [5, 6])
    assert chat.statistics.dropped == 2


def noting(chat: Chat, launched: list[tuple[str, int]]) -> Callable[..., None]:
    """The chat's way to launch, which writes down what it launches, and where."""
    launch = chat._launch

    def note(entry: str, **variables: int) -> None:
        launched.append((entry, variables["start_pos"]))
        launch(entry, **variables)

    return note


@pytest.mark.parametrize("speculate", [1, 2, 6, 7, 8, 50])
def test_guesses(chat: Chat, speculate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right or wrong from any place on, they change nothing; how many are asked for, and what is launched."""
    settings = Settings(temperature=0, max_tokens=30, speculate=speculate)
    said = first(99, PROMPT)
    for wrong_at in (0, 1, 3, 99):
        asked: list[int] = []

        def guess(ids: Sequence[int], count: int, wrong_at: int = wrong_at, asked: list[int] = asked) -> list[int]:
            asked.append(count)
            known = said[len(ids) - len(PROMPT) :][:count]
            return [(t + (i == wrong_at)) % VOCABULARY for i, t in enumerate(known)]

        launched: list[tuple[str, int]] = []
        with monkeypatch.context() as m:
            m.setattr("tinyweb.models.chat.draft", guess)
            m.setattr(chat, "_launch", noting(chat, launched))
            chat.forget()
            assert list(chat.generate_ids(PROMPT, settings)) == said[:30]
        guesses = min(speculate, 7)
        assert set(asked) == {guesses}
        step = min(wrong_at, guesses) + 1
        verified = [p for e, p in launched if e == "verify_8"]
        assert verified == list(range(15, 15 + 29, step))[: len(verified)] and len(verified) == -(-29 // step)
        assert chat._cached == [*PROMPT, *said][: len(chat._cached)] and len(chat._cached) >= 15 + 28
        assert chat.model.ids.numpy()[: 15 + 29].tolist() == [*PROMPT, *said][: 15 + 29]
    plain = Settings(temperature=0.5, max_tokens=5, top_k=0, top_p=0, repetition_penalty=0)
    with monkeypatch.context() as m:
        m.setattr("tinyweb.models.chat.draft", lambda ids, count: pytest.fail("guesses") if count > 0 else [])
        assert list(chat.generate_ids(PROMPT, Settings(**{**plain.__dict__, "speculate": 5}))) == first(5, PROMPT, 1)


def test_guesses_at_the_end_of_the_cache() -> None:
    """A block that would not fit into it is not verified."""
    settings = Settings(temperature=0, max_tokens=99, speculate=7)
    chat = Chat(Model(63), Words(), settings)
    prompt = [1, 2] * 27
    launched: list[tuple[str, int]] = []
    chat._launch = noting(chat, launched)  # type: ignore[method-assign]
    said = first(10, prompt)
    with pytest.MonkeyPatch.context() as m:
        m.setattr("tinyweb.models.chat.draft", lambda ids, count: [(said[len(ids) - 54] + 1) % VOCABULARY])
        assert list(chat.generate_ids(prompt)) == said  # with the settings of the chat
    assert [p for e, p in launched if e == "verify_8"] == [54, 55, 56]
    assert [p for e, p in launched if e == "decode" and p >= 54] == [57, 58, 59, 60, 61, 62]
