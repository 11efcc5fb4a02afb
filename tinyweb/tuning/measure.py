"""Times programs in a process of its own: one that hangs or crashes costs that process, not this one."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tinyweb
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.program import Program
from tinyweb.tuning.search import MeasureError, Timing
from tinyweb.tuning.wire import Job, Memory, receive, send

START_SECONDS = 120.0  # opening a device and compiling a batch
HANG_SECONDS = 5.0  # beyond many times what the reference takes
HANG_FACTOR = 50.0


class LostError(Exception):
    """The worker is gone; `program` is what it was running, None if it was running none."""

    def __init__(self, program: int | None, problem: str):
        super().__init__(problem)
        self.program, self.problem = program, problem


class Worker:
    """The process, started when it is needed and again after it was lost."""

    def __init__(self, device: str, command: Sequence[str] | None = None):
        self.device = device
        self.command = list(command or (sys.executable, "-m", "tinyweb.tuning.worker", device))
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[Any] = queue.Queue()

    def _start(self) -> subprocess.Popen[bytes]:
        root = str(Path(tinyweb.__file__).resolve().parent.parent)
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path},
        )
        answers = self._answers = queue.Queue()

        def listen() -> None:
            assert process.stdout is not None
            try:
                while True:
                    answers.put(receive(process.stdout))
            except (EOFError, OSError, ValueError):
                answers.put(None)

        threading.Thread(target=listen, daemon=True).start()
        return process

    def run(self, job: Job) -> tuple[dict[int, list[float]], dict[int, str]]:
        """Seconds by program and turn, and problems by program. LostError where the worker crashes or hangs."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = self._start()
        try:
            assert self._process.stdin is not None
            send(self._process.stdin, job)
        except OSError:
            raise self._lost(None, "ended before it was asked") from None
        running, patience = None, START_SECONDS
        while True:
            try:
                answer = self._answers.get(timeout=patience)
            except queue.Empty:
                raise self._lost(running, f"did not finish within {patience:.0f} s") from None
            if answer is None:
                raise self._lost(running, "crashed")
            if answer[0] == "done":
                return answer[1], answer[2]
            if answer[0] == "run":
                running = answer[1]
            elif answer[0] == "reference":
                patience = HANG_SECONDS + HANG_FACTOR * answer[1]

    def _lost(self, program: int | None, problem: str) -> LostError:
        self.close()
        return LostError(program, problem)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):  # what it was not told any more is of no use to anybody
                        stream.close()


class RuntimeMeasure:
    """`search.Measure` for one kernel on one device; the worker may serve many of them."""

    def __init__(self, kernel: UOp, worker: Worker, seconds: float = 10.0):
        """`seconds`: about how long the turns of one call may take together."""
        self.worker, self.seconds = worker, seconds
        self.memory = memory_of(kernel)
        self.bindings = typical_bindings(kernel)

    def __call__(self, programs: Sequence[Program], turns: int, fresh: bool = False) -> list[Timing]:
        if fresh:
            self.worker.close()
        problems: dict[int, str] = {}
        for _ in range(len(programs)):
            left = [i for i in range(len(programs)) if i not in problems]
            job = Job(tuple(programs[i] for i in left), self.memory, self.bindings, turns, self.seconds)
            try:
                taken, found = self.worker.run(job)
            except LostError as lost:
                # a kernel that was lost is left out, and the others begin again
                if not lost.program:
                    raise MeasureError(f"{programs[0].name} on {self.worker.device} {lost.problem}.") from None
                problems[left[lost.program]] = lost.problem
                continue
            if 0 in found or 0 not in taken:
                raise MeasureError(f"{programs[0].name} on {self.worker.device}: {found.get(0, 'was not timed')}.")
            problems |= {left[i]: problem for i, problem in found.items()}
            seconds = {left[i]: tuple(s) for i, s in taken.items()}
            return [Timing(seconds.get(i, ()), problems.get(i, "")) for i in range(len(programs))]
        raise MeasureError(f"none of the programs of {programs[0].name} could be run on {self.worker.device}.")


def memory_of(kernel: UOp) -> tuple[Memory, ...]:
    """The arguments of a kernel by slot, with what to fill them with."""
    params = {u.arg.slot: u for u in kernel.toposort() if u.op is Ops.PARAM}
    stored = {s.src[0] for s in kernel.src}
    bounds = _index_bounds(kernel)
    slots = range(max(params, default=-1) + 1)
    # a slot that the kernel does not read is handed in all the same
    return tuple(
        Memory(p.dtype, p.arg.size, bounds.get(p, 0), p in stored)
        if (p := params.get(slot)) is not None
        else Memory(dtypes.uint32, 1, 0, False)
        for slot in slots
    )


def _index_bounds(kernel: UOp) -> dict[UOp, int]:
    """How large integers read from memory may be where they are indices: what they pick from has so many rows."""
    bounds: dict[UOp, int] = {}
    for access in kernel.toposort():
        if access.op not in (Ops.LOAD, Ops.STORE):
            continue
        pending = [(access.src[1], 1)]
        while pending:
            u, stride = pending.pop()
            if u.op is Ops.LOAD:
                rows = max(access.src[0].arg.size // stride, 1)
                bounds[u.src[0]] = min(bounds.get(u.src[0], rows), rows)
            elif u.op is Ops.MUL and u.src[1].op is Ops.CONST:
                pending.append((u.src[0], stride * max(abs(int(u.src[1].arg)), 1)))
            elif u.op is not Ops.REDUCE:
                pending += [(s, stride) for s in u.src if s.op is not Ops.CONST]
    return bounds


def typical_bindings(kernel: UOp) -> tuple[dict[str, int], ...]:
    """Values of the kernel's variables to time it with: the largest, and half of it."""
    variables = kernel.variables()
    if not variables:
        return ({},)
    largest = {str(v.arg[0]): int(v.arg[2]) for v in variables}
    half = {str(v.arg[0]): (int(v.arg[1]) + int(v.arg[2])) // 2 for v in variables}
    return (largest, half)
