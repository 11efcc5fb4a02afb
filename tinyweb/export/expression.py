"""Sizes that depend on variables, as the JSON trees a loader evaluates (docs/bundle.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from tinyweb.graph.ir import Ops, Size, UOp, Variable

Expression: TypeAlias = "int | dict[str, Expression | str | list[Expression]]"

_NAMES = {Ops.ADD: "add", Ops.MUL: "mul", Ops.FLOORDIV: "floordiv", Ops.MOD: "mod", Ops.MAX: "max"}


def expression(size: Size) -> Expression:
    """A size as a JSON tree: an integer, {"var": name}, or {"op": …, "args": [a, b]}."""
    if isinstance(size, int):
        return size
    if size.op is Ops.CONST:
        return int(size.arg)
    if size.op is Ops.VARIABLE:
        return {"var": str(size.arg[0])}
    if size.op in (Ops.BIND, Ops.CAST):
        return expression(size.src[0])
    if size.op in _NAMES:
        return {"op": _NAMES[size.op], "args": [expression(s) for s in size.src]}
    raise NotImplementedError(f"a size made with {size.op.name} has no spelling in a bundle")


_SIGNS = {"add": "+", "mul": "·", "floordiv": "/", "mod": "mod"}


def size_text(size: Any) -> int | str:
    """A size of a manifest as people read it: a number, or text."""
    if isinstance(size, int):
        return size
    if "var" in size:
        return str(size["var"])
    a, b = (size_text(s) for s in size["args"])
    sign = _SIGNS.get(size["op"])
    return f"({a} {sign} {b})" if sign else f"{size['op']}({a}, {b})"


def shape_text(array: Mapping[str, Any]) -> list[int | str]:
    """The shape of an input or output of a manifest."""
    return [size_text(s) for s in array.get("sizes", array["shape"])]


def merge_variables(variables: Iterable[UOp], first: Sequence[str] = ()) -> tuple[UOp, ...]:
    """Variables of several plans in slot order, each with the range that covers what every plan says of it; those
    called `first` come first, the others in order of the alphabet."""
    ranges: dict[str, tuple[int, int]] = {}
    for v in variables:
        name, low, high = v.arg
        before = ranges.get(name, (low, high))
        ranges[name] = (min(low, before[0]), max(high, before[1]))
    order = [n for n in first if n in ranges] + sorted(ranges.keys() - set(first))
    return tuple(Variable(name, *ranges[name]) for name in order)
