"""Matrices that warpgroups multiply where they lie in shared memory: layouts, schedules, and what programs compute."""

from dataclasses import replace
from typing import Any

import pytest

from tests.graph.lower.hand_kernels import check
from tests.graph.optimize.test_fragments import BF16, F16, I8, product
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.gpu_targets import NVIDIA, nvidia_target
from tinyweb.graph.ir import DescribedArg, Fragments, Ops, Products, Space, Swizzle, UOp
from tinyweb.graph.ir.shared_matrices import BEGIN, BEGUN
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import apply, heuristic, optimize
from tinyweb.graph.optimize.action import ScheduleError
from tinyweb.graph.optimize.instructions import FRAGMENTS, INSTRUCTIONS
from tinyweb.graph.optimize.stage import Stage
from tinyweb.graph.program import Program
from tinyweb.graph.symbolic import simplify

SM_90 = nvidia_target("sm_90")
EVERY = [i for i in FRAGMENTS if i.shared and not i.first_held]
HELD = [i for i in FRAGMENTS if i.first_held]


def products_of(program: Program) -> list[UOp]:
    return [u for u in program.uops if isinstance(u.arg, Fragments) and u.arg.shared]


# -- layouts ----------------------------------------------------------------------------------------------------------
def test_sums_lie_as_the_manual_says() -> None:
    """PTX ISA, accumulator of wgmma.m64nNk16: warps have 16 rows each, a thread pairs of columns in two rows."""
    widths = {t: sorted(int(i.name.split("x")[1]) for i in EVERY if i.operands[0] is t) for t in (F16, BF16, I8)}
    assert widths[F16] == widths[BF16] == list(range(8, 257, 8))
    assert widths[I8] == [8, 16, 24, 32, *range(48, 257, 16)]
    for i in EVERY[::5]:
        f = i.fragments
        assert f is not None and f.threads == (4, 8, 4)
        columns, steps = f.b.shape
        assert steps * i.operands[0].bits == 256
        seen = set()
        for thread in range(128):
            warp, lane = divmod(thread, 32)
            for e in range(f.sums.size):
                want = 16 * warp + lane // 4 + 8 * (e // 2 % 2), e // 4 * 8 + lane % 4 * 2 + e % 2
                assert f.sums.place(lane % 4, lane // 4, e, warp) == want
                seen.add(want)
        assert len(seen) == 64 * columns == 128 * f.sums.size
        assert (f.a.shape, f.b.shape, f.sums.shape) == ((64, steps), (columns, steps), (64, columns))


def test_registers_lie_as_the_manual_says() -> None:
    """PTX ISA, fragment of A of wgmma.m64nNk16: sums of one product are there as another one's operand."""
    assert [i.name for i in HELD] == [i.name.replace("wgmma_", "wgmma_held_") for i in EVERY if i.operands[0] is not I8]
    for i in HELD[::5]:
        f = i.fragments
        assert f is not None and (f.reads(0), f.reads(1)) == (False, True) and f.a.shape == (64, 16)
        for thread in range(128):
            warp, lane = divmod(thread, 32)
            for e in range(f.a.size):
                want = 16 * warp + lane // 4 + 8 * (e // 2 % 2), lane % 4 * 2 + e % 2 + 8 * (e // 4)
                assert f.a.place(lane % 4, lane // 4, e, warp) == want
        assert [e.fragments.chains(f) for e in EVERY[::7] if e.fragments] == [
            e.fragments.sums.shape[1] % 16 == 0 for e in EVERY[::7] if e.fragments
        ]


@pytest.mark.parametrize(("width", "bits"), [(128, 16), (64, 16), (32, 16), (128, 8)])
def test_parts_change_places_by_bits_of_their_address(width: int, bits: int) -> None:
    """Columns of `width` bytes one after the other, in which bits 4 … of an address are added to by bits 7 …."""
    columns, rows, slots = 3, 8, 2
    across, size = width * 8 // bits, bits // 8
    how = Swizzle(width, columns * across, rows)
    places = []
    for index in range(slots * rows * columns * across):
        (row, column), slot = divmod(index, columns * across), index // (rows * columns * across)
        flat = (slot * columns * rows + column // across * rows + row % rows) * width + column % across * size
        want = flat ^ (flat >> 7 & width // 16 - 1) << 4
        places.append(how.place(index, bits))
        assert places[-1] * size == want
        assert how.place(index, bits, parts=False) * size == flat
        if index % 97 == 0:
            assert simplify(how.place(UOp.const(index, dtypes.index), bits)).arg == places[-1]
    assert sorted(places) == list(range(len(places)))


# -- programs ---------------------------------------------------------------------------------------------------------
SHAPES = [
    (64, 128, 200, (False, False)), (64, 64, 64, (False, True)), (135, 72, 48, (True, True)),
    (128, 32, 40, (True, False)), (66, 64, 16, (False, False)), (64, 96, 33, (False, True)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [F16, BF16], ids=["f16", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products(shape: tuple[int, int, int, tuple[bool, bool]], dtype: DType) -> None:
    """Sizes that tiles divide and others, operands in either order; the threads' registers have the sums."""
    rows, columns, steps, flipped = shape
    case = product(rows, columns, steps, dtype, flipped)
    program = check(case, optimize(case.kernel, SM_90), SM_90)
    assert products_of(program)
    assert not any(u.op in (Ops.MUL, Ops.MULADD) and u.dtype.is_float for u in program.uops)


@pytest.mark.parametrize("size", [(64, 64, 64), (130, 70, 100), (64, 128, 33)], ids=str)
def test_bytes(size: tuple[int, int, int]) -> None:
    """Integers with steps along memory; in other orders warps multiply."""
    for flipped in ((False, True), (False, False), (True, True)):
        case = product(*size, I8, flipped)
        program = check(case, optimize(case.kernel, SM_90), SM_90)
        assert bool(products_of(program)) == (flipped == (False, True) and size[1] != 70), flipped
        assert any(isinstance(u.arg, Fragments) for u in program.uops)


WIDTHS = [256, 192, 96, 24, 8]


@pytest.mark.parametrize("columns", WIDTHS)
def test_widths(columns: int) -> None:
    """Instructions of other widths than those that a target is offered, and matrices that are less wide."""
    target = replace(SM_90, instructions=(f"wgmma_64x{columns}x16_f16",))
    wide = max(columns, 16)
    for shape in ((64, wide, 48, (False, columns % 16 > 0)), (128, wide + columns // 2, 32, (True, True))):
        case = product(*shape[:3], F16, shape[3])
        assert products_of(check(case, optimize(case.kernel, target), target))


def test_every_step_begins_and_waits() -> None:
    """A step waits for the copies of its operands, begins its products, asks for what is read two steps later, and
    waits for the products of the step before; sums are read when all are done."""
    program = lower(optimize(product(256, 512, 512, F16).kernel, SM_90), SM_90)
    waits = [u for u in program.uops if u.op is Ops.BARRIER]
    assert [u.arg for u in waits] == ["sent", "sent", 1, BEGIN, BEGUN, "sent", Products(1), Products(0)]
    read = [u for u in program.uops if isinstance(u.arg, DescribedArg)]
    assert {u.arg.along for u in read} == {True, False} and all(u.arg.stride == 8 * u.arg.width for u in read)
    memories = [u for u in program.uops if u.op is Ops.BUFFER and u.arg.space is Space.SHARED]
    assert len(memories) == 2 and all(u.arg.swizzle for u in memories)


def test_products_of_one_step_are_waited_for_at_once() -> None:
    program = lower(optimize(product(128, 512, 64, F16).kernel, SM_90), SM_90)
    assert [u.arg for u in program.uops if u.op is Ops.BARRIER] == [None, BEGIN, BEGUN, Products(0)]


# -- what is legal ----------------------------------------------------------------------------------------------------
def scheduled() -> tuple[UOp, list[Stage], UOp]:
    """A kernel before its operands are staged, and what stages them; the whole kernel."""
    kernel = product(256, 512, 256, F16).kernel
    schedule = heuristic(kernel, SM_90)
    stages = [a for a in schedule if isinstance(a, Stage)]
    first = schedule.index(stages[0])
    return apply(kernel, schedule[:first]), stages, kernel


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"swizzle": 48}, "are swizzled"), ({"pad": 8}, "are swizzled"),
        ({"space": Space.REGISTER}, "shared memory"),
        ({"lag": 3}, "one step at least"), ({"lag": -1}, "one step at least"), ({"slots": 1}, "one step at least"),
    ],
)  # fmt: skip
def test_what_stages_refuse(change: dict[str, Any], why: str) -> None:
    kernel, (stage, *_), _ = scheduled()
    with pytest.raises(ScheduleError, match=why):
        replace(stage, **change).apply(kernel)


def test_rows_that_are_not_whole_are_no_matrix() -> None:
    kernel = product(256, 512, 240, F16).kernel
    schedule = tuple(a for a in heuristic(kernel, SM_90) if not isinstance(a, Stage))
    narrow = tuple(replace(a, factor=16) if str(a) == "split(r0, 64)" else a for a in schedule)
    with pytest.raises(ScheduleError, match="whole rows of 64 bytes"):
        Stage(1, "r0.0", Space.SHARED, raw=True, swizzle=64).apply(apply(kernel, narrow[: len(narrow) - 2]))


def test_only_hopper_has_them() -> None:
    """Others keep mma.sync, and so do matrices of few rows."""
    for arch in NVIDIA:
        has = any(INSTRUCTIONS[n].shared for n in nvidia_target(arch).instructions)
        assert has == (arch in ("sm_90", "sm_90a"))
        assert not any(INSTRUCTIONS[n].shared for n in nvidia_target(arch, portable=True).instructions)
    program = lower(optimize(product(48, 512, 256, F16).kernel, SM_90), SM_90)
    names = {u.arg.name for u in program.uops if isinstance(u.arg, Fragments)}
    assert names == {"mma_sync_16x16x16_f16"}


def test_operands_elsewhere_keep_the_arithmetic() -> None:
    """Tensorize alone is no product of a warpgroup: what is not in shared memory is multiplied by warps."""
    kernel, _, _ = scheduled()
    program = lower(kernel, SM_90)
    assert not products_of(program) and any(isinstance(u.arg, Fragments) for u in program.uops)


@pytest.mark.parametrize("size", [(4096, 4096, 4096), (8192, 8192, 1024)])
def test_large_products_have_large_tiles(size: tuple[int, int, int]) -> None:
    from tests.tuning.test_variants import product as large

    schedule = " ".join(map(str, heuristic(large(*size), SM_90)))
    assert "tensorize(r0.1.1, wgmma_64x256x16_f16)" in schedule
    assert schedule.count("slots=4, swizzle=128, lag=1") == 2
