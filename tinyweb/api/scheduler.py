"""Which tokens a step reads: of all answers under way their next one, of new ones parts of the prompt.

What is notable:
- An answer begins when there is a place and pages for its prompt, in the order in which they were asked for, and ends
  without waiting for others (continuous batching; Yu et al. 2022).
- Pages are taken as positions are read. Where there are none left, the answer that began last gives its own back and
  waits in front of the others; it reads again what it had, and goes on.
- Whole pages that hold what a prompt begins with are not read again (`pages.py`).
- Long prompts are read in parts beside the next tokens of others, which never wait for more than one part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tinyweb.api.generation import Generation
from tinyweb.api.pages import Pages
from tinyweb.models.decoder.batch import Row


class Steps(Protocol):
    """What a scheduler needs of a `Batch`, which says what each does."""

    pages: int
    reserved: int
    page_size: int
    shares: bool

    @property
    def sizes(self) -> Sequence[int]: ...
    def pages_for(self, tokens: int) -> int: ...
    def step(self, rows: Sequence[Row]) -> list[int]: ...
    def row_logits(self, row: int) -> npt.NDArray[np.float32]: ...


class Engine(Protocol):
    """What makes answers."""

    def submit(self, generation: Generation) -> None:
        """It waits for its turn."""

    def step(self) -> bool:
        """A part of the work; False where there is none."""

    def fail(self, message: str) -> None:
        """All answers under way break off."""

    @property
    def load(self) -> tuple[int, int]:
        """Answers under way, and those that wait."""


class Scheduler:
    """Answers that are made side by side, at most `parallel`. Its methods are called in one thread."""

    def __init__(self, batch: Steps, parallel: int):
        self.batch, self.parallel = batch, parallel
        self.pages = Pages(batch.reserved, batch.pages, batch.page_size, batch.shares)
        self.running: list[Generation] = []  # in the order in which they were asked for
        self.waiting: deque[Generation] = deque()
        self.preempted = 0  # how often pages were taken back

    def submit(self, generation: Generation) -> None:
        """It begins when there is room."""
        self.waiting.append(generation)

    @property
    def load(self) -> tuple[int, int]:
        """Answers under way, and those that wait."""
        return len(self.running), len(self.waiting)

    def fail(self, message: str) -> None:
        """All break off, and no page is taken."""
        for generation in (*self.running, *self.waiting):
            self._release(generation)
            generation.fail(message)
        self.running.clear()
        self.waiting.clear()
        self.pages.clear()  # who knows what is in them

    def step(self) -> bool:
        """Reads tokens and hands out those that follow; False where there is nothing to do."""
        self._forget([g for g in (*self.running, *self.waiting) if g.cancelled])
        plan = self._plan()
        if not plan:
            return False
        rows: list[Row] = []
        asking: list[Generation] = []
        for generation, count in plan.items():
            rows += self._rows(generation, count)
            generation.read += count
            asking += [generation] if generation.read == len(generation.ids) else []
        chosen = self.batch.step(rows)
        for generation, count in plan.items():
            self._name(generation, generation.read - count)
        for place, (generation, token) in enumerate(zip(asking, chosen, strict=True)):
            generation.push(token, self.batch.row_logits(place) if generation.chances is not None else None)
        self._forget([g for g in asking if g.ended])
        return True

    def _plan(self) -> dict[Generation, int]:
        """How many tokens of which answers the next step reads."""
        plan: dict[Generation, int] = {}
        # what has one token to read is never kept waiting by prompts
        for generation in sorted(self.running, key=lambda g: len(g.ids) - g.read > 1):
            self._take(generation, plan)
        while self.waiting and self._left(plan) and len(self.running) < self.parallel:
            if not self._begin(self.waiting[0]):
                break
            self.running.append(self.waiting.popleft())
            self._take(self.running[-1], plan)
        return plan

    def _begin(self, generation: Generation) -> bool:
        """Gives a new answer the pages that hold the beginning of what it reads; whether there are enough for the rest.
        At least one token is read, so that there is something to choose the next one by."""
        self.pages.names(generation.ids, generation.names)
        generation.pages += self.pages.share(generation.names[: (len(generation.ids) - 1) // self.pages.size])
        generation.read = len(generation.pages) * self.pages.size
        enough = self.batch.pages_for(len(generation.ids)) - len(generation.pages) <= self.pages.available
        if not enough:
            self._release(generation)
        return enough

    def _name(self, generation: Generation, before: int) -> None:
        """Lets others have the pages that became full with what was read since `before`."""
        self.pages.names(generation.ids, generation.names)
        for i in range(before // self.pages.size, generation.read // self.pages.size):
            self.pages.name(generation.pages[i], generation.names[i])

    def _take(self, generation: Generation, plan: dict[Generation, int]) -> None:
        """Plans as many of its tokens as there is room for, with their pages."""
        count = min(len(generation.ids) - generation.read, self._left(plan))
        if generation not in self.running or not count:
            return
        need = self.batch.pages_for(generation.read + count) - len(generation.pages)
        while need > self.pages.available:
            last = self.running.pop()
            self._release(last)
            plan.pop(last, None)
            self.waiting.appendleft(last)
            self.preempted += 1
            if last is generation:
                return
        generation.pages += self.pages.take(need)
        plan[generation] = count

    def _left(self, plan: dict[Generation, int]) -> int:
        return self.batch.sizes[-1] - sum(plan.values())

    def _rows(self, generation: Generation, count: int) -> list[Row]:
        ids, end = generation.ids, len(generation.ids)
        return [
            Row(ids[at], at, generation.pages, generation.settings if at + 1 == end else None, ids)
            for at in range(generation.read, generation.read + count)
        ]

    def _forget(self, generations: Iterable[Generation]) -> None:
        for generation in generations:
            self._release(generation)
            (self.running if generation in self.running else self.waiting).remove(generation)

    def _release(self, generation: Generation) -> None:
        self.pages.release(generation.pages)
        generation.pages.clear()
        generation.read = 0
