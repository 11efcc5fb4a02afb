"""The static server: headers, compression, ranges, validators, and what it must never hand out."""

import gzip
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tinyweb.errors import ExportError
from tinyweb.serve import NotSatisfiable, SiteServer, accepts_gzip, announce, open_server, parse_range

SHARD = bytes(range(256)) * 64


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "site"
    (root / "model/weights").mkdir(parents=True)
    (root / "assets").mkdir()
    (root / "index.html").write_text("<!doctype html><title>chat</title>" + "<p>text</p>" * 100)
    (root / "model/manifest.json").write_text('{"format": "tinyweb-bundle"}' + " " * 500)
    (root / "model/weights/000.bin").write_bytes(SHARD)
    (root / "model/a.wasm").write_bytes(b"\0asm" + bytes(1000))
    (root / "assets/tinyweb.js").write_text("export {};\n" * 100)
    (root / ".secret").write_text("hidden")
    (tmp_path / "outside.txt").write_text("outside")
    (root / "link.txt").symlink_to(tmp_path / "outside.txt")
    return root


Serve = Callable[..., SiteServer]


@pytest.fixture
def serving(site: Path) -> Iterator[Serve]:
    running: list[tuple[SiteServer, threading.Thread]] = []

    def start(**options: Any) -> SiteServer:
        server = open_server(site, **options)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join(60)
        server.server_close()


def ask(
    server: SiteServer, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest(method, path, skip_accept_encoding=True)  # as it is: no normalisation of the path
    for name, value in (headers or {}).items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_types_and_isolation(serving: Serve) -> None:
    server = serving()
    expected = {
        "/": "text/html; charset=utf-8",
        "/assets/tinyweb.js": "text/javascript; charset=utf-8",
        "/model/a.wasm": "application/wasm",
        "/model/manifest.json": "application/json",
        "/model/weights/000.bin": "application/octet-stream",
    }
    for path, kind in expected.items():
        response, _ = ask(server, path)
        assert response.status == 200
        assert response.headers["Content-Type"] == kind
        assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert response.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
        assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert response.headers["Cache-Control"] == "no-cache"
        assert response.headers["X-Content-Type-Options"] == "nosniff"


def test_without_isolation(serving: Serve) -> None:
    response, _ = ask(serving(isolated=False), "/")
    assert response.status == 200
    assert not [name for name in response.headers if name.lower().startswith("cross-origin")]


def test_compression(serving: Serve, site: Path) -> None:
    server = serving()
    page = (site / "index.html").read_bytes()
    response, body = ask(server, "/", headers={"Accept-Encoding": "br, gzip;q=0.5"})
    assert response.headers["Content-Encoding"] == "gzip"
    assert response.headers["Vary"] == "Accept-Encoding"
    assert len(body) < len(page) and gzip.decompress(body) == page
    response, body = ask(server, "/")
    assert response.headers["Content-Encoding"] is None and body == page
    response, body = ask(server, "/", headers={"Accept-Encoding": "gzip;q=0"})
    assert response.headers["Content-Encoding"] is None and body == page
    response, _ = ask(server, "/model/weights/000.bin", headers={"Accept-Encoding": "gzip"})
    assert response.headers["Content-Encoding"] is None


def test_head(serving: Serve) -> None:
    server = serving()
    response, body = ask(server, "/model/weights/000.bin", "HEAD")
    assert (response.status, response.headers["Content-Length"], body) == (200, str(len(SHARD)), b"")
    response, body = ask(server, "/nothing", "HEAD")
    assert (response.status, body) == (404, b"")


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=100-199", 100, 199),
        ("bytes=16000-", 16000, 16383),
        ("bytes=-5", 16379, 16383),
        ("bytes=5-99999", 5, 16383),
    ],
)
def test_ranges(serving: Serve, asked: str, first: int, last: int) -> None:
    response, body = ask(serving(), "/model/weights/000.bin", headers={"Range": asked, "Accept-Encoding": "gzip"})
    assert response.status == 206
    assert response.headers["Content-Range"] == f"bytes {first}-{last}/{len(SHARD)}"
    assert body == SHARD[first : last + 1]


