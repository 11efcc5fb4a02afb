"""64-bit numbers as pairs of 32-bit words, for targets without them.

Runs on a devectorized program. Memory of 64-bit elements becomes memory of twice as many uint32, the low word first,
and is always accessed in whole pairs. Integers have all their operations; float64 is moved about and cast from and to
float32, and nothing else (see `legalize.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Axis, BufferArg, Ops, Space, UOp, rebuild
from tinyweb.graph.lower.constructors import add, index_const, is_const, lane, lanes_of, make, repeated, splat, stack
from tinyweb.graph.target import Target

F32, F64, I32, U32 = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint32
I64, U64, BOOL = dtypes.int64, dtypes.uint64, dtypes.bool
WORD = 0xFFFFFFFF

Pair: TypeAlias = "tuple[UOp, UOp]"  # the low and the high word, uint32


def split_int64(sink: UOp, target: Target) -> UOp:
    """The program below `sink` without 64-bit values, where the target lacks any of them."""
    if {I64, U64, F64} <= target.arithmetic:
        return sink
    order = sink.toposort()
    missing = {d for d in (I64, U64, F64) if d not in target.arithmetic}
    if not any(u.dtype in missing for u in order):
        return sink
    splitter = _Splitter(order)
    for u in order:
        splitter.visit(u)
    return splitter.single[sink]


def compare_words(sink: UOp) -> UOp:
    """Comparisons of one integer of 64 bits with the numbers of places as comparisons of words: 64 bits are pairs of
    them to every GPU, and the upper word of a place is 0."""

    def compared(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is not Ops.EQUAL or src[0].dtype not in (I64, U64):
            return None
        for places, other in (src, src[::-1]):
            place, one = places.src[0] if places.op is Ops.CAST else places, repeated(other)
            each = place.src if place.op is Ops.STACK else (place,)
            if one is not None and place.dtype is dtypes.index and all(p.vmin >= 0 and p.vmax < 1 << 31 for p in each):
                low = splat(make(Ops.CAST, U32, (one,)), lanes_of(u))
                shift = UOp.const(32, one.dtype)
                high = make(Ops.CAST, U32, (make(Ops.SHR, one.dtype, (one, shift)),))
                some = make(Ops.EQUAL, BOOL, (high, UOp.const(0, U32)))
                same = make(Ops.EQUAL, BOOL, (make(Ops.CAST, U32, (place,)), low))
                return make(Ops.AND, BOOL, (same, splat(some, lanes_of(u))))
        return None

    return rebuild(sink.toposort(), compared)[sink]


class _Splitter:
    """What every node becomes: a node, a pair of words, or several effects."""

    def __init__(self, order: list[UOp]):
        self.single: dict[UOp, UOp] = {}
        self.pairs: dict[UOp, Pair] = {}
        self.effects: dict[UOp, tuple[UOp, ...]] = {}
        self.buffers = 1 + max((u.arg.id for u in order if u.op is Ops.BUFFER), default=-1)
        self.divisions: dict[tuple[Pair, Pair], tuple[Pair, Pair]] = {}

    def visit(self, u: UOp) -> None:
        if u.op is Ops.STORE and u.src[2] in self.pairs:
            self.effects[u] = self._store(u)
        elif u.op is Ops.LOAD and is_long(u.dtype):
            self.pairs[u] = self._load(u)
        elif u.op in (Ops.PARAM, Ops.BUFFER) and is_long(u.dtype):
            self.single[u] = UOp(u.op, U32, (), replace(u.arg, size=2 * u.arg.size))
        elif u.op in (Ops.AFTER, Ops.END, Ops.BARRIER, Ops.SINK):
            src = tuple(e for s in u.src for e in self._happened(s))
            self.single[u] = u.replace(src=src, dtype=src[0].dtype if u.op is Ops.AFTER else u.dtype)
        elif is_long(u.dtype):
            self.pairs[u] = self._pair(u)
        elif any(s in self.pairs for s in u.src):
            self.single[u] = self._from_pairs(u)
        else:
            self.single[u] = u.with_sources(tuple(self.single[s] for s in u.src))

    def _happened(self, u: UOp) -> tuple[UOp, ...]:
        return self.effects.get(u) or self.pairs.get(u) or (self.single[u],)

    # -- memory --------------------------------------------------------------------------------------------------------
    def _load(self, u: UOp) -> Pair:
        memory, index, *gate = (self.single[s] for s in u.src)
        words = [UOp(Ops.LOAD, U32, (memory, _place(index, i), *gate), 2) for i in range(u.arg)]
        return stack([lane(w, 0) for w in words]), stack([lane(w, 1) for w in words])

    def _store(self, u: UOp) -> tuple[UOp, ...]:
        memory, index, *gate = (self.single[s] for s in (*u.src[:2], *u.src[3:]))
        low, high = self.pairs[u.src[2]]
        out = []
        for i in range(lanes_of(low)):
            value = stack([lane(low, i), lane(high, i)])
            out.append(UOp(Ops.STORE, dtypes.void, (memory, _place(index, i), value, *gate)))
        return tuple(out)

    # -- values --------------------------------------------------------------------------------------------------------
    def _pair(self, u: UOp) -> Pair:
        """The words of a 64-bit value."""
        if u.op is Ops.CONST:
            return _words(struct.unpack("<Q", struct.pack("<d", u.arg))[0] if u.dtype is F64 else u.arg)
        if u.op is Ops.CAST:
            return self._widened(u)
        src = [self.pairs.get(s) or (self.single[s],) * 2 for s in u.src]
        if u.op is Ops.STACK:
            return stack([s[0] for s in src]), stack([s[1] for s in src])
        if u.op is Ops.LANE:
            return lane(src[0][0], u.arg), lane(src[0][1], u.arg)
        if u.op is Ops.WHERE:
            return _where(src[0][0], src[1], src[2])
        if u.op is Ops.BITCAST:
            return src[0]
        if u.op in (Ops.AND, Ops.OR, Ops.XOR):
            return _op(u.op, src[0][0], src[1][0]), _op(u.op, src[0][1], src[1][1])
        if u.op is Ops.MAX:
            return _where(less(src[0], src[1], u.dtype.is_signed), src[1], src[0])
        if u.op in (Ops.SHL, Ops.SHR):
            return shift(u.op, src[0], src[1][0], u.dtype.is_signed)
        if u.op in (Ops.FLOORDIV, Ops.MOD):
            return self._divide(*src)[u.op is Ops.MOD]
        if u.op in _ARITHMETIC:
            return _ARITHMETIC[u.op](*src)
        raise NotImplementedError(f"{u.op.name} of {u.dtype.name} is not supported in 32-bit words")

    def _from_pairs(self, u: UOp) -> UOp:
        """A value of 32 bits (or a bool) made of 64-bit ones."""
        src, of = [self.pairs[s] for s in u.src], u.src[0].dtype
        if u.op is Ops.LESS:
            return less(src[0], src[1], of.is_signed)
        if u.op is Ops.EQUAL:
            return _op(Ops.AND, _op(Ops.EQUAL, src[0][0], src[1][0]), _op(Ops.EQUAL, src[0][1], src[1][1]))
        if u.op is Ops.CAST:
            low, high = src[0]
            if of is F64:
                return double_to_single(low, high)
            if u.dtype is BOOL:
                return _not(_op(Ops.EQUAL, low | high, 0))
            return to_float(src[0], of.is_signed) if u.dtype is F32 else _as(low, u.dtype)
        raise NotImplementedError(f"{u.op.name} of {of.name} is not supported in 32-bit words")

    def _widened(self, u: UOp) -> Pair:
        source = u.src[0].dtype
        if is_long(source):
            return self.pairs[u.src[0]]  # to the other sign
        x = self.single[u.src[0]]
        if source.is_float and source is not F32:
            x = x.cast(F32)
        if u.dtype is F64:
            return single_to_double(x)
        if source.is_float:
            return from_float(x)
        low = _as(x, U32)
        if source.is_signed and x.vmin < 0:
            return low, _as(_op(Ops.SHR, _as(x, I32), 31), U32)
        return low, _like(low, 0)

    # -- division ------------------------------------------------------------------------------------------------------
    def _divide(self, a: Pair, b: Pair) -> tuple[Pair, Pair]:
        """Quotient and remainder of numbers without sign; b is not 0."""
        if (a, b) not in self.divisions:
            self.divisions[a, b] = self._division(a, b)
        return self.divisions[a, b]

    def _division(self, a: Pair, b: Pair) -> tuple[Pair, Pair]:
        zero = _like(a[0], 0)
        if is_const(b[0]) and is_const(b[1]):
            divisor = b[0].arg | b[1].arg << 32
            if divisor & (divisor - 1) == 0:
                mask = _words(divisor - 1)
                quotient = shift(Ops.SHR, a, UOp.const(divisor.bit_length() - 1, U32), False)
                return quotient, (_op(Ops.AND, a[0], mask[0]), _op(Ops.AND, a[1], mask[1]))
            if divisor < 1 << 16:  # by hand, a digit of 16 bits at a time
                rest, digits = zero, []
                for word in reversed(a):
                    for part in (_op(Ops.SHR, word, 16), word & 0xFFFF):
                        whole = _op(Ops.OR, _op(Ops.SHL, rest, 16), part)
                        digits.append(_op(Ops.FLOORDIV, whole, b[0]))
                        rest = _op(Ops.MOD, whole, b[0])
                words = [_op(Ops.OR, _op(Ops.SHL, x, 16), y) for x, y in zip(digits[::2], digits[1::2])]
                return (words[1], words[0]), (rest, zero)
        if is_const(a[1], 0) and is_const(b[1], 0):
            divisor_word = _op(Ops.MAX, b[0], 1)
            low, rest = (make(op, U32, (a[0], divisor_word)) for op in (Ops.FLOORDIV, Ops.MOD))
            return (low, zero), (rest, zero)
        return self._long_division(a, b)

    def _long_division(self, a: Pair, b: Pair) -> tuple[Pair, Pair]:
        """Bit by bit in a loop: the quotient moves into the dividend's place, the remainder is what moved out of it."""
        number = self.buffers
        self.buffers += 1
        state = UOp(Ops.BUFFER, U32, (), BufferArg(Space.REGISTER, number, 4))
        bits = UOp(Ops.RANGE, dtypes.index, (index_const(64),), Axis(f"divide{number}", 1 << 20, reduce=True))
        outer = state.after(*sorted(_free_ranges((*a, *b)), key=lambda r: r.order_key))
        start = (*a, _like(a[0], 0), _like(a[0], 0))
        inside = state.after(*(outer.store(index_const(i), v) for i, v in enumerate(start)), bits)
        low, high, rest_low, rest_high = (_load_word(inside, i) for i in range(4))
        moved = shift(Ops.SHL, (rest_low, rest_high), UOp.const(1, U32), False)
        rest = _op(Ops.OR, moved[0], _op(Ops.SHR, high, 31)), moved[1]
        # a remainder of 65 bits is larger than any divisor
        fits = _op(Ops.OR, _not(less(rest, b, False)), _not(_op(Ops.EQUAL, _op(Ops.SHR, rest_high, 31), 0)))
        rest = _where(fits, add_long(rest, negate(b)), rest)
        low, high = shift(Ops.SHL, (low, high), UOp.const(1, U32), False)
        values = (_op(Ops.OR, low, _as(fits, U32)), high, *rest)
        end = UOp(Ops.END, dtypes.void, (*(inside.store(index_const(i), v) for i, v in enumerate(values)), bits))
        done = [_load_word(state.after(end), i) for i in range(4)]
        return (done[0], done[1]), (done[2], done[3])


