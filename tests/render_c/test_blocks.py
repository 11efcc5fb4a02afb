"""What is asked for ahead and what is filled once, decided on programs written by hand: each condition by itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.native_runtimes.programs import Writer, index, splat
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, Variable
from tinyweb.graph.lower.loop_invariant import once_per_call
from tinyweb.graph.program import Program
from tinyweb.render_c import dots, render
from tinyweb.render_c.c_types import declare, scalar_name, unsigned_name, vector_name
from tinyweb.render_c.prefetch import AHEAD, BLOCK, WIDTH, WORTH, streamed

F32, I8, I32, U32 = dtypes.float32, dtypes.int8, dtypes.int32, dtypes.uint32


def reader(
    size: int = 1 << 17, iterations: int = 8, width: int = 16, extra: int = 0, stride: int | None = None,
    jump: int | None = None, gated: bool = False, dot: bool = True, written: bool = False, unknown: bool = False,
    symbolic: bool = False, picked: bool = False, twice: bool = False, variable: bool = False, again: bool = False,
) -> Program:  # fmt: skip
    """Multiplies `size` bytes, a block for each iteration of the grid, `width` at a time."""
    w = Writer()
    n = Variable("n", 1, iterations)
    out, a, ids = w.param(I32, 4 * iterations), w.param(I8, size + extra), w.param(I32, 4)
    g = w.grid(n if symbolic else iterations)
    block = size // iterations
    r = w.loop(n if unknown else block // width)
    at = g * (block if stride is None else stride) + r * (width if jump is None else jump)
    if picked:
        at = at + w.load(ids, index(0)).cast(dtypes.index)
    if variable:
        at = at + n
    x = w.load(a, at, width, g < 5 if gated else None)
    if twice:
        w.load(a, at, 2 * width)
    zero = splat(UOp.const(0, I32), width // 4) if width > 4 else UOp.const(0, I32)
    value = UOp(Ops.DOT, I32, (x, x, zero)) if dot else UOp(Ops.STACK, I32, (UOp.const(1, I32),) * (width // 4))
    w.store(out, g * 4, value)
    if written:
        w.store(a, at, x)
    w.end(r)
    if again:  # nobody knows how often
        r = w.loop(n)
        w.load(a, g * block + r * width, width)
        w.end(r)
    return w.program("reader", (n if symbolic else iterations, 1, 1))


@pytest.mark.parametrize(("change", "want"), [
    ({}, True), ({"size": WORTH - 16 * 8}, False), ({"size": WORTH + 16 * 8}, True),
    ({"size": 8 * BLOCK}, True), ({"size": 8 * BLOCK + 128}, False), ({"size": WORTH, "iterations": 2}, True),
    ({"size": WORTH + 32, "iterations": 2}, False),
    ({"width": 32}, True), ({"width": 8}, False), ({"extra": 16}, False), ({"extra": 128}, False),
    ({"stride": 16, "jump": 128}, False), ({"stride": (1 << 14) - 16}, False), ({"stride": 0}, False),
    ({"gated": True}, False), ({"dot": False}, False), ({"written": True}, False), ({"unknown": True}, False),
    ({"symbolic": True}, False), ({"picked": True}, False), ({"twice": True}, False), ({"variable": True}, True),
    ({"again": True}, False),
])  # fmt: skip
def test_what_is_asked_for_ahead(change: dict[str, int], want: bool) -> None:
    assert (AHEAD, WORTH, BLOCK, WIDTH) == (4096, 1 << 17, 1 << 16, 16)
    program = reader(**change)  # type: ignore[arg-type]
    found = streamed(program)
    assert {u.src[0].arg.slot for u in found} == ({1} if want else set())
    if program.grid[0] == 8 and change != {"width": 8}:  # there is no DOT of two sums
        assert ("PREFETCH(p1 + " in render([program])) == want


def test_each_load_of_a_block_is_asked_for() -> None:
    """Two loads in turns, in nested loops, of words: the distance counts in elements."""
    w = Writer()
    out, a = w.param(I32, 64), w.param(U32, 1 << 16)
    g = w.grid(8)
    i, j = w.loop(64), w.loop(16)
    x, y = (w.load(a, g * 8192 + i * 128 + j * 8 + k, 4) for k in (0, 4))
    b = splat(UOp.const(1, dtypes.int16), 8)
    for v in (x, y):
        w.store(out, g * 4, UOp(Ops.DOT, I32, (v, b, splat(UOp.const(0, I32), 4)), 0))
    w.end(j)
    w.end(i)
    last = w.loop(3)  # what comes behind a loop is not in it
    w.store(out, last, UOp.const(1, I32))
    w.end(last)
    program = w.program("words", (8, 1, 1))
    assert streamed(program) == {x, y}
    text = render([program])
    assert text.count("PREFETCH(p1 + ") == 2 and all(line.endswith("+ 1024)") for line in re.findall(
        r"PREFETCH\(p1.*", text))  # fmt: skip


# -- filled once ------------------------------------------------------------------------------------------------------
def filling(fill: Callable[[Writer, UOp, UOp, UOp, UOp], None]) -> list[str]:
    """The text of a kernel that fills the array r with `fill` and stores what lies at the grid's place."""
    w = Writer()
    out, a = w.param(F32, 8), w.param(F32, 8)
    g = w.grid(8)
    r = w.buffer(F32, 8)
    fill(w, out, a, g, r)
    w.store(out, g, w.load(r, g))
    program = w.program("p", (8, 1, 1))
    return render([replace(program, uops=once_per_call(program.uops))]).splitlines()


