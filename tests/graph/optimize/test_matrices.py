"""Instructions for matrices: which products of integers become them, and their values where no processor has one."""

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import Case, check, dots, integer_product, integers_of_all_sizes
from tests.graph.lower.test_compiled import check_on
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import Bind, ScheduleError, Split, Tensorize, apply, optimize
from tinyweb.graph.optimize.instructions import MMA_2X2X8_I8
from tinyweb.graph.program import Program
from tinyweb.graph.target import I8MM, cpu_target

TARGET = cpu_target(4, 2, registers=32, instructions=I8MM)
MMA = MMA_2X2X8_I8.name
CASES = integers_of_all_sizes()
# fewer rows than are worth it, or steps that are no multiple of the instruction's
OTHERWISE = ("integer_product_2_1031_88_transposed", "integer_product_64_48_100")


def matrices(program: Program) -> list[UOp]:
    return [u for u in program.uops if u.op is Ops.DOT and isinstance(u.arg, tuple)]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_products_of_integers(case: Case) -> None:
    """Made of the instruction alone, whatever the numbers of rows, columns and groups."""
    program = check(case, optimize(case.kernel, TARGET), TARGET)
    assert bool(matrices(program)) == (case.name not in OTHERWISE)
    assert not matrices(program) or not any(u.op is Ops.MUL and u.dtype is dtypes.int32 for u in program.uops)


def test_where_no_processor_has_it() -> None:
    """The text that stands for the instruction elsewhere computes the same."""
    check_on("CPU", CASES, TARGET)


def test_reads_whole_operands() -> None:
    """What is staged lies as the instruction takes it: one load for both rows, or columns, of eight bytes."""
    groups = [dots(t, 32, 64, 8) for t in (dtypes.int8, dtypes.int4, dtypes.uint4)]
    for case in (integer_product(64, 96, 256), *groups):
        found = matrices(lower(optimize(case.kernel, TARGET), TARGET))
        assert found and all(s.op is Ops.LOAD and s.arg == 16 for u in found for s in u.src[:2])


def test_any_schedule_computes_the_same() -> None:
    """Also where operands are not staged, or lie otherwise."""
    tiles = [Split("i0", 4), Bind("i0.1", AxisKind.UNROLL), Split("i1", 8), Bind("i1.1", AxisKind.VECTOR)]
    for transposed in (False, True):
        case = integer_product(12, 16, 24, transposed)
        program = check(case, apply(case.kernel, [*tiles, Split("r0", 8), Tensorize("r0.1", MMA)]), TARGET)
        assert bool(matrices(program)) == transposed
        whole = integer_product(12, 16, 8, transposed)  # nothing is left to loop over
        check(whole, apply(whole.kernel, [*tiles, Tensorize("r0", MMA)]), TARGET)


@pytest.mark.parametrize("rows", [3, 1])
def test_refused_without_a_tile(rows: int) -> None:
    case = integer_product(rows, 8, 16)
    tiles = [Bind("i1", AxisKind.VECTOR), *([Bind("i0", AxisKind.UNROLL)] if rows > 1 else [])]
    with pytest.raises(ScheduleError, match="2 × 2 sums of products"):
        apply(case.kernel, [*tiles, Split("r0", 8), Tensorize("r0.1", MMA)])
    assert np.all(np.array(case.after[0].shape) == (rows, 8))
