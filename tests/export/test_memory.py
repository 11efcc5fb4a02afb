"""Ids, pools and addresses: nothing overlaps, nothing is lost, and what cannot be is refused."""

import itertools

import numpy as np
import pytest

from tests.export.conftest import buffer, named
from tinyweb import Tensor
from tinyweb.device import Device
from tinyweb.dtype import dtypes
from tinyweb.errors import ExportError
from tinyweb.export.compile import Compiled, Dispatch
from tinyweb.export.expression import merge_variables
from tinyweb.export.memory import Memory, Named, plan_memory, read_memory
from tinyweb.export.wasm import ALIGNMENT, PAGE, STATIC_BYTES, plan_layout
from tinyweb.export.webgpu import limits, write_webgpu
from tinyweb.graph.ir import KernelInfo, Ops, ParamArg, UOp, Variable
from tinyweb.graph.program import ParamInfo, Program
from tinyweb.graph.schedule import KernelCall, MemoryPlan
from tinyweb.graph.target import webgpu_target
from tinyweb.tracing import Plan

WEIGHT = named(0, "w", "weight", dtypes.float16, (4, 8))
UNUSED = named(1, "unused", "weight", dtypes.float32, (9,))
STATE = named(2, "s", "state", dtypes.int32, (5,))


def kernel(*variables: UOp) -> UOp:
    memory = UOp(Ops.PARAM, dtypes.int32, (), ParamArg(0, 4))
    index = UOp.const(0, dtypes.index)
    for v in variables:
        index = index + v
    return memory.store(index, UOp.const(1, dtypes.int32)).sink(arg=KernelInfo("k"))


def plan(pools: dict[UOp, int], sizes: tuple[int, ...], *buffers: UOp, variables: tuple[UOp, ...] = ()) -> Plan:
    return Plan((KernelCall(kernel(*variables), buffers),), MemoryPlan(pools, sizes), "CPU")


def test_what_follows_the_last_element_is_zero() -> None:
    """Memory is whole words; what is left of the last one holds what was there before."""
    t = Tensor(np.ones(6, np.bool_), device="CPU").realize()
    runtime, memory = Device["CPU"].runtime, Device["CPU"].memory(t.uop.buffer).handle
    runtime.copy_in(memory, memoryview(b"\7\7"), 6)
    assert read_memory("CPU", t.uop.buffer, 0, 8) == bytes([1] * 6 + [0] * 2)
    assert read_memory("CPU", t.uop.buffer, 4, 4) == bytes([1, 1, 0, 0])
    assert read_memory("CPU", t.uop.buffer, 4, 2) == bytes([1, 1])


def test_entry_points_share_pools_by_size() -> None:
    a, b, c = (buffer(i, dtypes.float32, 4) for i in (10, 11, 12))
    plans = {
        "prefill": plan({a: 0, b: 1}, (100, 4000), a, b, WEIGHT.buffer),
        "decode": plan({c: 0}, (5000,), c, STATE.buffer),
    }
    memory = plan_memory(plans, [WEIGHT, UNUSED, STATE])
    assert [n.name for n in memory.named] == ["w", "s"]
    assert memory.pools == (5000, 100) and memory.pool_bytes == 5100
    assert memory.ids == {WEIGHT.buffer: 0, STATE.buffer: 1, a: 3, b: 2, c: 2}
    assert (memory.total("weight"), memory.total("state")) == (64, 20)
    assert [memory.size(i) for i in range(4)] == [64, 20, 5000, 100]


def test_tied_weights_are_one_buffer() -> None:
    again = Named("tied", "weight", WEIGHT.buffer, WEIGHT.dtype, WEIGHT.shape, WEIGHT.nbytes)
    memory = plan_memory({"decode": plan({}, (), WEIGHT.buffer)}, [WEIGHT, again])
    assert [n.name for n in memory.named] == ["w"]


def test_memory_of_nobody_is_a_defect() -> None:
    with pytest.raises(AssertionError, match="7 × i32"):
        plan_memory({"decode": plan({}, (), buffer(50, dtypes.int32, 7))}, [WEIGHT])


def test_addresses_do_not_overlap() -> None:
    memory = plan_memory({"decode": plan({}, (), WEIGHT.buffer)}, [WEIGHT, STATE])
    memory = Memory(memory.named, (1, 70, 4096), memory.ids)
    layout = plan_layout(memory)
    spans = [(at, at + memory.size(id)) for id, at in enumerate(layout.addresses)]
    assert spans[0][0] >= layout.static + STATIC_BYTES and all(at % ALIGNMENT == 0 for at, _ in spans)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert spans[-1][1] <= layout.pages * PAGE < spans[-1][1] + PAGE


def test_more_than_four_gigabytes() -> None:
    with pytest.raises(ExportError, match=r"takes 5.0 GiB and WebAssembly has at most 4: .*--quant"):
        plan_layout(Memory((), (5 * 2**30,), {}))


def test_variables_of_all_plans_with_their_widest_range() -> None:
    start, other = Variable("start_pos", 0, 15), Variable("a", 2, 3)
    every = [Variable("count", 1, 64), start, Variable("count", 1, 8), other]
    merged = merge_variables(every, ("start_pos", "count"))
    assert [v.arg for v in merged] == [("start_pos", 0, 15), ("count", 1, 64), ("a", 2, 3)]


def program(written: int, params: int, grid: tuple[int | UOp, int, int] = (1, 1, 1), shared: int = 0) -> Program:
    infos = tuple(ParamInfo(i, dtypes.int32, 4, i >= written, i < written) for i in range(params))
    return Program("k", (), infos, (), grid, (8, 4, 1), shared)


def test_limits_are_what_the_kernels_need() -> None:
    memory = Memory((WEIGHT, STATE), (1001,), {})
    programs = (program(1, 3, (7, 2, 1), 256), program(1, 5, (Variable("n", 0, 99) + 1, 1, 1)))
    assert limits([Compiled(webgpu_target(), programs, {})], memory) == {
        "maxStorageBuffersPerShaderStage": 5,
        "maxStorageBufferBindingSize": 1004,
        "maxBufferSize": 1004,
        "maxComputeWorkgroupStorageSize": 256,
        "maxComputeInvocationsPerWorkgroup": 32,
        "maxComputeWorkgroupSizeX": 8,
        "maxComputeWorkgroupSizeY": 4,
        "maxComputeWorkgroupSizeZ": 1,
        "maxComputeWorkgroupsPerDimension": 100,
    }


def test_a_written_buffer_bound_twice_is_a_defect(tmp_path: pytest.TempPathFactory) -> None:
    """WebGPU refuses such a dispatch; it would mean that the memory plan overlays what one kernel reads and writes."""
    a, b = buffer(10, dtypes.int32, 4), buffer(11, dtypes.int32, 4)
    memory = Memory((), (16,), {a: 0, b: 0})
    compiled = Compiled(webgpu_target(), (program(1, 2),), {"decode": (Dispatch(0, (a, b)),)})
    with pytest.raises(AssertionError, match="bound twice"):
        write_webgpu(tmp_path, {"base": compiled}, memory, ())  # type: ignore[arg-type]
