"""Works of array code beside PyTorch on this processor, two threads each, or on a GPU, in alternating turns in one
process.

usage: python -m benchmarks cliffs [--only REGEX] [--seconds 900] [--json FILE] [--list]
       python -m benchmarks cliffs --device WEBGPU …             (on a GPU, beside PyTorch on CUDA)
       python -m benchmarks cliffs --wasm [--threads 2] …        (in Chromium beside onnxruntime-web: cliffs/wasm.py)

For each work: median times, their ratio (above 1: tinyweb is faster), that of the fastest turns, how long its first
call took with nothing compiled before, launches, and the operations of arithmetic that its kernels execute beside those
it needs. On a busy machine the fastest turns tell more than the medians.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import report
from benchmarks.alone import alone
from benchmarks.cliffs.count import executed, total
from benchmarks.cliffs.work import Array, Work
from benchmarks.cliffs.works import WORKS
from benchmarks.harness import Ratio, close
from benchmarks.native.kernels import timed
from benchmarks.worker import THREAD_VARIABLES
from tinyweb import Tensor
from tinyweb.device import Device
from tinyweb.tracing import capture, jit

THREADS = 2
SECONDS = 900.0
TURNS, LEAST_TURNS, TURN_SECONDS, WARM_SECONDS, TIMING_SECONDS = 15, 3, 0.01, 0.05, 3.0
PAUSE_SECONDS = 0.01  # between turns, for threads to go to sleep after their last work
MAX_REPEAT = 1000
SLOW, LONG, WORST = 0.4, 1.0, 10
TOLERANCES = {"float16": 2e-3, "float32": 5e-5}  # of the largest value; everything else is equal


@dataclass
class Timed:
    """Seconds of a work's calls in each turn of both sides. `problem`: why it was not timed."""

    name: str
    problem: str = ""
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The peer's time over ours, as the other benchmarks have it: the median of neighbouring turns."""
        return Ratio.of(self.ours, self.theirs).ratio

    @property
    def fastest(self) -> float:
        """That of the fastest turns."""
        return min(self.theirs) / min(self.ours)


@dataclass
class Result(Timed):
    """A work measured on the CPU."""

    note: str = ""
    first_call: float = 0.0
    launches: int = 0
    executed: int = 0
    needed: int = 0


def all_of(value: Any) -> list[Any]:
    """One tensor, or several."""
    return list(value) if isinstance(value, list | tuple) else [value]


def peer_device() -> str:
    """Where PyTorch computes: on this processor as we do, else on the GPU that CUDA has."""
    return "cpu" if Device.DEFAULT == "CPU" else "cuda"


def placed(work: Work) -> tuple[list[Tensor], list[torch.Tensor]]:
    """The inputs of both sides, in memory."""
    arrays = work.arrays()
    ours = [t.realize() for t in (work.place(arrays) if work.place else map(Tensor, arrays))]
    return ours, [torch.from_numpy(a).to(peer_device()) for a in arrays]


def finish(device: str) -> None:
    """Wait for both sides' launches."""
    Device[device].runtime.synchronize()
    if peer_device() == "cuda":
        torch.cuda.synchronize()


def differs(work: Work, ours: Sequence[Array], theirs: Sequence[Array]) -> str | None:
    """How the results are not the same; None where they are."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results, PyTorch has {len(theirs)}"
    for mine, other in zip(ours, theirs, strict=True):
        floats = mine.dtype.kind == "f"
        if floats != (other.dtype.kind == "f"):
            return f"{mine.dtype}, PyTorch has {other.dtype}"
        tolerance = (work.tolerance or TOLERANCES[str(mine.dtype)]) if floats else 0.0
        if problem := close(tolerance)({"the result": mine}, {"the result": other}):
            return problem
    return None


def check(work: Work) -> str | None:
    """How our results differ from PyTorch's."""
    ours, theirs = placed(work)
    found = [t.numpy() for t in all_of(work.ours(*ours))]
    with torch.no_grad():
        return differs(work, found, [t.cpu().numpy() for t in all_of(work.theirs(*theirs))])