@pytest.mark.parametrize("asked", ["bytes=16384-", "bytes=99999-100000", "bytes=-0"])
def test_range_outside(serving: Serve, asked: str) -> None:
    response, _ = ask(serving(), "/model/weights/000.bin", headers={"Range": asked})
    assert response.status == 416
    assert response.headers["Content-Range"] == f"bytes */{len(SHARD)}"


@pytest.mark.parametrize(
    "asked", ["bytes=5-2", "bytes=0-1,4-5", "lines=1-2", "bytes=-", "bytes=a-b", "bytes=" + "9" * 4000 + "-"]
)
def test_range_ignored(serving: Serve, asked: str) -> None:
    response, body = ask(serving(), "/model/weights/000.bin", headers={"Range": asked})
    assert (response.status, body) == (200, SHARD)


def test_range_of_a_file_that_changed(serving: Serve) -> None:
    server = serving()
    tag = ask(server, "/model/weights/000.bin")[0].headers["ETag"]
    assert ask(server, "/model/weights/000.bin", headers={"Range": "bytes=0-1", "If-Range": tag})[0].status == 206
    assert ask(server, "/model/weights/000.bin", headers={"Range": "bytes=0-1", "If-Range": '"other"'})[0].status == 200


def test_validators(serving: Serve, site: Path) -> None:
    server = serving()
    plain = ask(server, "/")[0].headers["ETag"]
    zipped = ask(server, "/", headers={"Accept-Encoding": "gzip"})[0].headers["ETag"]
    assert plain != zipped
    for known in (plain, zipped, f'"x", W/{plain}', "*"):
        response, body = ask(server, "/", headers={"If-None-Match": known})
        assert (response.status, body) == (304, b"")
        assert response.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert ask(server, "/", headers={"If-None-Match": '"other"'})[0].status == 200
    (site / "index.html").write_text("changed")
    response, body = ask(server, "/", headers={"If-None-Match": plain})
    assert (response.status, body) == (200, b"changed")


@pytest.mark.parametrize(
    "path",
    [
        "/../outside.txt", "/model/../../outside.txt", "/%2e%2e/outside.txt", "/..%2foutside.txt",
        "/%2e%2e%2foutside.txt", "/..\\outside.txt", "/link.txt", 
        "/.secret", "/%2esecret", "/model/weights/", "/model/weights/000.bin/x",
        "/a%00b", "/" + "x" * 5000, "/nothing?x=../..", "//etc/passwd", "/C:/windows", "/%ff%fe",
    ],
)  # fmt: skip
def test_nothing_else_is_served(serving: Serve, path: str) -> None:
    response, body = ask(serving(), path)
    assert response.status == 404
    assert b"outside" not in body.replace(b"outside.txt", b"") and b"hidden" not in body and b"000.bin<" not in body


def test_the_answer_to_a_bad_path_is_harmless(serving: Serve) -> None:
    _, body = ask(serving(), "/<script>alert(1)</script>")
    assert b"<script>" not in body


def test_folders_redirect(serving: Serve, site: Path) -> None:
    (site / "model/index.html").write_text("in a folder")
    server = serving()
    response, _ = ask(server, "/model")
    assert (response.status, response.headers["Location"]) == (301, "model/")
    assert ask(server, "/model/")[1] == b"in a folder"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods(serving: Serve, method: str) -> None:
    response, _ = ask(serving(), "/", method)
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")


def test_many_requests_on_one_connection(serving: Serve) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", serving().port, timeout=10)
    for _ in range(5):
        connection.request("GET", "/model/weights/000.bin")
        assert connection.getresponse().read() == SHARD
    connection.close()


