"""The C family's text: programs as C functions with Clang's vector extensions and no library, or as kernels of GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinyweb.graph.program import Program
from tinyweb.render_c import dots
from tinyweb.render_c.c_kernel import Kernel, size_text, variable_slots
from tinyweb.render_c.c_types import declare, declare_gpu
from tinyweb.render_c.dialect import CUDA, HIP, OPENCL, Dialect
from tinyweb.render_c.gpu_kernel import GpuKernel, dynamic_shared

__all__ = [
    "CUDA", "HIP", "OPENCL", "Dialect", "GpuKernel", "Kernel", "dynamic_shared", "kernel_functions", "render",
    "render_gpu", "size_text", "variable_slots",
]  # fmt: skip

# Sizes are floor-divided; only grid sizes whose operands may be negative need these.
FLOOR_DIVISION = """\
static inline i32 floor_divide(i32 a, i32 b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline i32 floor_modulo(i32 a, i32 b) { return a - floor_divide(a, b) * b; }
"""

# A loop unrolled beyond its schedule keeps more values alive than there are registers; only Clang for wasm32 does it.
ROLLED = """\
#ifdef __wasm__
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define ROLLED
#endif
"""

# WebAssembly has no such hint.
PREFETCH = """\
#ifdef __wasm__
#define PREFETCH(address)
#else
#define PREFETCH(address) __builtin_prefetch(address);
#endif
"""

# Rounded once; Clang 16 lacks it for vectors.
MULADD = """\
#if __has_builtin(__builtin_elementwise_fma)
#define MULADD __builtin_elementwise_fma
#else
#define MULADD(a, b, c) ((a) * (b) + (c))
#endif
"""
MACROS = {"ROLLED": ROLLED, "PREFETCH": PREFETCH, "MULADD": MULADD}


def kernel_functions(
    programs: Sequence[Program],
    slots: Mapping[str, int] | None = None,
    attributes: str = "",
    either_dot: bool = False,
) -> str:
    """Types, helpers and one `static void NAME_body(pointers…, variables, begin, end)` per different program.

    `slots`: positions of the variables; None: each program counts its own. `attributes` stand before each function.
    `either_dot`: with relaxed SIMD, kernels that multiply integers below 8 bits are there twice, and calls choose the
    one that suits the engine.
    """
    kernels = [Kernel(p, slots) for p in {p.name: p for p in programs}.values()]
    vectors: set[str] = set()
    helpers: dict[str, str] = {}
    for k in kernels:
        vectors |= k.vectors
        helpers |= k.helpers
    parts = [
        declare(vectors),
        FLOOR_DIVISION,
        *(macro for word, macro in MACROS.items() if any(word in k.text for k in kernels)),
        *(helpers[h] for h in sorted(helpers)),
        *(attributes + k.text for k in kernels),
        *(_in_pairs(kernels, attributes) if either_dot else ()),
    ]
    return "\n".join(parts)


def _in_pairs(kernels: Sequence[Kernel], attributes: str) -> list[str]:
    """Kernels that are there twice: the second one of each, and what chooses where the first is called."""
    helpers = {k: dots.helpers_in_pairs(k.helpers) for k in kernels}
    texts = dict(sorted((name, text) for found in helpers.values() for name, text in found.items()))
    parts = ["#ifdef __wasm_relaxed_simd__", dots.SATURATES, *texts.values()]
    for name, text in ((k.program.name, k.text) for k in kernels if helpers[k]):
        choice = f"if (saturates()) {name}_in_pairs(__VA_ARGS__); else {name}_body(__VA_ARGS__);"
        parts.append(attributes + dots.in_pairs(text).replace(f"{name}_body(", f"{name}_in_pairs("))
        parts.append(f"#define {name}_body(...) do {{ {choice} }} while (0)\n")
    return [*parts, "#endif"] if texts else []


def render(programs: Sequence[Program]) -> str:
    """C source with, for each different program, the two functions

    - `void NAME(void *const *buffers, const int *variables, int begin, int end)`: grid iterations begin … end-1.
      Buffers that are written overlap no other; buffers and variables come in slot order.
    - `int NAME_grid(const int *variables)`: the number of grid iterations.
    """
    parts = [kernel_functions(programs)]
    for p in {p.name: p for p in programs}.values():
        arguments = [*(f"buffers[{i.slot}]" for i in p.params), "variables", "begin", "end"]
        parts.append(
            f"void {p.name}(void *const *buffers, const int *variables, int begin, int end) {{\n"
            f"  {p.name}_body({', '.join(arguments)});\n}}\n"
            f"int {p.name}_grid(const int *variables) {{ return {size_text(p.grid[0], variable_slots(p))}; }}\n"
        )
    return "\n".join(parts)


def render_gpu(programs: Sequence[Program], dialect: Dialect) -> str:
    """Source in a language with threads: a kernel `NAME(p0, …, pn[, variables])` for each different program.

    Memory comes in slot order, its vectors aligned to their size, up to 16 bytes. `variables`, only where the program
    has some, points to 32-bit values in the order of `program.variables`.
    """
    kernels = [GpuKernel(p, dialect) for p in {p.name: p for p in programs}.values()]
    vectors: set[str] = set().union(*(k.vectors for k in kernels))
    helpers: dict[str, str] = {}
    for k in kernels:
        helpers |= k.helpers
    parts = [declare_gpu(vectors, dialect), *(helpers[h] for h in sorted(helpers)), *(k.text for k in kernels)]
    return "\n".join(parts)
