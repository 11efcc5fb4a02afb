"""UOp: the one node type of every stage.

A node is (op, dtype, src, arg), immutable and interned: equal nodes are one object, so `is` is equality, a graph is its
root, and every analysis may be cached on the node it belongs to.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from itertools import count
from math import prod
from typing import Any, ClassVar, TypeAlias
from weakref import ref

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir.on_node import graph_property
from tinyweb.graph.ir.ops import (
    COMPARISON,
    ELEMENTWISE,
    TENSOR_ONLY,
    AxisKind,
    BufferArg,
    MatrixArg,
    Ops,
    ParamArg,
    RowsArg,
)
from tinyweb.graph.ir.shared_matrices import DescribedArg

Size: TypeAlias = "int | UOp"  # a size, an index or a bound: a number, or an expression in VARIABLEs
Shape: TypeAlias = "tuple[Size, ...]"
LIKE_THEIR_SOURCE = frozenset({
    Ops.FLIP, Ops.SCAN, Ops.SCATTER, Ops.CONTIGUOUS, Ops.COPY, Ops.AFTER, Ops.LEAF, Ops.DETACH, Ops.CUSTOM_GRADIENT,
})  # fmt: skip
NO_LANES = TENSOR_ONLY | {Ops.AFTER, Ops.END, Ops.BARRIER, Ops.SINK}  # arrays, memory and effects


def _has_bounds(u: UOp) -> bool:
    return u.dtype.is_int or u.dtype.kind == "bool"


@cache
def _label(op: Ops, dtype: DType) -> bytes:
    return f"{op.name} {dtype.name} ".encode()


def _order_text(arg: Any) -> str:
    """`arg` as text that differs where args differ and is the same in every run."""
    if isinstance(arg, UOp):
        return arg.order_key[3].hex()
    return f"({','.join(map(_order_text, arg))})" if isinstance(arg, tuple) else repr(arg)


class _Entry(ref["UOp"]):
    """A node in the table of interned nodes: it leaves with the node."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_table: dict[tuple[Any, ...], _Entry] = {}
_creations = count()


def _leave(entry: _Entry, table: dict[tuple[Any, ...], _Entry] = _table) -> None:  # outlives the module's names at exit
    if table.get(entry.key) is entry:
        table.pop(entry.key, None)  # an equal node of another thread may have come and gone


