"""Bits for each matrix, so that all together fit into so many bytes with the least error.

Every matrix begins with the fewest bits; then those bytes are spent that save most error for each of them, step by
step: the greedy solution of the knapsack of choices (Sinha and Zoltners 1979). The error of a matrix is the part of its
outputs' energy that is error (of its own, without a calibration text), so that matrices count alike whatever their
size. That of the head counts as often as parts are added up to what it reads: an error of a layer's matrix is one of a
single part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tinyweb.errors import TinywebError


@dataclass(frozen=True)
class Choice:
    """A precision that a matrix may have, by name: its bytes, and its squared error."""

    kind: str
    bytes: int
    error: float


def choose(choices: Mapping[str, Sequence[Choice]], room: int, rest: int) -> dict[str, str]:
    """The kind of each matrix, by name, all of whose bytes are at most `room` together with `rest`, which is there
    anyway. TinywebError where the smallest are too large."""
    rising = {name: _useful(found) for name, found in choices.items()}
    at = dict.fromkeys(rising, 0)
    left = room - rest - sum(found[0].bytes for found in rising.values())
    if left < 0:
        raise TinywebError(
            f"--bytes {room} is too little for this model: it takes at least {room - left} bytes "
            f"({(room - left) / 1e6:.1f} MB), {rest} of them for what is not quantised; give as much, or choose "
            "a larger --group"
        )
    while True:
        steps = [
            ((found[at[n]].error - found[j].error) / (found[j].bytes - found[at[n]].bytes), n, j)
            for n, found in rising.items()
            for j in range(at[n] + 1, len(found))
            if found[j].bytes - found[at[n]].bytes <= left
        ]
        if not steps:
            return {name: found[at[name]].kind for name, found in rising.items()}
        _, name, j = max(steps, key=lambda s: s[0])
        left -= rising[name][j].bytes - rising[name][at[name]].bytes
        at[name] = j


def _useful(found: Sequence[Choice]) -> list[Choice]:
    """From the smallest on, those that have less error than all smaller ones."""
    kept: list[Choice] = []
    for one in sorted(found, key=lambda c: (c.bytes, c.error)):
        if not kept or (one.error < kept[-1].error and one.bytes > kept[-1].bytes):
            kept.append(one)
    return kept
