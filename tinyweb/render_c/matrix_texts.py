"""Functions for the matrix instructions of GPUs (`graph/optimize/matrices.py`), and for what they read.

NVIDIA's are written as PTX (PTX ISA: mma, ldmatrix, cp.async), AMD's as Clang's builtins.
"""

from __future__ import annotations

import re
from itertools import product

from tinyweb.graph.ir import DescribedArg, Fragments, Ops, RowsArg, UOp
from tinyweb.render_c.c_types import scalar_name, vector_name
from tinyweb.render_c.dialect import Dialect

# what mma.sync calls the types of operands and sums
_PTX = {
    "f16": ("f16", "f32"), "bf16": ("bf16", "f32"), "tf32": ("tf32", "f32"), "i8": ("s8", "s32"),
    "e4m3": ("e4m3", "f32"), "e5m2": ("e5m2", "f32"),
}  # fmt: skip
_TURNED = ("f16", "bf16")  # operands that wgmma takes in either order
# builtins by the name of the instruction, and the type that an operand has there
_AMD = {
    "mfma_16x16x16_f16": ("mfma_f32_16x16x16f16", "f16x4"),
    "mfma_16x16x16_bf16": ("mfma_f32_16x16x16bf16_1k", "i16x4"),
    "mfma_16x16x4_f32": ("mfma_f32_16x16x4f32", "f32"),
    "mfma_16x16x32_i8": ("mfma_i32_16x16x32_i8", "i64"),
    "mfma_16x16x16_i8": ("mfma_i32_16x16x16i8", "i32"),
    "mfma_16x16x32_e4m3": ("mfma_f32_16x16x32_fp8_fp8", "i64"),
    "mfma_16x16x32_e5m2": ("mfma_f32_16x16x32_bf8_bf8", "i64"),
    "wmma11_16x16x16_f16": ("wmma_f32_16x16x16_f16_w32", "f16x16"),
    "wmma11_16x16x16_bf16": ("wmma_f32_16x16x16_bf16_w32", "i16x16"),
    "wmma11_16x16x16_i8": ("wmma_i32_16x16x16_iu8_w32", "i32x4"),
    "wmma12_16x16x16_f16": ("wmma_f32_16x16x16_f16_w32_gfx12", "f16x8"),
    "wmma12_16x16x16_bf16": ("wmma_f32_16x16x16_bf16_w32_gfx12", "i16x8"),
    "wmma12_16x16x16_i8": ("wmma_i32_16x16x16_iu8_w32_gfx12", "i32x2"),
    "wmma12_16x16x16_e4m3": ("wmma_f32_16x16x16_fp8_fp8_w32_gfx12", "i32x2"),
    "wmma12_16x16x16_e5m2": ("wmma_f32_16x16x16_bf8_bf8_w32_gfx12", "i32x2"),
}  # fmt: skip


def multiply(u: UOp, dialect: Dialect) -> tuple[str, set[str]]:
    """The function `sums NAME(a, b, sums)` of a DOT of fragments, and the vectors it needs."""
    f = u.arg
    assert isinstance(f, Fragments)
    a, b, sums = (vector_name(scalar_name(s.dtype), n.size) for s, n in zip(u.src, (f.a, f.b, f.sums)))
    head = f"{dialect.function} {sums} {f.name}({a} a, {b} b, {sums} c) {{\n"
    if f.name.startswith("mma_sync"):
        return head + _mma(f), {a, b, sums, "u32x4"}
    builtin, kind = _AMD[f.name]
    x, y = (dialect.bits.format(kind=kind, value=v) for v in "ab")
    if "iu8" in builtin:
        arguments = f"true, {x}, true, {y}, c, false"
    elif builtin.startswith("mfma"):
        arguments = f"{x}, {y}, c, 0, 0, 0"
    else:
        arguments = f"{x}, {y}, c"
    return head + f"  return __builtin_amdgcn_{builtin}({arguments});\n}}\n", {a, b, sums, kind}


