"""C in, machine code or WebAssembly out: one compiler run per source, cached on disk by content.

The compiler is the Clang inside the `ziglang` wheel, which pip installs with this package: every machine then makes the
same WebAssembly from the same source, byte for byte. Where there is no such wheel, or if `TINYWEB_CLANG` names one, a
system Clang (16 or newer, with `wasm-ld` beside it) serves as well. Sources see the compiler's own headers (stdint.h,
stddef.h, immintrin.h, …), never the machine's.

Results are kept in the user's cache folder, or in `TINYWEB_CACHE`. An entry appears whole, by a rename, so that any
number of processes may share the folder. Above `TINYWEB_CACHE_BYTES` (2 GiB) those that nobody used for longest go.
"""

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from tinyweb.errors import ToolchainError

KEPT = (".so", ".wasm", ".o", ".program", ".amdgcn", ".hsaco", ".cubin", ".clbin")
CACHE_BYTES = 2 << 30
DIGEST_BYTES = 32  # SHA-256, before an entry that is checked when it is read
BLOCK = 4096  # bytes of the disk that the smallest entry takes
UNTOUCHED_SECONDS = 3600  # another process may be about to load what it was just told the path of

WASM_PAGE = 65536
"""Bytes of one page of WebAssembly memory."""

MAX_WASM_PAGES = 65536
"""Pages of the largest 32-bit WebAssembly memory (4 GiB)."""

MIN_CLANG = 16
ERROR_LINES = 8

# a*b+c may be fused, and nothing else: no reassociation, NaN and Inf keep their meaning.
COMMON_FLAGS = ("-O2", "-w", "-fno-math-errno", "-ffp-contract=fast", "-fno-ident", "-fno-color-diagnostics")
# Schedules unroll what pays: doing it again made no kernel measured faster here, and takes a quarter of Clang's time.
NATIVE_FLAGS = ("-fPIC", "-march=native", "-fno-unroll-loops")
# For text that puts many vectors together from scalars: looking for ways to load them at once takes two thirds of
# Clang's time, and finds none that a kernel's schedule did not.
SCATTERED_FLAGS = ("-fno-slp-vectorize",)
# vectors as wide as the kernels ask for, also where Clang would rather have two of half the width
X86_FLAGS = ("-mprefer-vector-width=512",)
# Named one by one, because what a bare `wasm32` target includes has changed between versions of Clang.
WASM_FLAGS = (
    "--target=wasm32-unknown-unknown",
    "-mcpu=mvp",
    "-msimd128",
    "-mbulk-memory",
    "-msign-ext",
    "-mnontrapping-fptoint",
    "-mmutable-globals",
)

# Conversions between half and single precision, called by compiled code where the processor has no instruction for
# them (x86 without F16C). Rounds to nearest even; NaNs stay NaNs.
HALF_CONVERSIONS = """
typedef unsigned u32; typedef unsigned short u16;
__attribute__((visibility("hidden"))) float __extendhfsf2(_Float16 half) {
  u32 bits = __builtin_bit_cast(u16, half), sign = (bits & 0x8000) << 16, rest = bits & 0x7fff;
  if (rest >= 0x7c00) return __builtin_bit_cast(float, sign | 0x7f800000 | (rest & 0x3ff) << 13);
  if (rest >= 0x400) return __builtin_bit_cast(float, sign | ((rest << 13) + (112u << 23)));
  float magnitude = (float)rest * 0x1p-24f;  // subnormal: a count of the smallest step
  return sign ? -magnitude : magnitude;
}
__attribute__((visibility("hidden"))) _Float16 __truncsfhf2(float single) {
  u32 bits = __builtin_bit_cast(u32, single), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff, half;
  if (rest > 0x7f800000) half = 0x7e00;
  else if (rest >= 0x477ff000) half = 0x7c00;  // rounds to 65536 or more
  else if (rest >= 0x38800000) half = (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
  else half = __builtin_bit_cast(u32, __builtin_bit_cast(float, rest) + 0.5f) & 0x7ff;  // one step of 0.5f is 2^-24
  return __builtin_bit_cast(_Float16, (u16)(sign | half));
}
"""


@dataclass(frozen=True)
class Toolchain:
    """How to call one Clang. Commands are argument lists to which files and flags are appended."""

    name: str  # for people, and part of every cache key: compiler and version
    clang: tuple[str, ...]
    wasm_ld: tuple[str, ...]
    link_native: tuple[str, ...]
    link_elf: tuple[str, ...]  # lld for ELF, which code of GPUs is linked with; none where the system has no such
    brings_libraries: bool  # whether `link_native` finds libm and the compiler's own helper functions by itself


