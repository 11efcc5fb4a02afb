"""Works beside PyTorch: the table of a run, what is counted, and that all give PyTorch's answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.cliffs.count import executed, total
from benchmarks.cliffs.run import HEADER, Result, check, differs, line, main, measure, summary
from benchmarks.cliffs.work import Work, alike, needs, normal
from benchmarks.cliffs.works import FAMILIES, WORKS
from benchmarks.count.program import operations
from tinyweb import Tensor
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize.actions import apply
from tinyweb.graph.target import cpu_target
from tinyweb.tracing import capture

ROOT = Path(__file__).resolve().parents[2]
CHEAP = ("add-small", "matmul-tiny-5x7x3", "cast-f32-f16")


def cells(row: str) -> list[str]:
    return [c.strip() for c in row.strip("|").split("|")]


def test_run(tmp_path: Path) -> None:
    """Three cheap works from the command line: the table, the end, the file."""
    out = tmp_path / "out.json"
    only = f"^({'|'.join(CHEAP)})$"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "cliffs", "--only", only, "--seconds", "300", "--json", out],
        cwd=ROOT, capture_output=True, text=True, timeout=300, env={**os.environ, "TINYWEB_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    table = [cells(row) for row in done.stdout.splitlines() if row.startswith("|")]
    assert table[0] == cells(HEADER.splitlines()[0])
    assert [row[0] for row in table[2:]] == [n for n in WORKS if n in CHEAP]
    by_name = {row[0]: row[1:] for row in table[2:]}
    for ours, theirs, ratio, fastest, first, launches, *_ in by_name.values():
        assert min(map(float, (ours, theirs, ratio, fastest, first))) >= 0 and launches == "1"
    for name, needed in (("add-small", 37), ("matmul-tiny-5x7x3", 2 * 5 * 7 * 3)):
        done_of, over = map(float, by_name[name][6:8])
        assert done_of >= needed and over == pytest.approx(done_of / needed, abs=0.01)
    assert "3 works, geometric mean of the ratios" in done.stdout
    written = json.loads(out.read_text())
    assert {w["name"] for w in written["works"]} == set(CHEAP) and written["machine"]
    assert all(len(w["ours"]) == len(w["theirs"]) >= 3 and w["ratio"] > 0 for w in written["works"])


def test_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    for only, said in (("nothing like this", "no work matches"), ("(", "--only")):
        with pytest.raises(SystemExit) as stopped:
            main(["--only", only])
        assert stopped.value.code and said in f"{stopped.value.code} {capsys.readouterr().err}"


def test_there_are_enough_of_each_family() -> None:
    assert len(WORKS) >= 150
    assert len(WORKS) == sum(len(list(family.works())) for family in FAMILIES), "two works have one name"
    assert sum(name.startswith("gradient-") for name in WORKS) >= 15


def test_inputs_are_the_same_in_every_run() -> None:
    for name in ("matmul-self", "q4-group-32-rows-1", "scatter-add"):
        for a, b in zip(WORKS[name].arrays(), WORKS[name].arrays(), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("lanes, threads", [(8, 2), (4, 1), (16, 4)])
@pytest.mark.parametrize(
    "compute, count",
    [
        (lambda: Tensor.empty(64, 48) @ Tensor.empty(48, 32), 2 * 64 * 48 * 32),
        (lambda: Tensor.empty(64, 48) * 2 + Tensor.empty(64, 48), 2 * 64 * 48),
        (lambda: Tensor.empty(64, 48).permute(1, 0).contiguous(), 0),
        (lambda: Tensor.empty(64, 48) < 0.5, 64 * 48),
    ],
    ids=["product", "multiply-add", "permute", "compare"],
)  # fmt: skip
def test_operations(compute: Any, count: int, lanes: int, threads: int) -> None:
    """As written, exactly what is asked for; as scheduled, the ends of tiles may overlap."""
    (call,) = capture(lambda: compute().realize()).calls
    target = cpu_target(lanes, threads)
    assert operations(lower(apply(call.kernel, ()), target)) == count
    assert count <= executed(capture(lambda: compute().realize()), target) <= 1.25 * count


def test_needed() -> None:
    target = cpu_target()
    assert total(needs(100), target) == 100
    assert total(needs(10, exp=2), target) == 10 + 2 * total(needs(exp=1), target) and total(needs(exp=1), target) > 5


def wrong(ours: Any) -> Work:
    return Work("wrong", normal((8,)), ours, lambda x: x + 1, needs(8))


def test_other_answers_are_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYWEB_CACHE", str(tmp_path))
    for ours, said in (
        (lambda x: x + 2, "differs by"),
        (lambda x: (x + 1).reshape(2, 4), "shape"),
        (lambda x: (x + 1).int(), "int32"),
        (lambda x: [x + 1, x], "2 results"),
        (lambda x: x + Tensor.ones(3), "Error"),
    ):
        result = measure(wrong(ours), tmp_path)
        assert said in result.problem and not result.ours, result.problem
        assert result.problem in line(result) and "Not timed: wrong" in summary([result])


def test_integers_are_equal() -> None:
    work = alike("equal", normal((2,)), lambda x: x, needs())
    assert differs(work, [np.array([1, 2])], [np.array([1, 2])]) is None
    assert differs(work, [np.array([1, 2])], [np.array([1, 3])])
    assert differs(work, [np.array([1, np.nan], np.float32)], [np.array([1, 2], np.float32)])


def test_summary() -> None:
    """Ratios 0.25, 1 and 4; one first call of two seconds."""
    results = [
        Result(name, first_call=first, executed=30, needed=20, ours=[1.0] * 3, theirs=[ratio] * 3)
        for name, ratio, first in (("even", 1.0, 0.1), ("fast", 4.0, 2.0), ("slow", 0.25, 0.1))
    ]
    found = summary(results).splitlines()
    assert found[0] == "3 works, geometric mean of the ratios 1.00 (of the fastest turns 1.00)"
    assert found[1:3] == ["Ratio below 0.4: 1", "First call over 1 s: 1"]
    assert [row.split()[1] for row in found[4:]] == ["slow", "even", "fast"]
    assert cells(line(results[2])) == ["slow", "1e+03", "250", "0.25", "0.25", "0.10", "0", "30", "1.50"]


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_answers(name: str) -> None:
    assert check(WORKS[name]) is None
