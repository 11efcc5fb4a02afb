"""The process that runs what may hang or crash: `python -m tinyweb.tuning.worker CPU`.

It compiles the programs of a job, runs each once and compares what it computed with what the first one did, then times
them in turns, one after the other in an order that changes. It says what it is about to do before it does it, so that
the parent knows whose fault it was if nothing more is heard.
"""

from __future__ import annotations

import faulthandler
import os
import random
import sys
import time
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tinyweb.array.packing import pack, unpack
from tinyweb.errors import TinywebError
from tinyweb.graph.program import Program
from tinyweb.native_runtimes.open import open_runtime
from tinyweb.native_runtimes.protocol import Executable, Handle, Launch, Runtime
from tinyweb.tuning.wire import Job, Memory, receive, send

RUN_SECONDS = 0.003  # a run repeats a short kernel until it takes about so long
MAX_REPEATS = 256
SPREAD_BYTES = 64 << 20  # kernels walk over several copies of their memory, as a model walks over its layers
MAX_COPIES = 8
PATTERN = 1 << 20  # elements after which what memory is filled with begins again
SLOW, SLOW_SECONDS = 8.0, 0.005  # a program this much slower than the reference each time it is tried takes no turns
TRIES = 3  # one slow run may be the fault of whatever else the machine did meanwhile
ORPHANED = 600.0  # seconds without a job's end after which the process ends itself, should nobody be there to do it
# how far results may differ, as part of the largest one: sums are taken in another order
TOLERANCE = {"f64": 1e-9, "f32": 2e-4, "f16": 4e-3, "bf16": 3e-2}


