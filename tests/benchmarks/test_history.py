"""Figures of all runs: kept, drawn, and whose turn is next."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from benchmarks import drawing, harness, report, run
from benchmarks.harness import MILLISECONDS, Peer, Row, Side
from benchmarks.history import HISTORY, Entry, Machine, append, judged, latest, load, rotation
from benchmarks.worker import Worker

HERE, ELSEWHERE = Machine("a chip", 2), Machine("another", 8)
WORKER = Worker.of("tests.benchmarks.fakes:Fake")
FIRST = Entry(
    "2026-01-02T03:04:05+00:00",
    "abc1234",
    HERE,
    "one",
    "work <of> one & all",
    "ms",
    "peer",
    target=0.9,
    ours=2.0,
    theirs=3.0,
    ratio=1.5,
    interval=(1.25, 1.75),
    confidence=0.96,
    turns=9,
)
LATER = replace(FIRST, date="2026-01-03T03:04:05+00:00", ratio=0.8, interval=(0.7, 0.85))


def row(name: str, priority: int = 2, target: float = 1.0) -> Row:
    peers = (Peer(Side("peer", WORKER), target, None),)
    return Row(name, "group", f"work of {name}", Side("tinyweb", WORKER), peers, MILLISECONDS, priority)


def test_entries_are_lines_that_read_the_same(tmp_path):
    file = tmp_path / "history.jsonl"
    failed = replace(FIRST, ratio=None, interval=None, confidence=None, theirs=None, turns=0, problem="no GPU — here")
    append([LATER], file)
    append([FIRST, failed], file)
    assert load(file) == [FIRST, failed, LATER]  # by date
    assert len(file.read_text().splitlines()) == 3 and load(tmp_path / "none") == []
    assert set(json.loads(FIRST.line())) >= {"date", "commit", "machine", "work", "peer", "ratio", "interval", "target"}
    file.write_text(FIRST.line() + "\n{}\n")
    with pytest.raises(ValueError, match=r"history.jsonl:2 is no entry of a history .*: remove the line"):
        load(file)


def test_latest_is_by_machine_and_peer_and_keeps_a_figure_before_a_problem():
    other = replace(FIRST, peer="other")
    failed = replace(LATER, ratio=None, problem="it broke")
    whole = replace(failed, peer="", ours=None)
    far = replace(LATER, machine=ELSEWHERE)
    assert latest([FIRST, other, LATER, far], HERE) == {"one": [LATER, other]}
    assert latest([FIRST, failed, whole, far], HERE) == {"one": [FIRST]}
    assert latest([failed, far], HERE) == {"one": [failed]} and latest([whole], HERE) == {"one": [whole]}
    assert latest([failed, FIRST], HERE) == {"one": [FIRST]}


def test_rows_take_turns():
    rows = [row("one"), row("two"), row("three", 1), row("four")]
    two = replace(LATER, row="two")
    far = replace(LATER, row="four", machine=ELSEWHERE)
    order = [r.name for r in rotation(rows, [FIRST, two, far], HERE)]
    assert order == ["three", "four", "one", "two"]  # never measured here: by priority; then the longest ago
    tried = replace(FIRST, row="three", peer="", ratio=None, problem="no GPU here")
    assert [r.name for r in rotation(rows, [FIRST, two, far, tried], HERE)] == ["four", "three", "one", "two"]


def test_every_row_has_its_turn_within_a_few_runs():
    """Runs that have time for two rows of five measure all of them in three."""
    rows = [row(f"row {i}") for i in range(5)]
    history: list[Entry] = []
    measured: list[str] = []
    for day in range(3):
        for chosen in rotation(rows, history, HERE)[:2]:
            measured.append(chosen.name)
            history.append(replace(FIRST, row=chosen.name, date=f"2026-01-0{day + 1}"))
    assert set(measured) == {r.name for r in rows}


def test_judged_by_the_targets_of_today():
    assert [e.met for e in (FIRST, LATER, replace(FIRST, ratio=None))] == [True, False, None]
    now = judged([FIRST, LATER, replace(FIRST, row="gone")], [row("one", target=1.6)])
    assert [e.target for e in now] == [1.6, 1.6, 0.9] and [e.met for e in now] == [False, False, True]


def test_picture_has_a_panel_for_every_row_and_a_point_for_every_run():
    other = replace(FIRST, row="two", work="a second work")
    text = drawing.draw([FIRST, LATER, other, replace(FIRST, machine=ELSEWHERE)], ["two", "one"], HERE)
    svg = "{http://www.w3.org/2000/svg}"
    root = ET.fromstring(text)
    panels = root.findall(f"{svg}g")
    assert [p.findtext(f"{svg}title") for p in panels] == [
        "a second work, against peer",
        "work <of> one & all, against peer",
    ]
    points = panels[1].findall(f"{svg}circle")
    assert [p.get("class") for p in points] == ["point", "point missed"]
    assert float(points[0].get("cy")) < float(points[1].get("cy"))  # faster is higher
    assert float(points[0].get("cx")) < float(points[1].get("cx"))
    # a point lies inside of its interval, and the target's line between the two
    low, high = (
        float(v) for v in panels[1].findall(f"{svg}path[@class='spread']")[0].get("d")[1:].split(" ")[1].split("V")
    )
    assert high < float(points[0].get("cy")) < low
    target = float(panels[1].find(f"{svg}path[@class='target']").get("d").split(" ")[1].split("H")[0])
    assert float(points[0].get("cy")) < target < float(points[1].get("cy"))
    assert "prefers-color-scheme: dark" in text
    assert ET.fromstring(drawing.draw([], [], HERE)).findall(f"{svg}g") == []


def test_table_and_picture_show_the_history_that_is_kept():
    """`python -m benchmarks history` was run after the last change."""
    record, rows = json.loads(run.RESULTS.read_text()), run.rows([])
    here, known = Machine.of(record["machine"]), judged(load(HISTORY), rows)
    assert run.TABLE.read_text() == report.markdown(rows, known, here, record)
    assert drawing.PICTURE.read_text() == drawing.draw(known, [r.name for r in rows], here)
    # every figure has a date and a commit, and an interval that the ratio lies in
    assert all(e.date and e.commit for e in known)
    assert all(e.interval[0] <= e.ratio <= e.interval[1] for e in known if e.ratio is not None)


def test_a_run_adds_its_figures(tmp_path, monkeypatch, capsys):
    """From the command line to the lines of a history, with a row whose sides are known."""
    worker = [Worker.of("tests.benchmarks.fakes:Fake", seconds=s) for s in (0.01, 0.02)]
    peers = (Peer(Side("peer", worker[1]), 1.0, None),)
    quick = Row("quick", "g", "quick work", Side("tinyweb", worker[0]), peers, MILLISECONDS, turns=3, turn_seconds=0)
    monkeypatch.setattr(run, "rows", lambda groups, only=None: [quick])
    file = tmp_path / "history.jsonl"
    for _ in range(2):
        run.main(["--only", "quick", "--history", str(file), "--json", str(tmp_path / "raw.json")])
    added = load(file)
    assert [(e.row, e.peer, e.ratio, e.met) for e in added] == [("quick", "peer", 2.0, True)] * 2
    assert added[0].machine == Machine.of(report.machine()) and added[0].commit
    assert "1 of 1 targets measured are met." in capsys.readouterr().out


def test_a_run_that_is_stopped_keeps_what_it_measured(tmp_path, monkeypatch):
    ours, peer = (Worker.of("tests.benchmarks.fakes:Fake", seconds=s) for s in (0.01, 0.02))
    peers = (Peer(Side("peer", peer), 1.0, None),)
    rows = [
        Row(name, "g", name, Side("tinyweb", ours), peers, MILLISECONDS, turns=3, turn_seconds=0)
        for name in ("first", "second")
    ]
    monkeypatch.setattr(run, "rows", lambda groups, only=None: rows)

    def stopped(chosen, *_, **__):
        yield harness.measure(chosen[0], harness.Pool())
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "measure_all", stopped)
    file = tmp_path / "history.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run.main(["--only", ".", "--history", str(file)])
    assert [(e.row, e.ratio) for e in load(file)] == [("first", 2.0)]
    assert [r.name for r in rotation(rows, load(file), Machine.of(report.machine()))] == ["second", "first"]