def _load_word(memory: UOp, i: int) -> UOp:
    return UOp(Ops.LOAD, U32, (memory, index_const(i)), 1)


def _free_ranges(values: Iterable[UOp]) -> set[UOp]:
    return {r for v in values for r in v.ranges}


def is_long(dtype: DType) -> bool:
    return dtype.bits == 64


def _place(index: UOp, further: int) -> UOp:
    return add(make(Ops.MUL, dtypes.index, (index, index_const(2))), index_const(2 * further))


# -- words -------------------------------------------------------------------------------------------------------------
def _words(value: int) -> Pair:
    return UOp.const(value & WORD, U32), UOp.const(value >> 32 & WORD, U32)


def _like(u: UOp, value: int) -> UOp:
    """A constant word with the lanes of `u`."""
    return splat(UOp.const(value, U32), lanes_of(u))


def _op(op: Ops, a: UOp, b: UOp | int) -> UOp:
    """An operation on two words, folded where they are constant; a scalar goes with any number of lanes."""
    other = UOp.const(b, a.dtype) if isinstance(b, int) else b
    width = max(lanes_of(a), lanes_of(other))
    dtype = BOOL if op in (Ops.LESS, Ops.EQUAL) else a.dtype
    if width > 1:
        if (x := repeated(a)) is not None and (y := repeated(other)) is not None:
            return splat(_op(op, x, y), width)
        return UOp(op, dtype, (splat(a, width), splat(other, width)))
    if op is Ops.LESS and is_const(other, 0) and a.dtype is U32:
        return UOp.const(False, BOOL)
    if dtype is U32 and op in (Ops.AND, Ops.OR, Ops.XOR):
        for x, y in ((a, other), (other, a)):
            if is_const(x, 0):
                return x if op is Ops.AND else y
            if is_const(x, WORD) and op is Ops.AND:
                return y
    if op in (Ops.SHL, Ops.SHR) and is_const(a) and is_const(other):
        return UOp.const(a.arg << other.arg if op is Ops.SHL else a.arg >> other.arg, dtype)
    return make(op, dtype, (a, other))


