"""What a method is called with, before it runs: PyTorch's names for its parameters, and values of the types it states.

Every public method of Tensor is wrapped once, when its class is made. Its annotations say what each argument may be:

- `int`: whole numbers, NumPy's and one-element integer tensors too, no bool; `float`: any real number; `bool`: True,
  False; `Sequence[int]`: whole numbers in a list or tuple
- `DTypeLike`: one of tinyweb.dtypes, or what names one (see `as_dtype`): the method gets the DType
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
    "shape": ("size",), "other": ("b", "exponent", "source"), "elements": ("self",), "sorted_sequence": ("self",),
    "train": ("training",),
}  # fmt: skip
ALIASES = {
    "Whole": "int", "Size": "int", "Real": "float", "Flag": "bool", "Scalar": "float", "DTypeLike": "DType",
    "Sequence[Size]": "Sequence[int]",
}  # fmt: skip
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
    """A parameter that is looked at: its name, the kinds of values it may have, and types that need no second look."""

    name: str
    kinds: tuple[str, ...]
    quick: set[type]

    def checked(self, value: Any, method: str) -> Any:
        """The value as the method expects it; TypeError where it is none of the kinds."""
        for kind in self.kinds:
            try:
                found = CONVERT[kind](value)
            except Unfit:
                continue
            if kind == "TensorCore":  # whatever is of this class is a tensor
                self.quick.add(type(value))
            return found
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
    looked_at: dict[str, Parameter] = {}
    places: list[Parameter | None] = []  # of the arguments that may be given by position
    for p in every[first:]:
        kinds = _kinds(p.annotation)
        if kinds and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            quick = {t for k in kinds for t in QUICK.get(k, ())}
            looked_at[p.name] = Parameter(p.name, kinds, quick)
        if p.kind is p.POSITIONAL_OR_KEYWORD:
            places.append(looked_at.get(p.name))
    renamed = {
        theirs: next(o for o in ours if o in names)
        for theirs, ours in NAMES.items()
        if theirs not in names and any(o in names for o in ours)
    }
    if bound and every[0].annotation is inspect.Parameter.empty:  # self is the tensor, not one of several
        renamed = {k: v for k, v in renamed.items() if v != every[0].name}
    if not looked_at and not renamed:
        return function
    method = function.__name__
    checks = tuple((i, p.quick) for i, p in enumerate(places, first) if p is not None)

    def by_place(args: tuple[Any, ...]) -> tuple[Any, ...]:
        looked = (a if p is None else p.checked(a, method) for a, p in zip(args[first:], places, strict=False))
        return (*args[:first], *looked, *args[first + len(places) :])

    owner = every[0].name if bound else ""

    def by_name(keywords: dict[str, Any], args: tuple[Any, ...]) -> dict[str, Any]:
        found = {}
        for name, value in keywords.items():
            ours = renamed.get(name, name)
            if ours is not name and (ours in keywords or ours in found):
                raise TypeError(f"{method}: {name} and {ours} are two names of one argument: give one")
            if ours == owner and args:
                raise TypeError(
                    f"{method}: {name}= leaves no place for the tensor before the dot: Tensor.{method}({name}=…)"
                )
            p = looked_at.get(ours)
            found[ours] = value if p is None or type(value) in p.quick else p.checked(value, method)
        if owner and not args and owner not in found:
            raise TypeError(f"{method}: needs a tensor: x.{method}(…) or Tensor.{method}(x, …)")
        return found

    # this runs before every method: nothing is called where the types are those that are expected
    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        count = len(args)
        for place, quick in checks:
            if place >= count:
                break
            if type(args[place]) not in quick:
                args = by_place(args)
                break
        if keywords or not count:
            return function(*args, **by_name(keywords, args))
        return function(*args)

    return call