def test_a_client_that_goes_away(serving: Serve, site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (site / "large.bin").write_bytes(bytes(16 * 2**20))
    server = serving()
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n")
        raw.recv(10)
    assert ask(server, "/")[0].status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_refusals(site: Path, tmp_path: Path, serving: Serve) -> None:
    with pytest.raises(ExportError, match="There is no folder"):
        open_server(tmp_path / "nowhere")
    with pytest.raises(ExportError, match="no exported site"):
        open_server(tmp_path)
    with pytest.raises(ExportError, match="does not exist"):
        open_server(site, port=70000)
    with pytest.raises(ExportError, match="in use"):
        open_server(site, port=serving().port)
    with pytest.raises(ExportError, match="not an address of this machine"):
        open_server(site, host="192.0.2.77")


def test_announcement(site: Path) -> None:
    with open_server(site) as server:
        assert next(announce(server, "127.0.0.1")).startswith(f"Serving site at http://localhost:{server.port}/")
        assert "one thread" not in " ".join(announce(server, "127.0.0.1"))
    with open_server(site, isolated=False) as server:
        assert "one thread" in list(announce(server, "127.0.0.1"))[-1]


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_command_starts_and_stops(site: Path, by: signal.Signals) -> None:
    command = [sys.executable, "-m", "tinyweb.cli", "serve", str(site), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        port = int(line.split("localhost:")[1].split("/")[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        process.send_signal(by)
        assert process.wait(10) == 0
        assert process.stderr.read() == ""


def test_command_with_a_port_in_use(site: Path, serving: Serve) -> None:
    port = serving().port
    command = [sys.executable, "-m", "tinyweb.cli", "serve", str(site), "--port", str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert (
        done.stderr
        == f"tinyweb: Port {port} of 127.0.0.1 is in use: choose another with --port, or 0 for any free one.\n"
    )


@pytest.mark.parametrize(
    ("header", "allowed"),
    [("gzip", True), ("gzip, deflate, br", True), ("*", True), ("GZIP;q=1", True), ("", False), ("br", False),
     ("gzip;q=0", False), ("gzip; q=0.0", False)],
)  # fmt: skip
def test_accepts_gzip(header: str, allowed: bool) -> None:
    assert accepts_gzip(header) is allowed


def test_range_of_an_empty_file() -> None:
    with pytest.raises(NotSatisfiable):
        parse_range("bytes=0-", 0)
    with pytest.raises(NotSatisfiable):
        parse_range("bytes=-1", 0)


def raw(server: SiteServer, request: str) -> bytes:
    """All that the server answers to these bytes, until it or the client closes."""
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall(request.encode())
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("a.localhost", 200),
        ("127.0.0.1:1", 200),
        ("[::ffff:127.0.0.1]:80", 200),
        ("box.example:8080", 200),
        ("xn--bcher-kva.example", 200),
        ("evil.example", 421),
        ("192.0.2.1", 421),
        ("[::1]", 421),
        ("localhost@evil.example", 421),
        ("", 421),
    ],
)
def test_hosts_that_are_answered(serving: Serve, host: str, status: int) -> None:
    server = serving(allowed_hosts=["box.example", "b\u00fccher.example"])
    assert raw(server, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize("bound", ["0.0.0.0", "127.0.0.1"])
def test_an_address_is_answered_where_it_is_bound(serving: Serve, bound: str) -> None:
    assert b" 200 " in raw(serving(host=bound), "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n", 413),
        ("HEAD / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n", 413),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 40\r\n", 413),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n", 501),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 40\r\n", 501),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length : 40\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 40\r\n", 413),
        ("GET / HTTP/1.1\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", 400),
        ("GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n", 421),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n", 405),
    ],
)
def test_nothing_after_a_refused_request_is_read_as_another(serving: Serve, head: str, status: int) -> None:
    answer = raw(serving(), head + "\r\nGET /index.html HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in answer


def test_older_and_absolute_requests_are_answered(serving: Serve) -> None:
    server = serving()
    assert b" 200 " in raw(server, "GET / HTTP/1.0\r\n\r\n").split(b"\r\n")[0]
    absolute = "GET http://localhost/index.html HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert b" 200 " in raw(server, absolute).split(b"\r\n")[0]


@pytest.mark.parametrize("embedding", [False, True])
def test_framing_by_other_pages(serving: Serve, embedding: bool) -> None:
    answer = raw(serving(embedding=embedding), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (b"Content-Security-Policy: frame-ancestors 'none'" in answer) is not embedding
    assert (b"X-Frame-Options: DENY" in answer) is not embedding
