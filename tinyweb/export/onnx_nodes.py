"""A tensor graph as nodes of ONNX's default domain, opset 18."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, dtypes
from tinyweb.export.onnx_products import Convolution, Product, below_reshapes, convolution_of, product_of
from tinyweb.formats.onnx.encode import attribute, number_of, tensor
from tinyweb.formats.onnx.messages import NodeMessage, TensorMessage
from tinyweb.graph.ir import Ops, UOp, in_order

OPSET = 18
PASSED = (Ops.LEAF, Ops.DETACH, Ops.CONTIGUOUS, Ops.CUSTOM_GRADIENT)  # their first source, here
NAMES = {
    Ops.NEG: "Neg", Ops.RECIPROCAL: "Reciprocal", Ops.SQRT: "Sqrt", Ops.EXP: "Exp", Ops.LOG: "Log", Ops.SIN: "Sin",
    Ops.COS: "Cos", Ops.TAN: "Tan", Ops.ASIN: "Asin", Ops.ACOS: "Acos", Ops.ATAN: "Atan", Ops.SINH: "Sinh",
    Ops.COSH: "Cosh", Ops.TANH: "Tanh", Ops.ASINH: "Asinh", Ops.ACOSH: "Acosh", Ops.ATANH: "Atanh", Ops.ERF: "Erf",
    Ops.FLOOR: "Floor", Ops.ROUND: "Round", Ops.ADD: "Add", Ops.MUL: "Mul", Ops.DIV: "Div", Ops.POW: "Pow",
    Ops.MOD: "Mod", Ops.MAX: "Max", Ops.LESS: "Less", Ops.EQUAL: "Equal", Ops.WHERE: "Where",
}  # fmt: skip
BITS = {Ops.AND: "And", Ops.OR: "Or", Ops.XOR: "Xor"}
OF_BOOLS = {Ops.ADD: "Or", Ops.MAX: "Or", Ops.MUL: "And"}
REDUCES = {Ops.ADD: "ReduceSum", Ops.MUL: "ReduceProd", Ops.MAX: "ReduceMax"}
# integers that runtimes have no arithmetic of, and those that their numbers fit into: a cast back wraps as they do
WIDER: dict[DType, DType] = {
    dtypes.int8: dtypes.int32, dtypes.int16: dtypes.int32, dtypes.uint8: dtypes.int32, dtypes.uint16: dtypes.int32,
    dtypes.uint32: dtypes.int64, dtypes.uint64: dtypes.int64, dtypes.bool: dtypes.int32,
}  # fmt: skip
Attributes: TypeAlias = "int | str | Sequence[int]"
Emit: TypeAlias = "Callable[[Nodes, UOp], str]"


class Nodes:
    """Nodes in order, and constants. `names`: the values that are there, by node; inputs stand in it first.

    `read`: the bytes of a BUFFER that is no input.
    """

    def __init__(self, names: Mapping[UOp, str], read: Callable[[UOp], tuple[str, bytes]]):
        self.names, self.read = dict(names), read
        self.taken = set(self.names.values())
        self.nodes: list[NodeMessage] = []
        self.constants: dict[tuple[Any, ...], TensorMessage] = {}

    def name(self, wanted: str) -> str:
        found, n = wanted, 2
        while found in self.taken:
            found, n = f"{wanted}_{n}", n + 1
        self.taken.add(found)
        return found

    def add(self, op: str, *inputs: str, output: str = "", **attributes: Attributes) -> str:
        """A node with one output, which has the name `output`, or one of its own."""
        out = output or self.name(f"{op.lower()}{len(self.nodes)}")
        given = [attribute(n, v) for n, v in attributes.items()]
        self.nodes.append(NodeMessage(list(inputs), [out], op=op, attributes=given))
        return out

    def constant(self, value: npt.ArrayLike, dtype: DType) -> str:
        """The name of an initializer."""
        array = np.ascontiguousarray(np.asarray(value, dtype.numpy)).reshape(np.shape(value))
        key = (dtype, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = tensor(self.name(f"constant{len(self.constants)}"), array.shape, dtype, key[2])
        return self.constants[key].name

    def sizes(self, shape: Sequence[Any]) -> str:
        return self.constant(fixed(shape), dtypes.int64)

    def cast(self, value: str, dtype: DType) -> str:
        return self.add("Cast", value, to=number_of(dtype))

    def reshape(self, value: str, shape: Sequence[Any], before: Sequence[Any] | None = None) -> str:
        """A value, of a shape `before`, in another one."""
        if before is not None and fixed(before) == fixed(shape):
            return value
        return self.add("Reshape", value, self.sizes(shape), allowzero=1)

    def of(self, root: UOp) -> str:
        """The name of a node's value, after all nodes that it needs."""
        if root not in self.names:
            for u in needed(root, self.names):
                if u not in self.names:
                    self.names[u] = self.emit(u)
        return self.names[root]

    def emit(self, u: UOp) -> str:
        if u.op in PASSED:
            return self.of(u.src[0])
        if (emit := EMIT.get(u.op)) is None:
            raise NotImplementedError(f"ONNX has no operator for {u.op.name} of {u.dtype.name}: it cannot be written")
        return emit(self, u)

    def operands(self, u: UOp) -> list[str]:
        """The sources of elementwise work, which broadcasts them itself where one has the whole shape."""
        whole = any(s.op is not Ops.EXPAND for s in u.src)
        kept = u.src[0] if not whole else None
        return [self.of(s.src[0] if s.op is Ops.EXPAND and s is not kept else s) for s in u.src]


