"""Sizes that depend on variables, as the JSON trees a loader evaluates (docs/bundle.md)."""

from __future__ import annotations

from typing import TypeAlias

from tinyweb.graph.ir import Ops, Size

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
