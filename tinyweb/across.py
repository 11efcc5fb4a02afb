"""Running what spans several devices: each device's launches on its own runtime, and copies between them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tinyweb.device import Device, Kept, Prepared, current_recorder
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import UOp
from tinyweb.graph.schedule import CopyCall, KernelCall, MemoryPlan, Schedule, nbytes, new_buffer, part_of, whole_of
from tinyweb.memory import Buffer, reserve
from tinyweb.native_runtimes.protocol import Handle, Replay, Runtime


def prepare(schedule: Schedule, device: str, variables: Mapping[str, int]) -> Callable[[], None]:
    """Compile a schedule and take the memory it needs; the function that is returned runs it, once.

    Where a recorder listens, that records the schedule, and nothing is compiled.
    """
    recorder = current_recorder()
    if recorder is not None:
        return functools.partial(recorder.add, device, schedule, variables)
    if any(c.device for c in schedule.calls):
        return _prepare_across(schedule, variables)
    return Device[Device.members(device)[0]].prepare(schedule, variables)


@dataclass
class Copies:
    """Copies of memory between different devices that have been carried out."""

    count: int = 0
    nbytes: int = 0


COPIES = Copies()


def copy_memory(to: Runtime, place: Handle, of: Runtime, memory: Handle, size: int) -> None:
    """Copy bytes from one runtime's memory to another's: directly if the runtime can, else through the host."""
    direct = getattr(to, "copy_from", None)
    if direct is None or not direct(place, of, memory, size):
        to.copy_in(place, memoryview(of.copy_out(memory, size)))
    if to is not of:
        COPIES.count += 1
        COPIES.nbytes += size


def homes(calls: Iterable[KernelCall]) -> dict[UOp, str]:
    """Where the buffers of calls are, in a plan of several devices."""
    found: dict[UOp, str] = {}
    for c in calls:
        for b in c.buffers:
            found[b] = c.device
        if isinstance(c, CopyCall):
            found[c.buffers[1]] = c.source
    return found


def allocate_pools(plan: MemoryPlan, device: str) -> list[Buffer]:
    """The memory of a plan's temporaries."""
    where = plan.pool_devices or (device,) * len(plan.pool_bytes)
    for d in dict.fromkeys(where):
        reserve(Device[d].runtime, sum(n for n, at in zip(plan.pool_bytes, where) if at == d), "a computation")
    zeroed, sizes = plan.zeroed_pools, zip(plan.pool_bytes, where)
    return [Buffer(Device[d].runtime, n, dtypes.uint8, p in zeroed) for p, (n, d) in enumerate(sizes)]


def compile_calls(device: str, calls: Iterable[KernelCall]) -> None:
    """Compile the kernels of calls of one device, or each on its own."""
    kernels: dict[str, list[UOp]] = {}
    for c in calls:
        if not isinstance(c, CopyCall):
            kernels.setdefault(c.device or device, []).append(c.kernel)
    for d, own in kernels.items():
        Device[d].compile(own)


def _prepare_across(schedule: Schedule, variables: Mapping[str, int]) -> Callable[[], None]:
    compile_calls("", schedule.calls)
    pools = allocate_pools(schedule.memory, "")
    place = {b: pools[p] for b, p in schedule.memory.pool_of.items()}
    home = homes(schedule.calls)
    for call in schedule.calls:
        whole = call.written_whole()
        for b in call.buffers:
            if b not in place:
                place[b] = Device[home[b]].memory(b, zeroed=b not in whole)
    return functools.partial(_replay_across(schedule.calls, place, ()), variables)


def replay(device: str, calls: Sequence[KernelCall], place: Mapping[UOp, Buffer], varying: Sequence[UOp]) -> Prepared:
    """`OpenDevice.replay` of calls of one device, or each on its own."""
    if any(c.device for c in calls):
        return _replay_across(calls, place, varying)
    return Device[Device.members(device)[0]].replay(calls, place, varying)