def needed(root: UOp, known: Mapping[UOp, str]) -> list[UOp]:
    """The nodes below one that are to be written before it: what a product or a convolution is made of is not."""
    return in_order([root] if root not in known else [], lambda u: [s for s in sources(u) if s not in known])


def sources(u: UOp) -> Sequence[UOp]:
    if u.op in PASSED:
        return u.src[:1]
    if u.op is Ops.REDUCE and (found := convolution_of(u) or product_of(u)) is not None:
        return found.sources
    return (below_reshapes(u),) if u.op is Ops.RESHAPE else u.src


def fixed(shape: Sequence[Any]) -> list[int]:
    if not all(isinstance(n, int) for n in shape):
        raise NotImplementedError(f"a value has the shape {tuple(shape)}: only fixed shapes are written as ONNX yet")
    return [int(n) for n in shape]


# -- leaves and movement -----------------------------------------------------------------------------------------------
def _memory(n: Nodes, u: UOp) -> str:
    name, raw = n.read(u)
    key = (u,)
    n.constants[key] = tensor(n.name(name), (int(u.arg.size),), u.dtype, raw)
    return n.constants[key].name


def _constant(n: Nodes, u: UOp) -> str:
    return n.constant(u.arg, u.dtype)


def _iota(n: Nodes, u: UOp) -> str:
    return n.constant(np.arange(fixed(u.shape)[0]), u.dtype)


def _reshape(n: Nodes, u: UOp) -> str:
    below = below_reshapes(u)
    return n.reshape(n.of(below), u.shape, below.shape)


def _permute(n: Nodes, u: UOp) -> str:
    return n.add("Transpose", n.of(u.src[0]), perm=u.arg)


def _expand(n: Nodes, u: UOp) -> str:
    return n.add("Expand", n.of(u.src[0]), n.sizes(u.shape))


def _pad(n: Nodes, u: UOp) -> str:
    around = n.sizes([before for before, _ in u.arg] + [after for _, after in u.arg])
    if u.dtype is not dtypes.bool:
        return n.add("Pad", n.of(u.src[0]), around)
    return n.cast(n.add("Pad", n.cast(n.of(u.src[0]), dtypes.int32), around), dtypes.bool)


def _shrink(n: Nodes, u: UOp) -> str:
    return n.add("Slice", n.of(u.src[0]), n.sizes([a for a, _ in u.arg]), n.sizes([b for _, b in u.arg]))


def _flip(n: Nodes, u: UOp) -> str:
    ends, count = np.iinfo(np.int64).min, len(u.arg)
    begin, end, step = ([v] * count for v in (-1, ends, -1))
    return n.add("Slice", n.of(u.src[0]), n.sizes(begin), n.sizes(end), n.sizes(u.arg), n.sizes(step))


# -- elementwise -------------------------------------------------------------------------------------------------------
def _named(n: Nodes, u: UOp) -> str:
    """Arithmetic, in a wider type where runtimes have none of this one."""
    kind, given = u.src[-1].dtype, n.operands(u)
    if kind is dtypes.bool and u.op in OF_BOOLS:
        return n.add(OF_BOOLS[u.op], *given)
    wide = WIDER.get(kind) if u.op not in (Ops.WHERE, Ops.EQUAL) or kind is not dtypes.bool else None
    if wide is None or (u.op is Ops.WHERE and kind is dtypes.uint8):
        return n.add(NAMES[u.op], *given)
    wider = [v if s.dtype is dtypes.bool and u.op is Ops.WHERE else n.cast(v, wide) for v, s in zip(given, u.src)]
    found = n.add(NAMES[u.op], *wider)
    return found if u.dtype is dtypes.bool else n.cast(found, u.dtype)


def _bits(n: Nodes, u: UOp) -> str:
    return n.add(BITS[u.op] if u.dtype is dtypes.bool else f"Bitwise{BITS[u.op]}", *n.operands(u))


def _cast(n: Nodes, u: UOp) -> str:
    return n.cast(n.of(u.src[0]), u.dtype)


