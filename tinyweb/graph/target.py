"""What a compiler must know about the thing it compiles for. The compiler asks this record, never a device's name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, Space, UOp

_WIDE = frozenset({dtypes.bool, dtypes.int32, dtypes.uint32, dtypes.float32, dtypes.index})
_ALL_C = _WIDE | {
    dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int64, dtypes.uint64, dtypes.float64,
}  # fmt: skip


THREAD_REGISTERS = 128  # of a thread, where nothing is known of the GPU
BUSY_THREADS = 1 << 15  # threads that keep a GPU busy: 256 for each of 128 processors; fewer processors lose little
CONVERSION = 4.0  # steps that GPUs take, beside one of logic: NVIDIA's do 16 in a cycle of a multiprocessor, and 64
POINTERS = 2**31 - 1  # parameters of a function of C: there is no limit


@dataclass(frozen=True)
class Target:
    """One record per kind of machine."""

    name: str  # shown in messages
    language: str  # "c" or "wgsl"
    vector_lanes: int  # 32-bit lanes worth aiming at: 4 for WASM SIMD and WGSL vec4, 8 for AVX2, 16 for AVX-512
    max_vector: int  # the widest vector a program node may have
    arithmetic: frozenset[DType]  # types that can be computed with; others are widened or refused (floats: legalize.py)
    storage: frozenset[DType]  # types memory can be declared as; others are packed into uint32 words
    native_math: frozenset[Ops] = field(default_factory=lambda: frozenset({Ops.SQRT, Ops.FLOOR, Ops.TRUNC}))
    exp2_digits: int = 0  # binary digits that the hardware's own 2ˣ has; 0: there is none
    fuses: bool = False  # a · b + c is one operation, which is rounded once
    ieee: bool = True  # division and square root are rounded correctly; NaN and infinity are compared as they should
    vector_registers: int = 16
    busy_threads: int = BUSY_THREADS  # of a GPU that keep it busy
    least_busy: int = 1 << 12  # … of the smallest one of the kind, as a phone's
    thread_registers: int = THREAD_REGISTERS  # of 32 bits that a thread of a GPU has before it keeps values in memory
    tile_sums: int = 12  # vectors of sums that a tile of a product keeps in registers beside its operands
    product_cost: float = 0.5  # cycles of a multiplication and addition of vectors
    load_cost: float = 0.5  # cycles of a vector load with its address
    broadcast_cost: float = 0.5  # … of loading one number into all lanes
    convert_cost: float = 1.0  # of making a float of an integer, beside logic: slow ones do it by the number's bits
    logic_operands: int = 2  # of an operation of logic; with 3, bits are masked and others set at once
    prefetch_bytes: int = 0  # how far ahead it is worth asking for memory that is read in order; 0: it cannot
    cache_bytes: int = 320 << 10  # what a block of a product may take: it stays in the second-level cache
    # how often what has a border is read, in sums, before a copy that has it costs less than finding out at each load
    checked_uses: int = 16
    # how often products of an attention read a half float before a copy in float32 costs less than converting each time
    converted_uses: int = 2**31 - 1
    scattered_stores: bool = False  # storing elements that lie apart costs less than a copy of them in another order
    scattered_loads: bool = False  # loading elements that lie apart costs about as much as those side by side
    branches: bool = False  # a loop may run for some vectors and not for others, and 64-bit floats are quick
    masked_loads: bool = False  # a vector load may leave lanes out, and reads nothing for them
    lane_shifts: bool = True  # each lane of a vector can be shifted by an amount of its own
    parallel_threads: int = 1  # workers the GRID axis is split over (CPU family)
    has_threads: bool = False  # THREAD axes, SHARED memory and BARRIER exist (GPU family)
    grid_dims: int = 1
    shared_bytes: int = 0
    max_workgroup: tuple[int, int, int] = (1, 1, 1)
    max_invocations: int = 1
    max_grid: int = 2**31 - 1  # workgroups per dimension
    max_buffers: int = 8  # storage buffers one kernel may bind
    max_binding_bytes: int = 2**62
    subgroups: bool = False  # threads of a subgroup can add up without shared memory; its size is known when it runs
    subgroup_threads: int = 0  # the most that a subgroup has, which multiplies matrices; 0: it does not
    neighbours: int = 0  # threads that follow each other, from a multiple of them on, and read each other's registers
    loads_rows: bool = False  # a subgroup loads the rows of matrices into registers at once (RowsArg)
    vector_entries: bool = False  # memory that is only accessed by vectors of one width is declared as these
    copies_ahead: bool = False  # what is copied to shared memory may arrive later
    unroll_steps: int = 1  # steps that a product's innermost loop is unrolled by, where compilers do not unroll it
    dot_lanes: int = 0  # 32-bit sums of an instruction for products of small integers; 0: there is none
    instructions: tuple[str, ...] = ()  # what it does in one step (optimize/instructions.py), what it does best first

    @property
    def features(self) -> list[str]:
        """WebGPU's optional features that programs may need, by their names there."""
        used = {
            "shader-f16": dtypes.float16 in self.arithmetic, "subgroups": self.subgroups,
            "chromium-experimental-subgroup-matrix": self.subgroup_threads > 0,
        }  # fmt: skip
        return [name for name, is_used in used.items() if is_used]

    def fitted(self, kernel: UOp) -> Target:
        """The target without half floats where the kernel has none, so that its program is the same with and without,
        or looks at their bits, which words have.
        """
        half = dtypes.float16
        if half not in self.arithmetic:
            return self
        nodes = kernel.toposort()
        bits = any(u.op is Ops.BITCAST and half in (u.dtype, u.src[0].dtype) for u in nodes)
        if any(u.dtype is half for u in nodes) and not bits:
            return self
        return replace(self, arithmetic=self.arithmetic - {half}, storage=self.storage - {half})

    @property
    def family(self) -> str:
        """Who carries out steps side by side, which decides what recipes schedules are made by: the threads of
        workgroups, workers with vectors, or whole arrays.
        """
        return "threads" if self.thread_dims else "vectors" if self.max_vector > 1 else "arrays"

    @property
    def thread_dims(self) -> tuple[int, ...]:
        """The dimensions that a workgroup's threads may have."""
        return tuple(dim for dim, most in enumerate(self.max_workgroup) if most > 1)

    @property
    def staging_spaces(self) -> tuple[Space, ...]:
        """Memory that values can be staged in."""
        return (Space.REGISTER, Space.SHARED) if self.shared_bytes else (Space.REGISTER,)

    def stores_apart(self, dtype: DType) -> bool:
        """Whether elements side by side in memory may be stored at the same time: they share no byte, or are updated
        atomically.
        """
        return dtype.bits >= 8 or dtype in self.storage or self.has_threads


