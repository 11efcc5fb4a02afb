"""Counts of programs: beside numbers worked out by hand, and beside programs carried out literally."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cliffs.work import Work, alike, needs, normal
from benchmarks.cliffs.works import WORKS
from benchmarks.count import program as counting
from benchmarks.count.program import Counts, count, operations, registers
from benchmarks.count.run import HEADER, TARGETS, Result, is_large, line, measure, summary
from tests.graph.lower import hand_kernels as hand
from tests.graph.lower.hand_kernels import axes, kernel, param, total
from tests.native_runtimes.programs import Writer, index
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import COMPARISON, ELEMENTWISE, Ops, Space, UOp, Variable, as_index, size_max
from tinyweb.graph.lower import lower, program_for
from tinyweb.graph.optimize.actions import apply
from tinyweb.graph.program import Program
from tinyweb.graph.target import webgpu_target
from tinyweb.tracing import capture

ROOT = Path(__file__).resolve().parents[2]
F32 = dtypes.float32
WEBGPU = webgpu_target()


# -- by hand -----------------------------------------------------------------------------------------------------------
def copied(grid: int, threads: int, loads: int = 1) -> Program:
    """Every thread adds up the same `loads` elements of its workgroup, and stores the sum."""
    w = Writer()
    out, a = w.param(F32, grid * threads), w.param(F32, grid * loads)
    g, t = w.grid(grid), w.thread(threads)
    value = w.load(a, g * loads)
    for i in range(1, loads):
        value = w.emit(value + w.load(a, g * loads + i))
    w.store(out, g * threads + t, value)
    return w.program("copied", (grid, 1, 1), (threads, 1, 1))


def test_device_bytes() -> None:
    """As asked for, once for a workgroup, once for the kernel."""
    found = count(copied(grid=3, threads=8, loads=2))
    assert (found.loaded, found.stored) == (3 * 8 * 2 * 4, 3 * 8 * 4)
    assert (found.group_loaded, found.group_stored) == (3 * 2 * 4, 3 * 8 * 4)
    assert found.once == 3 * 2 * 4 + 3 * 8 * 4
    assert (found.operations, found.multiply_adds, found.exact) == (3 * 8, 0, True)


def test_a_sample_of_many_workgroups() -> None:
    found = count(copied(grid=1000, threads=8, loads=2))
    assert found.group_loaded == 1000 * 2 * 4 and found.loaded == 1000 * 8 * 2 * 4 and found.exact


def triangle(size: UOp | int) -> Program:
    """Row i adds up i + 1 elements; of the sums of even rows, one thread stores each."""
    w = Writer()
    out, a = w.param(F32, 16), w.param(F32, 16)
    i, t = w.grid(size), w.thread(4)
    sums = w.buffer(F32, 1)
    first = w.store(sums, index(0), UOp.const(0.0, F32))
    k = w.loop(i + 1)
    step = w.store(sums, index(0), w.load(sums.after(first), index(0)) + w.load(a, k))
    end = w.end(k, step)
    gate = w.emit((i % 2).equal(0) & t.equal(0))
    w.store(out, i, w.load(sums.after(end), index(0)), gate)
    return w.program("triangle", (size, 1, 1), (4, 1, 1))


def test_loops_whose_size_differs_and_gates() -> None:
    found = count(triangle(6))
    assert found.operations == 4 * (1 + 2 + 3 + 4 + 5 + 6)
    assert found.loaded == 4 * 4 * 21 and found.stored == 4 * 3
    assert found.exact


def test_symbolic_size() -> None:
    size = Variable("size", 1, 16)
    assert count(triangle(size), {"size": 3}).operations == 4 * (1 + 2 + 3)
    assert count(triangle(size)).operations == operations(triangle(size)) == 4 * 16 * 17 // 2  # the largest


def test_group_reduce() -> None:
    """64 threads, each with 4 elements, then a tree in shared memory: 32 + 16 + … + 1 additions."""
    w = Writer()
    out, a = w.param(F32, 1), w.param(F32, 256)
    t = w.thread(64)
    tile = w.buffer(F32, 64, Space.SHARED)
    four = w.load(a, t * 4, 4)
    lanes = [UOp(Ops.LANE, F32, (four,), i) for i in range(4)]
    memory = tile.after(w.barrier(w.store(tile, t, w.emit(lanes[0] + lanes[1] + lanes[2] + lanes[3]))))
    half = 32
    while half:
        gate = w.emit(t < half)
        both = w.emit(w.load(memory, t, gate=gate) + w.load(memory, t + half, gate=gate))
        memory = tile.after(w.barrier(w.store(memory, t, both, gate)))
        half //= 2
    w.store(out, index(0), w.load(memory, index(0)), w.emit(t.equal(0)))
    found = count(w.program("tree", workgroup=(64, 1, 1)))
    assert found.operations == 64 * 3 + 6 * 64  # what a gate leaves out of loads and stores is computed all the same
    assert found.shared_loads == 2 * 63 + 64 and found.shared_stores == 64 + 63
    assert found.barriers == 7 and (found.loaded, found.stored) == (256 * 4, 4)


def test_matmul_with_shared_tiles() -> None:
    """256 × 256 × 256, as the schedule says: a workgroup makes a tile of 32 × 32 or so, and reads its rows once."""
    (call,) = capture(lambda: (Tensor.empty(256, 256) @ Tensor.empty(256, 256)).realize()).calls
    program = program_for(call.kernel, WEBGPU)
    found, groups = count(program), math.prod(map(size_max, program.grid))
    assert found.multiply_adds == 256**3 and found.operations == 2 * 256**3 and found.exact
    stored = 256 * 256 // groups
    assert found.stored == found.group_stored == 4 * 256 * 256
    sides = [(r, stored // r) for r in range(1, stored + 1) if stored % r == 0]
    assert found.loaded == found.group_loaded and found.loaded in {groups * 4 * 256 * (r + c) for r, c in sides}
    assert 0.25 <= found.shared_loads / found.multiply_adds <= 1 and found.barriers >= 2
    plain = count(lower(apply(call.kernel, ()), WEBGPU))
    assert plain.operations == found.operations and plain.loaded == 2 * 4 * 256**3 and plain.shared_loads == 0
    assert plain.registers < found.registers


def test_an_address_from_memory() -> None:
    """Each of its loads counts as one of new memory, but never more than the kernel has."""
    (call,) = capture(lambda: Tensor.empty(50, 8)[Tensor.empty(20, dtype=dtypes.int32)].realize()).calls
    found = count(program_for(call.kernel, WEBGPU))
    assert not found.exact and 20 * 8 * 4 <= found.group_loaded <= found.loaded
    assert found.stored == 20 * 8 * 4


def test_addresses_are_no_values() -> None:
    """An index from memory, counted from the end: not where it says where a row lies, but where it is stored."""
    rows, places = Tensor.empty(50, 8).realize(), Tensor.empty(20, dtype=dtypes.int32).realize()
    one = [program_for(c.kernel, WEBGPU) for c in capture(lambda: (rows[places] * 2).realize()).calls]
    assert sum(map(operations, one)) == 20 * 8
    (call,) = capture(lambda: places.less(0).where(places + 50, places).realize()).calls
    assert operations(program_for(call.kernel, WEBGPU)) == 3 * 20
    # the digits of floats say where they are counted, and are values all the same
    counted = capture(lambda: Tensor.empty(64)[rows.flatten()[:30].mul(3).int()].realize()).calls
    assert sum(operations(program_for(c.kernel, WEBGPU)) for c in counted) > 30


def test_at_least_is_one_comparison() -> None:
    """As its negation is, whichever way it is written."""
    a, b = Tensor.empty(64).realize(), Tensor.empty(64).realize()
    chosen: list[Callable[[], Tensor]] = [
        lambda: a.ge(b).where(a, 1.0).realize(),
        lambda: a.ge(b).logical_not().where(a, 1.0).realize(),
    ]
    for compute in chosen:
        (call,) = capture(compute).calls
        assert operations(program_for(call.kernel, WEBGPU)) == 2 * 64


def test_registers() -> None:
    w = Writer()
    out, a = w.param(F32, 64), w.param(F32, 64)
    t = w.thread(16)
    x, y = w.load(a, w.emit(t * 4), 4), w.load(a, index(0))
    low = [UOp(Ops.LANE, F32, (x,), i) for i in range(2)]
    w.store(out, t, w.emit((low[0] + low[1]) * y))
    # the thread's index, x of four lanes and y; the index t · 4 is gone, lanes are parts of x
    assert registers(w.uops) == 1 + 4 + 1

    w = Writer()
    out, a = w.param(F32, 64), w.param(F32, 64)
    t = w.thread(16)
    sums, kept = w.buffer(F32, 8), w.load(a, t)
    w.store(sums, index(0), UOp.const(0.0, F32))
    loop = w.loop(9)
    scaled = w.emit(w.load(a, loop) * kept)
    lane = UOp(Ops.LANE, F32, (w.load(a, w.emit(loop * 4), 4),), 0)
    end = w.end(loop, w.store(sums, index(0), w.emit(scaled + lane)))
    w.store(out, t, w.load(sums.after(end), index(0)))
    # t, kept (its last use is in every step: to the loop's end), eight sums, the loop's index, `scaled`, four lanes
    assert registers(w.uops) == 1 + 1 + 8 + 1 + 1 + 4


# -- carried out -------------------------------------------------------------------------------------------------------
INTEGERS: dict[Ops, Callable[..., Any]] = {
    Ops.ADD: lambda a, b: a + b, Ops.MUL: lambda a, b: a * b, Ops.NEG: lambda a: -a, Ops.MAX: max,
    Ops.FLOORDIV: lambda a, b: a // b, Ops.MOD: lambda a, b: a % b, Ops.LESS: lambda a, b: a < b,
    Ops.EQUAL: lambda a, b: a == b, Ops.AND: lambda a, b: a & b, Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b, Ops.WHERE: lambda c, a, b: a if c else b, Ops.CAST: lambda a: a,
    Ops.MULADD: lambda a, b, c: a * b + c, Ops.SHL: lambda a, b: a << b, Ops.SHR: lambda a, b: a >> b,
}  # fmt: skip


class Literal:
    """All threads of all workgroups, one after another; only what addresses and gates are made of has values."""

    def __init__(self, program: Program, variables: Mapping[str, int]):
        self.uops, self.variables = program.uops, variables
        self.joined = counting.joined(program.uops)
        self.ends = {u.src[-1]: i for i, u in enumerate(self.uops) if u.op is Ops.END}
        self.totals: Counter[str] = Counter()
        self.addresses: defaultdict[Ops, set[Any]] = defaultdict(set)
        self.values: dict[UOp, Any] = {}
        grid = [self.value(as_index(s)) for s in program.grid]
        for group in product(*map(range, grid)):
            for thread in product(*map(range, program.workgroup)):
                self.at, self.group = {"grid": group, "thread": thread}, group
                self.values = {}
                self.block(0, len(self.uops))
        self.totals["barriers"] //= max(math.prod(grid) * math.prod(program.workgroup), 1)

    def value(self, u: UOp) -> Any:
        if u not in self.values:
            for s in u.src:
                self.value(s)
            self.values[u] = self.computed(u)
        return self.values[u]

    def computed(self, u: UOp) -> Any:
        if u.op is Ops.CONST:
            return u.arg
        if u.op is Ops.VARIABLE:
            return self.variables[u.arg[0]]
        if u.op is Ops.SPECIAL:
            return self.at[u.arg[0]][u.arg[1]]
        if u.op is Ops.STACK:
            return [self.values[s] for s in u.src]
        if u.op is Ops.LANE and (values := self.values[u.src[0]]) is not None:
            return values[u.arg]
        src = [self.values.get(s) for s in u.src]
        if u.op not in INTEGERS or u.dtype.kind not in ("index", "bool", "int") or None in src:
            return None
        if lists := [s for s in src if isinstance(s, list)]:
            if any(None in s for s in lists):
                return None
            return [INTEGERS[u.op](*(s[i] if isinstance(s, list) else s for s in src)) for i in range(len(lists[0]))]
        return INTEGERS[u.op](*src)

    def block(self, begin: int, end: int) -> None:
        i = begin
        while i < end:
            u = self.uops[i]
            if u.op is Ops.RANGE:
                for step in range(self.values[u.src[0]]):
                    self.values[u] = step
                    self.block(i + 1, self.ends[u])
                i = self.ends[u]
            elif u.op in (Ops.LOAD, Ops.STORE):
                self.access(u)
            elif u.op is Ops.BARRIER:
                self.totals["barriers"] += 1
            else:
                self.values[u] = self.computed(u)
                self.arithmetic(u)
            i += 1

    def arithmetic(self, u: UOp) -> None:
        of = u.src[0] if u.op in COMPARISON else u
        counts = of.dtype.kind not in ("index", "bool") and u not in self.joined and not counting.is_name(u)
        if u.op in ELEMENTWISE and counts:
            lanes = math.prod(map(int, u.shape))
            self.totals["operations"] += lanes * (2 if u.op is Ops.MULADD else 1)
            self.totals["multiply_adds"] += lanes * (u.op is Ops.MULADD)

    def access(self, u: UOp) -> None:
        self.values[u] = None
        memory, at = u.src[0].buffer, self.values[u.src[1]]
        gates = u.src[2 if u.op is Ops.LOAD else 3 :]
        width = math.prod(map(int, (u if u.op is Ops.LOAD else u.src[2]).shape))
        begins = at if isinstance(at, list) else [at + i for i in range(width)]
        if gates:
            gate = self.values[gates[0]]
            begins = [b for i, b in enumerate(begins) if (gate[i] if isinstance(gate, list) else gate)]
        if memory.op is Ops.PARAM:
            self.totals["loaded" if u.op is Ops.LOAD else "stored"] += memory.dtype.nbytes(len(begins))
            self.addresses[u.op] |= {(self.group, memory, b) for b in begins}
        elif memory.arg.space is Space.SHARED:
            self.totals["shared_loads" if u.op is Ops.LOAD else "shared_stores"] += len(begins)

    def touched(self, op: Ops) -> int:
        return sum(memory.dtype.nbytes(1) for _, memory, _ in self.addresses[op])


def check(program: Program, variables: Mapping[str, int] | None = None) -> Counts:
    found, literal = count(program, variables), Literal(program, variables or {})
    for name in (
        "operations", "multiply_adds", "loaded", "stored", "shared_loads", "shared_stores", "barriers",
    ):  # fmt: skip
        assert getattr(found, name) == literal.totals[name], name
    assert found.group_loaded == literal.touched(Ops.LOAD), "addresses loaded by workgroups"
    assert found.group_stored == literal.touched(Ops.STORE), "addresses stored by workgroups"
    assert operations(program, variables) == found.operations and found.exact
    return found


def cases() -> list[hand.Case]:
    return [
        hand.elementwise(), hand.row_sums(), hand.everything_max(), hand.matmul(), hand.linear(), hand.softmax(7, 20),
        hand.softmax_columns(), hand.convolution(), hand.padded(), hand.transposed(), hand.two_stores(),
        hand.gate_and_up(), hand.in_place(), hand.scores(0), hand.scores(11), hand.symbolic_softmax(13),
        hand.weighted_values(5),
    ]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_as_carried_out(case: hand.Case, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "SAMPLES", 1 << 20)
    check(program_for(case.kernel, TARGETS[target]), case.variables)
    check(lower(apply(case.kernel, ()), TARGETS[target]), case.variables)


@pytest.mark.parametrize("target", ("webgpu", "webgpu-subgroups", "cpu"))
def test_addresses_in_terms(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are too many combinations to enumerate, addresses are sums of what terms can be: the same ones."""
    monkeypatch.setattr(counting, "SAMPLES", 1 << 20)
    i, j = axes(24, 20)
    (k,) = axes(30, reduce=True, first=2)
    value = total(param(1, 24 * 30).load(i * 30 + k) * param(2, 30 * 20).load(k * 20 + j), k)
    program = program_for(kernel(param(0, 480).store(i * 20 + j, value)), TARGETS[target])
    exact = check(program)
    monkeypatch.setattr(counting._Counter, "_extent", lambda *_: counting.LIMIT + 1)
    found = count(program)
    assert (found.group_loaded, found.group_stored) == (exact.group_loaded, exact.group_stored)


