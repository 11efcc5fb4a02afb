"""Graphs of every stage to test on: hand-made ones, and random ones."""

from __future__ import annotations

import math
import random

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import (
    Axis,
    AxisKind,
    BufferArg,
    CopyArg,
    KernelInfo,
    Ops,
    ParamArg,
    Space,
    StageArg,
    UOp,
    Variable,
    as_index,
    size_add,
)

F32, INDEX, BOOL, VOID = dtypes.float32, dtypes.index, dtypes.bool, dtypes.void
start = Variable("start", 0, 100)


def buffer(number: int, size: int, dtype=F32, space: Space = Space.DEVICE) -> UOp:
    return UOp(Ops.BUFFER, dtype, (), BufferArg(space, number, size))


def param(slot: int, size: int, dtype=F32) -> UOp:
    return UOp(Ops.PARAM, dtype, (), ParamArg(slot, size))


def loop(name: str, size, order: int = 0, kind: AxisKind = AxisKind.LOOP, reduce: bool = False, dim: int = 0) -> UOp:
    return UOp(Ops.RANGE, INDEX, (as_index(size),), Axis(name, order, kind, reduce, dim))


def const(value, dtype=F32) -> UOp:
    return UOp.const(value, dtype)


def reshape(x: UOp, *shape) -> UOp:
    return UOp(Ops.RESHAPE, x.dtype, (x,), shape)


def tensor_graph() -> UOp:
    """A matmul, a mask, a gather, an update in place: every op of the tensor stage."""
    a, b = reshape(buffer(0, 12), 3, 4), reshape(buffer(1, 8), 4, 2)
    left = UOp(Ops.EXPAND, F32, (reshape(a, 3, 1, 4),), (3, 2, 4))
    right = UOp(Ops.EXPAND, F32, (reshape(UOp(Ops.PERMUTE, F32, (b,), (1, 0)), 1, 2, 4),), (3, 2, 4))
    product = reshape(UOp(Ops.REDUCE, F32, (left * right,), (Ops.ADD, (2,))), 3, 2)
    padded = UOp(Ops.PAD, F32, (product,), ((0, 1), (2, 0)))
    flipped = UOp(Ops.FLIP, F32, (UOp(Ops.SHRINK, F32, (padded,), ((1, 3), (0, 4))),), (1,))
    iota = UOp(Ops.IOTA, dtypes.int32, (), 2)
    running = UOp(Ops.SCAN, F32, (flipped, flipped), (Ops.MULADD, 1))
    spread = UOp(Ops.SCATTER, F32, (flipped, iota, running), (0, Ops.ADD))
    flat = reshape(spread, 8)
    counted = UOp(Ops.FETCH_ADD, F32, (flat, iota, UOp(Ops.SHRINK, F32, (flat,), ((0, 2),))), 0)
    taken = UOp(Ops.TAKE, F32, (reshape(UOp(Ops.SHRINK, F32, (counted,), ((2, 10),)), 2, 4), iota), 0)
    chosen = (taken < 0.5).where(taken.alu(Ops.EXP2), const(-0.0))
    cache = buffer(2, 101 * 4)
    rows = UOp(Ops.SHRINK, F32, (reshape(cache, 101, 4),), ((start, size_add(start, 1)), (0, 4)))
    row = UOp(Ops.SHRINK, F32, (chosen,), ((0, 1), (0, 4)))
    kept, upstream = UOp(Ops.DETACH, F32, (UOp(Ops.LEAF, F32, (row,), 1),)), UOp(Ops.LEAF, F32, (row,), 2)
    row = UOp(Ops.CUSTOM_GRADIENT, F32, (kept, upstream, row, upstream * kept))
    update = UOp(Ops.ASSIGN, F32, (rows, UOp(Ops.CONTIGUOUS, F32, (row,))))
    seen = UOp(Ops.SHRINK, F32, (reshape(update, 101, 4),), ((0, size_add(start, 1)), (0, 4)))
    seen = UOp(Ops.COPY, F32, (seen,), CopyArg(("CPU",), ("CPU", "CPU:1"), 1))
    bound = start.bind(7).cast(F32)
    return UOp(Ops.SINK, VOID, (seen * bound, update))


def kernel_graph() -> UOp:
    """A gated, tiled matmul with a staged operand and a symbolic loop."""
    i, j = loop("i0", 32, 0, AxisKind.GRID), loop("i1.0", 8, 1)
    lane = loop("i1.1", 4, 2, AxisKind.VECTOR)
    r = loop("r0", size_add(start, 1), 1000, reduce=True)
    copy = loop("s1", 64, 3000, reduce=True)
    out, a, b = param(0, 1024), param(1, 32 * 101), param(2, 101 * 32)
    stage = UOp(Ops.STAGE, F32, (a.load(i * 101 + copy), copy), StageArg(Space.SHARED))
    column = j * 4 + lane
    value = stage.load(r % 64) * b.load(r * 32 + column, column < 30)
    total = UOp(Ops.REDUCE, F32, (value, r), Ops.ADD)
    block = loop("r1", size_add(start, 1), 1000, reduce=True)
    largest = UOp(Ops.REDUCE, F32, (a.load(i * 101 + block), block), Ops.MAX)
    before, now = (UOp(Ops.RUNNING, F32, (largest, block), done) for done in (False, True))
    rescaled = UOp(Ops.RESCALE, F32, (b.load(block * 32 + column, column < 30), (before - now).alu(Ops.EXP)))
    total = total + UOp(Ops.REDUCE, F32, (rescaled, block), Ops.ADD)
    word = total.bitcast(dtypes.uint32)
    relu = total.maximum(0.0) + UOp(Ops.DOT, dtypes.int32, (word, word, const(0, dtypes.int32))).cast(F32)
    info = KernelInfo("matmul", ("split(i1, 4)", "bind(i1.1, vector)"))
    info = KernelInfo("matmul", ("split(i1, 4)", "bind(i1.1, vector)"))
    return out.store(i * 32 + column, relu, column < 30).sink(arg=info)