def _not(u: UOp) -> UOp:
    return make(Ops.XOR, BOOL, (u, splat(UOp.const(True, BOOL), lanes_of(u))))


def _as(u: UOp, dtype: DType) -> UOp:
    """A word, an index or a bool as another type of 32 bits."""
    if u.dtype is dtype:
        return u
    if u.op is Ops.CONST:
        return UOp.const(u.arg, dtype)
    return u.bitcast(dtype) if {u.dtype, dtype} in ({U32, I32}, {U32, F32}) else u.cast(dtype)


def _choose(condition: UOp, a: UOp, b: UOp) -> UOp:
    if a is b:
        return a
    width = max(lanes_of(x) for x in (condition, a, b))
    return make(Ops.WHERE, a.dtype, [splat(x, width) for x in (condition, a, b)])


def _where(condition: UOp, a: Pair, b: Pair) -> Pair:
    return _choose(condition, a[0], b[0]), _choose(condition, a[1], b[1])


# -- integers ----------------------------------------------------------------------------------------------------------
def add_long(a: Pair, b: Pair) -> Pair:
    low, high = _op(Ops.ADD, a[0], b[0]), _op(Ops.ADD, a[1], b[1])
    if is_const(a[0], 0) or is_const(b[0], 0):
        return low, high
    return low, _op(Ops.ADD, high, _as(_op(Ops.LESS, low, a[0]), U32))


