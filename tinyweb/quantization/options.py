"""What a user may ask of a quantisation, and which of it goes together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tinyweb.errors import TinywebError
from tinyweb.kinds import BITS, KINDS, MIXED, STORED
from tinyweb.nn.precision import GROUPS, Precision, Recipe
from tinyweb.nn.quantize import GROUP

CHANNEL = "channel"
UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


@dataclass(frozen=True)
class QuantOptions:
    """What goes with a quantisation of weights. `group`: weights that share a scale, None: all of a row. `embedding`,
    `head`: kinds of their own. `bytes`: of all weights, at most, for "mixed". `calibrate`: a file of text that the
    weights are fitted to; `evaluate`: one that the result is measured on, None: a part of the former."""

    group: int | None = GROUP
    zero_points: bool = False
    embedding: str | None = None
    head: str | None = None
    bytes: int | None = None
    calibrate: Path | None = None
    evaluate: Path | None = None

    @property
    def plain(self) -> bool:
        """Whether a matrix after the other can be stored as it is read."""
        return self.calibrate is None and self.bytes is None

    @property
    def of_integers(self) -> bool:
        """Whether anything is asked for that only weights have which are quantised here."""
        return self.group != GROUP or self.zero_points or self.calibrate is not None

    def recipe(self, quant: str) -> Recipe:
        """How matrices are stored; of "mixed" the layers as they come. TinywebError for what does not go together."""
        integers = quant == MIXED or quant in BITS
        kinds = [k for k in (self.embedding, self.head) if k is not None]
        if (quant == MIXED) != (self.bytes is not None):
            raise TinywebError(
                "--quant mixed needs --bytes, the size of all weights, as in --bytes 700MB"
                if quant == MIXED
                else f"--bytes is for --quant mixed, which finds the bits of each matrix; --quant {quant} has its size"
            )
        if self.calibrate is not None and not integers:
            raise TinywebError(f"--calibrate is for integers, not {quant}: choose --quant {', '.join(BITS)} or {MIXED}")
        if not integers and not any(k in BITS for k in kinds) and (self.group != GROUP or self.zero_points):
            option = "--zero-points" if self.zero_points else "--group"
            raise TinywebError(f"{option} is for integers, not {quant}: choose --quant {', '.join(BITS)} or {MIXED}")
        kind = STORED if quant == MIXED else quant
        layers = Precision(kind, self.group, self.zero_points)
        recipe = Recipe.made(layers, self.embedding, self.head)
        return recipe


def parse_group(text: str) -> int | None:
    """32, 64, 128 or "channel" (None); TinywebError for others."""
    if text == CHANNEL:
        return None
    if text not in map(str, GROUPS):
        raise TinywebError(f"--group {text[:20]!r} cannot be: choose {', '.join(map(str, GROUPS))} or {CHANNEL}")
    return int(text)


def parse_bytes(text: str) -> int:
    """A size as people write it: 700MB, 1.5GiB, 40000; TinywebError for what is none."""
    compact = text.strip().lower().replace(" ", "")
    number = compact.rstrip("bgikm")
    unit = compact[len(number) :]
    unit = f"{unit}b" if unit in ("k", "m", "g") else "" if unit == "b" else unit
    try:
        size = float(number) * UNITS[unit]
    except (ValueError, KeyError):
        size = -1.0
    if not 1 <= size < 2**50:
        raise TinywebError(f"--bytes {text[:20]!r} is no size: write it as in 700MB or 1.5GiB")
    return int(size)


def check_kind(option: str, kind: str | None) -> str | None:
    """TinywebError for a kind that there is not."""
    if kind is not None and kind not in KINDS:
        raise TinywebError(f"{option} {kind[:20]!r} cannot be: choose one of {', '.join(KINDS)}")
    return kind
