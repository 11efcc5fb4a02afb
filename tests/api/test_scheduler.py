"""Which tokens are read when, and whose pages are whose: with a model that is a function of what it finds in them."""

from __future__ import annotations

import random
from collections import Counter
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
    page_size = PAGE

    def __init__(self, pages: int, shares: bool = True):
        self.pages, self.shares = self.reserved + pages, shares
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
    """Each page can be taken or is used; those that several answers have hold what all of them begin with."""
    used = Counter(p for g in scheduler.running for p in g.pages)
    assert len(used) + scheduler.pages.available == memory.pages - memory.reserved
    assert all(memory.reserved <= p < memory.pages for p in used)
    for generation in scheduler.running:
        for at in range(generation.read):
            slot = generation.pages[at // PAGE] * PAGE + at % PAGE
            assert memory.tokens[slot] == generation.ids[at]
    assert memory.shares or set(used.values()) <= {1}
    assert all(not g.pages for g in scheduler.waiting)


@pytest.mark.parametrize("seed", range(12))
def test_answers_of_any_arrivals(tokenizer: Tokenizer, seed: int) -> None:
    """With few pages answers wait, are taken back and go on; some are not waited for any more. All others are those
    that each prompt has alone."""
    chance = random.Random(seed)
    memory = Memory(chance.choice([10, 14, 30]), shares=seed % 3 > 0)
    begins = [[chance.randrange(VOCABULARY) for _ in range(CONTEXT)] for _ in range(3)]
    scheduler = Scheduler(memory, parallel=chance.choice([1, 3, 6]))
    asked: list[tuple[Generation, list[Piece]]] = []
    while len(asked) < 25 or any(not g.ended and not g.cancelled for g, _ in asked):
        while len(asked) < 25 and chance.random() < 0.3:
            pieces: list[Piece] = []
            length = chance.choice([1, 3, 17, CONTEXT])
            same = chance.randrange(length + 1)
            prompt = chance.choice(begins)[:same] + [chance.randrange(VOCABULARY) for _ in range(length - same)]
            asked.append((generation(tokenizer, prompt, chance.choice([1, 9, 100]), pieces), pieces))
            scheduler.submit(asked[-1][0])
        if asked and chance.random() < 0.05:
            chance.choice(asked)[0].cancelled = True
        scheduler.step()
        check_pages(scheduler, memory)
    scheduler.step()
    assert scheduler.load == (0, 0) and scheduler.pages.unused
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
    assert scheduler.load == (0, 0) and scheduler.pages.unused and not scheduler.step()
    scheduler.submit(again := generation(tokenizer, [9], 3, []))
    while scheduler.step():
        pass
    assert again.ids == expected([9], 3)


def test_a_conversation_goes_on_where_it_was(tokenizer: Tokenizer) -> None:
    """Its next turn reads what is new, whatever was answered in between; of another conversation nothing is reused."""
    memory = Memory(40)
    scheduler = Scheduler(memory, parallel=4)

    def read_for(prompt: list[int]) -> int:
        """Tokens that are read until the first one is chosen."""
        memory.steps.clear()
        scheduler.submit(made := generation(tokenizer, prompt, 1, []))
        while scheduler.step():
            pass
        assert made.ids == expected(prompt, 1)
        return sum(memory.steps)

    first = list(range(10, 27))
    assert read_for(first) == 17 and read_for(first) == 1
    assert read_for(list(range(50, 70))) == 20
    assert read_for([*first, 5, 6, 7]) == 4  # the whole pages before are there
    assert read_for([11, *first[1:]]) == 17
    assert read_for(first[:12]) == 4 and read_for(first[:13]) == 1  # one token is read at least
    for n in range(20):  # others need all pages
        read_for([100 + n] * 30)
    assert read_for(first) == 17
