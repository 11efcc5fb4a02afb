"""Work in flight on one stream: how far it has come, and whether it goes on at all."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any

from tinyweb.errors import DeviceError
from tinyweb.native_runtimes.cuda.driver import NOT_READY, CudaError, Driver

MOST = 256  # runs in flight: whoever asks for more waits for the first
SPINS = 200  # questions before the first pause between two
DEFAULT_SECONDS = 120
VARIABLE = "TINYWEB_CUDA_SECONDS"


class Stuck(Exception):
    """A run has not ended within the limit. `names`: its kernels; `seconds`: the limit."""

    def __init__(self, names: tuple[str, ...], seconds: float):
        super().__init__()
        self.names, self.seconds = names, seconds


class Queue:
    """Runs of kernels on a stream, in order, each with an event behind it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.seconds = seconds()
        self.stream: Any = driver.cuStreamCreate(1)  # CU_STREAM_NON_BLOCKING
        self._spare: list[Any] = []
        self._runs: deque[tuple[Any, tuple[str, ...]]] = deque()
        self._ended = 0  # runs that were waited for

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels that may be running: those of all runs that have not been waited for, each once."""
        return tuple(dict.fromkeys(n for _, names in self._runs for n in names))

    def mark(self, names: tuple[str, ...] = ()) -> int:
        """Put an event behind what was asked for so far, which is a run of the kernels `names`; returns its number."""
        while len(self._runs) >= MOST:
            self._wait_first()
        event = self._spare.pop() if self._spare else self._driver.cuEventCreate(2)  # CU_EVENT_DISABLE_TIMING
        self._driver.cuEventRecord(event, self.stream)
        self._runs.append((event, names))
        return self._ended + len(self._runs)

    def reached(self, run: int) -> None:
        """Wait until the run with this number has ended."""
        while self._ended < run:
            self._wait_first()

    def wait(self) -> None:
        """Wait until everything asked for has happened. Stuck where a run does not end."""
        self.reached(self.mark())

    def idle(self) -> bool:
        """Whether everything asked for has happened."""
        while self._runs and self._first_ended():
            self._drop_first()
        return not self._runs

    def _first_ended(self) -> bool:
        error = self._driver.module.cuEventQuery(self._runs[0][0])[0]
        if error and int(error) != NOT_READY:
            raise CudaError("cuEventQuery", int(error), error.name)
        return not error

    def _drop_first(self) -> None:
        self._spare.append(self._runs.popleft()[0])
        self._ended += 1

    def _wait_first(self) -> None:
        begin, asked = time.monotonic(), 0
        while not self._first_ended():
            asked += 1
            if asked > SPINS:
                waited = time.monotonic() - begin
                if waited > self.seconds:
                    raise Stuck(self._runs[0][1] or self.names, self.seconds)
                time.sleep(min(waited / 16, 1e-3))
        self._drop_first()


def seconds() -> float:
    """How long one run may take: TINYWEB_CUDA_SECONDS, else 120."""
    text = os.environ.get(VARIABLE) or str(DEFAULT_SECONDS)
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not found > 0:
        raise DeviceError(f"{VARIABLE} is {text!r}: set it to a number of seconds above 0")
    return found
