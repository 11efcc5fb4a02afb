"""The small faults that `tools/mutate.py` plants in a module, one at a time.

A mutation replaces one node of the module's syntax tree: an operator, a constant, a branch, a bound of a slice, … What
says nothing about behaviour stays: docstrings, types, decorators, `__all__`, assertions, messages of exceptions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd, ast.MatMult: ast.Mult,
}  # fmt: skip
COMPARISON: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}
ANY_ORDER = {"isinstance", "issubclass", "getattr", "hasattr", "zip", "gcd", "lcm", "muladd", "warn", *OPPOSITE}
MESSAGES = {"warn", "print"}


@dataclass(frozen=True)
class Mutation:
    """One fault. `kind`, `before` and `after` are for people; `lines` are those that run where the fault is."""

    kind: str
    line: int
    lines: tuple[int, int]  # of the innermost function's body, statement or lambda: first and last
    text: str  # the line as written
    before: str
    after: str
    holder: ast.AST
    field: str
    index: int | None
    new: Any
    imported: bool = False  # runs when the module is imported

    def __str__(self) -> str:
        return f"{self.kind}: {self.before} -> {self.after}"

    def part(self) -> Any:
        """What is replaced."""
        value = getattr(self.holder, self.field)
        return value if self.index is None else value[self.index]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The tree has the fault."""
        old = getattr(self.holder, self.field)
        at = self.index
        setattr(self.holder, self.field, self.new if at is None else [*old[:at], self.new, *old[at + 1 :]])
        try:
            yield
        finally:
            setattr(self.holder, self.field, old)


def mutations(source: str) -> tuple[ast.Module, list[Mutation]]:
    """A module's syntax tree and all its mutations, in the order of the text."""
    tree = ast.parse(source)
    finder = _Finder(source.splitlines())
    finder.block(tree, "body", tree.body)
    return tree, sorted(finder.found, key=lambda m: m.line)


def compile_mutated(tree: ast.Module, mutation: Mutation, filename: str) -> CodeType:
    """The module with one fault; the tree stays as it was."""
    with mutation.planted():
        return compile(ast.fix_missing_locations(tree), filename, "exec", dont_inherit=True)


def _shown(node: Any) -> str:
    if node is None:
        return "none"
    if isinstance(node, list):
        return "; ".join(_shown(n) for n in node) or "pass"
    try:
        text = ast.unparse(node).replace("\n", " ")
    except ValueError:  # quotes in quotes
        text = type(node).__name__
    return text if len(text) <= 80 else f"{text[:50]} … {text[-27:]}"


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr | ast.Tuple | ast.List) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