@functools.cache
def find_clang() -> Toolchain:
    """The compiler to use here.

    Raises ToolchainError if there is none, or if `TINYWEB_CLANG` names none that is usable.
    """
    if chosen := os.environ.get("TINYWEB_CLANG"):
        return _system_clang(chosen)
    if importlib.util.find_spec("ziglang") is not None:
        return _ziglang()
    return _system_clang("clang")


def compile_shared(sources: str | Iterable[str | tuple[str, Sequence[str]]], flags: Sequence[str] = ()) -> Path:
    """Compile C for this machine's processor; returns the path of the shared object, which stays in the cache.

    Several sources are compiled side by side, each as soon as it is there; one may be a pair, with flags of its own.
    They may call libm and declare what they use. `flags` are appended to the compiler's.
    Raises ToolchainError with the compiler's first lines if it does not compile, or if the cache cannot be written.
    """
    toolchain = find_clang()
    own = X86_FLAGS if platform.machine() in ("x86_64", "AMD64") else ()
    compile_flags = [*COMMON_FLAGS, *NATIVE_FLAGS, *own, *flags]
    key = [toolchain.name, _processor()]

    def compiled(given: str | tuple[str, Sequence[str]]) -> Path:
        source, own = (given, ()) if isinstance(given, str) else given
        used = [*compile_flags, *own]
        return cached([*key, *used, source], ".o", lambda _, output: _compile(toolchain, used, source, output))

    with ThreadPoolExecutor(os.cpu_count()) as threads:  # they wait for processes
        making = [threads.submit(compiled, s) for s in ([sources] if isinstance(sources, str) else sources)]
    objects = [str(one.result()) for one in making]

    def link(folder: Path, output: Path) -> None:
        libraries = ["-lm"] if toolchain.brings_libraries else [str(path) for path in _native_support(toolchain)]
        run_tool([*toolchain.link_native, *objects, *libraries, "-o", output.name], folder)

    return cached(objects, ".so", link)


def compile_wasm(
    source: str,
    *,
    threads: bool,
    relaxed_simd: bool = False,
    exports: Sequence[str],
    memory_pages: int | None,
    stack_bytes: int = 65536,
    global_base: int | None = None,
) -> bytes:
    """Compile freestanding C to a WebAssembly module with SIMD128; the same call gives the same bytes.

    The module imports `env.memory` and nothing else, and exports the functions `exports` and the mutable global
    `__stack_pointer`. There is no libc: an undefined function is an error. `exports` may name the linker's symbols
    too, such as `__heap_base` (a global: the first byte behind static data).

    - `threads`: the memory is shared and atomics are available. Instances may share one memory: each sets its own
      `__stack_pointer`, and the first to start initialises the static data (the memory must be zero there).
    - `memory_pages`: exact size of the memory, in pages of 64 KiB. None: any size that holds static data and stack.
    - `stack_bytes`: the stack that `__stack_pointer` starts with is at addresses 0 to `stack_bytes` (a multiple of 16).
    - `global_base`: address of static data, at least `stack_bytes`. None: right behind the stack.

    Raises ToolchainError with the first lines of the compiler or linker if they refuse.
    """
    toolchain = find_clang()
    compile_flags = [*COMMON_FLAGS, *WASM_FLAGS]
    if threads:
        compile_flags.append("-matomics")
    if relaxed_simd:
        compile_flags.append("-mrelaxed-simd")
    link_flags = ["--no-entry", "--import-memory", "--strip-all", "--stack-first", "-z", f"stack-size={stack_bytes}"]
    if global_base is not None:
        link_flags.append(f"--global-base={global_base}")
    link_flags += [f"--export={name}" for name in [*exports, "__stack_pointer"]]
    if memory_pages is not None:
        size = memory_pages * WASM_PAGE
        link_flags += [f"--initial-memory={size}", f"--max-memory={size}"]
    elif threads:  # a shared memory has to declare its maximum
        link_flags.append(f"--max-memory={MAX_WASM_PAGES * WASM_PAGE}")
    if threads:
        link_flags.append("--shared-memory")

    def build(folder: Path, output: Path) -> None:
        _compile(toolchain, compile_flags, source, folder / "code.o")
        run_tool([*toolchain.wasm_ld, *link_flags, "code.o", "-o", output.name], folder)

    return cached([toolchain.name, *compile_flags, *link_flags, source], ".wasm", build).read_bytes()


