"""Text that a quantisation is fitted to or measured on: from a file to blocks of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tinyweb.errors import TinywebError

BLOCK = 256  # tokens that a model reads at once
LEAST = 128  # tokens of a text that says anything
MOST_BYTES = 256 << 20
HELD_OUT = 8  # one of so many blocks measures, where there is no text of its own for that

Ids = npt.NDArray[np.int32]


def read_text(path: Path, option: str) -> str:
    """The text of a file that `option` names; TinywebError where it is none."""
    try:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise TinywebError(f"{option} {path} {what}: give a file of plain text (UTF-8)")
        if (size := path.stat().st_size) > MOST_BYTES:
            raise TinywebError(
                f"{option} {path} has {size >> 20} MiB, more than the {MOST_BYTES >> 20} that are read: give a part"
            )
        data = path.read_bytes()
    except OSError as e:
        raise TinywebError(f"{option} {path} cannot be read: {e.strerror or e}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise TinywebError(
            f"{option} {path} is no plain text (UTF-8): give a file of text like what the model will see"
        )
    if not text.strip():
        raise TinywebError(f"{option} {path} is empty: give a file of text like what the model will see")
    return text


def blocks(ids: Sequence[int], positions: int, bos: int | None, least: int, what: str) -> list[Ids]:
    """Token ids in blocks of one length, at most `BLOCK` and `positions`, so that there are at least `least` of them;
    each begins with `bos`, where there is one. TinywebError, which names `what`, where they are too few."""
    if len(ids) < LEAST:
        raise TinywebError(f"{what} has {len(ids)} tokens, too few to say anything: give at least {LEAST}")
    length = min(BLOCK, positions, len(ids) // least)
    head = [] if bos is None else [bos]
    step = length - len(head)
    if step < 2:
        raise TinywebError(f"{what} cannot be read in blocks of {positions} tokens: choose a larger --context")
    return [np.array([*head, *ids[at : at + step]], np.int32) for at in range(0, len(ids) - step + 1, step)]


def spread(items: Sequence[Ids], most: int) -> list[Ids]:
    """At most so many of them, from all of the text."""
    if len(items) <= most:
        return list(items)
    return [items[i * len(items) // most] for i in range(most)]


def hold_out(items: Sequence[Ids]) -> tuple[list[Ids], list[Ids]]:
    """What to fit to, and what to measure on: the text's end."""
    count = max(len(items) // HELD_OUT, 1)
    return list(items[:-count]), list(items[-count:])
