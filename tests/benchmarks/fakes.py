"""Contestants that compute next to nothing and say how long it took; imported by the harness's child processes."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

import numpy as np

from benchmarks.contestant import Absent, Arrays, Contestant


class Fake(Contestant):
    """Takes `seconds` per run, in its own words; every third run is `noise` times as slow.

    `fails`: "setup", "absent", "import", "run" (from the third run on), "die", "hang", "wrong" (results).
    """

    def __init__(self, seconds: float = 0.01, noise: float = 1.0, fails: str = "", name: str = "fake"):
        self.seconds, self.noise, self.fails, self.name = seconds, noise, fails, name
        self.runs = 0
        print("something on standard output")
        if fails == "setup":
            raise ValueError("no such size\nand more lines")
        if fails == "absent":
            raise Absent("no GPU here")
        if fails == "import":
            importlib.import_module("a_library_that_does_not_exist.part")

    def versions(self) -> dict[str, str]:
        return {self.name: "1.2"}

    def run(self, task: str, repeat: int) -> float:
        self.runs += 1
        if self.fails == "die" and self.runs > 2:
            os._exit(3)
        if self.fails == "hang":
            time.sleep(60)
        if self.fails == "run" and self.runs > 2:
            raise RuntimeError("out of memory")
        return self.seconds * repeat * (self.noise if self.runs % 3 == 0 else 1)

    def result(self, task: str) -> Arrays:
        return {"out": np.arange(4.0) + (0.1 if self.fails == "wrong" else 0)}

    def notes(self, task: str) -> dict[str, Any]:
        return {"pid": os.getpid(), "threads": os.environ.get("OPENBLAS_NUM_THREADS")}
