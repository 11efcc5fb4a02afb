"""Fixtures shared by all tests. The intermediate specs are checked in every test (SPEC=1)."""

import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("SPEC", "1")
# whatever was tuned on this machine: tests see the schedules of the package alone
os.environ["TINYWEB_SCHEDULES"] = str(Path(__file__).with_name("no-schedules.json"))

import browser as browser_tool  # tools/browser.py
import pytest
from playwright.sync_api import Browser, sync_playwright

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

# What starts programs that wait for each other: browsers, workers, servers. Where a machine stands still for seconds
# one may give up, so these are tried a second time; `RERUN` in the summary names them, and is worth a look.
WITH_PROGRAMS = {"benchmarks", "e2e", "native_runtimes", "tuning"}
WITH_PROGRAMS |= {"test_cli.py", "test_make.py", "test_serve.py", "test_toolchain.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in WITH_PROGRAMS:
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The embedded chat model."""
    return ROOT / "assets" / "models" / "tinychat-7m"


@pytest.fixture(scope="session")
def chromium_path() -> Path:
    """A Chromium's program file; installed now if there was none."""
    return browser_tool.ensure()


@pytest.fixture(scope="session")
def chromium(chromium_path: Path) -> Iterator[Browser]:
    """A headless Chromium with WebGPU on SwiftShader. Every test opens a context of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=list(browser_tool.FLAGS))
        yield browser
        browser.close()
