"""A bundle's module: one function per entry point that carries out a whole list of kernels, addresses built in.

All threads call the same entry point. Each takes shares of a kernel's grid: of its own partition first, the same in
every call, so that what it read or wrote last is in its cache, then of the others' (affinity scheduling, as in
native_runtimes/cpu/pool.py); before a kernel that depends on earlier ones it waits until their shares are complete. A
slow core thus does less, and a thread that comes late holds up nobody until the end of the call. The module for one
thread is the same text without any of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template

from tinyweb.errors import ExportError
from tinyweb.graph.program import Program
from tinyweb.render_c import kernel_functions, size_text
from tinyweb.render_c.c_kernel import GRID, GRID_LOOP
from tinyweb.render_c.ordering import Access, barriers
from tinyweb.render_wasm.module import static_data_bytes
from tinyweb.toolchain import compile_wasm

FEWEST_STEPS, LONGEST_BODY = 4, 256  # launches that come again so often are a loop, if they are no more than this


@dataclass(frozen=True)
class BundleCall:
    """One launch of an entry point: a program by its position, and the byte address of each of its parameters."""

    program: int
    addresses: tuple[int, ...]


# `control` (docs/bundle.md) holds words of this module's: how many iterations of all grids are complete in this call;
# threads that have come to its end (low half) and that sleep (high half); calls that have ended; on a cache line of
# their own, how many iterations of each partition were taken. Partitions of one grid are equally long, but for what the
# last ones lack: the iterations before a grid are thus as many in every partition. Waiting threads spin first, for a
# tenth of a millisecond or two: the others are rarely further behind, and waking a sleeper costs more than most
# kernels. Few large iterations are handed out one by one at the end; many are small, and every share has its own start.
_SUPPORT = """\
static const i32 *const variables = (const i32 *)${variables};

#ifdef __wasm_atomics__
enum { SPINS = 200000, MOST_SHARES = 8, LEAST_SHARES = 32, FEW = 512, SLEEPER = 1 << 16, EVERYBODY = 0x7fffffff };
static i32 *const done = (i32 *)${control}, *const present = done + 1, *const ended = done + 2;
static i32 *const taken = done + 16;

