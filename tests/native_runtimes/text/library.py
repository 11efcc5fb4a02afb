"""HIP C++ on this processor: the very text of a kernel, with the threads of a workgroup taking turns (emulated.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tinyweb.toolchain import COMMON_FLAGS, cached, find_clang, run_tool

HEADER = Path(__file__).with_name("emulated.h")
FLAGS = [*COMMON_FLAGS, "-O1", "-march=native", "-fPIC", "-fno-threadsafe-statics"]


@cache
def _library(source: str, name: str, count: int, wave: int) -> ctypes.CDLL:
    """One kernel, and `run`, which takes its arguments as words of 64 bits."""
    values = ", ".join(f"*(decltype(argument<{i}>({name})) *)&arguments[{i}]" for i in range(count))
    text = f"""#define LANES {wave}
{HEADER.read_text()}
{source}
template <int I, class F, class... R> struct At : At<I - 1, R...> {{}};
template <class F, class... R> struct At<0, F, R...> {{ typedef F type; }};
template <int I, class... A> typename At<I, A...>::type argument(void (*)(A...));
static const unsigned long long *arguments;
static void kernel() {{ {name}({values}); }}
extern "C" const char *run(const unsigned *grid, const unsigned *block, const unsigned long long *given) {{
  arguments = given;
  return run_grid(kernel, grid, block);
}}
"""
    toolchain = find_clang()

    def build(folder: Path, output: Path) -> None:
        run_tool([*toolchain.clang, *FLAGS, "-x", "c++", "-c", "-", "-o", "kernel.o"], folder, text)
        run_tool([*toolchain.link_native, "kernel.o", "-o", output.name], folder)

    library = ctypes.CDLL(str(cached([toolchain.name, *FLAGS, text], ".so", build)))
    library.run.restype = ctypes.c_char_p
    return library


def run(
    source: str, name: str, grid: Sequence[int], block: Sequence[int], addresses: Sequence[int], wave: int = 32
) -> None:
    """Run the kernel `name` of a source with pointers to memory of this process, `wave` threads to a wave."""
    library = _library(source, name, len(addresses), wave)
    words = (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block)
    wrong = library.run(*words, (ctypes.c_uint64 * len(addresses))(*addresses))
    assert wrong == b"", f"{name}: {wrong.decode()}"
