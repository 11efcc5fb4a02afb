"""Damage to files: bytes, values of JSON trees, instructions of pickles, words of templates."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

Random = np.random.Generator
NUMBERS = [0, 1, 2, 31, 255, 1 << 16, (1 << 31) - 1, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]


def pick(random: Random, values: Any) -> Any:
    return values[int(random.integers(len(values)))]


def damaged_bytes(whole: bytes, random: Random) -> bytes:
    """One to four places changed: bytes, numbers, pieces left out or doubled; one in eight is cut off."""
    changed = bytearray(whole)
    for _ in range(random.integers(1, 5)):
        at, size = int(random.integers(len(changed))), int(random.integers(1, 24))
        how = random.integers(5)
        if how == 0:
            changed[at] = int(random.integers(256))
        elif how == 1:
            changed[at] ^= 1 << int(random.integers(8))
        elif how == 2:
            changed[at : at + 8] = pick(random, NUMBERS).to_bytes(8, "little")
        elif how == 3 and len(changed) > size:
            del changed[at : at + size]
        else:
            changed[at:at] = changed[at : at + size]
    return bytes(changed[: max(1, len(changed) - int(random.integers(64)))] if random.integers(8) == 0 else changed)


def damaged_beginning(whole: bytes, random: Random) -> bytes:
    """As `damaged_bytes`, one time in two among the first 4000 bytes, where what describes the rest lies."""
    cut = int(pick(random, [len(whole), 4000]))
    return damaged_bytes(whole[:cut], random) + whole[cut:]


# -- JSON --------------------------------------------------------------------------------------------------------------
HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 7, 0.5, -0.5, 1e-300, 1e308, 1 << 31, 1 << 32, 1 << 62, 1 << 64, 10**30,
    -(1 << 63), float("nan"), float("inf"), "", "a", "0", "none", "../x", "/etc/passwd", "x" * 5000, "\0", "\ud800",
    "é🦊", [], {}, [[]], [0], [None], [-1], ["a"], ["a", "a"], [0] * 300, {"": 0}, {"type": "a"}, {"content": []},
]  # fmt: skip
DEEP = 100_000


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(the list or object, key) of everything in a tree."""
    waiting = [value]
    while waiting:
        inside = waiting.pop()
        keys = list(inside) if isinstance(inside, dict) else range(len(inside)) if isinstance(inside, list) else ()
        for key in keys:
            yield inside, key
            waiting.append(inside[key])


def another(value: Any, others: Any, random: Random) -> Any:
    """What stands in place of a value: something hostile, something of the same file, or nearly the same."""
    how = random.integers(4)
    if how == 0 or value is None or isinstance(value, bool):
        return pick(random, HOSTILE)
    if how == 1:
        inside, key = pick(random, others)
        return inside[key]
    if isinstance(value, int | float):
        return pick(random, [value + 1, value - 1, -value, value * 2, value / 2, value * 1000, str(value), [value]])
    if isinstance(value, str):
        at = int(random.integers(len(value) + 1))
        return pick(random, [value[:at], value[at:], value * 2, value + "s", value[::-1], value.upper(), [value]])
    if isinstance(value, list):
        return pick(random, [value[:-1], value + value, value[::-1], value[0] if value else 0, dict.fromkeys("ab", 0)])
    return pick(random, [list(value), [value], dict(list(value.items())[:-1]), {k: None for k in value}])


def damaged_json(whole: bytes, random: Random) -> bytes:
    """One to three values replaced, left out or put elsewhere; one time in five the text is damaged instead."""
    if random.integers(5) == 0:
        return damaged_bytes(whole, random)
    tree = {"": json.loads(whole)}
    for _ in range(random.integers(1, 4)):
        found = list(places(tree))
        # each level of a tree as often as the others: most values are words of long lists
        few = [f for f in found if len(f[0]) < 40] or found
        inside, key = pick(random, few if random.integers(4) else found)
        if random.integers(6) == 0 and inside is not tree:
            del inside[key]
        else:
            # a copy: a tree that has itself in it is none
            inside[key] = json.loads(json.dumps(another(inside[key], few, random)))
    text = json.dumps(tree[""])
    if random.integers(200) == 0:
        text = text.replace("0", "[" * DEEP, 1)
    return text.encode("utf-8", "surrogatepass")


