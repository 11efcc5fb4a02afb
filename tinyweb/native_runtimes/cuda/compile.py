"""CUDA C in, machine code of one kind of GPU out, by NVRTC: no GPU and no driver are needed. Cached on disk by
content."""

from __future__ import annotations

import functools
import importlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tinyweb.errors import DeviceError
from tinyweb.graph.gpu_targets import NVIDIA
from tinyweb.native_runtimes.cuda.resources import Resources, resources
from tinyweb.native_runtimes.webgpu.backend import first_lines
from tinyweb.toolchain import cached_bytes

# a·b + c is fused where kernels say so; NaN, infinity and small numbers keep their meaning
FLAGS = ("--std=c++17", "--disable-warnings", "--no-source-include", "--fmad=false", "--ptxas-options=-v")
# where all steps of a loop are written out by the compiler, their values may not fit the registers
ROLLED = ('--define-macro=LOOP=_Pragma("unroll 4")', '--define-macro=WRITTEN_OUT=_Pragma("unroll 2")')
FORM = 2  # of entries of the cache
_REMARK = re.compile(r"\(C75\d\d\)[^\n]*")  # of warpgroups' products: what was serialized, or waited for
OLDEST = 75  # the least compute capability, times ten, that NVRTC 13 knows


@dataclass(frozen=True)
class Compiled:
    """One module: a cubin, or PTX, which the driver compiles for GPUs that are newer than NVRTC. `resources`: of each
    kernel, empty for PTX. `remarks`: what ptxas says of instructions that it made slower, as products of warpgroups
    that it lets follow each other one by one.
    """

    code: bytes
    resources: dict[str, Resources]
    remarks: tuple[str, ...] = ()


def nvrtc() -> Any:
    """The module `cuda.bindings.nvrtc` with its library loaded; DeviceError that says what to install."""
    try:
        found = importlib.import_module("cuda.bindings.nvrtc")
        found.nvrtcVersion()  # loads the library
    except (ImportError, RuntimeError) as error:  # cuda-bindings raises a RuntimeError where it finds no library
        raise DeviceError(
            "CUDA kernels are compiled by NVRTC, which is not installed (the Python packages cuda-bindings and "
            "nvidia-cuda-nvrtc): pip install 'tinyweb[cuda]'"
        ) from error
    return found


@functools.cache
def version() -> tuple[int, int]:
    """NVRTC's: major, minor."""
    _, major, minor = nvrtc().nvrtcVersion()
    return major, minor


@functools.cache
def architectures() -> tuple[int, ...]:
    """Compute capabilities, times ten, that NVRTC makes machine code for."""
    _, found = nvrtc().nvrtcGetSupportedArchs()
    return tuple(sorted(found))


def architecture(capability: int) -> str:
    """What to compile for a GPU of a compute capability (times ten): its own machine code, that of the same generation,
    or for one newer than NVRTC knows PTX of the newest it knows. DeviceError for one that is too old.
    """
    known = {int(a[3:]) for a in NVIDIA if a[3:].isdecimal()} & set(architectures())
    fit = [a for a in known if a <= capability]
    if not fit:
        raise DeviceError(
            f"CUDA needs a GPU of compute capability {OLDEST // 10}.{OLDEST % 10} or newer, and this one has "
            f"{capability // 10}.{capability % 10}: choose another device, as OPENCL"
        )
    return f"{'sm' if max(fit) // 10 == capability // 10 else 'compute'}_{max(fit)}"


def compile_cuda(source: str, arch: str, name: str = "kernel") -> Compiled:
    """Compile CUDA C for `arch`: "sm_90" and the like, or "compute_90" for PTX. `name` is what errors call it.

    DeviceError with the compiler's first lines if it does not compile.
    """
    if arch == "sm_90" and "wgmma." in source:
        arch += "a"  # of machine code that no other architecture has
    key = [f"nvrtc {version()} {FORM}", *FLAGS, *ROLLED, arch, source]
    entry = cached_bytes(key, ".cubin", lambda _, output: _write(output, _fitting(source, arch, name)))
    head, _, code = entry.partition(b"\n")
    known = json.loads(head)
    return Compiled(code, {k: Resources(**v) for k, v in known["resources"].items()}, tuple(known["remarks"]))


def _write(output: Path, compiled: Compiled) -> None:
    """An entry of the cache: a line of JSON, then the code."""
    resources = {name: asdict(r) for name, r in compiled.resources.items()}
    head = json.dumps({"resources": resources, "remarks": compiled.remarks})
    output.write_bytes(head.encode() + b"\n" + compiled.code)


def _fitting(source: str, arch: str, name: str) -> Compiled:
    """With loops as the compiler likes them; where that spills registers, with fewer steps of them written out."""
    compiled = _compile(source, arch, name)
    if not _spilled(compiled):
        return compiled
    rolled = _compile(source, arch, name, *ROLLED)
    return rolled if _spilled(rolled) < _spilled(compiled) else compiled


def _spilled(compiled: Compiled) -> int:
    return sum(r.spill_bytes for r in compiled.resources.values())


def _compile(source: str, arch: str, name: str, *flags: str) -> Compiled:
    library = nvrtc()

    def done(result: tuple[Any, ...]) -> Any:
        error, *values = result
        if int(error):
            raise DeviceError(f"kernel {name}: NVRTC failed with {error.name}")
        return values[0] if values else None

    def text(size: Any, get: Any) -> bytes:
        buffer = b" " * int(done(size(program)))
        done(get(program, buffer))
        return buffer

    program = done(library.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], []))
    try:
        options = [f"--gpu-architecture={arch}".encode(), *(flag.encode() for flag in (*FLAGS, *flags))]
        error = library.nvrtcCompileProgram(program, len(options), options)[0]
        log = text(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog).decode(errors="replace").rstrip("\0 \n")
        if int(error):
            raise DeviceError(f"kernel {name} was refused by NVRTC for {arch}:\n{first_lines(log) or error.name}")
        if arch.startswith("compute"):
            return Compiled(text(library.nvrtcGetPTXSize, library.nvrtcGetPTX), {})
        cubin = text(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN)
        return Compiled(cubin, resources(cubin, log), tuple(_REMARK.findall(log)))
    finally:
        library.nvrtcDestroyProgram(program)