def _bitcast(n: Nodes, u: UOp) -> str:
    if u.src[0].dtype is not u.dtype:
        raise NotImplementedError(f"ONNX has no operator for the bits of {u.src[0].dtype.name} as {u.dtype.name}")
    return n.of(u.src[0])


def _trunc(n: Nodes, u: UOp) -> str:
    x = n.of(u.src[0])
    return n.add("Where", n.add("Less", x, n.constant(0, u.dtype)), n.add("Ceil", x), n.add("Floor", x))


def _floordiv(n: Nodes, u: UOp) -> str:
    """(a - a mod b) / b, which leaves nothing to round."""
    kind = WIDER.get(u.dtype, u.dtype)
    a, b = (n.cast(v, kind) if kind is not u.dtype else v for v in n.operands(u))
    found = n.add("Div", n.add("Sub", a, n.add("Mod", a, b)), b)
    return found if kind is u.dtype else n.cast(found, u.dtype)


def _shift(n: Nodes, u: UOp) -> str:
    signed = not u.dtype.name.startswith("u")
    if signed and u.op is Ops.SHR:
        raise NotImplementedError("ONNX has no operator for an arithmetic shift to the right")
    kind = {32: dtypes.uint32, 64: dtypes.uint64}.get(u.dtype.bits, dtypes.uint32) if signed else u.dtype
    given = [n.cast(v, kind) if signed else v for v in n.operands(u)]
    found = n.add("BitShift", *given, direction="LEFT" if u.op is Ops.SHL else "RIGHT")
    return n.cast(found, u.dtype) if signed else found


def _scaled(op: str, before: float | None, after: float | None) -> Emit:
    """A function of a number times its argument, times another."""

    def emit(n: Nodes, u: UOp) -> str:
        x = n.of(u.src[0])
        y = n.add(op, x if before is None else n.add("Mul", x, n.constant(before, u.dtype)))
        return y if after is None else n.add("Mul", y, n.constant(after, u.dtype))

    return emit


def _expm1(n: Nodes, u: UOp) -> str:
    """2 · sinh(x / 2) · exp(x / 2), which is exact near 0."""
    half = n.add("Mul", n.of(u.src[0]), n.constant(0.5, u.dtype))
    return n.add("Mul", n.add("Mul", n.add("Sinh", half), n.constant(2, u.dtype)), n.add("Exp", half))


def _log1p(n: Nodes, u: UOp) -> str:
    return n.add("Log", n.add("Add", n.of(u.src[0]), n.constant(1, u.dtype)))


def _erfc(n: Nodes, u: UOp) -> str:
    return n.add("Sub", n.constant(1, u.dtype), n.add("Erf", n.of(u.src[0])))


# -- reductions, scans, indices ----------------------------------------------------------------------------------------
def _reduce(n: Nodes, u: UOp) -> str:
    found = convolution_of(u) or product_of(u)
    if isinstance(found, Convolution):
        return _convolution(n, u, found)
    if isinstance(found, Product):
        return _product(n, u, found)
    op, axes = u.arg
    axes = [a for a in axes if u.src[0].shape[a] != 1]
    if not axes:
        return n.of(u.src[0])
    x, wide = n.of(u.src[0]), WIDER.get(u.dtype)
    found_at = n.add(REDUCES[op], n.cast(x, wide) if wide else x, n.sizes(axes), keepdims=1)
    return n.cast(found_at, u.dtype) if wide else found_at


def _convolution(n: Nodes, u: UOp, c: Convolution) -> str:
    given = n.of(c.x)
    weight = n.reshape(n.of(c.weight), c.weight_shape, c.weight.shape)
    made = n.add("Conv", given, weight, strides=c.steps, dilations=c.apart, pads=c.pads, group=c.groups)
    return n.reshape(made, u.shape)


def _product(n: Nodes, u: UOp, p: Product) -> str:
    """A product of matrices: (batch, rows, inner) and (batch, inner, columns)."""
    sizes = u.src[0].shape
    rows, columns = (_matrix(n, s, axes, groups, sizes) for s, axes, groups in p.operands())
    made = n.add("MatMul", rows, columns)
    out = [*p.batch, *p.rows, *p.columns]
    each = [sizes[a] for a in out]
    apart = n.reshape(made, each, _grouped(sizes, [*([a] for a in p.batch), p.rows, p.columns]))
    order = sorted(range(len(out)), key=out.__getitem__)
    turned = n.add("Transpose", apart, perm=order) if order != sorted(order) else apart
    return n.reshape(turned, u.shape, [each[i] for i in order])


