"""What processors do in one step: records, each with its meaning as an expression, and the matcher that finds it.

An instruction's semantics is a REDUCE over loads of its operands, PARAMs numbered by their place; the ranges that are
free in it are the rows and columns of a result that is a matrix. A target lists the names of those it has
(`Target.instructions`). `unify` asks whether a reduction of a kernel is one for given axes: what
stands at an operand's place is any integer expression whose values are within the operand's type, or, where the operand
is unsigned, are so after a shift: Σ (a + s) · b − s · Σ b. Words of integers below 8 bits are taken apart as 0 …; a
sign, or a zero point that is subtracted, is such a shift. How the text of one looks is the renderers' matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from tinyweb.dtype import BY_NAME, DType, dtypes
from tinyweb.graph.ir import (
    Axis,
    AxisKind,
    Digit,
    Fragments,
    Ops,
    ParamArg,
    TableArg,
    UOp,
    UPat,
    axis_size,
    is_lane,
    lane_count,
    nested,
    row_major,
    specials_of,
)
from tinyweb.graph.optimize.matrices import ROWS
from tinyweb.graph.symbolic import simplify
from tinyweb.graph.target import Target


@dataclass(frozen=True)
class Instruction:
    """`operands`: types of the elements that one sum takes; `semantics`: the sum, a REDUCE whose first range is the
    axis that becomes the instruction's (the others are lanes beside it), for each step of the ranges that are free in
    it; `words`: it takes its operands as the words of 32 bits that they are in memory.
    """

    name: str
    operands: tuple[DType, ...]
    semantics: UOp
    words: bool = False
    together: bool = False  # a subgroup's threads carry it out, with operands and sums in shared memory
    fragments: Fragments | None = None  # … with operands and sums in their registers, laid out like this

    @property
    def axes(self) -> tuple[UOp, ...]:
        return self.semantics.src[1:]

    @property
    def tile(self) -> tuple[UOp, ...]:
        """The axes of the sums that it computes: of a matrix its rows and columns, else none."""
        return tuple(nested(self.semantics.ranges))

    @property
    def steps(self) -> int:
        """Steps of the axis that becomes the instruction's."""
        return int(self.axes[0].src[0].arg)

    @property
    def columns(self) -> int:
        """Of the matrix that it computes."""
        return lane_count(self.tile[-1])

    @property
    def shared(self) -> bool:
        """Whether operands are matrices in shared memory, which are read until the products are waited for."""
        return self.fragments is not None and self.fragments.shared

    @property
    def first_held(self) -> bool:
        """… but for the first, which is in registers."""
        return self.fragments is not None and self.fragments.first_held

    @property
    def unsigned_bytes(self) -> bool:
        """Whether it takes bytes without a sign: what has one is shifted into them, and needs no other type."""
        return dtypes.uint8 in self.operands

    @property
    def terms(self) -> int:
        """Products that are added to one sum."""
        return prod(int(r.src[0].arg) for r in self.axes)

    @cached_property
    def term(self) -> UPat:
        """What is added up."""
        return _pattern(self.semantics.src[0])

    def __str__(self) -> str:
        operands = " and ".join(map(str, self.operands))
        sums = f"{' × '.join(str(lane_count(r)) for r in self.tile)} sums" if self.tile else "sum"
        return f"{self.steps} steps of an {self.semantics.dtype} {sums} of products of {operands}"


def _pattern(u: UOp) -> UPat:
    """What a part of an instruction's semantics fits; whatever has an operand's type stands for it, by its number."""
    operand = u.src[0] if u.op is Ops.CAST else u
    if operand.op is Ops.LOAD:
        return UPat(dtype=u.dtype, name=str(operand.src[0].arg.slot))
    return UPat(u.op, src=[_pattern(s) for s in u.src], dtype=u.dtype, arg=u.arg)


@dataclass(frozen=True)
class Match:
    """What stands for each operand, and what is to be added to it so that it is within the operand's type; the lanes
    that have the instruction's tiles; of fragments the axes that have the digits of rows and those of columns.
    """

    factors: tuple[UOp, ...]
    shifts: tuple[int, ...]
    tile: tuple[UOp, ...] = ()
    digits: tuple[tuple[UOp, ...], ...] = ()


