"""A static web server for exported sites.

What a page needs beyond any static host: cross-origin isolation (threads in WebAssembly ask for it), the MIME types of
modules and WebAssembly, compression, byte ranges (broken downloads are resumed), and validators, so that a reload
transfers nothing that has not changed. It never lists folders, never leaves the site's folder and hides dot files.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import html
import ipaddress
import os
import re
import signal
import socket
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urlsplit

from tinyweb.errors import ExportError
from tinyweb.hosts import ascii_host, is_own

MIME_TYPES: dict[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".ts": "text/plain; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".webmanifest": "application/manifest+json",
    ".wasm": "application/wasm",
    ".wgsl": "text/plain; charset=utf-8",
    ".jinja": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/markdown; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".bin": "application/octet-stream",
}
COMPRESSED = frozenset(
    {
        ".html",
        ".js",
        ".mjs",
        ".ts",
        ".css",
        ".json",
        ".map",
        ".webmanifest",
        ".wasm",
        ".wgsl",
        ".jinja",
        ".txt",
        ".md",
        ".svg",
    }
)
COMPRESS_BELOW = 32 * 2**20  # larger files are sent as they are: their compressed form would have to be held in memory
CHUNK = 256 * 1024
IDLE_SECONDS = 60.0  # after which a connection nobody uses is closed


@dataclass(frozen=True)
class Served:
    """One file as it is now: its validator and, where that is smaller, its gzip form."""

    stamp: tuple[int, int]  # (mtime in ns, bytes): what tells that the file has changed
    digest: str
    zipped: bytes | None


class Site:
    """The files of one folder, with their hashes and compressed forms kept in memory."""

    def __init__(self, root: Path):
        self.root = root.resolve()
        self._known: dict[Path, Served] = {}
        self._lock = threading.Lock()

    def find(self, url_path: str) -> Path | None:
        """The file or folder that an URL's path names, or None where there is nothing to see."""
        parts = [p for p in unquote(url_path).split("/") if p]
        if any(p.startswith(".") or "\\" in p or "\0" in p or ":" in p for p in parts):
            return None
        try:
            path = self.root.joinpath(*parts).resolve()
            found = path.exists()
        except (OSError, ValueError):  # a name the file system cannot hold
            return None
        return path if found and path.is_relative_to(self.root) else None

    def describe(self, path: Path, stat: os.stat_result) -> Served:
        """Hash and gzip form of a file; worked out again when the file has changed."""
        stamp = (stat.st_mtime_ns, stat.st_size)
        with self._lock:
            known = self._known.get(path)
            if known is None or known.stamp != stamp:
                known = self._known[path] = _describe(path, stamp)
            return known


def _describe(path: Path, stamp: tuple[int, int]) -> Served:
    digest = hashlib.sha256()
    compress = path.suffix in COMPRESSED and stamp[1] <= COMPRESS_BELOW
    kept = bytearray()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            if compress:
                kept += chunk
    zipped = gzip.compress(bytes(kept), 6, mtime=0) if compress else b""
    return Served(stamp, digest.hexdigest()[:32], zipped if compress and len(zipped) < len(kept) else None)


