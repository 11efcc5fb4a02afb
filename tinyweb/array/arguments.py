"""What a method is called with, before it runs: PyTorch's names for its parameters, and values of the types it states.

Every public method of Tensor is wrapped once, when its class is made. Its annotations say what each argument may be:

- `int`: whole numbers, NumPy's and one-element integer tensors too, no bool; `float`: any real number; `bool`: True,
  False; `Sequence[int]`: whole numbers in a list or tuple
- `DType`: one of tinyweb.dtypes, or what names one (see `as_dtype`)
- `TensorCore`: a tensor
- what is annotated otherwise is for the method itself to judge
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from tinyweb.dtype import DType, as_dtype
from tinyweb.graph.ir import UOp

# PyTorch's (or NumPy's) names and ours; where a method has several, the first that it has
NAMES: dict[str, tuple[str, ...]] = {
    "dim": ("axis",), "keepdims": ("keepdim",), "axis0": ("dim0",), "axis1": ("dim1",), "dimension": ("axis",),
    "input2": ("other", "factor"), "x2": ("other",), "input": ("values", "ids", "a"), "tensor": ("other",),
    "x": ("other",), "y": ("other",), "B": ("b",), "A": ("self",), "tensors": ("self",), "test_elements": ("elements",),
    "tensor1": ("first",), "tensor2": ("second",), "split_size": ("sizes",), "src": ("source",), "ord": ("p",),
    "split_size_or_sections": ("sizes",), "pad": ("padding",), "equation": ("formula",), "size": ("shape",),
    "other": ("b", "exponent", "source"), "elements": ("self",), "sorted_sequence": ("self",), "train": ("training",),
}  # fmt: skip
# parameters that take numbers one by one, and the names by which PyTorch takes them as a sequence
SPREAD = {"shape", "size", "axes", "counts"}
SPREAD_NAMES = {"shape", "size", "dims", "repeats"}
ALIASES = {"Whole": "int", "Size": "int", "Real": "float", "Flag": "bool", "Scalar": "float"}
SAID = {
    "int": "a whole number", "float": "a number", "bool": "True or False", "str": "a string", "DType": "a dtype",
    "TensorCore": "a tensor", "None": "None", "Sequence[int]": "a sequence of whole numbers",
}  # fmt: skip
QUICK: dict[str, tuple[type, ...]] = {
    "int": (int,), "float": (int, float, bool), "bool": (bool,), "str": (str,), "DType": (DType,),
    "None": (type(None),),
}  # fmt: skip


class Unfit(Exception):
    """A value that an annotation does not allow."""


@dataclass(frozen=True)
class Parameter:
    """A parameter that is looked at: its place behind self, its name, and the kinds of values it may have."""

    place: int
    name: str
    kinds: tuple[str, ...]
    quick: frozenset[type]

    def checked(self, value: Any, method: str) -> Any:
        """The value as the method expects it; TypeError where it is none of the kinds."""
        for kind in self.kinds:
            try:
                return CONVERT[kind](value)
            except Unfit:
                continue
        what = " or ".join(SAID[k] for k in self.kinds)
        shown = f"{type(value).__name__} {value!r}" if len(repr(value)) < 60 else type(value).__name__
        raise TypeError(f"{method}: {self.name} must be {what}, got {shown}")


def _whole(value: Any) -> Any:
    if isinstance(value, UOp):
        return value
    if isinstance(value, bool | np.bool_):
        raise Unfit
    try:
        return operator.index(value)
    except TypeError:
        raise Unfit from None


def _real(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, bool | int | float | UOp) or _is_tensor(value):
        return value
    raise Unfit


def _flag(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise Unfit
    return bool(value)


def _wholes(value: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise Unfit
    return tuple(_whole(v) for v in value)


def _type(value: Any) -> DType:
    found = as_dtype(value)
    if found is None:
        raise Unfit
    return found


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "uop") and hasattr(value, "storage")


def _of(test: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not test(value):
            raise Unfit
        return value

    return convert


CONVERT: dict[str, Callable[[Any], Any]] = {
    "int": _whole, "float": _real, "bool": _flag, "Sequence[int]": _wholes, "DType": _type,
    "str": _of(lambda v: isinstance(v, str)), "None": _of(lambda v: v is None), "TensorCore": _of(_is_tensor),
}  # fmt: skip


def _kinds(annotation: Any) -> tuple[str, ...]:
    """The kinds an annotation allows, () where it does not say."""
    if not isinstance(annotation, str):
        return ()
    parts = [p.strip() for p in re.split(r"\|(?![^\[]*\])", annotation)]
    kinds = tuple(ALIASES.get(p, p) for p in parts)
    # None last: it is the rarest, and the message ends with it
    return tuple(sorted(kinds, key=lambda k: k == "None")) if all(k in CONVERT for k in kinds) else ()


def check_arguments(cls: type) -> None:
    """Wrap the public methods that a class defines itself."""
    wrapped: dict[FunctionType, Any] = {}  # a method of two names stays one
    for name, member in list(vars(cls).items()):
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if name.startswith("_") or not isinstance(function, FunctionType):
            continue
        if function not in wrapped:
            wrapped[function] = _wrapped(function, bound=not isinstance(member, staticmethod))
        new = wrapped[function]
        if new is not function:
            setattr(cls, name, type(member)(new) if isinstance(member, classmethod | staticmethod) else new)


def _wrapped(function: FunctionType, bound: bool) -> Any:
    every = list(inspect.signature(function).parameters.values())
    names = {p.name for p in every if p.kind is not p.VAR_POSITIONAL}
    first = 1 if bound else 0
    parameters = []
    spread = None
    for place, p in enumerate(every):
        kinds = _kinds(p.annotation)
        if p.kind is p.VAR_POSITIONAL:
            spread = p.name
        elif kinds and place >= first and p.kind is not p.VAR_KEYWORD:
            at = place if p.kind is p.POSITIONAL_OR_KEYWORD else len(every) + 1000
            quick = frozenset(t for k in kinds for t in QUICK.get(k, ()))
            parameters.append(Parameter(at, p.name, kinds, quick))
    renamed = {
        theirs: next(o for o in ours if o in names)
        for theirs, ours in NAMES.items()
        if theirs not in names and any(o in names for o in ours)
    }
    if bound and every[0].annotation is inspect.Parameter.empty:  # self is the tensor, not one of several
        renamed = {k: v for k, v in renamed.items() if v != every[0].name}
    scattered = {n for n in SPREAD_NAMES if n not in names} if spread in SPREAD else set()
    renamed = {k: v for k, v in renamed.items() if k not in scattered and v != spread}
    if not parameters and not renamed and not scattered:
        return function
    method = function.__name__

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        if keywords:
            for theirs in [k for k in keywords if k in renamed]:
                ours = renamed[theirs]
                if ours in keywords:
                    raise TypeError(f"{method}: {theirs} and {ours} are two names of one argument: give one")
                keywords[ours] = keywords.pop(theirs)
            for sizes in [k for k in keywords if k in scattered]:
                if len(args) > first:
                    raise TypeError(f"{method}: {sizes} was given twice, as {args[first:]} and by keyword")
                args = (*args, _listed(keywords.pop(sizes), method, sizes))
        changed: list[Any] | None = None
        for p in parameters:
            if p.place < len(args):
                value = args[p.place]
                if type(value) not in p.quick:
                    new = p.checked(value, method)
                    if new is not value:
                        changed = changed or list(args)
                        changed[p.place] = new
            elif keywords and p.name in keywords:
                value = keywords[p.name]
                if type(value) not in p.quick:
                    keywords[p.name] = p.checked(value, method)
        return function(*(args if changed is None else changed), **keywords)

    return call


def _listed(value: Any, method: str, name: str) -> Any:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{method}: {name} must be a sequence of whole numbers, got {value!r}")
    return tuple(value)