def negate(a: Pair) -> Pair:
    flipped = _op(Ops.XOR, a[0], WORD), _op(Ops.XOR, a[1], WORD)
    return add_long(flipped, _words(1))


def multiply(a: Pair, b: Pair) -> Pair:
    """By halves of 16 bits, whose products fit a word."""
    a0, a1 = _op(Ops.AND, a[0], 0xFFFF), _op(Ops.SHR, a[0], 16)
    b0, b1 = _op(Ops.AND, b[0], 0xFFFF), _op(Ops.SHR, b[0], 16)
    # the middle column with what is carried into it; neither sum overflows
    middle = _op(Ops.ADD, _op(Ops.MUL, a1, b0), _op(Ops.SHR, _op(Ops.MUL, a0, b0), 16))
    other = _op(Ops.ADD, _op(Ops.MUL, a0, b1), _op(Ops.AND, middle, 0xFFFF))
    high = _op(Ops.ADD, _op(Ops.MUL, a1, b1), _op(Ops.SHR, middle, 16))
    high = _op(Ops.ADD, high, _op(Ops.SHR, other, 16))
    crossed = _op(Ops.ADD, _op(Ops.MUL, a[0], b[1]), _op(Ops.MUL, a[1], b[0]))
    return _op(Ops.MUL, a[0], b[0]), _op(Ops.ADD, high, crossed)


