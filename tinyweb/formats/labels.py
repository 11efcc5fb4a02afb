"""Names of classes, as files of models have them: lists, or dictionaries by number, in JSON or as Python writes it."""

from __future__ import annotations

import ast
import json
from typing import Any

MAX_NAMES = 1 << 18  # characters of all
MAX_LABEL = 100  # of one
MAX_DIGITS = 9  # of a number in a text: more are no place in a list


def literal(text: str | None) -> Any:
    """The JSON or Python literal of a text; None where it is none, or too long."""
    if text is None or len(text) > MAX_NAMES:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None


def labels_of(names: Any) -> list[str] | None:
    """A list of names, or a dictionary of them by number (as text or not); None where it is neither."""
    if isinstance(names, dict):
        found = {int(k): v for k, v in names.items() if isinstance(k, int) or _is_number(k)}
        if sorted(found) != list(range(len(names))):
            return None
        names = [found[i] for i in range(len(found))]
    if not isinstance(names, list | tuple) or not names or not all(isinstance(n, str) for n in names):
        return None
    # escapes may stand for halves of characters, which no file of text can hold
    return [n[:MAX_LABEL].encode(errors="replace").decode() for n in names]


def _is_number(key: Any) -> bool:
    return isinstance(key, str) and key.isdecimal() and len(key) <= MAX_DIGITS
