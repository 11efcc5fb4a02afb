"""GPUs that are programmed in languages of the C family: OpenCL C, CUDA C++ and HIP C++."""

from __future__ import annotations

import re
from dataclasses import replace

from tinyweb.dtype import dtypes
from tinyweb.graph.target import CONVERSION, POINTERS, Target, cpu_target, webgpu_target

LEAST_BUSY = 1 << 14  # 256 threads for each of 64 multiprocessors
EXP2_DIGITS = 22  # of ex2.approx (PTX ISA) and v_exp_f32, which have an error of 2 units and of 1
_F64 = frozenset({dtypes.float64})
_F16 = frozenset({dtypes.float16})
_BF16 = frozenset({dtypes.bfloat16})
_WIDE = webgpu_target().arithmetic | {dtypes.int64, dtypes.uint64}
_STORED = cpu_target().arithmetic - _F64
# what all of them have: bytes in memory, 64-bit integers, workgroups of up to three dimensions
_ANY = Target(
    "gpu", "opencl", 4, 4, _WIDE, _STORED,
    has_threads=True, grid_dims=3, shared_bytes=32 << 10, max_workgroup=(256, 256, 64), max_invocations=256,
    max_grid=65535, max_buffers=POINTERS,
    checked_uses=1 << 13,  # tiles in shared memory are filled once for 64 outputs
    scattered_stores=True, scattered_loads=True, convert_cost=CONVERSION,
)  # fmt: skip


def opencl_target(
    *,
    f16: bool = False,
    f64: bool = True,
    ieee: bool = True,
    dot4: bool = False,
    subgroups: bool = False,
    shared_bytes: int = 32 << 10,
    max_workgroup: tuple[int, int, int] = (256, 256, 64),
    max_invocations: int = 256,
    max_binding_bytes: int = 2**62,
) -> Target:
    """OpenCL 1.2 and later. By default what the full profile has on any device, and 64-bit floats.

    `f16`, `f64`: cl_khr_fp16, cl_khr_fp64. `ieee`: divisions and square roots can be rounded correctly. `dot4`: sums of
    four products of bytes are instructions (cl_khr_integer_dot_product). `subgroups`: cl_khr_subgroups.
    """
    more = (_F16 if f16 else frozenset()) | (_F64 if f64 else frozenset())
    return replace(
        _ANY, name="opencl", arithmetic=_ANY.arithmetic | more, storage=_ANY.storage | more, ieee=ieee,
        subgroups=subgroups, shared_bytes=shared_bytes, max_workgroup=max_workgroup, max_invocations=max_invocations,
        max_binding_bytes=max_binding_bytes, instructions=("dot4_words",) if dot4 else (),
    )  # fmt: skip


NVIDIA = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120", "sm_120a")
AMD = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")


# bytes of shared memory that a workgroup can have: the most there is, less what the driver takes
_NVIDIA_SHARED = {"sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_120": 99, "sm_120a": 99}
_NVIDIA_MATRICES = ("mma_sync_16x16x16_f16", "mma_sync_16x16x16_bf16", "mma_sync_16x16x32_i8")
_TURING_MATRICES = ("mma_sync_m16n8k8_16x16x16_f16", "mma_sync_m8n8k16_16x16x32_i8")
# from sm_89 on; on sm_90 and sm_100 the assembler makes conversions and products of half floats of them
_NVIDIA_MATRICES_F8 = ("mma_sync_16x16x32_e4m3", "mma_sync_16x16x32_e5m2")


# of Hopper alone, the widest first
_NVIDIA_WARPGROUPS = tuple(
    f"wgmma_{kind}64x{n}x{t}"
    for kind, types in (("", ("16_f16", "16_bf16", "32_i8")), ("held_", ("16_f16", "16_bf16")))
    for t in types
    for n in (256, 192, 128, 96, 64, 48, 32)
)


def nvidia_target(arch: str = "sm_90", *, tf32: bool = False, portable: bool = False) -> Target:
    """An NVIDIA GPU of one of the architectures NVIDIA; ValueError for others. `tf32`: products of float32 may round
    their factors to 10 binary digits, which tensor cores do. `portable`: without what no later architecture has.
    """
    if arch not in NVIDIA:
        raise ValueError(f"no NVIDIA architecture is called {arch!r}: choose one of {', '.join(NVIDIA)}")
    ampere = arch != "sm_75"  # or later: brain floats, copies that arrive later, matrices of integers and brain floats
    matrices = (*_NVIDIA_MATRICES, *(("mma_sync_16x16x8_tf32",) if tf32 else ())) if ampere else _TURING_MATRICES
    matrices = (*(_NVIDIA_WARPGROUPS if arch in ("sm_90", "sm_90a") and not portable else ()), *matrices)
    matrices += _NVIDIA_MATRICES_F8 if arch not in ("sm_75", "sm_80", "sm_86") else ()
    return replace(
        _ANY, name=arch, language="cuda", arithmetic=_ANY.arithmetic | _F64,
        storage=_ANY.storage | _F64 | _F16 | (_BF16 if ampere else frozenset()),
        shared_bytes=_NVIDIA_SHARED.get(arch, 227) << 10, max_workgroup=(1024, 1024, 64), max_invocations=256,
        subgroups=True, instructions=(*matrices, "dot4_words"), loads_rows=True, copies_ahead=ampere, max_vector=16,
        thread_registers=255, logic_operands=3, neighbours=32, exp2_digits=EXP2_DIGITS, least_busy=LEAST_BUSY,
    )  # fmt: skip


# 8-bit floats of gfx942 are others than OCP's: it has one zero, no infinities, and another bias
_MFMA = ("mfma_16x16x16_f16", "mfma_16x16x16_bf16", "mfma_16x16x4_f32")
_WMMA11 = ("wmma11_16x16x16_f16", "wmma11_16x16x16_bf16", "wmma11_16x16x16_i8")
_AMD_MATRICES = {
    "gfx90a": (*_MFMA, "mfma_16x16x16_i8"), "gfx942": (*_MFMA, "mfma_16x16x32_i8"),
    "gfx950": (*_MFMA, "mfma_16x16x32_i8", "mfma_16x16x32_e4m3", "mfma_16x16x32_e5m2"),
    "gfx1100": _WMMA11, "gfx1151": _WMMA11,
    "gfx1201": tuple(f"wmma12_16x16x16_{t}" for t in ("f16", "bf16", "i8", "e4m3", "e5m2")),
}  # fmt: skip


def amd_target(arch: str = "gfx1100") -> Target:
    """An AMD GPU of one of the architectures AMD, or another one of their generations (gfx9 to gfx12), of which the
    least is expected; ValueError for others."""
    generation = re.fullmatch(r"gfx(9|1[0-2])[0-9a-f]{2}", arch)
    if generation is None:
        raise ValueError(f"no AMD architecture is called {arch!r}: choose one of {', '.join(AMD)}")
    dots = arch in AMD or generation[1] in ("11", "12")
    return replace(
        _ANY, name=arch, language="hip", arithmetic=_ANY.arithmetic | _F64,
        storage=_ANY.storage | _F64 | _F16 | _BF16, max_vector=16,
        shared_bytes=(160 if arch == "gfx950" else 64) << 10, max_workgroup=(1024, 1024, 1024), max_invocations=256,
        subgroups=True, thread_registers=256, neighbours=64 if generation[1] == "9" else 32,
        exp2_digits=EXP2_DIGITS, logic_operands=3, least_busy=LEAST_BUSY,
        instructions=(*_AMD_MATRICES.get(arch, ()), *(("dot4_words",) if dots else ())),
    )  # fmt: skip
