"""In which precision an export keeps a source's weights, and what it says about it."""

from __future__ import annotations

from dataclasses import replace

from tinyweb.formats.gguf.stored import HELD
from tinyweb.formats.huggingface import ModelFolder
from tinyweb.kinds import BITS, STORED
from tinyweb.models.stored import nearest
from tinyweb.quantization.report import Report

USUAL = "q8"
KEPT = {"q8": "Q8_0", "q4": "Q4_0"}  # types of GGUF that a quantisation holds exactly


def kept(source: ModelFolder, quant: str | None) -> str:
    """The quantisation that was asked for; without one what is stored, where that is quantised, else 8 bits."""
    return quant or (STORED if source.stored_types() else USUAL)


def has_integers(source: ModelFolder, quant: str) -> bool:
    """Whether weights are integers, which activations may be rounded for."""
    return quant in BITS or (quant == STORED and bool(source.stored_types()))


def described(source: ModelFolder, quant: str) -> str:
    """A quantisation for people: of what is stored, its types, the most frequent first."""
    return ", ".join(source.stored_types()) or quant if quant == STORED else quant


def reported(report: Report, source: ModelFolder, quant: str) -> Report:
    """With what became of types that the source has quantised."""
    held = ", ".join(name for name in source.stored_types() if quant == STORED and name in HELD)
    return replace(report, kept=held or None, requantised=requantised(source, quant))


def requantised(source: ModelFolder, quant: str) -> str | None:
    """What of a source has been quantised anew, and as what; not what a quantisation holds exactly. None: nothing."""
    types = source.stored_types()
    if quant == STORED:
        became = {name: nearest(name) for name in types if name not in HELD}
    elif quant in KEPT:
        became = dict.fromkeys((name for name in types if name != KEPT[quant]), quant)
    else:
        return None
    total = sum(types.values())
    return ", ".join(f"{name} ({100 * types[name] / total:.0f} %) as {new}" for name, new in became.items()) or None