def measure(work: Work, cache: Path) -> Result:
    """One work, with nothing compiled: `cache` is an empty folder for what is. What fails is in the result."""
    result = Result(work.name, note=work.note)
    os.environ["TINYWEB_CACHE"] = str(cache)
    Device[Device.DEFAULT].compiled.clear()
    try:
        with torch.no_grad():
            _measure(work, result)
    except Exception as error:
        result.problem = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return result


def _measure(work: Work, result: Result) -> None:
    ours, theirs = placed(work)
    out: list[Tensor] = []  # memory that is there, as the other benchmarks have it: what would be a view is written

    def our_step() -> list[Tensor]:
        values = all_of(work.ours(*ours))
        if not out:
            out.extend(Tensor.empty(*v.shape, dtype=v.dtype) for v in values)
        return [t.assign(v) for t, v in zip(out, values, strict=True)]

    def their_step() -> list[torch.Tensor]:
        return [t.contiguous() for t in all_of(work.theirs(*theirs))]

    device = Device.DEFAULT
    begin = time.perf_counter()
    first, *others = our_step()
    first.realize(*others)
    finish(device)
    result.first_call = time.perf_counter() - begin

    plan = capture(our_step)
    result.launches = len(plan.calls)
    target = Device[device].runtime.target
    result.executed, result.needed = executed(plan, target), total(work.needs, target)
    if problem := differs(work, [t.numpy() for t in out], [t.cpu().numpy() for t in their_step()]):
        result.problem = f"results differ: {problem}"
        return

    sync = functools.partial(finish, device)
    timed_step = jit(our_step, freeze=False)  # both sides get operands that they have not seen before
    sides: list[tuple[Callable[[], object], list[float]]] = [(timed_step, result.ours), (their_step, result.theirs)]
    repeats = [_warm(run, sync) for run, _ in sides]
    begin = time.perf_counter()
    for turn in range(TURNS):
        if turn >= LEAST_TURNS and time.perf_counter() - begin > TIMING_SECONDS:
            break
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            time.sleep(PAUSE_SECONDS)
            run, seconds = sides[side]
            seconds.append(timed(run, repeats[side], sync) / repeats[side])


def _warm(run: Callable[[], object], sync: Callable[[], None]) -> int:
    """Run until what is lazy is done; how often a turn is to repeat it."""
    begin, fastest = time.perf_counter(), math.inf
    for number in range(MAX_REPEAT):
        seconds = timed(run, 1, sync)
        if number > 0:  # the first may compile
            fastest = min(fastest, seconds)
        if number >= 1 and time.perf_counter() - begin >= WARM_SECONDS:
            break
    return max(1, min(MAX_REPEAT, math.ceil(TURN_SECONDS / fastest)))


