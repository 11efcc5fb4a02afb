"""Graphs as text: `to_python`, which `from_python` turns back into the very same nodes, and `to_text` for people.

The Python form is one assignment per node, sources first:

    c0 = CONST(index, arg=512)
    r0 = RANGE(index, c0, arg=Axis(name='i0', order=0, kind=AxisKind.LOOP, reduce=False, dim=0))
    i0 = MUL(index, r0, c0)
    root = i0

Names say the kind: c constant, v variable, r range, p param, b buffer, i index arithmetic, g gate (any bool), l load,
t movement of a tensor, s anything without a value, x other values. `NAMESPACE` holds everything such a text refers to:
a constructor per op, the dtypes, the records used as args, `inf`, `nan`, and `bits` (a float by its 64 bits, for NaNs
that are not the usual one).
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from tinyweb.dtype import ALL, DType, dtypes
from tinyweb.graph.ir.axes import nested
from tinyweb.graph.ir.fragments import Digit, Fragments, Layout
from tinyweb.graph.ir.ops import (
    COMPARISON,
    ELEMENTWISE,
    MOVEMENT,
    Axis,
    AxisKind,
    BufferArg,
    CopyArg,
    KernelInfo,
    MatrixArg,
    Neighbours,
    Ops,
    Ordered,
    ParamArg,
    PlanesArg,
    RowsArg,
    Space,
    Spread,
    StageArg,
    TableArg,
)
from tinyweb.graph.ir.shared_matrices import DescribedArg, Products, Swizzle
from tinyweb.graph.ir.uop import UOp, toposort, users
from tinyweb.graph.ir.walks import in_order


# -- Python ----------------------------------------------------------------------------------------------------------
def _constructor(op: Ops) -> Callable[..., UOp]:
    def build(dtype: DType, *src: UOp, arg: Any = None) -> UOp:
        return UOp(op, dtype, src, arg)

    build.__name__ = op.name
    return build


def _from_bits(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


ARGS = (
    Ops, Space, AxisKind, Axis, BufferArg, CopyArg, Spread, ParamArg, StageArg, MatrixArg, Ordered, PlanesArg, TableArg,
    Neighbours, KernelInfo, Digit, Layout, Fragments, RowsArg, Swizzle, DescribedArg, Products,
)  # fmt: skip
NAMESPACE: dict[str, Any] = {
    **{op.name: _constructor(op) for op in Ops},
    **{d.name: d for d in (*ALL, dtypes.void)},
    **{t.__name__: t for t in ARGS},
    "inf": math.inf,
    "nan": math.nan,
    "bits": _from_bits,
}


def to_python(roots: UOp | Sequence[UOp]) -> str:
    """Python text that builds the graph; it ends by assigning `root`: a node, or a tuple of them for a sequence."""
    listed = [roots] if isinstance(roots, UOp) else list(roots)
    names: dict[UOp, str] = {}
    counts: dict[str, int] = {}
    lines: list[str] = []
    for u in _with_args(listed):
        kind = _kind(u)
        names[u] = f"{kind}{counts.setdefault(kind, 0)}"
        counts[kind] += 1
        parts = [u.dtype.name, *(names[s] for s in u.src)]
        if u.arg is not None:
            parts.append(f"arg={_literal(u.arg, names)}")
        lines.append(f"{names[u]} = {u.op.name}({', '.join(parts)})")
    result = names[listed[0]] if isinstance(roots, UOp) else _literal(tuple(listed), names)
    return "\n".join([*lines, f"root = {result}", ""])


def from_python(text: str) -> UOp | tuple[UOp, ...]:
    """What `to_python` was given. The text is executed: use it on text of your own only."""
    scope: dict[str, Any] = {"__builtins__": {}, **NAMESPACE}
    exec(compile(text, "<graph>", "exec"), scope)
    root: UOp | tuple[UOp, ...] = scope["root"]
    return root


def _kind(u: UOp) -> str:
    named = {Ops.CONST: "c", Ops.VARIABLE: "v", Ops.RANGE: "r", Ops.PARAM: "p", Ops.BUFFER: "b", Ops.LOAD: "l"}
    if u.op in named:
        return named[u.op]
    if u.op in MOVEMENT:
        return "t"
    if u.dtype is dtypes.void:
        return "s"
    return "g" if u.dtype is dtypes.bool else "i" if u.dtype is dtypes.index else "x"


def _nodes_in(arg: Any) -> list[UOp]:
    """Nodes that stand inside an arg (symbolic sizes)."""
    if isinstance(arg, UOp):
        return [arg]
    if isinstance(arg, tuple):
        return [u for a in arg for u in _nodes_in(a)]
    if dataclasses.is_dataclass(arg) and not isinstance(arg, type):
        return [u for f in dataclasses.fields(arg) for u in _nodes_in(getattr(arg, f.name))]
    return []


def _with_args(roots: Sequence[UOp]) -> list[UOp]:
    """All nodes, those inside args included, before the nodes that need them."""
    return in_order(roots, lambda u: (*u.src, *_nodes_in(u.arg)))


def _literal(value: Any, names: dict[UOp, str]) -> str:
    if isinstance(value, UOp):
        return names[value]
    if isinstance(value, tuple):
        inside = ", ".join(_literal(v, names) for v in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, float) and math.isnan(value):
        raw = struct.pack("<d", value)
        return "nan" if raw == struct.pack("<d", math.nan) else f"bits({int.from_bytes(raw, 'little'):#x})"
    if isinstance(value, DType):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (f"{f.name}={_literal(getattr(value, f.name), names)}" for f in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, bool | int | float | str | Ops | Space | AxisKind) or value is None:
        return repr(value)
    raise TypeError(f"the printer does not know args of type {type(value).__name__}")


# -- for people ------------------------------------------------------------------------------------------------------
# how tightly an operator binds; a source that binds less tightly is put in parentheses
_INFIX = {
    Ops.MUL: ("·", 7), Ops.DIV: ("/", 7), Ops.FLOORDIV: ("//", 7), Ops.MOD: ("%", 7), Ops.ADD: ("+", 6),
    Ops.SHL: ("<<", 5), Ops.SHR: (">>", 5), Ops.AND: ("&", 4), Ops.XOR: ("^", 4), Ops.OR: ("|", 4),
    Ops.LESS: ("<", 3), Ops.EQUAL: ("==", 3),
}  # fmt: skip
_ATOM = 9
_LONG = 100  # an expression longer than this gets a name of its own
_REDUCED = {Ops.ADD: "sum", Ops.MUL: "prod", Ops.MAX: "max"}


def to_text(roots: UOp | Sequence[UOp]) -> str:
    """Short pseudo-code: a kernel as loops around assignments, a program as its statements, else assignments."""
    if isinstance(roots, UOp):
        text = _Text(roots.toposort(), users([roots]))
        return text.kernel(roots) if roots.op is Ops.SINK and _has_stores(roots) else text.graph(roots)
    listed = list(roots)
    if any(u.op in (Ops.END, Ops.STORE) for u in listed):
        return _Text(listed, users(listed)).program()
    text = _Text(toposort(listed), users(listed))
    return "\n".join(text.graph(r) for r in listed)


def brief(u: UOp, depth: int = 3) -> str:
    """One node and a little of what it is made of, on one line."""
    if u.op is Ops.CONST:
        return f"{u.arg}:{u.dtype.name}"
    if u.op is Ops.RANGE:
        return str(u.arg.name)
    if u.op is Ops.VARIABLE:
        return str(u.arg[0])
    arg = "" if u.arg is None else f"[{_short_arg(u.arg)}]"
    if not u.src:
        return f"{u.op.name}.{u.dtype.name}{arg}"
    inside = (
        "…" if depth <= 1 else ", ".join(brief(s, depth - 1) for s in u.src[:6]) + (", …" if len(u.src) > 6 else "")
    )
    return f"{u.op.name}.{u.dtype.name}{arg}({inside})"


def _short_arg(arg: Any) -> str:
    if isinstance(arg, UOp):
        return _expression(arg)
    if isinstance(arg, tuple):
        return "(" + ", ".join(map(_short_arg, arg)) + ("," if len(arg) == 1 else "") + ")"
    return str(arg.name) if isinstance(arg, Ops) else str(arg)


def _expression(u: UOp) -> str:
    """A small expression (a size) in full."""
    text = _Text([], {})
    for n in u.toposort():
        text.inline[n] = text.text_of(n)
    return text.inline[u][0]


def _has_stores(root: UOp) -> bool:
    return any(s.op is Ops.STORE for s in root.src)


class _Text:
    """Writes nodes as (text, binding strength); what is long or used more than once becomes a line of its own."""

    def __init__(self, nodes: Sequence[UOp], used: dict[UOp, list[UOp]]):
        self.nodes, self.used = nodes, used
        self.inline: dict[UOp, tuple[str, int]] = {}
        self.lines: list[str] = []
        self.depth = 0
        self.temporaries = 0

    def say(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def of(self, u: UOp, least: int = 0) -> str:
        text, strength = self.inline[u]
        return text if strength >= least else f"({text})"

    def visit(self, u: UOp) -> None:
        """Write a value, and name it where that is shorter."""
        text, strength = self.text_of(u)
        leaf = not u.src or u.op in (Ops.RANGE, Ops.SPECIAL, Ops.AFTER, Ops.BIND)
        uses = sum(s is u for n in self.used.get(u, ()) for s in n.src)
        if not leaf and (len(text) > _LONG or (uses > 1 and len(text) > 16)):
            name = f"t{self.temporaries}"
            self.temporaries += 1
            self.say(f"{name} = {text}")
            text, strength = name, _ATOM
        self.inline[u] = (text, strength)

    def text_of(self, u: UOp) -> tuple[str, int]:
        op, src = u.op, u.src
        if op is Ops.CONST:
            return str(u.arg), _ATOM
        if op is Ops.VARIABLE:
            return str(u.arg[0]), _ATOM
        if op is Ops.RANGE:
            return str(u.arg.name), _ATOM
        if op is Ops.PARAM:
            return f"p{u.arg.slot}", _ATOM
        if op is Ops.BUFFER:
            return f"{u.arg.space.name.lower()}{u.arg.id}", _ATOM
        if op is Ops.SPECIAL:
            return f"{u.arg[0]}.{'xyz'[u.arg[1]]}", _ATOM
        if op is Ops.SUBGROUP_SIZE:
            return "subgroup size", _ATOM
        if op is Ops.SUBGROUP:
            few = isinstance(u.arg, Neighbours)
            where = f"{u.arg.count} neighbours" if few else "subgroup"
            return f"{_REDUCED[u.arg.op if few else u.arg]} over {where}({self.of(src[0])})", _ATOM
        if op in (Ops.AFTER, Ops.BIND):
            return self.inline[src[0]]
        if op is Ops.LOAD:
            width = f":{u.arg}" if isinstance(u.arg, int) and u.arg > 1 else ""
            gate = f" if {self.of(src[2])} else 0" if len(src) > 2 else ""
            return f"{self.of(src[0], _ATOM)}[{self.of(src[1])}{width}]{gate}", _ATOM if not gate else 1
        if op is Ops.LANE:
            return f"{self.of(src[0], _ATOM)}.{u.arg}", _ATOM
        if op is Ops.STACK:
            same = len(set(src)) == 1 and len(src) > 1
            return f"<{self.of(src[0])}>×{len(src)}" if same else f"<{', '.join(map(self.of, src))}>", _ATOM
        if op in (Ops.REDUCE, Ops.STAGE):
            return self._bound(u), _ATOM
        if op is Ops.WHERE:
            return f"{self.of(src[1], 2)} if {self.of(src[0], 2)} else {self.of(src[2], 2)}", 1
        if op is Ops.XOR and u.dtype is dtypes.bool and src[1].op is Ops.CONST and src[1].arg is True:
            return f"not {self.of(src[0], 8)}", 4
        if op is Ops.MULADD:
            return f"{self.of(src[0], 7)}·{self.of(src[1], 8)} + {self.of(src[2], 6)}", 6
        if op in (Ops.CAST, Ops.BITCAST):
            return f"{u.dtype.name}{' bits' if op is Ops.BITCAST else ''}({self.of(src[0])})", _ATOM
        if op is Ops.ADD and len(src) == 2 and (less := self._subtracted(src[1])) is not None:
            return f"{self.of(src[0], 6)} - {less}", 6
        if op in _INFIX and len(src) == 2:
            sign, strength = _INFIX[op]
            tighter = strength + (op in COMPARISON)
            return f"{self.of(src[0], tighter)} {sign} {self.of(src[1], strength + 1)}", strength
        if op is Ops.NEG:
            return f"-{self.of(src[0], 8)}", 8
        parts = [self.of(s) for s in src]
        if u.arg is not None:
            parts.append(_short_arg(u.arg))
        return f"{op.name.lower()}({', '.join(parts)})", _ATOM

    def _subtracted(self, u: UOp) -> str | None:
        """y of x + -y, where that is what `u` stands for."""
        if u.op is Ops.CONST and u.arg < 0:
            return str(-u.arg)
        if u.op is Ops.NEG:
            return self.of(u.src[0], 7)
        if u.op is Ops.MUL and len(u.src) == 2 and u.src[1].op is Ops.CONST and u.src[1].arg < 0 and u.dtype.is_int:
            return self.of(u.src[0], 7) if u.src[1].arg == -1 else f"{self.of(u.src[0], 7)} · {-u.src[1].arg}"
        return None

    def _bound(self, u: UOp) -> str:
        if u.op is Ops.REDUCE and isinstance(u.arg, tuple):
            return f"{_REDUCED[u.arg[0]]}({self.of(u.src[0])}, axes={u.arg[1]})"
        word = _REDUCED.get(u.arg, str(u.arg)) if u.op is Ops.REDUCE else f"stage {u.arg.space.name.lower()}"
        bound = ", ".join(self._range(r) for r in u.src[1:])
        return f"{word}({bound}: {self.of(u.src[0])})"

    def _range(self, r: UOp) -> str:
        if r.op is not Ops.RANGE:
            return self.of(r)
        kind = r.arg.kind
        where = "" if kind is AxisKind.LOOP else f" {kind.name.lower()}"
        if kind in (AxisKind.GRID, AxisKind.THREAD):
            where += f".{'xyz'[r.arg.dim]}"
        return f"{r.arg.name} in {self.of(r.src[0])}{where}"

    def graph(self, root: UOp) -> str:
        for u in self.nodes:
            self.visit(u)
        self.say(self.of(root))
        return "\n".join(self.lines)

    def kernel(self, root: UOp) -> str:
        self.depth = 1
        for u in self.nodes:
            if u.op is Ops.STORE:
                self._store(u)
            elif u is not root:
                self.visit(u)
        outer = nested(root.ranges)
        name = getattr(root.arg, "name", "") or "kernel"
        loops = ", ".join(self._range(r) for r in outer)
        schedule = [f"# {line}" for line in getattr(root.arg, "schedule", ())]
        return "\n".join([*schedule, f"{name}: for {loops}:" if loops else f"{name}:", *self.lines])

    def _store(self, u: UOp) -> None:
        gate = f"if {self.of(u.src[3])}: " if len(u.src) > 3 else ""
        how = f" {u.arg}" if u.arg is not None else ""
        self.say(f"{gate}{self.of(u.src[0])}[{self.of(u.src[1])}] ={how} {self.of(u.src[2])}")

    def program(self) -> str:
        for u in self.nodes:
            if u.op is Ops.STORE:
                self._store(u)
            elif u.op is Ops.RANGE:
                self.visit(u)
                self.say(f"for {self._range(u)}:")
                self.depth += 1
            elif u.op is Ops.END:
                self.depth = max(self.depth - 1, 0)
            elif u.op is Ops.BARRIER:
                self.say("barrier" if u.arg is None else f"barrier {u.arg}")
            else:
                if u.op in (Ops.PARAM, Ops.BUFFER):
                    name = self.text_of(u)[0]
                    self.say(f"{name}: {u.dtype.name}[{u.arg.size}]")
                elif u.op not in ELEMENTWISE and any(s not in self.inline for s in u.src if s.dtype is not dtypes.void):
                    self.say(f"? {brief(u)}")
                self.visit(u)
        return "\n".join(self.lines)
