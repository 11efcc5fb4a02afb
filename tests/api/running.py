"""A server of the protocol in this process, and what it holds."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from openai import OpenAI

from tinyweb.api.app import Api
from tinyweb.api.models import Options, Served, serve_model
from tinyweb.api.scheduler import Scheduler
from tinyweb.api.server import Server, listen
from tinyweb.api.worker import Worker
from tinyweb.formats.source import open_model


@dataclass
class Running:
    """A server that answers, at a port of this machine."""

    api: Api
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def client(self, **options: Any) -> OpenAI:
        return OpenAI(base_url=self.url, **{"api_key": "none", "max_retries": 0, "timeout": 120, **options})

    @property
    def scheduler(self) -> Scheduler:
        engine = self.api.models[0].engine
        assert isinstance(engine, Scheduler)
        return engine

    def idle(self, seconds: float = 30) -> bool:
        """Waits until nothing is under way; whether every page is free then."""
        end = time.monotonic() + seconds
        while self.api.under_way or self.scheduler.load != (0, 0):
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return self.scheduler.pages.unused

    def ask(
        self, path: str, body: bytes | dict[str, Any] | None = None, method: str = "POST", **headers: str
    ) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Status, JSON and headers of the answer to any request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        with contextlib.closing(connection):
            connection.request(method, path, data, {k.replace("_", "-"): v for k, v in headers.items()})
            answer = connection.getresponse()
            content = answer.read()
            found = json.loads(content) if content else {}
            return answer.status, found, {k.lower(): v for k, v in answer.getheaders()}


@contextlib.contextmanager
def running(models: Sequence[Served], **options: Any) -> Iterator[Running]:
    """A server of these models until the block ends; it must end by itself then."""
    api = Api(models, Worker([m.engine for m in models if m.engine is not None]), **options)
    server, bound = Server(api), listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
            assert thread.is_alive()
        yield Running(api, bound.getsockname()[1])
    finally:
        api.worker.stop()
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def served(folder: Any, name: str, **options: Any) -> Served:
    return serve_model(open_model(folder), name, Options(**options))
