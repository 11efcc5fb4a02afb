"""What the rules of thumb choose is counted, not timed: the steps of the slowest worker, and what is read from memory.

The numbers are the same on every machine. After a change that is meant, `python -m tests.graph.optimize.test_work`
prints the table anew.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest

from tests.graph.lower.hand_kernels import dots
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import ELEMENTWISE, Ops, UOp, size_max
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import heuristic, optimize
from tinyweb.graph.optimize.actions import apply
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, cpu_target, wasm_target, webgpu_target
from tinyweb.tracing import capture

COUNTED = ELEMENTWISE | {Ops.LOAD, Ops.STORE, Ops.LANE, Ops.BARRIER, Ops.SUBGROUP, Ops.DOT}
FULL = 1 << 13  # threads that keep a GPU busy
TARGETS = {
    "cpu": cpu_target(8, 4),
    "cpu16": cpu_target(16, 1),
    "wasm": wasm_target(4),
    "webgpu": webgpu_target(),
    "subgroups": webgpu_target(subgroups=True, shared_bytes=32768),
}


def empty(*shape: int, dtype=dtypes.float32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype)


KERNELS: dict[str, Callable[[], Tensor]] = {
    "elementwise": lambda: (empty(512, 300) * 2.0 + empty(512, 300)).relu(),
    "transposed": lambda: empty(512, 320).T + 1.0,
    "row sums": lambda: empty(256, 1000).sum(1),
    "column sums": lambda: empty(1000, 256).sum(0),
    "everything": lambda: empty(64, 1024).max(),
    "softmax": lambda: empty(128, 500).softmax(-1),
    "softmax of a middle axis": lambda: empty(64, 64, 33).softmax(1),
    "means of small maps": lambda: empty(32, 128, 7, 7).mean((2, 3)),
    "layer norm": lambda: empty(64, 768).layer_norm(768),
    "product": lambda: empty(256, 256) @ empty(256, 256),
    "ragged product": lambda: empty(101, 203) @ empty(203, 77),
    "tall product": lambda: empty(8, 512) @ empty(1024, 512).T,
    "vector times matrix": lambda: empty(1, 1024) @ empty(1024, 1024),
    "matrix times vector": lambda: empty(1, 1024) @ empty(1024, 1024).T,
    "half weights": lambda: empty(4, 512) @ empty(768, 512, dtype=dtypes.float16).float().T,
    "convolution": lambda: empty(1, 16, 20, 20).conv2d(empty(32, 16, 3, 3), padding=1),
    "depthwise": lambda: empty(1, 32, 20, 20).conv2d(empty(32, 1, 3, 3), padding=1, groups=32),
    "pooling": lambda: empty(1, 16, 32, 32).max_pool2d(2),
    "attention": lambda: empty(1, 4, 64, 32).scaled_dot_product_attention(empty(1, 4, 64, 32), empty(1, 4, 64, 32)),
}  # fmt: skip


DOTS = {
    "products of int8": dots(dtypes.int8, tokens=8, outputs=64, groups=8),
    "one row of int8": dots(dtypes.int8, tokens=1, outputs=256, groups=8),
    "products of uint4": dots(dtypes.uint4, tokens=8, outputs=64, groups=8),
    "one row of uint4": dots(dtypes.uint4, tokens=1, outputs=256, groups=8),
}


def kernel_of(name: str) -> UOp:
    """The last kernel of what it takes to realize the tensor."""
    if name in DOTS:
        return DOTS[name].kernel
    return capture(lambda: KERNELS[name]().realize()).calls[-1].kernel


def is_shuffle(u: UOp) -> bool:
    """Whether a vector is made of lanes of two others at most, in one step."""
    return u.op is Ops.STACK and all(s.op is Ops.LANE for s in u.src) and len({s.src for s in u.src}) <= 2


def work(program: Program, target: Target) -> tuple[int, int]:
    """Steps of the slowest worker (a GPU: of a thread, as often as FULL of them take turns), and elements read."""
    trips, once, again, read = 1, 0, 0, 0
    above: list[int] = []
    steps, alike = 0, True  # of the loop at hand; whether it does the same for each block of the grid
    varying: set[UOp] = set()  # along the grid
    shuffles = {u for u in program.uops if is_shuffle(u)}
    others = {s for u in program.uops if u not in shuffles for s in u.src}
    accesses = [u for u in program.uops if u.op in (Ops.LOAD, Ops.STORE)] if target.vector_entries else []
    # vectors of memory are named by their numbers
    places = {
        u.src[1]
        for u in accesses
        if u.src[1].op is Ops.MUL and u.src[1].src[1].op is Ops.CONST and (u.src[2] if u.op is Ops.STORE else u).shape
    }
    places -= {s for u in program.uops if u.op not in (Ops.LOAD, Ops.STORE) for s in u.src}
    for u in program.uops:
        if u.op is Ops.SPECIAL or not varying.isdisjoint(u.src):
            varying.add(u)
        if u.op is Ops.RANGE:
            above.append(trips)
            trips *= size_max(u.src[0])
            steps += trips
        elif u in places:
            continue
        elif u in shuffles or (u.op in COUNTED and (u.op is not Ops.LANE or u in others)):
            shape = (u.src[2] if u.op is Ops.STORE else u).shape
            lanes = shape[0] if shape else 1
            assert isinstance(lanes, int)
            # a GPU's threads are the lanes: vectors are one step only to and from memory
            at_once = 1 if target.has_threads and u.op not in (Ops.LOAD, Ops.STORE) else target.vector_lanes
            steps += trips * -(-lanes // at_once) * (u.op is not Ops.LANE or not target.has_threads)
            if u.op is Ops.LOAD and u.src[0].buffer.op is Ops.PARAM:
                read += trips * lanes
        alike = alike and u not in varying
        if u.op is Ops.END:
            trips = above.pop()
        if not above:
            whole = alike and u.op is Ops.END and not target.has_threads
            once, again = once + steps * whole, again + steps * (not whole)
            steps, alike = 0, True
    groups, threads = prod(map(size_max, program.grid)), prod(program.workgroup)
    turns = max(groups * threads / FULL, 1) if target.has_threads else -(-groups // target.parallel_threads)
    return round(once + again * turns), read * groups * threads


# by kernel: (steps, elements read) for each of TARGETS
KNOWN = {
    "elementwise": ((45600, 307200), (105600, 307200), (91200, 307200), (157, 311296), (157, 311296)),
    "transposed": ((41930, 163840), (126780, 163840), (77770, 163840), (100, 163840), (100, 163840)),
    "row sums": ((45232, 256000), (180992, 256000), (88720, 256000), (132, 262144), (246, 262144)),
    "column sums": ((45956, 256000), (55346, 256000), (82004, 256000), (731, 258048), (731, 258048)),
    "everything": ((49170, 65536), (24610, 65536), (98314, 65536), (724, 65536), (724, 65536)),
    "softmax": ((213616, 128000), (237792, 129536), (213616, 128000), (529, 65536), (573, 65536)),
    "softmax of a middle axis": ((275704, 327680), (661712, 393216), (511624, 327680), (1476, 147456), (1400, 147456)),
    "means of small maps": ((57600, 200704), (231424, 200704), (83200, 200704), (296, 229376), (296, 229376)),
    "layer norm": ((26372, 147456), (58400, 147456), (51844, 147456), (164, 49152), (259, 49152)),
    "product": ((2416558, 1212416), (4177972, 329728), (4948008, 2359296), (12566, 1048576), (12566, 1048576)),
    "ragged product": ((260984, 158340), (551360, 119770), (485270, 243600), (10939, 215040), (10939, 215040)),
    "tall product": ((722807, 573440), (1535744, 3145728), (1216496, 589824), (1506, 4718592), (6672, 2621440)),
    "vector times matrix": ((95777, 1052672), (230596, 1050624), (169601, 1052672), (931, 1310720), (931, 1310720)),
    "matrix times vector": ((193344, 1310720), (413184, 1310720), (379712, 1310720), (476, 1572864), (1072, 1572864)),
    "half weights": ((328896, 786432), (738240, 786432), (636096, 786432), (633, 1769472), (2520, 1769472)),
    "convolution": ((282525, 133632), (521424, 62208), (578680, 248832), (7982, 256000), (7982, 256000)),
    "depthwise": ((18072, 138528), (54400, 184608), (27992, 111648), (277, 230400), (277, 230400)),
    "pooling": ((8960, 16384), (4608, 16384), (17664, 16384), (19, 16384), (19, 16384)),
    "attention": ((186244, 73728), (381360, 40960), (365864, 139264), (974, 1179648), (948, 1179648)),
    "products of int8": ((14252, 99840), (50880, 99840), (28876, 99840), (81, 73728), (81, 73728)),
    "one row of int8": ((10304, 135168), (33025, 133128), (23680, 135168), (75, 36864), (75, 36864)),
    "products of uint4": ((11104, 42496), (35806, 11776), (36744, 42496), (375, 57344), (375, 57344)),
    "one row of uint4": ((7708, 77824), (26013, 10504), (17616, 77824), (369, 28672), (369, 28672)),
}  # fmt: skip


def measured(name: str) -> tuple[tuple[int, int], ...]:
    kernel = kernel_of(name)
    return tuple(work(lower(apply(kernel, heuristic(kernel, t)), t), t) for t in TARGETS.values())


@pytest.mark.parametrize("name", KNOWN)
def test_no_more_work_than_known(name: str) -> None:
    for target, found, known in zip(TARGETS, measured(name), KNOWN[name], strict=True):
        for what, now, before in zip(("steps", "elements read"), found, known, strict=True):
            assert now <= before * 1.03, f"{name} on {target}: {now} {what}, {before} are enough"
            assert now >= before * 0.8, f"{name} on {target}: {now} {what} are {before} no more: write that down"


def test_what_memory_names_is_not_written_out() -> None:
    """Blocks that are transposed are one vector wide where conditions are not known before memory is read."""
    values, order = empty(1000, 64), empty(64, 1000, dtype=dtypes.int32).T
    for call in capture(lambda: values.gather(0, order).realize()).calls:
        program = lower(optimize(call.kernel, TARGETS["cpu16"]), TARGETS["cpu16"])
        assert len(program.uops) < 3000


@pytest.mark.parametrize("target", ["cpu", "cpu16"])
@pytest.mark.parametrize(("many", "size"), [(6, 20), (40, 25), (3, 111)])
def test_what_is_repeated_is_read_in_vectors(many: int, size: int, target: str) -> None:
    """As by a Kronecker product: places within what is repeated, and which one it is, are loops of their own."""
    a, b = empty(many, many), empty(size, size)
    out = empty(many * size, many * size)
    whole = (a[:, None, :, None] * b[None, :, None, :]).reshape(many * size, many * size)
    (call,) = capture(lambda: out.assign(whole)).calls
    program = lower(optimize(call.kernel, TARGETS[target]), TARGETS[target])
    assert not any(u.op in (Ops.FLOORDIV, Ops.MOD) for u in program.uops)
    assert any(u.op is Ops.LOAD and u.shape for u in program.uops)


if __name__ == "__main__":
    for kernel_name in KNOWN:
        print(f'    "{kernel_name}": {measured(kernel_name)},')
