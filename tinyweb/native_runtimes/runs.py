"""Work in flight on a stream of a GPU: how far it has come, and whether it goes on at all."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from tinyweb.errors import DeviceError

MOST = 256  # runs in flight: whoever asks for more waits for the first
SPINS = 200  # questions before the first pause between two
DEFAULT_SECONDS = 120
NAMED = 4  # kernels that an error names


class Stuck(Exception):
    """A run has not ended within the limit. `names`: its kernels; `seconds`: the limit."""

    def __init__(self, names: tuple[str, ...], seconds: float):
        super().__init__()
        self.names, self.seconds = names, seconds


class Runs:
    """Runs of kernels in order, each with an event behind it; a subclass says what an event is.

    `variable`: the environment variable with the seconds that a run may take. DeviceError if it has no such number.
    """

    def __init__(self, variable: str) -> None:
        self.seconds = seconds(variable)
        self._spare: list[Any] = []
        self._runs: deque[tuple[Any, tuple[str, ...]]] = deque()
        self._ended = 0  # runs that were waited for

    def _new_event(self) -> Any:
        """An event that says nothing about time."""
        raise NotImplementedError(f"{type(self).__name__} does not say how events are made")

    def _record(self, event: Any) -> None:
        """Put an event behind what was asked for so far."""
        raise NotImplementedError(f"{type(self).__name__} does not say how events are recorded")

    def _happened(self, event: Any) -> bool:
        """Whether what is before an event has ended. Raises what has gone wrong there."""
        raise NotImplementedError(f"{type(self).__name__} does not say how events are asked")

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels that may be running: those of all runs that have not been waited for, each once."""
        return tuple(dict.fromkeys(n for _, names in self._runs for n in names))

    def mark(self, names: tuple[str, ...] = ()) -> int:
        """Put an event behind what was asked for so far, which is a run of the kernels `names`; returns its number."""
        while len(self._runs) >= MOST:
            self._wait_first()
        event = self._spare.pop() if self._spare else self._new_event()
        self._record(event)
        self._runs.append((event, names))
        return self._ended + len(self._runs)

    def reached(self, run: int) -> None:
        """Wait until the run with this number has ended. Stuck where it does not."""
        while self._ended < run:
            self._wait_first()

    def wait(self) -> None:
        """Wait until everything asked for has happened. Stuck where a run does not end."""
        self.reached(self.mark())

    def idle(self) -> bool:
        """Whether everything asked for has happened."""
        while self._runs and self._happened(self._runs[0][0]):
            self._drop_first()
        return not self._runs

    def _drop_first(self) -> None:
        self._spare.append(self._runs.popleft()[0])
        self._ended += 1

    def _wait_first(self) -> None:
        begin, asked = time.monotonic(), 0
        while not self._happened(self._runs[0][0]):
            asked += 1
            if asked > SPINS:
                waited = time.monotonic() - begin
                if waited > self.seconds:
                    raise Stuck(self._runs[0][1] or self.names, self.seconds)
                time.sleep(min(waited / 16, 1e-3))
        self._drop_first()


def seconds(variable: str) -> float:
    """How long one run may take: what the environment variable says, else 120."""
    text = os.environ.get(variable) or str(DEFAULT_SECONDS)
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not found > 0:
        raise DeviceError(f"{variable} is {text!r}: set it to a number of seconds above 0")
    return found


def some_of(names: Sequence[str]) -> str:
    """Kernels, for an error's message; one of several ran."""
    different = list(dict.fromkeys(names))
    if not different:
        return "a kernel"
    more = f" or one of {len(different) - NAMED} others" if len(different) > NAMED else ""
    return f"kernel {' or '.join(different[:NAMED])}{more}"
