"""How the languages of the C family spell what programs consist of: one record for each.

Texts name types as `f32`, `u8` or `f32x4` in every language; what a language must declare for them to exist is in its
record too. `{kind}` stands for such a name, `{scalar}` for that of one element, `{n}` for its lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tinyweb.graph.ir.shared_matrices import BEGIN, BEGUN
from tinyweb.render_c.cuda_prelude import CUDA_AND_OR, CUDA_BRAIN, CUDA_HALF, CUDA_PRELUDE
from tinyweb.render_c.gpu_prelude import HIP_PRELUDE, OPENCL_PRELUDE

_WORDS = {
    "b8": "unsigned char", "i8": "signed char", "u8": "unsigned char", "i16": "short", "u16": "unsigned short",
    "i32": "int", "u32": "unsigned", "i64": "long long", "u64": "unsigned long long", "f32": "float", "f64": "double",
}  # fmt: skip


@dataclass(frozen=True)
class Dialect:
    """A table of spellings; the fields from `kernel` on are those of languages with threads."""

    name: str
    scalars: Mapping[str, str]  # what the types of single elements are called there
    scalar: str  # the declaration of one of them, {kind}, which is called {native}
    vector: str  # the declaration of a vector type {kind}
    make: str  # a vector of {values}
    splat: str  # {value} in all lanes
    lane: str  # lane {i} of a vector {value}
    convert: str  # the values of a vector {value} in another type
    bits: str  # the same bits as another type
    same_size: str  # the same for vectors of integers, where that is shorter
    choose: str  # by the mask {c}, {a} or {b} for each lane
    functions: Mapping[str, str]  # sqrt, floor, trunc and round (to even), of scalars and vectors
    long_suffix: str = "ll"  # of 64-bit integers
    f64_type: str = "f64"
    prelude: str = ""
    kernel: str = ""  # before a kernel of {x} · {y} · {z} = {threads} threads
    function: str = ""  # before a helper function
    device: str = ""  # address spaces: what is handed in, what a workgroup shares, and values of variables
    shared: str = ""
    constant: str = ""
    restrict: str = "restrict"
    shared_array: str = ""  # the declaration of {name}, {size} elements that a workgroup shares
    static_shared: int = 1 << 30  # bytes of them that may be declared; more are one array, whose size a launch says
    shared_pool: str = ""  # its declaration
    shared_part: str = ""  # that of {name}, {offset} bytes behind its beginning
    group: tuple[str, ...] = ()  # hardware indices, by dimension
    thread: tuple[str, ...] = ()
    barrier: str = ""
    subgroup_size: str = ""
    atomic: Mapping[str, str] = field(default_factory=dict)  # updates of the word at {place} with {value}
    fused: str = ""  # a · b + c of floats, rounded once or twice
    and_or: str = ""  # the helper for a & b | c of words, where the compiler finds no single operation for that
    dot4: str = ""  # the body of `i32 dot4(u32 a, u32 b, i32 c)`: c and the four products of signed bytes
    largest: str = ""  # the body of `f32 maximum_f32(f32 a, f32 b)`, which is NaN where either is; "" without any
    exp2: str = ""  # the body of `f32 exp2_of(f32 x)`, which the hardware has itself
    half_to_single: str = ""  # the bodies of functions between the bits of halves and singles {n} `x`
    single_to_half: str = ""
    half_vectors: bool = False  # they serve vectors
    subgroup: Mapping[str, str] = field(default_factory=dict)  # the bodies that combine `x`: add and max
    other_lane: str = ""  # {value} of the thread of a subgroup whose number differs in the bit {step}
    loop: str = ""  # before loops that stay loops
    written_out: str = "#pragma unroll"  # before short ones whose steps are written out
    copy_ahead: str = ""  # the helper that copies `{bytes}` from {place} to {to}, where {test} holds, else zeros
    sent: str = ""  # after such copies, which are waited for together
    arrived: str = ""  # until all but the last {n} of those have arrived
    visible: str = ""  # before a barrier: what is stored in shared memory, to instructions that read it later
    groups: Mapping[str, str] = field(default_factory=dict)  # of such: before the first, and behind the last
    multiplied: str = ""  # until all but the last {n} groups of them have read, and written their sums
    meanwhile: str = ""  # between what is computed while products go on, and waiting for these
    extensions: Mapping[str, str] = field(default_factory=dict)  # what must stand first, for types that are used


_BUILTINS = {"sqrt": "sqrt", "floor": "floor", "trunc": "trunc", "round": "roundeven"}

CLANG = Dialect(
    name="C",
    scalars={**_WORDS, "f16": "_Float16"},
    scalar="typedef {native} {kind} __attribute__((may_alias));",
    vector=(
        "typedef {scalar} {kind} __attribute__((ext_vector_type({n})));\n"
        "typedef {kind} {kind}_m __attribute__((aligned({size}), may_alias));  // in memory"
    ),
    make="({kind}){{{values}}}",
    splat="({kind})({value})",
    lane="{value}[{i}]",
    convert="__builtin_convertvector({value}, {kind})",
    bits="__builtin_bit_cast({kind}, {value})",
    same_size="({kind}){value}",
    choose="({c} ? {a} : {b})",
    functions={name: f"__builtin_elementwise_{builtin}" for name, builtin in _BUILTINS.items()},
)

OPENCL = Dialect(
    name="OpenCL C",
    scalars={
        **_WORDS,
        "b8": "uchar",
        "i8": "char",
        "u8": "uchar",
        "u16": "ushort",
        "u32": "uint",
        "i64": "long",
        "u64": "ulong",
        "f16": "half",
    },
    scalar="typedef {native} {kind};\n#define as_{kind} as_{native}",
    vector=(
        "typedef {native}{n} {kind};\n#define as_{kind} as_{native}{n}\n#define convert_{kind} convert_{native}{n}"
    ),
    make="({kind})({values})",
    splat="({kind})({value})",
    lane="{value}.s{i:x}",
    convert="convert_{kind}({value})",
    bits="as_{kind}({value})",
    same_size="as_{kind}({value})",
    choose="({c} ? {a} : {b})",
    functions={"sqrt": "sqrt", "floor": "floor", "trunc": "trunc", "round": "rint"},
    long_suffix="l",
    kernel="__kernel __attribute__((reqd_work_group_size({x}, {y}, {z}))) void",
    function="static inline",
    device="__global ",
    shared="__local ",
    constant="__constant ",
    shared_array="__local {scalar} {name}[{size}] __attribute__((aligned(16)));",
    group=("get_group_id(0)", "get_group_id(1)", "get_group_id(2)"),
    thread=("get_local_id(0)", "get_local_id(1)", "get_local_id(2)"),
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    subgroup_size="get_max_sub_group_size()",
    atomic={"atomic_and": "atomic_and(&{place}, {value})", "atomic_or": "atomic_or(&{place}, {value})"},
    fused="multiply_add",
    dot4="""
