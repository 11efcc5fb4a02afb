"""Products of integers below 8 bits, in several planes too, of what stands for them in tables, and of bytes without a
sign: exact with whatever a processor has.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from tinyweb.graph.ir import PlanesArg
from tinyweb.native_runtimes.cpu.runtime import _is_arm, _processor_flags
from tinyweb.render_c import dots
from tinyweb.render_c.c_types import declare
from tinyweb.toolchain import find_clang

Run: TypeAlias = Callable[[Any, Any, Any], None]
SUMS = 16
FLAGS = {"native": ["-mcpu=native"]} if _is_arm() else {"plain": ["-mno-ssse3"], "native": ["-march=native"]}
LEVELS = {"ssse3": ["-mssse3"], "avx2": ["-mavx2", "-mno-avx512f", "-mno-avxvnni"]}
FLAGS |= {level: flags for level, flags in LEVELS.items() if level in _processor_flags()}
FP4 = tuple(12 + v for v in (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12))
WIDE = tuple(range(0, 255, 17))[:15] + (255,)


def compiled(
    name: str, texts: dict[str, str], vectors: set[str], each: int, flags: list[str], folder: Path,
    words: tuple[str, ...] = (f"u32x{SUMS}",),
) -> Run:  # fmt: skip
    first = ", ".join(f"((const {kind}_m *)a)[{i}]" for i, kind in enumerate(words))
    operands = "".join(f", *({kind} *)b[{i}]" for i, kind in enumerate([f"i8x{4 * SUMS}_m"] * each))
    call = f"{name}({first}{operands}, *(i32x{SUMS}_m *)out)"
    source = declare(vectors) + "\n".join(texts[k] for k in sorted(texts))
    source += f"\nvoid run(void *a, void **b, void *out) {{ *(i32x{SUMS}_m *)out = {call}; }}\n"
    library = folder / "dots.so"
    command = [*find_clang().clang, "-O1", "-shared", "-fPIC", "-Wno-psabi", *flags, "-x", "c", "-", "-o", str(library)]
    done = subprocess.run(command, input=source, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[:2000]
    run: Run = ctypes.CDLL(str(library)).run
    return run


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("what", [2, 4, 8, FP4, WIDE], ids=["4 bits", "2 bits", "1 bit", "small table", "wide table"])
def test_products_are_exact(what: int | tuple[int, ...], flags: str, tmp_path: Path) -> None:
    if isinstance(what, tuple):
        name, texts, vectors = dots.looked_up(SUMS, what)
        each, table = 2, np.array(what)
    else:
        (texts, vectors), each, table = dots.helpers(SUMS, what), what, np.arange(256)
        name = f"{dots.NAMES[each]}_x{SUMS}"
    run = compiled(name, texts, vectors, each, FLAGS[flags], tmp_path)
    rng, bits = np.random.default_rng(each), 8 // each
    for extreme in (False, True):
        words = np.full(SUMS, 0xFFFFFFFF, np.uint32) if extreme else rng.integers(0, 1 << 32, SUMS, dtype=np.uint32)
        others = [
            np.full(4 * SUMS, -128, np.int8) if extreme else rng.integers(-128, 128, 4 * SUMS).astype(np.int8)
            for _ in range(each)
        ]
        out = rng.integers(-1000, 1000, SUMS).astype(np.int32)
        want = out.astype(np.int64)
        for i, other in enumerate(others):
            places = words.view(np.uint8) >> (bits * i) & ((1 << bits) - 1)
            want = want + (table[places].astype(np.int64) * other).reshape(SUMS, 4).sum(1)
        pointers = (ctypes.c_void_p * each)(*(o.ctypes.data for o in others))
        run(words.ctypes.data_as(ctypes.c_void_p), pointers, out.ctypes.data_as(ctypes.c_void_p))
        np.testing.assert_array_equal(out, want)


PLANES = [
    PlanesArg((4, 2), (0, 1)),
    PlanesArg((4, 1), (0, 3)),
    PlanesArg((2, 1), (0, 0)),
    PlanesArg((4, 2, 1), (0, 0, 2)),
]


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("how", PLANES, ids=str)
def test_planes_are_joined(how: PlanesArg, flags: str, tmp_path: Path) -> None:
    name, texts, vectors = dots.joined(SUMS, how)
    words = (f"u32x{SUMS}",) * len(how.bits)
    run = compiled(name, texts, vectors, how.in_byte, FLAGS[flags], tmp_path, words)
    rng = np.random.default_rng(sum(how.bits))
    for extreme in (False, True):
        shape = (len(how.bits), SUMS)
        planes = np.full(shape, 0xFFFFFFFF, np.uint32) if extreme else rng.integers(0, 1 << 32, shape, dtype=np.uint32)
        others = np.full((how.in_byte, 4 * SUMS), -128, np.int8)
        if not extreme:
            others = rng.integers(-128, 128, others.shape).astype(np.int8)
        out = rng.integers(-1000, 1000, SUMS).astype(np.int32)
        want = out.astype(np.int64)
        for at, other in enumerate(others):
            codes = np.zeros(4 * SUMS, np.int64)
            for i, (bits, place) in enumerate(zip(how.bits, how.places)):
                found = planes[i].view(np.uint8) >> (bits * (place * how.in_byte + at)) & ((1 << bits) - 1)
                codes += found.astype(np.int64) << sum(how.bits[:i])
            want = want + (codes * other).reshape(SUMS, 4).sum(1)
        pointers = (ctypes.c_void_p * how.in_byte)(*(o.ctypes.data for o in others))
        run(planes.ctypes.data_as(ctypes.c_void_p), pointers, out.ctypes.data_as(ctypes.c_void_p))
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("flags", FLAGS)
def test_bytes_without_a_sign(flags: str, tmp_path: Path) -> None:
    texts, vectors = dots.any_bytes(SUMS), dots.helpers(SUMS)[1] | {f"u16x{2 * n}" for n in (4, 8, 16, 32)}
    run = compiled(f"octets_x{SUMS}", texts, vectors, 1, FLAGS[flags], tmp_path, (f"i8x{4 * SUMS}",))
    rng = np.random.default_rng(3)
    for a, b in (
        (np.full(4 * SUMS, 255), np.full(4 * SUMS, -128)),
        (rng.integers(0, 256, 64), rng.integers(-128, 128, 64)),
    ):
        left, right = a.astype(np.uint8), b.astype(np.int8)
        out = rng.integers(-1000, 1000, SUMS).astype(np.int32)
        want = out + (a * b).reshape(SUMS, 4).sum(1)
        pointers = (ctypes.c_void_p * 1)(right.ctypes.data)
        run(left.ctypes.data_as(ctypes.c_void_p), pointers, out.ctypes.data_as(ctypes.c_void_p))
        np.testing.assert_array_equal(out, want)
