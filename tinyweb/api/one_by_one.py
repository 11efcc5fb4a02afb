"""Answers one after the other, for models that have no pages: those whose layers have states, and graphs of ONNX."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tinyweb.api.generation import Generation
from tinyweb.models.chat import Chat


class OneByOne:
    """Answers by the entry points of a chat, in the order in which they were asked for. Its methods are called in one
    thread."""

    def __init__(self, chat: Chat):
        self.chat = chat
        self.waiting: deque[Generation] = deque()
        self._now: tuple[Generation, Iterator[int]] | None = None

    def submit(self, generation: Generation) -> None:
        """It begins when those before it have ended."""
        self.waiting.append(generation)

    @property
    def load(self) -> tuple[int, int]:
        """Answers under way, and those that wait."""
        return int(self._now is not None), len(self.waiting)

    def fail(self, message: str) -> None:
        """All break off."""
        under_way = [self._now[0]] if self._now is not None else []
        for generation in (*under_way, *self.waiting):
            generation.fail(message)
        self.waiting.clear()
        self._now = None
        self.chat.forget()

    def step(self) -> bool:
        """Makes one token; False where there is nothing to do."""
        for generation in [g for g in self.waiting if g.cancelled]:
            self.waiting.remove(generation)
        if self._now is None or self._now[0].cancelled:
            self._now = None
            if not self.waiting:
                return False
            first = self.waiting.popleft()
            self._now = first, self.chat.generate_ids(first.prompt, first.settings)
        generation, tokens = self._now
        token = next(tokens, None)
        if token is None:
            generation.fail("The model broke off: ask again.")
            self._now = None
            return True
        generation.push(token, self._logits() if generation.chances is not None else None)
        if generation.ended:
            self._now = None
        return True

    def _logits(self) -> npt.NDArray[np.float32]:
        memory = self.chat.device.memory(self.chat.model.logits.uop.buffer)
        return np.frombuffer(self.chat.device.runtime.copy_out(memory.handle, memory.nbytes), np.float32)