# -- pickles -----------------------------------------------------------------------------------------------------------
INSTRUCTIONS = [
    b"cos\nsystem\n", b"cbuiltins\neval\n", b"ctorch\nFloatStorage\n", b"R", b"b", b"o", b"(", b")", b"}", b"]", b"t",
    b"u", b"s", b"a", b"e", b"0", b"1", b"2", b"\x81", b"\x92", b"Q", b"(cos\nsystem\n", b"ios\nsystem\n",
    b"X\x04\0\0\0true", b"\x8a\xff" + b"\xff" * 255, b"L" + b"9" * 5000 + b"L\n", b"\x8b\xff\xff\xff\x7f",
    b"X\xff\xff\xff\xff", b"h\x00", b"q\x00", b"K\x00", b"J\xff\xff\xff\x7f", b"\x88", b"N", b"\x85", b"\x86", b"\x87",
    b"\x93", b"\x94", b"\x8f", b"\x90", b"\x91", b".", b"P0\n", b"\x82\x01", b"\x97",
]  # fmt: skip


def damaged_pickle(whole: bytes, random: Random) -> bytes:
    """Instructions put in between, or bytes changed; the instructions are those of `pickle`."""
    if random.integers(2):
        return damaged_bytes(whole, random)
    changed = bytearray(whole)
    for _ in range(random.integers(1, 4)):
        at = int(random.integers(2, len(changed)))
        words = pick(random, INSTRUCTIONS) * int(pick(random, [1, 1, 1, 2, 500]))
        changed[at : at + int(random.integers(2)) * len(words)] = words
    return bytes(changed)


def damaged_archive(whole: bytes, random: Random) -> bytes:
    """Its description or its files damaged and packed again with the right checksums, or the archive itself."""
    if random.integers(4) == 0:
        return damaged_bytes(whole, random)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("data.pkl"):
                content = damaged_pickle(content, random)
            elif random.integers(20) == 0:
                content, name = damaged_bytes(content, random) if content else b"x", pick(random, [name, f"../{name}"])
            new.writestr(name, content)
    return out.getvalue()


# -- templates ---------------------------------------------------------------------------------------------------------
WORDS = re.compile(r"\{%-?|-?%\}|\{\{-?|-?\}\}|\w+|'[^']*'|\s+|.", re.DOTALL)
BLOCK = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|[^{]+|.", re.DOTALL)
FOREIGN = [
    "10**9", "* 99999", "range(99999)", ".__class__", "['__class__']", ".__init__.__globals__", "| attr('__class__')",
    "self", "cycler", "namespace(x=1)", "| map('center', 10**9)", "| list", "| tojson", "| join('a' * 9999)",
    "recursive", "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "{% import 'os' as os %}",
    "{% include '/etc/passwd' %}", "{% set x = x ~ x %}", "{% for i in range(9) %}", "{% endfor %}", "{% break %}",
    "{{ caller() }}", "loop", "super()", "raise_exception('no')", "strftime_now('%Y')", "messages",
    "| replace('', 'xx')", "| sort", "| length", "[::-1]", "'\\x00'", "é", "{#", "#}", "{% raw %}", "if", "else",
    "not", "**", "%", "~", "|", "(", ")", "[", "]", "{{", "}}",
]  # fmt: skip


def damaged_template(whole: bytes, random: Random) -> bytes:
    """Words or whole tags left out, doubled, exchanged, or foreign ones put in between."""
    if random.integers(8) == 0:
        return damaged_bytes(whole, random)
    words = pick(random, [WORDS, BLOCK]).findall(whole.decode())
    for _ in range(random.integers(1, 4)):
        at, other = int(random.integers(len(words))), int(random.integers(len(words)))
        how = random.integers(5)
        if how == 0 and len(words) > 1:
            del words[at]
        elif how == 1:
            words[at:at] = words[at : at + int(random.integers(1, 9))]
        elif how == 2:
            words[at], words[other] = words[other], words[at]
        else:
            words.insert(at, pick(random, FOREIGN))
    return "".join(words).encode()
