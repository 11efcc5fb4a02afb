"""What the rules of thumb ask of a kernel is what counting its accesses says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.graph.lower.hand_kernels import axes, kernel, param, reduce, total
from tests.graph.optimize.families import chained, chased, elementwise, product_of, row_sums, symbolic_rows
from tests.graph.symbolic.oracle import all_values, meaning
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.optimize import Bind, ScheduleError, Split, apply
from tinyweb.graph.optimize.analysis import Analysis, even, fewest_steps, largest_divisor, power_of_two
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.digest import describe
from tinyweb.graph.optimize.for_numpy import schedule_for_numpy
from tinyweb.graph.target import cpu_target, interpreter_target, webgpu_target
from tinyweb.schedules import Database, DatabaseError

AXIS, OTHER = axes(24, 6)
INDICES = {
    "steps": OTHER * 24 + AXIS, "columns": AXIS * 6 + OTHER, "moved": OTHER * 24 + AXIS + 3,
    "blocks": OTHER * 6 + AXIS // 4, "back": 23 - AXIS,
    "halves": AXIS // 8 * 16 + AXIS % 8 + OTHER * 48, "odd": AXIS // 8 * 9 + AXIS % 8, "still": OTHER + 0,
}  # fmt: skip


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("width", [2, 4, 8])
def test_an_access_follows_an_axis(name: str, width: int) -> None:
    """Every block of steps walks over neighbours, and begins at a multiple of its length where it has to."""
    load = param(1, 400).load(INDICES[name])
    k = Analysis(kernel(param(0, 144).store(OTHER * 24 + AXIS, load)))
    columns = all_values([AXIS, OTHER])
    index = meaning(INDICES[name], columns)[0].reshape(24, 6) if columns[AXIS][0] == columns[AXIS][5] else None
    assert index is not None
    blocks = index.reshape(24 // width, width, 6)
    neighbours = bool((blocks[:, 1:] - blocks[:, :-1] == 1).all())
    aligned = bool((blocks[:, 0] % width == 0).all())
    assert k.follows(load, AXIS, width, aligned=False) == neighbours
    assert k.follows(load, AXIS, width) == (neighbours and aligned)
    whole = index[1:] - index[:-1]
    assert k.contiguous(load, AXIS) == bool((whole == 1).all())
    assert (k.split(load, AXIS) is None) == (len({int(n) for n in whole.ravel()}) > 1)
    # an access that follows counts for the axis, one that neither follows nor stays in a block against it
    still = bool((blocks == blocks[:, :1]).all())
    sign = 1 if neighbours and aligned else 0 if still else -1
    traffic = 32 * (6 if name == "still" else 24 if name in ("odd", "back") else 144)
    assert k.merit([load], AXIS, width) == (sign, width * traffic if sign == 1 else 0)


def test_what_there_is_to_do() -> None:
    k = Analysis(product_of(12, 16, 20, in_place=True))
    assert [r.arg.name for r in k.outputs] == ["i0", "i1"] and [r.arg.name for r in k.reduced] == ["r0"]
    assert k.work == 12 * 20 + 12 * 16 * 20 and k.dominant is k.reduces[0] and k.in_place and not k.pointer_chasing
    assert [u.src[0].arg.slot for u in k.loads_of(k.reduces[0])] in ([1, 2], [2, 1])
    assert {u.src[0].arg.slot for u in k.summed} == {1, 2}
    assert [k.kernel_stores(u) for u in k.nodes if u.op is Ops.LOAD and u.src[0].arg.slot == 0] == [True]
    assert not any(k.kernel_stores(u) for u in k.summed)
    assert {k.traffic(u) for u in k.summed} == {12 * 16 * 32, 16 * 20 * 32}
    none = Analysis(elementwise(40))
    assert none.dominant is None and none.work == 40 and not none.in_place and none.summed == ()
    rows = Analysis(symbolic_rows(8, 64))
    assert rows.size(rows.outputs[0]) == 64 and rows.exact(rows.outputs[1]) == 8 and rows.work == 512
    assert isinstance(rows.exact(rows.outputs[0]), UOp) and Analysis(row_sums(3, 7, dtypes.float16)).work == 3 + 21


def test_loads_of_sums_inside_are_left_out() -> None:
    k = Analysis(chained(4, 10, 6))
    outer = next(u for u in k.reduces if u.src[0].op is Ops.REDUCE)
    assert k.loads_of(outer) == [] and [len(k.loads_of(u)) for u in k.reduces if u is not outer] == [1, 1]
    assert k.dominant is not None and k.volume(set(k.dominant.ranges | set(k.dominant.src[1:]))) == 240
    assert [Analysis(chased(64, n)).pointer_chasing for n in (1, 6, 7)] == [False, False, True]


@pytest.mark.parametrize(("size", "width"), [(24, 8), (12, 4), (6, 2), (7, 1), (64, 16), (16, 16)])
def test_the_width_of_vectors(size: int, width: int) -> None:
    (i,) = axes(size)
    load = param(1, 2 * size).load(i)
    b = Builder(Analysis(kernel(param(0, size).store(i, load))), webgpu_target())
    assert b.width([load], i, 16) == width and b.width([load], i, 4) == min(width, 4)
    assert b.width([], i, 16) == 1 and b.width([param(1, 2 * size).load(i * 2)], i, 16) == 1
    moved = param(1, 2 * size).load(i + 4)
    assert b.width([moved], i, 16) == min(width, 4)


def test_vectors_that_need_not_be_aligned_leave_little_over() -> None:
    for size, width in ((7, 4), (31, 8), (100, 8), (200, 16)):
        (i,) = axes(size)
        load = param(1, size + 1).load(i + 1)
        b = Builder(Analysis(kernel(param(0, size).store(i, load))), cpu_target(8, 2))
        assert b.width([load], i, 16) == width


def test_threads_for_a_size() -> None:
    """A power of two of which a sixteenth is idle at most, half of it, or an even share."""
    for size in range(1, 200):
        for room in (1, 2, 4, 16, 64):
            n = even(size, room)
            most = next(p for p in (64, 32, 16, 8, 4, 2, 1) if p <= room and (p < 2 * size or p == 1))
            share = -(-size // -(-size // min(room, size)))
            assert n in (most, most // 2, share) and n <= room
            idle = -size % n
            assert idle * 16 <= size or (n == share and idle < -(-size // n))
            assert n == most or -size % most * 16 > size
            assert size % power_of_two(size, room) == 0
            assert 2 * power_of_two(size, room) > room or size % (2 * power_of_two(size, room))


def test_blocks_by_which_an_axis_is_done_soonest() -> None:
    assert largest_divisor(12, 5) == 4 and largest_divisor(7, 6) == 1 and largest_divisor(9, 0) == 1
    assert fewest_steps(10, (4, 2, 1), each=1) == 4 and fewest_steps(9, (4, 3), each=1) == 3
    assert fewest_steps(12, (4, 6)) == 4 and fewest_steps(12, ()) == 0


def on_the_grid(kernel: UOp) -> list[str]:
    builder = Builder(Analysis(kernel), interpreter_target())
    assert schedule_for_numpy(builder)
    return [str(action) for action in builder.actions]


def test_the_interpreter_computes_again_what_is_affordable() -> None:
    """Sums over rows, for every element of the row: 2²⁶ steps at most."""
    for length, both in ((4096, True), (4097, False)):
        (i, j), (r,) = axes(4, length), axes(length, reduce=True, first=2)
        value = param(1, 4 * length).load(i * length + j) - total(param(1, 4 * length).load(i * length + r), r)
        made = on_the_grid(kernel(param(0, 4 * length).store(i * length + j, value)))
        assert made == [f"bind({axis}, grid.x)" for axis in (("i0", "i1") if both else ("i0",))]
    assert len(on_the_grid(elementwise(1 << 14, 1 << 14))) == 2


def test_a_recipe_goes_back_to_the_kernel_that_it_analysed() -> None:
    """What an option that does not fit has rewritten is analysed no more."""
    b = Builder(Analysis(elementwise(6, 10)), interpreter_target())
    before, tried = b.k, list[int]()

    def fits(factor: int) -> bool:
        assert b.k is before and not b.actions
        tried.append(factor)
        b.rewrite(Split("i1", factor))
        return factor == 5

    assert not b.first((2, 3), fits) and b.k is before and b.kernel is before.kernel and not b.actions
    assert b.first((2, 5, 10), fits) and tried == [2, 3, 2, 5]
    assert b.actions == (Split("i1", 5),) and b.k is not before and b.k.kernel is b.kernel


def test_threads_of_one_dimension_for_two_axes_of_a_sum() -> None:
    """Also where the value that is summed varies along neither."""
    for names in (("r0", "r1"), ("r1", "r0")):
        (i,), (r, s) = axes(4), axes(8, 8, reduce=True, first=1)
        k = kernel(param(0, 4).store(i, reduce(Ops.ADD, param(1, 4).load(i), r, s)))
        with pytest.raises(ScheduleError, match="of the same value has that dimension already"):
            apply(k, [Bind(n, AxisKind.THREAD) for n in names])


def test_the_largest_file_of_schedules(tmp_path: Path) -> None:
    file = tmp_path / "schedules.json"
    for size, said in ((32 << 20, "it is not JSON"), ((32 << 20) + 1, "larger than 32 MiB")):
        with open(file, "wb") as stream:
            stream.truncate(size)
        with pytest.raises(DatabaseError, match=said):
            Database.load(file)


def test_descriptions() -> None:
    assert describe(product_of(2, 3, 4)) == "i0=2 i1=4 r0=3: f32[8] <- f32[6] f32[12]"
    assert describe(symbolic_rows(8, 64)) == "i0=≤64 i1=8: f32[512] <- f32[512]"
