"""A test process says where it stands when tools/watchdog.py asks: all its threads' stacks, on SIGUSR1."""

import faulthandler
import os
import signal
from pathlib import Path

STACKS = "TINYWEB_STACKS"  # set by the watchdog: a folder


def pytest_configure() -> None:
    folder = os.environ.get(STACKS)
    if folder and hasattr(faulthandler, "register"):  # not on Windows
        file = (Path(folder) / f"{os.getpid()}.txt").open("w")  # open as long as the process lives
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
