"""How far a mask lets a row be seen: behind the bound every score is -inf, and masks of the usual kinds have one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import param
from tests.graph.symbolic.oracle import RANGE, all_values, leaf, meaning, show
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import AxisKind, Ops, UOp, Variable
from tinyweb.graph.optimize.online import visible

key, query = RANGE("key", 12, 5), RANGE("query", 7, 1)
LANE = RANGE("lane", 4, 2)
LANE = LANE.replace(arg=replace(LANE.arg, kind=AxisKind.VECTOR))
N = Variable("n", 0, 9)
SCORE = param(1, 12).load(key)
INF = UOp.const(-math.inf, dtypes.float32)


def bound(condition: UOp, masked: bool = False) -> UOp | None:
    """Of a row where `condition` says which scores are there, or (masked) which are not."""
    return visible(condition.where(INF, SCORE) if masked else condition.where(SCORE, INF), key)[1]


def in_type(u: UOp, dtype: DType) -> UOp:
    return u.cast(dtype)


# the condition under which a key is seen, and the bound as a number of keys
SEEN: dict[str, tuple[UOp, UOp]] = {
    "key < query": (key < query, query + 0),
    "key < query + 1": (key < query + 1, query + 1),
    "not query < key": ((query < key).logical_not(), query + 1),
    "key < n": (key < N, N + 0),
    "not n + 3 < key": ((key > N + 3).logical_not(), N + 4),
    "key + 2 < 2 n + query": (key + 2 < N * 2 + query, N * 2 + query - 2),
    "key < query or key = query": ((key < query) | key.equal(query), query + 1),
    "key = query or key < query": (key.equal(query) | (key < query), query + 1),
    "in int32": (in_type(key, dtypes.int32) < in_type(query, dtypes.int32) + 1, query + 1),
    "in int16": (in_type(key, dtypes.int16) < in_type(query + 1, dtypes.int16), query + 1),
    "key < 5": (key < 5, UOp.const(5, dtypes.index)),
    "key < query and n < query": ((key < query) & (query > N), query + 0),
}
# conditions of which nothing is known, or nothing that bounds the steps
NONE: dict[str, UOp] = {
    "query < key": query < key,
    "not key < query": (key < query).logical_not(),
    "2 key < query": key * 2 < query,
    "query < n": query < N,
    "key = query": key.equal(query),
    "key < query or n = query": (key < query) | N.equal(query),
    "key < query or n < query": (key < query) | (query > N),
    "key % 3 < query": key % 3 < query,
    "that wraps around": in_type(key * 100, dtypes.int8) < in_type(query, dtypes.int8),
    "of floats": in_type(key, dtypes.float32) < in_type(query, dtypes.float32),
    "from memory": param(2, 12, dtypes.bool).load(key),
    "by memory": in_type(key, dtypes.int32) < param(2, 12, dtypes.int32).load(query),
}


def numbers(found: UOp, roots: list[UOp]) -> tuple[np.ndarray, dict[UOp, np.ndarray]]:
    columns = all_values([found, *roots])
    return meaning(found, columns)[0], columns


@pytest.mark.parametrize("name", SEEN)
def test_the_bound_is_the_number_of_keys_that_are_seen(name: str) -> None:
    condition, want = SEEN[name]
    # seen, or else masked: both ways of saying it, cast or not
    found = bound(condition)
    assert found is not None and bound(condition.logical_not(), masked=True) is found
    assert visible(condition.where(SCORE, INF).cast(dtypes.float64), key)[1] is found
    values, columns = numbers(found, [condition, want])
    assert (values == np.maximum(meaning(want, columns)[0], 0)).all(), show(found)
    seen = meaning(condition, columns)[0].astype(bool)
    assert (columns[key][seen] < values[seen]).all(), show(found)
    # the other way round the first keys are masked: nothing bounds the steps
    assert bound(condition, masked=True) is None and bound(condition.logical_not()) is None


@pytest.mark.parametrize("name", NONE)
def test_of_other_masks_nothing_is_known(name: str) -> None:
    assert bound(NONE[name]) is None


def test_what_is_no_mask() -> None:
    assert visible(SCORE, key) == (None, None) and visible(SCORE * 2.0, key) == (None, None)
    assert visible((key < query).where(SCORE, UOp.const(0.0, dtypes.float32)), key) == (None, None)
    assert visible((key < query).where(SCORE, UOp.const(math.inf, dtypes.float32)), key) == (None, None)
    assert visible((key < query).where(INF, INF), key) == (None, None)
    whole = (key < query).where(key, query)
    assert visible(whole, key) == (None, None)


@pytest.mark.parametrize("slope", [1, 2, -1])
def test_a_bound_holds_for_all_lanes(slope: int) -> None:
    """The lane that sees most says how far is walked."""

    def condition(lane: UOp) -> UOp:
        return key < query + lane * slope + 2

    found = bound(condition(LANE))
    assert found is not None and LANE not in found.ranges
    last = 3 if slope > 0 else 0
    values, columns = numbers(found, [query])
    assert (values == np.maximum(columns[query] + last * slope + 2, 0)).all()
    # a loop has its own bound in every step
    loop = bound(condition(RANGE("lane", 4, 2)))
    assert loop is not None and any(r.arg.name == "lane" for r in loop.ranges)


@pytest.mark.parametrize("kind", [AxisKind.VECTOR, AxisKind.UNROLL, AxisKind.THREAD])
def test_blocks_of_rows_that_begin_earlier(kind: AxisKind) -> None:
    """The last block of rows is moved up to end with the last row: the bound is that of its last row all the same."""
    block = RANGE("block", 3, 2)
    lane = RANGE("lane", 4, 3)
    lane = lane.replace(arg=replace(lane.arg, kind=kind))
    for row in (-((-(block * 4)).maximum(-5)) + lane, -((-(block * 4 + lane)).maximum(-8))):
        found = bound(key < row + 1)
        assert found is not None and found.ranges == {block}
        values, columns = numbers(found, [row])
        assert (meaning(row, columns)[0] < values).all(), show(found)
        assert values.max() == 9
    assert bound(key < (-lane + 2).maximum(lane) + 1) is None  # neither grows nor falls


def test_lanes_whose_bound_is_not_known() -> None:
    assert bound(key < LANE * N) is None
    symbolic = LANE.replace(src=(leaf("m", 1, 4),))
    assert bound(key < symbolic + 1) is None
    assert bound(key < UOp(Ops.MUL, dtypes.index, (LANE, LANE))) is None


def test_windows_have_two_ends() -> None:
    """From behind the query back to some keys before it, however that is said."""
    near, past = query < key + 3, query < key
    for score in (
        (near & past.logical_not()).where(SCORE, INF),
        (near.logical_not() | past).where(INF, SCORE),
        near.where(past.where(INF, SCORE), INF),
        past.where(INF, near.where(SCORE, INF).cast(dtypes.float64)),
    ):
        begin, end = visible(score, key)
        assert begin is not None and end is not None
        for found, want in ((begin, query - 2), (end, query + 1)):
            values, columns = numbers(found, [want])
            assert (values == np.maximum(meaning(want, columns)[0], 0)).all(), show(found)


@pytest.mark.parametrize("slope", [1, -1])
def test_a_window_begins_with_the_lane_that_sees_the_first_key(slope: int) -> None:
    begin, end = visible((query + LANE * slope < key + 3).where(SCORE, INF), key)
    assert begin is not None and end is None and LANE not in begin.ranges
    values, columns = numbers(begin, [query])
    assert (values == np.maximum(columns[query] + (0 if slope > 0 else -3) - 2, 0)).all()
