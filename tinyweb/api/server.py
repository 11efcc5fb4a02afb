"""The server's socket and its end."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import socket
import sys
from collections.abc import Callable, Sequence
from http import HTTPStatus
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tinyweb.api.app import Api
from tinyweb.api.errors import ApiError
from tinyweb.errors import TinywebError

BACKLOG = 1024  # connections that wait to be accepted
GRACE = 5  # seconds that connections have to end once the server stops
KEEP_ALIVE = 15  # seconds after which a connection nobody uses is closed
UNREAD = 30  # seconds after which one is given up whose client reads nothing of what it is sent
CONNECTIONS = 4096  # at a time
OTHER_FILES = 128  # that the process has open: models, devices, logs
LINGER = 2  # seconds in which a client that is refused may go on sending
BUSY = ApiError(503, "The server has too many connections: close some, or ask again later", code="too_many_connections")


class Connection(H11Protocol):
    """One that is closed where no request's head comes within KEEP_ALIVE seconds, which Uvicorn would wait for, and
    where nobody reads an answer; beyond as many as there may be at a time, with a sentence.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._deadline = self.loop.call_later(KEEP_ALIVE, self._expire)
        self._unread: asyncio.TimerHandle | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # writing pauses whenever something is left to be sent
        if len(self.connections) > most_connections():
            transport.write(_last(BUSY))
            transport.close()

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing() and not self._refused:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """To what is no HTTP. What still comes is dropped for a while: a connection that is closed with unread bytes is
        reset, and the client would not see why."""
        error = sys.exception()
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        detail = f"{msg} {error}" if error is not None else msg
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(_last(ApiError(status, detail[:200], code="invalid_http")))
        self._refused = True
        if self.cycle is not None:  # nothing more can be sent: who answers is told as if the client had gone
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.flow.resume_writing()
        self.transport.write_eof()
        self._deadline.cancel()
        self._deadline = self.loop.call_later(LINGER, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._stop_watching()
        super().connection_lost(exc)

    def _expire(self) -> None:
        if not self.cycle and not self.transport.is_closing():
            self.transport.close()

    def _watch(self, before: int | None = None) -> None:
        """Look again and again how much has not been sent, of which there were `before` bytes."""
        left = self.transport.get_write_buffer_size()
        if before is not None and left >= before:
            self.transport.abort()
        else:
            self._unread = self.loop.call_later(UNREAD, self._watch, left)

    def _stop_watching(self) -> None:
        if self._unread is not None:
            self._unread.cancel()


def _last(error: ApiError) -> bytes:
    """An answer after which the connection is closed, where no request is to be answered."""
    body = json.dumps(error.body()).encode()
    head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nContent-Type: application/json\r\n"
    return f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def most_connections() -> int:
    """Connections at a time: CONNECTIONS, or what this process may open beside its other files."""
    try:
        import resource
    except ImportError:  # not on Windows
        return CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if soft == resource.RLIM_INFINITY else max(min(CONNECTIONS, soft - OTHER_FILES), 1)


class Server(uvicorn.Server):
    """Uvicorn's, of an `Api`: when it is told to end, answers under way are told so first."""

    def __init__(self, api: Api, verbose: bool = False):
        self.api = api
        config = uvicorn.Config(
            api.app(), log_level="info" if verbose else "warning", access_log=verbose, lifespan="on",
            timeout_graceful_shutdown=GRACE, timeout_keep_alive=KEEP_ALIVE, backlog=BACKLOG,
            server_header=False, ws="none", http=Connection,
        )  # fmt: skip
        super().__init__(config)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The handler of signals."""
        self.api.worker.stop()
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on this address, or TinywebError."""
    try:
        (family, kind, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = socket.socket(family, kind)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # who went without a word is noticed some time
        found.bind(address)
        found.listen(BACKLOG)  # who asks from now on waits
    except (OSError, UnicodeError) as error:  # the latter of a name that no host can have
        detail = getattr(error, "strerror", None) or error
        raise TinywebError(
            f"Cannot listen on {host}, port {port}: {detail}; choose another --port (0: any free one)"
        ) from None
    return found


def is_local(host: str) -> bool:
    """Whether only programs of this machine reach this address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def serve(api: Api, host: str, port: int, say: Callable[[str], None], verbose: bool = False) -> None:
    """Answers requests until an interrupt or a termination signal; `say` is told where, and that it has ended."""
    bound = listen(host, port)
    for line in announce(api, host, bound.getsockname()[1]):
        say(line)
    with contextlib.suppress(KeyboardInterrupt, SystemExit):  # Uvicorn raises the signal again when all has ended
        Server(api, verbose).run(sockets=[bound])
    say("Stopped")


def announce(api: Api, host: str, port: int) -> Sequence[str]:
    """Lines for people."""
    shown = f"[{host}]" if ":" in host else host
    names = ", ".join(m.name for m in api.models)
    lines = [f"{names} at http://{shown}:{port}/v1 (Ctrl-C stops)"]
    if not is_local(host) and api.key is None:
        lines.append("Anybody who reaches this address can ask: --api-key KEY lets only those in who know it.")
    return lines