class UOp:
    """One operation. Build through the constructor or the helpers; never mutate.

    `shape` is derived: tensor-graph nodes have the shape of the array they describe; kernel nodes have one axis for
    each VECTOR or UNROLL range they depend on; program nodes are scalars or vectors.
    """

    __slots__ = ("__dict__", "__weakref__", "arg", "created", "dtype", "op", "src")  # what is derived is in __dict__
    op: Ops
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    created: int  # nodes are counted as they are made: sources are older than their users
    _interned: ClassVar[dict[tuple[Any, ...], _Entry]] = _table

    def __new__(cls, op: Ops, dtype: DType = dtypes.void, src: tuple[UOp, ...] = (), arg: Any = None) -> UOp:
        key: tuple[Any, ...]
        if arg is None:
            key = (op, dtype, src)
        elif isinstance(arg, float):
            # constants that compare equal are different values: bool, int and float, the zeros, the NaNs
            key = (op, dtype, src, type(arg), struct.pack("<d", arg))
        else:
            key = (op, dtype, src, type(arg), arg)
        entry = _table.get(key)
        if entry is not None:
            found = entry()
            if found is not None:
                return found
        new = object.__new__(cls)
        new.op, new.dtype, new.src, new.arg, new.created = op, dtype, src, arg, next(_creations)
        entry = _table[key] = _Entry(new, _leave)
        entry.key = key
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        return (UOp, (self.op, self.dtype, self.src, self.arg))

    def __repr__(self) -> str:
        return f"<{self.op.name} {self.dtype.short}{'' if self.arg is None else f' {self.arg}'} of {len(self.src)}>"

    def replace(self, **changes: Any) -> UOp:
        """The node with some of op, dtype, src, arg changed."""
        get = changes.get
        return UOp(get("op", self.op), get("dtype", self.dtype), get("src", self.src), get("arg", self.arg))

    def with_sources(self, src: tuple[UOp, ...]) -> UOp:
        """The same operation on other sources."""
        return self if src == self.src else UOp(self.op, self.dtype, src, self.arg)

    # -- graph walks ------------------------------------------------------------------------------------------------
    def toposort(self) -> list[UOp]:
        """Every node reachable from this one, sources before users, each once."""
        if self.op is not Ops.SINK:
            return toposort([self])
        # many analyses walk over the same kernel; no node holds itself: it would never be freed at once
        below = self.__dict__.get("_below") or self.__dict__.setdefault("_below", toposort(self.src))
        return [*below, self]

    @graph_property
    def lanes(self) -> tuple[UOp, ...]:
        """The VECTOR, UNROLL, DOT and TILE ranges this node's value varies over, in order."""
        if self.op is Ops.RANGE and self.arg.kind in (AxisKind.VECTOR, AxisKind.UNROLL, AxisKind.DOT, AxisKind.TILE):
            return (self,)
        if self.op in NO_LANES or not self.src or isinstance(self.arg, tuple):
            return ()
        # memory does not count: only where it is read
        src = self.src if self.op is not Ops.LOAD or self.src[0].op is Ops.STAGE else self.src[1:]
        one: tuple[UOp, ...] = ()
        for s in src:
            if (lanes := s.lanes) and lanes != one:
                if one:
                    break
                one = lanes
        else:  # most nodes vary over what one of their sources varies over, or over nothing
            if not one or self.op not in (Ops.REDUCE, Ops.STAGE):
                return one
        found = {r for s in src for r in s.lanes}.difference(self.src[1:] if self.op in (Ops.REDUCE, Ops.STAGE) else ())
        return tuple(sorted(found, key=lambda r: (r.arg.order, r.arg.name)))

    @graph_property
    def ranges(self) -> frozenset[UOp]:
        """All RANGE nodes (of any kind) that are free in this node's value."""
        if self.op is Ops.RANGE:
            return frozenset({self}) | self.src[0].ranges
        found: frozenset[UOp] = frozenset()
        for s in self.src:
            more = s.ranges
            # most nodes vary over the same loops as one of their sources: they share its set
            if not more <= found:
                found = more if found <= more else found | more
        if self.op in (Ops.REDUCE, Ops.STAGE):
            found = found.difference(self.src[1:])
        elif self.op is Ops.END:
            found = found.difference(s for s in self.src if s.op is Ops.RANGE)
        return found

    @graph_property
    def shape(self) -> Shape:
        op = self.op
        if op in ELEMENTWISE and not self.lanes:
            shape = self.src[0].shape
            for s in self.src[1:]:
                if len(s.shape) > len(shape):
                    shape = s.shape
            return shape
        # most nodes of programs
        if op in (Ops.LANE, Ops.BIND, Ops.CONST):
            return ()
        if op is Ops.STACK:
            return (len(self.src),)
        if op is Ops.LOAD and isinstance(self.arg, int):
            return (self.arg,) if self.arg > 1 else ()
        if op in (Ops.RESHAPE, Ops.EXPAND):
            return tuple(self.arg)
        if op is Ops.PERMUTE:
            return tuple(self.src[0].shape[a] for a in self.arg)
        if op is Ops.PAD:
            return tuple(size_add(size_add(s, b), a) for s, (b, a) in zip(self.src[0].shape, self.arg, strict=True))
        if op is Ops.SHRINK:
            return tuple(size_sub(e, b) for b, e in self.arg)
        if op is Ops.IOTA:
            return (self.arg,)
        if op is Ops.TAKE:
            return self.src[1].shape + self.src[0].shape[self.arg + 1 :]
        if op is Ops.FETCH_ADD:
            return (*self.src[0].shape[:-1], size_add(self.src[0].shape[-1], self.src[1].shape[-1]))
        if op is Ops.ASSIGN:
            return self.buffer.shape
        if op is Ops.BUFFER:
            assert isinstance(self.arg, BufferArg)
            return (self.arg.size,)
        if op is Ops.PARAM:
            assert isinstance(self.arg, ParamArg)
            return (self.arg.size,)
        if op is Ops.REDUCE and isinstance(self.arg, tuple):
            return tuple(1 if i in self.arg[1] else s for i, s in enumerate(self.src[0].shape))
        if op in LIKE_THEIR_SOURCE:
            return self.src[0].shape
        if op is Ops.LOAD and isinstance(self.arg, MatrixArg | RowsArg | DescribedArg):
            return (self.arg.count,)
        if op is Ops.DOT:
            return self.src[-1].shape
        if self.lanes:
            return tuple(s if isinstance(s := r.src[0].arg, int) else r.src[0] for r in self.lanes)
        if op in (Ops.F16_TO_F32, Ops.F32_TO_F16, Ops.SUBGROUP):
            return self.src[0].shape
        return ()

    @property
    def buffer(self) -> UOp:
        """The BUFFER or PARAM behind a view, an ASSIGN or an AFTER."""
        u = self
        while u.op not in (Ops.BUFFER, Ops.PARAM):
            u = u.src[0]
        return u

    # -- bounds -----------------------------------------------------------------------------------------------------
    def _bounds(self) -> tuple[int, int]:
        """Inclusive minimum and maximum of an integer or bool node, by interval arithmetic."""
        from tinyweb.graph.ir.bounds import interval

        return interval(self)

    bounds: graph_property[tuple[int, int]] = graph_property(_bounds, through=_has_bounds)

    @graph_property
    def order_key(self) -> tuple[int, str, int, bytes]:
        """A total order of nodes, the same in every run: what varies with no loop first, then by the innermost loop,
        then by name, then simple before composed; a digest of the structure decides the rest."""
        digest = blake2b(_label(self.op, self.dtype), digest_size=8)
        digest.update(_order_text(self.arg).encode())
        depth, label, height = -1, "", 0
        for s in self.src:
            below = s.order_key
            digest.update(below[3])
            if below[0] > depth or (below[0] == depth and below[1] > label):
                depth, label = below[:2]
            height = max(height, below[2])
        if self.op is Ops.RANGE:
            depth, label = self.arg.order, self.arg.name
        elif self.op is Ops.VARIABLE:
            depth, label = -1, self.arg[0]
        return depth, label, 1 + height, digest.digest()

    @property
    def vmin(self) -> int:
        return self.bounds[0]

    @property
    def vmax(self) -> int:
        return self.bounds[1]

    # -- construction -----------------------------------------------------------------------------------------------
    @staticmethod
    def const(value: Any, dtype: DType) -> UOp:
        """A constant of `dtype`; the value is converted to that dtype's Python type: of integers, whole numbers are
        wrapped, and floats become the nearest that there is, NaN 0, as in a cast."""
        if dtype.is_int:
            if isinstance(value, float):
                value = max(dtype.min, min(dtype.max, value)) if value == value else 0
            value = int(value)
            if not dtype.min <= value <= dtype.max:
                value &= (1 << dtype.bits) - 1
                if dtype.is_signed and value >> (dtype.bits - 1):
                    value -= 1 << dtype.bits
        else:
            value = float(value) if dtype.is_float else bool(value)
        return UOp(Ops.CONST, dtype, (), value)

    def lift(self, value: Size | float | bool) -> UOp:
        """`value` as a node: a constant of this node's dtype, unless it is one already."""
        return value if isinstance(value, UOp) else UOp.const(value, self.dtype)

    def alu(self, op: Ops, *others: Size | float | bool) -> UOp:
        src = (self, *[o if isinstance(o, UOp) else UOp.const(o, self.dtype) for o in others])
        return UOp(op, dtypes.bool if op in COMPARISON else (src[1].dtype if op is Ops.WHERE else self.dtype), src)

    def __add__(self, o: Size | float) -> UOp:
        return self.alu(Ops.ADD, o)

    def __radd__(self, o: int | float) -> UOp:
        return self.lift(o).alu(Ops.ADD, self)

    def __mul__(self, o: Size | float) -> UOp:
        return self.alu(Ops.MUL, o)

    def __rmul__(self, o: int | float) -> UOp:
        return self.alu(Ops.MUL, o)

    def __neg__(self) -> UOp:
        return self.alu(Ops.MUL, -1) if self.dtype.is_int else self.alu(Ops.NEG)

    def __sub__(self, o: Size | float) -> UOp:
        return self.alu(Ops.ADD, -self.lift(o))

    def __rsub__(self, o: int | float) -> UOp:
        return self.lift(o) - self

    def __floordiv__(self, o: Size) -> UOp:
        return self.alu(Ops.FLOORDIV, o)

    def __mod__(self, o: Size) -> UOp:
        return self.alu(Ops.MOD, o)

    def __and__(self, o: UOp | int | bool) -> UOp:
        return self.alu(Ops.AND, o)

    def __or__(self, o: UOp | int | bool) -> UOp:
        return self.alu(Ops.OR, o)

    def __xor__(self, o: UOp | int | bool) -> UOp:
        return self.alu(Ops.XOR, o)

    def __lt__(self, o: Size | float) -> UOp:
        return self.alu(Ops.LESS, o)

    def __ge__(self, o: Size | float) -> UOp:
        return self.alu(Ops.LESS, o).logical_not()

    def __gt__(self, o: Size | float) -> UOp:
        return self.lift(o).alu(Ops.LESS, self)

    def __le__(self, o: Size | float) -> UOp:
        return self.lift(o).alu(Ops.LESS, self).logical_not()

    def equal(self, o: Size | float | bool) -> UOp:
        return self.alu(Ops.EQUAL, o)

    def logical_not(self) -> UOp:
        assert self.dtype is dtypes.bool
        return self.alu(Ops.XOR, True)

    def where(self, a: UOp, b: UOp) -> UOp:
        return UOp(Ops.WHERE, a.dtype, (self, a, b))

    def maximum(self, o: Size | float) -> UOp:
        return self.alu(Ops.MAX, o)

    def minimum(self, o: Size) -> UOp:
        """Of integers; there is no operation of its own."""
        return -((-self).maximum(-o))

    def cast(self, dtype: DType) -> UOp:
        return self if self.dtype is dtype else UOp(Ops.CAST, dtype, (self,))

    def bitcast(self, dtype: DType) -> UOp:
        return self if self.dtype is dtype else UOp(Ops.BITCAST, dtype, (self,))

    def load(self, index: UOp, gate: UOp | None = None) -> UOp:
        return UOp(Ops.LOAD, self.dtype, (self, index) if gate is None else (self, index, gate))

    def store(self, index: UOp, value: UOp, gate: UOp | None = None) -> UOp:
        return UOp(Ops.STORE, dtypes.void, (self, index, value) if gate is None else (self, index, value, gate))

    def after(self, *deps: UOp) -> UOp:
        return UOp(Ops.AFTER, self.dtype, (self, *deps)) if deps else self

    def sink(self, *others: UOp, arg: Any = None) -> UOp:
        return UOp(Ops.SINK, dtypes.void, (self, *others), arg)

    # -- variables ----------------------------------------------------------------------------------------------------
    def bind(self, value: int) -> UOp:
        """This VARIABLE with its value for the coming call; ValueError outside its bounds."""
        if self.op is not Ops.VARIABLE:
            raise TypeError("only a Variable can be bound to a value")
        name, low, high = self.arg
        if not low <= value <= high:
            raise ValueError(f"Variable {name} must be within [{low}, {high}], got {value}")
        return UOp(Ops.BIND, self.dtype, (self, UOp.const(value, self.dtype)))

    def variables(self) -> list[UOp]:
        """The VARIABLE nodes below this one, by name."""
        return sorted((u for u in self.toposort() if u.op is Ops.VARIABLE), key=lambda u: str(u.arg[0]))


