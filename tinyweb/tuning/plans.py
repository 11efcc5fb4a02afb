"""Tuning: the kernels of a plan, those first that take most of its time, each searched and remembered.

    tune(lambda: model(x), seconds=60)                      # whatever the function computes
    tune_kernels(plan, "CPU", seconds=60)                   # what was captured

What is found goes to the user's file of schedules (see `schedules.py`), where every later run finds it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tinyweb.device import Device
from tinyweb.errors import DeviceError
from tinyweb.graph.ir import UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import apply, heuristic
from tinyweb.graph.optimize.digest import describe, digest
from tinyweb.graph.schedule import CopyCall
from tinyweb.graph.target import Target
from tinyweb.native_runtimes.open import parse_device
from tinyweb.schedules import Database, DatabaseError, forget_file, remembered, user_file
from tinyweb.tracing import Plan, capture
from tinyweb.tuning.measure import RuntimeMeasure, Worker
from tinyweb.tuning.search import Found, MeasureError, search

LEAST_SECONDS = 3.0  # for one kernel: less finds nothing
NEGLIGIBLE = 0.004  # part of the time of all kernels below which one is left alone
SURVEY_TURNS = 5
SERIAL = frozenset({"WASM"})  # runtimes that carry out a grid with one worker, whatever their target has

Progress = Callable[[str, int, int], None]  # (what is being done, steps done, steps in all)


@dataclass(frozen=True)
class Tuned:
    """One kernel: what it is, how often it is launched, seconds of a launch before, and what search found."""

    kernel: UOp
    name: str
    launches: int
    seconds: float
    found: Found

    def __str__(self) -> str:
        head = f"{self.launches:4} x {self.seconds * 1e6:9.1f} us  {self.name}\n       "
        if self.found.ratio == 1.0:
            return f"{head}stays as it is: none of {self.found.timed} others was clearly faster"
        schedule = "; ".join(map(str, self.found.schedule))
        return f"{head}takes {self.found.ratio:.2f} (± {self.found.spread:.2f}) of that with {schedule}"

    def record(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "kernel": self.name,
            "launches": self.launches,
            "microseconds": round(self.seconds * 1e6, 1),
            "ratio": round(self.found.ratio, 3),
            "spread": round(self.found.spread, 3),
            "timed": self.found.timed,
            "schedule": [str(a) for a in self.found.schedule],
        }


def tune(
    function: Callable[[], Any], seconds: float = 60.0, *, path: Path | None = None, progress: Progress | None = None
) -> list[Tuned]:
    """Find better schedules for what `function` computes, on the device it computes on, within about `seconds`.

    The function is captured, not run: see `capture`. Kernels that are compiled already are compiled anew, so that
    functions traced by `jit` become faster too. `path`: the file to remember schedules in (default: the user's).
    DeviceError for a device that cannot be tuned; DatabaseError where the file cannot be written.
    """
    return tune_kernels(capture(function), None, seconds, path=path, progress=progress)


def tune_kernels(
    kernels: Plan | Mapping[str, Plan] | Iterable[UOp],
    device: str | None = None,
    seconds: float = 60.0,
    *,
    target: Target | None = None,
    calls: Mapping[str, int] | None = None,
    path: Path | None = None,
    progress: Progress | None = None,
) -> list[Tuned]:
    """Search schedules for the kernels of a plan, of several by name, or for kernels one launch each.

    `calls`: how often each of several plans runs in typical use (default: once). `device` names the runtime that
    times them (default: the plan's, or the default device); `target` what they are made for, where that is not the
    runtime's. `seconds` are those of the search, after every kernel was timed once; most go to the kernels that take
    most time.
    """
    launches = _launches(kernels, calls or {})
    if device is None:
        device = kernels.device if isinstance(kernels, Plan) else Device.DEFAULT
    device = Device.canonical(device)
    kind, _ = parse_device(device)
    if kind == "INTERPRETER":
        raise DeviceError("INTERPRETER is not tuned: it is slow whatever the schedule; choose CPU, WASM or WEBGPU.")
    chosen = target or Device[device].runtime.target
    path = path or user_file()
    if path is None:
        raise DatabaseError("TINYWEB_SCHEDULES=none: there is no file to keep schedules in; set it to one.")
    database = Database.load(path) if path.exists() else Database()
    say = progress or (lambda step, done, total: None)
    worker = Worker(device)
    tuned: list[Tuned] = []
    try:
        times = _survey(launches, chosen, worker, say)
        begin = time.monotonic()
        total = sum(times[k] * launches[k] for k in times)
        order = sorted(times, key=lambda k: -times[k] * launches[k])
        order = [k for k in order if times[k] * launches[k] >= NEGLIGIBLE * total]
        for done, kernel in enumerate(order):
            left = seconds - (time.monotonic() - begin)
            if left < LEAST_SECONDS / 2:
                break
            rest = sum(times[k] * launches[k] for k in order[done:])
            share = max(left * times[kernel] * launches[kernel] / rest, LEAST_SECONDS)
            say(f"tuning for {chosen.name}", done, len(order))
            found = _search(kernel, chosen, worker, min(share, max(left, LEAST_SECONDS)), device)
            _remember(database, path, kernel, chosen, found)
            tuned.append(Tuned(kernel, describe(kernel), launches[kernel], times[kernel], found))
        say(f"tuning for {chosen.name}", len(order), len(order))
    finally:
        worker.close()
    if target is None:
        _compile_again(device, [t.kernel for t in tuned])
    return tuned


def tune_for(
    target: Target, plans: Mapping[str, Plan], calls: Mapping[str, int], seconds: float, progress: Progress
) -> list[Tuned]:
    """Tune what is to be written for a target, if a runtime here can say anything about it: a GPU about GPUs."""
    device = target.name.upper()
    if device == "WEBGPU":
        from tinyweb.native_runtimes.webgpu import WebGpuRuntime

        try:
            runtime = Device[device].runtime
        except DeviceError:
            runtime = None
        # what a processor that plays one takes says nothing about GPUs
        gpu = isinstance(runtime, WebGpuRuntime) and not runtime.adapter.is_software
        if runtime is None or not gpu or not set(target.features) <= {*runtime.target.features}:
            progress("there is no GPU here for WebGPU: not tuned", 1, 1)
            return []
    return tune_kernels(plans, device, seconds, target=target, calls=calls, progress=progress)


def _launches(kernels: Plan | Mapping[str, Plan] | Iterable[UOp], calls: Mapping[str, int]) -> Counter[UOp]:
    """How often each kernel is launched."""
    if isinstance(kernels, Plan):
        return Counter(c.kernel for c in kernels.calls if not isinstance(c, CopyCall))
    if isinstance(kernels, Mapping):
        launches: Counter[UOp] = Counter()
        for name, plan in kernels.items():
            for c in plan.calls:
                if isinstance(c, CopyCall):
                    continue
                launches[c.kernel] += calls.get(name, 1)
        return launches
    return Counter(kernels)


def _survey(launches: Iterable[UOp], target: Target, worker: Worker, say: Progress) -> dict[UOp, float]:
    """Seconds of one launch of each kernel as the heuristic has it."""
    times: dict[UOp, float] = {}
    kernels = list(launches)
    for done, kernel in enumerate(kernels):
        say(f"timing kernels on {worker.device}", done, len(kernels))
        program = lower(apply(kernel, heuristic(kernel, target)), target)
        try:
            (timing,) = RuntimeMeasure(kernel, worker, seconds=1.0)([program], SURVEY_TURNS)
        except MeasureError:
            continue  # what cannot be timed cannot be tuned
        times[kernel] = median(timing.seconds)
    say(f"timing kernels on {worker.device}", len(kernels), len(kernels))
    return times


def _search(kernel: UOp, target: Target, worker: Worker, seconds: float, device: str) -> Found:
    before = remembered(kernel, target)
    return search(
        kernel,
        target,
        lower,
        RuntimeMeasure(kernel, worker, seconds=max(seconds / 10, 0.5)),
        seconds,
        starts=() if before is None else (before,),
        # with few large blocks a worker that comes late, as others do after a pause, holds up all
        keep_workgroups=parse_device(device)[0] in SERIAL or target.parallel_threads > 1,
    )


def _remember(database: Database, path: Path, kernel: UOp, target: Target, found: Found) -> None:
    """Write down what is better than the heuristic, and what the files say otherwise."""
    if found.ratio < 1.0 or remembered(kernel, target) is not None:
        database.add(kernel, target, found.schedule, found.ratio)
        database.save(path)
        forget_file()


def _compile_again(device: str, kernels: Iterable[UOp]) -> None:
    """What is compiled already is replaced: whoever launches it finds it by its kernel."""
    opened = Device[device]
    tuned = {digest(k) for k in kernels}
    stale = [k for k in opened.compiled if digest(k) in tuned]
    for k in stale:
        del opened.compiled[k]
    opened.compile(stale)
