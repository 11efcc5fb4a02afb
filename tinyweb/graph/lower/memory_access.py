"""Loads and stores of runs of elements: vector widths, and types the target's memory does not have.

A type that memory cannot be declared as lies in a carrier: an unsigned integer of its width if there is one, else
bytes or, where threads change them atomically, 32-bit words, which hold several elements, the first in the low bits.
What is loaded comes back in the type it is computed with. An update of part of a word clears its bits, then sets them:
in one step of memory each (atomic where there are threads), so that no order of updates loses one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, Space, UOp, toposort
from tinyweb.graph.lower.constructors import add, index_const, lane, lanes_of, make, splat, stack, vector
from tinyweb.graph.lower.formats import decode, encode
from tinyweb.graph.symbolic import const_factor, simplify
from tinyweb.graph.target import Target

U32, I32, F32 = dtypes.uint32, dtypes.int32, dtypes.float32
_UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32}
_WIDEST_ALIGNMENT = 128
WIDEST_BYTES = 16  # that a thread loads or stores at once
MIDDLE = 8  # of the integers of 4 bits without a sign
SIGNS = 0x88888888  # their highest bits in a word: with these inverted they are, less 8, integers with a sign


def carrier_of(dtype: DType, target: Target) -> DType:
    """The type that memory of `dtype` is declared as."""
    if dtype in target.storage or dtype.bits == 64:
        return dtype  # where there are no 64 bits, `int64.py` makes words of them
    if _UNSIGNED.get(dtype.bits) in target.storage:
        return _UNSIGNED[dtype.bits]
    if dtype.bits < 8 and dtypes.uint8 in target.storage and not target.has_threads:
        return dtypes.uint8
    if dtype.bits <= 16 and U32 in target.storage:
        return U32
    raise NotImplementedError(f"{dtype.name} in memory is not supported on {target.name}: use a 32-bit type")


@dataclass(frozen=True)
class Place:
    """The element index `base + offset`."""

    base: UOp
    offset: int = 0

    def at(self, further: int) -> Place:
        return Place(self.base, self.offset + further)

    @property
    def index(self) -> UOp:
        return add(self.base, index_const(self.offset))


@dataclass(frozen=True)
class Run:
    """`count` neighbouring elements that start at `start`; a load may take in all of them to answer for some."""

    start: Place
    count: int = 1


class Memory:
    """Emits LOAD and STORE nodes for one program."""

    def __init__(self, target: Target):
        self.target = target
        self.wordwise: frozenset[UOp] = frozenset()  # parameters of bytes that are read as words
        self.partial_updates = False  # some store had to update a part of a carrier
        self.centred: dict[UOp, UOp] = {}  # 4-bit integers without one, less 8
        self._alignment: dict[UOp, int] = {}
        self._word: dict[tuple[Place, int], tuple[Place, UOp | int]] = {}

    # -- addresses ---------------------------------------------------------------------------------------------
    def declare(self, memory: UOp) -> UOp:
        """A PARAM as the program declares it, shared memory of floats that lie in bytes; other memory as it is."""
        if memory.op is not Ops.PARAM:
            moved = memory.op is Ops.BUFFER and memory.arg.space is Space.SHARED and memory.dtype.is_float
            return memory.replace(dtype=carrier_of(memory.dtype, self.target)) if moved else memory
        carrier = carrier_of(memory.dtype, self.target)
        packed = carrier is dtypes.uint8 and memory.dtype.bits < 8 and memory.arg.size % (32 // memory.dtype.bits) == 0
        if packed or memory in self.wordwise:
            carrier = U32  # whole words: one load for many elements
        per = carrier.bits // memory.dtype.bits
        return UOp(Ops.PARAM, carrier, (), replace(memory.arg, size=-(-memory.arg.size // per)))

    def alignment(self, place: Place) -> int:
        """A power of two (at most 128) that divides the index as far as the target must know it."""
        if not self.target.has_threads and place.base.op is not Ops.CONST:
            return _WIDEST_ALIGNMENT
        return self._proven_alignment(place)

    def _proven_alignment(self, place: Place) -> int:
        known = self._alignment.get(place.base)
        if known is None:
            factor = const_factor(place.base) or _WIDEST_ALIGNMENT
            known = self._alignment[place.base] = min(factor & -factor, _WIDEST_ALIGNMENT)
        return known if place.offset == 0 else min(known, place.offset & -place.offset)

    def _in_words(self, place: Place, per: int) -> tuple[Place, UOp | int]:
        """The word that holds an element, and the element's number in it (an int where it is known)."""
        found = self._word.get((place, per))
        if found is None:
            if self._proven_alignment(Place(place.base)) % per == 0:
                found = (Place(_word_and_number(place.base, per)[0], place.offset // per), place.offset % per)
            else:
                word, number = _word_and_number(place.index, per)
                found = (Place(word), number)
            self._word[(place, per)] = found
        return found

    # -- loads -------------------------------------------------------------------------------------------------
    def load(self, memory: UOp, stored: DType, dtype: DType, run: Run, first: int, width: int, gate: UOp | None) -> UOp:
        """Elements `first … first+width-1` of `run`, `stored` in `memory`, as a scalar or vector of `dtype`."""
        carrier = memory.buffer.dtype
        per = carrier.bits // stored.bits
        if per == 1:
            start = run.start.at(first)
            step = min(width, self.alignment(start), self._widest(carrier))
            pieces = [self._load(memory, start.at(i), step, gate) for i in range(0, width, step)]
            raw = pieces[0] if step == width else stack([lane(p, i) for p in pieces for i in range(step)])
            return self._decode(raw, stored, dtype)
        lanes = [self._in_words(run.start.at(first + i), per) for i in range(width)]
        words = [self._wide_word(memory, run, place, per, gate) for place, _ in lanes]
        return self._unpack(words, [number for _, number in lanes], stored, dtype)

    def _widest(self, dtype: DType) -> int:
        """Elements of the widest access: threads of GPUs have none of more than 16 bytes."""
        most = self.target.max_vector
        return min(most, max(WIDEST_BYTES * 8 // dtype.bits, 4)) if self.target.has_threads else most

    def has_words(self, memory: UOp) -> bool:
        """Whether elements smaller than bytes lie in 32-bit words."""
        return self.declare(memory).dtype is U32

    def raw(self, memory: UOp, stored: DType, start: Place, count: int) -> UOp:
        """`count` elements as they lie in memory: in one vector, or the words that hold them, `start` at a word."""
        if stored.bits >= 8:
            return self._load(memory, start, count, None)
        per = memory.buffer.dtype.bits // stored.bits
        return self._load(memory, self._in_words(start, per)[0], count // per, None)

    def _load(self, memory: UOp, place: Place, width: int, gate: UOp | None) -> UOp:
        src = (memory, place.index) if gate is None else (memory, place.index, gate)
        return UOp(Ops.LOAD, memory.dtype, src, width)

    def _wide_word(self, memory: UOp, run: Run, word: Place, per: int, gate: UOp | None) -> UOp:
        """One word, as a lane of the widest aligned load that lies in the run."""
        if run.start.offset % per == 0 and self._proven_alignment(Place(run.start.base)) % per == 0:
            begin, _ = self._in_words(run.start, per)
            words = run.count // per
            step = self._widest(memory.buffer.dtype) if words else 1
            while step > 1 and (words % step or self.alignment(begin) % step):
                step //= 2
            if step > 1 and word.base is begin.base:
                number = word.offset - begin.offset
                return lane(self._load(memory, begin.at(number // step * step), step, gate), number % step)
        return self._load(memory, word, 1, gate)

    def _unpack(self, words: list[UOp], numbers: list[UOp | int], stored: DType, dtype: DType) -> UOp:
        """Element `numbers[i]` of `words[i]`, for all lanes at once."""
        if stored is dtypes.uint4 and dtype.bits == 32 and all(isinstance(n, int) for n in numbers):
            # a word's eight less the middle by one operation
            value = self._unpack_fields(words, numbers, stored, dtype)
            flipped = [w.alu(Ops.XOR, UOp.const(SIGNS & ((1 << w.dtype.bits) - 1), w.dtype)) for w in words]
            self.centred[value] = self._unpack_fields(flipped, numbers, dtypes.int4, I32)
            return value
        return self._unpack_fields(words, numbers, stored, dtype)

    def _unpack_fields(self, words: list[UOp], numbers: list[UOp | int], stored: DType, dtype: DType) -> UOp:
        bits, carrier_bits = stored.bits, words[0].dtype.bits
        word = words[0] if all(w is words[0] for w in words) else stack(words)
        width = len(words)
        word = splat(word if word.dtype is U32 else word.cast(U32), width)
        known = [n for n in numbers if isinstance(n, int)]
        if len(known) == width:
            if stored.kind == "int" or (stored.kind == "uint" and not self.target.has_threads):
                # to the top of the word, then down again: this extends the sign, and one shift amount serves all lanes
                up = [32 - bits - n * bits for n in known]
                if not self.target.lane_shifts and len(set(up)) > 1:
                    # all lanes are shifted by one amount; a product shifts each by its own
                    high = word * vector([1 << n for n in up], U32)
                else:
                    high = _shift(Ops.SHL, word, vector(up, U32))
                value = high.bitcast(I32) if stored.kind == "int" else high
                return _shift(Ops.SHR, value, vector([32 - bits] * width, value.dtype)).cast(dtype)
            down = _shift(Ops.SHR, word, vector([n * bits for n in known], U32))
        else:
            places = [index_const(n) if isinstance(n, int) else n for n in numbers]
            if stored.kind == "int":  # the same, for what is shifted out above needs no mask
                places = [simplify(index_const(32 // bits - 1) - n) for n in places]
            shifts = [n.cast(U32) * UOp.const(bits, U32) for n in places]
            if stored.kind == "int":
                high = _shift(Ops.SHL, word, stack(shifts)).bitcast(I32)
                return _shift(Ops.SHR, high, vector([32 - bits] * width, I32)).cast(dtype)
            down = _shift(Ops.SHR, word, stack(shifts))
        if carrier_bits == bits or stored.is_float:
            return self._decode(down, stored, dtype)
        return self._decode(down & vector([(1 << bits) - 1] * width, U32), stored, dtype)

    def _decode(self, raw: UOp, stored: DType, dtype: DType) -> UOp:
        """The value whose representation `raw` holds: in the memory's own type, or as low bits of an unsigned
        integer. A narrow float as a uint32 is its bits.
        """
        width = lanes_of(raw)
        if stored.is_float and stored.bits < 32 and dtype is U32:
            bits = raw.bitcast(_UNSIGNED[stored.bits]) if raw.dtype is stored else raw
            return bits.cast(U32) & vector([(1 << stored.bits) - 1] * width, U32)
        if raw.dtype is stored:
            return raw.cast(dtype)
        if dtype is stored and stored.is_float:
            return raw  # it is moved, or an operand
        bits = raw.cast(U32)
        if stored.is_float:
            return decode(bits, stored, width).cast(dtype)
        if stored.kind == "bool":
            zero = bits.alu(Ops.EQUAL, vector([0] * width, U32))
            return zero.alu(Ops.XOR, splat(UOp.const(True, dtypes.bool), width)).cast(dtype)
        if stored.kind == "int":
            up = vector([32 - stored.bits] * width, U32)
            down = vector([32 - stored.bits] * width, I32)
            return _shift(Ops.SHR, _shift(Ops.SHL, bits, up).bitcast(I32), down).cast(dtype)
        return bits.cast(dtype)

    # -- stores ------------------------------------------------------------------------------------------------
    def store(self, memory: UOp, stored: DType, start: Place, lanes: list[UOp], gate: UOp | None) -> tuple[UOp, ...]:
        """Stores that put `lanes` (vectors or scalars, in order) into neighbouring elements from `start` on."""
        carrier = memory.buffer.dtype
        per = carrier.bits // stored.bits
        if per == 1:
            return self._store_plain(memory, stored, start, [self._encode(v, stored, carrier) for v in lanes], gate)
        fields = [lane(v, i) for v in (self._encode(v, stored, U32) for v in lanes) for i in range(lanes_of(v))]
        out: list[UOp] = []
        i = 0
        words: list[UOp] = []
        while i < len(fields):
            place = start.at(i)
            if len(fields) - i >= per and self._proven_alignment(place) % per == 0:
                words.append(_pack(fields[i : i + per], stored.bits).cast(carrier))
                i += per
                if len(fields) - i >= per:
                    continue
                begin, _ = self._in_words(start.at(i - per * len(words)), per)
                out.extend(self._store_plain(memory, carrier, begin, words, gate))
            else:
                out.extend(self._update(memory, stored, place, fields[i], per, gate))
                i += 1
        return tuple(out)

    def _store_plain(
        self, memory: UOp, stored: DType, start: Place, values: list[UOp], gate: UOp | None
    ) -> tuple[UOp, ...]:
        whole, count = dict[int, UOp](), 0  # by their first elements
        for v in values:
            whole[count] = v
            count += lanes_of(v)
        scalars: list[UOp] = []
        # scalars are joined; vectors stay as they are, for registers are loaded in the vectors that were stored
        widest = max(map(lanes_of, values)) if count > len(values) else self._widest(memory.buffer.dtype)
        out, i = [], 0
        while i < count:
            place = start.at(i)
            step = min(self.alignment(place), widest)
            while step > count - i or step & (step - 1):
                step //= 2
            if i in whole and lanes_of(whole[i]) == step:
                value = whole[i]
            else:
                scalars = scalars or [lane(v, j) for v in values for j in range(lanes_of(v))]
                value = stack(scalars[i : i + step])
            src = (memory, place.index, value) if gate is None else (memory, place.index, value, gate)
            out.append(UOp(Ops.STORE, dtypes.void, src))
            i += step
        return tuple(out)

    def _update(
        self, memory: UOp, stored: DType, place: Place, field: UOp, per: int, gate: UOp | None
    ) -> tuple[UOp, ...]:
        """Changes one element of a carrier and leaves its neighbours alone."""
        self.partial_updates = True
        word, number = self._in_words(place, per)
        carrier = memory.buffer.dtype
        mask = UOp.const((1 << stored.bits) - 1, U32)
        if isinstance(number, int):
            shift = UOp.const(number * stored.bits, U32)
            hole = UOp.const(~((1 << stored.bits) - 1 << number * stored.bits), U32)
        else:
            shift = number.cast(U32) * UOp.const(stored.bits, U32)
            hole = _shift(Ops.SHL, mask, shift) ^ UOp.const(0xFFFFFFFF, U32)
        moved = _shift(Ops.SHL, field & mask, shift)
        tail = () if gate is None else (gate,)
        cleared = UOp(Ops.STORE, dtypes.void, (memory, word.index, hole.cast(carrier), *tail), "atomic_and")
        behind = memory.after(cleared)
        filled = UOp(Ops.STORE, dtypes.void, (behind, word.index, moved.cast(carrier), *tail), "atomic_or")
        return (cleared, filled)

    def _encode(self, value: UOp, stored: DType, carrier: DType) -> UOp:
        """The representation of a value of type `stored`: itself, or low bits of `carrier` (higher bits may be
        anything).
        """
        if carrier is stored:
            return value.cast(stored)
        width = lanes_of(value)
        if stored.is_float and value.dtype is carrier:
            return value
        if stored.is_float:
            bits = encode(value.cast(F32), stored, width)
        elif stored.kind == "int":
            bits = value.cast(I32).bitcast(U32)
        else:
            bits = value.cast(U32)
        return bits.cast(carrier)


def _shift(op: Ops, value: UOp, amount: UOp) -> UOp:
    """A shift, left out where the amount is zero in all lanes."""
    parts = amount.src if amount.op is Ops.STACK else (amount,)
    return value if all(p.op is Ops.CONST and p.arg == 0 for p in parts) else UOp(op, value.dtype, (value, amount))


def _pack(fields: list[UOp], bits: int) -> UOp:
    mask = UOp.const((1 << bits) - 1, U32)
    word: UOp | None = None
    for i, field in enumerate(fields):
        last = i == len(fields) - 1
        part = _shift(Ops.SHL, field if last else field & mask, UOp.const(i * bits, U32))
        word = part if word is None else word | part
    assert word is not None
    return word


def _word_and_number(index: UOp, per: int) -> tuple[UOp, UOp]:
    """index // per and index % per, where `per` is a power of two."""
    word = simplify(make(Ops.FLOORDIV, dtypes.index, (index, index_const(per))))
    number = simplify(make(Ops.MOD, dtypes.index, (index, index_const(per))))
    divisions = (u for u in toposort([word, number]) if u.op in (Ops.FLOORDIV, Ops.MOD))
    if index.vmin >= 0 or all(u.src[0].vmin >= 0 for u in divisions):
        return word, number
    # an index that only the gate keeps from being negative: shifts and masks round down whatever the sign
    shift = index_const(per.bit_length() - 1)
    return make(Ops.SHR, dtypes.index, (index, shift)), make(Ops.AND, dtypes.index, (index, index_const(per - 1)))