def Variable(name: str, low: int, high: int) -> UOp:
    """A named integer, `low` ≤ value ≤ `high`, that may stand in any shape, index or loop bound.

    `Variable("start_pos", 0, 1023).bind(7)` gives it a value for one call; what was compiled serves every value.
    """
    if low > high:
        raise ValueError(f"Variable {name}: minimum {low} is above maximum {high}")
    return UOp(Ops.VARIABLE, dtypes.index, (), (name, low, high))


def toposort(roots: Iterable[UOp]) -> list[UOp]:
    """Every node reachable from `roots` (through src), sources first. Iterative: graphs are deeper than the stack."""
    done: dict[UOp, None] = {}
    above: list[tuple[UOp, Iterator[UOp]]] = []
    for u in roots:
        if u in done:
            continue
        rest = iter(u.src)
        while True:
            for s in rest:
                if s not in done:
                    if s.src:
                        above.append((u, rest))
                        u, rest = s, iter(s.src)
                        break
                    done[s] = None
            else:
                done[u] = None
                if not above:
                    break
                u, rest = above.pop()
    return list(done)


def users(roots: Iterable[UOp]) -> dict[UOp, list[UOp]]:
    """For each node below `roots` the nodes that have it as a source (each user once per distinct source)."""
    out: dict[UOp, list[UOp]] = {}
    for u in toposort(roots):
        out[u] = []
        for s in u.src if len(u.src) < 2 else dict.fromkeys(u.src):
            out[s].append(u)
    return out


