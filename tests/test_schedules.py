"""Schedules that are remembered: their keys, their file, and what a damaged or hostile file can do (nothing)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.lower.hand_kernels import BY_NAME, check, linear, param, total
from tests.graph.lower.hand_kernels import axes as kernel_axes
from tests.graph.lower.hand_kernels import kernel as make_kernel
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, KernelInfo, UOp, Variable
from tinyweb.graph.optimize import (
    Bind,
    Schedule,
    ScheduleError,
    Split,
    apply,
    from_json,
    heuristic,
    optimize,
    to_json,
)
from tinyweb.graph.optimize.digest import describe, digest, target_key
from tinyweb.graph.target import Target, cpu_target, wasm_target, webgpu_target
from tinyweb.schedules import Database, DatabaseError, forget_file, remembered, user_file

CPU = cpu_target(8, 2)
MATMUL = BY_NAME["matmul"].kernel
FOUND: Schedule = (Split("i1", 5), Bind("i1.1", AxisKind.UNROLL), Bind("i0", AxisKind.GRID))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's file of schedules; it does not exist yet."""
    path = tmp_path / "folder" / "schedules.json"
    monkeypatch.setenv("TINYWEB_SCHEDULES", str(path))
    forget_file()
    yield path
    forget_file()


def optimized(target: Target = CPU) -> UOp:
    return optimize(MATMUL, target, remembered(MATMUL, target))


def lines(kernel: UOp) -> tuple[str, ...]:
    return tuple(kernel.arg.schedule)


# -- keys --------------------------------------------------------------------------------------------------------
def scores(variable: str, high: int) -> UOp:
    start = Variable(variable, 0, high)
    h, s = kernel_axes(3, start + 1)
    (d,) = kernel_axes(8, reduce=True, first=2)
    value = total(param(1, 24).load(h * 8 + d) * param(2, 1024).load(s * 8 + d), d)
    return make_kernel(param(0, 384).store(h * 128 + s, value))


def test_names_are_no_part_of_a_kernel() -> None:
    assert digest(MATMUL.replace(arg=KernelInfo("another name"))) == digest(MATMUL)
    assert digest(scores("start_pos", 15)) == digest(scores("position", 15)) != digest(scores("position", 31))


def test_every_hand_kernel_has_a_digest_of_its_own() -> None:
    assert len({digest(c.kernel) for c in BY_NAME.values()}) == len({c.kernel for c in BY_NAME.values()})
    assert digest(linear(2, 8, 16).kernel) != digest(linear(2, 8, 32).kernel)


def test_keys_are_the_same_in_every_process() -> None:
    code = (
        "from tests.graph.lower.hand_kernels import BY_NAME\n"
        "from tinyweb.graph.optimize.digest import digest, target_key\n"
        "from tinyweb.graph.target import Target, cpu_target\n"
        "print(*[digest(BY_NAME[n].kernel) for n in sorted(BY_NAME)], target_key(cpu_target(8, 2)), sep='|')"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True,
        cwd=Path(__file__).parents[1], env=os.environ | {"PYTHONHASHSEED": "1"},
    )  # fmt: skip
    want = [*(digest(BY_NAME[n].kernel) for n in sorted(BY_NAME)), target_key(CPU)]
    assert said.stdout.strip().split("|") == want


def test_targets_differ_by_what_they_can_do() -> None:
    keys = [target_key(t) for t in (CPU, cpu_target(16, 2), cpu_target(8, 4), wasm_target(), webgpu_target())]
    assert len(set(keys)) == len(keys)
    half = replace(webgpu_target(), arithmetic=webgpu_target().arithmetic | {dtypes.float16})
    assert target_key(half) != target_key(webgpu_target())
    assert "vector_lanes=8" in keys[0] and "parallel_threads=2" in keys[0] and keys[0].startswith("cpu ")


def test_kernels_are_described_for_people() -> None:
    assert describe(MATMUL) == "i0=12 i1=20 r0=16: f32[240] <- f32[192] f32[320]"
    assert "i1=≤16" in describe(scores("p", 15))


# -- use ---------------------------------------------------------------------------------------------------------
def test_what_was_found_is_used(file: Path) -> None:
    usual = lines(optimized())
    database = Database()
    database.add(MATMUL, CPU, FOUND, 0.5)
    database.save(file)
    forget_file()
    assert remembered(MATMUL, CPU) == FOUND and remembered(MATMUL, wasm_target()) is None
    assert lines(optimized()) == tuple(map(str, FOUND)) != usual
    assert lines(optimized(cpu_target(8, 4))) == tuple(map(str, heuristic(MATMUL, cpu_target(8, 4))))
    check(BY_NAME["matmul"], optimized(), CPU)


def test_the_file_can_be_read_by_people(file: Path) -> None:
    database = Database()
    database.add(MATMUL, CPU, FOUND, 0.51234)
    database.save(file)
    data = json.loads(file.read_text())
    (entry,) = data["targets"][target_key(CPU)].values()
    assert data["version"] == 1
    assert entry["schedule"] == ["split(i1, 5)", "bind(i1.1, unroll)", "bind(i0, grid.x)"]
    assert entry["ratio"] == 0.512 and entry["kernel"] == describe(MATMUL)
    assert from_json(entry["actions"]) == FOUND
    again = Database.load(file)
    again.save(file.with_name("again.json"))
    assert file.with_name("again.json").read_bytes() == file.read_bytes()
    assert sorted(os.listdir(file.parent)) == ["again.json", "schedules.json"]