class _Finder:
    """Walks statements, then expressions; `lines` and `imported` are those of where it is."""

    def __init__(self, source: Sequence[str]) -> None:
        self.source = source
        self.found: list[Mutation] = []
        self.lines = (1, 1)
        self.depth = 0

    def add(
        self, kind: str, at: ast.AST, holder: ast.AST, field: str, index: int | None, new: Any, show: Any = None
    ) -> None:
        """Replace `holder.field`, or its part `index`; what is shown is `show` before and after (default: the part)."""
        line: int = at.lineno  # type: ignore[attr-defined]
        mutation = Mutation(
            kind, line, self.lines, self.source[line - 1].strip(), "", "", holder, field, index, new, self.depth == 0
        )
        before, after = _shown(show or mutation.part()), _shown(new)
        if show is not None:
            with mutation.planted():
                after = _shown(show)
        self.found.append(replace(mutation, before=before, after=after))

    # -- statements --------------------------------------------------------------------------------------------
    def block(self, holder: ast.AST, field: str, body: Sequence[ast.stmt]) -> None:
        for i, statement in enumerate(body):
            self.statement(holder, field, i, statement, last=i == len(body) - 1)

    def statement(self, holder: ast.AST, field: str, i: int, s: ast.stmt, last: bool) -> None:
        end = s.body[0].lineno - 1 if isinstance(s, ast.If | ast.For | ast.While | ast.With) else s.end_lineno
        self.lines = (s.lineno, max(s.lineno, end or s.lineno))
        match s:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for defaults in ("defaults", "kw_defaults"):
                    for j, default in enumerate(getattr(s.args, defaults)):
                        if default is not None:
                            self.expression(s.args, defaults, j, default)
                self.depth += 1
                self.block(s, "body", s.body)
                self.depth -= 1
            case ast.ClassDef():
                self.block(s, "body", s.body)
            case ast.If() | ast.While():
                if "TYPE_CHECKING" in _shown(s.test):
                    return
                self.condition(s, "test", None, s.test)
                self.expression(s, "test", None, s.test)
                self.block(s, "body", s.body)
                if s.orelse:
                    self.lines = (s.orelse[0].lineno, s.orelse[0].lineno)
                    self.add("branch", s.orelse[0], s, "orelse", None, [])
                    self.block(s, "orelse", s.orelse)
            case ast.For():
                self.expression(s, "iter", None, s.iter)
                self.block(s, "body", s.body)
                self.block(s, "orelse", s.orelse)
            case ast.With():
                for item in s.items:
                    self.expression(item, "context_expr", None, item.context_expr)
                self.block(s, "body", s.body)
            case ast.Try():
                self.block(s, "body", s.body)
                for handler in s.handlers:
                    self.block(handler, "body", handler.body)
                self.block(s, "orelse", s.orelse)
                self.block(s, "finalbody", s.finalbody)
            case ast.Match():
                self.expression(s, "subject", None, s.subject)
                for case in s.cases:
                    if case.guard is not None:
                        self.condition(case, "guard", None, case.guard)
                        self.expression(case, "guard", None, case.guard)
                    self.block(case, "body", case.body)
            case ast.Continue() | ast.Break():
                self.add("jump", s, holder, field, i, ast.Pass())
            case ast.Raise():
                if s.exc is not None:
                    self.add("raise", s, holder, field, i, ast.Pass(), None)
            case ast.Return():
                if not (last and isinstance(holder, ast.FunctionDef)):
                    self.add("return", s, holder, field, i, ast.Pass())
                if s.value is not None:
                    self.expression(s, "value", None, s.value)
            case ast.AugAssign():
                if type(s.op) in ARITHMETIC:
                    self.add("operator", s, s, "op", None, ARITHMETIC[type(s.op)](), s)
                self.expression(s, "value", None, s.value)
            case ast.Assign():
                if not any(isinstance(t, ast.Name) and t.id in ("__all__", "__slots__") for t in s.targets):
                    self.expression(s, "value", None, s.value)
            case ast.AnnAssign():
                if s.value is not None and "TypeAlias" not in _shown(s.annotation):
                    self.expression(s, "value", None, s.value)
            case ast.Expr():
                if isinstance(s.value, ast.Call) and _called(s.value) not in MESSAGES:
                    self.add("call", s, holder, field, i, ast.Pass())
                self.expression(s, "value", None, s.value)
            case ast.Delete():
                self.add("delete", s, holder, field, i, ast.Pass())
            case _:
                pass  # imports, assertions, names of other scopes

    # -- expressions -------------------------------------------------------------------------------------------
    def condition(self, holder: ast.AST, field: str, index: int | None, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.UnaryOp):  # their own operators say the opposite
            self.add("condition", test, holder, field, index, ast.UnaryOp(ast.Not(), test))

    def expression(self, holder: ast.AST, field: str, index: int | None, e: ast.expr) -> None:
        match e:
            case ast.Constant():
                for new in _other_constants(e.value):
                    self.add("constant", e, holder, field, index, ast.Constant(new))
                return
            case ast.Lambda():
                kept, self.lines = self.lines, (e.body.lineno, e.body.end_lineno or e.body.lineno)
                self.depth += 1
                for j, default in enumerate(e.args.defaults):
                    self.expression(e.args, "defaults", j, default)
                self.expression(e, "body", None, e.body)
                self.lines = kept
                self.depth -= 1
                return
            case ast.BinOp():
                if type(e.op) in ARITHMETIC and not (_is_text(e.left) or _is_text(e.right)):
                    self.add("operator", e, e, "op", None, ARITHMETIC[type(e.op)](), e)
            case ast.BoolOp():
                other = ast.Or() if isinstance(e.op, ast.And) else ast.And()
                self.add("boolean", e, e, "op", None, other, e)
            case ast.UnaryOp() if not isinstance(e.operand, ast.Constant):
                self.add("unary", e, holder, field, index, e.operand)
            case ast.Compare():
                for j, op in enumerate(e.ops):
                    for other_op in COMPARISON[type(op)]:
                        self.add("comparison", e, e, "ops", j, other_op(), e)
            case ast.IfExp():
                self.condition(e, "test", None, e.test)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for g in e.generators:
                    for j, test in enumerate(g.ifs):
                        self.add("filter", test, g, "ifs", j, ast.Constant(True), e)
            case ast.Slice():
                self.bounds(e)
            case ast.Call():
                self.call(e)
                if _called(e) in MESSAGES:
                    return
            case _:
                pass
        self.children(e)

    def children(self, e: ast.AST) -> None:
        for field, value in ast.iter_fields(e):
            if field == "func" and isinstance(value, ast.Name):
                continue
            for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
                if isinstance(child, ast.expr):
                    self.expression(e, field, index, child)
                elif isinstance(child, ast.comprehension | ast.keyword):
                    self.children(child)

    def bounds(self, e: ast.Slice) -> None:
        if e.lower is None:
            self.add("slice", e, e, "lower", None, ast.Constant(1), e)
        else:
            self.add("slice", e.lower, e, "lower", None, None, e)
        if e.upper is not None:
            self.add("slice", e.upper, e, "upper", None, None, e)
        if e.step is not None:
            self.add("slice", e.step, e, "step", None, None, e)

    def call(self, e: ast.Call) -> None:
        name = _called(e)
        if isinstance(e.func, ast.Name) and name in OPPOSITE:
            self.add("function", e, e, "func", None, ast.Name(OPPOSITE[name], ast.Load()), e)
        if len(e.args) >= 2 and name not in ANY_ORDER and all(isinstance(a, ast.Name) for a in e.args[:2]):
            first, second = e.args[:2]
            if _shown(first) != _shown(second):
                self.add("arguments", e, e, "args", None, [second, first, *e.args[2:]], e)


def _other_constants(value: object) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value + 1, value - 1)
    if isinstance(value, float):
        return (value + 1.0, value / 2) if value else (1.0,)
    return ()
