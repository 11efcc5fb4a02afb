"""What the tensor graph may contain."""

from __future__ import annotations

from tinyweb.dtype import dtypes
from tinyweb.graph.ir.invariants import (
    Spec,
    alike,
    common,
    is_axes,
    is_count,
    maybe_at_most,
    needs,
    no_void_sources,
    same_sizes,
)
from tinyweb.graph.ir.ops import (
    ELEMENTWISE,
    BufferArg,
    CopyArg,
    Ops,
    Ordered,
    Space,
)
from tinyweb.graph.ir.uop import UOp, size_prod


def reshape_keeps_count(u: UOp) -> bool:
    a, b = size_prod(u.arg), size_prod(u.src[0].shape)
    return all(is_count(s) for s in u.arg) and (a is b or a == b)


def expands(u: UOp) -> bool:
    old = u.src[0].shape
    return len(old) == len(u.arg) and all(a is b or a == b or (a == 1 and is_count(b)) for a, b in zip(old, u.arg))


def pads(u: UOp) -> bool:
    return len(u.arg) == len(u.src[0].shape) and all(is_count(b) and is_count(a) for b, a in u.arg)


def shrinks(u: UOp) -> bool:
    old = u.src[0].shape
    return len(u.arg) == len(old) and all(
        is_count(b) and maybe_at_most(b, e) and maybe_at_most(e, s) for (b, e), s in zip(u.arg, old)
    )


def is_buffer_view(u: UOp) -> bool:
    views = (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.SHRINK, Ops.FLIP, Ops.PAD)
    if u.op is Ops.TAKE:
        u = u.src[0]
    while u.op in views:
        u = u.src[0]
    return u.op in (Ops.BUFFER, Ops.ASSIGN)  # an ASSIGN is a version of one


def scans(u: UOp) -> bool:
    op, axis = u.arg
    count = {Ops.ADD: 1, Ops.MUL: 1, Ops.MAX: 1, Ops.MULADD: 2}.get(op)
    return len(u.src) == count and alike(u) and all(
        same_sizes(s.shape, u.shape) for s in u.src
    ) and 0 <= axis < len(u.shape)  # fmt: skip


def scatters(u: UOp) -> bool:
    if len(u.src) != 3 or not u.src[1].dtype.is_int or u.src[0].dtype is not u.dtype or u.src[2].dtype is not u.dtype:
        return False
    (x, index, values), (k, op, *distinct) = (s.shape for s in u.src), u.arg
    return (
        distinct in ([], [True])
        and op in (None, Ops.ADD, Ops.MUL, Ops.MAX)
        and 0 <= k < len(x)
        and len(index) == k + 1
        and same_sizes(x[:k], index[:k])
        and same_sizes((*index, *x[k + 1 :]), values)
    )


def fetch_adds(u: UOp) -> bool:
    return scatters(UOp(Ops.SCATTER, u.dtype, u.src, (u.arg, Ops.ADD))) and len(u.src[0].shape) == u.arg + 1


def elementwise_shapes(u: UOp) -> bool:
    """Equal shapes; a scalar goes with anything."""
    shapes = [s.shape for s in u.src if s.shape]
    return all(same_sizes(s, shapes[0]) for s in shapes)


NO_MULADD = needs(Ops.MULADD, "MULADD is made by lowering: until then there are MUL and ADD", lambda u: False)
ONE_VIEW = (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP, Ops.CONTIGUOUS)