def test_none_means_heuristics(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database()
    database.add(MATMUL, CPU, FOUND, 0.5)
    database.save(file)
    monkeypatch.setenv("TINYWEB_SCHEDULES", "none")
    forget_file()
    assert user_file() is None and remembered(MATMUL, CPU) is None
    assert lines(optimized()) == tuple(map(str, heuristic(MATMUL, CPU)))


STALE: list[Schedule] = [
    (Split("gone", 4),),
    (Bind("i0", AxisKind.THREAD),),  # no threads here
    (Bind("i0", AxisKind.UNROLL), Bind("i1", AxisKind.VECTOR), Bind("r0", AxisKind.UNROLL)),  # much too large
    (Bind("i0", AxisKind.GRID), Bind("i0", AxisKind.GRID)),
]


@pytest.mark.parametrize("schedule", STALE, ids=lambda s: " ".join(map(str, s)))
def test_what_no_longer_applies_is_passed_over(file: Path, schedule: Schedule) -> None:
    database = Database()
    database.add(MATMUL, CPU, schedule, 0.5)
    database.save(file)
    forget_file()
    assert remembered(MATMUL, CPU) == schedule
    assert lines(optimized()) == tuple(map(str, heuristic(MATMUL, CPU)))


# -- damage ------------------------------------------------------------------------------------------------------
DAMAGED = {
    "empty": "",
    "cut": '{"version": 1, "targets": {"cpu',
    "a list": "[]",
    "another version": '{"version": 99, "targets": {}}',
    "no targets": '{"version": 1}',
    "targets of numbers": '{"version": 1, "targets": {"cpu": 3}}',
    "deep": '{"version": 1, "targets": ' + "[" * 100_000,
    "python": "!!python/object/apply:os.system ['true']",
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_not_used(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(DatabaseError, match=r"schedules\.json"):
        Database.load(file)
    forget_file()
    with pytest.warns(UserWarning, match="are not used"):
        out = optimized()
    assert lines(out) == tuple(map(str, heuristic(MATMUL, CPU)))


def test_bytes_that_are_no_text(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(bytes(range(256)))
    with pytest.raises(DatabaseError, match="damaged"):
        Database.load(file)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(DatabaseError, match="cannot be written"):
        Database().save(tmp_path / "taken" / "schedules.json")


ENTRIES: list[Any] = [
    3, [], {}, {"ratio": "fast", "actions": []}, {"ratio": 0.5, "actions": {"action": "split"}},
    {"ratio": 0.5, "actions": [{"action": "split", "axis": "i0", "factor": "4"}]},
    {"ratio": 0.5, "actions": [{"action": "split", "axis": "i0", "factor": 1 << 80}]},
    {"ratio": 0.5, "actions": [{"action": "split", "axis": "i0" * 1000, "factor": 4}]},
    {"ratio": 0.5, "actions": [{"action": "split", "axis": "i0", "factor": 4, "apply": "os.system"}]},
    {"ratio": 0.5, "actions": [{"action": "reorder", "axes": "i0"}]},
    {"ratio": 0.5, "actions": [{"action": "split", "axis": "i0", "factor": 2}] * 1000},
    {"ratio": float("nan"), "actions": []},
]  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: str(e)[:50])
def test_a_hostile_entry_is_passed_over(file: Path, entry: Any) -> None:
    file.parent.mkdir()
    file.write_text(json.dumps({"version": 1, "targets": {target_key(CPU): {digest(MATMUL): entry}}}))
    forget_file()
    with pytest.warns(UserWarning, match="damaged"):
        out = optimized()
    assert lines(out) == tuple(map(str, heuristic(MATMUL, CPU)))


FIELDS = st.one_of(
    st.sampled_from(["i0", "i1", "r0", "i0.0", "i1.1", "grid", "vector", "unroll", "thread", "shared", "register"]),
    st.integers(-2, 2**33), st.booleans(), st.none(), st.floats(), st.lists(st.sampled_from(["i0", "i1", "r0"])),
)  # fmt: skip
NAMES = st.sampled_from(["axis", "factor", "overlap", "axes", "kind", "dim", "param", "at", "space"])
ACTION = st.builds(
    lambda kind, fields: {"action": kind, **fields},
    st.sampled_from(["split", "peel", "reorder", "bind", "group_reduce", "stage", "melt"]),
    st.dictionaries(NAMES, FIELDS, max_size=4),
)


LEGAL: list[dict[str, Any]] = to_json(
    [
        Split("i0", 4),
        Split("i1", 5),
        Split("r0", 8),
        Bind("i1", AxisKind.VECTOR),
        Bind("i0", AxisKind.GRID),
        Bind("i0.0", AxisKind.GRID),
    ]
)


def test_any_json_is_a_schedule_or_an_error() -> None:
    """Reading and applying either work or raise ScheduleError; of each there are many."""
    outcomes: Counter[str] = Counter()
    read_and_apply(outcomes)
    assert all(outcomes[name] >= 10 for name in ("not read", "not applied", "applied")), outcomes


@settings(max_examples=200)
@given(data=st.lists(st.one_of(ACTION, st.sampled_from(LEGAL), st.sampled_from(LEGAL)), min_size=1, max_size=4))
def read_and_apply(outcomes: Counter[str], data: list[dict[str, Any]]) -> None:
    try:
        schedule = from_json(data)
    except ScheduleError:
        outcomes["not read"] += 1
        return
    assert from_json(to_json(schedule)) == schedule
    try:
        apply(MATMUL, schedule)
        outcomes["applied"] += 1
    except ScheduleError:
        outcomes["not applied"] += 1
