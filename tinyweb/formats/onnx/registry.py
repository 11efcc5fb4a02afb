"""Which function lowers which operator: by domain, name and the version since which it holds."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

Lowering: TypeAlias = Callable[..., Any]
FAMILIES = (
    "attention", "casting", "contrib", "control", "convolution", "creation", "elementwise", "experts", "features",
    "fused", "gathering", "geometry", "images", "linear", "losses", "movement", "normalization", "pooling",
    "quantization", "recurrent", "reductions", "regions", "resize", "sequences", "signal", "strings", "training",
    "trees", "vectors",
)  # fmt: skip


@dataclass(frozen=True)
class Operator:
    """How one operator is lowered.

    `host`: inputs that decide shapes and are handed over as NumPy arrays. `stored`: inputs that are handed over as
    they are: a known array, a `Stored` matrix, a Tensor. `folds`: the function takes NumPy arrays as well, where all
    inputs are known. `keeps`: what is known is not computed beforehand, as it would only grow.
    `raw`: inputs come as they are: sequences, optionals, text. `draws`: random numbers, others in every call.
    `sizes`: takes `Sizes` as well as known arrays, at the places of `host`, and where all inputs are known.
    """

    function: Lowering
    since: int
    host: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()
    folds: bool = False
    keeps: bool = False
    raw: bool = False
    draws: bool = False
    sizes: bool = False
    fewest: int = 0
    most: int | None = 0  # None: any number

    def takes(self, count: int) -> bool:
        return self.fewest <= count and (self.most is None or count <= self.most)


_TABLE: dict[tuple[str, str], list[Operator]] = {}


def op(
    *names: str,
    since: int = 1,
    domain: str = "",
    host: tuple[int, ...] = (),
    stored: tuple[int, ...] = (),
    folds: bool = False,
    keeps: bool = False,
    raw: bool = False,
    draws: bool = False,
    sizes: bool = False,
) -> Callable[[Lowering], Lowering]:
    """Enters a function `(call, *inputs)` for operators of a domain from a version on."""

    def enter(function: Lowering) -> Lowering:
        parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.KEYWORD_ONLY][1:]
        fewest = sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        most = None if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(parameters)
        for name in names:
            entry = Operator(function, since, host, stored, folds, keeps, raw, draws, sizes, fewest, most)
            known = _TABLE.setdefault((domain, name), [])
            known.append(entry)
            known.sort(key=lambda o: o.since)
        return function

    return enter


@cache
def _load() -> None:
    for family in FAMILIES:
        importlib.import_module(f"tinyweb.formats.onnx.operators.{family}")


def operators() -> dict[tuple[str, str], list[Operator]]:
    """All operators that are supported, by domain and name."""
    _load()
    return _TABLE


def instead(domain: str) -> str:
    """What to do about an operator that is not supported, where that is known."""
    if domain == "com.microsoft.nchwc":
        return (": onnxruntime wrote the graph for one kind of processor; take the original, or what it writes with "
                "ORT_ENABLE_EXTENDED")  # fmt: skip
    return ""


def find(domain: str, name: str, version: int) -> Operator | None:
    """How an operator of a version of its domain is lowered; None: it is not supported."""
    found = [o for o in operators().get((domain, name), ()) if o.since <= version]
    return found[-1] if found else None
