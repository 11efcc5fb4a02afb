"""Whether the packages that tinyweb needs are installed, and new enough."""

import re
from importlib.metadata import PackageNotFoundError, requires, version


def unmet() -> list[str]:
    """What to install, as pip takes it (`numpy>=2.0`), of all that the installed tinyweb asks for."""
    try:
        asked = requires("tinyweb") or []
    except PackageNotFoundError:  # a folder on the path, not installed: it asks for nothing
        return []
    found = (re.fullmatch(r"([\w.-]+)(?:>=([\d.]+))?", text) for text in asked)
    return [m[0] for m in found if m is not None and not _met(m[1], m[2])]


def _met(name: str, least: str | None) -> bool:
    try:
        installed = version(name)
    except PackageNotFoundError:
        return False
    return least is None or _numbers(installed) >= _numbers(least)


def _numbers(text: str) -> list[int]:
    """The release of a version, without zeros at its end."""
    match = re.match(r"\d+(\.\d+)*", text)
    numbers = [int(n) for n in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def advice(missing: list[str]) -> str:
    """One sentence for people."""
    quoted = " ".join(f'"{m}"' for m in missing)
    return f"packages are missing or too old: run `pip install {quoted}`"