class Bench:
    """One job: compiled programs and their memory."""

    def __init__(self, runtime: Runtime, job: Job, stream: IO[bytes]):
        self.runtime, self.job, self.stream = runtime, job, stream
        self.problems: dict[int, str] = {}
        self.executables = self._compile(job.programs)
        rng = np.random.default_rng(5)
        self.contents = [memoryview(fill(m, rng).data) for m in job.memory]
        total = sum(c.nbytes for c in self.contents)
        copies = min(max(SPREAD_BYTES // max(total, 1), 1), MAX_COPIES)
        self.copies = [self._memory() for _ in range(copies)]
        self.expected: list[list[bytes]] = []
        self.repeats = 1

    def _compile(self, programs: Sequence[Program]) -> list[Executable]:
        send(self.stream, ("compile",))
        try:
            return list(self.runtime.compile(programs))
        except TinywebError:
            made: list[Executable] = []
            for i, p in enumerate(programs):
                try:
                    made += self.runtime.compile([p])
                except TinywebError as error:
                    made.append(None)
                    self.problems[i] = f"does not compile: {str(error)[:500]}"
            return made

    def _memory(self) -> tuple[Handle, ...]:
        handles = []
        for content in self.contents:
            handles.append(self.runtime.allocate(-(-content.nbytes // 4) * 4))
            self.runtime.copy_in(handles[-1], content)
        return tuple(handles)

    def close(self) -> None:
        for handles in self.copies:
            for handle in handles:
                self.runtime.free(handle)

    # -- right -----------------------------------------------------------------------------------------------------
    def check(self, i: int) -> float:
        """Run program i once for every binding on fresh memory, and compare; the seconds it took."""
        send(self.stream, ("run", i))
        taken = 0.0
        for n, variables in enumerate(self.job.bindings):
            results, seconds = self._results(i, variables)
            taken += seconds
            if i == 0:
                self.expected.append(results)
            elif problem := self._differs(self.expected[n], results):
                self.problems.setdefault(i, f"with {variables or 'these sizes'} {problem}")
        return taken

    def _results(self, i: int, variables: dict[str, int]) -> tuple[list[bytes], float]:
        handles = self.copies[0]
        for handle, content, m in zip(handles, self.contents, self.job.memory, strict=True):
            if m.stored:
                self.runtime.copy_in(handle, content)
        self.runtime.synchronize()
        begin = time.perf_counter()
        self.runtime.run([Launch(self.executables[i], handles)], variables)
        self.runtime.synchronize()
        seconds = time.perf_counter() - begin
        return [
            self.runtime.copy_out(handle, m.dtype.nbytes(m.size))
            for handle, m in zip(handles, self.job.memory, strict=True)
            if m.stored
        ], seconds

    def _differs(self, expected: list[bytes], results: list[bytes]) -> str:
        stored = [m for m in self.job.memory if m.stored]
        for m, want, got in zip(stored, expected, results, strict=True):
            if want == got:
                continue
            if not m.dtype.is_float:
                return f"{m.dtype.name} results differ"
            a, b = (unpack(data, m.dtype, m.size).astype(np.float64) for data in (want, got))
            finite = np.isfinite(a)
            if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
                return "other results are not finite"
            far = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
            largest = float(np.abs(a[finite]).max(initial=0.0))
            if not far <= TOLERANCE.get(m.dtype.short, 0.1) * max(largest, 1e-6):
                return f"results differ by {far:.3g} of {largest:.3g}"
        return ""

    def _worth_timing(self, i: int, seconds: float) -> bool:
        """Whether program i computes what the first one did, and does it within `seconds` at least once."""
        for _ in range(TRIES):
            if i in self.problems:
                return False
            if self.check(i) < seconds:
                return i not in self.problems
        return False

    # -- time ------------------------------------------------------------------------------------------------------
    def seconds(self, i: int) -> float:
        """Of one launch of program i with each binding."""
        send(self.stream, ("run", i))
        handles = [handle for copy in self.copies for handle in copy]
        width = len(self.copies[0])
        slots = [range(at, at + width) for n in range(self.repeats) for at in [n % len(self.copies) * width]]
        replay = self.runtime.prepare([self.executables[i]] * self.repeats, slots, handles)
        begin = time.perf_counter()
        for variables in self.job.bindings:
            replay((), variables)
        self.runtime.synchronize()
        return (time.perf_counter() - begin) / self.repeats

    def run(self) -> None:
        """The whole job."""
        taken: dict[int, list[float]] = {}
        if 0 not in self.problems:
            first = self.check(0)
            send(self.stream, ("reference", first))
            alive = [0]
            alive += [i for i in range(1, len(self.executables)) if self._worth_timing(i, SLOW * first + SLOW_SECONDS)]
            self.seconds(0)
            self.repeats = min(max(round(RUN_SECONDS / max(self.seconds(0), 1e-9)), 1), MAX_REPEATS)
            taken = self._turns(alive)
        send(self.stream, ("done", taken, self.problems))

    def _turns(self, alive: list[int]) -> dict[int, list[float]]:
        for i in alive:
            self.seconds(i)  # lists of launches are prepared on their first run
        taken: dict[int, list[float]] = {i: [] for i in alive}
        begin, choice = time.perf_counter(), random.Random(0)
        for turn in range(self.job.turns):
            if turn > 1 and time.perf_counter() - begin > self.job.seconds:
                break
            for i in choice.sample(alive, len(alive)):
                taken[i].append(self.seconds(i))
            alive = [i for i in alive if i == 0 or min(taken[i]) < self.job.hopeless * min(taken[0])]
        return taken


def fill(m: Memory, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Values a model might have: floats between -1 and 1, small integers, indices within what they pick from."""
    n = min(m.size, PATTERN)
    values: npt.NDArray[Any]
    if m.dtype.is_float:
        values = rng.uniform(-1.0, 1.0, n).astype(np.float32)
    elif m.dtype.kind == "bool":
        values = rng.integers(0, 2, n).astype(np.bool_)
    elif m.bound or m.dtype.bits > 16:
        values = rng.integers(0, min(m.bound or 16, 1 << 31), n)
    else:
        values = rng.integers(int(m.dtype.min), int(m.dtype.max) + 1, n)
    return pack(np.resize(values, m.size), m.dtype)


def main(device: str) -> None:
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    runtime = open_runtime(device)
    while True:
        try:
            job = receive(requests)
        except EOFError:
            return
        faulthandler.dump_traceback_later(ORPHANED, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
        bench = Bench(runtime, job, answers)
        bench.run()
        bench.close()
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(sys.argv[1])
