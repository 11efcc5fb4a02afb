"""One call into a runtime at a time, and memory that is given back at any moment.

Python runs finalisers wherever it collects garbage, so also in a thread that is within a call of the very runtime
whose memory the finaliser gives back. To wait for that call's end there would be to wait for oneself, and to go ahead
would change tables that are being read: the memory is put aside, and freed when the call is over.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound="Turns")


class Turns:
    """Base of runtimes whose methods are marked `in_turn`; such a runtime defines `_free` in place of `free`."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._given_back: deque[Any] = deque()

    def free(self, handle: Any) -> None:
        """Give memory back, from any thread, also in a finaliser."""
        self._given_back.append(handle)
        self._settle()

    def _settle(self) -> None:
        """Free what was put aside; whoever holds the turn does this at its end."""
        while self._given_back and self._turn.acquire(blocking=False):
            try:
                while self._given_back:
                    self._free(self._given_back.popleft())
            finally:
                self._turn.release()

    def _free(self, handle: Any) -> None:
        """Free memory, holding the turn."""
        raise NotImplementedError(f"{type(self).__name__} does not say how its memory is freed")


def in_turn(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """Have calls of a runtime's method, and of others marked so, wait for each other. They must not call each other."""

    @functools.wraps(method)
    def call(self: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with self._turn:
                return method(self, *args, **kwargs)
        finally:
            self._settle()

    return call
