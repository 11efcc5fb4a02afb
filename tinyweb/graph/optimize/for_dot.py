"""Products of integer matrices on processors with integer dots.

With many columns lanes lie along rows of the weights: blocks of rows are widened and turned once, and one instruction
scales a group's sums in all lanes. Else they lie along the groups, and their sums stay apart until the end. What the
weights are multiplied with is staged in the type and order that the instruction takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import gcd

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.optimize.action import MAX_STAGED
from tinyweb.graph.optimize.actions import Split
from tinyweb.graph.optimize.analysis import Analysis, largest_divisor
from tinyweb.graph.optimize.builder import BLOCKS_PER_WORKER, Builder
from tinyweb.graph.optimize.contraction import schedule_contraction
from tinyweb.graph.optimize.fuse import Fuse
from tinyweb.graph.optimize.instructions import (
    DOT2_I16,
    DOT4_I8,
    FIELD,
    PACKED,
    Instruction,
    upper_planes,
)
from tinyweb.graph.optimize.prefetch import LEAST, Prefetch
from tinyweb.graph.optimize.tensorize import RFactor, Tensorize, products
from tinyweb.graph.symbolic import const_factor, divides

ROWS, COLUMNS = 4, 2  # of a tile: their sums stay in registers
STREAMS = 2  # parts of a matrix whose rows are read side by side
LONG = 1024  # bytes of such rows: taking turns between shorter ones costs more than it brings
VECTORS = 2  # of rows, in a tile with lanes along them
SUMS = 8  # vectors of them in such a tile
MOST_VECTORS = 4  # of a group's sums side by side
WORTH_TURNING = 32  # columns from which such a block of rows, which is gathered element by element, is worth it
WORTH_COPYING = 8  # columns from which it is, where an instruction takes runs of elements
SCALES = 4  # of groups, which one load brings
TOGETHER = 8  # rows whose sums are finished together
APART = {i.name for i in (DOT2_I16, DOT4_I8, *PACKED.values())}  # whose sums lanes along groups have
EXPENSIVE = (Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.DIV, Ops.RECIPROCAL, Ops.WHERE)


def schedule_for_dots(b: Builder) -> bool:
    """Kernels whose work are sums of products of small integers."""
    found, work, recipes = b.instructions(), _dots(b), list[Callable[[], bool]]()
    # what lies in memory as the bytes, with a sign and without it, that an instruction takes
    bytes_of = {u.dtype for r in b.k.reduces for u in b.k.loads_of(r)}
    as_they_are = [i for i in found if i.unsigned_bytes and bytes_of == set(i.operands)]
    # matrices; such bytes; pairs, to which operands are widened once for many sums, or bytes with a sign
    widened = DOT2_I16 if DOT2_I16 in found else DOT4_I8
    tiles = [i for i in found if i.tile or i in as_they_are or i is widened]
    matrices = [partial(_tiles, b, i) for i in tiles]
    if work is None:
        return any(map(b.follow, matrices))
    if work.scaled and (columns := work.columns) is not None:
        # what is shifted has sums of its own here: bytes of any sign are best multiplied as they are
        for i in (*(i for i in found if i.unsigned_bytes), *tiles):
            if b.k.size(columns) >= (WORTH_COPYING if i.tile else WORTH_TURNING):
                recipes += [partial(_along_rows, b, work, columns, i, vectors) for vectors in (VECTORS, 1)]
    groups = [partial(_along_groups, b, work, i) for i in found if i.name in APART or i in as_they_are]
    recipes += [*matrices, *groups] if work.large else [*groups, *matrices]
    return any(map(b.follow, recipes))


@dataclass(frozen=True)
class Dots:
    """Reductions of one kind, what their factors load, and the output axes that these vary along."""

    dots: list[UOp]
    weights: list[UOp]
    others: list[UOp]  # what the weights are multiplied with
    scales: list[UOp]
    rows: UOp  # of the weights
    columns: UOp | None
    scaled: bool  # inside of a sum of floats
    large: bool  # whole matrices, of which tiles of sums are best if they fit
    groups: tuple[UOp, ...]  # the axes of the sum of floats
    in_words: bool  # whether words of small integers of neighbouring groups lie side by side


def _dots(b: Builder) -> Dots | None:
    """Dots of what lies side by side in memory, such as groups inside a sum of floats."""
    k = b.k
    dots = [u for u in k.reduces if products(u) is not None]
    if not b.target.dot_lanes or not dots or k.dominant not in dots or any(u.src[1:] != dots[0].src[1:] for u in dots):
        return None
    free, inner = [r for r in k.outputs if r in dots[0].ranges], dots[0].src[-1]
    contiguous = {r for r in free if all(k.contiguous(s, r) for s in k.stores)}

    def rank(load: UOp) -> tuple[int, bool, int]:
        """Weights are the narrower operand, the one that stores follow, or the larger one."""
        return load.dtype.bits, contiguous.isdisjoint(load.src[1].ranges), -k.volume(load.src[1].ranges)

    pairs = [sorted(pair, key=rank) for u in dots if (pair := products(u)) is not None]
    a, other = pairs[0]
    rows = max((r for r in free if r in a.src[1].ranges), key=k.size, default=None)
    columns = max((r for r in free if r in other.src[1].ranges and r not in a.src[1].ranges), key=k.size, default=None)
    scaled = len(dots) < len(k.reduces)
    if rows is None or not all(_follows(k, load, inner) for pair in pairs for load in pair):
        return None
    scales = _scales(k, dots, rows, columns)
    weights, others = ([*dict.fromkeys(p)] for p in zip(*pairs))
    outer = {u.src[1:] for u in k.reduces if u not in dots and not set(dots).isdisjoint(u.src[0].toposort())}
    groups = outer.pop() if len(outer) == 1 else ()
    in_words = groups != () and all(k.step(x, groups[-1]) == 32 // x.dtype.bits for x in weights)
    large = not scaled and columns is not None and k.size(columns) >= COLUMNS * ROWS
    return Dots(dots, weights, others, scales, rows, columns, scaled, large, groups, in_words)


def _follows(k: Analysis, load: UOp, r: UOp) -> bool:
    """Whether what is loaded lies side by side along an axis, or whole words of small integers do."""
    bits = load.dtype.bits
    return k.contiguous(load, r) or (bits < 8 and k.follows(load, r, 32 // bits))


def _scales(k: Analysis, dots: list[UOp], rows: UOp, columns: UOp | None) -> list[UOp]:
    """Narrow numbers that a row's groups have, which are widened together; with them what blocks of groups have."""
    sums = [u for u in k.reduces if u not in dots]
    products = {x for u in dots for x in k.loads_of(u)}
    found = dict.fromkeys(x for u in sums for x in k.loads_of(u) if x not in products)
    groups = {rows, *sums[0].src[1:]} if sums else {rows}
    narrow = (x for x in found if 8 <= x.dtype.bits <= 16)
    return [x for x in narrow if columns not in x.src[1].ranges and groups <= x.src[1].ranges]