# -- sizes: numbers where possible, expressions where not -------------------------------------------------------------
def as_index(s: Size) -> UOp:
    """A size as a node of dtype index."""
    return s if isinstance(s, UOp) else UOp.const(s, dtypes.index)


def _size(u: UOp) -> Size:
    """Fold what is constant, and drop the bindings: shapes speak of the variable, not of its value."""
    from tinyweb.graph.ir.bounds import fold_size

    return fold_size(u)


def size_add(a: Size, b: Size) -> Size:
    return a + b if isinstance(a, int) and isinstance(b, int) else _size(as_index(a) + b)


def size_sub(a: Size, b: Size) -> Size:
    return a - b if isinstance(a, int) and isinstance(b, int) else _size(as_index(a) - b)


def size_mul(a: Size, b: Size) -> Size:
    return a * b if isinstance(a, int) and isinstance(b, int) else _size(as_index(a) * b)


def size_div(a: Size, d: int) -> Size:
    """a / d, rounded down, for a number d above 0."""
    return a // d if isinstance(a, int) else _size(a // d)


def larger_size(a: Size, b: Size) -> Size:
    """The larger one of two sizes."""
    low, high = _bounds(size_sub(a, b))
    return a if low >= 0 else b if high <= 0 else _size(as_index(a).maximum(b))


def smaller_size(a: Size, b: Size) -> Size:
    """The smaller one of two sizes."""
    low, high = _bounds(size_sub(a, b))
    return a if high <= 0 else b if low >= 0 else _size(as_index(a).minimum(as_index(b)))


def _bounds(s: Size) -> tuple[int, int]:
    from tinyweb.graph.ir.bounds import size_bounds

    return (s, s) if isinstance(s, int) else size_bounds(s)


def size_prod(sizes: Iterable[Size]) -> Size:
    """Product of sizes; 1 for none."""
    number, rest = 1, None
    for s in sizes:
        if isinstance(s, int):
            number *= s
        else:
            rest = s if rest is None else rest * s
    return number if rest is None else size_mul(rest, number)


def numel_max(shape: Iterable[Size]) -> int:
    """The elements of memory that holds a shape: each size at its largest."""
    return prod(map(size_max, shape))


def size_max(s: Size) -> int:
    """The largest value a size can take."""
    return s if isinstance(s, int) else s.vmax
