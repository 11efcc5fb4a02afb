"""Which tokens are read when, and whose pages are whose: with a model that is a function of what it finds in them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tinyweb.api.generation import Generation, Piece
from tinyweb.api.scheduler import Scheduler
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models.chat import Settings
from tinyweb.models.decoder.batch import Row

PAGE, CONTEXT, VOCABULARY = 4, 40, 4096


class Memory:
    """A `Batch` whose next token is a hash of the sequence's tokens, as they stand in its pages."""

    sizes = (1, 8)
    reserved = 2

    def __init__(self, pages: int):
        self.pages = self.reserved + pages
        self.tokens: dict[int, int] = {}
        self.steps: list[int] = []

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // PAGE)

    def step(self, rows: Sequence[Row]) -> list[int]:
        assert 0 < len(rows) <= self.sizes[-1]
        self.steps.append(len(rows))
        slots = [row.pages[row.position // PAGE] * PAGE + row.position % PAGE for row in rows]
        assert len(set(slots)) == len(slots) and min(slots) >= self.reserved * PAGE
        for slot, row in zip(slots, rows):
            self.tokens[slot] = row.token
        return [
            follows([self.tokens[row.pages[p // PAGE] * PAGE + p % PAGE] for p in range(row.position + 1)])
            for row in rows
            if row.settings is not None
        ]

    def row_logits(self, row: int) -> np.ndarray:
        return np.zeros(VOCABULARY, np.float32)


def follows(ids: Sequence[int]) -> int:
    return random.Random(str(list(ids))).randrange(6, VOCABULARY)  # none that ends an answer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_folder(Path(__file__).parents[2] / "assets" / "models" / "tinychat-7m")


def generation(tokenizer: Tokenizer, prompt: list[int], most: int, pieces: list[Piece]) -> Generation:
    return Generation(tokenizer, prompt, Settings(max_tokens=most), CONTEXT, pieces.append)


def expected(prompt: list[int], most: int) -> list[int]:
    ids = list(prompt)
    while len(ids) - len(prompt) < most and len(ids) <= CONTEXT:
        ids.append(follows(ids))
    return ids


def check_pages(scheduler: Scheduler, memory: Memory) -> None:
    """Each page is free or one answer's."""
    owned = [p for g in scheduler.running for p in g.pages]
    assert sorted(owned + scheduler.free) == list(range(memory.reserved, memory.pages))
    assert all(not g.pages for g in scheduler.waiting)


@pytest.mark.parametrize("seed", range(12))
def test_answers_of_any_arrivals(tokenizer: Tokenizer, seed: int) -> None:
    """With few pages answers wait, are taken back and go on; some are not waited for any more. All others are those
    that each prompt has alone."""
    chance = random.Random(seed)
    memory = Memory(chance.choice([10, 14, 30]))
    scheduler = Scheduler(memory, parallel=chance.choice([1, 3, 6]))
    asked: list[tuple[Generation, list[Piece]]] = []
    while len(asked) < 25 or any(not g.ended and not g.cancelled for g, _ in asked):
        while len(asked) < 25 and chance.random() < 0.3:
            pieces: list[Piece] = []
            prompt = [chance.randrange(VOCABULARY) for _ in range(chance.choice([1, 3, 17, CONTEXT]))]
            asked.append((generation(tokenizer, prompt, chance.choice([1, 9, 100]), pieces), pieces))
            scheduler.submit(asked[-1][0])
        if asked and chance.random() < 0.05:
            chance.choice(asked)[0].cancelled = True
        scheduler.step()
        check_pages(scheduler, memory)
    scheduler.step()
    assert scheduler.load == (0, 0) and len(scheduler.free) == memory.pages - memory.reserved
    for each, pieces in asked:
        if not each.cancelled or each.ended:
            assert each.ids == expected(list(each.prompt), each.settings.max_tokens)
            assert [p.last for p in pieces] == [False] * (len(pieces) - 1) + [True]
            assert "".join(p.text for p in pieces) == tokenizer.decode(each.ids[len(each.prompt) :])


def test_prompts_do_not_keep_answers_waiting(tokenizer: Tokenizer) -> None:
    memory = Memory(40)
    scheduler, pieces = Scheduler(memory, parallel=4), list[Piece]()
    first = generation(tokenizer, [7], 30, pieces)
    scheduler.submit(first)
    scheduler.step()
    scheduler.submit(generation(tokenizer, list(range(8, 8 + CONTEXT)), 1, []))
    for done in range(2, 6):
        scheduler.step()
        assert first.produced == done and memory.steps[-1] == 8


def test_the_last_answer_gives_its_pages_back(tokenizer: Tokenizer) -> None:
    memory = Memory(10)
    scheduler = Scheduler(memory, parallel=4)
    both = [generation(tokenizer, [n] * 12, 28, []) for n in (7, 8)]
    for each in both:
        scheduler.submit(each)
    while not both[0].ended:
        scheduler.step()
        check_pages(scheduler, memory)
    assert scheduler.preempted > 0 and not both[1].ended
    while scheduler.step():
        check_pages(scheduler, memory)
    assert [g.ids for g in both] == [expected([n] * 12, 28) for n in (7, 8)]


def test_a_failure_ends_all_answers_and_frees_all_pages(tokenizer: Tokenizer) -> None:
    memory, pieces = Memory(10), list[Piece]()
    scheduler = Scheduler(memory, parallel=2)
    for _ in range(5):
        scheduler.submit(generation(tokenizer, [7] * 9, 20, pieces))
    scheduler.step()
    scheduler.fail("The device is gone.")
    assert [p.error for p in pieces if p.last] == ["The device is gone."] * 5
    assert scheduler.load == (0, 0) and len(scheduler.free) == 10 and not scheduler.step()
    scheduler.submit(again := generation(tokenizer, [9], 3, []))
    while scheduler.step():
        pass
    assert again.ids == expected([9], 3)
