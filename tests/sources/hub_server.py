"""A server that answers as the Hugging Face hub does, as far as downloads go, with the hub's faults on demand.

Its protocol: https://huggingface.co/docs/hub/api (models), and the headers that `huggingface_hub` reads
(`X-Repo-Commit`, `X-Linked-Etag`, `X-Linked-Size`, `X-Error-Code`). Files of 1 KiB and more lie behind a redirect, as
on the hub's content network.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = 1024  # bytes from which files lie behind a redirect


@dataclass
class Repository:
    files: dict[str, bytes]
    gated: bool = False
    token: str | None = None  # who may see it; None: everybody
    revisions: tuple[str, ...] = ("main",)

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()


@dataclass
class Hub:
    repositories: dict[str, Repository] = field(default_factory=dict)
    address: str = ""
    elsewhere: str = ""  # another host's name for it: `huggingface_hub` takes a redirect to the same host for a move
    cuts: dict[str, list[int]] = field(default_factory=dict)  # by file: after how many bytes each answer breaks off
    requests: list[str] = field(default_factory=list)  # method, path and range
    sent: dict[str, int] = field(default_factory=dict)  # bytes by file
    wrong_size: set[str] = field(default_factory=set)
    status: int | None = None  # what all requests are answered with
    statuses: dict[str, int] = field(default_factory=dict)  # what requests for a file are answered with
    ranges: int | None = 0  # bytes that lie between what is asked for and what is sent; None: it knows no ranges


def tag_of(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()}"'


def handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path} {self.headers.get('Range') or ''}".strip())
            if hub.status is not None:
                return self.fail(hub.status)
            if path.startswith("/api/models/"):
                return self.model(path.removeprefix("/api/models/"))
            if path.startswith("/cdn/"):
                name, _, file = path.removeprefix("/cdn/").partition("//")
                return self.bytes_of(file, hub.repositories[name].files[file], body, {})
            name, _, rest = path.strip("/").partition("/resolve/")
            revision, _, file = rest.partition("/")
            if (repository := self.allowed(name, revision)) is None:
                return None
            if file in hub.statuses:
                return self.fail(hub.statuses[file], "EntryNotFound" if hub.statuses[file] == 404 else "")
            if file not in repository.files:
                return self.fail(404, "EntryNotFound")
            content = repository.files[file]
            tag = tag_of(content)
            if len(content) >= LARGE:
                linked = {
                    "X-Repo-Commit": repository.commit,
                    "X-Linked-Etag": tag,
                    "X-Linked-Size": str(self.told(file, content)),
                }
                return self.head(
                    302, {**linked, "Location": f"{hub.elsewhere}/cdn/{name}//{file}", "Content-Length": "0"}
                )
            return self.bytes_of(file, content, body, {"X-Repo-Commit": repository.commit, "ETag": tag})

        def told(self, file: str, content: bytes) -> int:
            return len(content) + (file in hub.wrong_size)

        def allowed(self, name: str, revision: str) -> Repository | None:
            repository = hub.repositories.get(name)
            mine = self.headers.get("Authorization") == f"Bearer {repository.token}" if repository else False
            if repository is None or (repository.token and not repository.gated and not mine):
                self.fail(401, "RepoNotFound")
            elif repository.gated and not mine:
                self.fail(403, "GatedRepo")
            elif revision not in (*repository.revisions, repository.commit):
                self.fail(404, "RevisionNotFound")
            else:
                return repository
            return None

        def model(self, rest: str) -> None:
            name, _, revision = rest.partition("/revision/")
            if (repository := self.allowed(name, revision or "main")) is None:
                return
            siblings = [{"rfilename": f, "size": self.told(f, c)} for f, c in repository.files.items()]
            told = {"id": name, "modelId": name, "sha": repository.commit, "private": False, "siblings": siblings}
            content = json.dumps(told).encode()
            self.head(200, {"Content-Type": "application/json", "Content-Length": str(len(content))})
            self.wfile.write(content)

        def bytes_of(self, file: str, content: bytes, body: bool, headers: dict[str, str]) -> None:
            begin, status = 0, 200
            headers = {"ETag": tag_of(content), **headers, "Accept-Ranges": "bytes"}
            if self.headers.get("If-None-Match") == headers["ETag"]:
                return self.head(304, headers)
            wanted, only = self.headers.get("Range"), self.headers.get("If-Range")
            if wanted and only in (None, headers["ETag"]) and hub.ranges is not None:
                begin, status = int(wanted.removeprefix("bytes=").split("-")[0]) + hub.ranges, 206
                headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            rest = content[begin:]
            self.head(status, {**headers, "Content-Length": str(len(rest))})
            if not body:
                return None
            cuts = hub.cuts.get(file, [])
            if cuts:
                rest = rest[: cuts.pop(0)]
                self.close_connection = True
            hub.sent[file] = hub.sent.get(file, 0) + len(rest)
            self.wfile.write(rest)
            return None

        def fail(self, status: int, code: str = "") -> None:
            headers = {"X-Error-Code": code} if code else {"Location": self.path} if status == 302 else {}
            self.head(status, {"Content-Length": "0", **headers})

        def head(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.end_headers()

    return Handler


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(hub))
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    hub.elsewhere = hub.address.replace("127.0.0.1", "localhost")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