class NotSatisfiable(ValueError):
    """A byte range that lies outside the file."""


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """The (first, last) byte that a Range header asks for; None where the header is to be ignored.

    Ignored are other units, several ranges and nonsense: the whole file is a right answer to them.
    Raises NotSatisfiable.
    """
    match = re.fullmatch(r"bytes=\s*(\d{0,19})-(\d{0,19})\s*", header.strip())
    if not match or match[1] == match[2] == "":
        return None
    if match[1] == "":
        first, last = max(size - int(match[2]), 0), size - 1
        if int(match[2]) == 0:
            raise NotSatisfiable(header)
    else:
        first, last = int(match[1]), int(match[2]) if match[2] else size - 1
        if last < first and match[2]:
            return None
    if first >= size:
        raise NotSatisfiable(header)
    return first, min(last, size - 1)


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for item in header.lower().split(","):
        name, _, parameters = item.partition(";")
        if name.strip() in ("gzip", "*"):
            return not re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", parameters)
    return False


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; everything else is 405."""

    server: SiteServer
    protocol_version = "HTTP/1.1"
    server_version = "tinyweb"
    sys_version = ""
    timeout = IDLE_SECONDS

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        refused = self._objection()
        if refused is not None:
            self.close_connection = True  # what follows on this connection may be a body: it is never read as a request
            self._text(*refused, {}, body=self.command != "HEAD")
        return refused is None

    def handle_expect_100(self) -> bool:
        return True  # nobody is asked for a body: the answer itself follows

    def _objection(self) -> tuple[HTTPStatus, str] | None:
        """Why this request is not answered, or None."""
        # Where the parser of headers stopped or a name is odd, another program may see other headers than this one.
        odd_name = any(not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) for name in self.headers)
        if self.headers.defects or self.headers.get_payload() or odd_name:
            return HTTPStatus.BAD_REQUEST, "The headers of this request are malformed."
        hosts = self.headers.get_all("Host", [])
        if len(hosts) > 1 or (not hosts and self.request_version == "HTTP/1.1"):
            return HTTPStatus.BAD_REQUEST, "A request needs one Host header."
        if re.match(r"https?://", self.path, re.IGNORECASE):
            hosts = [*hosts, self.path.split("/", 3)[2]]
        for host in hosts:
            if not self.server.serves_host(host, str(self.connection.getsockname()[0])):
                return (
                    HTTPStatus.MISDIRECTED_REQUEST,
                    f"This server does not serve the host {host}: start it with --allow-host NAME to allow a name.",
                )
        if self.command in ("GET", "HEAD"):
            if "Transfer-Encoding" in self.headers:
                return HTTPStatus.NOT_IMPLEMENTED, "Bodies of requests are not read: send none."
            if any(length.strip() != "0" for length in self.headers.get_all("Content-Length", [])):
                return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Bodies of requests are not read: send none."
        return None

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _refuse(self) -> None:
        self.close_connection = True  # a body, if there is one, is not read
        self._text(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD are served.", {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_CONNECT = do_TRACE = _refuse

    def _answer(self, body: bool) -> None:
        url_path = urlsplit(self.path).path if not self.path.startswith("//") else self.path
        path = self.server.site.find(url_path)
        if path is not None and path.is_dir():
            if not url_path.endswith("/"):
                self._text(
                    HTTPStatus.MOVED_PERMANENTLY,
                    "",
                    {"Location": quote(unquote(url_path).rsplit("/", 1)[1]) + "/"},
                    body,
                )
                return
            path = path / "index.html"
        try:
            if path is None or not path.is_file():
                raise FileNotFoundError
            with path.open("rb") as file:
                self._send_file(path, file, body)
        except (FileNotFoundError, PermissionError):
            self._text(HTTPStatus.NOT_FOUND, f"There is nothing at {url_path}.", {}, body)

    def _send_file(self, path: Path, file: BinaryIO, body: bool) -> None:
        stat = os.fstat(file.fileno())
        served = self.server.site.describe(path, stat)
        wants_range = "Range" in self.headers
        zipped = None if wants_range or not accepts_gzip(self.headers.get("Accept-Encoding", "")) else served.zipped
        tag = f'"{served.digest}{"-gzip" if zipped is not None else ""}"'
        headers = {
            "Content-Type": MIME_TYPES.get(path.suffix.lower(), "application/octet-stream"),
            "ETag": tag,
            "Cache-Control": "no-cache",  # names are stable across exports: ask, and transfer only what has changed
            "Accept-Ranges": "bytes",
        }
        if served.zipped is not None:
            headers["Vary"] = "Accept-Encoding"
        if self._unchanged(served.digest):
            self._head(HTTPStatus.NOT_MODIFIED, headers)
            return
        size = stat.st_size
        span: tuple[int, int] | None = None
        if wants_range and self.headers.get("If-Range", tag) == tag:
            try:
                span = parse_range(self.headers["Range"], size)
            except NotSatisfiable:
                self._text(
                    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                    f"The file has {size} bytes.",
                    {"Content-Range": f"bytes */{size}"},
                    body,
                )
                return
        if zipped is not None:
            self._head(HTTPStatus.OK, headers | {"Content-Encoding": "gzip", "Content-Length": str(len(zipped))})
            if body:
                self.wfile.write(zipped)
            return
        first, last = span or (0, size - 1)
        if span:
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        self._head(
            HTTPStatus.PARTIAL_CONTENT if span else HTTPStatus.OK, headers | {"Content-Length": str(last - first + 1)}
        )
        if body:
            file.seek(first)
            left = last - first + 1
            while left and (chunk := file.read(min(CHUNK, left))):
                self.wfile.write(chunk)
                left -= len(chunk)
            self.close_connection |= left > 0  # the file shrank while it was sent: the client must see a broken answer

    def _unchanged(self, digest: str) -> bool:
        tags = self.headers.get("If-None-Match", "")
        return tags.strip() == "*" or any(
            t.strip().removeprefix("W/").strip('"').removesuffix("-gzip") == digest
            for t in tags.split(",")
            if t.strip()
        )

    def _head(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("X-Content-Type-Options", "nosniff")
        if not self.server.embedding:  # a meta element cannot say this: browsers ignore frame-ancestors there
            self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
            self.send_header("X-Frame-Options", "DENY")
        if self.server.isolated:
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _text(self, status: HTTPStatus, message: str, headers: dict[str, str], body: bool = True) -> None:
        page = (
            f"<!doctype html><meta charset=utf-8><title>{status.value}</title><p>{html.escape(message)}</p>\n".encode()
        )
        kind = {"Content-Type": MIME_TYPES[".html"], "Content-Length": str(len(page)), "Cache-Control": "no-cache"}
        self._head(status, kind | headers)
        if body:
            self.wfile.write(page)

    def version_string(self) -> str:
        return self.server_version

    def log_message(self, format: str, *args: Any) -> None:
        if self.server.log is not None:
            self.server.log(f"{self.address_string()} {format % args}")


class SiteServer(ThreadingHTTPServer):
    """An HTTP server of one exported site. `port` is the one really bound (useful after asking for port 0)."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        root: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        isolated: bool = True,
        log: Callable[[str], None] | None = None,
        allowed_hosts: Sequence[str] = (),
        embedding: bool = False,
        tls: ssl.SSLContext | None = None,
    ):
        self.hosts = {ascii_host(name) for name in (host, *allowed_hosts)}
        self.embedding, self.tls = embedding, tls
        self.site, self.isolated, self.log = Site(root), isolated, log
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)

    def serves_host(self, host: str, address: str) -> bool:
        """Whether a Host header names this server, for a connection to `address` of this machine."""
        return is_own(host, address, self.hosts)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own would ask the name service, which can take seconds
        self.server_name, self.server_port = str(self.server_address[0]), self.port

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self.tls is not None:
            # the handshake waits for the first read, in the connection's own thread: nobody holds up the others
            connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        # a client that went away, or does not want this certificate, is no error
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError, ssl.SSLError)):
            super().handle_error(request, client_address)