# -- lanes along rows -------------------------------------------------------------------------------------------
def _along_rows(b: Builder, w: Dots, columns: UOp, instruction: Instruction, vectors: int) -> bool:
    """A tile of vectors of rows and of single columns; weights are brought into the type and the order that the
    instruction takes once for a block of rows.
    """
    k, size, block = b.k, b.k.exact(w.rows), b.target.dot_lanes * vectors
    if not isinstance(size, int) or size <= block or (size % block and k.in_place):
        return False
    tile = _tile(b, columns, max(SUMS // (vectors * len(w.dots)), 1))
    row, lane = b.blocks(w.rows.arg.name, block)
    at = chunk = row
    cached = min(b.target.cache_bytes // (2 * dtypes.int16.itemsize), MAX_STAGED)
    elements, steps = (max(k.volume(u.src[1].ranges) for u in loads) for loads in (w.others, w.weights))
    if elements <= cached or not tile:
        _share(b, row, tile)
    else:
        # what all rows are multiplied with is staged a chunk at a time, for several blocks of rows
        blocks = min(cached * size // (steps * block), b.size(row) // (b.target.parallel_threads * BLOCKS_PER_WORKER))
        chunk, tile = b.split(tile, largest_divisor(b.size(tile), b.size(tile) * cached // elements))
        at, row = b.split(row, largest_divisor(b.size(row), blocks))
        b.reorder(at, chunk, row, tile)  # weights are brought once
        _share(b, at, "")
    if vectors > 1:
        vector, lane = b.split(lane, b.target.dot_lanes)
        b.bind(vector, AxisKind.UNROLL)
    b.bind(lane, AxisKind.VECTOR)
    if not divides(w.dots[0].src[1].src[0], instruction.steps):
        return False
    _, steps_of = b.split(w.dots[0].src[1].arg.name, instruction.steps)
    b.do(Tensorize(steps_of, instruction.name, at if instruction.unsigned_bytes else ""))
    return _stage(b, [*w.weights, *w.scales], at) and _stage(b, w.others, chunk)


# -- lanes along groups -----------------------------------------------------------------------------------------
def _along_groups(b: Builder, w: Dots, instruction: Instruction) -> bool:
    """Lanes are steps of a group. A single column's rows are done as they lie in memory, which is what bounds it, long
    ones of both halves side by side: processors follow two streams, if not within a page, and what the rows are
    multiplied with is loaded once for both.
    """
    k, row, tile, sums = b.k, w.rows.arg.name, "", len(w.dots)
    bits = {x.dtype.bits for x in w.weights}
    packed = all(n < 8 for n in bits)
    pairs, of_bytes = instruction is DOT2_I16, next((i for i in PACKED.values() if i is instruction), None)
    if of_bytes is not None and bits != {of_bytes.operands[0].bits}:
        return False
    numbers = any(s.op is Ops.LOOKUP for u in w.dots for s in u.src[0].src)  # which bytes alone are looked up in
    numbers = numbers or any(upper_planes(s) for u in w.dots for s in u.src[0].src)
    if packed and of_bytes is None and (not pairs or bits != {4} or numbers):
        return False  # bytes are made of smaller integers all at a time, or of 4-bit ones for pairs
    steps = _finished_together(k, w) if (pairs or _expensive_broadcast(b)) and w.columns is None else None
    if w.columns is not None:
        tile = _tile(b, w.columns, COLUMNS)
        row = _tile(b, w.rows, ROWS if len(w.dots) == 1 else ROWS // 2)
    elif steps is not None:
        row, lane = b.split(row, TOGETHER)
    elif len(w.weights) == 1 and k.constant(w.rows) and k.size(w.rows) % STREAMS == 0 and _row_bytes(k, w) >= LONG:
        part, row = b.split(row, k.size(w.rows) // STREAMS)
        b.bind(part, AxisKind.UNROLL)
        sums = STREAMS
    _share(b, row, tile)
    at = row
    if steps is not None:
        # the sums themselves stay one row after the other, each complete before the next
        whole, _ = b.split(steps.arg.name, k.size(steps))
        at = b.hoist(whole, row)(lane)
        b.bind(lane, AxisKind.VECTOR)
    # a row's scales are converted together, several by one instruction; and those of a tile once for many columns
    convert = partial(_stage, b, w.scales if w.columns is None or tile else [], at)
    if not _lanes(b, w, instruction, row if packed else "", sums, convert):
        return False
    if pairs or packed:
        _stage(b, w.others, row)  # once for all rows
    if b.target.prefetch_bytes and b.shares and not tile:  # weights are read once and in order, as are scales in lanes
        for p in dict.fromkeys(u.src[0] for u in (*w.weights, *(w.scales if w.in_words else ()))):
            if p.dtype.nbytes(p.arg.size) >= LEAST:
                b.do(Prefetch(p.arg.slot, b.target.prefetch_bytes))
    return True


def _row_bytes(k: Analysis, w: Dots) -> int:
    return w.weights[0].src[0].dtype.nbytes(k.volume(w.weights[0].src[1].ranges)) // k.size(w.rows)


def _lanes(b: Builder, w: Dots, instruction: Instruction, row: str, sums: int, convert: Callable[[], bool]) -> bool:
    """Steps of the innermost axis become an instruction; lanes are those that stay apart until the end, or groups.

    Of integers below 8 bits, whose loop over rows is `row`, those at one place of the bytes, or for products of pairs
    of the half words, are done after another, with those at its place in all the lanes. `sums`: of one column, those of
    a step of `row`.
    """
    k, r = b.k, w.dots[0].src[1]
    of_bytes = instruction.terms > instruction.steps
    field = instruction.terms // instruction.steps if of_bytes else FIELD if row else 1
    size, name = k.exact(r), r.arg.name
    if len(w.dots[0].src) != 2 or not isinstance(size, int) or size % (instruction.steps * field):
        return False
    if field > 1:
        name, places = b.split(name, field)
        b.bind(places, AxisKind.UNROLL)
    words = size // (instruction.steps * field)
    if field > 1 and w.in_words:
        lane, dot = b.split(name, instruction.steps)
        _groups_in_lanes(b, w, lane, instruction, sums if of_bytes else 1)
        if w.columns is not None:
            convert()
    elif of_bytes:
        lane, dot = b.split(name, instruction.steps)
        b.do(RFactor(lane))
        convert()
        lane = _words_of_several(b, w, lane, words, sums)
        if not lane:
            return False
        b.bind(lane, AxisKind.VECTOR)
    else:
        lanes = next((n for n in (b.target.dot_lanes, 4) if words % n == 0), 0)
        if not lanes:
            return False
        if words > MOST_VECTORS * lanes:  # the rest of a long group is a loop
            words = lanes * gcd(words // lanes, MOST_VECTORS)
            _, name = b.split(name, words * instruction.steps)
        lane, dot = b.split(name, instruction.steps)
        if words > lanes:
            several, lane = b.split(lane, lanes)
            b.bind(several, AxisKind.UNROLL)
        b.bind(lane, AxisKind.VECTOR)
        if w.scaled:
            b.do(RFactor(lane))
        convert()
    b.do(Tensorize(dot, instruction.name, row))
    return True


def _words_of_several(b: Builder, w: Dots, lane: str, words: int, sums: int) -> str:
    """The axis of a vector's lanes, words of a group, and of several groups where one has less than a vector's; ""
    where they are no vector."""
    groups = b.k.exact(w.groups[-1]) if w.groups else None
    if not isinstance(groups, int):
        return ""
    joined = gcd(groups, max(b.target.dot_lanes // words, 1))
    if joined * words % 4:
        return ""
    group = _steps(b, w.groups[-1])
    if joined > 1:
        _, together = b.split(group, joined)
        b.do(Fuse(together, lane))
        return together
    if w.columns is None and _expensive_broadcast(b) and groups % (several := max(SCALES // sums, 1)) == 0:
        _, together = b.split(group, several)  # more sums would not stay in registers
        b.bind(together, AxisKind.UNROLL)
    return lane


def _steps(b: Builder, r: UOp) -> str:
    """An axis, or the steps of one whose whole goes around a block of rows."""
    name = r.arg.name
    return name if b.has(name) else Split(name, b.k.size(r)).inner


def _groups_in_lanes(b: Builder, w: Dots, words: str, instruction: Instruction, sums: int) -> None:
    """Each lane has a group's sum, and vectors of scales fit them: `words` of a group follow each other."""
    planes = [p for u in w.dots for s in u.src[0].src for p in upper_planes(s)]
    # words of an upper plane, which have bits for several of the lowest, are loaded once for all of those
    least = max((instruction.operands[0].bits // p.dtype.bits for p in planes), default=1)
    several = max(gcd(b.size(words), MOST_VECTORS), least)
    b.tile(words, several, AxisKind.UNROLL)
    groups, *outer = (_steps(b, r) for r in reversed(w.groups))
    # of one column two vectors of sums, whose narrow numbers are converted together
    lanes = b.target.dot_lanes * (2 if w.columns is None else 1)
    left = b.tile(groups, gcd(b.size(groups), lanes), AxisKind.VECTOR) or next(iter(outer), "")
    if left:
        b.tile(left, gcd(b.size(left), max(SCALES // (several * sums), 1)), AxisKind.UNROLL)


def _expensive_broadcast(b: Builder) -> bool:
    """Whether one load of several numbers, each then spread over all lanes, is less than as many loads that spread."""
    return b.target.broadcast_cost > b.target.load_cost


def _finished_together(k: Analysis, w: Dots) -> UOp | None:
    """Where much is done with a row's sums, those of a block of rows wait for each other: it is done in vectors then.

    The first axis of the sums of floats, if it is so.
    """
    sums = {u.src[1:] for u in k.reduces if u not in w.dots}
    if len(sums) != 1 or not (ranges := sums.pop()) or const_factor(k.exact(w.rows)) % TOGETHER or k.in_place:
        return None
    made: set[UOp] = set(w.dots)
    for u in k.nodes:
        if u not in made and any(s in made for s in u.src):
            made.add(u)
    expensive = any(u.op in EXPENSIVE for u in made) and all(k.contiguous(s, w.rows) for s in k.stores)
    return ranges[0] if expensive and k.constant(ranges[0]) else None


# -- tiles of sums ----------------------------------------------------------------------------------------------
def _tiles(b: Builder, instruction: Instruction) -> bool:
    """A contraction of small integers: as one of floats, with its operands staged as the instruction takes them."""
    if not b.k.reduces or not all(u.dtype is dtypes.int32 and u.src[0].op is Ops.MUL for u in b.k.reduces):
        return False
    return schedule_contraction(b, instruction)


# -- steps of recipes -------------------------------------------------------------------------------------------
def _tile(b: Builder, r: UOp, factor: int) -> str:
    return b.tile(r.arg.name, min(factor, b.k.size(r)), AxisKind.UNROLL)


def _share(b: Builder, row: str, columns: str) -> None:
    """Blocks of rows go to the workers; with one worker they are the outer loop, if columns have blocks too."""
    if not b.share(row) and columns and row:
        b.reorder(row, columns)


def _stage(b: Builder, loads: list[UOp], at: str) -> bool:
    return not loads or (at != "" and b.stage(loads, at))
