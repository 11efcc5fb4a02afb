"""What each stage may contain: three specs, each a table of invariants, checked by `check` and, if SPEC is set, by
`verify`.

An invariant is a set of ops and what must be true of every node with one of them. An op for which a stage has no
invariant is not allowed there. Beyond single nodes a spec has invariants of the whole: unique names, contiguous slots,
definition before use.

The environment variable SPEC, read once: 0 nothing, 1 every stage is checked, 2 also printed as Python and built again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir.invariants import (
    Node,
    Spec,
    alike,
    common,
    is_axes,
    is_count,
    maybe_at_most,
    needs,
    no_void_sources,
    same_sizes,
    size_expression,
)
from tinyweb.graph.ir.ops import (
    ELEMENTWISE,
    Axis,
    AxisKind,
    BufferArg,
    KernelInfo,
    Ops,
    Ordered,
    ParamArg,
    Space,
    StageArg,
)
from tinyweb.graph.ir.printer import brief, from_python, to_python
from tinyweb.graph.ir.uop import UOp, size_prod, toposort


class SpecError(ValueError):
    """A graph breaks a rule of its stage; the message names the node, the rule and where the node stands."""


def check(graph: UOp | Sequence[UOp], spec: Spec) -> None:
    """SpecError at the first node that breaks an invariant of `spec`. A program is given as the list of its nodes."""
    roots = [graph] if isinstance(graph, UOp) else list(graph)
    nodes = roots if spec.ordered else toposort(roots)
    checked = spec.checked
    for u in nodes:
        if u.__dict__.get(checked) is spec:  # nodes never change, and later graphs are made of earlier ones
            continue
        invariants = spec.invariants_of(u.op)
        if not invariants:
            raise _error(spec, u, f"{u.op.name} is not allowed here", nodes)
        for rule in invariants:
            try:
                fine = rule.holds(u)
            except (IndexError, KeyError, ValueError, TypeError, AttributeError, AssertionError):
                fine = False  # the node is too malformed even to be looked at
            if not fine:
                raise _error(spec, u, rule.text, nodes)
        u.__dict__[checked] = spec
    seen = [u for u in nodes if u.op in spec.seen_whole or u is nodes[-1]] if spec.whole else []
    for look in spec.whole:
        found = look(seen)
        if found is not None:
            raise _error(spec, found[0], found[1], nodes)


def _error(spec: Spec, u: UOp, text: str, nodes: Sequence[UOp]) -> SpecError:
    user = next((n for n in nodes if any(s is u for s in n.src)), None)
    where = "" if user is None else f"\n  used by {brief(user, 2)}"
    return SpecError(f"{spec.name}: {text}\n  at {brief(u)}{where}")


@cache
def spec_level() -> int:
    """The environment variable SPEC: 0 (off), 1 (check every stage) or 2 (also print and rebuild); read once."""
    value = os.environ.get("SPEC", "0")
    if value not in ("0", "1", "2"):
        raise ValueError(f"SPEC is {value!r}; it must be 0 (off), 1 (check every stage) or 2 (also print and rebuild)")
    return int(value)


def verify(stage_name: str, graph: UOp | Sequence[UOp], spec: Spec) -> None:
    """What a stage calls on its result: does nothing unless SPEC is set."""
    level = spec_level()
    if level == 0:
        return
    try:
        check(graph, spec)
    except SpecError as e:
        raise SpecError(f"after {stage_name}: {e}") from None
    if level > 1:
        roots = graph if isinstance(graph, UOp) else tuple(graph)
        if from_python(to_python(roots)) != roots:
            raise SpecError(
                f"after {stage_name}: the graph printed as Python is not the same graph when it is built again"
            )


# -- tensor graph ----------------------------------------------------------------------------------------------------
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
    views = (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.SHRINK, Ops.FLIP, Ops.ASSIGN, Ops.PAD)
    if u.op is Ops.TAKE:
        u = u.src[0]
    while u.op in views:
        u = u.src[0]
    return u.op is Ops.BUFFER


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
        needs(Ops.BUFFER, "a BUFFER has no sources and a BufferArg in device or host memory",
            lambda u: not u.src and isinstance(u.arg, BufferArg) and u.arg.size >= 0
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
            "CUSTOM_GRADIENT has a value, a LEAF like it, and pairs of an input and its gradient",
            lambda u: len(u.src) >= 2 and len(u.src) % 2 == 0 and u.src[1].op is Ops.LEAF and u.arg is None
            and all(s.dtype is u.dtype and same_sizes(s.shape, u.shape) for s in u.src[:2])
            and all(x.dtype is g.dtype and same_sizes(x.shape, g.shape)
                    for x, g in zip(u.src[2::2], u.src[3::2], strict=True))),
        needs(Ops.ASSIGN, "ASSIGN writes a value into a view of a BUFFER of the same dtype and shape, and what "
            "was there before, step by step, into another",
            lambda u: alike(u) and is_buffer_view(u.src[0]) and all(same_sizes(u.src[0].shape, s.shape) for s in u.src)
            and (len(u.src) == 2 or (len(u.src) == 3 and u.src[0].op is Ops.TAKE and isinstance(u.arg, Ordered)
                                     and u.src[2].buffer is u.buffer))),
        needs(Ops.BIND, "BIND has a VARIABLE and a CONST within its bounds",
            lambda u: len(u.src) == 2 and u.src[0].op is Ops.VARIABLE and u.src[1].op is Ops.CONST
            and u.src[0].vmin <= u.src[1].arg <= u.src[0].vmax),
        needs(Ops.REDUCE, "REDUCE has one source of its dtype and arg (ADD, MUL or MAX, axes that exist)",
            lambda u: len(u.src) == 1 and alike(u) and u.arg[0] in (Ops.ADD, Ops.MUL, Ops.MAX)
            and is_axes(u.arg[1], len(u.src[0].shape))),
        needs(Ops.SINK, "a SINK has no value", lambda u: u.dtype is dtypes.void),
    ),
)  # fmt: skip


# -- kernel ----------------------------------------------------------------------------------------------------------
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
        needs(Ops.RANGE, "hardware dimensions are 0, 1 and 2", lambda u: 0 <= u.arg.dim < 3),
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
        needs(Ops.STAGE, "STAGE has a value of its dtype, reduce RANGEs of constant size, and a StageArg: a near space",
            lambda u: u.src[0].dtype is u.dtype and bound_ranges(u)
            and isinstance(u.arg, StageArg) and u.arg.space in (Space.SHARED, Space.REGISTER)
            and u.arg.pad >= 0 and 0 <= u.arg.row < len(u.src)
            and all(r.src[0].op is Ops.CONST for r in u.src[1:])),
        needs(Ops.RUNNING, "RUNNING has a REDUCE with MAX over one loop, that loop, and says whether its step is done",
            lambda u: u.src[0].op is Ops.REDUCE and u.src[0].arg is Ops.MAX and u.src[0].src[1:] == u.src[1:]
            and len(u.src) == 2 and u.src[0].dtype is u.dtype and u.src[1].arg.kind is AxisKind.LOOP
            and isinstance(u.arg, bool)),
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


# -- program ---------------------------------------------------------------------------------------------------------
def is_scalar(u: UOp) -> bool:
    return u.shape == ()


def scalar_or_vector(u: UOp) -> bool:
    return u.shape == () or (len(u.shape) == 1 and isinstance(u.shape[0], int) and u.shape[0] > 1)


def equal_shapes(u: UOp) -> bool:
    return all(s.shape == u.src[0].shape for s in u.src)


def is_memory(u: UOp) -> bool:
    while u.op is Ops.AFTER:
        u = u.src[0]
    return u.op in (Ops.PARAM, Ops.BUFFER)


def loads(u: UOp) -> bool:
    gate = u.src[2] if len(u.src) > 2 else None
    return (
        is_memory(u.src[0]) and u.dtype is u.src[0].buffer.dtype and isinstance(u.arg, int) and u.arg >= 1
        and is_scalar(u.src[1]) and (gate is None or is_scalar(gate))
    )  # fmt: skip


def stores(u: UOp) -> bool:
    gate = u.src[3] if len(u.src) > 3 else None
    return (
        is_memory(u.src[0]) and u.dtype is dtypes.void and u.src[2].dtype is u.src[0].buffer.dtype
        and u.arg in (None, "atomic_and", "atomic_or") and is_scalar(u.src[1]) and (gate is None or is_scalar(gate))
    )  # fmt: skip


def wide_access_is_aligned(u: UOp) -> bool:
    width = u.arg if u.op is Ops.LOAD else (u.src[2].shape or (1,))[0]
    index = u.src[1]
    return width == 1 or index.op is not Ops.CONST or index.arg % width == 0


def dots(u: UOp) -> bool:
    if len(u.src) not in (3, 4) or not all(len(s.shape) == 1 for s in u.src):
        return False
    a, *others, c = u.src
    (n,) = c.shape
    b = others[0]
    if len(others) == 2:
        words = (a.dtype, a.shape[0], u.arg) == (dtypes.uint32, n, None)
        return (
            u.dtype is c.dtype is dtypes.int32
            and words
            and all((o.dtype, o.shape[0]) == (dtypes.int8, 4 * n) for o in others)
        )
    if b.dtype is dtypes.int16:
        pairs = (a.dtype, a.shape[0], u.arg) == (dtypes.int16, 2 * n, None)
        fields = (a.dtype, a.shape[0]) == (dtypes.uint32, n) and u.arg in range(4)
        return u.dtype is c.dtype is dtypes.int32 and b.shape == (2 * n,) and (pairs or fields)
    return (
        u.arg is None
        and u.dtype is c.dtype is dtypes.int32
        and all((o.dtype, o.shape[0]) == (dtypes.int8, 4 * n) for o in (a, b))
    )


def truncates(u: UOp) -> bool:
    return u.src[0].vmin >= 0 and u.src[1].vmin > 0


def defined_before_use(nodes: Sequence[UOp]) -> tuple[UOp, str] | None:
    seen: set[UOp] = set()
    for u in nodes:
        if u in seen:
            return u, "a node stands in the list once"
        missing = next((s for s in u.src if s not in seen), None)
        if missing is not None:
            return u, f"its source {brief(missing, 2)} does not stand before it"
        seen.add(u)
    return None


def loops_nest(nodes: Sequence[UOp]) -> tuple[UOp, str] | None:
    """Every RANGE has one END; what depends on it stands between; loops close in reverse order."""
    opened: list[UOp] = []
    for u in nodes:
        if u.op is Ops.END:
            if not opened or opened[-1] is not u.src[-1]:
                return u, "END closes the innermost open loop"
            opened.pop()
            continue
        if u.op is Ops.RANGE:
            opened.append(u)
        outside = next((s for s in u.src if s.op is Ops.RANGE and s not in opened), None)
        if outside is not None:
            return u, f"it uses the loop {outside.arg.name} outside of it"
    return (opened[-1], f"the loop {opened[-1].arg.name} is never closed") if opened else None


def values_inside_their_loop(nodes: Sequence[UOp]) -> tuple[UOp, str] | None:
    """A value made in a loop is not used after it; memory is, through AFTER(memory, END)."""
    home: dict[UOp, tuple[UOp, ...]] = {}
    opened: list[UOp] = []
    passive = (Ops.AFTER, Ops.END, Ops.BARRIER)
    for u in nodes:
        if u.op is Ops.END and opened:
            opened.pop()
        if u.op is Ops.RANGE:
            opened.append(u)
        here = tuple(opened)
        for s in u.src:
            if (
                u.op not in passive
                and home[s] != here[: len(home[s])]
                and s.dtype is not dtypes.void
                and not is_memory(s)
            ):
                return u, f"it uses {brief(s, 2)}, a value of a loop that is closed"
        home[u] = here
    return None


def unique_buffers(nodes: Sequence[UOp]) -> tuple[UOp, str] | None:
    seen: dict[int, UOp] = {}
    for u in nodes:
        if u.op is Ops.BUFFER and seen.setdefault(u.arg.id, u) is not u:
            return u, f"two BUFFERs have id {u.arg.id}"
    return None


def combines_in_subgroups(op: Ops, dtype: DType) -> bool:
    """Whether hardware combines such values: not the maximum of floats, of which NaNs may vanish."""
    return dtype.bits == 32 and dtype is not dtypes.index and (op is Ops.ADD or (op is Ops.MAX and dtype.is_int))


VALUES = (*ELEMENTWISE, Ops.LOAD, Ops.F16_TO_F32, Ops.F32_TO_F16, Ops.SUBGROUP)

program_spec = Spec(
    "program_spec",
    (
        *common,
        needs(VALUES, "a value is a scalar or a vector of at least two lanes", scalar_or_vector),
        needs(ELEMENTWISE, "the sources are all scalars or all vectors of one length", equal_shapes),
        needs(Ops.MULADD, "MULADD has sources of its dtype", alike),
        needs(Ops.DOT, "DOT has int8 vectors, or words of int4 and int8, four for each int32, or pairs of int16", dots),
        needs((Ops.FLOORDIV, Ops.MOD), "the numerator is proven ≥ 0 and the divisor > 0", truncates),
        A_PARAM,
        needs(Ops.BUFFER, "a BUFFER has no sources and a BufferArg in registers or shared memory",
            lambda u: not u.src and isinstance(u.arg, BufferArg) and u.arg.size >= 1
            and u.arg.space in (Space.REGISTER, Space.SHARED)),
        needs(Ops.SPECIAL, "SPECIAL is of dtype index, has a size and arg (grid or thread, dimension 0 … 2)",
            lambda u: u.dtype is dtypes.index and len(u.src) == 1 and u.src[0].dtype is dtypes.index
            and u.arg[0] in ("grid", "thread") and 0 <= u.arg[1] < 3),
        needs(Ops.SUBGROUP_SIZE, "SUBGROUP_SIZE is an index without sources",
            lambda u: u.dtype is dtypes.index and not u.src),
        needs(Ops.SUBGROUP, "SUBGROUP combines 32-bit values of its dtype by ADD, integers by MAX too",
            lambda u: len(u.src) == 1 and alike(u) and combines_in_subgroups(u.arg, u.dtype)),
        needs(Ops.RANGE, "a RANGE is a serial loop: dtype index, one size, an Axis of kind LOOP",
            lambda u: u.dtype is dtypes.index and len(u.src) == 1 and u.src[0].dtype is dtypes.index
            and isinstance(u.arg, Axis) and u.arg.kind is AxisKind.LOOP),
        needs(Ops.END, "END has (dependencies…, RANGE)",
            lambda u: u.dtype is dtypes.void and u.src[-1].op is Ops.RANGE),
        needs(Ops.LOAD, "LOAD has (memory, index[, bool gate[, its value otherwise]]); no floats as index",
            lambda u: index_and_gate(2)(u.replace(src=u.src[:3]))
            and (len(u.src) < 4 or (len(u.src) == 4 and u.src[3].dtype is u.dtype and u.src[3].shape == u.shape))),
        needs(Ops.LOAD, "LOAD reads memory of its dtype at a scalar index; its arg is the number of lanes", loads),
        needs(Ops.STORE, "STORE has (memory, index, value[, bool gate]); no floats as index", index_and_gate(3)),
        needs(Ops.STORE, "STORE writes values of the memory's dtype at a scalar index; arg None or an atomic", stores),
        needs((Ops.LOAD, Ops.STORE), "a wide access begins at a multiple of its width", wide_access_is_aligned),
        needs(Ops.AFTER, "AFTER has (memory, dependencies…) and the dtype of the memory",
            lambda u: is_memory(u) and u.src[0].dtype is u.dtype and len(u.src) > 1),
        needs(Ops.BARRIER, "a BARRIER has no value", lambda u: u.dtype is dtypes.void),
        needs(Ops.STACK, "STACK has two or more scalars of its dtype",
            lambda u: len(u.src) > 1 and alike(u) and all(map(is_scalar, u.src))),
        needs(Ops.LANE, "LANE takes a lane that its vector has",
            lambda u: len(u.src) == 1 and alike(u) and len(u.src[0].shape) == 1 and 0 <= u.arg < u.src[0].shape[0]),
        needs(Ops.F16_TO_F32, "F16_TO_F32 makes a float32 of a uint32",
            lambda u: len(u.src) == 1 and u.dtype is dtypes.float32 and u.src[0].dtype is dtypes.uint32),
        needs(Ops.F32_TO_F16, "F32_TO_F16 makes a uint32 of a float32",
            lambda u: len(u.src) == 1 and u.dtype is dtypes.uint32 and u.src[0].dtype is dtypes.float32),
    ),
    (
        defined_before_use, unique_range_names, unique_variable_names, contiguous_slots, unique_buffers, loops_nest,
        values_inside_their_loop,
    ),
    ordered=True,
)  # fmt: skip
