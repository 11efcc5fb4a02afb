"""The stream that everything goes to, and pinned memory that copies go through."""

from __future__ import annotations

from ctypes import c_void_p

from tinyweb.native_runtimes.hip.library import NOT_READY, Hip
from tinyweb.native_runtimes.runs import MOST, Runs, some_of
from tinyweb.native_runtimes.staging import Copies, Staging

VARIABLE = "TINYWEB_HIP_SECONDS"
NON_BLOCKING, NO_TIMING = 1, 2  # hipStreamNonBlocking, hipEventDisableTiming
TO_DEVICE, TO_HOST = 1, 2  # hipMemcpyKind


class Queue(Runs):
    """Runs of kernels, and copies, on a stream of its own. HipError where something failed."""

    def __init__(self, hip: Hip) -> None:
        super().__init__(VARIABLE)
        self._hip = hip
        self.marked = True  # there is an event behind all that was asked for
        self.stream = hip.made("hipStreamCreateWithFlags", NON_BLOCKING)
        self.staging = Staging(
            self,
            Copies(
                lambda nbytes: hip.made("hipHostMalloc", nbytes, 0).value or 0,
                lambda to, source, nbytes: self.ask("hipMemcpyAsync", to, source, nbytes, TO_DEVICE),
                lambda to, source, nbytes: self.ask("hipMemcpyAsync", to, source, nbytes, TO_HOST),
            ),
        )

    def ask(self, function: str, *arguments: object) -> None:
        """Ask for something on the stream."""
        self.marked = False
        self._hip.call(function, *arguments, self.stream)

    def idle(self) -> bool:
        if not self.marked and len(self._runs) < MOST:  # with more it would be waited
            self.mark()
        return super().idle() and self.marked

    def close(self) -> None:
        """Give back what belongs to it; nothing may be in flight."""
        for address in self.staging.pinned:
            self._hip.ask("hipHostFree", address)
        for event in (*self._spare, *(e for e, _ in self._runs)):
            self._hip.ask("hipEventDestroy", event)
        self._hip.ask("hipStreamDestroy", self.stream)
        self._spare = []
        self._runs.clear()

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
