"""What was computed once, kept as digests in a file: for results that are many, meant, and defined by no other program.

A test computes its part anew and asks `changed`. After a change that is meant, `python -m` of the test's module writes
the file (`write`); what has changed shows in the difference of the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path


def digest(text: str) -> str:
    """Equal for equal texts, on every machine."""
    return blake2b(text.encode(), digest_size=3).hexdigest()


def entry(key: str, text: str) -> str:
    return f"{key.replace(' ', '_')}:{digest(text)}"


def read(path: Path) -> dict[str, dict[str, str]]:
    """Lines by name, in parts."""
    parts: dict[str, dict[str, str]] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        if text.startswith("== "):
            part = parts.setdefault(text[3:], {})
        elif text and not text.startswith("#"):
            name, _, rest = text.partition(" | ")
            part[name] = rest
    return parts


def changed(path: Path, part: str, now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What differs from the file, by name: the results that are new, in words."""
    before = read(path).get(part, {})
    out = [f"{name}: no longer there" for name in before if name not in now]
    for name, results in now.items():
        known = before.get(name, "").split(" ")
        new = {key: text for key, text in results.items() if entry(key, text) not in known}
        out += [f"{name} | {key}: {text}" for key, text in new.items()]
    return out


def write(path: Path, parts: Mapping[str, Mapping[str, Mapping[str, str]]], how: str) -> None:
    lines = [f"# Digests of results by name; `{how}` writes them anew."]
    for part, entries in parts.items():
        lines += [
            f"== {part}",
            *(f"{name} | {' '.join(map(entry, results, results.values()))}" for name, results in entries.items()),
        ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
