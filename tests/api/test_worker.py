"""The order of what the thread of the server computes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from tinyweb.api.generation import Generation
from tinyweb.api.worker import Worker


class Counted:
    """An engine that always has something to do."""

    load = (1, 0)

    def __init__(self) -> None:
        self.steps = 0

    def submit(self, generation: Generation) -> None:
        pass

    def fail(self, message: str) -> None:
        pass

    def step(self) -> bool:
        self.steps += 1
        return True


def test_answers_go_on_between_vectors() -> None:
    """However many clients ask for vectors: there is a step after each part."""
    engine = Counted()
    worker = Worker([engine])

    async def ask() -> None:
        worker.start(asyncio.get_running_loop())
        seen = await asyncio.gather(*(worker.call(lambda: engine.steps) for _ in range(50)))
        assert len(set(seen)) == 50

    try:
        with ThreadPoolExecutor(1) as beside:  # as the browser of other tests has a loop in this thread
            beside.submit(asyncio.run, ask()).result(60)
    finally:
        worker.stop()
        assert worker.join(30)
