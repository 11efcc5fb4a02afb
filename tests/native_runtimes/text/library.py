"""The very text of kernels for GPUs, run on this processor: the threads of a workgroup take turns (`threads.h`).

`amd.h` and `nvidia.h` have what HIP C++ and CUDA C++ take for granted. PTX in a text becomes a call of the function
that is called as the instruction, with its operands in their order.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from tinyweb.render_c import CUDA, HIP, Dialect
from tinyweb.toolchain import COMMON_FLAGS, cached, find_clang, run_tool

HERE = Path(__file__).parent
HEADERS = {CUDA.name: "nvidia.h", HIP.name: "amd.h"}
CHECKED = "alignment,shift,float-cast-overflow,integer-divide-by-zero,bounds"
FLAGS = [
    *(f for f in COMMON_FLAGS if not f.startswith(("-O", "-ffp-contract"))), "-march=native", "-fPIC",
    "-fno-threadsafe-statics", "-fno-strict-aliasing", "-std=c++17", f"-fsanitize={CHECKED}",
    "-fsanitize-minimal-runtime",
]  # fmt: skip
# Products and sums may be fused where HIP's text does not say so, and not where CUDA's does not. Vectors of CUDA's
# prelude take Clang minutes to optimise.
DIALECT_FLAGS = {CUDA.name: ("-O0", "-ffp-contract=off"), HIP.name: ("-O1", "-ffp-contract=fast")}
STACKS = 1024 << 19  # bytes: MOST threads of STACK each
_ARGUMENTS = """
template <int I, class F, class... R> struct At : At<I - 1, R...> {};
template <class F, class... R> struct At<0, F, R...> { typedef F type; };
template <int I, class... A> typename At<I, A...>::type argument(void (*)(A...));
static const unsigned long long *arguments;
"""


@cache
def library(source: str, kernels: tuple[tuple[str, int], ...], dialect_name: str, wave: int) -> ctypes.CDLL:
    """Kernels, with the number of arguments of each; `run_NAME` takes these as words of 64 bits."""
    parts = [
        f"#define LANES {wave}",
        (HERE / "threads.h").read_text(),
        (HERE / HEADERS[dialect_name]).read_text(),
        without_assembly(source),
        _ARGUMENTS,
    ]
    for name, count in kernels:
        values = ", ".join(f"*(decltype(argument<{i}>({name})) *)&arguments[{i}]" for i in range(count))
        parts.append(f"""static void start_{name}() {{ {name}({values}); }}
extern "C" const char *run_{name}(const unsigned *grid, const unsigned *block, const unsigned long long *given,
                                  char *stacks) {{
  arguments = given;
  return run_grid(start_{name}, grid, block, stacks);
}}
""")
    text, toolchain = "\n".join(parts), find_clang()
    flags = [*FLAGS, *DIALECT_FLAGS[dialect_name]]

    def build(folder: Path, output: Path) -> None:
        run_tool([*toolchain.clang, *flags, "-x", "c++", "-c", "-", "-o", "kernel.o"], folder, text)
        run_tool([*toolchain.link_native, "kernel.o", "-o", output.name], folder)

    return ctypes.CDLL(str(cached([toolchain.name, *flags, text], ".so", build)))


@cache
def _stacks() -> mmap.mmap:
    """Memory for the stacks of a workgroup's threads, of which only what is used is taken."""
    return mmap.mmap(-1, STACKS)


def run(built: ctypes.CDLL, name: str, grid: Sequence[int], block: Sequence[int], addresses: Sequence[int]) -> None:
    """Run a kernel of a library with pointers to memory of this process."""
    function = built[f"run_{name}"]
    function.restype = ctypes.c_char_p
    words = (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block)
    stacks = ctypes.byref(ctypes.c_char.from_buffer(_stacks()))
    wrong = function(*words, (ctypes.c_uint64 * len(addresses))(*addresses), stacks)
    assert wrong == b"", f"{name}: {wrong.decode()}"


# -- PTX ---------------------------------------------------------------------------------------------------------------
_ASSEMBLY = re.compile(r"\basm\s*(?:volatile)?\s*\((.*?)\);", re.DOTALL)
_STRING = re.compile(r'\s*"([^"]*)"')
_OPERAND = re.compile(r"%(\d+)")


def without_assembly(source: str) -> str:
    """The text with each PTX instruction as a call: `asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));` becomes
    `cvt_f32_f16(y, x);`."""
    return _ASSEMBLY.sub(lambda found: _call(found[1]), source.replace("extern __shared__", "extern"))


def _call(statement: str) -> str:
    template = ""
    while (string := _STRING.match(statement)) is not None:
        template, statement = template + string[1], statement[string.end() :]
    values = _values(statement)
    if not template:  # nothing but an order for the compiler
        return ";"
    name, _, operands = template.strip().rstrip(";").partition(" ")
    operands = _OPERAND.sub(lambda found: values[int(found[1])], re.sub(r"[{}\[\]]", "", operands))
    return f"{re.sub(r'[.:]+', '_', name)}({operands});"


def _values(statement: str) -> list[str]:
    """What stands in parentheses behind the constraints of an asm statement."""
    found: list[str] = []
    while (string := re.match(r'[^"]*"[^"]*"\s*\(', statement)) is not None:
        end, depth = string.end(), 1
        while depth and end < len(statement):
            depth += {"(": 1, ")": -1}.get(statement[end], 0)
            end += 1
        found.append(f"({statement[string.end() : end - (depth == 0)]})")
        statement = statement[end:]
    return found


def libraries(
    sources: Sequence[tuple[str, tuple[tuple[str, int], ...]]], dialect: Dialect, wave: int = 32
) -> list[ctypes.CDLL]:
    """Several, compiled side by side."""
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(lambda s: library(s[0], s[1], dialect.name, wave), sources))
