"""The vocabulary of the one node type: every operation a UOp can carry, and the records used as `arg`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from tinyweb.graph.ir.shared_matrices import Swizzle


class Ops(Enum):
    """Operations, grouped by the stage that may contain them (see spec.py)."""

    # -- leaves, all stages
    CONST = auto()  # arg: bool | int | float
    VARIABLE = auto()  # arg: (name, min, max); an integer the host sets before a launch
    BUFFER = auto()  # arg: BufferArg; memory

    # -- tensor graph only: movement (arg describes the result), sharing their source's values
    RESHAPE = auto()  # arg: shape
    PERMUTE = auto()  # arg: axes
    EXPAND = auto()  # arg: shape; axes of size 1 become larger, rank is unchanged
    PAD = auto()  # arg: ((before, after), …); filled with zero
    SHRINK = auto()  # arg: ((begin, end), …)
    FLIP = auto()  # arg: axes

    # -- tensor graph only: the rest
    IOTA = auto()  # arg: size; the vector 0 … size-1 of an integer dtype
    TAKE = auto()  # src: (x, integer indices), arg k: the first k axes are shared; x picked along axis k: shape
    #                indices.shape + x.shape[k+1:].  An index outside of the axis gives 0
    SCAN = auto()  # src: (x,), arg (ADD, MUL or MAX, axis): each element combined with all before it along the axis.
    #                src: (x, a), arg (MULADD, axis): the linear recurrence y[i] = y[i - 1] · a[i] + x[i], y[-1] = 0
    SCATTER = auto()  # src: (x, integer indices, values), arg (k, op): x after op(x at an index, value) for index after
    #                   index, with axes as TAKE has them; op None: the value itself.  Outside of the axis: nothing.
    #                   arg (k, op, True): no place is named twice; each is,
    #                   where there are as many indices as places or more
    FETCH_ADD = auto()  # src: (x, integer indices, values), arg k: x, of k + 1 axes, after x at an index += value for
    #                     index after index; behind it, along the last axis, what each index named before (0 outside)
    CONTIGUOUS = auto()  # the value, put into memory of its own
    ASSIGN = auto()  # src: (view of a BUFFER, value); the whole BUFFER after writing value into the view.  arg: a
    #                  number that tells updates apart; or Ordered: element after element along an axis, each seeing
    #                  what those before it have written.  A third source, another view: what stood in the first before
    COPY = auto()  # arg: CopyArg; its source, which is on some devices, on others
    BIND = auto()  # src: (VARIABLE, CONST): a variable together with its value in this call
    LEAF = auto()  # arg: id; its source, as a value of its own: two tensors of equal constants have two gradients
    DETACH = auto()  # its source, through which no gradient flows
    CUSTOM_GRADIENT = (
        auto()
    )  # src: (value, upstream, x, gradient of x, …): the value, the gradient of each x being given
    #                           as an expression in `upstream`, a LEAF that stands for the gradient that arrives; or
    #                           (value, x, …), arg: what makes these gradients of ((x, …), gradient that arrives)

    # -- tensor graph and kernels
    REDUCE = auto()  # tensor: src (x,), arg (op, axes), axes kept with size 1.  kernel: src (x, RANGE…), arg op
    SINK = auto()  # the root: everything that must happen.  kernel: arg KernelInfo

    # -- kernels and programs
    PARAM = auto()  # arg: ParamArg; memory handed in at launch
    RANGE = auto()  # src: (size,), arg: Axis; 0 … size-1: a loop, a hardware index, or lanes
    LOAD = auto()  # src: (memory, index[, gate]); 0 where the gate is false.  program: arg = lanes read (1 …)
    STORE = auto()  # src: (memory, index, value[, gate])
    STAGE = auto()  # kernels: src (value, RANGE…), arg StageArg: memory of value for every step of the ranges
    RUNNING = auto()  # kernels: src (REDUCE over a RANGE, that RANGE), arg bool: what the REDUCE is in this step of the
    #                   loop, once the step's value is in it (True) or before (False)
    RESCALE = auto()  # kernels: src (value, factor), as what a REDUCE with ADD sums: in each step of the loop, what has
    #                   been summed before is multiplied by the factor, and the value added

    # -- programs only
    SPECIAL = auto()  # src: (size,), arg: ("grid" | "thread", dimension): the hardware's index
    SUBGROUP_SIZE = auto()  # threads that run together, 4 … 128: known when it runs, and the same for all of a launch
    SUBGROUP = auto()  # src: (value,), arg ADD or MAX: over the threads of a subgroup, which are neighbours; or
    #                    Neighbours: over each so many of them
    AFTER = auto()  # src: (memory, dependency…): that memory, once the dependencies have happened
    END = auto()  # src: (dependency…, RANGE): closes the loop
    BARRIER = auto()  # src: (dependency…): all threads of the workgroup arrive, their shared memory is visible
    STACK = auto()  # src: n scalars; a vector of shape (n,)
    LANE = auto()  # src: (vector,), arg: i; one scalar of it
    F16_TO_F32 = auto()  # src: (uint32 whose low 16 bits are a half float)
    F32_TO_F16 = auto()  # src: (float32); rounded to half, as the low 16 bits of a uint32

    # -- elementwise, all stages
    CAST = auto()
    BITCAST = auto()  # same bits, other dtype of the same width
    NEG = auto()
    RECIPROCAL = auto()
    SQRT = auto()
    EXP = auto()
    EXP2 = auto()  # arg None, or how many binary digits are asked for (not of a subnormal result, which may be 0)
    EXPM1 = auto()  # exp(x) - 1
    LOG = auto()
    LOG2 = auto()
    LOG10 = auto()
    LOG1P = auto()  # log(1 + x)
    SIN = auto()
    COS = auto()
    TAN = auto()
    ASIN = auto()
    ACOS = auto()
    ATAN = auto()
    SINH = auto()
    COSH = auto()
    TANH = auto()
    ASINH = auto()
    ACOSH = auto()
    ATANH = auto()
    ERF = auto()
    ERFC = auto()  # 1 - erf(x)
    LGAMMA = auto()  # log |Γ(x)|
    DIGAMMA = auto()  # the derivative of LGAMMA
    FLOOR = auto()
    TRUNC = auto()
    ROUND = auto()  # to the nearest whole number, halves to the even one
    ADD = auto()
    MUL = auto()
    DIV = auto()  # floats
    POW = auto()  # floats
    FMOD = auto()  # floats: what is left of the first when the quotient is rounded to zero, exactly
    FLOORDIV = auto()  # integers, rounds to minus infinity; program: see spec
    MOD = auto()  # integers, sign of the divisor
    MAX = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    SHL = auto()
    SHR = auto()
    LESS = auto()  # → bool
    EQUAL = auto()  # → bool
    WHERE = auto()  # src: (bool, a, b)
    LOOKUP = auto()  # src: (integer within the table), arg TableArg: the number of its place, int32; not in programs
    MULADD = auto()  # a * b + c; programs only; arg: "once", rounded once, or None, once or twice
    DOT = auto()  # programs: src (a, b, c): c int32 (n,), b int8 (4n,), a alike or uint32 words (n/2,) of uint4:
    #               (or, in C, uint8):
    #               lane i is c[i] + the exact sum of a[4i + k] · b[4i + k] over k = 0 … 3.  Or pairs:
    #               b int16 (2n,), a alike, or words (n,) of uint4 of which each half has the arg-th of its four as a.
    #               Or src (words, b0, b1, …, c): integers of 4, 2 or 1 bits, those at each place of the bytes times one
    #               of as many operands; of 4 bits with a TableArg: what stands there in it. With a PlanesArg: words
    #               of each plane before the operands.
    #               Or matrices, arg (rows, columns): int8 (rows, s) and (columns, s), c (rows, columns) in order:
    #               c[i, j] + the exact sum of a[i, k] · b[j, k] over k; or floats, for whole subgroups.
    #               Or fragments of matrices, arg Fragments: each thread of a subgroup has its elements.
    #               Also in kernels: a and b uint32 like c, whose bytes are int8

    # members are singletons: the identity is as good a hash as Enum's own, and ops are hashed all the time
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Ops.{self.name}"

    def __lt__(self, other: Ops) -> bool:
        return self.value < other.value


# functions that lowering makes of arithmetic, unless the target has them
TRANSCENDENTAL = frozenset({
    Ops.EXP, Ops.EXP2, Ops.EXPM1, Ops.LOG, Ops.LOG2, Ops.LOG10, Ops.LOG1P, Ops.SIN, Ops.COS, Ops.TAN, Ops.ASIN,
    Ops.ACOS, Ops.ATAN, Ops.SINH, Ops.COSH, Ops.TANH, Ops.ASINH, Ops.ACOSH, Ops.ATANH, Ops.ERF, Ops.ERFC, Ops.LGAMMA,
    Ops.DIGAMMA, Ops.POW, Ops.FMOD,
})  # fmt: skip
UNARY = frozenset({
    Ops.NEG, Ops.RECIPROCAL, Ops.SQRT, Ops.FLOOR, Ops.TRUNC, Ops.ROUND, Ops.CAST, Ops.BITCAST, Ops.LOOKUP,
}) | (TRANSCENDENTAL - {Ops.POW, Ops.FMOD})  # fmt: skip
BINARY = frozenset({
    Ops.ADD, Ops.MUL, Ops.DIV, Ops.FLOORDIV, Ops.MOD, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.LESS,
    Ops.EQUAL, Ops.POW, Ops.FMOD,
})  # fmt: skip
TERNARY = frozenset({Ops.WHERE, Ops.MULADD})
ELEMENTWISE = UNARY | BINARY | TERNARY
COMMUTATIVE = frozenset({Ops.ADD, Ops.MUL, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR, Ops.EQUAL})
COMPARISON = frozenset({Ops.LESS, Ops.EQUAL})
MOVEMENT = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP})
TENSOR_ONLY = MOVEMENT | {
    Ops.IOTA, Ops.TAKE, Ops.SCAN, Ops.SCATTER, Ops.FETCH_ADD, Ops.CONTIGUOUS, Ops.ASSIGN, Ops.COPY, Ops.BIND, Ops.LEAF,
    Ops.DETACH, Ops.CUSTOM_GRADIENT,
}  # fmt: skip


class Space(Enum):
    """Where a BUFFER's memory lies, the fastest first."""

    REGISTER = auto()  # one invocation
    SHARED = auto()  # one workgroup
    DEVICE = auto()
    HOST = auto()

    def __repr__(self) -> str:
        return f"Space.{self.name}"


