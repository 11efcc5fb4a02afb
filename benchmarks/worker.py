"""Contestants in processes of their own: the pipe between the harness and a child.

One JSON object per line in each direction. Every library then has its own threads, its own environment and, where need
be, its own interpreter, and turns still alternate: a child that is not asked does nothing.

    python -m benchmarks.worker benchmarks.native.kernels:Matmul '{"size": 1024}'
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestant import Absent, Arrays, Contestant

ROOT = Path(__file__).resolve().parent.parent
THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "TINYWEB_THREADS",
)  # fmt: skip
PATIENCE = float(os.environ.get("TINYWEB_BENCH_PATIENCE") or 1)  # preparing takes longer on a busy machine
SETUP_SECONDS, CALL_SECONDS = 600.0 * PATIENCE, 180.0 * PATIENCE


def peer_python() -> str:
    """The interpreter that has the peers: TINYWEB_BENCH_PYTHON, else what `make bench-peers` made, else this one."""
    if chosen := os.environ.get("TINYWEB_BENCH_PYTHON"):
        return chosen
    made = ROOT / ".venv-bench" / "bin" / "python"
    return str(made) if made.exists() else sys.executable


@dataclass(frozen=True)
class Worker:
    """How to start a contestant. Equal workers are one process, whichever rows they appear in.

    `contestant` is "module:class". `parameters` are name-value pairs of JSON values. `threads` is set in the
    environment variables of all thread pools known here; the contestant gets it as a parameter too if it is not None.
    `peer` contestants run with the interpreter of the peers. `environment` is added to the child's.
    """

    contestant: str
    parameters: tuple[tuple[str, Any], ...] = ()
    threads: int | None = None
    peer: bool = False
    environment: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        contestant: str,
        *,
        threads: int | None = None,
        peer: bool = False,
        environment: Mapping[str, str] | None = None,
        **parameters: Any,
    ) -> Worker:
        return cls(contestant, tuple(parameters.items()), threads, peer, tuple((environment or {}).items()))

    def arguments(self) -> dict[str, Any]:
        given = dict(self.parameters)
        return given if self.threads is None else given | {"threads": self.threads}


class WorkerError(Exception):
    """A contestant that failed: one line. `absent`: what it needs is not here, which is nobody's fault."""

    def __init__(self, message: str, absent: bool = False):
        super().__init__(message)
        self.absent = absent


class Process:
    """A running contestant. Raises WorkerError where it fails, does not answer in time, or dies."""

    def __init__(self, worker: Worker, setup_seconds: float = SETUP_SECONDS, call_seconds: float = CALL_SECONDS):
        self.worker, self.call_seconds = worker, call_seconds
        environment = dict(os.environ)
        if worker.threads is not None:
            environment |= {name: str(worker.threads) for name in THREAD_VARIABLES}
        # what was tuned on this machine by chance is no part of a measurement; what the package ships is
        environment.setdefault("TINYWEB_SCHEDULES", str(ROOT / "build" / "benchmarks" / "schedules.json"))
        environment |= dict(worker.environment)
        # `-m` with the root as working directory: an interpreter that has tinyweb not installed can import this package
        command = [peer_python() if worker.peer else sys.executable, "-m", "benchmarks.worker"]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._child = subprocess.Popen(
                [*command, worker.contestant, json.dumps(worker.arguments())],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerError(f"{command[0]} cannot be started: {error.strerror}", absent=True) from error
        self._answers: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.versions: dict[str, str] = self._answer(setup_seconds)["versions"]

    @property
    def pid(self) -> int:
        return self._child.pid

    def run(self, task: str, repeat: int = 1) -> float:
        return float(self._ask(call="run", task=task, repeat=repeat)["seconds"])

    def result(self, task: str) -> Arrays | None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "result.npz"
            if not self._ask(call="result", task=task, path=str(path))["arrays"]:
                return None
            with np.load(path) as found:
                return dict(found)

    def notes(self, task: str) -> dict[str, Any]:
        return dict(self._ask(call="notes", task=task)["notes"])

    def close(self) -> None:
        if self._child.poll() is None:
            with suppress(WorkerError):
                self._ask(call="close")
            self._end()
        self._log.close()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(request).encode() + b"\n")
            self._child.stdin.flush()
        except OSError:
            raise WorkerError(self._last_words()) from None
        return self._answer(self.call_seconds)

    def _answer(self, seconds: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self._end()
            raise WorkerError(f"no answer within {seconds:.0f} s") from None
        if line is None:
            self._end()
            raise WorkerError(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"], answer["absent"])
        return answer

    def _last_words(self) -> str:
        self._child.wait()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().splitlines()
        return f"the process ended with {self._child.returncode}" + (f": {said[-1]}" if said else "")

    def _end(self) -> None:
        """The process and what it started are gone after this."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=2)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()


# -- the child's side --------------------------------------------------------------------------------------------------
def answer(contestant: Contestant, request: dict[str, Any]) -> dict[str, Any]:
    match request["call"]:
        case "run":
            return {"seconds": contestant.run(request["task"], request["repeat"])}
        case "result":
            arrays = contestant.result(request["task"])
            if arrays is not None:
                np.savez(request["path"], **arrays)  # type: ignore[arg-type]  # names are ours
            return {"arrays": arrays is not None}
        case "notes":
            return {"notes": contestant.notes(request["task"])}
        case call:
            raise ValueError(f"unknown call {call!r}")


def failure(error: BaseException) -> dict[str, Any]:
    traceback.print_exc()
    if isinstance(error, ImportError) and error.name:
        package = error.name.partition(".")[0]
        return {"error": f"{package} is not installed: `make bench-peers`", "absent": True}
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    absent = isinstance(error, Absent)
    return {"error": text if absent else f"{type(error).__name__}: {text}", "absent": absent}


def main(name: str, parameters: str) -> None:
    # what libraries print must not come between answers
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(value: dict[str, Any]) -> None:
        replies.write(json.dumps(value) + "\n")
        replies.flush()

    try:
        module, _, attribute = name.partition(":")
        contestant: Contestant = getattr(importlib.import_module(module), attribute)(**json.loads(parameters))
        reply({"versions": contestant.versions()})
    except Exception as error:
        reply(failure(error))
        return
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["call"] == "close":
                contestant.close()
                reply({})
                return
            reply(answer(contestant, request))
        except Exception as error:
            reply(failure(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
