"""The mutation check: plant small faults in a module, one at a time, and see whether the tests that belong to it fail.

usage: python tools/mutate.py tinyweb/graph/symbolic [MODULE or FOLDER ...] [--sample 30] [--seed 1] [--json FILE]

The checkout stays as it is: everything happens in a copy, `build/mutate/tree`, with a compile cache of its own. First
the tests that belong to the modules (BELONG, or `--tests`) run once as they are, and what lines each of them runs is
written down (kept in `build/mutate/lines.json` until module or test change). Then every mutant runs, in a process of
its own, the tests that run its line, cheapest first, and after them others that use its module, until one fails or
`--budget` seconds of processor time are spent. A mutant whose line no test runs survives at once. Mutants that change
nothing anybody could see stand in `tools/equivalent_mutants.txt` with the reason, and do not count.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import marshal
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from mutations import Mutation, compile_mutated, mutations

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutate"
TREE = WORK / "tree"
LINES = WORK / "lines.json"
EQUIVALENT = ROOT / "tools" / "equivalent_mutants.txt"
COPIED = ("tinyweb", "tests", "tools")  # the rest of the tree is linked
MEMORY = 8 << 30  # bytes a mutant may write to
MAX_TESTS = 150  # per mutant
TOOLCHAIN = "tinyweb/toolchain.py"

# Modules and the tests that belong to them. A line whose beginning is longest counts.
BELONG = {
    "tinyweb/graph/symbolic": "tests/graph/symbolic",
    "tinyweb/graph/schedule": "tests/graph/schedule tests/tensor/test_assign.py tests/tensor/test_tensor.py",
    "tinyweb/graph/lower": "tests/graph/lower tests/native_runtimes/test_lowered.py",
    "tinyweb/graph/optimize": "tests/graph/optimize",
    "tinyweb/graph/ir": "tests/graph/ir tests/graph/symbolic",
    "tinyweb/render_c": "tests/render_c tests/native_runtimes/test_programs.py",
    "tinyweb/render_wgsl": "tests/render_wgsl tests/native_runtimes/test_programs.py",
    "tinyweb/render_wasm": "tests/render_wasm",
    "tinyweb/array": "tests/tensor",
    "tinyweb/nn": "tests/nn",
    "tinyweb/formats": "tests/formats",
    "tinyweb/export": "tests/export",
    "tinyweb/models/chat.py": "tests/models/test_chat_rules.py tests/models/test_chat.py",
    "tinyweb/models": "tests/models",
    "tinyweb/tuning": "tests/tuning",
    TOOLCHAIN: "tests/test_toolchain.py",
    "tinyweb/native_runtimes": "tests/native_runtimes",
}
# imported once, before the processes of the mutants begin: none of them imports tinyweb
LIBRARIES = (
    "pytest", "hypothesis", "numpy", "numpy.testing", "torch", "torch.nn.functional", "transformers", "tokenizers",
    "transformers.models.llama.modeling_llama", "safetensors.numpy", "wasmtime", "wgpu", "jinja2",
    "playwright.sync_api",
)  # fmt: skip
PYTEST = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:rerunfailures", "-p", "no:randomly")


@dataclass
class Run:
    """What one test did: processor seconds, and lines run by module."""

    seconds: float
    lines: dict[str, list[int]]


@dataclass
class Result:
    """What became of one mutant: killed, survived, timed out, or that it is equivalent."""

    module: str
    line: int
    text: str
    mutation: str
    status: str
    seconds: float
    by: str  # the test that failed, or how many ran


# -- the copy --------------------------------------------------------------------------------------------------
def copy_tree() -> None:
    """`build/mutate/tree`: what tests read is copied, so that a path of the copy leads to nothing else."""
    TREE.mkdir(parents=True, exist_ok=True)
    for path in ROOT.iterdir():
        to = TREE / path.name
        if path.name in COPIED:
            skip = shutil.ignore_patterns("__pycache__", "site", "train", "node_modules")
            shutil.rmtree(to, ignore_errors=True)
            shutil.copytree(path, to, ignore=skip, symlinks=True)
        elif not to.exists() and path.name not in ("build", ".git"):
            to.symlink_to(path)
    site = ROOT / "tinyweb" / "export" / "site"
    if site.exists():
        (TREE / "tinyweb" / "export" / "site").symlink_to(site)


def plant(module: str, code: CodeType | None) -> None:
    """Let Python take `code` for the module of the copy (None: the module itself), by its file of compiled code."""
    source = TREE / module
    compiled = Path(cache_from_source(str(source)))
    compiled.unlink(missing_ok=True)
    if code is not None:
        compiled.parent.mkdir(exist_ok=True)
        unchecked = (1).to_bytes(4, "little")
        compiled.write_bytes(MAGIC_NUMBER + unchecked + source_hash(source.read_bytes()) + marshal.dumps(code))


# -- processes -------------------------------------------------------------------------------------------------
def in_child(work: Callable[[], int], processor_seconds: float, log: Path) -> tuple[str, float]:
    """Run `work` in a forked process in the copy: ("done CODE", "timed out" or "signal N", processor seconds)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = os.fork()
    if child == 0:
        code = 3
        try:
            os.setsid()
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(output, stream)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            limit = int(processor_seconds) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
            os.chdir(TREE)
            sys.path[:0] = [str(TREE), str(TREE / "tools")]
            code = work()
            sys.stdout.flush()
        finally:
            os._exit(code)
    # waiting costs no processor time: a child that sleeps for ever has a limit too
    deadline = time.monotonic() + 20 * processor_seconds + 60
    ended = (0, 0)
    try:
        while ended[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
            ended = os.waitpid(child, os.WNOHANG)
    finally:  # with all that it started, also when this process is interrupted
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        late = ended[0] == 0
        status = os.waitpid(child, 0)[1] if late else ended[1]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return ("timed out" if late or number == signal.SIGXCPU else f"signal {number}"), spent
    return f"done {os.WEXITSTATUS(status)}", spent


def prepare_parent() -> None:
    """The environment of all tests, and the libraries they use."""
    os.environ |= {
        "TINYWEB_CACHE": str(WORK / "cache"),
        "PYTHONPATH": os.pathsep.join([str(TREE), str(TREE / "tools")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }
    sys.dont_write_bytecode = True
    for name in LIBRARIES:
        with suppress(ImportError):
            import_module(name)
    import hypothesis

    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # a failing example need not be small
    checks = list(hypothesis.HealthCheck)
    hypothesis.settings.register_profile(
        "mutate", phases=phases, derandomize=True, database=None, deadline=None, suppress_health_check=checks
    )
    hypothesis.settings.load_profile("mutate")


# -- which test runs which line --------------------------------------------------------------------------------
class Tracer:
    """A pytest plugin: what lines of the package each test runs, and its processor time."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.failed: set[str] = set()
        self._prefix = f"{TREE}{os.sep}"
        self._inside = f"{TREE / 'tinyweb'}{os.sep}"
        self._lines: dict[CodeType, set[int]] = {}
        self._all: dict[CodeType, int] = {}

    def start(self) -> float:
        self._lines = {}
        sys.settrace(self._call)
        return _processor_seconds()

    def stop(self, name: str, began: float) -> None:
        sys.settrace(None)
        lines: dict[str, set[int]] = {}
        for code, seen in self._lines.items():
            lines.setdefault(code.co_filename.removeprefix(self._prefix), set()).update(seen)
        self.runs[name] = Run(round(_processor_seconds() - began, 3), {m: sorted(s) for m, s in lines.items()})

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(self._inside):
            return None
        seen = self._lines.setdefault(code, set())
        seen.add(frame.f_lineno)
        if code not in self._all:
            self._all[code] = len({line for _, _, line in code.co_lines() if line is not None})
        if len(seen) >= self._all[code]:
            return None

        def line(frame: FrameType, event: str, arg: object) -> Any:
            seen.add(frame.f_lineno)
            return line

        return line


def _processor_seconds() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(k).ru_utime + resource.getrusage(k).ru_stime for k in kinds)


def trace(paths: Sequence[str], to: Path, options: Sequence[str]) -> int:
    """In a child: run the tests of `paths`, write what those that pass did to the file `to`."""
    import pytest

    tracer = Tracer()

    class Plugin:
        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
            began = tracer.start()
            try:
                yield
            finally:
                tracer.stop(item.nodeid, began)

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed or report.skipped:
                tracer.failed.add(report.nodeid)

    code = pytest.main([a for a in PYTEST if a != "-x"] + [*options, *paths], plugins=[Plugin()])
    passed = {name: asdict(run) for name, run in tracer.runs.items() if name not in tracer.failed}
    to.write_text(json.dumps({"tests": passed, "failed": sorted(tracer.failed)}))
    return int(code)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def lines_of_tests(files: Sequence[str], modules: Sequence[str], options: Sequence[str]) -> dict[str, Run]:
    """What the tests of `files` run, by test; traced anew for files of tests where they or a module have changed."""
    known = json.loads(LINES.read_text()) if LINES.exists() else {}
    now = {m: digest(ROOT / m) for m in modules}
    runs: dict[str, Run] = {}
    for file in files:
        key = f"{file} {' '.join(options)}"
        entry = known.get(key, {"digest": ""})
        if entry["digest"] != digest(ROOT / file) or any(entry["modules"].get(m) != d for m, d in now.items()):
            every = {m.relative_to(ROOT).as_posix(): digest(m) for m in (ROOT / "tinyweb").rglob("*.py")}
            entry = known[key] = {"digest": digest(ROOT / file), "modules": every, "tests": traced(file, options)}
            LINES.write_text(json.dumps(known))
        runs |= {name: Run(**run) for name, run in entry["tests"].items()}
    return runs


def traced(file: str, options: Sequence[str]) -> dict[str, Any]:
    """The runs of the tests of one file that pass, by name."""
    print(f"  tracing {file}", flush=True)
    scratch = WORK / "traced.json"
    scratch.unlink(missing_ok=True)
    status, _ = in_child(lambda: trace([file], scratch, options), 1800, WORK / "trace.log")
    if not scratch.exists():
        sys.exit(f"{file}: {status}; see {WORK / 'trace.log'}")
    found = json.loads(scratch.read_text())
    if found["failed"]:
        print(f"    left out, they fail or are skipped without a fault: {', '.join(found['failed'][:5])}", flush=True)
    tests: dict[str, Any] = found["tests"]
    return tests


def tests_of(module: str) -> list[str]:
    """The files of tests that belong to a module."""
    prefix = max((p for p in BELONG if module.startswith(p)), key=len, default=None)
    if prefix is None:
        sys.exit(f"No tests are known to belong to {module}: name them with --tests, or add a line to BELONG.")
    return expand(BELONG[prefix].split())


def expand(paths: Iterable[str]) -> list[str]:
    """Files of tests in `paths`, which may be folders."""
    found: list[str] = []
    for path in paths:
        where = ROOT / path
        inside = sorted(where.rglob("test_*.py")) if where.is_dir() else [where]
        found += [f.relative_to(ROOT).as_posix() for f in inside]
    return list(dict.fromkeys(found))


def choose(mutation: Mutation, module: str, runs: dict[str, Run], budget: float) -> tuple[list[str], float]:
    """The tests to try on a mutant, and their processor time: those that run its lines, then those of its module."""
    first, last = mutation.lines
    near: list[str] = []
    far: list[str] = []
    for name, run in runs.items():
        if (seen := run.lines.get(module)) is not None:
            hit = mutation.imported or any(first <= line <= last for line in seen)
            (near if hit else far).append(name)
    if not near:
        return [], 0.0
    cheapest_first = sorted(near, key=lambda n: runs[n].seconds) + sorted(far, key=lambda n: runs[n].seconds)
    chosen: list[str] = []
    spent = 0.0
    for name in cheapest_first[:MAX_TESTS]:
        if chosen and spent + runs[name].seconds > budget:
            break
        chosen.append(name)
        spent += runs[name].seconds
    return chosen, spent


# -- mutants ---------------------------------------------------------------------------------------------------
def equivalents() -> set[tuple[str, str, str]]:
    """(module, line, mutation) of the file: blocks of `module`, `line`, `mutation`, `because: reason`."""
    found = set()
    blocks = EQUIVALENT.read_text(encoding="utf-8").split("\n\n") if EQUIVALENT.exists() else []
    for block in blocks:
        lines = [line.strip() for line in block.splitlines() if line.strip() and not line.startswith("#")]
        if not lines:
            continue
        if len(lines) != 4 or not lines[3].startswith("because: "):
            sys.exit(f"{EQUIVALENT}: four lines, the last `because: …`, not\n{block}")
        found.add((lines[0], lines[1], lines[2]))
    return found


def run_tests(names: Sequence[str], failed: Path, cache: Path) -> int:
    """In a child: 0 if all tests pass. The first that fails is written to the file `failed`."""
    import pytest

    os.environ["TINYWEB_CACHE"] = str(cache)

    class Plugin:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed.write_text(report.nodeid)

    return int(pytest.main([*PYTEST, *names], plugins=[Plugin()]))


def try_mutant(module: str, tree: Any, mutation: Mutation, names: Sequence[str], cost: float, slack: float) -> Result:
    """Plant one fault and run the tests."""
    failed = WORK / "failed.txt"
    failed.unlink(missing_ok=True)
    plant(module, compile_mutated(tree, mutation, str(TREE / module)))
    shutil.rmtree(TREE / ".hypothesis", ignore_errors=True)
    # code is kept by its source and flags: only a fault in what compiles can leave a wrong entry behind
    cache = WORK / ("cache-of-one" if module == TOOLCHAIN else "cache")
    status, seconds = in_child(lambda: run_tests(names, failed, cache), slack + 4 * cost, WORK / "mutant.log")
    plant(module, None)
    shutil.rmtree(WORK / "cache-of-one", ignore_errors=True)
    verdict = {"done 0": "survived", "timed out": "timed out"}.get(status, "killed")
    by = failed.read_text() if failed.exists() else f"{len(names)} tests" if verdict == "survived" else status
    return Result(module, mutation.line, mutation.text, str(mutation), verdict, round(seconds, 1), by)


def outcome(
    name: str, tree: Any, m: Mutation, runs: dict[str, Run], known: set[tuple[str, str, str]], given: argparse.Namespace
) -> Result:
    """What becomes of one mutant."""
    if (name, m.text, str(m)) in known:
        return Result(name, m.line, m.text, str(m), "equivalent", 0, "")
    tests, cost = choose(m, name, runs, given.budget)
    if not tests:
        return Result(name, m.line, m.text, str(m), "survived", 0, "no test runs it")
    return try_mutant(name, tree, m, tests, cost, given.timeout)


def report(results: Sequence[Result]) -> None:
    """A table by module, and the survivors."""
    print(f"\n{'module':48} mutants killed timed out survived equivalent score seconds")
    modules = sorted({r.module for r in results})
    for module in [*modules, *(["all"] if len(modules) > 1 else [])]:
        of = [r for r in results if module in (r.module, "all")]
        n = Counter(r.status for r in of)
        counted = len(of) - n["equivalent"]
        score = f"{(n['killed'] + n['timed out']) / counted:.0%}" if counted else "-"
        print(
            f"{module:48} {len(of):7} {n['killed']:6} {n['timed out']:9} {n['survived']:8} {n['equivalent']:10} "
            f"{score:>5} {sum(r.seconds for r in of):7.0f}"
        )
    for r in sorted(results, key=lambda r: (r.module, r.line)):
        if r.status == "survived":
            print(f"\n{r.module}:{r.line}  ({r.by})\n    {r.text}\n    {r.mutation}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("paths", nargs="+", help="modules, or folders of them")
    parser.add_argument("--sample", type=int, help="how many mutants, chosen by --seed (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", nargs="+", help="the tests to run, instead of those that belong to the modules")
    parser.add_argument("-k", default="not CHROMIUM and not chromium", help="pytest's -k (default: no browser)")
    parser.add_argument("--budget", type=float, default=15, help="processor seconds of tests for a mutant")
    parser.add_argument("--timeout", type=float, default=20, help="processor seconds on top, before one is stopped")
    parser.add_argument("--lines", help="only mutants of these lines of one module: FIRST-LAST")
    parser.add_argument("--json", type=Path, help="keep every result in this file")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    modules = []
    for path in given.paths:
        where = (ROOT / path).resolve()
        modules += sorted(where.rglob("*.py")) if where.is_dir() else [where]
    names = [m.relative_to(ROOT).as_posix() for m in modules]
    trees = {}
    mutants: list[tuple[str, Mutation]] = []
    for name in names:
        trees[name], found = mutations((ROOT / name).read_text(encoding="utf-8"))
        mutants += [(name, m) for m in found]
    if given.lines:
        first, _, last = given.lines.partition("-")
        mutants = [(n, m) for n, m in mutants if int(first) <= m.line <= int(last or first)]
    whole = len(mutants)
    if given.sample and given.sample < whole:
        mutants = random.Random(given.seed).sample(mutants, given.sample)  # in that order: a part is a sample, too
    print(f"{len(mutants)} of {whole} mutants of {len(names)} modules, seed {given.seed}", flush=True)
    if given.list:
        for name, m in mutants:
            print(f"{name}:{m.line}  {m}")
        return

    began = time.monotonic()
    copy_tree()
    prepare_parent()
    chosen = {name for name, _ in mutants}
    files = expand(given.tests) if given.tests else [f for name in names if name in chosen for f in tests_of(name)]
    options = ["-m", "not slow", *(["-k", given.k] if given.k else [])]
    runs = lines_of_tests(list(dict.fromkeys(files)), sorted(chosen), options)
    known = equivalents()
    results: list[Result] = []
    try:
        for name, m in mutants:
            results.append(outcome(name, trees[name], m, runs, known, given))
            r = results[-1]
            print(f"{len(results)} {r.status} {name}:{m.line} {m} [{r.by}; {r.seconds} s]", flush=True)
            if given.json:
                kept = {"seed": given.seed, "of": whole, "results": [asdict(r) for r in results]}
                given.json.write_text(json.dumps(kept, indent=1))
    except KeyboardInterrupt:
        print(f"\nstopped after {len(results)} of {len(mutants)}")
    report(results)
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
