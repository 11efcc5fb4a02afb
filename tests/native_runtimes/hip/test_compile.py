"""HIP C becomes code objects without a GPU, without ROCm, and what they take is read from them."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from tests.native_runtimes.programs import Writer
from tinyweb import toolchain
from tinyweb.dtype import dtypes
from tinyweb.errors import DeviceError, ToolchainError
from tinyweb.graph.gpu_targets import AMD
from tinyweb.native_runtimes.hip import compile as hip
from tinyweb.native_runtimes.hip.library import rtc_library
from tinyweb.native_runtimes.hip.resources import Resources, resources
from tinyweb.render_c import render_gpu
from tinyweb.render_c.dialect import HIP

HEAD = """
#ifndef __global__
#define __global__ __attribute__((global))
#endif
typedef _Float16 f16x4 __attribute__((ext_vector_type(4)));
typedef _Float16 f16x8 __attribute__((ext_vector_type(8)));
typedef _Float16 f16x16 __attribute__((ext_vector_type(16)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x8 __attribute__((ext_vector_type(8)));
"""
# one product of matrices by a wave, in each generation's words: elements that a lane has of a and b, and of c
MATRICES = {
    "gfx90a": ("__builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0)", 4, 4),
    "gfx942": ("__builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0)", 4, 4),
    "gfx950": ("__builtin_amdgcn_mfma_f32_16x16x32_f16(a, b, c, 0, 0, 0)", 8, 4),
    "gfx1100": ("__builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c)", 16, 8),
    "gfx1151": ("__builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c)", 16, 8),
    "gfx1201": ("__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c)", 8, 8),
}


def only(source: str, chip: str) -> Resources:
    """What the only kernel of a source takes."""
    (found,) = resources(hip.compile_code_object(source, chip)).values()
    return found


def matrix_product(chip: str) -> str:
    call, ab, c = MATRICES[chip]
    return f"""{HEAD}
extern "C" __global__ void product(f32x{c} *__restrict__ out, const f16x{ab} *__restrict__ x) {{
  const int lane = __builtin_amdgcn_workitem_id_x();
  const f16x{ab} a = x[lane], b = x[lane + 64];
  const f32x{c} c = out[lane];
  out[lane] = {call};
}}"""


def crowded(live: int) -> str:
    """A kernel of 1024 threads that holds so many values at once."""
    loads = "\n".join(f"  const float v{i} = a[t * {live} + {i}];" for i in range(live))
    uses = "\n".join(f"  out[t * {live} + {i}] = v{i} * v{live - 1 - i};" for i in range(live))
    return f"""{HEAD}
extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(1024, 1024)))
void crowded(float *out, const float *a) {{
  const int t = __builtin_amdgcn_workitem_id_x();
{loads}
  __builtin_amdgcn_s_barrier();
{uses}
}}"""


def quadrupled() -> str:
    """out = 4 · a in vectors of four, through shared memory, as the renderer writes it."""
    w = Writer()
    f = dtypes.float32
    out, a = w.param(f, 4096), w.param(f, 4096)
    at = w.grid(16) * 256 + w.thread(64) * 4
    w.store(out, at, w.load(a, at, 4) * 4.0)
    return render_gpu([w.program("quadrupled", (16, 1, 1), (64, 1, 1))], HIP)


@pytest.mark.parametrize("chip", AMD)
def test_every_chip_has_wide_loads_and_matrices(chip: str) -> None:
    found = only(quadrupled(), chip)
    assert (found.name, found.arguments, found.argument_bytes) == ("quadrupled", 2, 16)
    assert found.wave == (32 if chip.startswith("gfx1") else 64) and found.wide_loads == 1
    assert found.spills == found.scratch_bytes == found.matrices == 0
    assert 0 < found.vgprs < 32 and found.waves >= 8 and 0 < found.instructions < 60
    product = only(matrix_product(chip), chip)
    assert product.matrices == 1 and product.spills == 0


def test_spills_and_scratch_memory_are_seen() -> None:
    easy, hard = only(crowded(16), "gfx90a"), only(crowded(300), "gfx90a")
    assert easy.spills == easy.scratch_bytes == 0
    assert hard.spills > 0 and hard.scratch_bytes > 0 and hard.vgprs == 128  # half of a SIMD's for each of two waves


def test_shared_memory_and_dots_are_counted() -> None:
    source = f"""{HEAD}
