"""A certificate for `tinyweb serve --lan`, made on this machine, and the address as a QR code.

Browsers give WebGPU, threads and storage to pages of https alone (or of the machine itself). No authority signs
for an address of a local network, so the certificate signs itself: a browser warns once, and a person lets it in. It is
kept and used again, for as long as it names the addresses, so that it is the same one that was let in.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
import ssl
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from tinyweb.errors import ExportError

if TYPE_CHECKING:
    from cryptography import x509

DAYS = 397  # Apple's systems take none that lasts longer than 398 days
RENEW_DAYS = 30
INSTALL = "install it with: pip install 'tinyweb[lan]'"


def kept_folder() -> Path:
    return Path(platformdirs.user_data_dir("tinyweb"))


def own_certificate(names: Sequence[str], folder: Path | None = None) -> tuple[Path, Path]:
    """The files of a certificate and its private key for host names and addresses; made anew where the one in `folder`
    lacks a name or ends soon. ExportError without the package `cryptography`."""
    try:
        from cryptography import x509
    except ImportError:
        raise ExportError(f"--lan needs the package cryptography: {INSTALL}") from None
    folder = folder or kept_folder()
    certificate, key = folder / "lan-certificate.pem", folder / "lan-key.pem"
    if certificate.is_file() and key.is_file():
        try:
            if _serves(x509.load_pem_x509_certificate(certificate.read_bytes()), names):
                return certificate, key
        except ValueError:
            pass  # damaged: made anew
    folder.mkdir(parents=True, exist_ok=True)
    made, secret = _make(names)
    _write(key, secret, 0o600)
    _write(certificate, made, 0o644)
    return certificate, key


def _write(path: Path, content: bytes, mode: int) -> None:
    beside = path.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
    os.replace(beside, path)


def _general(names: Sequence[str]) -> list[x509.GeneralName]:
    from cryptography import x509

    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _serves(certificate: x509.Certificate, names: Sequence[str]) -> bool:
    from cryptography import x509

    known = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    now = datetime.datetime.now(datetime.UTC)
    begun = certificate.not_valid_before_utc <= now
    lasts = certificate.not_valid_after_utc - now > datetime.timedelta(days=RENEW_DAYS)
    return begun and lasts and all(name in known for name in _general(names))


def _make(names: Sequence[str]) -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tinyweb serve")])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks of phones differ
        .not_valid_after(now + datetime.timedelta(days=DAYS - 1))
        .add_extension(x509.SubjectAlternativeName(_general(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    signed = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return signed, secret


def fingerprint(certificate: Path) -> str:
    """SHA-256 of a certificate as browsers show it."""
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(_first(certificate.read_text("ascii")))).hexdigest().upper()
    return ":".join(digest[i : i + 2] for i in range(0, len(digest), 2))


def _first(text: str) -> str:
    end = "-----END CERTIFICATE-----"
    return text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)]


def context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """What connections are encrypted with; `key` None: it is in the certificate's file. ExportError for files that are
    none."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    for file in (certificate, key):
        if file is not None and not file.is_file():
            raise ExportError(f"There is no file {file}: give the certificate's and the key's PEM files.")
    try:
        made.load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        raise ExportError(
            f"{certificate} and {key or certificate} are no certificate with its unencrypted private key, in PEM: "
            f"{getattr(error, 'reason', None) or error}"
        ) from None
    return made


def qr_code(address: str) -> str:
    """An address as a QR code (ISO/IEC 18004) of block characters, for terminals. ExportError without `segno`."""
    try:
        import segno
    except ImportError:
        raise ExportError(f"--lan needs the package segno: {INSTALL}") from None
    drawn = StringIO()
    segno.make(address, micro=False, error="m").terminal(out=drawn, compact=True)
    return drawn.getvalue().rstrip("\n")