tensor_spec = Spec(
    "tensor_spec",
    (
        *common,
        NO_MULADD,
        needs(ELEMENTWISE, "the shapes of the sources are equal (scalars go with any shape)", elementwise_shapes),
        needs(Ops.BUFFER, "a BUFFER has a BufferArg in device or host memory, and no sources unless it is a part",
            lambda u: isinstance(u.arg, BufferArg) and u.arg.size >= 0
            and (not u.src if u.arg.part is None else len(u.src) == 1 and u.src[0].arg.spread is not None)
            and u.arg.space in (Space.DEVICE, Space.HOST) and u.dtype is not dtypes.void),
        needs(ONE_VIEW, "movement has one source, of its own dtype",
            lambda u: len(u.src) == 1 and alike(u) and no_void_sources(u)),
        needs(Ops.RESHAPE, "RESHAPE keeps the number of elements", reshape_keeps_count),
        needs(Ops.PERMUTE, "PERMUTE names every axis once",
            lambda u: is_axes(u.arg, len(u.src[0].shape)) and len(u.arg) == len(u.src[0].shape)),
        needs(Ops.EXPAND, "EXPAND keeps the rank and changes only axes of size 1", expands),
        needs(Ops.PAD, "PAD has (before, after) ≥ 0 for every axis", pads),
        needs(Ops.SHRINK, "SHRINK has (begin, end) for every axis with 0 ≤ begin ≤ end ≤ size", shrinks),
        needs(Ops.FLIP, "FLIP names axes that exist, each once", lambda u: is_axes(u.arg, len(u.src[0].shape))),
        needs(Ops.CONTIGUOUS, "CONTIGUOUS has no arg", lambda u: u.arg is None),
        needs(Ops.IOTA, "IOTA has no sources, a size and an integer dtype",
            lambda u: not u.src and is_count(u.arg) and u.dtype.is_int),
        needs(Ops.TAKE,
            "TAKE has (values of its dtype, integer indices) that share the first arg axes, and an axis to pick along",
            lambda u: len(u.src) == 2 and u.src[0].dtype is u.dtype and u.src[1].dtype.is_int and isinstance(u.arg, int)
            and 0 <= u.arg < len(u.src[0].shape) and same_sizes(u.src[0].shape[: u.arg], u.src[1].shape[: u.arg])),
        needs(Ops.SCAN, "SCAN has sources of one shape (two for MULADD, else one) and arg (operation, an axis)", scans),
        needs(Ops.SCATTER,
            "SCATTER has (x, integer indices, values) that share the first arg[0] axes, and values for every index",
            scatters),
        needs(Ops.FETCH_ADD, "FETCH_ADD has the sources of a SCATTER along the last axis", fetch_adds),
        needs(Ops.LEAF, "LEAF has one source of its dtype and an id",
            lambda u: len(u.src) == 1 and alike(u) and isinstance(u.arg, int)),
        needs(Ops.DETACH, "DETACH has one source of its dtype and no arg",
            lambda u: len(u.src) == 1 and alike(u) and u.arg is None),
        needs(Ops.CUSTOM_GRADIENT,
            "CUSTOM_GRADIENT has a value, a LEAF like it, and pairs of an input and its gradient; or inputs, and as "
            "its arg what makes their gradients",
            lambda u: (u.src[0].dtype is u.dtype and same_sizes(u.src[0].shape, u.shape)) if callable(u.arg) else
            len(u.src) >= 2 and len(u.src) % 2 == 0 and u.src[1].op is Ops.LEAF and u.arg is None
            and all(s.dtype is u.dtype and same_sizes(s.shape, u.shape) for s in u.src[:2])
            and all(x.dtype is g.dtype and same_sizes(x.shape, g.shape)
                    for x, g in zip(u.src[2::2], u.src[3::2], strict=True))),
        needs(Ops.ASSIGN, "ASSIGN writes a value into a view of a BUFFER of the same dtype and shape, and what "
            "was there before, step by step, into another",
            lambda u: alike(u) and is_buffer_view(u.src[0]) and all(same_sizes(u.src[0].shape, s.shape) for s in u.src)
            and (len(u.src) == 2 or (len(u.src) == 3 and u.src[0].op is Ops.TAKE and isinstance(u.arg, Ordered)
                                     and u.src[2].buffer is u.buffer))),
        needs(Ops.COPY, "COPY has one source of its dtype and a CopyArg, with an axis only for several devices",
            lambda u: len(u.src) == 1 and alike(u) and isinstance(u.arg, CopyArg)
            and (u.arg.axis is None or (len(u.arg.target) > 1 and 0 <= u.arg.axis < len(u.src[0].shape)))),
        needs(Ops.BIND, "BIND has a VARIABLE and a CONST within its bounds",
            lambda u: len(u.src) == 2 and u.src[0].op is Ops.VARIABLE and u.src[1].op is Ops.CONST
            and u.src[0].vmin <= u.src[1].arg <= u.src[0].vmax),
        needs(Ops.REDUCE, "REDUCE has one source of its dtype and arg (ADD, MUL or MAX, axes that exist)",
            lambda u: len(u.src) == 1 and alike(u) and u.arg[0] in (Ops.ADD, Ops.MUL, Ops.MAX)
            and is_axes(u.arg[1], len(u.src[0].shape))),
        needs(Ops.SINK, "a SINK has no value", lambda u: u.dtype is dtypes.void),
    ),
)  # fmt: skip