# -- the table ---------------------------------------------------------------------------------------------------------
HEADER = (
    "| work | tinyweb, ms | PyTorch, ms | ratio | fastest | first call, s | launches | operations | ÷ needed |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def line(result: Result) -> str:
    """A row of the table."""
    if result.problem:
        return f"| {result.name} | {result.problem} | | | | {result.first_call:.2f} | | | |"
    ours, theirs = (1e3 * statistics.median(t) for t in (result.ours, result.theirs))
    more = f"{result.executed / result.needed:.2f}" if result.needed else ""
    return (
        f"| {result.name} | {ours:.3g} | {theirs:.3g} | {result.ratio:.2f} | {result.fastest:.2f} "
        f"| {result.first_call:.2f} | {result.launches} | {result.executed:.3g} | {more} |"
    )


def summary(results: Sequence[Result]) -> str:
    """What the works come to together."""
    timed_ones = sorted((r for r in results if not r.problem), key=lambda r: r.ratio)
    failed = [r for r in results if r.problem]
    lines = [f"{len(results)} works"]
    if timed_ones:
        of_medians = statistics.geometric_mean(r.ratio for r in timed_ones)
        of_fastest = statistics.geometric_mean(r.fastest for r in timed_ones)
        lines[0] += f", geometric mean of the ratios {of_medians:.2f} (of the fastest turns {of_fastest:.2f})"
    lines.append(f"Ratio below {SLOW}: {sum(r.ratio < SLOW for r in timed_ones)}")
    lines.append(f"First call over {LONG:g} s: {sum(r.first_call > LONG for r in results)}")
    if failed:
        lines.append(f"Not timed: {', '.join(r.name for r in failed)}")
    worst = [f"{r.ratio:.2f}  {r.name}{f' ({r.note})' if r.note else ''}" for r in timed_ones[:WORST]]
    return "\n".join([*lines, "Worst:", *worst])


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cliffs", description="Works of array code beside PyTorch."
    )
    parser.add_argument("--only", metavar="REGEX", default="", help="only works whose name matches")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="begin no work after this time (default: 900)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write figures and raw turns")
    parser.add_argument("--list", action="store_true", help="list the works")
    parser.add_argument("--lock", type=Path, metavar="FILE", help="hold this file's lock while works are timed")
    parser.add_argument("--niceness", type=int, metavar="N", help="niceness of this process, -20 … 19")
    parser.add_argument("--device", default="CPU", help="ours; PyTorch's is CUDA for all but the CPU (default: CPU)")
    parser.add_argument("--wasm", action="store_true", help="in Chromium, beside onnxruntime-web's WASM")
    parser.add_argument("--threads", type=int, choices=(1, 2), default=THREADS, help="of both, with --wasm")
    given = parser.parse_args(arguments)
    try:
        chosen = [w for w in WORKS.values() if re.search(given.only, w.name)]
    except re.error as error:
        parser.error(f"--only: {error}")
    if given.list:
        print("\n".join(f"{w.name}{f': {w.note}' if w.note else ''}" for w in chosen))
        return
    if not chosen:
        sys.exit(f"no work matches {given.only!r}")

    if given.wasm:
        from benchmarks.cliffs import wasm

        os.environ["TINYWEB_SCHEDULES"] = "none"
        with alone(given.lock, given.niceness)([os.getpid()]):
            wasm.run(chosen, given)
        return
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(THREADS)) | {"TINYWEB_SCHEDULES": "none"})
    torch.set_num_threads(THREADS)
    os.environ["TINYWEB_DEVICE"] = given.device
    if peer_device() == "cuda" and not torch.cuda.is_available():
        sys.exit(f"--device {given.device} is measured beside PyTorch on CUDA, which has no device here")
    torch.backends.cudnn.allow_tf32 = False  # float32 is float32 on both sides
    begin, date = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder, alone(given.lock, given.niceness)([os.getpid()]):
        os.environ["TINYWEB_CACHE"] = folder
        (Tensor(np.ones(2, np.float32)) + 1).realize()  # starts the compiler and the threads
        print(HEADER, flush=True)
        for work in chosen:
            if results and time.perf_counter() - begin > given.seconds:
                break
            with tempfile.TemporaryDirectory(dir=folder) as cache:
                results.append(measure(work, Path(cache)))
            print(line(results[-1]), flush=True)
    print(f"\n{summary(results)}")
    if left_out := [w.name for w in chosen[len(results) :]]:
        print(f"Left out for time: {', '.join(left_out)}.")
    if given.json:
        record = {
            "date": date,
            "machine": report.machine(),
            "seconds": time.perf_counter() - begin,
            "works": [asdict(r) | ({} if r.problem else {"ratio": r.ratio, "fastest": r.fastest}) for r in results],
        }
        given.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    if any(r.problem for r in results):
        sys.exit("Some works could not be timed: their rows say why.")
