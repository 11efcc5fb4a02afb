"""What a kernel may contain, before and after it is scheduled."""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.dtype import dtypes
from tinyweb.graph.ir.invariants import (
    Node,
    Spec,
    alike,
    common,
    needs,
    size_expression,
)
from tinyweb.graph.ir.ops import (
    ELEMENTWISE,
    Axis,
    AxisKind,
    KernelInfo,
    Ops,
    ParamArg,
    Space,
    StageArg,
)
from tinyweb.graph.ir.tensor_spec import NO_MULADD
from tinyweb.graph.ir.uop import UOp


def is_range(u: UOp) -> bool:
    return u.dtype is dtypes.index and len(u.src) == 1 and isinstance(u.arg, Axis) and size_expression(u.src[0])


def lanes_are_constant(u: UOp) -> bool:
    return u.arg.kind in (AxisKind.LOOP, AxisKind.ORDERED, AxisKind.GRID) or u.src[0].op is Ops.CONST


def bound_ranges(u: UOp) -> bool:
    bound = u.src[1:]
    return bool(bound) and len(set(bound)) == len(bound) and all(r.op is Ops.RANGE and r.arg.reduce for r in bound)


def index_and_gate(at: int) -> Node:
    """Source 1 is an index; source `at`, where there is one, a bool."""
    return lambda u: (
        u.src[1].dtype is dtypes.index
        and (len(u.src) <= at or u.src[at].dtype is dtypes.bool)
        and len(u.src) in (at, at + 1)
    )


def unique_range_names(nodes: Sequence[UOp]) -> tuple[UOp, str] | None:
    seen: dict[str, UOp] = {}
    for u in nodes:
        if u.op is Ops.RANGE and seen.setdefault(u.arg.name, u) is not u:
            return u, f"two different ranges are called {u.arg.name}"
    return None


def unique_variable_names(nodes: Sequence[UOp]) -> tuple[UOp, str] | None:
    seen: dict[str, UOp] = {}
    for u in nodes:
        if u.op is Ops.VARIABLE and seen.setdefault(u.arg[0], u) is not u:
            return u, f"two variables called {u.arg[0]} have different bounds"
    return None


def contiguous_slots(nodes: Sequence[UOp]) -> tuple[UOp, str] | None:
    params = sorted((u for u in nodes if u.op is Ops.PARAM), key=lambda u: u.arg.slot)
    for i, u in enumerate(params):
        if u.arg.slot != i:
            return u, f"PARAM slots are 0 … n−1, each one node: slot {i} is missing or slot {u.arg.slot} is taken twice"
    return None


def stored_first(nodes: Sequence[UOp]) -> tuple[UOp, str] | None:
    stored = {u.src[0] for u in nodes if u.op is Ops.STORE}
    for u in nodes:
        if u.op is Ops.PARAM and u not in stored and any(s.arg.slot > u.arg.slot for s in stored):
            return u, "the PARAMs that are stored to come first"
    return None


def loads_where_it_stores(nodes: Sequence[UOp]) -> tuple[UOp, str] | None:
    stores: dict[UOp, set[UOp]] = {}
    for u in nodes:
        if u.op is Ops.STORE:
            stores.setdefault(u.src[0], set()).add(u.src[1])
    if any(u.op is Ops.RANGE and u.arg.kind is AxisKind.ORDERED for u in nodes):
        return None
    for u in nodes:
        if u.op is Ops.LOAD and u.src[0] in stores and u.src[1] not in stores[u.src[0]]:
            return (
                u,
                "a kernel loads a PARAM it also stores only at the very index it stores, unless steps are ordered",
            )
    return None


def rescales_in_step(u: UOp) -> bool:
    """No source is a RESCALE, or it is what a sum over one loop (and threads) adds up."""
    if not any(s.op is Ops.RESCALE for s in u.src):
        return True
    return (
        u.op is Ops.REDUCE
        and u.arg is Ops.ADD
        and [r.arg.kind for r in u.src[1:] if r.arg.kind is not AxisKind.THREAD] == [AxisKind.LOOP]
    )


def laid_out(u: UOp) -> bool:
    """Whether a STAGE is in DEVICE memory and made of frozen parameters alone, the same in all steps of all loops."""
    frozen = all(x.arg.frozen for x in u.toposort() if x.op is Ops.PARAM)
    return u.arg.space is Space.DEVICE and frozen and not u.ranges


def one_sink(nodes: Sequence[UOp]) -> tuple[UOp, str] | None:
    sinks = [u for u in nodes if u.op is Ops.SINK]
    return None if len(sinks) == 1 and nodes[-1] is sinks[0] else (nodes[-1], "a kernel has one root, a SINK of STOREs")


