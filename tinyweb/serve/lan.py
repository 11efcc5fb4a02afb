"""`tinyweb serve --lan`: one site for the devices of the local network, over https, with a QR code of its address."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tinyweb.errors import ExportError
from tinyweb.serve import SiteServer, lan_address, open_server
from tinyweb.serve.certificate import context, fingerprint, own_certificate, qr_code

EVERYWHERE = "0.0.0.0"


def open_lan_server(
    root: Path,
    port: int,
    certificate: Path | None = None,
    key: Path | None = None,
    isolated: bool = True,
    log: Callable[[str], None] | None = None,
    allowed_hosts: Sequence[str] = (),
    embedding: bool = False,
) -> tuple[SiteServer, list[str]]:
    """Bind a server that other devices reach, and the lines to say; ExportError where that cannot be.

    `certificate`, `key`: of the user's own, such as mkcert makes; without them one that signs itself.
    """
    address = lan_address()
    if address is None:
        raise ExportError("This machine is in no network: connect it to the one that the other device is in.")
    names = [address, *_local_names(), *allowed_hosts]
    own = certificate is None
    qr_code(address)  # told of what is missing before anything is made
    if certificate is None:
        certificate, key = own_certificate([*names, "localhost", "127.0.0.1"])
    tls = context(certificate, key)
    server = open_server(root, EVERYWHERE, port, isolated, log, names, embedding, tls)
    return server, list(_lines(server, f"https://{address}:{server.port}/", certificate if own else None))


def _local_names() -> list[str]:
    """The name that Bonjour or Avahi give this machine (RFC 6762), which outlives its address."""
    name = socket.gethostname().split(".")[0]
    return [f"{name}.local"] if name.isascii() and name and name != "localhost" else []


def _lines(server: SiteServer, address: str, own: Path | None) -> Iterator[str]:
    yield f"Serving {server.site.root.name} in the local network at {address}  (Ctrl-C stops)"
    yield ""
    yield qr_code(address)
    yield ""
    if own is not None:
        yield "The browser warns of an unknown certificate: it was made here. Compare its SHA-256, and go on:"
        yield f"  {fingerprint(own)}"
        yield "Without the warning, and with pages that work offline: mkcert, --certificate and --key (docs/hosting.md)"
    if not server.isolated:
        yield "Without isolation headers: on a first visit WebAssembly runs on one thread"
