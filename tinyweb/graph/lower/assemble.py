"""`lower`: the passes in order, and the Program that comes out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tinyweb.dtype import DType
from tinyweb.graph.ir import KernelInfo, Ops, Size, UOp, as_index, size_max
from tinyweb.graph.ir.program_spec import program_spec
from tinyweb.graph.ir.spec import verify
from tinyweb.graph.lower.alternatives import choose_in_loads
from tinyweb.graph.lower.blocks import block_sums
from tinyweb.graph.lower.broadcast import broadcast
from tinyweb.graph.lower.conversion import convert_by_bits
from tinyweb.graph.lower.decompose import decompose
from tinyweb.graph.lower.devectorize import devectorize
from tinyweb.graph.lower.entries import address_entries
from tinyweb.graph.lower.fused import fuse
from tinyweb.graph.lower.hardware import bind_hardware
from tinyweb.graph.lower.int64 import compare_words, split_int64
from tinyweb.graph.lower.layouts import lay_out
from tinyweb.graph.lower.legalize import legalize
from tinyweb.graph.lower.linearize import linearize
from tinyweb.graph.lower.loop_invariant import once_per_call
from tinyweb.graph.lower.loops import lower_loops
from tinyweb.graph.lower.shared_memory import share_memory, shared_bytes, shared_places
from tinyweb.graph.lower.trips import end_loops
from tinyweb.graph.lower.warpgroups import begin_and_wait, swizzle
from tinyweb.graph.optimize.merge import merge_reduces
from tinyweb.graph.program import ParamInfo, Program
from tinyweb.graph.symbolic import simplify
from tinyweb.graph.target import Target


def lower(kernel: UOp, target: Target) -> Program:
    """The program that carries out `kernel` on `target`.

    ValueError where the kernel exceeds a limit of the target that lowering cannot split (buffers, threads, shared
    memory); NotImplementedError naming a type or operation that the target cannot compute with.
    """
    target = target.fitted(kernel)
    info = kernel.arg if isinstance(kernel.arg, KernelInfo) else KernelInfo()
    laid_out, layouts = lay_out(kernel)
    params = [u for u in dict.fromkeys([*kernel.toposort(), *laid_out.toposort()]) if u.op is Ops.PARAM]
    if len(params) > target.max_buffers:
        raise ValueError(
            f"kernel {info.name or '(no name)'} uses {len(params)} buffers; {target.name} allows {target.max_buffers}"
        )
    kernel = merge_reduces(simplify(laid_out))
    prefix = _readable(kernel)
    kernel, launch = bind_hardware(block_sums(kernel), target)
    kernel = decompose(legalize(end_loops(simplify(kernel)), target), target)
    effects, arrays = lower_loops(broadcast(simplify(kernel), target), target, launch.workgroup)
    # what lowering finds unused stays a parameter: whoever launches the kernel passes it
    effects = effects.replace(src=(*effects.src, *params))
    expanded, memory = devectorize(effects, target, arrays)
    expanded = convert_by_bits(split_int64(expanded, target), target)
    if target.fuses:
        expanded = fuse(expanded)
    if target.has_threads:
        expanded = swizzle(compare_words(choose_in_loads(expanded)))
    if target.vector_entries:
        expanded = address_entries(expanded)
    if memory.partial_updates and not target.has_threads and any(size_max(n) > 1 for n in launch.grid):
        raise ValueError(
            f"kernel {info.name or prefix} updates parts of bytes: its grid must not be spread over workers"
        )
    uops = tuple(linearize(expanded))
    if target.has_threads:
        uops = begin_and_wait(share_memory(uops, target.shared_bytes))
    else:
        uops = once_per_call(uops)
    verify("lower", uops, program_spec)
    shared = sum(shared_places(uops).values())
    if shared > target.shared_bytes:
        raise ValueError(
            f"kernel {info.name or prefix} needs {shared} bytes of shared memory; "
            f"{target.name} has {target.shared_bytes}"
        )
    return Program(
        name=f"{prefix}_{_digest(uops, launch.grid)}",
        uops=uops,
        params=_params(uops, target.has_threads),
        variables=_variables(uops, launch.grid),
        grid=launch.grid,
        workgroup=launch.workgroup,
        shared_bytes=shared_bytes(uops),
        schedule=info.schedule,
        layouts=layouts,
    )


def _params(uops: Sequence[UOp], threads: bool) -> tuple[ParamInfo, ...]:
    read: set[int] = set()
    written: set[int] = set()
    atomic: set[int] = set()
    declared: dict[int, UOp] = {}
    for u in uops:
        if u.op is Ops.PARAM:
            declared[u.arg.slot] = u
        elif u.op in (Ops.LOAD, Ops.STORE) and u.src[0].buffer.op is Ops.PARAM:
            slot = u.src[0].buffer.arg.slot
            (read if u.op is Ops.LOAD else written).add(slot)
            if threads and u.op is Ops.STORE and isinstance(u.arg, str):
                atomic.add(slot)
    return tuple(
        ParamInfo(slot, p.dtype, p.arg.size, slot in read, slot in written, slot in atomic)
        for slot, p in sorted(declared.items())
    )


def _variables(uops: Sequence[UOp], grid: Sequence[Size]) -> tuple[UOp, ...]:
    found = {u for u in uops if u.op is Ops.VARIABLE}
    for size in grid:
        found.update(as_index(size).variables())
    return tuple(sorted(found, key=lambda v: str(v.arg[0])))


# -- names -----------------------------------------------------------------------------------------------------
def _readable(kernel: UOp) -> str:
    """`e` for elementwise, `r` for reducing kernels, then the sizes of the loops (symbolic ones as their maximum)."""
    nodes = kernel.toposort()
    ranges = sorted((u for u in nodes if u.op is Ops.RANGE), key=lambda r: (r.arg.reduce, r.arg.order, r.arg.name))
    sizes = [str(size_max(r.src[0])) if r.src[0].op is Ops.CONST else f"s{r.src[0].vmax}" for r in ranges]
    kind = "r" if any(u.op is Ops.REDUCE for u in nodes) else "e"
    return "_".join([kind, *sizes[:8]])


def _digest(uops: Sequence[UOp], grid: Sequence[Size]) -> str:
    """Equal for equal programs, whatever their kernel was called and in whatever process they are made."""
    number: dict[UOp, int] = {}
    lines: list[str] = []
    kind: dict[tuple[Ops, DType], str] = {}
    for u in [*uops, *(n for size in grid for n in as_index(size).toposort())]:
        if u not in number:
            number[u] = len(number)
            key = u.op, u.dtype
            if key not in kind:
                kind[key] = f"{u.op.name} {u.dtype.short}"
            lines.append(f"{kind[key]} {u.arg!r} {[number[s] for s in u.src]}")
    lines.append(str([number[as_index(size)] for size in grid]))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:10]