def _mma(f: Fragments) -> str:
    """Instructions of 8 columns each. A fragment's registers are those of 8 rows, 8 more rows, then of more steps."""
    short = f.name.rpartition("_")[2]
    operand, sums = _PTX[short]
    steps = f.a.shape[1]
    smaller = re.match(r"mma_sync_m(\d+)n8k(\d+)_", f.name)
    m, k = map(int, smaller.groups()) if smaller else (16, steps)
    name = f"mma.sync.aligned.m{m}n8k{k}.row.col.{sums}.{operand}.{operand}.{sums}"
    constraint = "f" if sums == "f32" else "r"
    lines = ["  const u32x4 x = as<u32x4>(a), y = as<u32x4>(b);"]
    for half, row, step in product(range(2), range(0, 2, m // 8), range(0, 2, 2 * k // steps)):
        rows, parts = range(row, row + m // 8), range(step, step + 2 * k // steps)
        a = [f"x[{r + 2 * s}]" for s in parts for r in rows]
        b = [f"y[{2 * half + s}]" for s in parts]
        c = [f'"+{constraint}"(c[{4 * half + 2 * r + i}])' for r in rows for i in range(2)]
        places = iter(range(len(a) + len(b) + len(c)))
        first, *operands = (", ".join(f"%{next(places)}" for _ in group) for group in (c, a, b))
        listed = ", ".join(f"{{{group}}}" for group in (first, *operands, first))
        inputs = ", ".join(f'"r"({v})' for v in (*a, *b))
        lines.append(f'  asm("{name} {listed};"\n      : {", ".join(c)}\n      : {inputs});')
    return "\n".join([*lines, "  return c;\n}\n"])


def load_rows(u: UOp, dialect: Dialect) -> tuple[str, str, set[str]]:
    """The name of a function of the address of a row, its text, and the vectors that it needs."""
    assert isinstance(u.arg, RowsArg)
    scalar = scalar_name(u.dtype)
    kind, name = vector_name(scalar, u.arg.count), f"rows_{'t_' if u.arg.transposed else ''}{scalar}"
    order = ".trans" if u.arg.transposed else ""
    text = (
        f"{dialect.function} {kind} {name}(const {scalar} *row) {{\n  u32 r0, r1, r2, r3;\n"
        f'  asm volatile("ldmatrix.sync.aligned.m8n8.x4{order}.shared.b16 {{%0, %1, %2, %3}}, [%4];"\n'
        '      : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"((u32)__cvta_generic_to_shared(row)) : "memory");\n'
        f"  return as<{kind}>(u32x4(r0, r1, r2, r3));\n}}\n"
    )
    return name, text, {kind, "u32x4"}


def begin(u: UOp, dialect: Dialect) -> tuple[str, str, set[str]]:
    """The name of the function `NAME(sums, a, b)` that begins a DOT of matrices in shared memory, of which `a` and `b`
    are descriptors, or `a` the words that a thread has; its text, and the vectors that it needs. Its sums are there
    when they were waited for."""
    f = u.arg
    assert isinstance(f, Fragments)
    shape, _, short = f.name.removeprefix("wgmma_").removeprefix("held_").rpartition("_")
    operand, sums = _PTX[short]
    m, n, k = shape.split("x")
    turned = [not s.arg.along for i, s in enumerate(u.src[:2]) if f.reads(i)]
    fresh = u.src[2].op is Ops.STACK  # of zeros: there are no sums yet
    count, vector = f.sums.size, vector_name(scalar_name(u.dtype), f.sums.size)
    order = "".join(letters[not t] for letters, t in zip(("mk", "nk")[f.first_held :], turned))
    name = f"{f.name}_{order}{'_fresh' if fresh else ''}"
    words = f.a.size * u.src[0].dtype.bits // 32
    kind, given = (f"u32x{words}", [f'"r"(a[{i}])' for i in range(words)]) if f.first_held else ("u64", ['"l"(a)'])
    places = [f"%{count + i}" for i in range(len(given) + 1)]
    first = f"{{{', '.join(places[:-1])}}}" if f.first_held else places[0]
    registers = ", ".join(f"%{i}" for i in range(count))
    # added to what is there, if anything, nothing negated; by rows or columns
    signs, orders = ["1", "1"] if sums == "f32" else [], [str(int(t)) for t in turned if operand in _TURNED]
    numbers = [str(int(not fresh)), *signs, *orders]
    constraint = ("=" if fresh else "+") + ("f" if sums == "f32" else "r")
    outputs = ", ".join(f'"{constraint}"(c[{i}])' for i in range(count))
    text = (
        f"{dialect.function} void {name}({vector} &c, {kind} a, u64 b) {{\n"
        f'  asm volatile("wgmma.mma_async.sync.aligned.m{m}n{n}k{k}.{sums}.{operand}.{operand} {{{registers}}}, '
        f'{first}, {places[-1]}, {", ".join(numbers)};"\n      : {outputs}\n      : {", ".join(given)}, "l"(b));\n}}\n'
    )
    return name, text, {vector, "u64", kind}


def description(arg: DescribedArg) -> str:
    """What a matrix descriptor has beside an address (PTX ISA, "Matrix Descriptor Format"): offsets over 16 bytes."""
    mode = {128: 1, 64: 2, 32: 3}[arg.width]
    return f"{mode << 62 | arg.stride >> 4 << 32 | arg.leading >> 4 << 16:#x}ull"


DESCRIBE = """\
static __device__ __forceinline__ u64 describe(const void *place, u64 how, u32 beyond) {
  const u32 low = ((u32)how | ((u32)__cvta_generic_to_shared(place) & 0x3ffff) >> 4) + beyond;  // 16 bytes each
  return how >> 32 << 32 | low;
}
"""

SETTLE = """\
template <int N> static __device__ __forceinline__ void settle(Vector<f32, N> &sums) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(sums[i]) : : "memory");
}
template <int N> static __device__ __forceinline__ void settle(Vector<i32, N> &sums) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(sums[i]) : : "memory");
}
template <int N> static __device__ __forceinline__ void settle(Vector<u32, N> &words) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(words[i]) : : "memory");
}
"""

COPY_AHEAD = """\
template <int BYTES> static __device__ __forceinline__ void copy_ahead(void *to, const void *from, bool all) {
  const unsigned there = (unsigned)__cvta_generic_to_shared(to);
  const int count = all ? BYTES : 0;  // what is not read is zero
  if (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(there), "l"(from), "r"(count) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;"
                 : : "r"(there), "l"(from), "r"(count), "n"(BYTES) : "memory");
}
"""
