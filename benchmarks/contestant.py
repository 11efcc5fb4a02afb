"""What is measured, seen from inside its own process: the contract every library is wrapped in.

This module is imported by the interpreters of peers too: it needs nothing but the standard library and NumPy.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Arrays: TypeAlias = dict[str, npt.NDArray[np.generic]]


class Absent(Exception):
    """Something that is not here, with what to do about it: "onnxruntime is not installed: `make bench-peers`"."""


class Contestant:
    """One library with one piece of work, in a process of its own.

    `__init__(**parameters)` gets the parameters of its `Worker` (JSON values) and sets everything up: inputs, weights,
    compiled code. One contestant may know several tasks that share what was set up, such as decode and prefill of one
    model. It raises `Absent` (or ImportError) where what it needs is missing.
    """

    def versions(self) -> dict[str, str]:
        """Names and versions of what is measured here."""
        return {}

    def run(self, task: str, repeat: int) -> float:
        """Do `task` `repeat` times and wait until it is complete; wall seconds of all together.

        Preparing that belongs to no measurement (resetting a cache) stays outside of the seconds. A contestant that is
        a bound, such as a bandwidth, gives the seconds the task would take at that bound.
        """
        raise NotImplementedError(f"{type(self).__name__}.run")

    def result(self, task: str) -> Arrays | None:
        """What `task` computes, to be compared with what others compute; None for a bound."""
        return None

    def notes(self, task: str) -> dict[str, Any]:
        """Figures of interest beside the time (bytes, kernels, adapter); JSON values."""
        return {}

    def close(self) -> None:
        """Give back what the end of the process does not (a browser)."""
