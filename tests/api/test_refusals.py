"""What cannot be answered gets a status and one sentence, in the protocol's shape; the server goes on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import openai
import pytest
import uvicorn

from tests.api.running import Running, running, served
from tinyweb.api.app import Limits
from tinyweb.api.server import Connection, listen

HELLO: list[Any] = [{"role": "user", "content": "Hello!"}]
CHAT: dict[str, Any] = {"model": "tinychat", "messages": HELLO, "max_tokens": 2}
TEXT: dict[str, Any] = {"model": "tinychat", "prompt": "Hello", "max_tokens": 2}
VECTOR: dict[str, Any] = {"model": "tinyembed", "input": "Hello"}
GOOD = {"/v1/chat/completions": CHAT, "/v1/completions": TEXT, "/v1/embeddings": VECTOR}


def refused(
    server: Running, path: str, body: Any, status: int = 400, method: str = "POST", **headers: str
) -> dict[str, Any]:
    """The error that comes, whose shape is checked."""
    code, answer, _ = server.ask(path, body, method, **headers)
    assert code == status, answer
    assert set(answer) == {"error"} and set(answer["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = answer["error"]
    assert isinstance(error["message"], str) and error["message"] and isinstance(error["type"], str)
    assert error["param"] is None or isinstance(error["param"], str)
    return error


@pytest.mark.parametrize("path", GOOD)
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b'"text"', b"\xff\xfe", b"{'model': 1}", b'{"model": NaN}', b"{" * 100_000,
        b"[" * 100_000, b'{"model": 1' + b"0" * 6000 + b"}", b'{"a": 1e999, "temperature": 1e999}', b"\0",
    ],
)  # fmt: skip
def test_bodies_that_are_no_request(server: Running, path: str, body: bytes) -> None:
    refused(server, path, body)


def test_numbers_of_too_many_digits(server: Running) -> None:
    """Said in words of the request, not of Python."""
    message = refused(server, "/v1/chat/completions", b'{"n": 1' + b"0" * 6000 + b"}")["message"]
    assert message == "The body of the request is no JSON: a number of 6001 digits is more than anything here can be"


@pytest.mark.parametrize("path", GOOD)
def test_models_that_are_not_here(server: Running, path: str) -> None:
    for name in ("gpt-5", "", 7, ["tinychat"], {"id": "tinychat"}, "x" * 100_000, "\u2028"):
        assert refused(server, path, GOOD[path] | {"model": name}, 404)["code"] == "model_not_found"
    missing = {k: v for k, v in GOOD[path].items() if k != "model"}
    assert refused(server, path, missing)["param"] == "model"


WRONG: list[tuple[str, Any]] = [
    ("temperature", "hot"), ("temperature", -1), ("temperature", 2.1), ("temperature", True), ("temperature", []),
    ("top_p", -0.1), ("top_p", 1.5), ("top_p", "1"), ("top_k", -1), ("top_k", 0.5), ("n", 0), ("n", -3), ("n", 1.5),
    ("n", 10**9), ("n", "2"), ("n", True), ("seed", "x"), ("seed", 2**70), ("seed", 1.5), ("max_tokens", 0),
    ("max_tokens", -5), ("max_tokens", "many"), ("max_tokens", 10**30), ("stop", 5), ("stop", [""]), ("stop", [1]),
    ("stop", {"a": 1}), ("stop", ["x"] * 100), ("stop", "x" * 10_000), ("stream", "yes"), ("stream", 1),
    ("stream_options", {"include_usage": True}), ("logit_bias", {"5": 100}), ("frequency_penalty", 0.5),
    ("presence_penalty", "x"), ("best_of", 3), ("stop", "\ud800"),
]  # fmt: skip
WRONG_CHAT: list[tuple[str, Any]] = [
    ("messages", None), ("messages", []), ("messages", "Hello"), ("messages", {}), ("messages", [1]),
    ("messages", [[]]), ("messages", [{}]), ("messages", [{"role": "user"}]), ("messages", [{"content": "x"}]),
    ("messages", [{"role": "pope", "content": "x"}]), ("messages", [{"role": 1, "content": "x"}]),
    ("messages", [{"role": [], "content": "x"}]), ("messages", [{"role": "user", "content": 5}]),
    ("messages", [{"role": "user", "content": [1]}]), ("messages", [{"role": "user", "content": [{"text": "x"}]}]),
    ("messages", [{"role": "user", "content": [{"type": "text"}]}]),
    ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
    ("messages", [{"role": "user", "content": "\ud83d"}]),
    ("messages", [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}]),
    ("messages", HELLO * 5000), ("logprobs", 3), ("logprobs", "yes"), ("top_logprobs", 3),
    ("tools", [{"type": "function", "function": {"name": "f"}}]), ("response_format", {"type": "json_object"}),
    ("max_completion_tokens", 0), ("stream_options", 5),
]  # fmt: skip
WRONG_TEXT: list[tuple[str, Any]] = [
    ("prompt", None), ("prompt", 5), ("prompt", []), ("prompt", {}), ("prompt", [[]]), ("prompt", [1.5]),
    ("prompt", [-1]), ("prompt", [4096]), ("prompt", [2**70]), ("prompt", [[True]]), ("prompt", ["a", [1, "b"]]),
    ("prompt", ["a"] * 1000), ("prompt", "\udfff"), ("logprobs", True), ("logprobs", 6), ("logprobs", -1),
    ("echo", True), ("suffix", "x"),
]  # fmt: skip
WRONG_VECTOR: list[tuple[str, Any]] = [
    ("input", None), ("input", 5), ("input", []), ("input", ""), ("input", ["a", ""]), ("input", [1, 2]),
    ("input", [[1, 2]]), ("input", [None]), ("input", {}), ("input", ["a"] * 3000), ("input", "\ud800"),
    ("dimensions", 5), ("dimensions", 0), ("dimensions", "x"), ("encoding_format", "xml"), ("encoding_format", 5),
    ("input_type", "poem"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "cases"),
    [
        ("/v1/chat/completions", WRONG + WRONG_CHAT),
        ("/v1/completions", WRONG + WRONG_TEXT),
        ("/v1/embeddings", WRONG_VECTOR),
    ],
)
def test_fields_that_cannot_be(server: Running, path: str, cases: list[tuple[str, Any]]) -> None:
    """The field is named, and nothing is computed."""
    for name, value in cases:
        error = refused(server, path, GOOD[path] | {name: value})
        assert error["param"] and error["param"].split("[")[0].split(".")[0] == name, (name, value, error)
    assert server.ask(path, GOOD[path])[0] == 200


def test_fields_that_change_nothing(server: Running) -> None:
    neutral = {
        "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "tools": [], "tool_choice": "none",
        "response_format": {"type": "text"}, "user": "somebody", "stop": None, "n": None, "seed": None, "stream": False,
        "metadata": {"a": "b"}, "store": False, "temperature": None, "logprobs": False, "max_tokens": 3.0,
    }  # fmt: skip
    assert server.ask("/v1/chat/completions", CHAT | neutral)[0] == 200


def test_too_long(server: Running) -> None:
    for path, name, value in (
        ("/v1/chat/completions", "messages", [{"role": "user", "content": "dog " * 2000}]),
        ("/v1/completions", "prompt", "dog " * 2000),
        ("/v1/completions", "prompt", [[9], [9] * 600]),
    ):
        error = refused(server, path, GOOD[path] | {name: value})
        assert error["code"] == "context_length_exceeded" and "512" in error["message"]
    # what fits with one token more ends with it
    status, answer, _ = server.ask("/v1/completions", TEXT | {"prompt": [9] * 512, "max_tokens": 50, "temperature": 0})
    assert status == 200 and answer["usage"] == {"prompt_tokens": 512, "completion_tokens": 1, "total_tokens": 513}
    assert answer["choices"][0]["finish_reason"] in ("length", "stop")


@pytest.mark.parametrize("path", GOOD)
def test_huge_bodies(server: Running, path: str) -> None:
    """Refused by what they announce, before they are sent; and by what comes, where nothing is announced."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {10**15}\r\n\r\n".encode())
        assert s.recv(100).startswith(b"HTTP/1.1 413")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(20):
            s.sendall(b"100000\r\n" + b"x" * 2**20 + b"\r\n")
        s.sendall(b"0\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 413")
    refused(server, path, b" " * (9 * 2**20), 413)