extern "C" __global__ void shares(int *out, const f32x4 *a) {{
  __attribute__((shared)) static f32x4 s[64];
  const int t = __builtin_amdgcn_workitem_id_x();
  s[t] = a[t];
  __builtin_amdgcn_s_barrier();
  const f32x4 v = s[63 - t];
  out[t] = __builtin_amdgcn_sudot4(true, (int)v[0], true, (int)v[1], out[t], false) + (int)(v[2] * v[3]);
}}"""
    found = only(source, "gfx1100")
    assert (found.shared_bytes, found.wide_shared_loads, found.dots, found.wide_loads) == (1024, 1, 1, 1)


def test_what_is_wrong_with_a_source_is_told_shortly() -> None:
    with pytest.raises(
        ToolchainError, match=r"The compiler refused the source it was given:\n.*error: a type sp"
    ) as caught:
        hip.compile_code_object("nonsense;\n" * 50, "gfx1100")
    assert len(str(caught.value).splitlines()) <= toolchain.ERROR_LINES + 1


def test_what_was_compiled_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYWEB_CACHE", str(tmp_path))
    first = hip.compile_code_object(quadrupled(), "gfx1100")
    kept = sorted(p.name for p in tmp_path.iterdir() if p.suffix in (".amdgcn", ".hsaco"))
    assert len(kept) == 2
    monkeypatch.setattr(hip, "run_tool", lambda *arguments: pytest.fail("it was compiled again"))
    assert hip.compile_code_object(quadrupled(), "gfx1100") == first


def test_what_is_damaged_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYWEB_CACHE", str(tmp_path))
    first = hip.compile_code_object(quadrupled(), "gfx1100")
    for entry in [p for p in tmp_path.iterdir() if p.suffix in (".amdgcn", ".hsaco")]:
        entry.write_bytes(entry.read_bytes()[:-1] + b"\xff")
        assert hip.compile_code_object(quadrupled(), "gfx1100") == first


def test_nothing_compiles_for_the_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise DeviceError("none")

    monkeypatch.setattr(hip, "rtc_library", none)
    with pytest.raises(
        ToolchainError, match=r"^Nothing here compiles for gfx9999: .*install the Python package ziglang"
    ):
        hip.compile_code_object(quadrupled(), "gfx9999")
    monkeypatch.setenv("TINYWEB_HIP_COMPILER", "gcc")
    with pytest.raises(ToolchainError, match="TINYWEB_HIP_COMPILER is 'gcc': set it to clang or hiprtc, or unset it"):
        hip.compile_code_object(quadrupled(), "gfx1100")


def test_hiprtc_takes_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        rtc_library()
    except DeviceError:
        pytest.skip("there is no HIPRTC: Debian's libamdhip64-5 has one")
    monkeypatch.setenv("TINYWEB_HIP_COMPILER", "hiprtc")
    found = only(quadrupled(), "gfx90a")
    assert (found.arguments, found.spills, found.wave, found.instructions) == (2, 0, 64, 0)
    with pytest.raises(ToolchainError, match=r"HIPRTC .* refused the source it was given for gfx90a:\n.*error: "):
        hip.compile_code_object("nonsense;", "gfx90a")
    with pytest.raises(ToolchainError, match=r"HIPRTC .* refused"):  # it ends its process
        hip.compile_code_object(quadrupled(), "gfx9999")


def test_damaged_code_objects_are_refused() -> None:
    code = hip.compile_code_object(quadrupled(), "gfx1100")
    chance = random.Random(0)
    for binary in (b"", b"\x7fELF", code.binary[:64]):
        with pytest.raises(DeviceError, match="a code object for an AMD GPU cannot be read"):
            resources(hip.CodeObject("gfx1100", binary, ""))
    for _ in range(2000):
        damaged = bytearray(code.binary)
        for _ in range(chance.randrange(1, 8)):
            damaged[chance.randrange(1200)] = chance.randrange(256)
        with suppress(DeviceError):
            resources(hip.CodeObject("gfx1100", bytes(damaged), code.assembly))
