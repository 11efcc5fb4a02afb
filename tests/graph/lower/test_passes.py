"""The passes of lowering one by one: folding, lanes, hardware indices, blocks of sums, order, names and parameters."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.graph.lower.evaluation import evaluate, leaf
from tests.graph.lower.hand_kernels import INDEX, Case, axes, check, kernel, param, reduce, total
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import (
    Axis,
    AxisKind,
    BufferArg,
    Ops,
    Space,
    UOp,
    Variable,
    as_index,
    identity,
    is_lane,
    lane_count,
    nest_key,
    row_major,
)
from tinyweb.graph.lower import lower
from tinyweb.graph.lower.blocks import BLOCK, LONGEST, LONGEST_OF_TILES, block_sums
from tinyweb.graph.lower.constructors import (
    add,
    both,
    index_const,
    is_const,
    lane,
    lanes_of,
    make,
    splat,
    stack,
)
from tinyweb.graph.lower.fused import ONCE, fuse
from tinyweb.graph.lower.hardware import bind_hardware
from tinyweb.graph.lower.linearize import linearize
from tinyweb.graph.optimize import Bind, Split, Stage, apply
from tinyweb.graph.target import Target, cpu_target, webgpu_target

F32, I32, U32, BOOL = dtypes.float32, dtypes.int32, dtypes.uint32, dtypes.bool
WEBGPU, CPU = webgpu_target(), cpu_target()


# -- folding ----------------------------------------------------------------------------------------------------------
PYTHON: dict[Ops, Callable[[int, int], int]] = {
    Ops.ADD: lambda a, b: a + b, Ops.MUL: lambda a, b: a * b, Ops.MAX: max, Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b, Ops.XOR: lambda a, b: a ^ b, Ops.FLOORDIV: lambda a, b: a // b,
    Ops.MOD: lambda a, b: a % b, Ops.LESS: lambda a, b: a < b, Ops.EQUAL: lambda a, b: a == b,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [INDEX, U32], ids=lambda d: d.name)
@pytest.mark.parametrize("op", PYTHON, ids=lambda o: o.name)
def test_constants_are_folded(op: Ops, dtype: DType) -> None:
    out = BOOL if op in (Ops.LESS, Ops.EQUAL) else dtype
    for a, b in product((0, 1, 2, 7, 12), repeat=2):
        folded = make(op, out, (UOp.const(a, dtype), UOp.const(b, dtype)))
        if b == 0 and op in (Ops.FLOORDIV, Ops.MOD):
            assert folded.op is op
        else:
            assert folded is UOp.const(PYTHON[op](a, b), out)


def test_what_is_neutral_is_left_out() -> None:
    x, y, c = leaf(I32), leaf(I32, 1), lambda n: UOp.const(n, I32)
    p, yes, no = leaf(BOOL), UOp.const(True, BOOL), UOp.const(False, BOOL)
    for op, a, b, want in (
        (Ops.ADD, x, c(0), x), (Ops.ADD, c(0), x, x), (Ops.MUL, x, c(1), x), (Ops.MUL, c(1), x, x),
        (Ops.MUL, x, c(0), c(0)), (Ops.MUL, c(0), x, c(0)), (Ops.SHL, x, c(0), x), (Ops.SHR, x, c(0), x),
        (Ops.FLOORDIV, x, c(1), x), (Ops.MOD, x, c(1), c(0)), (Ops.ADD, x + c(3), c(4), x + c(7)),
        (Ops.ADD, x + c(3), c(-3), x),
    ):  # fmt: skip
        assert make(op, I32, (a, b)) is want, (op, a, b)
    for op, a, b, want in (
        (Ops.AND, p, yes, p), (Ops.AND, yes, p, p), (Ops.AND, p, no, no), (Ops.AND, no, p, no),
        (Ops.OR, p, no, p), (Ops.OR, no, p, p), (Ops.OR, p, yes, yes), (Ops.OR, yes, p, yes),
    ):  # fmt: skip
        assert make(op, BOOL, (a, b)) is want, (op, a, b)
    # what only looks neutral
    for op, a, b in ((Ops.MUL, x, c(2)), (Ops.ADD, x, c(1)), (Ops.AND, x, c(1)), (Ops.OR, x, c(1)), (Ops.SHL, x, c(1)),
                     (Ops.SHL, c(0), x), (Ops.FLOORDIV, c(1), x), (Ops.MOD, x, c(2)), (Ops.FLOORDIV, x, c(2)),
                     (Ops.MAX, x, c(0)), (Ops.ADD, x + y, c(4)), (Ops.ADD, c(4), x + c(3)), (Ops.MOD, c(1), x),
                     (Ops.XOR, x, c(0)), (Ops.ADD, x * c(3), c(4)), (Ops.MUL, x + c(3), c(4))):  # fmt: skip
        assert make(op, I32, (a, b)) is UOp(op, I32, (a, b)), (op, a, b)
    f = leaf(F32)
    assert make(Ops.ADD, F32, (f, UOp.const(0.0, F32))).op is Ops.ADD, "-0.0 + 0.0 is 0.0"
    assert make(Ops.LESS, BOOL, (UOp.const(0.0, F32), UOp.const(1.0, F32))).op is Ops.LESS
    assert make(Ops.WHERE, I32, (yes, x, y)) is x and make(Ops.WHERE, I32, (no, x, y)) is y
    assert make(Ops.WHERE, I32, (p, x, y)) is p.where(x, y)
    assert make(Ops.CAST, F32, (x,)) is x.cast(F32)


def test_gates_and_constants() -> None:
    a, b = leaf(BOOL, 0), leaf(BOOL, 1)
    assert both(None, None) is None and both(a, None) is a and both(None, b) is b and both(a, a) is a
    assert both(a, b) is UOp(Ops.AND, BOOL, (a, b))
    assert is_const(index_const(3)) and is_const(index_const(3), 3) and not is_const(index_const(3), 4)
    assert not is_const(a) and not is_const(leaf(I32), 0) and is_const(index_const(0), 0)
    assert add(index_const(2), index_const(3)).arg == 5 and index_const(2).dtype is INDEX
    assert [identity(op, I32).arg for op in (Ops.ADD, Ops.MUL, Ops.MAX)] == [0, 1, -(2**31)]
    assert identity(Ops.MAX, F32).arg == -math.inf
    with pytest.raises(ValueError, match="no reduction with XOR: use ADD, MUL or MAX"):
        identity(Ops.XOR, I32)


def test_vectors() -> None:
    x, y, v = leaf(F32), leaf(F32, 1), leaf(F32, 2, 4)
    assert splat(x, 1) is x and splat(v, 4) is v and splat(x, 3) is UOp(Ops.STACK, F32, (x, x, x))
    assert stack([x]) is x and stack([x, y]) is UOp(Ops.STACK, F32, (x, y))
    parts = [lane(v, i) for i in range(4)]
    assert [p.arg for p in parts] == [0, 1, 2, 3] and all(p.op is Ops.LANE for p in parts)
    assert stack(parts) is v
    for other in (parts[:3], parts[::-1], [*parts[:3], x], [parts[0]] * 4, [x, *parts[1:]]):
        assert stack(other).op is Ops.STACK and stack(other).src == tuple(other)
    pair = stack([x, y])
    assert lane(pair, 0) is x and lane(pair, 1) is y and lane(x, 0) is x
    assert [lanes_of(u) for u in (x, v, pair, index_const(1))] == [1, 4, 2, 1]


# -- lanes ------------------------------------------------------------------------------------------------------------
def ranged(name: str, size: int | UOp, kind: AxisKind = AxisKind.LOOP, order: int = 0, dim: int = 0) -> UOp:
    return UOp(Ops.RANGE, INDEX, (as_index(size),), Axis(name, order, kind, dim=dim))


def test_lanes_of_values() -> None:
    v, u, r = ranged("v", 4, AxisKind.VECTOR, 2), ranged("u", 3, AxisKind.UNROLL, 1), ranged("r", 5)
    d = ranged("d", 4, AxisKind.DOT, 0)
    assert [is_lane(x) for x in (v, u, d, r, index_const(1))] == [True, True, True, False, False]
    assert (v + u * r).lanes == (u, v) and r.lanes == () and (d + v).lanes == (d, v)
    memory = param(0, 60)
    assert memory.load(v * 3 + u).lanes == (u, v) and memory.load(r).lanes == ()
    assert memory.after(memory.store(v, memory.load(v))).load(u).lanes == (u,), "memory has none"
    assert total(memory.load(v + u), u).lanes == (v,) and total(memory.load(v + u), u, v).lanes == ()
    assert (Variable("n", 0, 3) + v).lanes == (v,)
    assert lane_count(v) == 4 and nest_key(v) == (2, "v")
    with pytest.raises(ValueError, match="axis n is bound to vector and needs a constant size"):
        lane_count(ranged("n", Variable("n", 0, 3), AxisKind.VECTOR))


# -- hardware ---------------------------------------------------------------------------------------------------------
def bound(sizes: list[int], kinds: list[tuple[AxisKind, int]], target=WEBGPU, stored: int | None = None):  # type: ignore[no-untyped-def]
    """A copy over axes of these sizes and kinds (the index is row-major), bound; and its launch."""
    ranges = [ranged(f"i{n}", s, k, n, d) for n, (s, (k, d)) in enumerate(zip(sizes, kinds))]
    at = row_major(ranges[: stored if stored is not None else len(ranges)])
    size = math.prod(sizes)
    return bind_hardware(kernel(param(0, size).store(at, param(1, size).load(at))), target)


GRID, THREAD = AxisKind.GRID, AxisKind.THREAD


def indices(root: UOp, grid: list[int], workgroup: tuple[int, int, int]) -> list[int]:
    """Where all threads of a launch store, in any order; gates keep some from it."""
    specials = [u for u in root.toposort() if u.op is Ops.SPECIAL]
    sizes = [(grid if u.arg[0] == "grid" else list(workgroup))[u.arg[1]] for u in specials]
    assert all(u.src[0].arg == n for u, n in zip(specials, sizes))
    places = list(product(*map(range, sizes)))
    values = {u: np.array([p[k] for p in places], np.int32) for k, u in enumerate(specials)}
    (store,) = root.src
    at = np.broadcast_to(evaluate(store.src[1], values), len(places))
    if len(store.src) > 3:
        at = at[np.broadcast_to(evaluate(store.src[3], values), len(places))]
        assert store.src[2].src[2:] == store.src[3:] or len(store.src[2].src) < 3
    return sorted(at.tolist())


@pytest.mark.parametrize(("sizes", "kinds", "grid", "workgroup"), [
    ([6], [(GRID, 0)], [6, 1, 1], (1, 1, 1)), ([6, 5], [(GRID, 0), (GRID, 0)], [30, 1, 1], (1, 1, 1)),
    ([2, 3, 5], [(GRID, 1)] * 3, [1, 30, 1], (1, 1, 1)), ([6, 5], [(GRID, 0), (GRID, 2)], [6, 1, 5], (1, 1, 1)),
    ([6, 8], [(GRID, 0), (THREAD, 0)], [6, 1, 1], (8, 1, 1)),
    ([4, 8], [(THREAD, 2), (THREAD, 1)], [1, 1, 1], (1, 8, 4)),
    ([2, 3, 4, 5], [(GRID, 0), (GRID, 1), (THREAD, 0), (GRID, 0)], [10, 3, 1], (4, 1, 1)),
])  # fmt: skip
def test_every_element_is_stored_once(
    sizes: list[int], kinds: list[tuple[AxisKind, int]], grid: list[int], workgroup: tuple[int, int, int]
) -> None:
    root, launch = bound(sizes, kinds)
    assert (list(launch.grid), launch.workgroup) == (grid, workgroup)
    assert indices(root, grid, workgroup) == list(range(math.prod(sizes)))
    assert not any(u.op is Ops.RANGE for u in root.toposort()) and len(root.src[0].src) == 3


def test_idle_indices_store_nothing() -> None:
    """What does not vary with a hardware index happens where it is 0."""
    for kinds in ([(GRID, 0), (GRID, 0)], [(GRID, 0), (THREAD, 0)], [(THREAD, 1), (GRID, 1)]):
        root, launch = bound([4, 3], kinds, stored=1)
        assert indices(root, list(launch.grid), launch.workgroup) == [0, 1, 2, 3]  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [8, 9, 15, 16, 17, 24, 25, 63, 64])
def test_long_grids_are_spread(length: int) -> None:
    target = replace(WEBGPU, max_grid=8)
    root, launch = bound([length], [(GRID, 0)], target)
    assert all(isinstance(n, int) and n <= 8 for n in launch.grid)
    assert indices(root, list(launch.grid), launch.workgroup) == list(range(length))  # type: ignore[arg-type]
    rows = -(-length // 8)
    assert launch.grid == (-(-length // rows), rows, 1)
    exact = length % rows == 0
    assert len(root.src[0].src) == (3 if exact else 4), "gated only where some would be outside"
    root, launch = bound([length, 3], [(GRID, 1), (GRID, 0)], target)
    assert launch.grid == ((3, -(-length // rows), rows) if rows > 1 else (3, length, 1))
    assert indices(root, list(launch.grid), launch.workgroup) == list(range(3 * length))  # type: ignore[arg-type]


def test_gates_of_spread_grids_join_others() -> None:
    target = replace(WEBGPU, max_grid=8)
    i = ranged("i", 13, GRID)
    other, fixed = param(2, 1).load(index_const(0)), i < 12
    value = param(1, 13).load(i, fixed) + other
    root, _ = bind_hardware(kernel(param(0, 13).store(i, value, fixed)), target)
    (store,) = root.src
    first, last = (u for u in store.src[2].src)
    assert len(first.src) == 3 and first.src[2] is store.src[3] and store.src[3].op is Ops.AND
    assert len(last.src) == 2, "what does not depend on the index needs no gate"


def test_what_cannot_be_bound() -> None:
    for sizes, kinds, target, message in (
        ([4], [(GRID, 3)], WEBGPU, "axis i0: there is no grid dimension 3; webgpu has 3"),
        ([4], [(GRID, 1)], CPU, "axis i0: there is no grid dimension 1; cpu has 1"),
        ([8, 16], [(THREAD, 2), (THREAD, 3)], WEBGPU, "axis i1: 128 threads in dimension 2 are more than the 64"),
        ([4, 8], [(THREAD, 0), (THREAD, 0)], WEBGPU, "axes i0, i1 share thread dimension 0 and must have one constant"),
        ([257], [(THREAD, 0)], WEBGPU, "axis i0: 257 threads in dimension 0 are more than the 256 of webgpu"),
        ([65], [(THREAD, 2)], WEBGPU, "axis i0: 65 threads in dimension 2 are more than the 64 of webgpu"),
        ([16, 17], [(THREAD, 0), (THREAD, 1)], WEBGPU, "a workgroup of 16x17x1 has more threads than webgpu's 256"),
        ([65], [(GRID, 0)], replace(WEBGPU, max_grid=8), "grid dimension 0 may need 65 workgroups; webgpu allows 8 in"),
        ([9, 2, 2], [(GRID, 0), (GRID, 1), (GRID, 2)], replace(WEBGPU, max_grid=8), "grid dimension 0 may need 9"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            bound(sizes, kinds, target)
    for sizes, kinds in (([256], [(THREAD, 0)]), ([16, 16], [(THREAD, 0), (THREAD, 1)]), ([64], [(THREAD, 2)])):
        bound(sizes, kinds)
    (r,) = (ranged("r", 4, GRID),)
    r = r.replace(arg=replace(r.arg, reduce=True))
    with pytest.raises(ValueError, match="axis r is reduced and cannot be bound to the grid"):
        bind_hardware(kernel(param(0, 1).store(index_const(0), total(param(1, 4).load(r), r))), WEBGPU)


# -- blocks of sums ---------------------------------------------------------------------------------------------------
def sums(length: int, op: Ops = Ops.ADD, dtype: DType = F32) -> UOp:
    (i,), (r,) = axes(3), axes(length, reduce=True, first=1)
    return kernel(param(0, 3, dtype).store(i, reduce(op, param(1, 3 * length, dtype).load(i * length + r), r)))


def loops(root: UOp) -> list[int]:
    return sorted(int(u.src[0].arg) for u in root.toposort() if u.op is Ops.RANGE and u.arg.reduce)


def test_long_sums_are_sums_of_blocks() -> None:
    assert (LONGEST, LONGEST_OF_TILES, BLOCK) == (256, 1024, 64)
    assert loops(block_sums(sums(256))) == [256] and block_sums(sums(256)) is sums(256)
    for length in (257, 320, 1000):
        blocked = block_sums(sums(length))
        assert max(loops(blocked)) <= LONGEST
        reduces = [u for u in blocked.toposort() if u.op is Ops.REDUCE]
        assert len(reduces) >= 2 and all(len(u.src) == 2 for u in reduces[:2])
        x = np.random.default_rng(0).integers(-9, 9, (3, length)).astype(np.float32)
        case = Case("blocks", sums(length), [np.zeros(3, np.float32), x], [x.sum(1)], tolerance=0)
        if length < 400:
            check(case, case.kernel, CPU)
    # no integers, no maxima: nothing is rounded there
    for k in (sums(1000, dtype=I32), sums(1000, Ops.MAX)):
        assert block_sums(k) is k
    deep = block_sums(sums(64 * 300))
    assert max(loops(deep)) <= LONGEST and loops(deep).count(BLOCK) >= 2


def test_tiles_have_longer_sums() -> None:
    (i, j), (r,) = axes(8, 8), axes(1024, reduce=True, first=2)
    value = total(param(1, 8192).load(i * 1024 + r) * param(2, 8192).load(r * 8 + j), r)
    k = kernel(param(0, 64).store(i * 8 + j, value))
    staged = apply(k, [Bind("i0", THREAD, 0), Bind("i1", THREAD, 1), Split("r0", 2), Stage(1, "r0.0", Space.SHARED)])
    assert block_sums(staged) is staged
    assert block_sums(k) is not k


# -- order ------------------------------------------------------------------------------------------------------------
def position(uops: list[UOp]) -> dict[UOp, int]:
    return {u: n for n, u in enumerate(uops)}


def test_programs_are_in_order() -> None:
    """Sources first, everything in the innermost loop it depends on, loops nested."""
    a, b = param(0, 12), param(1, 12)
    i, j, k = (ranged(n, 3, order=o) for o, n in enumerate("ijk"))
    outer = a.load(i) * 2.0
    inner = UOp(Ops.END, dtypes.void, (b.store(i * 3 + j, outer + a.load(j)), j))
    after = UOp(Ops.END, dtypes.void, (b.after(inner).store(i * 3 + k, b.after(inner).load(k)), k))
    end = UOp(Ops.END, dtypes.void, (after, i))
    uops = linearize(UOp(Ops.SINK, dtypes.void, (end,)))
    at = position(uops)
    assert len(uops) == len(set(uops)) and not any(u.op is Ops.SINK for u in uops)
    assert all(at[s] < at[u] for u in uops for s in u.src)
    opened: list[UOp] = []
    for u in uops:
        if u.op is Ops.END:
            assert opened.pop() is u.src[-1]
        inside = {r for r in u.ranges if r is not u}
        assert inside <= set(opened), "what depends on a loop lies in it"
        if u.op is Ops.RANGE:
            opened.append(u)
        elif u.op is not Ops.END and u.ranges:
            assert opened[-1] in u.ranges, "and no deeper than it must"
        elif u.op is not Ops.END:
            assert not opened
    assert at[inner] < at[k] and at[j] > at[outer]


def test_what_is_read_and_written_is_read_first() -> None:
    """Whatever the order of the stores: no load of a parameter comes after a store to it."""
    a, b = param(0, 4), param(1, 4)
    zero, one = index_const(0), index_const(1)
    for effects in ((a.store(zero, b.load(one)), b.store(zero, a.load(one))),
                    (b.store(zero, a.load(one)), a.store(zero, b.load(one)))):  # fmt: skip
        uops = linearize(UOp(Ops.SINK, dtypes.void, effects))
        for memory in (a, b):
            stores = [n for n, u in enumerate(uops) if u.op is Ops.STORE and u.src[0] is memory]
            reads = [n for n, u in enumerate(uops) if u.op is Ops.LOAD and u.src[0] is memory]
            assert max(reads) < min(stores)
        assert [u.src[0] for u in uops if u.op is Ops.STORE] == [e.src[0] for e in effects]


def test_loads_stay_in_loops_that_may_be_empty() -> None:
    """What does not depend on such a loop, but is read for it alone, and maybe beyond memory; nothing else does."""
    memory, n = param(0, 8), Variable("n", 0, 1)
    loop = ranged("r", n, order=1)
    outer = ranged("o", 3, order=0)
    beyond, inside = memory.load(outer * 4), memory.load(outer * 3)
    total = UOp(Ops.BUFFER, F32, (), BufferArg(Space.REGISTER, 0, 1))
    zero = index_const(0)
    begun = total.after(total.after(outer).store(zero, inside), loop)
    summed = begun.store(zero, begun.load(zero) + (beyond * 2.0 + inside))
    ended = UOp(Ops.END, dtypes.void, (summed, loop))
    stored = param(1, 8).store(outer, total.after(ended).load(zero))
    for used_outside in (False, True):
        effect = stored if not used_outside else stored.replace(src=(*stored.src[:2], stored.src[2] + beyond))
        uops = linearize(UOp(Ops.SINK, dtypes.void, (UOp(Ops.END, dtypes.void, (effect, outer)),)))
        at = position(uops)
        assert all(at[s] < at[u] for u in uops for s in u.src)
        assert (at[loop] < at[beyond] < at[ended]) != used_outside
        assert at[inside] < at[loop]


def test_random_programs_are_in_order() -> None:
    for seed in range(5):
        chance = random.Random(seed)
        memory = UOp(Ops.BUFFER, F32, (), BufferArg(Space.REGISTER, 0, 64))
        effects: list[UOp] = []
        for n in range(4):
            rs = [ranged(f"{n}{m}", 2 + m, order=m) for m in range(chance.randint(1, 3))]
            index = rs[0]
            for r in rs[1:]:
                index = index * 4 + r
            before = memory.after(*effects[-1:]) if effects else memory
            effect = before.store(index, param(0, 64).load(rs[-1]) + param(1, 64).load(rs[0]))
            for r in reversed(rs):
                effect = UOp(Ops.END, dtypes.void, (effect, r))
            effects.append(effect)
        uops = linearize(UOp(Ops.SINK, dtypes.void, tuple(effects)))
        at = position(uops)
        assert all(at[s] < at[u] for u in uops for s in u.src)
        depth = 0
        for u in uops:
            depth += (u.op is Ops.RANGE) - (u.op is Ops.END)
            assert depth >= 0
            if u.op in (Ops.LOAD, Ops.STORE):
                assert depth == max(1, sum(at[r] < at[u] < next(at[e] for e in uops if e.op is Ops.END and e.src[
                    -1] is r) for r in uops if r.op is Ops.RANGE))  # fmt: skip


# -- programs ---------------------------------------------------------------------------------------------------------
def test_names_tell_sizes_and_kinds() -> None:
    n = Variable("n", 1, 9)
    i, j = axes(3, n)
    (r,) = axes(5, reduce=True)
    assert lower(kernel(param(0, 27).store(i * 9 + j, param(1, 27).load(i * 9 + j))), CPU).name.startswith("e_3_s9_")
    k = kernel(param(0, 3).store(i, total(param(1, 15).load(i * 5 + r), r)))
    assert lower(k, CPU).name.startswith("r_3_5_"), "reduced axes last"
    ten = axes(*[2] * 10)
    at = index_const(0)
    for x in ten:
        at = at * 2 + x
    name = lower(kernel(param(0, 1024).store(at, param(1, 1024).load(at))), CPU).name
    assert name.split("_")[:-1] == ["e", *["2"] * 8] and len(name.split("_")[-1]) == 10


def test_parameters_of_programs() -> None:
    """What is read, written, and passed though nothing asks for it; in order of slots."""
    (i,) = axes(4)
    a, b, c = param(2, 4), param(0, 4), param(1, 4)
    unused = c.load(i) * 0.0
    program = lower(kernel(a.store(i, b.load(i) + a.load(i) + unused.cast(I32).cast(F32) * 0.0)), CPU)
    assert [(p.slot, p.read, p.written, p.atomic) for p in program.params] == [
        (0, True, False, False), (1, True, False, False), (2, True, True, False)]  # fmt: skip
    n, m = Variable("n", 1, 4), Variable("a", 1, 4)
    (j,) = axes(n)
    k = apply(kernel(param(0, 4).store(j, param(1, 8).load(j + m))), [Bind("i0", GRID)])
    assert [v.arg[0] for v in lower(k, WEBGPU).variables] == ["a", "n"]


def test_equal_programs_have_equal_names() -> None:
    """Different in one constant, one type or the grid: different names."""

    def make_kernel(scale: float, size: int, grid: bool, dtype: DType = F32) -> UOp:
        (i,) = axes(size)
        k = kernel(param(0, 16, dtype).store(i, param(1, 16, dtype).load(i) * scale))
        return apply(k, [Bind("i0", GRID)]) if grid else k

    kernels = [make_kernel(2.0, 8, True), make_kernel(3.0, 8, True), make_kernel(2.0, 9, True),
               make_kernel(2.0, 8, False),
               make_kernel(2.0, 8, True, dtypes.float64)]  # fmt: skip
    names = [lower(k, CPU).name for k in kernels]
    assert len(set(names)) == len(names) and names == [lower(k, CPU).name for k in kernels]


def test_the_most_buffers() -> None:
    (i,) = axes(4)

    def reading(count: int) -> UOp:
        value = param(1, 4).load(i)
        for slot in range(2, count):
            value = value + param(slot, 4).load(i)
        return kernel(param(0, 4).store(i, value))

    assert len(lower(reading(8), WEBGPU).params) == 8
    with pytest.raises(ValueError, match=r"kernel \(no name\) uses 9 buffers; webgpu allows 8"):
        lower(reading(9), WEBGPU)


# -- products that something is added to ------------------------------------------------------------------------------
def test_products_with_a_sum_are_rounded_once() -> None:
    """Also those with other users, the first of two, and what is subtracted: no choice is left to a compiler."""
    a, b, c = (leaf(F32, i) for i in range(3))
    product = a * b
    for value, want in (
        (product + c, (a, b, c)), (c + product, (a, b, c)), (c + -product, (-a, b, c)),
        (product + b * c, (a, b, b * c)),
    ):  # fmt: skip
        for root in (value, product + value):
            fused = fuse(root)
            assert UOp(Ops.MULADD, F32, want, ONCE) in fused.toposort()
            assert not any(u.op is Ops.ADD and any(s.op is Ops.MUL for s in u.src) for u in fused.toposort())
    whole = leaf(I32) * leaf(I32) + leaf(I32)
    assert fuse(whole) is whole


@pytest.mark.parametrize("target", [CPU, replace(CPU, fuses=False)], ids=["fused", "apart"])
def test_targets_fuse_or_do_not(target: Target) -> None:
    out, x, y = (param(i, 64) for i in range(3))
    (i,) = axes(64)
    value = x.load(i) * y.load(i) + x.load(i) * x.load(i)
    uops = lower(kernel(out.store(i, value)), target).uops
    assert [u.arg for u in uops if u.op is Ops.MULADD] == [ONCE] * target.fuses
