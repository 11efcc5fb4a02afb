"""What is written of measurements, and how the machine is kept quiet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarks import report, run
from benchmarks.alone import alone, descendants
from benchmarks.harness import MILLISECONDS, Measured, Outcome, Peer, Row, Side
from benchmarks.history import Entry, Machine, entries
from benchmarks.worker import Worker

WORKER = Worker.of("tests.benchmarks.fakes:Fake")


HERE = {"processor": "a chip", "cores": 2, "vectors": ["avx2"], "system": "Linux", "python": "3.11"}
DATE = "2026-01-02T03:04:05+00:00"


def outcome(ours: list[float], theirs: list[float], target: float = 1.0, **more) -> Outcome:
    a, b = Side("tinyweb", WORKER), Side("peer", WORKER, "other")
    row = Row("row", "group", "some work", a, (Peer(b, target, None),), MILLISECONDS)
    mine = Measured(a, ours, versions={"tinyweb": "1"})
    return Outcome(row, mine, [Measured(b, theirs, problem="" if theirs else "not here")], **more)


def found(*outcomes: Outcome) -> list[Entry]:
    record = json.loads(json.dumps(report.json_record(outcomes, HERE) | {"commit": "abc1234"}))
    return list(entries(record, DATE))


def test_lines_show_figures_ratio_verdict_and_date():
    assert report.lines(found(outcome([0.01], [0.02]))) == [
        "| some work | 10.0 ms | peer | 20.0 ms | **2.00** (2.00 … 2.00) | 1 | ✓ | 2026-01-02, abc1234 |"
    ]
    assert "| **0.50** (0.50 … 0.50) | 1 | ✗ |" in report.lines(found(outcome([0.02], [0.01])))[0]


def test_lines_say_what_is_missing():
    dated = "| 2026-01-02, abc1234 |"
    assert report.lines(found(outcome([0.01], []))) == [f"| some work | 10.0 ms | peer | – | not here | 1 |  {dated}"]
    assert report.lines(found(outcome([], [], problem="no GPU here"))) == [
        f"| some work | – |  | – | no GPU here |  |  {dated}"
    ]


def test_means_by_peer():
    """Of what was judged; one ratio is no mean."""
    fast, slow = found(outcome([0.01], [0.04]), outcome([0.02], [0.02]))
    assert report.means([fast, replace(slow, row="other")]) == [
        "peer: geometric mean of 2 ratios 2.00, least 1.00 (other)"
    ]
    assert report.means([fast]) == report.means(found(outcome([0.01], []))) == []


def test_record_is_json_with_raw_turns():
    outcomes = [
        outcome([0.01, 0.02, 0.03], [0.02, 0.04, 0.06]),
        outcome([], [], problem="left out", left_out=True),
    ]
    record = json.loads(json.dumps(report.json_record(outcomes, HERE, 12.3)))
    first, second = record["rows"]
    assert first["ours"]["turns"] == [0.01, 0.02, 0.03] and first["ours"]["figure"] == 20
    assert first["peers"][0]["ratio"] == 2 and first["peers"][0]["met"] is True
    assert first["peers"][0]["interval"] == [2, 2] and first["peers"][0]["confidence"] == 0.75
    assert second["left_out"] and record["versions"]["tinyweb"] == "1" and record["machine"]["cores"] == 2
    other = replace(outcomes[0].row, name="never")
    text = report.markdown([outcomes[0].row, other], found(*outcomes), Machine("a chip", 2), record)
    assert (
        "1 of 1 targets measured are met." in text and "Not measured here yet (their turn comes first): `never`" in text
    )
    assert "**2.00**" not in report.markdown([other], found(*outcomes), Machine("a chip", 2), record)


def test_whatever_this_machine_is_has_a_name():
    machine = Machine.of(report.machine())
    assert machine.processor and machine.cores > 0


def test_every_row_has_a_name_of_its_own_and_known_parts(capsys):
    rows = run.rows([])
    names = [row.name for row in rows]
    assert len(set(names)) == len(names) > 30
    assert all(row.priority in (1, 2, 3) and row.seconds > 0 for row in rows)
    assert sum(row.seconds for row in rows if row.priority == 1) < run.SECONDS
    # what is lost has a target, too
    assert all(row.peers and all(peer.target > 0 for peer in row.peers) for row in rows)
    run.main(["--list", "kernels"])
    assert "matmul-f32-1024-2t" in capsys.readouterr().out


def test_wrong_arguments():
    with pytest.raises(SystemExit, match="unknown group 'nothing'"):
        run.main(["nothing"])
    with pytest.raises(SystemExit, match="no row matches"):
        run.main(["kernels", "--only", "no such row"])


def test_quiet_context_locks_and_restores_niceness(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        before = os.getpriority(os.PRIO_PROCESS, 0), os.getpriority(os.PRIO_PROCESS, child.pid)
        # raising niceness and lowering it again takes the right to
        wanted = before[1] if os.getuid() else 5
        with alone(tmp_path / "lock", wanted)([child.pid]):
            assert os.getpriority(os.PRIO_PROCESS, child.pid) == wanted
            with (tmp_path / "lock").open("w") as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert (os.getpriority(os.PRIO_PROCESS, 0), os.getpriority(os.PRIO_PROCESS, child.pid)) == before
        assert child.pid in descendants([os.getpid()])
    finally:
        child.kill()
        child.wait(60)
