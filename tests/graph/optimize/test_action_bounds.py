"""Actions at the ends of what is legal: the last that is taken, the first that is refused."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.graph.lower.hand_kernels import axes, kernel, param, total
from tinyweb.graph.ir import Axis, AxisKind, UOp
from tinyweb.graph.optimize import (
    Action,
    Bind,
    Peel,
    Reorder,
    ScheduleError,
    Split,
    apply,
    from_json,
    to_json,
)
from tinyweb.graph.optimize.rewrite import ranges_of

GRID, THREAD, VECTOR, UNROLL = AxisKind.GRID, AxisKind.THREAD, AxisKind.VECTOR, AxisKind.UNROLL


def sums(rows: int, columns: int, in_place: bool = False) -> UOp:
    """Sums of rows."""
    (i,), (r,) = axes(rows), axes(columns, reduce=True)
    out = param(0, rows)
    value = total(param(1, rows * columns).load(i * columns + r), r)
    return kernel(out.store(i, value + out.load(i) if in_place else value))


def axis(k: UOp, name: str) -> Axis:
    (found,) = (r.arg for r in ranges_of(k) if r.arg.name == name)
    return found


def sizes(k: UOp) -> dict[str, int]:
    return {r.arg.name: r.src[0].arg for r in ranges_of(k)}


def refused(k: UOp, *actions: Action) -> str:
    with pytest.raises(ScheduleError) as error:
        apply(k, actions)
    return str(error.value)


def test_dimensions() -> None:
    k = sums(12, 8)
    for dim in (0, 1, 2):
        for kind in (GRID, THREAD):
            bound = axis(apply(k, (Bind("i0", kind, dim),)), "i0")
            assert (bound.kind, bound.dim, bound.reduce) == (kind, dim, False)
    for dim in (-1, 3):
        assert f"dimension {dim} does not exist" in refused(k, Bind("i0", GRID, dim))
    for kind in (VECTOR, UNROLL):
        assert axis(apply(k, (Bind("i0", kind),)), "i0").kind is kind
        assert "dimension 1 does not exist" in refused(k, Bind("i0", kind, 1))
    assert "cannot reduce together" in refused(k, Bind("r0", GRID))
    assert "unless it is bound" in refused(k, Bind("i0", AxisKind.LOOP))
    assert "bound to grid already" in refused(k, Bind("i0", GRID), Bind("i0", VECTOR))
    assert "bound to grid already" in refused(k, Bind("i0", GRID), Split("i0", 2))


def test_numbers_of_lanes_and_threads() -> None:
    assert axis(apply(sums(256, 8), (Bind("i0", VECTOR),)), "i0").kind is VECTOR
    assert "257 lanes are more than 256" in refused(sums(257, 8), Bind("i0", VECTOR))
    assert axis(apply(sums(1024, 8), (Bind("i0", THREAD),)), "i0").kind is THREAD
    assert "1025 threads are more than 1024" in refused(sums(1025, 8), Bind("i0", THREAD))


def test_factors() -> None:
    k = sums(12, 10)
    assert sizes(apply(k, (Split("i0", 1),))) == {"i0.0": 12, "r0": 10}
    assert sizes(apply(k, (Split("i0", 5),))) == {"i0.0": 3, "i0.1": 5, "r0": 10}
    assert sizes(apply(k, (Split("i0", 13),)))["i0.1"] == 13
    assert "at least 1" in refused(k, Split("i0", 0)) and "at least 1" in refused(k, Peel("r0", 0))
    assert sizes(apply(k, (Split("i0", 5, overlap=True),))) == {"i0.0": 3, "i0.1": 5, "r0": 10}
    assert "at least 13 of them" in refused(k, Split("i0", 13, overlap=True))
    assert "not updated in place" in refused(sums(12, 10, in_place=True), Split("i0", 5, overlap=True))
    assert "overlap only of outputs" in refused(k, Split("r0", 3, overlap=True))
    assert sizes(apply(k, (Peel("r0", 4),))) == {"i0": 12, "r0.0": 2, "r0.1": 4, "r0.2": 2}
    assert sizes(apply(k, (Peel("r0", 5),))) == {"i0": 12, "r0.0": 2, "r0.1": 5}  # nothing is left over
    assert sizes(apply(k, (Peel("r0", 8),)))["r0.2"] == 2
    assert "too short for blocks of 11" in refused(k, Peel("r0", 11))
    assert "a loop that is reduced" in refused(k, Peel("i0", 4))


def test_order() -> None:
    k = apply(sums(12, 8), (Split("i0", 4), Split("r0", 2)))
    names = [r.arg.name for r in ranges_of(apply(k, (Reorder(("i0.1", "i0.0")),)))]
    assert [n for n in names if n[0] == "i"] == ["i0.1", "i0.0"] and [n for n in names if n[0] == "r"] == [
        "r0.0",
        "r0.1",
    ]
    assert "named twice" in refused(k, Reorder(("i0.0", "i0.0")))
    assert "nest apart" in refused(k, Reorder(("i0.0", "r0.0")))


def test_files_of_actions() -> None:
    schedule = (Split("i0", 4, overlap=True), Bind("i0.1", VECTOR), Bind("i0.0", GRID, 2), Reorder(("a", "b")))
    assert from_json(to_json(schedule)) == schedule
    assert [str(a) for a in schedule] == [
        "split(i0, 4, overlap)", "bind(i0.1, vector)", "bind(i0.0, grid.z)", "reorder(a, b)",
    ]  # fmt: skip
    good = to_json(schedule)[0]
    wrongs: tuple[Any, ...] = (
        good | {"factor": True}, good | {"factor": "4"}, good | {"factor": 1 << 31}, good | {"axis": 3},
        good | {"action": "tear"}, good | {"more": 1}, {"action": "split", "axis": "i0"}, [], "split",
    )  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(ScheduleError, match="not an action"):
            from_json([wrong])
    assert from_json([good | {"factor": (1 << 31) - 1}])
    with pytest.raises(ScheduleError, match="at most"):
        from_json(cast(Any, {"action": "split"}))
