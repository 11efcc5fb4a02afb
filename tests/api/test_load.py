"""64 clients at once, of which some vanish and some talk nonsense: every request is answered, and nothing stays."""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
import os
import random
import socket
import struct
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.api.running import Running, running, served

CLIENTS = 64
LEAKED = 48 * 2**20  # bytes that a process may grow by without having kept anything: the allocator's holes
QUESTIONS = ("Hello!", "What is the capital of France?", "Tell me a story about a dog.", "Count to ten.", "2 + 3?")


class Clients:
    """Who asks, until a time; `told` counts what came of it, `wrong` what should not have."""

    def __init__(self, server: Running, wanted: dict[str, str], seconds: float, each: int):
        self.server, self.wanted = server, wanted
        self.end, self.each = time.monotonic() + seconds, each
        self.told: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.client = server.client(timeout=300)

    def run(self) -> None:
        threads = [threading.Thread(target=self._one, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        self.client.close()

    def _one(self, number: int) -> None:
        chance, asked = random.Random(number), 0
        deeds = [self.stream] * 6 + [self.whole, self.vanish, self.vanish, self.leave_unread, self.nonsense]
        deeds += [self.pipeline, self.read_slowly, self.close_half, self.babble]
        while asked < self.each or time.monotonic() < self.end:
            deed = self.stream if asked == 0 else chance.choice(deeds)  # all 64 stream at the beginning
            asked += 1
            try:
                deed(chance)
                self.told[deed.__name__] += 1
            except Exception as error:
                self.wrong.append(f"{deed.__name__}: {type(error).__name__}: {error}")

    def _body(self, chance: random.Random) -> dict[str, Any]:
        question = chance.choice(QUESTIONS)
        said: list[Any] = [{"role": "user", "content": question}]
        return {"model": "tinychat", "messages": said, "temperature": 0, "max_tokens": 48}

    def _check(self, body: dict[str, Any], text: str, finish: str | None) -> None:
        if text != self.wanted[body["messages"][0]["content"]] or finish not in ("stop", "length"):
            self.wrong.append(f"{body['messages']}: {text!r}, {finish}")

    # -- what clients do ----------------------------------------------------------------------------------------------
    def stream(self, chance: random.Random) -> None:
        body = self._body(chance)
        chunks = list(self.client.chat.completions.create(**body, stream=True))
        self._check(
            body, "".join(c.choices[0].delta.content or "" for c in chunks), chunks[-1].choices[0].finish_reason
        )

    def whole(self, chance: random.Random) -> None:
        body = self._body(chance)
        choice = self.client.chat.completions.create(**body).choices[0]
        self._check(body, choice.message.content or "", choice.finish_reason)

    def vanish(self, chance: random.Random) -> None:
        """In the middle of a stream, with a farewell or without."""
        with self._sent(self._body(chance) | {"stream": True, "max_tokens": 400, "temperature": 1}) as s:
            got = b""
            while got.count(b"data: ") < chance.randrange(1, 8):
                got += s.recv(4096)
            if chance.random() < 0.5:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset

    def leave_unread(self, chance: random.Random) -> None:
        """Before the answer to a request that is not streamed; sometimes before the request is whole."""
        body = self._body(chance) | {"max_tokens": 400, "n": 2, "temperature": 1}
        with self._sent(body, missing=chance.choice([0, 0, 5])):
            time.sleep(chance.random() * 0.05)

    def nonsense(self, chance: random.Random) -> None:
        broken = chance.choice([b"{", b"[]", b'{"model": "tinychat"}', b'{"model": "tinychat", "messages": 5}'])
        status, told, _ = self.server.ask("/v1/chat/completions", broken)
        assert status == 400 and told["error"]["message"]

    def pipeline(self, chance: random.Random) -> None:
        """Several requests on one connection before the first answer: they come in order; sometimes nobody waits."""
        count, leaves = chance.randrange(2, 5), chance.random() < 0.3
        one = json.dumps(self._body(chance) | {"max_tokens": 4}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(one)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=300) as s:
            s.sendall((head.encode() + one) * count)
            for _ in range(0 if leaves else count):
                answer = http.client.HTTPResponse(s)
                answer.begin()
                assert answer.status == 200 and json.loads(answer.read())["choices"]

    def read_slowly(self, chance: random.Random) -> None:
        """A few bytes at a time: the answer comes whole, and keeps nobody else waiting."""
        with self._sent(self._body(chance) | {"stream": True, "max_tokens": 16}) as s:
            got = b""
            while b"[DONE]" not in got:
                part = s.recv(chance.randrange(20, 400))
                assert part, got[-200:]
                got += part
                time.sleep(0.002)

    def close_half(self, chance: random.Random) -> None:
        """The client says nothing more, which a server cannot tell from one that is gone."""
        with self._sent(self._body(chance) | {"stream": True, "max_tokens": 400}) as s:
            s.shutdown(socket.SHUT_WR)
            while s.recv(65536):
                pass

    def babble(self, chance: random.Random) -> None:
        """What is no HTTP: it is told so, if anything is."""
        head = chance.choice([b"\x16\x03\x01" + b"\xff" * 99_999, b"GET / HTTP/1.1\r\nX: " + b"x" * 99_999])
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=300) as s:
            s.sendall(head)
            assert s.recv(1000)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431")

    def _sent(self, body: dict[str, Any], missing: int = 0) -> socket.socket:
        data = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        s = socket.create_connection(("127.0.0.1", self.server.port), timeout=300)
        s.sendall(head.encode() + data[: len(data) - missing])
        return s


def sockets(server: Running) -> int:
    """Connections that the server has."""
    found = psutil.net_connections("tcp")
    return sum(
        c.pid == os.getpid() and c.laddr.port == server.port and c.status == psutil.CONN_ESTABLISHED for c in found
    )


def threads(server: Running) -> int:
    """Threads of this process once no connection is left: the server closes those that ask nothing for 15 s."""
    end, found = time.monotonic() + 30, threading.active_count()
    while time.monotonic() < end:
        time.sleep(0.05)
        before, found = found, threading.active_count()
        if found == before and sockets(server) == 0:
            return found
    raise AssertionError(f"{sockets(server)} connections and {found} threads are left")


def storm(server: Running, seconds: float, each: int) -> Counter[str]:
    client = server.client()
    wanted = {
        q: client.chat.completions.create(
            model="tinychat", messages=[{"role": "user", "content": q}], temperature=0, max_tokens=48
        ).choices[0].message.content or ""
        for q in QUESTIONS
    }  # fmt: skip
    client.close()
    assert server.idle()
    before = threads(server)
    clients = Clients(server, wanted, seconds, each)
    clients.run()
    assert clients.wrong == []
    assert sum(clients.told.values()) >= CLIENTS * each
    assert server.idle(), "pages are not free"
    assert threads(server) == before
    return clients.told


def memory() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def test_64_streams(server: Running) -> None:
    told = storm(server, 0, 3)
    assert told["stream"] >= CLIENTS and told["vanish"] > 5 and told["nonsense"] > 0


@pytest.mark.slow
def test_five_minutes(server: Running) -> None:
    storm(server, 30, 1)
    before, files = memory(), psutil.Process().num_fds()
    told = storm(server, 300, 1)
    assert told["stream"] >= CLIENTS and told["vanish"] > 5
    assert memory() - before < LEAKED
    assert psutil.Process().num_fds() <= files


def test_pages_of_who_vanished(server: Running) -> None:
    """They are free at once, not when the answer would have ended."""
    body = {"model": "tinychat", "prompt": "Once", "max_tokens": 400, "temperature": 2, "n": 8, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/completions", json.dumps(body))
        connection.getresponse().read(10)
        assert server.scheduler.load[0] > 0
    assert server.idle(10)


@pytest.mark.slow
def test_few_pages(server: Running, model_folder: Path) -> None:
    """Of one context for all answers: they wait, give pages back and go on, and are what they are with many."""
    body = {
        "model": "tinychat",
        "temperature": 0.9,
        "max_tokens": 120,
        "prompt": "Once upon a time",
        "n": 12,
        "seed": 3,
    }
    want = [c["text"] for c in server.ask("/v1/completions", body)[1]["choices"]]
    with running([served(model_folder, "tinychat", parallel=12, cache_tokens=512)]) as small:
        assert [c["text"] for c in small.ask("/v1/completions", body)[1]["choices"]] == want
        assert small.scheduler.preempted > 0 and small.idle()
