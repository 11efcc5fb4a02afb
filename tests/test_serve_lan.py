"""`tinyweb serve --lan`: https with a certificate made on the spot, and the address as a QR code."""

import datetime
import http.client
import re
import socket
import ssl
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from cryptography import x509

import tinyweb.serve as serve_module
from tinyweb.cli import main
from tinyweb.errors import ExportError
from tinyweb.serve import SiteServer, open_server
from tinyweb.serve import certificate as certificate_module
from tinyweb.serve import lan as lan_module
from tinyweb.serve.certificate import context, fingerprint, own_certificate, qr_code
from tinyweb.serve.lan import open_lan_server

NAMES = ["127.0.0.1", "localhost", "desk.local", "192.168.1.5"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("<!doctype html><title>page</title>")
    return tmp_path / "site"


@pytest.fixture
def server(site: Path, tmp_path: Path) -> Iterator[SiteServer]:
    certificate, key = own_certificate(NAMES, tmp_path / "kept")
    server = open_server(site, tls=context(certificate, key))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join(60)
    server.server_close()


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder / "lan-certificate.pem")


def test_a_client_that_trusts_the_certificate(server: SiteServer, tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost"):
        connection = http.client.HTTPSConnection(host, server.port, context=trusting(tmp_path / "kept"), timeout=60)
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert answer.status == 200 and b"page" in answer.read()
        assert answer.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
        connection.close()


def test_nobody_holds_up_the_others(server: SiteServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One that never shakes hands, one that speaks http, one that does not know the certificate."""
    with socket.create_connection(("127.0.0.1", server.port), 60):
        plain = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        with pytest.raises((http.client.HTTPException, OSError)):
            plain.request("GET", "/")
            plain.getresponse()
        doubting = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60)
        with pytest.raises(ssl.SSLCertVerificationError):
            doubting.request("GET", "/")
        test_a_client_that_trusts_the_certificate(server, tmp_path)
    assert "Traceback" not in capfd.readouterr().err


def test_the_certificate(tmp_path: Path) -> None:
    """Names what was asked for, is kept with a key that nobody else reads, and lasts no longer than phones allow."""
    file, key = own_certificate(NAMES, tmp_path)
    made = x509.load_pem_x509_certificate(file.read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "desk.local"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "192.168.1.5"]
    assert made.not_valid_after_utc - made.not_valid_before_utc <= datetime.timedelta(days=398)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert re.fullmatch(r"([0-9A-F]{2}:){31}[0-9A-F]{2}", fingerprint(file))


def test_the_same_certificate_as_long_as_it_serves(tmp_path: Path) -> None:
    before = own_certificate(NAMES, tmp_path)[0].read_bytes()
    assert own_certificate(NAMES[:2], tmp_path)[0].read_bytes() == before
    other = own_certificate([*NAMES, "10.0.0.7"], tmp_path)[0].read_bytes()
    assert other != before
    (tmp_path / "lan-certificate.pem").write_text("damaged")
    assert own_certificate(NAMES, tmp_path)[0].read_bytes().startswith(b"-----BEGIN")


def test_files_that_are_no_certificate(tmp_path: Path) -> None:
    file, key = own_certificate(NAMES, tmp_path / "one")
    other = own_certificate(NAMES, tmp_path / "other")[1]
    (tmp_path / "words.pem").write_text("words")
    for certificate, secret in (
        (tmp_path / "words.pem", key),
        (file, tmp_path / "words.pem"),
        (file, other),
        (file, None),
    ):
        with pytest.raises(ExportError, match="are no certificate with its unencrypted private key"):
            context(certificate, secret)
    with pytest.raises(ExportError, match="There is no file"):
        context(tmp_path / "none.pem", key)


def test_without_a_network_or_the_packages(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lan_module, "lan_address", lambda: "192.168.1.5")
    for package in ("cryptography", "segno"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(ExportError, match=rf"--lan needs the package {package}: install it with"):
                open_lan_server(site, 0)
    monkeypatch.setattr(lan_module, "lan_address", lambda: None)
    with pytest.raises(ExportError, match="in no network"):
        open_lan_server(site, 0)


def test_the_qr_code() -> None:
    rows = qr_code("https://192.168.1.5:8080/").splitlines()
    assert len(rows) > 10 and len({len(row) for row in rows}) == 1


def test_the_command(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines have the address, the QR code and the fingerprint; its server answers."""
    monkeypatch.setattr(lan_module, "lan_address", lambda: "127.0.0.1")
    monkeypatch.setattr(certificate_module, "kept_folder", lambda: tmp_path / "kept")
    said: list[str] = []

    def serve(server: SiteServer, lines: Iterable[str], say: object) -> None:
        said.extend(lines)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        test_a_client_that_trusts_the_certificate(server, tmp_path)
        server.shutdown()
        thread.join(60)
        server.server_close()

    monkeypatch.setattr(serve_module, "serve", serve)
    with pytest.raises(SystemExit, match="0"):
        main(["serve", str(site), "--lan", "--port", "0"])
    assert re.search(r"https://127\.0\.0\.1:\d+/", said[0])
    assert "█" in "".join(said) and fingerprint(tmp_path / "kept" / "lan-certificate.pem") in "".join(said)