def before_grid(lines: list[str]) -> int:
    """Loops that begin before the grid's."""
    body = lines[next(n for n, line in enumerate(lines) if "p_body(" in line) :]
    loops = [line.strip() for line in body if line.strip().startswith("for (")]
    return next(n for n, line in enumerate(loops) if "grid" in line)


def alike(w: Writer, out: UOp, a: UOp, g: UOp, r: UOp) -> None:
    i = w.loop(8)
    w.end(i, w.store(r, i, w.load(a, i) * 2.0))


def by_grid(w: Writer, out: UOp, a: UOp, g: UOp, r: UOp) -> None:
    i = w.loop(8)
    w.end(i, w.store(r, i, w.load(a, g)))


def at_grid(w: Writer, out: UOp, a: UOp, g: UOp, r: UOp) -> None:
    i = w.loop(8)
    w.end(i, w.store(r, i + g, w.load(a, i)))


def of_written(w: Writer, out: UOp, a: UOp, g: UOp, r: UOp) -> None:
    i = w.loop(8)
    w.end(i, w.store(r, i, w.load(out, i)))


def with_others(w: Writer, out: UOp, a: UOp, g: UOp, r: UOp) -> None:
    i = w.loop(8)
    stores = w.store(r, i, w.load(a, i)), w.store(out, g, w.load(a, i))
    w.end(i, *stores)


def twice(w: Writer, out: UOp, a: UOp, g: UOp, r: UOp) -> None:
    alike(w, out, a, g, r)
    i = w.loop(8)
    w.end(i, w.store(r, i, w.load(a, g)))


def through_another(w: Writer, out: UOp, a: UOp, g: UOp, r: UOp) -> None:
    s = w.buffer(F32, 8)
    i = w.loop(8)
    done = w.end(i, w.store(s, i, w.load(a, i)))
    j = w.loop(8)
    w.end(j, w.store(r, j, w.load(s.after(done), j)))


def through_a_varying_one(w: Writer, out: UOp, a: UOp, g: UOp, r: UOp) -> None:
    s = w.buffer(F32, 8)
    i = w.loop(8)
    done = w.end(i, w.store(s, i, w.load(a, g)))
    j = w.loop(8)
    w.end(j, w.store(r, j, w.load(s.after(done), j)))


def beside_a_varying_one(w: Writer, out: UOp, a: UOp, g: UOp, r: UOp) -> None:
    s = w.buffer(F32, 8)
    i = w.loop(8)
    w.end(i, w.store(s, i, w.load(a, g)))
    alike(w, out, a, g, r)


def nested(w: Writer, out: UOp, a: UOp, g: UOp, r: UOp) -> None:
    i, j = w.loop(2), w.loop(4)
    w.end(i, w.end(j, w.store(r, i * 4 + j, w.load(a, i + j))))


@pytest.mark.parametrize(("fill", "want"), [
    (alike, 1), (by_grid, 0), (at_grid, 0), (of_written, 0), (with_others, 0), (twice, 0), (through_another, 2),
    (through_a_varying_one, 0), (beside_a_varying_one, 1), (nested, 2),
], ids=lambda f: getattr(f, "__name__", str(f)))  # fmt: skip
def test_what_every_block_would_fill_alike_is_filled_once(
    fill: Callable[[Writer, UOp, UOp, UOp, UOp], None], want: int
) -> None:
    lines = filling(fill)
    assert before_grid(lines) == want
    text = "\n".join(lines)
    assert text.count("{") == text.count("}")


def test_without_a_grid_nothing_is_filled_before() -> None:
    w = Writer()
    out, a = w.param(F32, 8), w.param(F32, 8)
    r = w.buffer(F32, 8)
    i = w.loop(8)
    done = w.end(i, w.store(r, i, w.load(a, i)))
    j = w.loop(8)
    w.end(j, w.store(out, j, w.load(r.after(done), j)))
    assert before_grid(render([w.program("p")]).splitlines()) == 0


