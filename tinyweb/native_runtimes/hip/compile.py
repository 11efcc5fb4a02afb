"""HIP C in, a code object for one AMD GPU out: kept on disk by content.

The compiler is the toolchain's Clang, which the ziglang wheel brings with the amdgcn target and lld: what the tests
compile and measure is what runs. No headers of ROCm are needed, as kernels are made of builtins. Where Clang has no
such target or does not know a chip, ROCm's own compiler (HIPRTC) takes the same text. TINYWEB_HIP_COMPILER, "clang" or
"hiprtc", says which of them it must be.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tinyweb.errors import DeviceError, ToolchainError
from tinyweb.native_runtimes.hip.library import rtc_library
from tinyweb.toolchain import COMMON_FLAGS, ERROR_LINES, Toolchain, cached_bytes, find_clang, run_tool

TRIPLE = "--target=amdgcn-amd-amdhsa"
# Version 4 of code objects is what every ROCm since 4.1 loads; kernels ask for nothing that came later.
HIP_FLAGS = (
    *(f for f in COMMON_FLAGS if not f.startswith("-O")), "-O3", "-x", "hip", "--cuda-device-only", "-nogpulib",
    "-nogpuinc", "-mcode-object-version=4", "-fno-unroll-loops", "-fuse-cuid=none",
)  # fmt: skip
RTC_FLAGS = ("-O3", "-ffp-contract=fast", "-fno-unroll-loops", "-mcode-object-version=4")
# Tried one after the other where registers are spilled: instructions in the order of the text, so that fewer values
# wait for their use; and in the order that needs the fewest registers.
LESS_CROWDED = ("-misched-prera-direction=topdown", "-misched=gcn-iterative-minreg")
COMPILERS = ("clang", "hiprtc")


@dataclass(frozen=True)
class CodeObject:
    """Machine code of some kernels. `assembly` is its text, "" where HIPRTC made it."""

    chip: str
    binary: bytes
    assembly: str


def compile_code_object(source: str, chip: str) -> CodeObject:
    """Compile HIP C for a chip such as "gfx1100".

    Raises ToolchainError with the compiler's first lines if it refuses, or if nothing here compiles for the chip.
    """
    if chosen_compiler(chip) == "hiprtc":
        return CodeObject(chip, _with_hiprtc(source, chip), "")
    toolchain = find_clang()
    assembly = _assembly(toolchain, source, chip, ())
    for option in LESS_CROWDED:
        if not _spills(assembly):
            break
        with suppress(ToolchainError):  # an option of LLVM's own: another version may not have it
            assembly = min(assembly, _assembly(toolchain, source, chip, ("-mllvm", option)), key=_spills)

    def assemble(folder: Path, output: Path) -> None:
        command = [*toolchain.clang, TRIPLE, f"-mcpu={chip}", "-x", "assembler", "-c", "-", "-o", "code.o"]
        run_tool(command, folder, assembly)
        run_tool([*toolchain.link_elf, "-shared", "code.o", "-o", output.name], folder)

    return CodeObject(chip, cached_bytes([toolchain.name, chip, assembly], ".hsaco", assemble), assembly)


def _assembly(toolchain: Toolchain, source: str, chip: str, options: tuple[str, ...]) -> str:
    flags = [*HIP_FLAGS, f"--offload-arch={chip}", *options]

    def build(folder: Path, output: Path) -> None:
        run_tool([*toolchain.clang, *flags, "-S", "-", "-o", output.name], folder, source)

    return cached_bytes([toolchain.name, *flags, source], ".amdgcn", build).decode()


def _spills(assembly: str) -> int:
    """Registers that are spilled, of all kernels together."""
    return sum(map(int, re.findall(r"^ +\.[sv]gpr_spill_count: +(\d+)", assembly, re.MULTILINE)))


def chosen_compiler(chip: str) -> str:
    """What compiles for a chip here, "clang" or "hiprtc"; ToolchainError where nothing does."""
    wanted = os.environ.get("TINYWEB_HIP_COMPILER", "")
    if wanted and wanted not in COMPILERS:
        raise ToolchainError(f"TINYWEB_HIP_COMPILER is {wanted!r}: set it to clang or hiprtc, or unset it")
    if wanted:
        return wanted
    toolchain = find_clang()
    if toolchain.link_elf and chip in _chips(toolchain):
        return "clang"
    try:
        rtc_library()
    except DeviceError:
        raise ToolchainError(
            f"Nothing here compiles for {chip}: {toolchain.name} has no target for it with lld beside it, and there is "
            "no HIPRTC; unset TINYWEB_CLANG and install the Python package ziglang in its newest version, or ROCm."
        ) from None
    return "hiprtc"


@functools.cache
def _chips(toolchain: Toolchain) -> frozenset[str]:
    """The AMD GPUs that a Clang knows, none where it was built without them."""
    try:
        done = subprocess.run(
            [*toolchain.clang, TRIPLE, "-print-supported-cpus"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(line.strip() for line in (done.stdout + done.stderr).splitlines() if line.startswith("\tgfx"))


def _with_hiprtc(source: str, chip: str) -> bytes:
    """In a process of its own: for a chip that it does not know, HIPRTC ends the process that it is in."""
    path, version = rtc_library()

    def build(folder: Path, output: Path) -> None:
        (folder / "source").write_text(source)
        command = [sys.executable, "-m", "tinyweb.native_runtimes.hip.hiprtc", path, chip, "source", output.name]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        done = subprocess.run([*command, *RTC_FLAGS], cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0 or not output.exists():
            lines = (done.stderr or done.stdout).strip().splitlines()[:ERROR_LINES]
            said = "\n".join(lines) or f"it ended with {done.returncode}: it may not know the chip"
            raise ToolchainError(f"HIPRTC {version} refused the source it was given for {chip}:\n{said}")

    return cached_bytes(["hiprtc", path, version, chip, *RTC_FLAGS, source], ".hsaco", build)
