"""Products of integers below 8 bits with relaxed SIMD: both ways to sum are exact, and kernels are there for both."""

from __future__ import annotations

import re

import numpy as np
import pytest
import wasmtime

from tests.graph.lower.hand_kernels import dots as groups
from tinyweb.dtype import dtypes
from tinyweb.graph.lower import program_for
from tinyweb.graph.target import wasm_target
from tinyweb.render_c import dots, kernel_functions
from tinyweb.render_c.c_types import declare
from tinyweb.toolchain import compile_wasm

SUMS = 8
WORDS, OTHERS, RESULTS = 1 << 16, 1 << 17, 1 << 18  # addresses


def engine(deterministic: bool) -> wasmtime.Engine:
    """Where the engine has no choice, the operand of 7 bits is one with a sign."""
    config = wasmtime.Config()
    config.wasm_relaxed_simd = True
    config.wasm_relaxed_simd_deterministic = deterministic
    return wasmtime.Engine(config)


def module(each: int) -> bytes:
    """`at_once` and `in_pairs` add to RESULTS; `asked` is what chooses."""
    texts, vectors = dots.helpers(SUMS, each)
    pairs = dots.helpers_in_pairs(texts)
    assert len(pairs) == 2 and set(pairs) < set(texts)
    four = pairs[f"c_{dots.NAMES[each]}_x04"]
    assert four.count("relaxed_dot_i8x16_i7x16_s_i16x8") == each and "add_s_i32x4" not in four
    sums = f"(*(i32x{SUMS}_m *){RESULTS})"
    given = [f"*(u32x{SUMS}_m *){WORDS}", *(f"*(i8x{4 * SUMS}_m *){OTHERS + 256 * i}" for i in range(each)), sums]
    call = f"{sums} = {dots.NAMES[each]}_x{SUMS}({', '.join(given)});"
    exported = {"at_once": call, "in_pairs": dots.in_pairs(call), "asked": f"{sums}[0] = saturates();"}
    functions = [f"void {name}(void) {{ {text} }}" for name, text in exported.items()]
    parts = [declare(vectors), *(texts[k] for k in sorted(texts)), *(pairs[k] for k in sorted(pairs))]
    source = "\n".join([*parts, dots.SATURATES, *functions])
    return compile_wasm(
        source, threads=False, relaxed_simd=True, exports=[*exported], memory_pages=5, global_base=1 << 18 | 1 << 12
    )


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("each", dots.NAMES)
def test_both_sums_are_exact(each: int, deterministic: bool) -> None:
    used = engine(deterministic)
    store = wasmtime.Store(used)
    memory = wasmtime.Memory(store, wasmtime.MemoryType(wasmtime.Limits(5, 5)))
    exports = wasmtime.Instance(store, wasmtime.Module(used, module(each)), [memory]).exports(store)

    def call(name: str) -> None:
        function = exports[name]
        assert isinstance(function, wasmtime.Func)
        function(store)

    def results() -> np.ndarray:
        return np.frombuffer(bytes(memory.read(store, RESULTS, RESULTS + 4 * SUMS)), np.int32)

    rng, bits = np.random.default_rng(each), 8 // each
    for least, most in ((-128, 127), (-128, -128), (127, 127)):
        words = rng.integers(0, 1 << 32, SUMS, dtype=np.uint32) if least < most else np.full(SUMS, -1).astype(np.uint32)
        others = rng.integers(least, most, (each, 4 * SUMS), endpoint=True).astype(np.int8)
        begun = rng.integers(-1000, 1000, SUMS).astype(np.int32)
        places = words.view(np.uint8) >> (bits * np.arange(each))[:, None] & ((1 << bits) - 1)
        want = begun + (places.astype(np.int64) * others).reshape(each, SUMS, 4).sum((0, 2))
        memory.write(store, words.tobytes(), WORDS)
        for i, other in enumerate(others):
            memory.write(store, other.tobytes(), OTHERS + 256 * i)
        for name in ("at_once", "in_pairs"):
            memory.write(store, begun.tobytes(), RESULTS)
            call(name)
            np.testing.assert_array_equal(results(), want, err_msg=name)
    call("asked")
    assert results()[0] in ((0,) if deterministic else (0, 1))


def test_kernels_are_there_for_both() -> None:
    """Those that have such products, and no others, nor where nobody asked."""
    target = wasm_target(2, relaxed=True)
    kernels = [groups(dtype, tokens=1, outputs=64, groups=8).kernel for dtype in (dtypes.int4, dtypes.int8)]
    few, bytes_alone = (program_for(k, target) for k in kernels)
    text = kernel_functions([few, bytes_alone], either_dot=True)
    assert f"{bytes_alone.name}_in_pairs" not in text
    assert re.findall(r"^static void (\w+)_in_pairs\(", text, re.MULTILINE) == [few.name]
    copy = text[text.index(f"static void {few.name}_in_pairs(") :]
    assert "nibbles_in_pairs_x4(" in copy and not re.search(r"\bnibbles_x", copy)
    assert text.count(f"#define {few.name}_body(...)") == 1 and text.count("saturates(void)") == 1
    for programs, asked in (([few, bytes_alone], False), ([bytes_alone], True)):
        assert "_in_pairs" not in kernel_functions(programs, either_dot=asked)