def sums_of(
    name: str,
    operands: tuple[DType, DType],
    sizes: tuple[int, ...],
    tile: tuple[int, ...] = (),
    dtype: DType = dtypes.int32,
) -> Instruction:
    """Sums of products, of floats by threads together. Of several axes the last one lies in memory side by side; an
    operand has an axis of the tile, and lies in memory with the sum's axes inside of it.
    """

    def loop(axis: Axis, size: int) -> UOp:
        return UOp(Ops.RANGE, dtypes.index, (UOp.const(size, dtypes.index),), axis)

    axes = [loop(Axis(f"k{i}", i, AxisKind.LOOP, True), n) for i, n in enumerate(sizes)]
    outputs = [loop(Axis(f"i{i}", i, AxisKind.LOOP), n) for i, n in enumerate(tile)]
    a, b = (
        UOp(Ops.PARAM, t, (), ParamArg(i, prod((*tile[i : i + 1], *sizes))))
        .load(row_major([*outputs[i : i + 1], *axes]))
        .cast(dtype)
        for i, t in enumerate(operands)
    )
    return Instruction(name, operands, UOp(Ops.REDUCE, dtype, (a * b, *axes), Ops.ADD), together=dtype.is_float)


DOT4_I8 = sums_of("dot4_i8", (dtypes.int8, dtypes.int8), (4,))
# one operand of any byte: what is shifted into it is the one that lanes have alike
DOT4_U8_I8 = sums_of("dot4_u8_i8", (dtypes.uint8, dtypes.int8), (4,))
DOT2_I16 = sums_of("dot2_i16", (dtypes.int16, dtypes.int16), (2,))
# all integers below 8 bits of four bytes: those at one place of the bytes by a shift and a mask
PACKED = {
    bits: sums_of(f"dot{32 // bits}_u{bits}_i8", (BY_NAME[f"uint{bits}"], dtypes.int8), (4, 8 // bits))
    for bits in (4, 2, 1)
}
DOT8_U4_I8 = PACKED[4]
# two rows times two columns, of eight steps each
MMA_2X2X8_I8 = sums_of("mma_2x2x8_i8", (dtypes.int8, dtypes.int8), (8,), (2, 2))
DOT4_WORDS = replace(DOT4_I8, name="dot4_words", words=True)

# of subgroups: the configurations that WebGPU's adapters list, rows × columns × steps
F16, F32 = dtypes.float16, dtypes.float32
SUBGROUP = [
    sums_of(f"mma_{m}x{n}x{k}_{t.short}", (t, t), (k,), (m, n), F32)
    for t, m, n, k in ((F32, 8, 8, 8), (F16, 8, 8, 8), (F16, 16, 16, 16))
]


def held(fragments: Fragments, operands: tuple[DType, DType], dtype: DType = F32) -> Instruction:
    """Matrices that a subgroup multiplies in its registers."""
    (rows, steps), (columns, _) = fragments.a.shape, fragments.b.shape
    sums = sums_of(fragments.name, operands, (steps,), (rows, columns), dtype)
    return replace(sums, together=False, fragments=fragments)


FRAGMENTS = [held(f, (t, t), s) for f, t, s in ROWS]

INSTRUCTIONS: dict[str, Instruction] = {
    i.name: i
    for i in (DOT4_I8, DOT4_U8_I8, DOT2_I16, *PACKED.values(), MMA_2X2X8_I8, DOT4_WORDS, *SUBGROUP, *FRAGMENTS)
}


def multiplies_matrices(target: Target, dtype: DType) -> bool:
    """Whether a target has an instruction for matrices of this type."""
    found = [INSTRUCTIONS[name] for name in target.instructions]
    return any(i.tile and i.operands == (dtype, dtype) for i in found)


def unify(instruction: Instruction, reduce: UOp, axis: UOp) -> Match | None:
    """The match of a REDUCE with an instruction whose axis is `axis`; None where it is none."""
    pattern = instruction.semantics
    if reduce.op is not Ops.REDUCE or (reduce.arg, reduce.dtype) != (pattern.arg, pattern.dtype):
        return None
    if axis not in reduce.src[1:] or axis.src[0].arg != instruction.steps:
        return None
    left = [r for r in reduce.src[1:] if r is not axis]
    for r in instruction.axes[1:]:
        beside = next((x for x in left if x.src[0].arg == r.src[0].arg and x.arg.kind is AxisKind.UNROLL), None)
        if beside is None:
            return None
        left.remove(beside)
    found: list[Match] = []
    for bound in instruction.term.match(reduce.src[0], {}):
        factors = tuple(bound[str(i)] for i in range(len(instruction.operands)))
        shifts = tuple(shift_into(f, t) for f, t in zip(factors, instruction.operands))
        held = instruction.fragments and _digits(instruction.fragments, factors)
        tile = _tile(instruction, factors) if instruction.fragments is None else () if held else None
        if tile is not None and all(s is not None for s in shifts):
            found.append(Match(factors, tuple(s or 0 for s in shifts), tile, held or ()))
    return min(found, key=_shifted_lanes, default=None)


def _shifted_lanes(match: Match) -> int:
    """Vectors that what is shifted varies along: sums of the other factor are best made in lanes of their own."""
    shifted = (f for f, s in zip(match.factors, match.shifts) if s)
    return sum(r.arg.kind is AxisKind.VECTOR for f in shifted for r in f.ranges)


def _tile(instruction: Instruction, factors: tuple[UOp, ...]) -> tuple[UOp, ...] | None:
    """The axes that have an instruction's tiles, rows in single lanes and columns in a vector's; of threads together
    rows that each takes and columns that they share. None without.
    """
    found: list[UOp] = []
    for i, axis in enumerate(instruction.tile):
        alone, shared = (AxisKind.VECTOR, AxisKind.THREAD) if i else (AxisKind.UNROLL, AxisKind.LOOP)
        kinds = (alone, shared) if instruction.together else (alone,)
        others = {r for f in (*factors[:i], *factors[i + 1 :]) for r in f.ranges}
        mine = [r for kind in reversed(kinds) for r in nested(factors[i].ranges - others) if r.arg.kind is kind]
        mine = [r for r in mine if isinstance(axis_size(r), int)]
        if not mine or lane_count(mine[-1]) % lane_count(axis):
            return None
        found.append(mine[-1])
    return tuple(found)


def _digits(fragments: Fragments, factors: tuple[UOp, ...]) -> tuple[tuple[UOp, ...], ...] | None:
    """The axes that have the digits of rows and of columns, a thread's by its place in the subgroup, others in lanes
    that the other operand does not vary along; () without. The instruction does not mind how rows are numbered."""
    out: list[tuple[UOp, ...]] = []
    for factor, other, digits in zip(factors, factors[::-1], (fragments.sums.first, fragments.sums.second)):
        mine = (factor.ranges | specials_of(factor)) - (other.ranges | specials_of(other))
        lanes = {r: lane_count(r) for r in nested(r for r in mine if is_lane(r))[::-1]}
        vectors = [r for r in lanes if r.arg.kind is AxisKind.VECTOR]
        free = {r: lanes[r] for r in (*vectors, *(r for r in lanes if r not in vectors))}
        found: list[UOp] = []
        for d in digits:
            if d.of == "e":
                axis = next((r for r, left in free.items() if left % d.size == 0), None)
                if axis is not None:
                    free[axis] //= d.size
            else:
                axis = next((r for r in mine if _is_digit(r, d)), None)
            if axis is None:
                return None
            found.append(axis)
        out.append(tuple(found))
    return tuple(out)


def _is_digit(r: UOp, d: Digit) -> bool:
    """Whether an axis has a digit of threads. The hardware's third dimension may have others beside it, all of them of
    the same operand."""
    dim, size = "xyz".index(d.of), axis_size(r)
    if r.op is not Ops.SPECIAL:
        return r.arg.kind is AxisKind.THREAD and r.arg.dim == dim and size == d.size
    return r.arg == ("thread", dim) and isinstance(size, int) and (size % d.size == 0 if dim == 2 else size == d.size)


def matrix_of(names: Iterable[str], reduce: UOp) -> tuple[Instruction, Match] | None:
    """The instruction for matrices, of those named, that a sum with an axis of kind DOT is."""
    dot = next((r for r in reduce.src[1:] if r.op is Ops.RANGE and r.arg.kind is AxisKind.DOT), None)
    for instruction in (INSTRUCTIONS[n] for n in names if dot is not None):
        match = unify(instruction, reduce, dot) if dot is not None and instruction.tile else None
        if match is None or any(match.shifts):
            continue
        sources = [f.src[0] if f.op is Ops.CAST else f for f in match.factors]
        fragments = instruction.fragments
        if fragments is not None and not all(_is_swizzled(f) for i, f in enumerate(sources) if fragments.reads(i)):
            continue
        if not instruction.together or all(f.op is Ops.LOAD and f.src[0].op is Ops.STAGE for f in sources):
            return instruction, match
    return None


def _is_swizzled(factor: UOp) -> bool:
    """Whether a factor is read of shared memory as instructions read it there that hold no operands in registers."""
    staged = factor.op is Ops.LOAD and len(factor.src) == 2 and factor.src[0].op is Ops.STAGE
    return staged and factor.src[0].arg.swizzle > 0


def shift_into(value: UOp, dtype: DType) -> int | None:
    """What is added to an integer so that it is within a type: nothing for signed types, whose zero stays, and for what
    stands in a table for integers of the type. Of planes the lowest bits alone are to be within a smaller type."""
    if value.op is Ops.LOOKUP and value.src[0].dtype is dtype and dtype.bits == 4:
        return 0
    if dtype.bits < 8 and upper_planes(value) and planes(value)[0][0].src[0].dtype is dtype:
        return -planes(value)[1]
    if dtype.is_float:
        # as it is, or what is widened as it is loaded, or after it
        read = value.src[0].dtype if value.op in (Ops.CAST, Ops.LOAD) else value.dtype
        return 0 if dtype in (value.dtype, read) else None
    low, high = value.vmin, value.vmax
    if not dtype.is_signed and low < 0:
        # by the power of two that makes a signed type of memory an unsigned one
        shift = 1 << (dtype.bits - 1)
        return shift if low + shift >= 0 and high + shift <= dtype.max else None
    return 0 if dtype.min <= low and high <= dtype.max else None


# products that one sum takes of 8-bit integers, and of 16-bit ones, which 8-bit ones are widened to
DOT_STEPS, DOT_PAIRS = DOT4_I8.steps, DOT2_I16.steps
MATRIX_STEPS = {
    i.steps for i in INSTRUCTIONS.values() if i.tile and not i.fragments
}  # … of 8-bit ones that each sum of a matrix takes
FIELD = 4  # integers of 4 bits in 16: a shift takes the same one out of all half words of a vector
UNSIGNED = (dtypes.uint1, dtypes.uint2, dtypes.uint4)
SMALL = (*UNSIGNED, dtypes.int4, dtypes.int8, dtypes.uint8, dtypes.int16)


MOST_BITS = 7  # of integers in planes: as bytes they have no sign, whatever an instruction takes bytes for


def planes(factor: UOp) -> tuple[tuple[UOp, ...], int]:
    """The loads of small integers that a factor is, or of 4-bit ones that it looks up, and what is added to it, or the
    least number: of integers in several planes the lowest bits first; () and 0 for any other."""
    if factor.op is Ops.LOOKUP:
        load, least = factor.src[0], int(min(factor.arg.numbers))
        return ((load,), least) if load.op is Ops.LOAD and load.src[0].dtype is dtypes.uint4 else ((), 0)
    plus = factor.op is Ops.ADD and factor.src[1].op is Ops.CONST
    value, constant = (factor.src[0], int(factor.src[1].arg)) if plus else (factor, 0)
    if (joined := _joined(value)) is not None:
        return joined, constant
    load = value.src[0] if value.op is Ops.CAST else value
    small = load.op is Ops.LOAD and load.src[0].dtype in SMALL and (not plus or load.src[0].dtype.bits < 8)
    return ((load,), constant) if small else ((), 0)


def loaded(factor: UOp) -> UOp | None:
    """The load of small integers that a factor is; of several planes that of the lowest bits."""
    return next(iter(planes(factor)[0]), None)


def upper_planes(factor: UOp) -> tuple[UOp, ...]:
    """The loads of all but the lowest bits of integers in several planes, the lower ones first."""
    return planes(factor)[0][1:]


def _joined(value: UOp) -> tuple[UOp, ...] | None:
    """The loads of the planes that are added up, each where the one before it ends; None for what is no such sum."""
    parts: list[UOp] = []
    while value.op is Ops.ADD:
        value, above = value.src
        parts.insert(0, above)
    loads: list[UOp] = []
    place = 0
    for part in (value, *parts):
        if place and (part.op is not Ops.SHL or part.src[1].op is not Ops.CONST or part.src[1].arg != place):
            return None
        cast = part.src[0] if place else part
        load = cast.src[0] if cast.op is Ops.CAST else cast
        if load.op is not Ops.LOAD or load.src[0].dtype not in UNSIGNED:
            return None
        loads.append(load)
        place += load.src[0].dtype.bits
    return tuple(loads) if parts and place <= MOST_BITS else None


def shifted_by(factor: UOp, shift: int) -> UOp:
    """A factor and what is added to it: of a table to all its numbers."""
    if factor.op is not Ops.LOOKUP:
        return simplify(factor + shift)
    return factor.replace(arg=TableArg(tuple(n + shift for n in factor.arg.numbers)))


def sign_shift(load: UOp) -> int:
    """What makes integers below 8 bits of memory 0 …: half of their number, where they have a sign."""
    return 8 if load.src[0].dtype is dtypes.int4 else 0


def unsigned_shift(factor: UOp) -> int | None:
    """What is to be added to a factor so that it is integers below 8 bits of memory as 0 …, or numbers from 0 on that
    stand for them in a table; None where it is none."""
    loads, plus = planes(factor)
    return sign_shift(loads[0]) - plus if loads and loads[0].src[0].dtype.bits < 8 else None
