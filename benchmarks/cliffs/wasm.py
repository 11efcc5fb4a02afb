"""The works in WebAssembly, beside onnxruntime-web's: exported functions and ONNX graphs in one Chromium, in turns.

usage: python -m benchmarks cliffs --wasm [--only REGEX] [--seconds 900] [--threads 2] [--json FILE] [--list]

Several works are exported as one bundle, as that takes less time. What is timed is a call without the way to the
library's worker, inputs copied in and outputs copied out, on both sides. A work without an ONNX graph, or whose graph
the peer does not take, has no ratio: its row says why.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from benchmarks import report
from benchmarks.browser.chromium import Chromium
from benchmarks.browser.works import write_graph, write_inputs
from benchmarks.cliffs.onnx_graph import NoGraph, graph_of
from benchmarks.cliffs.run import SLOW, WORST, Timed, all_of, differs
from benchmarks.cliffs.work import Work
from benchmarks.contestant import Absent
from tinyweb import Tensor
from tinyweb.export import export_functions, wasm

THREADS, SECONDS = 2, 900.0
TOGETHER, TOGETHER_BYTES = 12, 256 << 20  # works of a bundle, and their inputs
TURNS, LEAST_TURNS, TURN_SECONDS, TIMING_SECONDS = 9, 3, 0.01, 2.0
MAX_REPEAT = 200
OURS, THEIRS = "tinyweb-wasm", "onnxruntime-wasm"
HEADER = "| work | tinyweb, ms | onnxruntime-web, ms | ratio | fastest |\n| --- | --- | --- | --- | --- |"


@dataclass
class Result(Timed):
    """A work measured in WebAssembly. `no_peer`: why theirs was not timed."""

    no_peer: str = ""


class Pages(Chromium):
    """Works exported together, a folder for each of them with its inputs and its graph."""

    def __init__(self) -> None:
        super().__init__()
        self.bundles: dict[str, tuple[str, Work]] = {}  # by name of the work: its bundle's folder

    def side(self, work: str, side: str, threads: str) -> tuple[str, dict[str, Any]]:
        library, _, backend = side.partition("-")
        bundle, made = self.bundles[work]
        folder = self.work / work
        module, options = super().prepared(library, backend, threads)
        folder.mkdir(exist_ok=True)
        given = made.arrays()[: 1 if made.place else None]
        arrays = write_inputs(folder / "inputs.bin", {f"a{i}": a for i, a in enumerate(given)})
        options |= {"data": self._url(folder / "inputs.bin"), "arrays": arrays}
        if library == "tinyweb":
            options |= {"bundle": self._url(self.work / bundle / "model") + "/", "name": identifier(work)}
            return module, options
        model = folder / "model.onnx"
        if not model.exists():
            write_graph(model, "nodes", 0, record=graph_of(made).save(folder))
        return module, options | {"model": self._url(model)}

    def export(self, works: Sequence[Work], folder: str, threads: int) -> None:
        """One bundle of a function for each work, with the module alone that is run here."""
        functions = {identifier(w.name): function_of(w) for w in works}
        variant = "relaxed-threads" if threads > 1 else "relaxed"
        with patch.object(wasm, "VARIANTS", {variant: wasm.VARIANTS[variant]}):
            export_functions(functions, self.work / folder, targets=["wasm"])
        self.bundles.update({w.name: (folder, w) for w in works})

    def leave(self) -> None:
        """Close the pages: each holds the memory of a bundle."""
        while self.pages:
            self.pages.popitem()[1].close()


def identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def function_of(work: Work) -> tuple[Callable[..., Any], dict[str, Tensor]]:
    """The work as a function of tensors named a0, a1, …, and examples of them."""
    arrays = work.arrays()
    tensors = [t.realize() for t in (work.place(arrays) if work.place else map(Tensor, arrays))]
    given = tensors[:1] if work.place else tensors

    def function(**inputs: Tensor) -> Any:
        found = all_of(work.ours(*inputs.values(), *tensors[len(given) :]))
        return found[0] if len(found) == 1 else found

    names = [f"a{i}" for i in range(len(given))]
    kind = inspect.Parameter.KEYWORD_ONLY
    setattr(function, "__signature__", inspect.Signature([inspect.Parameter(n, kind) for n in names]))  # noqa: B010
    return function, dict(zip(names, given))


def batches(works: Sequence[Work]) -> Iterator[list[Work]]:
    """Works to be exported together: not too many, and no more memory than a page may ask for."""
    some: list[Work] = []
    size = 0
    for work in works:
        own = sum(a.nbytes for a in work.arrays())
        if some and (len(some) == TOGETHER or size + own > TOGETHER_BYTES):
            yield some
            some, size = [], 0
        some.append(work)
        size += own
    if some:
        yield some


def measure(pages: Pages, work: Work, threads: int) -> Result:
    """Both sides in turns; what is wrong with one is in the result."""
    result = Result(work.name)
    tasks = [f"{work.name}/{OURS}/{threads}", f"{work.name}/{THEIRS}/{threads}"]
    try:
        ours = pages.result(tasks[0])
    except Exception as error:
        result.problem = f"{type(error).__name__}: {_line(error)}"
        return result
    try:
        theirs = pages.result(tasks[1])
        if problem := differs(work, list((ours or {}).values()), list((theirs or {}).values())):
            result.no_peer = f"results differ: {problem}"
    except Absent:
        raise
    except NoGraph as error:
        result.no_peer = f"no ONNX graph: {error}"
    except Exception as error:
        result.no_peer = f"{type(error).__name__}: {_line(error)}"
    sides = [(tasks[0], result.ours), (tasks[1], result.theirs)][: 1 if result.no_peer else 2]
    repeats = [max(1, min(MAX_REPEAT, math.ceil(TURN_SECONDS / _warm(pages, task)))) for task, _ in sides]
    begin = time.perf_counter()
    for turn in range(TURNS):
        if turn >= LEAST_TURNS and time.perf_counter() - begin > TIMING_SECONDS:
            break
        for i in range(len(sides)) if turn % 2 == 0 else reversed(range(len(sides))):
            task, seconds = sides[i]
            seconds.append(pages.run(task, repeats[i]) / repeats[i])
    return result


def _warm(pages: Pages, task: str) -> float:
    """Engines compile anew what runs often."""
    return max(min(pages.run(task, 3) / 3 for _ in range(3)), 1e-6)


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0][:160]


def line(result: Result) -> str:
    """A row of the table."""
    if result.problem:
        return f"| {result.name} | {result.problem} | | | |"
    ours = f"{1e3 * statistics.median(result.ours):.3g}"
    if result.no_peer:
        return f"| {result.name} | {ours} | {result.no_peer} | | |"
    theirs = f"{1e3 * statistics.median(result.theirs):.3g}"
    return f"| {result.name} | {ours} | {theirs} | {result.ratio:.2f} | {result.fastest:.2f} |"


def summary(results: Sequence[Result]) -> str:
    """What the works come to together."""
    both = sorted((r for r in results if r.ours and r.theirs), key=lambda r: r.ratio)
    lines = [f"{len(results)} works, {len(both)} with a peer"]
    if both:
        mean, of_fastest = (statistics.geometric_mean(getattr(r, n) for r in both) for n in ("ratio", "fastest"))
        lines[0] += f", geometric mean of the ratios {mean:.2f} (of the fastest turns {of_fastest:.2f})"
    lines.append(f"Ratio below {SLOW}: {sum(r.ratio < SLOW for r in both)}")
    lines += [f"Without a peer: {r.name} ({r.no_peer})" for r in results if r.no_peer]
    lines += [f"Not timed: {r.name} ({r.problem})" for r in results if r.problem]
    return "\n".join([*lines, "Worst:", *(f"{r.ratio:.2f}  {r.name}" for r in both[:WORST])])


def run(chosen: Sequence[Work], given: argparse.Namespace) -> None:
    """Measure the works, print the table and what they come to."""
    begin, date = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    results: list[Result] = []
    try:
        pages = Pages()
    except Absent as error:
        sys.exit(str(error))
    try:
        print(HEADER, flush=True)
        for number, some in enumerate(batches(chosen)):
            if results and time.perf_counter() - begin > given.seconds:
                break
            try:
                pages.export(some, f"batch{number}", given.threads)
            except Exception:  # one by one: the others are to be measured
                for i, work in enumerate(some):
                    try:
                        pages.export([work], f"batch{number}-{i}", given.threads)
                    except Exception as error:
                        results.append(Result(work.name, f"{type(error).__name__}: {_line(error)}"))
                        print(line(results[-1]), flush=True)
            for work in some:
                if work.name in pages.bundles:
                    results.append(measure(pages, work, given.threads))
                    print(line(results[-1]), flush=True)
                    pages.leave()
    except Absent as error:
        sys.exit(str(error))
    finally:
        pages.close()
    print(f"\n{summary(results)}")
    if left_out := [w.name for w in chosen if w.name not in {r.name for r in results}]:
        print(f"Left out for time: {', '.join(left_out)}.")
    if given.json:
        record = {
            "date": date,
            "machine": report.machine(),
            "threads": given.threads,
            "seconds": time.perf_counter() - begin,
            "works": [asdict(r) | ({"ratio": r.ratio, "fastest": r.fastest} if r.theirs else {}) for r in results],
        }
        given.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    if any(r.problem for r in results):
        sys.exit("Some works could not be timed: their rows say why.")