def test_paths_and_methods(server: Running) -> None:
    for path in ("/", "/v1", "/v1/images/generations", "/v1/chat", "/v2/models", "/v1/chat/completions/x"):
        refused(server, path, {}, 404)
    refused(server, "/v1/models/nobody", None, 404, "GET")
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        refused(server, "/v1/chat/completions", None, 405, method)
    refused(server, "/v1/models", {}, 405)


def test_wrong_kinds_of_models(server: Running) -> None:
    for path in ("/v1/chat/completions", "/v1/completions"):
        assert "vectors" in refused(server, path, GOOD[path] | {"model": "tinyembed"})["message"]


def test_no_http(server: Running) -> None:
    """What is no request at all closes the connection, with a status where there is one to give."""
    for data in (b"\0" * 100, b"GET\r\n\r\n", b"POST /v1/models HTTP/9.9\r\n\r\n", b"x" * 200_000):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
                told = s.recv(1000)[:12]
            except OSError as error:  # closed before all of it was sent, or read
                assert error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)
                told = b""
            assert told in (b"", *(f"HTTP/1.1 {status}".encode() for status in (400, 405, 431, 505)))
    assert server.ask("/health", method="GET")[0] == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 300_000 + b"\r\n\r\n", 431),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 50_000 + b"\r\n", 431),
        (b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01" + b"\xff" * 300_000, 400),
        (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
    ],
    ids=["a header", "headers", "an address", "TLS", "a chunk", "two lengths"],
)
def test_heads_that_are_none(server: Running, head: bytes, status: int) -> None:
    """Are told so, in the shape of other errors, also where more is sent than is read."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        s.sendall(head)
        answer = http.client.HTTPResponse(s)
        answer.begin()
        told = json.loads(answer.read())["error"]
        assert answer.status == status and told["code"] == "invalid_http" and told["message"]
        assert s.recv(1) == b""  # and the connection ends


def test_keys_and_pages(server: Running) -> None:
    with running(server.api.models[1:], key="secret", origins=["https://page.example"]) as found:
        for key in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secretx"}, {"Authorization": "Bearer é"}):
            assert refused(found, "/v1/embeddings", VECTOR, 401, **key)["code"] == "invalid_api_key"
            refused(found, "/v1/models", None, 401, "GET", **key)
        for host in ("x/", "x?", "x#", "x/a?b", ""):  # what a client says is the host is no part of the path
            refused(found, "/v1/models", None, 421, "GET", Host=host)
        assert found.ask("/health", method="GET")[0] == 200
        assert len(found.client(api_key="secret").embeddings.create(model="tinyembed", input="x").data) == 1
        with pytest.raises(openai.AuthenticationError):
            found.client().models.list()

        key = {"Authorization": "Bearer secret"}
        for origin in ("http://localhost:5173", "http://127.0.0.1:8080", "https://page.example"):
            status, _, headers = found.ask("/v1/embeddings", VECTOR, Origin=origin, **key)
            assert status == 200 and headers["access-control-allow-origin"] == origin
            asked = {
                "Access_Control_Request_Method": "POST",
                "Access_Control_Request_Headers": "authorization,content-type",
            }
            status, _, headers = preflight(found, Origin=origin, **asked)
            assert status == 200 and headers["access-control-allow-origin"] == origin
            assert "authorization" in headers["access-control-allow-headers"]
        for origin in ("https://evil.example", "http://localhost.evil.example", "null", "https://page.example:99"):
            status, _, headers = found.ask("/v1/embeddings", VECTOR, Origin=origin, **key)
            assert status == 403 and "access-control-allow-origin" not in headers


def preflight(server: Running, **headers: str) -> tuple[int, Any, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("OPTIONS", "/v1/embeddings", headers={k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    content, found = answer.read(), {k.lower(): v for k, v in answer.getheaders()}
    connection.close()
    return answer.status, content, found


def test_connections_without_a_request(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Are closed after a while, whether or not something came of one."""
    monkeypatch.setattr("tinyweb.api.server.KEEP_ALIVE", 0.3)
    with running(server.api.models[1:]) as found:
        for data in (b"", b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\n"):
            with socket.create_connection(("127.0.0.1", found.port), timeout=30) as s:
                s.sendall(data)
                assert s.recv(100) == b""
        assert found.ask("/health", method="GET")[0] == 200


def test_other_hosts(server: Running) -> None:
    """A page whose host's name suddenly means this machine reads nothing."""
    for host in ("evil.example", "localhost.evil.example:8000", "127.0.0.1.evil.example", "10.0.0.1", "x", "", "a b"):
        error = refused(server, "/v1/models", None, 421, "GET", Host=host)
        assert error["code"] == "host_not_allowed" and "--allow-host" in error["message"]
        refused(server, "/v1/embeddings", VECTOR, 421, Host=host)
    for host in ("localhost", f"LOCALHOST:{server.port}", "page.localhost", "127.0.0.1:1"):
        assert server.ask("/v1/models", method="GET", Host=host)[0] == 200
    with running(server.api.models[1:], hosts=("box.example", "b\u00fccher.example")) as found:
        for host in ("box.example", f"Box.Example:{found.port}", "xn--bcher-kva.example", "127.0.0.1"):
            assert found.ask("/v1/models", method="GET", Host=host)[0] == 200
        refused(found, "/v1/models", None, 421, "GET", Host="other.example")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        s.sendall(b"GET /health HTTP/1.0\r\n\r\n")  # has no such header
        assert s.recv(100).startswith(b"HTTP/1.1 200")


def test_too_many_connections(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinyweb.api.server.CONNECTIONS", 3)
    with running(server.api.models[1:]) as found, contextlib.ExitStack() as held:
        for _ in range(3):
            held.enter_context(socket.create_connection(("127.0.0.1", found.port), timeout=30))
        assert refused(found, "/health", None, 503, "GET")["code"] == "too_many_connections"
        held.close()
        end = time.monotonic() + 30
        while (status := found.ask("/health", method="GET")[0]) != 200 and time.monotonic() < end:
            time.sleep(0.01)
        assert status == 200


def test_answers_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is given up."""
    monkeypatch.setattr("tinyweb.api.server.UNREAD", 0.3)
    ended = threading.Event()
    size = 32 << 20

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": bytes(size)})
        ended.set()

    with serving(answer) as port, socket.create_connection(("127.0.0.1", port), timeout=30) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ended.wait(30)


def test_answers_that_are_read_slowly() -> None:
    """Go on as long as anything is taken."""
    sizes, asked, given_up = [900, 800, 800, 100], list[Any](), list[bool]()
    connection: Any = Connection.__new__(Connection)
    connection.transport = SimpleNamespace(
        get_write_buffer_size=lambda: sizes.pop(0), abort=lambda: given_up.append(True)
    )
    connection.loop = SimpleNamespace(call_later=lambda seconds, call, left: asked.append((call, left)))
    connection._watch()
    call, left = asked.pop()
    call(left)
    call, left = asked.pop()
    assert not given_up
    call(left)  # nothing was taken since
    assert given_up and not asked


@contextlib.contextmanager
def serving(app: Any) -> Iterator[int]:
    """A port where an application answers, over this server's connections."""
    config = uvicorn.Config(app, log_level="critical", lifespan="off", ws="none", http=Connection)
    server, bound = uvicorn.Server(config), listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def test_a_body_that_is_no_http_ends_its_answer() -> None:
    """Whoever goes on answering is not disturbed by a connection that takes no more."""
    failed, ended = list[Exception](), threading.Event()

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(30):
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
                await asyncio.sleep(0.01)
        except RuntimeError as error:
            failed.append(error)
        ended.set()

    with serving(answer) as port, socket.create_connection(("127.0.0.1", port), timeout=30) as s:
        s.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        assert s.recv(1000).startswith(b"HTTP/1.1 200")
        s.sendall(b"zz\r\n")
        while s.recv(1000):
            pass
        assert ended.wait(30) and not failed


def test_limits(server: Running) -> None:
    """Of answers at a time, and of the time that a request may take to come."""
    limits = Limits(body=1000, body_seconds=0.3, answers=4)
    with running(server.api.models[1:], limits=limits) as found:
        refused(found, "/v1/embeddings", VECTOR | {"input": "x" * 2000}, 413)
        with socket.create_connection(("127.0.0.1", found.port), timeout=30) as s:
            s.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            began = time.monotonic()
            assert s.recv(1000).startswith(b"HTTP/1.1 408") and time.monotonic() - began < 20
    many = TEXT | {"prompt": ["Hello"] * 13, "n": 5}
    assert "65 answers" in refused(server, "/v1/completions", many)["message"]
    server.api.under_way += 1024
    try:
        assert refused(server, "/v1/chat/completions", CHAT, 429)["code"] == "rate_limit_exceeded"
    finally:
        server.api.under_way -= 1024


def test_a_step_that_fails(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers under way break off with the reason; the next ones are made."""

    def broken(rows: Any) -> list[int]:
        raise RuntimeError("the device\x1b is gone")

    with monkeypatch.context() as patch:
        patch.setattr(server.scheduler.batch, "step", broken)
        error = refused(server, "/v1/chat/completions", CHAT, 500)
        assert "the device\ufffd is gone" in error["message"] and error["type"] == "server_error"
        chunks = server.client().chat.completions.create(**CHAT, stream=True)
        with pytest.raises(openai.APIError, match="is gone"):
            list(chunks)
    assert server.idle() and server.ask("/v1/chat/completions", CHAT)[0] == 200


def test_a_cache_that_is_too_small(model_folder: Any) -> None:
    with pytest.raises(Exception, match="cannot hold one context of 512"):
        served(model_folder, "tinychat", cache_tokens=100)
