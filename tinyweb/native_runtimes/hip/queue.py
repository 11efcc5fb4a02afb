"""Work on one stream of a HIP device: what was asked for in order, how far it has come, and memory to copy through."""

from __future__ import annotations

import ctypes
import os
import time
from collections import deque
from ctypes import c_void_p

from tinyweb.errors import DeviceError
from tinyweb.native_runtimes.hip.library import NOT_READY, Hip

HANG_SECONDS = 120.0
VARIABLE = "TINYWEB_HIP_SECONDS"
MOST = 256  # runs in flight: whoever asks for more waits for the first
CHUNK = 4 << 20  # bytes of pinned memory that a copy goes through; two of them, so that both sides work
NON_BLOCKING, NO_TIMING = 1, 2  # hipStreamNonBlocking, hipEventDisableTiming
TO_DEVICE, TO_HOST = 1, 2  # hipMemcpyKind
_SPINS = 200  # questions before the first pause between two


class Stuck(Exception):
    """Work has not ended within the limit. `names`: kernels that may be running; `seconds`: the limit."""

    def __init__(self, names: tuple[str, ...], seconds: float) -> None:
        super().__init__()
        self.names, self.seconds = names, seconds


class Queue:
    """A stream, with an event behind each run. HipError where something failed; Stuck where it does not end."""

    def __init__(self, hip: Hip) -> None:
        self._hip, self.seconds = hip, hang_seconds()
        self.marked = True  # there is an event behind all that was asked for
        self.stream = hip.made("hipStreamCreateWithFlags", NON_BLOCKING)
        self._spare: list[c_void_p] = []
        self._runs: deque[tuple[c_void_p, tuple[str, ...]]] = deque()
        self._pinned: list[c_void_p] = []
        self._used: list[c_void_p | None] = [None, None]  # the event behind a chunk's last copy

    def ask(self, function: str, *arguments: object) -> None:
        """Ask for something on the stream."""
        self.marked = False
        self._hip.call(function, *arguments, self.stream)

    def mark(self, names: tuple[str, ...] = ()) -> c_void_p:
        """Put an event behind what was asked for so far; `names` are the kernels since the last one."""
        while len(self._runs) >= MOST:
            self._wait_first()
        event = self._spare.pop() if self._spare else self._hip.made("hipEventCreateWithFlags", NO_TIMING)
        self._hip.call("hipEventRecord", event, self.stream)
        self._runs.append((event, names))
        self.marked = True
        return event

    def wait(self) -> None:
        """Wait until everything asked for has happened."""
        self.mark()
        while self._runs:
            self._wait_first()

    def idle(self) -> bool:
        """Whether everything asked for has happened."""
        if not self.marked:
            self.mark()
        while self._runs and self._ended(self._runs[0][0]):
            self._spare.append(self._runs.popleft()[0])
        return not self._runs

    def copy_in(self, address: int, data: memoryview) -> None:
        """Bytes to the device; `data` may change as soon as this returns."""
        for number, begin in enumerate(range(0, data.nbytes, CHUNK)):
            part = data[begin : begin + CHUNK]
            chunk = self._chunk(number % 2)
            pinned = (ctypes.c_char * part.nbytes).from_address(chunk)
            memoryview(pinned).cast("B")[:] = part
            self.ask("hipMemcpyAsync", address + begin, chunk, part.nbytes, TO_DEVICE)
            self._used[number % 2] = self.mark()

    def copy_out(self, address: int, nbytes: int) -> bytes:
        """Bytes from the device: while one chunk is copied, the one before is read."""
        out = bytearray(nbytes)
        pending: list[tuple[int, int, int]] = []
        for number, begin in enumerate(range(0, nbytes, CHUNK)):
            size, chunk = min(CHUNK, nbytes - begin), self._chunk(number % 2)
            self.ask("hipMemcpyAsync", chunk, address + begin, size, TO_HOST)
            self._used[number % 2] = self.mark()
            pending.append((number % 2, begin, size))
            if len(pending) > 1:
                self._take(out, *pending.pop(0))
        for one in pending:
            self._take(out, *one)
        return bytes(out)

    def _take(self, out: bytearray, which: int, begin: int, size: int) -> None:
        chunk = self._chunk(which)  # once its copy is over
        out[begin : begin + size] = (ctypes.c_char * size).from_address(chunk).raw

    def _chunk(self, which: int) -> int:
        """The address of pinned memory, once nothing uses it any more."""
        if not self._pinned:
            for _ in range(2):
                self._pinned.append(self._hip.made("hipHostMalloc", CHUNK, 0))
        event = self._used[which]
        while event is not None and any(e is event for e, _ in self._runs):
            self._wait_first()
        self._used[which] = None
        address = self._pinned[which].value
        assert address is not None
        return address

    def close(self) -> None:
        """Give back what belongs to it; nothing may be in flight."""
        for chunk in self._pinned:
            self._hip.ask("hipHostFree", chunk)
        for event in (*self._spare, *(e for e, _ in self._runs)):
            self._hip.ask("hipEventDestroy", event)
        self._hip.ask("hipStreamDestroy", self.stream)
        self._pinned, self._spare = [], []
        self._runs.clear()

    def _ended(self, event: c_void_p) -> bool:
        number = self._hip.ask("hipEventQuery", event)
        if number not in (0, NOT_READY):
            names = tuple(dict.fromkeys(n for _, run in self._runs for n in run))
            raise self._hip.error(number, f"run of {shown(names)}" if names else "copy")
        return number == 0

    def _wait_first(self) -> None:
        event, names = self._runs[0]
        begin, asked = time.monotonic(), 0
        while not self._ended(event):
            asked += 1
            if asked > _SPINS:
                waited = time.monotonic() - begin
                if waited > self.seconds:
                    raise Stuck(names or tuple(n for _, run in self._runs for n in run), self.seconds)
                time.sleep(min(waited / 16, 1e-3))
        self._spare.append(self._runs.popleft()[0])


def shown(names: tuple[str, ...]) -> str:
    """Kernels in a message: the first three of them."""
    different = tuple(dict.fromkeys(names))
    return ", ".join(different[:3]) + (f" and {len(different) - 3} more" if len(different) > 3 else "")


def hang_seconds() -> float:
    """How long one run may take: TINYWEB_HIP_SECONDS, else HANG_SECONDS."""
    text = os.environ.get(VARIABLE) or str(HANG_SECONDS)
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not found > 0:
        raise DeviceError(f"{VARIABLE} is {text!r}: set it to a number of seconds above 0")
    return found