def test_a_sample_of_many_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "LIMIT", 500)
    found = count(triangle(6))
    assert found.exact and found.operations == 4 * 21
    monkeypatch.setattr(counting, "LIMIT", 10)
    assert not (found := count(triangle(6))).exact and 0 <= found.stored <= 4 * 24


# -- works -------------------------------------------------------------------------------------------------------------
def test_command(tmp_path: Path) -> None:
    out = tmp_path / "count.json"
    only = "^(add-small|matmul-tiny-5x7x3|matmul-outer-1000x1x1003)$"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "count", "--only", only, "--json", out],
        cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, "TINYWEB_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [[c.strip() for c in row.strip("|").split("|")] for row in done.stdout.splitlines() if row[:1] == "|"]
    assert rows[0] == [c.strip() for c in HEADER.splitlines()[0].strip("|").split("|")]
    assert len(rows) == 2 + 3 and all(len(row) == len(rows[0]) for row in rows)
    assert "3 works, " in done.stdout and "1 matmul/conv/attention works from 512 up: 0 over" in done.stdout
    written = json.loads(out.read_text())
    tiny = next(w for w in written["works"] if w["name"] == "matmul-tiny-5x7x3")
    assert written["target"] == "webgpu" and tiny["multiply_adds"] >= 5 * 7 * 3 and tiny["text"] > 100
    assert tiny["compulsory"] == 4 * (5 * 7 + 7 * 3 + 5 * 3) == tiny["once"]