def cache_folder() -> Path:
    """Where compiled code is kept: `TINYWEB_CACHE`, or the user's cache folder. It may not exist yet."""
    chosen = os.environ.get("TINYWEB_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("tinyweb")


def _ziglang() -> Toolchain:
    spec = importlib.util.find_spec("ziglang")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent
    program = str(folder / "zig")
    # `zig clang` is Clang itself: a tenth of the time of `zig cc`, which adds a build system's caching. Only Linux can
    # link a shared object without the platform's own libraries.
    linux = platform.system() == "Linux"
    return Toolchain(
        name=f"ziglang {importlib.metadata.version('ziglang')}",
        clang=(program, "clang", "-nostdinc", "-isystem", str(folder / "lib" / "include")),
        wasm_ld=(program, "wasm-ld"),
        link_native=(program, "ld.lld", "-shared") if linux else (program, "cc", "-shared"),
        link_elf=(program, "ld.lld"),
        brings_libraries=not linux,
    )


def _system_clang(command: str) -> Toolchain:
    program = shutil.which(command)
    if program is None:
        raise ToolchainError(
            f"No C compiler was found: `{command}` does not exist; install the Python package ziglang, "
            f"or Clang {MIN_CLANG} or newer with lld, or set TINYWEB_CLANG to its path."
        )
    version = run_tool([program, "--version"]).splitlines()[0]
    major = re.search(r"clang version (\d+)", version)
    if major is None or int(major[1]) < MIN_CLANG or "Apple" in version:
        raise ToolchainError(
            f"{program} cannot be used: it is `{version}`, and Clang {MIN_CLANG} or newer is needed; "
            "install the Python package ziglang, or set TINYWEB_CLANG to another Clang."
        )
    linker = shutil.which(run_tool([program, "--print-prog-name=wasm-ld"]).strip())
    elf_linker = shutil.which(run_tool([program, "--print-prog-name=ld.lld"]).strip())
    if linker is None:
        raise ToolchainError(f"{program} cannot be used: there is no wasm-ld beside it; install LLVM's lld.")
    return Toolchain(
        name=f"{version} at {program}",
        clang=(program, "-nostdlibinc"),
        wasm_ld=(linker,),
        link_native=(program, "-shared"),
        link_elf=(elf_linker,) if elf_linker else (),
        brings_libraries=True,
    )


@functools.cache
def _native_support(toolchain: Toolchain) -> tuple[Path, ...]:
    """What a compiler's driver would add to a link: half-precision conversions, and a need for libm on glibc."""
    compile_flags = [*COMMON_FLAGS, "-fPIC"]

    def build_conversions(folder: Path, output: Path) -> None:
        source = HALF_CONVERSIONS if platform.machine() in ("x86_64", "AMD64") else ""
        _compile(toolchain, compile_flags, source, output)

    conversions = cached([toolchain.name, platform.machine(), HALF_CONVERSIONS], ".o", build_conversions)
    if platform.libc_ver()[0] != "glibc":
        return (conversions,)

    def build_libm(folder: Path, output: Path) -> None:
        # An empty library with libm's name: enough for the linker to write down that libm is to be loaded.
        _compile(toolchain, compile_flags, "", folder / "empty.o")
        run_tool([*toolchain.link_native, "-soname", "libm.so.6", "empty.o", "-o", output.name], folder)

    libm = cached([toolchain.name, platform.machine(), "libm.so.6"], ".so", build_libm)
    return (conversions, libm)


@functools.cache
def _processor() -> str:
    """What `-march=native` stands for here: a cache folder may be shared by machines with different processors."""
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    telling = ("model name", "flags", "Features", "CPU part")
    facts = {line for line in info.splitlines() if line.split("\t")[0] in telling}
    return f"{platform.machine()} {sorted(facts)}"


def cached(key: Sequence[str], suffix: str, build: Callable[[Path, Path], None]) -> Path:
    """The cache entry for `key`; if there is none, `build(scratch folder, output path)` makes it."""
    entry = cache_entry(key, suffix)
    with suppress(OSError):  # it is not there, or the folder is another's to write
        os.utime(entry)
    if entry.exists():
        return entry
    with _writing(entry), tempfile.TemporaryDirectory(dir=entry.parent, prefix="building-") as scratch:
        output = Path(scratch) / entry.name
        build(Path(scratch), output)
        _publish(output, entry)
    return entry


def cached_bytes(key: Sequence[str], suffix: str, build: Callable[[Path, Path], None]) -> bytes:
    """What `build` wrote to its output path, as `cached`; made again where the entry was damaged meanwhile."""

    def build_sealed(folder: Path, output: Path) -> None:
        build(folder, output)
        output.write_bytes(sealed(output.read_bytes()))

    for _ in range(2):
        entry = cached(["sealed", *key], suffix, build_sealed)
        data = unsealed(entry.read_bytes())
        if data is not None:
            return data
        with _writing(entry):
            entry.unlink(missing_ok=True)
    raise ToolchainError(f"What is written to {cache_folder()} is not what is read from it: is the disk damaged?")


def sealed(data: bytes) -> bytes:
    """Bytes for a cache entry, behind their digest."""
    return hashlib.sha256(data).digest() + data


def unsealed(entry: bytes) -> bytes | None:
    """The bytes that were sealed; None where they are not whole."""
    digest, data = entry[:DIGEST_BYTES], entry[DIGEST_BYTES:]
    return data if hashlib.sha256(data).digest() == digest else None


def cache_entry(key: Sequence[str], suffix: str) -> Path:
    """Where what follows from `key` is kept; it may not exist yet."""
    return cache_folder().absolute() / (hashlib.sha256("\0".join(key).encode()).hexdigest()[:32] + suffix)


def keep(entry: Path, data: bytes) -> None:
    """Write a cache entry, in place of an older one; ToolchainError where nothing can be written."""
    with _writing(entry):
        descriptor, name = tempfile.mkstemp(dir=entry.parent, prefix="building-")
        scratch = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            _publish(scratch, entry)
        finally:
            scratch.unlink(missing_ok=True)


@contextmanager
def _writing(entry: Path) -> Iterator[None]:
    """Around what puts `entry` into the cache folder, which exists then and does not grow beyond what is allowed."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        yield
        _prune(entry.parent)
    except OSError as error:
        raise ToolchainError(
            f"Compiled code cannot be kept in {entry.parent} ({error.strerror}); "
            "set TINYWEB_CACHE to a writable folder."
        ) from error


def _publish(output: Path, entry: Path) -> None:
    """What is written whole becomes the entry at once."""
    try:
        output.replace(entry)
    except PermissionError:  # Windows: another process made the same meanwhile, and has loaded it
        if not entry.exists():
            raise


@functools.cache
def _prune(folder: Path) -> None:
    """Remove what was used longest ago until a quarter of the allowed bytes is free; nothing of the last hour.

    It reads the whole folder: once in a process, and once in an hour.
    """
    stamp = folder / "pruned"
    with suppress(OSError):
        if time.time() - stamp.stat().st_mtime < UNTOUCHED_SECONDS:
            return
    stamp.touch()
    chosen = os.environ.get("TINYWEB_CACHE_BYTES", "")
    allowed = int(chosen) if chosen.isdecimal() else CACHE_BYTES
    entries = []
    for path in folder.iterdir():
        with suppress(OSError):  # gone meanwhile
            if path.suffix in KEPT:
                status = path.stat()
                entries.append((status.st_mtime, -(-status.st_size // BLOCK) * BLOCK, path))
    total = sum(size for _, size, _ in entries)
    if total <= allowed:
        return
    recent = time.time() - UNTOUCHED_SECONDS
    for used, size, path in sorted(entries):
        if total <= allowed * 3 // 4 or used > recent:
            break
        with suppress(OSError):
            path.unlink()
            total -= size


def _compile(toolchain: Toolchain, flags: Sequence[str], source: str, output: Path) -> None:
    """C to an object file."""
    run_tool([*toolchain.clang, *flags, "-x", "c", "-c", "-", "-o", output.name], output.parent, source)


def run_tool(command: Sequence[str], folder: Path | None = None, source: str = "") -> str:
    """Run a program of the toolchain in `folder` with `source` as standard input; returns what it prints."""
    try:
        done = subprocess.run(command, cwd=folder, input=source, capture_output=True, text=True, encoding="utf-8")
    except OSError as error:
        raise ToolchainError(f"The compiler {command[0]} cannot be started ({error.strerror}).") from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()[:ERROR_LINES]
        said = "\n".join(lines) or f"exit code {done.returncode}"
        raise ToolchainError(f"The compiler refused the source it was given:\n{said}")
    return done.stdout