_ARITHMETIC: dict[Ops, Callable[..., Pair]] = {Ops.ADD: add_long, Ops.MUL: multiply, Ops.NEG: negate}


def less(a: Pair, b: Pair, signed: bool) -> UOp:
    high_a, high_b = (_as(x, I32) if signed else x for x in (a[1], b[1]))
    low = _op(Ops.AND, _op(Ops.EQUAL, a[1], b[1]), _op(Ops.LESS, a[0], b[0]))
    return _op(Ops.OR, _op(Ops.LESS, high_a, high_b), low)


def shift(op: Ops, a: Pair, amount: UOp, signed: bool) -> Pair:
    """By 0 … 63."""
    near, far = a if op is Ops.SHL else a[::-1]  # the word that bits leave for the other one
    extends = signed and op is Ops.SHR

    def end(word: UOp, by: UOp) -> UOp:
        """What a shift makes of the word that nothing is shifted into."""
        return _as(_op(op, _as(word, I32), _as(by, I32)), U32) if extends else _op(op, word, by)

    emptied = end(near, UOp.const(31, U32)) if extends else _like(near, 0)
    back = Ops.SHR if op is Ops.SHL else Ops.SHL
    if is_const(amount):
        if amount.arg == 0:
            return a
        by = UOp.const(amount.arg & 31, U32)
        if amount.arg >= 32:
            near, far = emptied, end(near, by)
        else:
            carried = _op(back, near, 32 - amount.arg)
            near, far = end(near, by), _op(Ops.OR, _op(op, far, by), carried)
    else:
        by = _op(Ops.AND, amount, 31)
        carried = _op(back, _op(back, near, 1), _op(Ops.XOR, by, 31))
        moved = end(near, by)
        small = _op(Ops.EQUAL, _op(Ops.AND, amount, 32), 0)
        near, far = _choose(small, moved, emptied), _choose(small, _op(Ops.OR, _op(op, far, by), carried), moved)
    return (near, far) if op is Ops.SHL else (far, near)


# -- conversions -------------------------------------------------------------------------------------------------------
def _float(value: float, like: UOp) -> UOp:
    return splat(UOp.const(value, F32), lanes_of(like))


def _power_of_two(exponent: UOp) -> UOp:
    """2**exponent as float32, of a word that is (as a signed number) within -126 … 127."""
    return _as(_op(Ops.SHL, _op(Ops.ADD, exponent, 127), 23), F32)


def to_float(a: Pair, signed: bool) -> UOp:
    """The nearest float32, ties to even: of 32 bits at the top, the last one odd if anything below is not zero."""
    if signed:
        minus = _op(Ops.SHR, a[1], 31)
        a = _where(_op(Ops.EQUAL, minus, 0), a, negate(a))
    by = _like(a[0], 0)
    for at_least, bits in ((1, 4), (1 << 4, 11), (1 << 11, 18), (1 << 18, 25), (1 << 25, 32)):
        by = _choose(_op(Ops.LESS, a[1], at_least), by, _like(a[0], bits))
    window = shift(Ops.SHR, a, by, False)[0]
    below = _op(Ops.ADD, _op(Ops.SHL, _like(a[0], 1), _op(Ops.AND, by, 31)), WORD)
    below = _choose(_op(Ops.EQUAL, by, 32), _like(a[0], WORD), below)
    lost = _not(_op(Ops.EQUAL, _op(Ops.AND, a[0], below), 0))
    value = _op(Ops.MUL, _nearest_single(_op(Ops.OR, window, _as(lost, U32))), _power_of_two(by))
    return _op(Ops.OR, _as(value, U32), _op(Ops.SHL, minus, 31)).bitcast(F32) if signed else value


def _nearest_single(word: UOp) -> UOp:
    """A word as float32. By halves, of which each is exact, so that only the sum is rounded."""
    high = _op(Ops.SHR, word, 16).cast(F32)
    return UOp(Ops.ADD, F32, (_op(Ops.MUL, high, _float(65536.0, word)), _op(Ops.AND, word, 0xFFFF).cast(F32)))


