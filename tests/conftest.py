"""Fixtures shared by all tests. The intermediate specs are checked in every test (SPEC=1)."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("SPEC", "1")
# whatever was tuned on this machine: tests see the schedules of the package alone
os.environ["TINYWEB_SCHEDULES"] = str(Path(__file__).with_name("no-schedules.json"))

# PyTorch's and NumPy's threads spin while they wait: with several workers of pytest, for processors that others need
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
# Mesa's software adapter compiles each kernel for the processor: without LLVM's optimisation, as most run once
# (`make test-all` leaves it on)
os.environ.setdefault("GALLIVM_PERF", "nopt")
os.environ.setdefault("TINYWEB_OPENCL_OPTIONS", "-cl-opt-disable")  # so does PoCL
os.environ.setdefault("TINYWEB_OPENCL_SECONDS", "500")  # which compiles as a kernel begins: on a busy machine, long

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parent.parent

pytest_plugins = [
    f"tests.control.{name}" for name in ("drivers", "seeds", "order", "second_tries", "shards", "shared", "stacks")
]


def pytest_collection_finish() -> None:
    """What is imported by now stays: garbage collections need not go through all of PyTorch, nor so often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What a file of tests leaves behind, schedules that are known and modules that were loaded, stays too: a worker
    comes to hold millions of objects, and a collection that a test asks for would take seconds.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    """What is garbage by now is looked at once: pytest would go through everything five times as it ends."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors, for `-n auto`: some always wait for a browser, a server or a lock."""
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) + 1


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The embedded chat model."""
    return ROOT / "assets" / "models" / "tinychat-7m"


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    """A headless Chromium with WebGPU on SwiftShader. Every test opens a context of its own."""
    # most tests need no browser, and run where Playwright is not installed
    from playwright.sync_api import sync_playwright

    from tests.control.browsers import launch

    with sync_playwright() as playwright:
        browser = launch(playwright.chromium)
        yield browser
        browser.close()
