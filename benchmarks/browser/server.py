"""A web server for benchmark pages: several folders under one address, isolated so that threads can be had."""

from __future__ import annotations

import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Server:
    """Serves `folders` (by the first part of the path) on a free port until `close`."""

    def __init__(self, folders: dict[str, Path]):
        class Handler(SimpleHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            extensions_map = SimpleHTTPRequestHandler.extensions_map | {
                ".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm",
            }  # fmt: skip

            def translate_path(self, path: str) -> str:
                parts = [p for p in unquote(urlsplit(path).path).split("/") if p not in ("", ".", "..")]
                root = folders.get(parts[0]) if parts else None
                return str(root.joinpath(*parts[1:]) if root else Path("/nothing"))

            def end_headers(self) -> None:
                self.send_header("Cross-Origin-Opener-Policy", "same-origin")
                self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
                self.send_header("Cross-Origin-Resource-Policy", "same-origin")
                self.send_header("Cache-Control", "max-age=3600")
                super().end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://localhost:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