def keep(device: str, calls: Sequence[KernelCall], frozen: Iterable[UOp]) -> tuple[list[KernelCall], list[Kept]]:
    """`OpenDevice.keep` of calls of one device, or each on its own."""
    frozen = set(frozen)
    out, kept = list(calls), list[Kept]()
    for d in dict.fromkeys(c.device for c in calls if not isinstance(c, CopyCall)):
        own = [i for i, c in enumerate(calls) if c.device == d and not isinstance(c, CopyCall)]
        parts = {b for i in own for b in calls[i].buffers if whole_of(b) in frozen}
        new, more = Device[d or Device.members(device)[0]].keep([calls[i] for i in own], parts)
        for i, c in zip(own, new):
            out[i] = c
        kept += more
    return out, kept


def _replay_across(calls: Sequence[KernelCall], place: Mapping[UOp, Buffer], varying: Sequence[UOp]) -> Prepared:
    """Calls of each device together as far as no copies come between, and the copies. A handle of memory on several
    devices is a tuple of theirs."""
    slots: dict[UOp, tuple[int, int | None]] = {}
    for k, b in enumerate(varying):
        spread = b.arg.spread
        slots |= {part_of(b, i): (k, i) for i in range(len(spread.devices))} if spread else {b: (k, None)}
    steps: list[Callable[[Sequence[Handle], Mapping[str, int]], None]] = []
    fixed: dict[Buffer, None] = {}
    written: dict[Buffer, None] = {}

    def handle(slot: tuple[int, int | None], handles: Sequence[Handle]) -> Handle:
        return handles[slot[0]] if slot[1] is None else handles[slot[0]][slot[1]]

    def launch(prepared: Prepared, used: Sequence[UOp]) -> Replay:
        own = [slots[b] for b in used]
        return lambda handles, variables: prepared.launch([handle(s, handles) for s in own], variables)

    def copy(call: CopyCall) -> Replay:
        to, of = Device[call.device].runtime, Device[call.source].runtime
        memory = [
            None if b in slots else place.get(b) or Device[d].memory(b)
            for b, d in zip(call.buffers, (call.device, call.source))
        ]
        fixed.update(dict.fromkeys(m for m in memory if m is not None))
        if memory[0] is not None:
            written[memory[0]] = None

        def run(handles: Sequence[Handle], variables: Mapping[str, int]) -> None:
            a, b = (handle(slots[b], handles) if m is None else m.handle for b, m in zip(call.buffers, memory))
            copy_memory(to, a, of, b, nbytes(call.buffers[0]))

        return run

    for (copies, device), group in itertools.groupby(calls, lambda c: (isinstance(c, CopyCall), c.device)):
        if copies:
            steps += [copy(c) for c in group if isinstance(c, CopyCall)]
            continue
        own = list(group)
        used = [b for b in slots if any(b in c.buffers for c in own)]
        prepared = Device[device].replay(own, place, used)
        fixed.update(dict.fromkeys(prepared.memory))
        written.update(dict.fromkeys(prepared.written))
        steps.append(launch(prepared, used))

    def run(handles: Sequence[Handle], variables: Mapping[str, int]) -> None:
        for step in steps:
            step(handles, variables)

    return Prepared(tuple(fixed), tuple(written), run)


def duplicate(buffer: UOp, device: str) -> UOp:
    """A BUFFER with the same content."""
    held = new_buffer(buffer.arg.size, buffer.dtype, buffer.arg.spread)
    count = len(buffer.arg.spread.devices) if buffer.arg.spread else 0
    pairs = [(part_of(held, i), part_of(buffer, i)) for i in range(count)] or [(held, buffer)]
    for (to, of), d in zip(pairs, Device.members(device)):
        opened = Device[d]
        copy_memory(opened.runtime, opened.memory(to).handle, opened.runtime, opened.memory(of).handle, nbytes(of))
    return held