MAY_USE_VALUES = (*ELEMENTWISE, Ops.LOAD, Ops.STORE, Ops.REDUCE, Ops.STAGE, Ops.RUNNING, Ops.RESCALE, Ops.SINK)
A_PARAM = needs(
    Ops.PARAM, "a PARAM has no sources, a dtype and a ParamArg with slot and size ≥ 0",
    lambda u: not u.src and isinstance(u.arg, ParamArg) and u.arg.slot >= 0 and u.arg.size >= 0
    and u.dtype is not dtypes.void,
)  # fmt: skip

kernel_spec = Spec(
    "kernel_spec",
    (
        *common,
        NO_MULADD,
        A_PARAM,
        needs(Ops.RANGE, "a RANGE is of dtype index, has an Axis and a size made of CONST, VARIABLE and other RANGEs",
            is_range),
        needs(Ops.RANGE, "lanes and threads have a constant size", lanes_are_constant),
        needs(Ops.RANGE, "hardware dimensions are 0, 1 and 2, of threads also 3",
            lambda u: 0 <= u.arg.dim < (4 if u.arg.kind is AxisKind.THREAD else 3)),
        needs(Ops.RANGE, "a range over the grid is not reduced",
            lambda u: not (u.arg.reduce and u.arg.kind is AxisKind.GRID)),
        needs(Ops.RANGE, "only output ranges are ordered",
            lambda u: not (u.arg.reduce and u.arg.kind is AxisKind.ORDERED)),
        needs(Ops.LOAD, "LOAD has (PARAM or STAGE, index[, bool gate]); no floats as index", index_and_gate(2)),
        needs(Ops.LOAD, "LOAD reads a PARAM or a STAGE of its dtype, and has no arg",
            lambda u: u.src[0].op in (Ops.PARAM, Ops.STAGE) and u.src[0].dtype is u.dtype and u.arg is None),
        needs(Ops.STORE, "STORE has (PARAM, index, value[, bool gate]); no floats as index", index_and_gate(3)),
        needs(Ops.STORE, "STORE writes a value of the PARAM's dtype",
            lambda u: u.src[0].op is Ops.PARAM and u.src[2].dtype is u.src[0].dtype and u.dtype is dtypes.void),
        needs(Ops.REDUCE, "REDUCE has a value of its dtype, then reduce RANGEs (each once), and arg ADD, MUL or MAX",
            lambda u: u.src[0].dtype is u.dtype and bound_ranges(u) and u.arg in (Ops.ADD, Ops.MUL, Ops.MAX)),
        needs(Ops.STORE, "a reduce range is used outside of its REDUCE",
            lambda u: not any(r.arg.reduce for r in u.ranges)),
        needs(MAY_USE_VALUES, "a RESCALE is what a REDUCE with ADD over one loop (and threads) sums", rescales_in_step),
        needs(Ops.STAGE, "STAGE has a value of its dtype, constant RANGEs and a StageArg: SHARED, REGISTER, or frozen",
            lambda u: u.src[0].dtype is u.dtype and bound_ranges(u)
            and isinstance(u.arg, StageArg) and (u.arg.space in (Space.SHARED, Space.REGISTER) or laid_out(u))
            and u.arg.pad >= 0 and 0 <= u.arg.row < len(u.src)
            and all(r.src[0].op is Ops.CONST for r in u.src[1:])),
        needs(Ops.RUNNING, "RUNNING has a REDUCE with MAX over one loop, that loop, and says whether its step is done",
            lambda u: u.src[0].op is Ops.REDUCE and u.src[0].arg is Ops.MAX and u.src[0].src[1:] == u.src[1:]
            and len(u.src) == 2 and u.src[0].dtype is u.dtype and u.src[1].arg.kind is AxisKind.LOOP
            and isinstance(u.arg, bool)),
        needs(Ops.DOT, "DOT has two words of bytes and an int32",
            lambda u: [s.dtype for s in u.src] == [dtypes.uint32, dtypes.uint32, u.dtype]),
        needs(Ops.RESCALE, "RESCALE has a float and a factor of its dtype", lambda u: len(u.src) == 2 and alike(u)),
        needs(Ops.SINK, "the SINK of a kernel has STOREs as sources and a KernelInfo as arg",
            lambda u: u.dtype is dtypes.void and isinstance(u.arg, KernelInfo) and bool(u.src)
            and all(s.op is Ops.STORE for s in u.src)),
    ),
    (
        unique_range_names, unique_variable_names, contiguous_slots, stored_first, loads_where_it_stores, one_sink,
    ),
    frozenset({Ops.RANGE, Ops.VARIABLE, Ops.PARAM, Ops.LOAD, Ops.STORE, Ops.SINK}),
)  # fmt: skip
