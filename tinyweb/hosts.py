"""Which names in requests a server of this machine answers to.

A foreign name that resolves to this machine would let another site's page read what is answered (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection


def ascii_host(name: str) -> str:
    """A host name as browsers send it: in lower case, other scripts in their ASCII form."""
    try:
        return name.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError:
        return name.lower()


def is_name(text: str) -> bool:
    """Whether a text can be the name of a host in a request: without a scheme, a port or a path; or an address."""
    if re.fullmatch(r"[^:/\[\]@?#\s*]+", text):
        return True
    try:
        return bool(_address(text))
    except ValueError:
        return False


def is_own(host: str, address: str, names: Collection[str]) -> bool:
    """Whether a Host header, of a connection to `address` of this machine, is that address, a name of the machine for
    itself, or one of `names`, as `ascii_host` writes them.
    """
    match = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^:\[\]@]+))(?::\d{0,5})?", host.strip())
    if not match:
        return False
    name = ascii_host(match[1] or match[2])
    if name == "localhost" or name.endswith(".localhost") or name in names:
        return True
    try:
        return _address(name) == _address(address)
    except ValueError:
        return False


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address
