"""Chats for twenty minutes in each engine, as an impatient reader has them: nothing that was said is lost, every
question is answered, and memory stays level. `TINYWEB_SOAK_MINUTES` makes it shorter or longer."""

import json
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil
import pytest

from tests.control.seeds import SEED
from tests.e2e.conftest import ExportedSite, Served
from tests.e2e.engines import ENGINES, Engine, Tab, ask, by_test_id, visit

MINUTES = float(os.environ.get("TINYWEB_SOAK_MINUTES", "20"))
QUESTIONS = (
    "What is 7 plus 5?",
    "Tell me a story about a little fox",
    "My name is Mira.",
    "What is the capital of France?",
)
STORED = """JSON.stringify(Object.entries(localStorage)
  .filter(([key]) => key.includes("chat:"))
  .map(([, value]) => JSON.parse(value))
  .filter(({ role }) => role === "user")
  .map(({ text }) => text))"""
GROWTH = 1.3  # of the last quarter's memory over the second's: browsers collect garbage when they like


def memory() -> int:
    """Bytes of all processes that this one has started: browsers and what drives them."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


@dataclass
class Reader:
    engine: Engine
    address: str
    rng: random.Random
    tab: Tab
    said: list[str] = field(default_factory=list)
    answered: int = 0
    conversations: int = 1

    def question(self) -> str:
        """One that nobody has asked before."""
        self.said.append(f"{self.rng.choice(QUESTIONS)} ({len(self.said)})")
        return self.said[-1]

    def presses(self, test_id: str) -> None:
        """A button, if it is there: it may have gone in the meantime."""
        self.tab.evaluate(f"document.querySelector('{by_test_id(test_id)}')?.click()")

    def asks(self) -> None:
        assert ask(self.tab, self.question()).strip()
        self.answered += 1

    def stops(self) -> None:
        self.tab.fill("prompt", self.question())
        self.tab.click("send")
        self.tab.until(
            f"""['generating', 'ready'].includes(document.querySelector('{by_test_id("app")}').dataset.state)"""
        )
        time.sleep(self.rng.random() / 4)
        if self.tab.evaluate(f"document.querySelector('{by_test_id('stop')}') !== null"):
            self.tab.evaluate(f"document.querySelector('{by_test_id('stop')}')?.click()")
        self.tab.becomes("ready")

    def asks_again(self) -> None:
        self.presses("regenerate")
        self.tab.becomes("ready")

    def reloads(self) -> None:
        self.tab.reload()
        self.tab.becomes("ready")

    def reloads_in_the_middle(self) -> None:
        self.tab.fill("prompt", self.question())
        self.tab.click("send")
        time.sleep(self.rng.random() / 2)
        self.reloads()

    def begins_anew(self) -> None:
        """Another conversation; the page keeps the newest 200, and all are counted in the end."""
        if self.conversations < 150:
            self.conversations += 1
            self.presses("new-chat")

    def opens_another(self) -> None:
        """Of the same conversation; there something is asked, too."""
        other = visit(self.engine, self.address)
        assert ask(other, self.question()).strip()
        self.answered += 1
        self.engine.close(other)

    def does_something(self) -> None:
        acts = [self.asks] * 5 + [self.stops] * 3 + [self.asks_again] * 2
        acts += [self.reloads, self.reloads_in_the_middle, self.begins_anew, self.opens_another]
        self.rng.choice(acts)()


@pytest.mark.slow
@pytest.mark.timeout(MINUTES * 60 + 600)
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_twenty_minutes(
    engine: Engine, exported: ExportedSite, served: Callable[..., Served], request: pytest.FixtureRequest
) -> None:
    address = f"{served(exported('q8')).address}/?backend=wasm"
    reader = Reader(engine, address, random.Random(f"{SEED} {request.node.name}"), visit(engine, address))
    end = time.monotonic() + MINUTES * 60
    levels: list[int] = []
    while time.monotonic() < end:
        reader.does_something()
        levels.append(memory())
    stored = json.loads(reader.tab.evaluate(STORED))
    assert sorted(stored) == sorted(reader.said)
    assert reader.tab.texts("error") == []
    quarter = len(levels) // 4
    early, late = statistics.median(levels[quarter : 2 * quarter]), statistics.median(levels[-quarter:])
    print(f"{len(levels)} acts, {reader.answered} answers; {early / 1e6:.0f} MB early, {late / 1e6:.0f} MB late")
    assert late < GROWTH * early
