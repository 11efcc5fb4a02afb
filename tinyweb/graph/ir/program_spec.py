"""What a program may contain: a list of nodes in the order in which they are carried out."""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir.fragments import Fragments
from tinyweb.graph.ir.invariants import (
    Spec,
    alike,
    common,
    needs,
)
from tinyweb.graph.ir.kernel_spec import (
    A_PARAM,
    contiguous_slots,
    index_and_gate,
    unique_range_names,
    unique_variable_names,
)
from tinyweb.graph.ir.ops import (
    ELEMENTWISE,
    Axis,
    AxisKind,
    BufferArg,
    MatrixArg,
    Neighbours,
    Ops,
    PlanesArg,
    RowsArg,
    Space,
    TableArg,
)
from tinyweb.graph.ir.printer import brief
from tinyweb.graph.ir.shared_matrices import DescribedArg
from tinyweb.graph.ir.uop import UOp, numel_max


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
        is_memory(u.src[0]) and u.dtype is u.src[0].buffer.dtype
        and (isinstance(u.arg, MatrixArg | RowsArg | DescribedArg) or (isinstance(u.arg, int) and u.arg >= 1))
        and is_scalar(u.src[1]) and (gate is None or is_scalar(gate) or gate.shape == (u.arg,))
    )  # fmt: skip


def stores(u: UOp) -> bool:
    gate = u.src[3] if len(u.src) > 3 else None
    return (
        is_memory(u.src[0]) and u.dtype is dtypes.void and u.src[2].dtype is u.src[0].buffer.dtype
        and (isinstance(u.arg, MatrixArg) or u.arg in (None, "atomic_and", "atomic_or", "ahead"))
        and is_scalar(u.src[1]) and (gate is None or is_scalar(gate))
    )  # fmt: skip


def wide_access_is_aligned(u: UOp) -> bool:
    if isinstance(u.arg, MatrixArg | RowsArg | DescribedArg):
        return True
    width = u.arg if u.op is Ops.LOAD else (u.src[2].shape or (1,))[0]
    index = u.src[1]
    return width == 1 or index.op is not Ops.CONST or index.arg % width == 0


def dots(u: UOp) -> bool:
    """The type of each operand and how many elements of it go into one sum, the last one's for all others."""
    a, *others, c = u.src
    if u.dtype is not c.dtype or (u.dtype is not dtypes.int32 and not isinstance(u.arg, tuple | Fragments)):
        return False
    *counts, sums = (max(numel_max(s.shape), 1) for s in u.src)
    if isinstance(u.arg, Fragments):
        return [*counts, sums] == [layout.size for layout in (u.arg.a, u.arg.b, u.arg.sums)]
    if isinstance(u.arg, tuple):
        rows, columns = u.arg
        steps = counts[0] // rows
        whole = [*counts, sums] == [rows * steps, columns * steps, rows * columns]
        return whole and (a.dtype is others[0].dtype is dtypes.int8 or u.dtype.is_float)
    each = [(s.dtype, n // sums) for s, n in zip((a, *others), counts)]
    words, octets, pairs = (dtypes.uint32, 1), (dtypes.int8, 4), (dtypes.int16, 2)
    packed = [[words, *[octets] * n] for n in (2, 4, 8)]  # of 4, 2 or 1 bits
    if each == [(dtypes.uint8, 4), octets]:
        return u.arg is None
    plain = each in ([octets] * 2, [pairs] * 2, [words] * 2, *packed) and u.arg is None
    table = isinstance(u.arg, TableArg) and each == packed[0]
    if isinstance(u.arg, PlanesArg):
        return each == [words] * len(u.arg.bits) + [octets] * u.arg.in_byte
    return plain or table or (each == [words, pairs] and u.arg in range(4))


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
    here: tuple[UOp, ...] = ()  # the loops that are open
    passive = (Ops.AFTER, Ops.END, Ops.BARRIER)
    for u in nodes:
        if u.op is Ops.END:
            here = here[:-1]
        if u.op is Ops.RANGE:
            here = (*here, u)
        for s in u.src:
            if (
                home[s] is not here
                and u.op not in passive
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


def combines_as_neighbours(op: Ops, dtype: DType) -> bool:
    """Whether threads that read each other's registers combine such values."""
    return dtype.bits == 32 and dtype is not dtypes.index and op in (Ops.ADD, Ops.MAX)


VALUES = (*ELEMENTWISE, Ops.LOAD, Ops.F16_TO_F32, Ops.F32_TO_F16, Ops.SUBGROUP)

program_spec = Spec(
    "program_spec",
    (
        *common,
        needs(VALUES, "a value is a scalar or a vector of at least two lanes", scalar_or_vector),
        needs(ELEMENTWISE, "the sources are all scalars or all vectors of one length", equal_shapes),
        needs(Ops.MULADD, "MULADD has sources of its dtype", alike),
        needs(Ops.LOOKUP, "numbers of tables are made of words", lambda u: False),
        needs(Ops.DOT, "DOT has int8, four for each int32, or matrices; words and int8, or words; pairs", dots),
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
        needs(Ops.SUBGROUP, "SUBGROUP combines 32-bit values of its dtype by ADD, integers and neighbours by MAX too",
            lambda u: len(u.src) == 1 and alike(u) and (combines_as_neighbours(u.arg.op, u.dtype)
            if isinstance(u.arg, Neighbours) else combines_in_subgroups(u.arg, u.dtype))),
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
