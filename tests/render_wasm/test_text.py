"""The text of a bundle's module, and what is read from a compiled one; nothing is compiled here."""

from __future__ import annotations

from typing import Any

import pytest

from tests.native_runtimes.programs import Writer
from tinyweb.dtype import dtypes
from tinyweb.errors import DeviceError, ExportError
from tinyweb.graph.ir import UOp, Variable
from tinyweb.graph.program import Program
from tinyweb.render_wasm import (
    BundleCall,
    bundle,
    bundle_source,
    compile_bundle,
    compile_module,
    module,
    static_data_bytes,
)

F32 = dtypes.float32


def copy(name: str, size: int = 6) -> Program:
    """p0[i] = p1[i], of a grid of the variable n."""
    n = Variable("n", 1, 6)
    w = Writer()
    out, a = w.param(F32, size), w.param(F32, size)
    i = w.grid(n)
    w.store(out, i, w.load(a, i))
    return w.program(name, (n, 1, 1))


def lines(calls: list[BundleCall], programs: list[Program] | None = None, **slots: int) -> list[str]:
    text = bundle_source(programs or [copy("one"), copy("two")], {"go": calls}, slots or {"n": 5}, 1024, 2048)
    return [line.strip() for line in text[text.index("void go(") :].splitlines()]


def test_an_entry_point() -> None:
    """One launch for each call, with addresses and the size of its grid; a wait where memory overlaps."""
    calls = [BundleCall(0, (100, 200)), BundleCall(1, (124, 200)), BundleCall(0, (200, 148)), BundleCall(0, (300, 100))]
    assert lines(calls) == [
        "void go(int thread, int threads) {", "START",
        "LAUNCH(variables[5], one, (void *)100, (void *)200)",
        "LAUNCH(variables[5], two, (void *)124, (void *)200)",
        "AFTER_ALL",
        "LAUNCH(variables[5], one, (void *)200, (void *)148)",
        "LAUNCH(variables[5], one, (void *)300, (void *)100)",
        "FINISH", "}",
    ]  # fmt: skip
    assert lines([]) == ["void go(int thread, int threads) {", "START", "FINISH", "}"]


@pytest.mark.parametrize(("first", "second", "waits"), [
    ((100, 200), (223, 300), True), ((100, 200), (220, 300), True), ((100, 200), (224, 300), False),
    ((100, 200), (300, 123), True), ((100, 200), (300, 124), False), ((100, 200), (300, 200), False),
    ((100, 200), (100, 300), True), ((100, 200), (177, 300), True), ((100, 200), (176, 300), False),
])  # fmt: skip
def test_launches_wait_for_what_overlaps(first: tuple[int, int], second: tuple[int, int], waits: bool) -> None:
    """Parameters take 24 bytes."""
    assert ("AFTER_ALL" in lines([BundleCall(0, first), BundleCall(0, second)])) == waits


def test_memory_that_is_passed_and_not_touched_is_not_waited_for() -> None:
    w = Writer()
    out, _ = w.param(F32, 6), w.param(F32, 6)
    w.store(out, w.grid(6), UOp.const(1.0, F32))
    fill = w.program("fill", (6, 1, 1))
    assert not fill.params[1].read
    for calls in ([(0, 100), (100, 300)], [(100, 0), (200, 100)]):
        assert "AFTER_ALL" not in lines([BundleCall(0, c) for c in calls], [fill])


def test_addresses_go_by_slot() -> None:
    for given in ((1,), (1, 2, 3), ()):
        with pytest.raises(ExportError, match=f"kernel one takes 2 buffers and was given {len(given)}"):
            lines([BundleCall(0, given)])
    for name in ("a-b", "1st", "", "ä", "a b"):
        with pytest.raises(ExportError, match="cannot be a function's name"):
            bundle_source([copy("one")], {name: []}, {"n": 0}, 0, 0)
    with pytest.raises(DeviceError, match="variable n"):
        lines([BundleCall(0, (1, 2))], m=0)


def test_the_whole_text() -> None:
    """Each kernel once, not inlined; variables and counters at their addresses; entry points in order."""
    text = bundle_source([copy("one"), copy("two"), copy("one")], {"b": [], "a": []}, {"n": 0}, 1234, 5678)
    for name in ("one", "two"):
        assert text.count(f"__attribute__((noinline)) static void {name}_body(") == 1
        assert text.count(f"void {name}_launch(\n  void *p0, void *p1, i32 first, i32 span, ") == 1
    assert "static const i32 *const variables = (const i32 *)1234;" in text
    assert "static i32 *const done = (i32 *)5678, " in text and "static i32 *const taken = done + 16;" in text
    assert "${" not in text
    assert text.index("_body(") < text.rindex("#ifdef __wasm_atomics__") < text.index("void b(") < text.index("void a(")


# -- a compiled module -------------------------------------------------------------------------------------------------
def leb128(value: int) -> bytes:
    out = b""
    while True:
        value, low = value >> 7, value & 0x7F
        out += bytes([low | (0x80 if value else 0)])
        if not value:
            return out


def section(number: int, length: int) -> bytes:
    return bytes([number]) + leb128(length) + bytes(length)


HEAD = b"\0asm\1\0\0\0"


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 16383, 16384, 70000])
def test_static_data(size: int) -> None:
    """The length of section 11, wherever it is."""
    data = section(11, size)
    for before in (b"", section(1, 5), section(1, 200) + section(10, 20000), section(12, 1)):
        for after in (b"", section(0, 11)):
            assert static_data_bytes(HEAD + before + data + after) == size
    assert static_data_bytes(HEAD + section(1, 11) + section(10, 300)) == 0 == static_data_bytes(HEAD)


@pytest.mark.parametrize("cut", [HEAD + b"\1", HEAD + b"\1\x80", HEAD + section(1, 3) + b"\x0b\xff\xff"])
def test_modules_that_end_too_early(cut: bytes) -> None:
    with pytest.raises(DeviceError, match="ends in the middle of a number"):
        static_data_bytes(cut)


def test_what_is_asked_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def compiled(source: str, **options: Any) -> bytes:
        asked.append((source, options))
        return HEAD + section(11, 100)

    monkeypatch.setattr(bundle, "compile_wasm", compiled)
    monkeypatch.setattr(module, "compile_wasm", compiled)
    options = {"threads": True, "pages": 7, "static_base": 99}
    assert compile_bundle("text", ["a", "b"], **options, static_bytes=100) == HEAD + section(11, 100)  # type: ignore[arg-type]
    assert asked == [("text", {
        "threads": True, "relaxed_simd": False, "exports": ["a", "b"], "memory_pages": 7, "stack_bytes": 16,
        "global_base": 99,
    })]  # fmt: skip
    with pytest.raises(ExportError, match="need 100 bytes of static data, and 99 were set aside"):
        compile_bundle("text", ["a"], **options, static_bytes=99)  # type: ignore[arg-type]
    compile_bundle("text", ["a"], **options, static_bytes=101, relaxed_simd=True)  # type: ignore[arg-type]
    assert asked[-1][1]["relaxed_simd"]
    asked.clear()
    compile_module([copy("one"), copy("two"), copy("one")])
    compile_module([copy("one")], 4096, 123)
    assert asked[0][1] == {
        "threads": False, "exports": ["one", "two"], "memory_pages": None, "global_base": None, "stack_bytes": 65536,
    }  # fmt: skip
    assert (asked[1][1]["global_base"], asked[1][1]["stack_bytes"]) == (4096, 123)
    assert "void one(void *const *buffers" in asked[0][0]
