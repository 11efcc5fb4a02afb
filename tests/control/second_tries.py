"""The summary of a run names every program that had to be started twice; more than MOST of them fail it."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.control.starting import LOG, MOST, noted, summary


def pytest_configure() -> None:
    # workers get it with the environment of the process that starts them
    os.environ.setdefault(LOG, str(Path(tempfile.gettempdir()) / f"tinyweb-second-tries-{os.getpid()}.log"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput") and len(noted()) > MOST:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write(summary() and summary() + "\n")