# -- types ------------------------------------------------------------------------------------------------------------
def test_names_of_types() -> None:
    for dtype, name, unsigned in (
        (I8, "i8", "u32"),
        (dtypes.bool, "b8", "u32"),
        (dtypes.int64, "i64", "u64"),
        (dtypes.uint64, "u64", "u64"),
        (F32, "f32", "u32"),
        (dtypes.index, "i32", "u32"),
    ):
        assert (scalar_name(dtype), unsigned_name(dtype)) == (name, unsigned)
    assert vector_name("f32", 1) == "f32" and vector_name("f32", 8) == "f32x8"


def test_declarations() -> None:
    """All scalars, and the vectors that are named: after what they are made of, once, with the alignment of one
    element in memory; halves apart, which WebAssembly lacks."""
    text = declare({"f32", "f32x4", "i8x16", "b8x4", "f16x8", "i64x2"})
    lines = text.splitlines()
    for name, c in (("b8", "unsigned char"), ("i64", "long long"), ("f64", "double"), ("u32", "unsigned")):
        assert lines.count(f"typedef {c} {name} __attribute__((may_alias));") == 1
    for name, scalar, n, align in (("f32x4", "f32", 4, 4), ("i8x16", "i8", 16, 1), ("b8x4", "b8", 4, 1), 
            ("f16x8", "f16", 8, 2),
                                   ("i64x2", "i64", 2, 8)):  # fmt: skip
        at = lines.index(f"typedef {scalar} {name} __attribute__((ext_vector_type({n})));")
        assert lines[at + 1] == f"typedef {name} {name}_m __attribute__((aligned({align}), may_alias));  // in memory"
        assert any(f" {scalar} __attribute__((may_alias));" in line for line in lines[:at])
    inside = text[text.index("#ifndef __wasm__") : text.index("#endif")]
    assert inside.count("typedef") == 3 and "_Float16" in inside and text.count("f16x8") == 3
    assert "_Float16" not in declare({"f32x4"}) and "#if" not in declare({"f32"})
    order = [m for m in re.findall(r"typedef \w+ (\w+x\d+) ", declare({"f32x16", "f32x4", "f32x8"}))]
    assert order == ["f32x4", "f32x8", "f32x16"], "by number, not by name"


@pytest.mark.parametrize("n", [4, 8, 16, 32])
@pytest.mark.parametrize("nibbles", [False, True])
def test_functions_of_dots(n: int, nibbles: bool) -> None:
    """Exactly those that are used, in an order in which each is known to the next."""
    found, vectors = dots.helpers(n, nibbles)
    widths = [m for m in (4, 8, 16, 32) if m <= n]
    names = [f"a_pairs_x{m:02}" for m in widths[:3]] + [f"b_dot_x{m:02}" for m in widths]
    names += [f"c_nibbles_x{m:02}" for m in widths] if nibbles else []
    assert sorted(found) == names
    assert vectors == {f"{t}x{k * m}" for m in widths for t, k in (("i8", 4), ("i16", 2), ("i32", 1), ("u32", 1))}
    known: set[str] = set()
    for name in sorted(found):
        text = found[name]
        defined = re.findall(r"^static inline __attribute__\(\(always_inline\)\) \w+ (\w+)\(", text, re.MULTILINE)
        assert len(defined) == 1 and text.count("#if") == text.count("#endif") and text.count("{") == text.count("}")
        assert set(re.findall(r"\b((?:pairs|dot|nibbles)_x\d+)\(", text)) - set(defined) <= known
        known.update(defined)
        # instructions of as many bits as the vectors that the function is for have
        lanes = int(name[-2:])
        sums = {int(m) for m in re.findall(r"\bi32x(\d+)\b", text)}
        assert sums == {lanes}, "sums of its own width alone"
        assert {int(m) for m in re.findall(r"(?:vpdpbusd|maddwd|maddubsw)(\d+)", text)} <= {32 * lanes}
        assert {int(m) for m in re.findall(r"\bi8x(\d+)\b", text)} <= {4 * lanes}
        assert {int(m) for m in re.findall(r"\bi16x(\d+)\b", text)} <= {2 * lanes}
    if nibbles:
        for m in widths[1:]:
            halves = ", ".join(f"nibbles_x{m // 2}(a.{h}, b.{h}, d.{h}, c.{h})" for h in ("lo", "hi"))
            order = ", ".join(map(str, range(m)))
            assert f"__builtin_shufflevector({halves}, {order});" in found[f"c_nibbles_x{m:02}"]
