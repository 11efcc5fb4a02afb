"""The WebAssembly part of a bundle: where everything lies in memory, and the two modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyweb.errors import ExportError
from tinyweb.export.compile import Compiled, Progress, compile_plans, used_variables
from tinyweb.export.memory import Memory
from tinyweb.graph.ir import UOp
from tinyweb.graph.program import Program
from tinyweb.graph.target import wasm_target
from tinyweb.render_common import local_bytes

if TYPE_CHECKING:
    from tinyweb.tracing import Plan

PAGE = 65536
MAX_PAGES = 65536  # 4 GiB, all that 32-bit addresses reach
ALIGNMENT = 64
VARIABLES, MAX_VARIABLES = 1024, 256
CONTROL = 2048
STACKS, STACK_BYTES, MAX_THREADS = 4096, 65536, 8  # a stack is at least so large
SPILLED = 32768  # bytes of a stack beside the kernels' arrays
STATIC_BYTES = 65536  # the compiler's own data, if it makes any


@dataclass(frozen=True)
class Variant:
    """One module: for one thread or several, for every browser with SIMD or for those with more."""

    threads: bool
    relaxed: bool  # fused multiply-adds, and dots of 8-bit integers with one operand of 7 bits

    @property
    def features(self) -> list[str]:
        """What it needs, by the names of docs/bundle.md."""
        return ["relaxed-simd"] if self.relaxed else []


VARIANTS = {
    "simd": Variant(False, False),
    "simd-threads": Variant(True, False),
    "relaxed": Variant(False, True),
    "relaxed-threads": Variant(True, True),
}


@dataclass(frozen=True)
class Layout:
    """Byte addresses of all buffers and pools by id, and the size of the memory."""

    addresses: tuple[int, ...]
    pages: int
    stack_bytes: int = STACK_BYTES

    @property
    def static(self) -> int:
        return STACKS + MAX_THREADS * self.stack_bytes


def plan_layout(memory: Memory, programs: Sequence[Program] = ()) -> Layout:
    """Stacks as large as the programs need, static data, then weights, states and pools, each at a cache line;
    ExportError where 4 GiB do not hold them.
    """
    needed = max((local_bytes(p) for p in programs), default=0) + SPILLED
    stack_bytes = max(-(-needed // PAGE) * PAGE, STACK_BYTES)
    addresses: list[int] = []
    end = STACKS + MAX_THREADS * stack_bytes + STATIC_BYTES
    for id in range(len(memory.named) + len(memory.pools)):
        addresses.append(end)
        end += -(-memory.size(id) // ALIGNMENT) * ALIGNMENT
    pages = -(-end // PAGE)
    if pages > MAX_PAGES:
        raise ExportError(
            f"The model takes {end / 2**30:.1f} GiB and WebAssembly has at most 4: "
            "choose a smaller --quant or a smaller --context."
        )
    return Layout(tuple(addresses), pages, stack_bytes)


def compile_modules(
    plans: Mapping[str, Plan], progress: Progress, tune: float = 0.0, calls: Mapping[str, int] | None = None
) -> dict[bool, Compiled]:
    """The plans without and with relaxed SIMD. Tuned are those without: the runtime here has nothing else."""
    plain, relaxed = (wasm_target(MAX_THREADS, r) for r in (False, True))
    return {
        False: compile_plans(plans, plain, progress, tune, calls),
        True: compile_plans(plans, relaxed, progress, tuned=plain),
    }


def write_wasm(
    bundle: Path, compiled: Mapping[bool, Compiled], memory: Memory, variables: tuple[UOp, ...], progress: Progress
) -> dict[str, Any]:
    """Write the modules into `bundle`; the manifest's `targets.wasm`. `variables` in slot order."""
    from tinyweb.render_wasm import compile_bundle

    if len(variables) > MAX_VARIABLES:
        raise AssertionError(f"{len(variables)} variables do not fit before the control block")
    layout = plan_layout(memory, [p for c in compiled.values() for p in c.programs])
    slots = {str(v.arg[0]): i for i, v in enumerate(variables)}
    sources = {relaxed: _source(c, memory, layout, slots) for relaxed, c in compiled.items()}
    plain = compiled[False]
    (bundle / "kernels").mkdir(exist_ok=True)
    for done, (name, variant) in enumerate(VARIANTS.items()):
        progress("compiling WebAssembly", done, len(VARIANTS))
        module = compile_bundle(
            sources[variant.relaxed],
            list(plain.entries),
            threads=variant.threads,
            relaxed_simd=variant.relaxed,
            pages=layout.pages,
            static_base=layout.static,
            static_bytes=STATIC_BYTES - ALIGNMENT,
        )
        (bundle / _file(name)).write_bytes(module)
    progress("compiling WebAssembly", len(VARIANTS), len(VARIANTS))
    return {
        "bytes": memory.totals,
        "memory": {
            "pages": layout.pages,
            "buffers": {str(id): layout.addresses[id] for id in range(len(memory.named))},
            "variables": VARIABLES,
            "control": CONTROL,
            "stacks": {"base": STACKS, "bytes": layout.stack_bytes, "max_threads": MAX_THREADS},
        },
        "variants": {
            name: {"file": _file(name), "threads": variant.threads, "features": variant.features}
            for name, variant in VARIANTS.items()
        },
        "entry_points": {
            entry: {"function": entry, "variables": used_variables(plain, dispatches), "kernels": len(dispatches)}
            for entry, dispatches in plain.entries.items()
        },
    }


def _source(compiled: Compiled, memory: Memory, layout: Layout, slots: Mapping[str, int]) -> str:
    from tinyweb.render_wasm import BundleCall, bundle_source

    calls = {
        entry: [BundleCall(d.program, tuple(layout.addresses[memory.ids[b]] for b in d.buffers)) for d in dispatches]
        for entry, dispatches in compiled.entries.items()
    }
    return bundle_source(compiled.programs, calls, slots, VARIABLES, CONTROL)


def _file(variant: str) -> str:
    return f"kernels/{variant}.wasm"
