"""A bundle's module: one function per entry point that carries out a whole list of kernels, addresses built in.

All threads call the same entry point. Each kernel's grid is split into one contiguous range per thread; before a kernel
that depends on an earlier one the threads meet at a barrier. The module for one thread is the same text without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tinyweb.errors import ExportError
from tinyweb.graph.program import Program
from tinyweb.render_c import kernel_functions, size_text
from tinyweb.render_c.ordering import Access, barriers
from tinyweb.render_wasm.module import static_data_bytes
from tinyweb.toolchain import compile_wasm


@dataclass(frozen=True)
class BundleCall:
    """One launch of an entry point: a program by its position, and the byte address of each of its parameters."""

    program: int
    addresses: tuple[int, ...]


# `control` (docs/bundle.md): the barrier's words are arrived, phase, sleepers. Waiting threads spin first, because the
# others are rarely far behind; waking a sleeper costs more than most kernels.
_SUPPORT = """\
static const i32 *const variables = (const i32 *)${variables};

#ifdef __wasm_atomics__
enum { SPINS = 10000 };
static __attribute__((noinline)) void barrier(i32 threads) {
  i32 *const arrived = (i32 *)${control}, *const phase = arrived + 1, *const sleepers = arrived + 2;
  if (threads == 1) return;
  const i32 seen = __atomic_load_n(phase, __ATOMIC_SEQ_CST);
  if (__atomic_add_fetch(arrived, 1, __ATOMIC_SEQ_CST) == threads) {
    __atomic_store_n(arrived, 0, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(phase, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(sleepers, __ATOMIC_SEQ_CST)) __builtin_wasm_memory_atomic_notify((int *)phase, threads);
    return;
  }
  for (i32 i = 0; i < SPINS; ++i)
    if (__atomic_load_n(phase, __ATOMIC_SEQ_CST) != seen) return;
  __atomic_add_fetch(sleepers, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(phase, __ATOMIC_SEQ_CST) == seen)
    __builtin_wasm_memory_atomic_wait32((int *)phase, seen, -1);
  __atomic_sub_fetch(sleepers, 1, __ATOMIC_SEQ_CST);
}
#define SHARE(size, i) (i32)((i64)(size) * (i) / threads)
#else
#define barrier(threads)
#define SHARE(size, i) ((size) * (i))
#endif
"""


def bundle_source(
    programs: Sequence[Program],
    entry_points: Mapping[str, Sequence[BundleCall]],
    variable_slots: Mapping[str, int],
    variables_address: int,
    control_address: int,
) -> str:
    """The C source of a bundle's module; deterministic.

    Exports one `void NAME(int thread, int threads)` per entry point. When any thread returns from it, all kernels are
    done. Variables are read at `variables_address + 4 * slot` when the call begins; `control_address` is the barrier's.
    """
    support = _SUPPORT.replace("${variables}", str(variables_address)).replace("${control}", str(control_address))
    parts = [kernel_functions(programs, variable_slots, "__attribute__((noinline)) "), support]
    for name, calls in entry_points.items():
        parts.append(_entry_point(name, [(programs[c.program], c.addresses) for c in calls], variable_slots))
    return "\n".join(parts)


def _entry_point(name: str, calls: Sequence[tuple[Program, tuple[int, ...]]], slots: Mapping[str, int]) -> str:
    if not name.isidentifier() or not name.isascii():
        raise ExportError(f"the entry point {name!r} cannot be a function's name: use letters, digits and underscores")
    lines = [f"void {name}(int thread, int threads) {{"]
    for (program, addresses), meet in zip(calls, barriers([_access(p, a) for p, a in calls])):
        if meet:
            lines.append("  barrier(threads);")
        pointers = [f"(void *){addresses[i.slot]}" for i in program.params]
        size = program.grid[0]
        if isinstance(size, int) and size <= 1:
            if size == 1:
                lines.append(
                    f"  if (thread == 0) {program.name}_body({', '.join([*pointers, 'variables', '0', '1'])});"
                )
            continue
        share = ["variables", "SHARE(size, thread)", "SHARE(size, thread + 1)"]
        lines.append(f"  {{ const i32 size = {size_text(size, slots)};")
        lines.append(f"    {program.name}_body({', '.join([*pointers, *share])}); }}")
    return "\n".join([*lines, "  barrier(threads);", "}", ""])


def _access(program: Program, addresses: tuple[int, ...]) -> Access:
    if len(addresses) != len(program.params):
        raise ExportError(f"kernel {program.name} takes {len(program.params)} buffers and was given {len(addresses)}")
    spans = {i.slot: (addresses[i.slot], addresses[i.slot] + i.dtype.nbytes(i.size)) for i in program.params}
    reads = tuple(spans[i.slot] for i in program.params if i.read)
    writes = tuple(spans[i.slot] for i in program.params if i.written)
    return Access(reads, writes, isinstance(program.grid[0], int) and program.grid[0] <= 1)


def compile_bundle(
    source: str, entry_points: Sequence[str], *, threads: bool, pages: int, static_base: int, static_bytes: int
) -> bytes:
    """Compile `bundle_source`: a module that imports a memory of exactly `pages` pages.

    Static data, if the compiler makes any, lies at `static_base`; ExportError if it takes more than `static_bytes`.
    """
    # the linker wants a stack behind the static data, though every thread of the loader brings its own
    module = compile_wasm(
        source, threads=threads, exports=list(entry_points), memory_pages=pages, stack_bytes=16, global_base=static_base
    )
    needed = static_data_bytes(module)
    if needed > static_bytes:
        raise ExportError(f"the kernels need {needed} bytes of static data, and {static_bytes} were set aside")
    return module