# what processors do with small integers, best first: x86 without and with VNNI, ARM with sdot, and with smmla
PLANES = ("dot16_u2_i8", "dot32_u1_i8")  # integers of 2 and of 1 bits, which nothing else serves
SSE = ("dot8_u4_i8", "dot2_i16", "dot4_i8", *PLANES)
VNNI = ("dot8_u4_i8", "dot4_u8_i8", "dot4_i8", "dot2_i16", *PLANES)
DOTPROD = ("dot8_u4_i8", "dot4_i8", *PLANES)
I8MM = ("mma_2x2x8_i8", *DOTPROD)


def cpu_target(
    lanes: int = 8,
    threads: int = 1,
    registers: int | None = None,
    instructions: tuple[str, ...] = VNNI,
    fuses: bool = True,
) -> Target:
    """Native C through Clang; as many vector registers as processors with such lanes have on x86."""
    storage = _ALL_C | {dtypes.float16}
    registers = registers or (32 if lanes >= 16 else 16)
    return Target(
        "cpu", "c", lanes, 16, _ALL_C, storage, branches=True, parallel_threads=threads, dot_lanes=min(lanes, 8),
        vector_registers=registers, tile_sums=12 if registers == 16 else 25, lane_shifts=lanes >= 8 or registers == 32,
        masked_loads=lanes >= 8, prefetch_bytes=4096, instructions=instructions, max_buffers=POINTERS,
        fuses=fuses,
    )  # fmt: skip


def wasm_target(threads: int = 4, relaxed: bool = False) -> Target:
    """C through Clang for wasm32 with SIMD128; half floats are converted in integer arithmetic. `relaxed`: with relaxed
    SIMD, which has dots of bytes with integers of 7 bits; 4-bit ones are so, once they are shifted to unsigned.
    """
    pairs, nibbles = "dot2_i16", "dot8_u4_i8"
    # engines compute most addresses apart, and spread a number in a second step; each thread has a stack of its own
    return Target(
        "wasm", "c", 4, 16, _ALL_C, _ALL_C, branches=True, parallel_threads=threads, dot_lanes=4,
        instructions=((nibbles, pairs) if relaxed else (pairs, nibbles)) + ("dot4_i8", *PLANES),
        tile_sums=8, product_cost=1.0, load_cost=0.8, broadcast_cost=1.6, cache_bytes=160 << 10, lane_shifts=False,
        converted_uses=8,  # a dozen instructions for one, three in vectors
        max_buffers=POINTERS,
    )  # fmt: skip


def webgpu_target(
    *,
    subgroups: bool = False,
    f16: bool = False,
    shared_bytes: int = 16384,
    max_binding_bytes: int = 128 * 2**20,
    matrices: tuple[str, ...] = (),
    subgroup_threads: int = 0,
    thread_registers: int = THREAD_REGISTERS,
) -> Target:
    """WebGPU; by default what it guarantees everywhere (the specification's default limits, no optional features).

    `f16`: the feature shader-f16. Without it half floats lie in memory as pairs in words. `matrices`: what the adapter
    lists as configurations of subgroup matrices; `subgroup_threads`: the most that one of its subgroups has;
    `thread_registers`: what one of its threads has.
    """
    half = frozenset({dtypes.float16} if f16 else ())
    storage = half | {dtypes.int32, dtypes.uint32, dtypes.float32, dtypes.index}
    return Target(
        "webgpu", "wgsl", 4, 4, _WIDE | half, storage,
        has_threads=True, grid_dims=3, shared_bytes=shared_bytes, max_workgroup=(256, 256, 64), max_invocations=256,
        max_grid=65535, max_buffers=8, max_binding_bytes=max_binding_bytes, ieee=False, subgroups=subgroups,
        checked_uses=1 << 13,  # tiles in shared memory are filled once for 64 outputs
        scattered_stores=True, scattered_loads=True, convert_cost=CONVERSION, vector_entries=True, unroll_steps=4,
        instructions=(*matrices, "dot4_words"), subgroup_threads=subgroup_threads, thread_registers=thread_registers,
    )  # fmt: skip


def interpreter_target() -> Target:
    """The NumPy oracle: everything scalar, every type."""
    storage = _ALL_C | {dtypes.float16, dtypes.int4, dtypes.uint4, dtypes.uint2, dtypes.uint1}
    return Target("interpreter", "numpy", 1, 1, _ALL_C, storage, max_buffers=POINTERS)