#if defined(cl_khr_integer_dot_product) || defined(__opencl_c_integer_dot_product_input_4x8bit_packed)
  return c + dot_4x8packed_ss_int(a, b);
#else
  const short4 v = convert_short4(as_char4(a)) * convert_short4(as_char4(b));
  return c + (((i32)v.s0 + v.s1) + ((i32)v.s2 + v.s3));
#endif
""",
    half_to_single="const {kind} bits = convert_ushort{n}(x); return vload_half{n}(0, (const half *)&bits);",
    single_to_half="{kind} bits; vstore_half{n}_rte(x, 0, (half *)&bits); return convert_uint{n}(bits);",
    half_vectors=True,
    subgroup={"add": "return sub_group_reduce_add(x);", "max": "return sub_group_reduce_max(x);"},
    prelude=OPENCL_PRELUDE,
    extensions={
        "f16": "#pragma OPENCL EXTENSION cl_khr_fp16 : enable",
        "f64": "#pragma OPENCL EXTENSION cl_khr_fp64 : enable",
        "subgroup": "#ifdef cl_khr_subgroups\n#pragma OPENCL EXTENSION cl_khr_subgroups : enable\n#endif",
    },
)

_SHUFFLES = """
  if ({threads} % 32 == 0) {{
#pragma unroll
    for (i32 m = 16; m > 0; m >>= 1) {{ const {scalar} y = __shfl_xor_sync(0xffffffffu, x, m); x = COMBINED; }}
    return x;
  }}
  const u32 all = __activemask();
  const i32 lane = threadIdx.x & 31, count = __popc(all);
#pragma unroll
  for (i32 m = 16; m > 0; m >>= 1) {{
    const {scalar} y = __shfl_down_sync(all, x, m);
    if (lane + m < count) x = COMBINED;
  }}
  return __shfl_sync(all, x, 0);
"""

_LARGEST = """
#if __CUDA_ARCH__ >= 800
  f32 c; asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c;
#else
  return ((a > b) | (a != a)) ? a : b;
#endif
"""

_CPP = Dialect(
    name="C++",
    scalars={**_WORDS, "f16": "_Float16"},
    scalar=CLANG.scalar,
    vector=CLANG.vector,
    make="{kind}{{{values}}}",
    splat="{kind}({value})",
    lane="{value}[{i}]",
    convert=CLANG.convert,
    bits=CLANG.bits,
    same_size=CLANG.bits,
    choose=CLANG.choose,
    functions=CLANG.functions,
    function="static inline __device__ __attribute__((always_inline))",
    restrict="__restrict__",
    shared_array="__shared__ __attribute__((aligned(16))) {scalar} {name}[{size}];",
)

# In rounds each lane adds what lies so many lanes above it; in the end the first lane has all. The last wave of a
# workgroup may have lanes without threads.
_IN_WAVE = """
  const i32 lane = lane_number(), count = {threads} % WAVE ? __builtin_popcountll(__builtin_amdgcn_read_exec()) : WAVE;
