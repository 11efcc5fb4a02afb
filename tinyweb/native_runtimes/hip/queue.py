"""The stream that everything goes to, and pinned memory that copies go through."""

from __future__ import annotations

import ctypes
from ctypes import c_void_p

from tinyweb.native_runtimes.hip.library import NOT_READY, Hip
from tinyweb.native_runtimes.runs import MOST, Runs, some_of

VARIABLE = "TINYWEB_HIP_SECONDS"
CHUNK = 4 << 20  # bytes of pinned memory that a copy goes through; two of them, so that both sides work
NON_BLOCKING, NO_TIMING = 1, 2  # hipStreamNonBlocking, hipEventDisableTiming
TO_DEVICE, TO_HOST = 1, 2  # hipMemcpyKind


class Queue(Runs):
    """Runs of kernels, and copies, on a stream of its own. HipError where something failed."""

    def __init__(self, hip: Hip) -> None:
        super().__init__(VARIABLE)
        self._hip = hip
        self.marked = True  # there is an event behind all that was asked for
        self.stream = hip.made("hipStreamCreateWithFlags", NON_BLOCKING)
        self._pinned: list[c_void_p] = []
        self._used = [0, 0]  # the run that is a chunk's last copy

    def ask(self, function: str, *arguments: object) -> None:
        """Ask for something on the stream."""
        self.marked = False
        self._hip.call(function, *arguments, self.stream)

    def idle(self) -> bool:
        if not self.marked and len(self._runs) < MOST:  # with more it would be waited
            self.mark()
        return super().idle() and self.marked

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

    def close(self) -> None:
        """Give back what belongs to it; nothing may be in flight."""
        for chunk in self._pinned:
            self._hip.ask("hipHostFree", chunk)
        for event in (*self._spare, *(e for e, _ in self._runs)):
            self._hip.ask("hipEventDestroy", event)
        self._hip.ask("hipStreamDestroy", self.stream)
        self._pinned, self._spare = [], []
        self._runs.clear()

    def _take(self, out: bytearray, which: int, begin: int, size: int) -> None:
        chunk = self._chunk(which)  # once its copy is over
        out[begin : begin + size] = (ctypes.c_char * size).from_address(chunk).raw

    def _chunk(self, which: int) -> int:
        """The address of pinned memory, once nothing uses it any more."""
        if not self._pinned:
            self._pinned = [self._hip.made("hipHostMalloc", CHUNK, 0) for _ in range(2)]
        self.reached(self._used[which])
        address = self._pinned[which].value
        assert address is not None
        return address

    def _new_event(self) -> c_void_p:
        return self._hip.made("hipEventCreateWithFlags", NO_TIMING)

    def _record(self, event: c_void_p) -> None:
        self._hip.call("hipEventRecord", event, self.stream)
        self.marked = True

    def _happened(self, event: c_void_p) -> bool:
        number = self._hip.ask("hipEventQuery", event)
        if number not in (0, NOT_READY):
            raise self._hip.error(number, f"run of {some_of(self.names)}" if self.names else "copy")
        return number == 0
