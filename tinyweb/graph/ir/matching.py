"""Rules as Python source: one function per operation tries all rules that may apply to it, tests in line.

What it means is `UPat.match`; this is the same walk, written out once instead of interpreted for every node.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tinyweb.graph.ir.ops import COMMUTATIVE, Ops
from tinyweb.graph.ir.uop import UOp

if TYPE_CHECKING:
    from tinyweb.graph.ir.pattern import Rule, UPat

Rewriter: TypeAlias = "Callable[[UOp, Any], UOp | None]"


def rewriter(op: Ops, rules: Sequence[Rule]) -> Rewriter | None:
    """The function (node, ctx) → the result of the first rule that changes a node of `op`; None if none can."""
    used = [(p, f) for p, f in rules if p.ops is None or op in p.ops]
    if not used:
        return None
    writer = _Writer()
    for pattern, function in used:
        writer.rule(op, pattern, function)
    names: dict[str, Any] = dict(writer.constants)
    exec("\n".join(["def rewrite(u, ctx):", *writer.lines, "    return None"]), names)
    made: Rewriter = names["rewrite"]
    return made


class _Writer:
    """The lines of one function, and what they refer to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.variables = 0

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def rule(self, op: Ops, pattern: UPat, function: Callable[..., UOp | None]) -> None:
        called = self.constant(function)
        extra = ["ctx=ctx"] if _wants_context(function) else []

        def call(depth: int, arguments: Sequence[str]) -> None:
            self.line(depth, f"out = {called}({', '.join([*arguments, *extra])})")
            self.line(depth, "if out is not None and out is not u:")
            self.line(depth + 1, "return out")

        if _in_line(pattern):
            self.match(
                pattern, "u", op, 1, {}, lambda depth, bound: call(depth, [f"{n}={v}" for n, v in bound.items()])
            )
        else:
            self.line(1, f"for names in {self.constant(pattern)}.match(u, {{}}):")
            call(2, ["**names"])

    def match(
        self,
        p: UPat,
        node: str,
        op: Ops | None,
        depth: int,
        bound: dict[str, str],
        then: Callable[[int, dict[str, str]], None],
    ) -> None:
        """Write what tests `node`, of operation `op` if that is known, against `p`, and inside it what is `then`."""
        tests = self.tests(p, node, op)
        if p.name is not None and p.name in bound:
            tests.append(f"{node} is {bound[p.name]}")
        elif p.name is not None:
            bound = {**bound, p.name: node}
        if p.every is not None:
            inner = " and ".join(self.tests(p.every, "s", None)) or "True"
            tests.append(f"all([{inner} for s in {node}.src])")
        if p.src is not None:
            tests.append(f"len({node}.src) {'>=' if p.rest else '=='} {len(p.src)}")
        if tests:
            self.line(depth, f"if {' and '.join(tests)}:")
            depth += 1
        if p.src is None:
            then(depth, bound)
            return
        parts = [f"n{self.variables + i}" for i in range(len(p.src))]
        self.variables += len(parts)
        either_way = {op in COMMUTATIVE} if op is not None else {o in COMMUTATIVE for o in p.ops or Ops}
        if len(p.src) == 2 and True in either_way:
            orders = f"({node}.src, {node}.src[::-1])"
            if False in either_way:
                orders += f" if {node}.op in {self.constant(COMMUTATIVE)} else ({node}.src[:2],)"
            self.line(depth, f"for {parts[0]}, {parts[1]} in {orders}:")
            depth += 1
        elif parts:
            self.line(depth, f"{', '.join(parts)}, = {node}.src[:{len(parts)}]")
        self.sources(p.src, parts, depth, bound, then)

    def sources(
        self,
        patterns: Sequence[UPat],
        nodes: Sequence[str],
        depth: int,
        bound: dict[str, str],
        then: Callable[[int, dict[str, str]], None],
    ) -> None:
        if patterns:
            self.match(
                patterns[0], nodes[0], None, depth, bound,
                lambda deeper, more: self.sources(patterns[1:], nodes[1:], deeper, more, then),
            )  # fmt: skip
        else:
            then(depth, bound)

    def tests(self, p: UPat, node: str, op: Ops | None) -> list[str]:
        """What `p` asks of the node itself."""
        out: list[str] = []
        if p.ops is not None and op is None:
            out.append(self.among(f"{node}.op", p.ops))
        if p.dtype is not None:
            out.append(self.among(f"{node}.dtype", p.dtype))
        if p.arg is not None:
            out.append(f"{node}.arg == {self.constant(p.arg)}")
        if p.where is not None:
            out.append(f"{self.constant(p.where)}({node})")
        return out

    def among(self, value: str, allowed: frozenset[Any]) -> str:
        if len(allowed) == 1:
            return f"{value} is {self.constant(next(iter(allowed)))}"
        return f"{value} in {self.constant(allowed)}"


def _wants_context(function: Callable[..., UOp | None]) -> bool:
    code = getattr(function, "__code__", None)
    if code is None:
        return "ctx" in inspect.signature(function).parameters
    return "ctx" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _in_line(p: UPat) -> bool:
    """Whether the pattern can be written out: one for every source has to be a test of that source alone."""
    if p.every is not None:
        return p.every.name is None and p.every.src is None and p.every.every is None
    return all(map(_in_line, p.src or ()))