def from_float(x: UOp) -> Pair:
    """A float32 with a magnitude below 2**64, truncated. Each step is exact."""
    bits = x.bitcast(U32)
    size = _op(Ops.AND, bits, 0x7FFFFFFF).bitcast(F32)
    high = _op(Ops.MUL, size, _float(2.0**-32, x))
    high = UOp(Ops.TRUNC, F32, (high,))
    low = _op(Ops.ADD, size, _op(Ops.MUL, high, _float(-(2.0**32), x)))
    pair = low.cast(U32), high.cast(U32)
    return _where(_op(Ops.LESS, bits, 0x80000000), pair, negate(pair))


def single_to_double(x: UOp) -> Pair:
    """Exact; a NaN keeps its sign and its digits."""
    bits = x.bitcast(U32)
    size, sign = _op(Ops.AND, bits, 0x7FFFFFFF), _op(Ops.AND, bits, 0x80000000)
    # a subnormal number is its mantissa times 2**-149
    tiny = _op(Ops.LESS, size, 1 << 23)
    normal = _choose(tiny, _as(size.cast(F32), U32), size)
    rebias = _choose(tiny, _like(x, 1023 - 127 - 149 << 20), _like(x, 1023 - 127 << 20))
    rebias = _choose(_op(Ops.LESS, size, 0x7F800000), rebias, _like(x, 2047 - 255 << 20))
    high = _op(Ops.ADD, _op(Ops.SHR, normal, 3), rebias)
    high = _choose(_op(Ops.EQUAL, size, 0), _like(x, 0), high)
    return _op(Ops.SHL, normal, 29), _op(Ops.OR, high, sign)


def double_to_single(low: UOp, high: UOp) -> UOp:
    """The nearest float32, ties to even; infinity beyond its range, NaN for NaN."""
    size, sign = _op(Ops.AND, high, 0x7FFFFFFF), _op(Ops.AND, high, 0x80000000)
    # the upper 32 binary digits, the last one odd if anything below is not zero
    digits = _op(Ops.OR, _op(Ops.SHL, _op(Ops.AND, high, 0xFFFFF), 11), _op(Ops.SHR, low, 21))
    digits = _op(Ops.OR, digits, 0x80000000)
    lost = _not(_op(Ops.EQUAL, _op(Ops.SHL, low, 11), 0))
    digits = _op(Ops.OR, digits, _as(lost, U32))
    # field = exponent of float32; where it is not positive the digits move down for it
    field = _op(Ops.ADD, _op(Ops.SHR, size, 20), -(1023 - 127))
    subnormal = _op(Ops.LESS, size, (1023 - 126) << 20)
    down = _op(Ops.ADD, _op(Ops.XOR, field, WORD), 2)  # 1 - field
    down = _choose(_op(Ops.LESS, down, 31), down, _like(low, 31))
    down = _choose(subnormal, down, _like(low, 0))
    kept = _op(Ops.SHR, digits, down)
    lost = _not(_op(Ops.EQUAL, _op(Ops.SHL, kept, down), digits))
    kept = _op(Ops.OR, kept, _as(lost, U32))
    # 24 of 32 digits stay; a carry moves into the exponent's field, where the leading digit stands for 1
    half = _op(Ops.ADD, _op(Ops.AND, _op(Ops.SHR, kept, 8), 1), 127)
    rounded = _op(Ops.ADD, _op(Ops.SHR, kept, 8), _op(Ops.SHR, _op(Ops.ADD, _op(Ops.AND, kept, 0xFF), half), 8))
    top = _op(Ops.ADD, _choose(subnormal, _like(low, 1), field), WORD)
    bits = _op(Ops.ADD, _op(Ops.SHL, top, 23), rounded)
    bits = _choose(_op(Ops.LESS, size, (1023 + 128) << 20), bits, _like(low, 0x7F800000))
    nan = _op(Ops.OR, _op(Ops.LESS, _like(low, 0x7FF00000), size), _op(
        Ops.AND, _op(Ops.EQUAL, size, 0x7FF00000), _not(_op(Ops.EQUAL, low, 0))))  # fmt: skip
    bits = _choose(nan, _like(low, 0x7FC00000), bits)
    return _op(Ops.OR, bits, sign).bitcast(F32)