def open_server(
    root: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    isolated: bool = True,
    log: Callable[[str], None] | None = None,
    allowed_hosts: Sequence[str] = (),
    embedding: bool = False,
    tls: ssl.SSLContext | None = None,
) -> SiteServer:
    """Bind a server for the site in `root`; ExportError where that is no site or the address cannot be had."""
    if not root.is_dir():
        raise ExportError(f"There is no folder {root}: give the folder that `tinyweb export` wrote.")
    if not (root / "index.html").is_file():
        raise ExportError(
            f"{root} is no exported site (it has no index.html): give the folder that `tinyweb export` wrote."
        )
    if not 0 <= port <= 65535:
        raise ExportError(f"Port {port} does not exist: choose one from 1 to 65535, or 0 for any free one.")
    try:
        return SiteServer(root, host, port, isolated, log, allowed_hosts, embedding, tls)
    except socket.gaierror:
        raise ExportError(
            f"The host name {host} is unknown: give an address of this machine, such as 127.0.0.1."
        ) from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ExportError(
                f"Port {port} of {host} is in use: choose another with --port, or 0 for any free one."
            ) from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise ExportError(
                f"{host} is not an address of this machine: use 127.0.0.1, or 0.0.0.0 for all of them."
            ) from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise ExportError(
                f"Port {port} needs more rights than you have: choose one above 1023 with --port."
            ) from None
        raise


def lan_address() -> str | None:
    """This machine's address in the local network, or None; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address reserved for documentation: only routing is asked
            address = str(probe.getsockname()[0])
        except OSError:
            return None
    return None if ipaddress.ip_address(address).is_loopback else address


def announce(server: SiteServer, host: str) -> Iterator[str]:
    """The lines that tell a person where the site is and what to expect of it from other devices."""
    everywhere = host in ("0.0.0.0", "::", "")
    shown = "localhost" if everywhere or host == "127.0.0.1" else f"[{host}]" if ":" in host else host
    yield f"Serving {server.site.root.name} at {server.scheme}://{shown}:{server.port}/  (Ctrl-C stops)"
    lan = lan_address()
    if everywhere and lan:
        yield f"In the local network: {server.scheme}://{lan}:{server.port}/"
        if server.tls is None:
            yield "  (over plain http another device gets no WebGPU and no threads: --lan serves https)"
    elif not everywhere and lan:
        yield "For other devices, phones among them: --lan"
    if not server.isolated:
        yield "Without isolation headers: on a first visit WebAssembly runs on one thread"


def serve(server: SiteServer, lines: Iterable[str], say: Callable[[str], None] = print) -> None:
    """Say `lines`, then serve a site until Ctrl-C or SIGTERM."""
    with server:
        for line in lines:
            say(line)

        def stop(signum: int, frame: FrameType | None) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, stop)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say("Stopped")
        finally:
            signal.signal(signal.SIGTERM, before)
