"""How the tests are run: parts that are run apart, and programs that may be started twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.control import shards, starting

ROOT = Path(__file__).resolve().parent.parent

IDS = [f"tests/a/test_b.py::test_{i}" for i in range(300)]
IDS += [f"tests/a/test_c.py::test_many[{i}]" for i in range(500)]
IDS += [f"tests/a/test_c.py::test_few[{i}]" for i in range(5)]


def test_shards_hold_each_test_once_and_about_as_many() -> None:
    shards_of = dict(zip(IDS, shards.assigned(IDS, 8)))
    sizes = [list(shards_of.values()).count(shard) for shard in range(1, 9)]
    assert sum(sizes) == len(IDS)
    assert all(70 < size < 135 for size in sizes)
    assert len({shard for name, shard in shards_of.items() if "test_few" in name}) == 1
    assert shards.assigned(IDS[::-1], 8) == [shards_of[name] for name in IDS[::-1]]


@pytest.mark.parametrize("text", ["", "0/8", "9/8", "2", "2/", "a/b", "-1/8"])
def test_shard_that_is_none(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="write it as 2/8"):
        shards.parsed(text)


def test_program_is_started_twice_for_the_named_exceptions_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(starting.LOG, str(tmp_path / "log"))
    outcomes: list[Exception | str] = [TimeoutError("too slow\nby far"), "up"]

    def start() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert starting.started("server", start, TimeoutError) == "up"
    assert starting.noted() == ["server: TimeoutError: too slow"]
    outcomes[:] = [ValueError("wrong"), "never"]
    with pytest.raises(ValueError, match="wrong"):
        starting.started("server", start, TimeoutError)
    assert len(starting.noted()) == 1


def test_too_many_second_tries_fail_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text("def test_alone(): pass")
    log = tmp_path / "log"
    log.write_text("server: TimeoutError: too slow\n" * (starting.MOST + 1))
    options = ["-c", os.devnull, "--rootdir", str(tmp_path), "-p", "tests.control.second_tries", "-q"]
    environment = {**os.environ, "PYTEST_ADDOPTS": "", "PYTHONPATH": str(ROOT), starting.LOG: str(log)}
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert f"started twice: {starting.MOST + 1} " in done.stdout
    assert "1 passed" in done.stdout