def program_list() -> list[UOp]:
    """The sum over rows with an accumulator, shared memory, vectors and half floats."""
    out, data = param(0, 64, dtypes.uint32), param(1, 4096)
    group = UOp(Ops.SPECIAL, INDEX, (as_index(16),), ("grid", 0))
    thread = UOp(Ops.SPECIAL, INDEX, (as_index(64),), ("thread", 0))
    acc, shared = buffer(0, 4, F32, Space.REGISTER), buffer(1, 64, F32, Space.SHARED)
    zero = as_index(0)
    init = acc.store(zero, UOp(Ops.STACK, F32, (const(0.0),) * 4))
    r = loop("r0", size_add(start, 1), 1000, reduce=True)
    inside = acc.after(init, r)
    four = UOp(Ops.LOAD, F32, (data, (group * 4 + r) * 4 % 1024 * 4, r < 50), 4)
    old = UOp(Ops.LOAD, F32, (inside, zero), 4)
    update = inside.store(zero, UOp(Ops.MULADD, F32, (four, four, old)))
    end = UOp(Ops.END, VOID, (update, r))
    total = UOp(Ops.LOAD, F32, (acc.after(end), zero), 4)
    first = UOp(Ops.LANE, F32, (total,), 0) + UOp(Ops.LANE, F32, (total,), 3)
    put = shared.store(thread, first)
    arrived = UOp(Ops.BARRIER, VOID, (put,))
    back = UOp(Ops.LOAD, F32, (shared.after(arrived), 63 - thread), 1)
    back = UOp(Ops.SUBGROUP, F32, (back,), Ops.ADD) + UOp(Ops.SUBGROUP_SIZE, INDEX, ()).cast(F32)
    small, sums = (
        UOp(Ops.STACK, dtypes.int8, (const(3, dtypes.int8),) * 16),
        UOp(Ops.STACK, dtypes.int32, (const(0, dtypes.int32),) * 4),
    )
    back = back + UOp(Ops.LANE, dtypes.int32, (UOp(Ops.DOT, dtypes.int32, (small, small, sums)),), 1).cast(F32)
    half = UOp(Ops.F32_TO_F16, dtypes.uint32, (back,))
    again = UOp(Ops.F16_TO_F32, F32, (half,)).bitcast(dtypes.uint32)
    word = UOp(Ops.STORE, VOID, (out, thread, half | again, thread < 60), "atomic_or")
    before: list[UOp] = [out, data, group.src[0], group, thread.src[0], thread, acc, shared]
    listed: dict[UOp, None] = {}
    for root in (*before, init, r, end, word):
        for u in UOp(Ops.SINK, VOID, (root,)).toposort()[:-1]:
            listed.setdefault(u)
    # between RANGE and END: only what the loop needs; `init` stands before it
    return list(listed)


def random_graph(chance: random.Random, nodes: int = 30) -> UOp:
    """Any nodes with any args: the printer has to know them all, whether or not they make sense together."""
    args = [
        None, 0, 1, -3, True, False, 0.1, -0.0, math.inf, -math.inf, math.nan, 1e300, "a 'quoted'\\ \n name", (1, 2),
        (),
        ((0, 1), (2, 3)), Ops.ADD, (Ops.MAX, (0, 2)), Space.SHARED, ("grid", 1), BufferArg(Space.REGISTER, 3, 9),
        StageArg(Space.SHARED, 4, 1),
        ParamArg(2, 77), Axis("r0", 5, AxisKind.UNROLL, True, 2), KernelInfo("n", ("split(a, 2)", "x")), KernelInfo(),
        UOp(Ops.CONST, dtypes.float64, (), math.nan).arg, from_bits(0x7FF8000000000123), from_bits(0xFFF8000000000000),
    ]  # fmt: skip
    types = [d for d in vars(dtypes).values() if hasattr(d, "bits")]
    made: list[UOp] = [const(1.5), start]
    for _ in range(nodes):
        src = tuple(chance.choice(made) for _ in range(chance.randrange(4)))
        arg = chance.choice(args)
        if chance.random() < 0.15:
            arg = (chance.choice(made), (3, chance.choice(made)))
        made.append(UOp(chance.choice(list(Ops)), chance.choice(types), src, arg))
    return UOp(Ops.SINK, VOID, tuple(made))


def from_bits(bits: int) -> float:
    import struct

    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])