@pytest.mark.parametrize("target", TARGETS)
def test_temporaries_are_not_compulsory(target: str) -> None:
    """Two sums, one of the other: what lies between is moved, but no input and no output."""
    work = alike("two", normal((64, 512), (512, 512), (512, 8)), lambda x, a, b: (x @ a).tanh() @ b, needs(1))
    found = measure(work, TARGETS[target])
    assert not found.problem and found.kernels == 2
    assert found.compulsory == 4 * (64 * 512 + 512 * 512 + 512 * 8 + 64 * 8)
    assert found.once == found.compulsory + 2 * 4 * 64 * 512
    assert found.reduced == 1 and found.text > 0 and found.registers > 0


def test_what_fails_is_said() -> None:
    def wrong(x: Any) -> Any:
        raise ValueError("no such thing\nmore")

    result = measure(Work("wrong", normal((8,)), wrong, wrong, needs(8)), WEBGPU)
    assert result.problem == "ValueError: no such thing" and "no such thing" in line(result)
    assert "Not counted: wrong" in summary([result]) and line(result).count("|") == HEADER.splitlines()[0].count("|")


def test_summary() -> None:
    results = [
        Result("matmul-a", needed=100, operations=120, compulsory=10, group=30, once=10, large=True),
        Result("matmul-b", needed=100, operations=130, compulsory=10, group=30, once=21, large=True),
        Result("add", needed=100, operations=126, compulsory=10, group=30, once=30, beyond="it is an example"),
        Result("view"),
    ]
    lines = summary(results).splitlines()
    assert lines[0] == "4 works, 2 over 1.25 × work"
    assert lines[1].startswith("2 matmul/conv/attention works from 512 up: 1 over 2 × bytes")
    assert lines[1].endswith(" 2 if workgroups do")
    assert lines[2:] == ["matmul-b: not explained", "add: it is an example"]


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_what_is_beyond_the_limits_is_explained(name: str) -> None:
    result = measure(WORKS[name], TARGETS["webgpu"])
    assert not result.problem and (result.beyond or not result.is_beyond), line(result)


def test_large() -> None:
    assert is_large("matmul-thin", [(4, 512)]) and not is_large("matmul-odd", [(127, 131)])
    assert is_large("conv-3x3", [(1, 64, 56, 56)]) and not is_large("conv-3x3", [(1, 64, 14, 14)])
    assert is_large("attention-causal-1024", [(1, 4, 1024, 64)]) and not is_large("softmax", [(1000, 1003)])