#pragma unroll
  for (i32 m = WAVE / 2; m > 0; m >>= 1) {{
    const {scalar} y = of_lane(x, lane + m);
    x = lane + m < count ? COMBINED : x;
  }}
  return of_first_lane(x);
"""

HIP = replace(
    _CPP,
    name="HIP C++",
    scalars={**_CPP.scalars, "bf16": "__bf16"},
    subgroup={
        "add": _IN_WAVE.replace("COMBINED", "x + y"),
        "max": _IN_WAVE.replace("COMBINED", "(x < y ? y : x)"),
    },
    exp2="return __builtin_amdgcn_exp2f(x);",
    other_lane="of_lane({value}, lane_number() ^ {step})",
    dot4="return dot4_i8(a, b, c);",
    fused="__builtin_elementwise_fma",
    half_to_single="return (f32)__builtin_bit_cast(_Float16, (u16)x);",
    single_to_half="return __builtin_bit_cast(u16, (_Float16)x);",
    kernel='extern "C" __global__ __attribute__((amdgpu_flat_work_group_size({threads}, {threads}))) void',
    group=tuple(f"(i32)__builtin_amdgcn_workgroup_id_{d}()" for d in "xyz"),
    thread=tuple(f"(i32)__builtin_amdgcn_workitem_id_{d}()" for d in "xyz"),
    barrier="workgroup_barrier();",
    subgroup_size="WAVE",
    atomic={f"atomic_{op}": f"__atomic_fetch_{op}(&{{place}}, {{value}}, __ATOMIC_RELAXED)" for op in ("and", "or")},
    prelude=HIP_PRELUDE,
)

CUDA = replace(
    _CPP,
    name="CUDA C++",
    scalars={**_WORDS, "f16": "Half", "bf16": "Brain"},
    extensions={"f16": CUDA_HALF, "bf16": CUDA_BRAIN},
    fused="multiply_add",
    subgroup={
        "add": _SHUFFLES.replace("COMBINED", "x + y"),
        "max": _SHUFFLES.replace("COMBINED", "x < y ? y : x"),
    },
    and_or=CUDA_AND_OR,
    largest=_LARGEST,
    exp2='f32 y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y;',
    other_lane="__shfl_xor_sync(0xffffffffu, {value}, {step})",
    dot4="return __dp4a((i32)a, (i32)b, c);",
    half_to_single='f32 y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((u16)x)); return y;',
    single_to_half='u16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y;',
    scalar="typedef {native} {kind};",
    vector="typedef Vector<{scalar}, {n}> {kind};\ntypedef {kind} {kind}_m;",
    convert="convert<{kind}>({value})",
    bits="as<{kind}>({value})",
    same_size="as<{kind}>({value})",
    choose="choose({c}, {a}, {b})",
    functions={"sqrt": "root", "floor": "floor_of", "trunc": "trunc_of", "round": "round_of"},
    # one workgroup on a multiprocessor will do: else registers are spilled so that many small ones fit
    kernel='extern "C" __global__ void __launch_bounds__({threads}, 1)',
    function="static __device__ __forceinline__",
    shared_array="__shared__ __align__(16) {scalar} {name}[{size}];",
    static_shared=48 << 10,
    shared_pool="extern __shared__ __align__(1024) u8 shared[];",
    shared_part="{scalar} *const {name} = ({scalar} *)(shared + {offset});",
    group=tuple(f"(i32)blockIdx.{d}" for d in "xyz"),
    thread=tuple(f"(i32)threadIdx.{d}" for d in "xyz"),
    barrier="__syncthreads();",
    loop="LOOP",
    written_out="WRITTEN_OUT",
    copy_ahead="copy_ahead<{bytes}>(&{to}, &{place}, {test});",
    sent='asm volatile("cp.async.commit_group;" ::: "memory");',
    arrived='asm volatile("cp.async.wait_group {n};" ::: "memory");',
    visible='asm volatile("fence.proxy.async.shared::cta;" ::: "memory");',
    groups={
        BEGIN: 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");',
        BEGUN: 'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");',
    },
    multiplied='asm volatile("wgmma.wait_group.sync.aligned {n};" ::: "memory");',
    # no memory is there: what stands before a branch ptxas leaves there, where it would wait first
    meanwhile="""\
if ((u64){memory} == 1) {{
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  asm volatile("trap;");
}}""",
    subgroup_size="32",
    atomic={f"atomic_{op}": f"atomic{op.title()}(&{{place}}, {{value}})" for op in ("and", "or")},
    prelude=CUDA_PRELUDE,
)
