"""What is asked for ahead and what is filled once, on programs written by hand: each condition by itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.native_runtimes.programs import Writer
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import UOp
from tinyweb.graph.lower.loop_invariant import once_per_call
from tinyweb.render_c import dots, render
from tinyweb.render_c.c_types import declare, scalar_name, unsigned_name, vector_name

F32, I8, I32, U32 = dtypes.float32, dtypes.int8, dtypes.int32, dtypes.uint32


@pytest.mark.parametrize(("width", "gated", "ahead", "want"), [
    (16, False, 4096, True), (32, False, 4096, True), (8, False, 4096, False), (16, True, 4096, False),
    (16, False, 0, False),
])  # fmt: skip
def test_whole_vectors_are_asked_for_ahead(width: int, gated: bool, ahead: int, want: bool) -> None:
    w = Writer()
    out, a = w.param(I8, 256), w.param(I8, 256, ahead)
    g = w.grid(8)
    w.store(out, g * 32, w.load(a, g * 32, width, g < 5 if gated else None))
    text = render([w.program("p", (8, 1, 1))])
    assert ("PREFETCH(p1 + " in text) == want


def test_each_load_of_a_block_is_asked_for() -> None:
    """The distance counts in elements."""
    w = Writer()
    out, a = w.param(U32, 1 << 12), w.param(U32, 1 << 12, 4096)
    g = w.grid(8)
    i = w.loop(64)
    w.end(i, *(w.store(out, g * 512 + i * 8 + k, w.load(a, g * 512 + i * 8 + k, 4)) for k in (0, 4)))
    asked = re.findall(r"PREFETCH\(p1.*", render([w.program("words", (8, 1, 1))]))
    assert len(asked) == 2 and all(line.endswith("+ 1024)") for line in asked)


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
@pytest.mark.parametrize("each", [1, 2, 4, 8])
def test_functions_of_dots(n: int, each: int) -> None:
    """Exactly those that are used, in an order in which each is known to the next."""
    found, vectors = dots.helpers(n, each)
    called = dots.NAMES.get(each, "")
    widths = [m for m in (4, 8, 16, 32) if m <= n]
    names = [f"a_pairs_x{m:02}" for m in widths[:3]] + [f"b_dot_x{m:02}" for m in widths]
    names += [f"c_{called}_x{m:02}" for m in widths] if called else []
    assert sorted(found) == names
    assert vectors == {f"{t}x{k * m}" for m in widths for t, k in (("i8", 4), ("i16", 2), ("i32", 1), ("u32", 1))}
    known: set[str] = set()
    for name in sorted(found):
        text = found[name]
        defined = re.findall(r"^static inline __attribute__\(\(always_inline\)\) \w+ (\w+)\(", text, re.MULTILINE)
        assert len(defined) == 1 and text.count("#if") == text.count("#endif") and text.count("{") == text.count("}")
        assert set(re.findall(r"\b((?:pairs|dot|nibbles|twos|ones)_x\d+)\(", text)) - set(defined) <= known
        known.update(defined)
        # instructions of as many bits as the vectors that the function is for have
        lanes = int(name[-2:])
        sums = {int(m) for m in re.findall(r"\bi32x(\d+)\b", text)}
        assert sums == {lanes}, "sums of its own width alone"
        assert {int(m) for m in re.findall(r"(?:vpdpbusd|maddwd|maddubsw)(\d+)", text)} <= {32 * lanes}
        assert {int(m) for m in re.findall(r"\bi8x(\d+)\b", text)} <= {4 * lanes}
        assert {int(m) for m in re.findall(r"\bi16x(\d+)\b", text)} <= {2 * lanes}
    if called:
        for m in widths[1:]:
            operands = ["a", *dots.VARIABLES[:each], "c"]
            parts = (", ".join(f"{o}.{h}" for o in operands) for h in ("lo", "hi"))
            halves = ", ".join(f"{called}_x{m // 2}({part})" for part in parts)
            order = ", ".join(map(str, range(m)))
            assert f"__builtin_shufflevector({halves}, {order});" in found[f"c_{called}_x{m:02}"]