def _matrix(n: Nodes, s: UOp, axes: Sequence[int], groups: Sequence[Sequence[int]], sizes: Sequence[Any]) -> str:
    """An operand that varies along `axes`, in the order of `groups`, of which each becomes one axis."""
    each = [sizes[a] for a in axes]
    order = [axes.index(a) for g in groups for a in g]
    if order == sorted(order):
        return n.reshape(n.of(s), _grouped(sizes, groups), s.shape)
    turned = n.add("Transpose", n.reshape(n.of(s), each, s.shape), perm=order)
    return n.reshape(turned, _grouped(sizes, groups), [each[i] for i in order])


def _grouped(sizes: Sequence[Any], groups: Sequence[Sequence[int]]) -> list[int]:
    return [math.prod(sizes[a] for a in g) for g in groups]


def _scan(n: Nodes, u: UOp) -> str:
    op, axis = u.arg
    if op is not Ops.ADD:
        raise NotImplementedError(f"ONNX has no operator for a scan of {op.name}")
    wide, x = WIDER.get(u.dtype), n.of(u.src[0])
    found = n.add("CumSum", n.cast(x, wide) if wide else x, n.constant(axis, dtypes.int64))
    return n.cast(found, u.dtype) if wide else found


def _take(n: Nodes, u: UOp) -> str:
    """What lies outside of the axis is 0."""
    x, indices, shared = u.src[0], u.src[1], u.arg
    count = fixed(x.shape)[shared]
    at = n.cast(n.of(indices), dtypes.int64)
    inside = _inside(n, at, count)
    where = n.add("Where", inside, at, n.constant(0, dtypes.int64))
    value, boolean = n.of(x), u.dtype is dtypes.bool
    value = n.cast(value, dtypes.int32) if boolean else value
    if shared:
        picked = n.add("GatherND", value, n.reshape(where, [*indices.shape, 1]), batch_dims=shared)
    else:
        picked = n.add("Gather", value, where, axis=0)
    whole = n.reshape(inside, [*indices.shape, *[1] * (len(u.shape) - len(indices.shape))])
    found = n.add("Where", whole, picked, n.constant(0, dtypes.int32 if boolean else u.dtype))
    return n.cast(found, u.dtype) if boolean else found


def _inside(n: Nodes, at: str, count: int) -> str:
    below = n.add("Less", at, n.constant(count, dtypes.int64))
    return n.add("And", below, n.add("Less", n.constant(-1, dtypes.int64), at))


def _scatter(n: Nodes, u: UOp) -> str:
    """Into one place more than there are, for what lies outside of the axis."""
    (x, indices, values), (shared, op, *_) = u.src, u.arg
    shape, of = fixed(x.shape), fixed(indices.shape)
    at = n.cast(n.of(indices), dtypes.int64)
    where = n.reshape(n.add("Where", _inside(n, at, shape[shared]), at, n.sizes([shape[shared]])), [*of, 1])
    first = [np.broadcast_to(np.arange(of[k]).reshape([-1 if i == k else 1 for i in range(len(of))]), of)
             for k in range(shared)]  # fmt: skip
    if first:
        where = n.add("Concat", n.constant(np.stack(first, -1), dtypes.int64), where, axis=len(of))
    around = [0] * len(shape) + [int(i == shared) for i in range(len(shape))]
    larger = n.add("Pad", n.of(x), n.sizes(around))
    how = {} if op is None else {"reduction": {Ops.ADD: "add", Ops.MUL: "mul", Ops.MAX: "max"}[op]}
    made = n.add("ScatterND", larger, where, n.of(values), **how)
    return n.add("Slice", made, n.sizes([0]), n.sizes([shape[shared]]), n.sizes([shared]))


LN2, LOG2E, LOG10E = math.log(2), 1 / math.log(2), 1 / math.log(10)
EMIT: dict[Ops, Emit] = {
    **{op: _named for op in NAMES}, **{op: _bits for op in BITS},
    Ops.BUFFER: _memory, Ops.CONST: _constant, Ops.IOTA: _iota, Ops.RESHAPE: _reshape, Ops.PERMUTE: _permute,
    Ops.EXPAND: _expand, Ops.PAD: _pad, Ops.SHRINK: _shrink, Ops.FLIP: _flip, Ops.CAST: _cast, Ops.BITCAST: _bitcast,
    Ops.TRUNC: _trunc, Ops.FLOORDIV: _floordiv, Ops.SHL: _shift, Ops.SHR: _shift, Ops.EXPM1: _expm1,
    Ops.LOG1P: _log1p, Ops.ERFC: _erfc, Ops.EXP2: _scaled("Exp", LN2, None), Ops.LOG2: _scaled("Log", None, LOG2E),
    Ops.LOG10: _scaled("Log", None, LOG10E), Ops.REDUCE: _reduce, Ops.SCAN: _scan, Ops.TAKE: _take,
    Ops.SCATTER: _scatter, Ops.FMOD: lambda n, u: n.add("Mod", *n.operands(u), fmod=1),
}  # fmt: skip