@dataclass(frozen=True)
class Ordered:
    """An ASSIGN that writes step by step along `axis` of its value."""

    axis: int
    number: int


@dataclass(frozen=True)
class StageArg:
    """The layout of a STAGE's memory."""

    space: Space  # SHARED or REGISTER; DEVICE: made of frozen parameters alone, before the first launch
    pad: int = 0  # elements left unused after each row, so that rows begin in different banks
    row: int = 0  # the last so many RANGEs make a row; all RANGEs together are row-major
    slots: int = 1  # steps of the loop that it is filled in that are there at a time: what is read was filled earlier
    swizzle: int = 0  # bytes of the rows that a matrix is cut into, whose parts change places (`Swizzle`)
    lag: int = 0  # of these steps so many may still be read when the next one begins

    def strides(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """Elements between neighbours along each of the RANGEs, which have these sizes; and elements in all."""
        out, step = [], 1
        for i, size in enumerate(reversed(sizes)):
            step += self.pad if self.pad and i == self.row else 0
            out.append(step)
            step *= size
        return tuple(reversed(out)), step + (self.pad if self.row == len(sizes) else 0)


@dataclass(frozen=True)
class TableArg:
    """Numbers that small integers stand for: 2, 4, 8 or 16, within a byte with or without a sign. Of a DOT of words of
    4-bit integers: what these are looked up in, numbers from 0 to 255."""

    numbers: tuple[int, ...]

    def __repr__(self) -> str:
        return f"TableArg({self.numbers})"


@dataclass(frozen=True)
class PlanesArg:
    """Of a DOT of integers in several planes, the lowest bits first: how many bits of them each has, and where in a
    byte: `places` counts from the lowest bits, in as many integers as a byte of the first plane has.
    """

    bits: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def in_byte(self) -> int:
        """Integers in a byte of the first plane."""
        return 8 // self.bits[0]

    def shift(self, plane: int, at: int) -> int:
        """How far the bits of the at-th integer of each byte are to be moved down, to their place in the integer."""
        return self.bits[plane] * (self.places[plane] * self.in_byte + at) - sum(self.bits[:plane])

    def mask(self, plane: int) -> int:
        """The bits of an integer that are a plane's."""
        return ((1 << self.bits[plane]) - 1) << sum(self.bits[:plane])


@dataclass(frozen=True)
class MatrixArg:
    """Which elements a LOAD or STORE of a matrix takes, from its index on: row i and column j at i · row + j · column.
    The threads of a subgroup carry it out together, all with the same index.
    """

    rows: int
    columns: int
    row: int
    column: int

    @property
    def count(self) -> int:
        return self.rows * self.columns

    @property
    def offsets(self) -> list[int]:
        return [i * self.row + j * self.column for i in range(self.rows) for j in range(self.columns)]


@dataclass(frozen=True)
class Spread:
    """How memory lies on several devices. With `outer` = 0 each has all of it; else it is seen as (outer, rest) in
    order, and each device has as many elements of the second axis as `shares` says, one behind the other.
    """

    devices: tuple[str, ...]
    outer: int
    shares: tuple[int, ...] = ()


@dataclass(frozen=True)
class CopyArg:
    """Where a COPY's source is, where the value is to be, and along which axis it is divided there, into parts of which
    sizes (None: each of the devices has all of it).
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    axis: int | None = None
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class RowsArg:
    """A LOAD of matrices of 8 rows of 16 bytes for a register of each thread: thread n names row n % 8 of matrix n / 8,
    and of each matrix, in turn, thread n gets 4 bytes of row n / 4; `transposed`: elements of 2 bytes, in columns, as
    if rows and columns were exchanged. `count`: elements that a thread gets.
    """

    count: int
    transposed: bool


@dataclass(frozen=True)
class Neighbours:
    """Each `count` threads of a subgroup, a power of two, from a multiple of it on, combine values by `op`."""

    op: Ops
    count: int


@dataclass(frozen=True)
class BufferArg:
    """Identity of a BUFFER: `size` elements in `space`; `id` tells apart buffers of one graph. With a `spread` it is on
    several devices; the `part` of one of them is a BUFFER whose source is the whole.
    """

    space: Space
    id: int
    size: int
    spread: Spread | None = None
    part: int | None = None
    swizzle: Swizzle | None = None  # how SHARED memory lies: lowering replaces the indices of what it has

    def __hash__(self) -> int:
        return self.id  # made for every new buffer, and Python's hash of an Enum is slow


@dataclass(frozen=True)
class ParamArg:
    """A kernel's argument: its position in the launch, its number of elements; with `ahead`, loads also ask for what
    lies so many bytes behind. `frozen`: launch after launch it is handed the same memory, which seldom changes.
    """

    slot: int
    size: int
    ahead: int = 0
    frozen: bool = False

    def __repr__(self) -> str:
        more = (f", ahead={self.ahead}" if self.ahead else "") + (", frozen=True" if self.frozen else "")
        return f"ParamArg(slot={self.slot}, size={self.size}{more})"


class AxisKind(Enum):
    """What carries out a RANGE. Lanes (VECTOR, UNROLL, DOT, TILE) become the shape of nodes that depend on them."""

    LOOP = auto()
    ORDERED = auto()  # a serial loop over outputs: a step reads what earlier ones have stored
    GRID = auto()  # CPU: split over the worker threads.  GPU: workgroups
    THREAD = auto()  # invocations of one workgroup
    UNROLL = auto()
    VECTOR = auto()
    DOT = auto()  # steps of a sum of products of small integers that are an instruction, where there is one
    TILE = auto()  # lowering only: the sums of an instruction for matrices, which are lanes of one vector

    def __repr__(self) -> str:
        return f"AxisKind.{self.name}"


@dataclass(frozen=True)
class Axis:
    """Identity of a RANGE. `name` is unique in its kernel ("i0", "r1", after a split "i0.0", "i0.1").

    Ranges nest by ascending `order`: an output loop of lower order is outside of one with a higher order. `dim` is the
    hardware dimension (0 = x) for GRID and THREAD. `reduce` marks the ranges of a REDUCE.
    """

    name: str
    order: int
    kind: AxisKind = AxisKind.LOOP
    reduce: bool = False
    dim: int = 0


@dataclass(frozen=True)
class KernelInfo:
    """What a kernel's SINK carries: a readable name and the schedule that was applied (one line per action)."""

    name: str = ""
    schedule: tuple[str, ...] = ()
