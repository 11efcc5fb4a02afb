"""Names of the ways in which a model's numbers are kept: the one list of each, for the command line, its help and what
carries them out. Nothing else is imported: `tinyweb --help` reads it."""

from __future__ import annotations

from typing import Final, Literal, get_args

Floats = Literal["f32", "f16"]
Integers = Literal["q8", "q6", "q5", "q4", "q3"]
Kind = Literal[Floats, Integers]
Quant = Literal["stored", Kind]
ExportQuant = Literal[Quant, "mixed"]
CacheKind = Literal["f16", "f32", "q8", "q4"]
Activations = Literal["float", "half", "scaled-half", "int8"]

STORED: Final = "stored"  # as a checkpoint has it
MIXED: Final = "mixed"  # of each matrix what fits best
FLOATS: tuple[str, ...] = get_args(Floats)
KINDS: tuple[str, ...] = get_args(Kind)
BITS: dict[str, int] = {kind: int(kind.removeprefix("q")) for kind in get_args(Integers)}
CACHES: tuple[str, ...] = get_args(CacheKind)
ACTIVATIONS: tuple[str, ...] = get_args(Activations)
