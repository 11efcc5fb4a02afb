"""The server's socket and its end."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tinyweb.api.app import Api
from tinyweb.errors import TinywebError

BACKLOG = 1024  # connections that wait to be accepted
GRACE = 5  # seconds that connections have to end once the server stops
KEEP_ALIVE = 15  # seconds after which a connection nobody uses is closed


class Connection(H11Protocol):
    """One that is closed where no request's head comes within KEEP_ALIVE seconds, which Uvicorn would wait for."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._deadline = self.loop.call_later(KEEP_ALIVE, self._expire)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def _expire(self) -> None:
        if not self.cycle and not self.transport.is_closing():
            self.transport.close()


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
