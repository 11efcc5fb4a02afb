"""The thread that computes: it alone touches models, and hands results to the event loop once a step."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from tinyweb.api.generation import Generation, Piece
from tinyweb.api.scheduler import Engine
from tinyweb.errors import TinywebError, printable

T = TypeVar("T")
Job = Callable[[], bool]  # whether it computed
STOPPING = "The server is shutting down."


class Worker:
    """Runs the steps of engines in turn, and what `call` is given, until `stop`."""

    def __init__(self, engines: Sequence[Engine]):
        self.engines = engines
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._told: list[Callable[[], object]] = []  # what the loop is to be told of this step
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="tinyweb-api", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Results are handed to `loop` from now on."""
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """All answers break off, with a sentence that says why; the thread ends. Any thread may call it."""
        self._stopping = True
        self._jobs.put(None)

    def join(self, seconds: float) -> bool:
        """Waits for the thread; whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def submit(self, engine: Engine, generation: Generation, receive: Callable[[Piece], object]) -> None:
        """An answer is made; the loop calls `receive` with its pieces."""
        generation.receive = lambda piece: self._told.append(lambda: receive(piece))
        if self._stopping:
            receive(Piece(error=STOPPING))
            return

        def job() -> bool:
            engine.submit(generation)
            return False

        self._jobs.put(job)

    async def call(self, function: Callable[[], T]) -> T:
        """What `function` returns, computed in the thread between two steps."""
        future: Future[T] = Future()

        def job() -> bool:
            if not future.set_running_or_notify_cancel():
                return False
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)
            return True

        if self._stopping:
            raise TinywebError(STOPPING)
        self._jobs.put(job)
        return await asyncio.wrap_future(future)

    def _run(self) -> None:
        busy = False
        while not self._stopping:
            try:
                job = self._jobs.get(block=not busy)
            except queue.Empty:
                job = None
            if job is not None and not job():
                busy = True
                continue  # answers that were asked for are known before the next step; none waits for all vectors
            busy = any([self._step(engine) for engine in self.engines])
            self._tell()
        while not self._jobs.empty():  # what came too late is told so, too
            if (job := self._jobs.get()) is not None:
                job()
        for engine in self.engines:
            engine.fail(STOPPING)
        self._tell()

    def _step(self, engine: Engine) -> bool:
        try:
            return engine.step()
        except Exception as error:  # the answers are lost; the next ones may be made
            detail = printable(str(error)) or type(error).__name__
            engine.fail(f"The computation failed: {detail}")
            return True

    def _tell(self) -> None:
        told, self._told = self._told, []
        if told and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: [tell() for tell in told])