static inline i32 load(const i32 *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

static void wake(i32 *word) {
  if (load(present) >= SLEEPER) __builtin_wasm_memory_atomic_notify((int *)word, EVERYBODY);
}

// Sleeps unless `*word` is no longer `seen`; may return early.
static __attribute__((noinline)) void sleep_while(i32 *word, i32 seen) {
  for (i32 i = 0; i < SPINS; ++i)
    if (load(word) != seen) return;
  __atomic_fetch_add(present, SLEEPER, __ATOMIC_SEQ_CST);
  __builtin_wasm_memory_atomic_wait32((int *)word, seen, -1);
  __atomic_fetch_sub(present, SLEEPER, __ATOMIC_SEQ_CST);
}

// What is taken of so many iterations of a partition that are left: little at the end, where threads wait for others.
static inline i32 share(i32 left, i32 least) {
  const i32 part = left / MOST_SHARES;
  return part > least ? part : least < left ? least : left;
}

// The next iteration of a partition from `begin` to `end`, once `needed` of all partitions are complete; -1 if none is
// left. Takes its share.
static __attribute__((noinline)) i32 take(i32 *partition, i32 begin, i32 end, i32 needed, i32 least) {
  for (i32 seen = load(partition);;) {
    const i32 next = seen > begin ? seen : begin;
    if (next >= end) return -1;
    for (i32 complete; (complete = load(done)) < needed;) sleep_while(done, complete);
    const i32 after = next + share(end - next, least);
    if (__atomic_compare_exchange_n(partition, &seen, after, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return next;
  }
}

static void finish(i32 count) {
  __atomic_fetch_add(done, count, __ATOMIC_SEQ_CST);
  wake(done);
}

// The first iteration of the next share, when the one before is done; none is left where that is its end.
static __attribute__((noinline)) i32 next_share(struct shares *s) {
  if (s->length) finish(s->length);
  for (; s->turn < s->threads; ++s->turn) {
    const i32 at = s->thread + s->turn, partition = at < s->threads ? at : at - s->threads;
    const i32 skipped = partition * s->span;
    const i32 end = (s->span < s->count - skipped ? s->span : s->count - skipped) + s->first;
    const i32 next = take(taken + partition, s->first, end, s->needed, s->least);
    if (next < 0) continue;
    s->length = share(end - next, s->least);
    s->end = next - s->first + skipped + s->length;
    return s->end - s->length;
  }
  s->length = s->end = 0;
  return 0;
}

// All threads meet at the end of a call, and the last one clears the counters for the next.
static __attribute__((noinline)) void meet(i32 threads) {
  const i32 seen = load(ended);
  if ((__atomic_add_fetch(present, 1, __ATOMIC_SEQ_CST) & (SLEEPER - 1)) == threads) {
    for (i32 partition = 0; partition < threads; ++partition) __atomic_store_n(taken + partition, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(done, 0, __ATOMIC_SEQ_CST);
    __atomic_fetch_sub(present, threads, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(ended, 1, __ATOMIC_SEQ_CST);
    wake(ended);
  } else {
    while (load(ended) == seen) sleep_while(ended, seen);
  }
}

#define START i32 first = 0, before = 0, needed = 0;
#define AFTER_ALL needed = before;
#define LAUNCH(size, kernel, ...) do { \
  const i32 count = size, span = (count + threads - 1) / threads; \
  kernel##_launch(__VA_ARGS__, first, span, needed, count, thread, threads); \
  first += span, before += count; \
} while (0);
#define FINISH meet(threads);
#else
#define START
#define AFTER_ALL
#define LAUNCH(size, kernel, ...) kernel##_body(__VA_ARGS__, variables, 0, size);
#define FINISH
#endif
"""

# A kernel goes on with the next share by itself: what it makes once for all iterations is made once by a thread.
_SHARES = """\
#ifdef __wasm_atomics__
// What a thread has of a kernel's grid: how far it is through the partitions, and its share of one of them.
struct shares { int first, span, needed, count, thread, threads, least, turn, length, end; };
static int next_share(struct shares *);
#define SHARES , struct shares *shares
#define EACH_SHARE for (; begin < end; begin = next_share(shares), end = shares->end)
#else
#define SHARES
#define EACH_SHARE
#endif
"""

# One thread's shares of a kernel's grid. A function of its own, as an entry point has hundreds of launches of a few
# dozen kernels.
_LAUNCH_FUNCTION = """\
static __attribute__((noinline)) void ${name}_launch(
  ${parameters}, i32 first, i32 span, i32 needed, i32 count, i32 thread, i32 threads) {
  const i32 least = (count - 1) / (threads * (count <= FEW ? LEAST_SHARES : MOST_SHARES)) + 1;
  struct shares shares = {first, span, needed, count, thread, threads, least};
  const i32 begin = next_share(&shares);
  if (begin < shares.end) ${name}_body(${arguments}, variables, begin, shares.end, &shares);
}
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
    done. At most 16 threads. Variables are read at `variables_address + 4 * slot`; the 128 bytes at `control_address`
    are zero at first.
    """
    support = Template(_SUPPORT).substitute(variables=variables_address, control=control_address)
    kernels = kernel_functions(programs, variable_slots, "__attribute__((noinline)) ", either_dot=True)
    for text, shared in ((GRID, f"{GRID} SHARES"), (GRID_LOOP, f"EACH_SHARE {GRID_LOOP}")):
        kernels = kernels.replace(text, shared)
    parts = [_SHARES, kernels, support]
    parts += ["#ifdef __wasm_atomics__", *map(_launch_function, {p.name: p for p in programs}.values()), "#endif"]
    for name, calls in entry_points.items():
        parts.append(_entry_point(name, [(programs[c.program], c.addresses) for c in calls], variable_slots))
    return "\n".join(parts)


def _launch_function(program: Program) -> str:
    pointers = [f"p{i.slot}" for i in program.params]
    values = {"name": program.name, "parameters": ", ".join(f"void *{p}" for p in pointers)}
    return Template(_LAUNCH_FUNCTION).substitute(values, arguments=", ".join(pointers))


def _entry_point(name: str, calls: Sequence[tuple[Program, tuple[int, ...]]], slots: Mapping[str, int]) -> str:
    if not name.isidentifier() or not name.isascii():
        raise ExportError(f"the entry point {name!r} cannot be a function's name: use letters, digits and underscores")
    lines = [f"void {name}(int thread, int threads) {{", "  START"]
    for (program, addresses), wait in zip(calls, barriers([_access(p, a) for p, a in calls])):
        if wait:
            lines.append("  AFTER_ALL")
        pointers = ", ".join(f"(void *){addresses[i.slot]}" for i in program.params)
        lines.append(f"  LAUNCH({size_text(program.grid[0], slots)}, {program.name}, {pointers})")
    return "\n".join([*lines[:2], *_with_loops(lines[2:]), "  FINISH", "}", ""])


def _with_loops(lines: Sequence[str]) -> list[str]:
    """The same statements, with loops in place of those that come again and again: the steps of a loop of the graph."""
    found = list(lines)
    while (shorter := _rolled(found)) != found:
        found = shorter
    return found


def _rolled(lines: Sequence[str]) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(lines):
        for length in range(1, min(LONGEST_BODY, (len(lines) - at) // FEWEST_STEPS) + 1):
            if lines[at + length] != lines[at]:
                continue
            body, end = lines[at : at + length], at + length
            while lines[end : end + length] == body:
                end += length
            if end - at >= FEWEST_STEPS * length:
                found.append("\n".join([f"  for (int i = 0; i < {(end - at) // length}; ++i) {{", *body, "  }"]))
                at = end
                break
        else:
            found.append(lines[at])
            at += 1
    return found


def _access(program: Program, addresses: tuple[int, ...]) -> Access:
    if len(addresses) != len(program.params):
        raise ExportError(f"kernel {program.name} takes {len(program.params)} buffers and was given {len(addresses)}")
    spans = {i.slot: (addresses[i.slot], addresses[i.slot] + i.dtype.nbytes(i.size)) for i in program.params}
    reads = tuple(spans[i.slot] for i in program.params if i.read)
    writes = tuple(spans[i.slot] for i in program.params if i.written)
    return Access(reads, writes)


def compile_bundle(
    source: str,
    entry_points: Sequence[str],
    *,
    threads: bool,
    relaxed_simd: bool = False,
    pages: int,
    static_base: int,
    static_bytes: int,
) -> bytes:
    """Compile `bundle_source`: a module that imports a memory of exactly `pages` pages.

    Static data, if the compiler makes any, lies at `static_base`; ExportError if it takes more than `static_bytes`.
    """
    # the linker wants a stack behind the static data, though every thread of the loader brings its own
    module = compile_wasm(
        source,
        threads=threads,
        relaxed_simd=relaxed_simd,
        exports=list(entry_points),
        memory_pages=pages,
        stack_bytes=16,
        global_base=static_base,
    )
    needed = static_data_bytes(module)
    if needed > static_bytes:
        raise ExportError(f"the kernels need {needed} bytes of static data, and {static_bytes} were set aside")
    return module
