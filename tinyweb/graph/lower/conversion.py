"""Floats of small integers by their bits, where a target converts numbers slowly.

2²³ + v has the integer v in the low bits of its fraction: a field of a word becomes a float by logic, which leaves its
bits alone and sets those above to the ones of 2²³. That is the field times 2^place; one multiplication and addition,
which are exact, put that right, subtract 2²³ and whatever zero point there is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, rebuild
from tinyweb.graph.lower.constructors import lane, lanes_of, make, repeated, splat, stack, vector
from tinyweb.graph.target import Target

F32, I32, U32 = dtypes.float32, dtypes.int32, dtypes.uint32
FRACTION = 23  # bits of a float's fraction
BITS = 0x4B000000  # of the float 2²³
REST = (1 << FRACTION) - 1  # the other bits
WIDEST = 14  # bits of a field that a word's upper fields are moved down together with
EXACT = 1 << 22  # numbers up to this one may be added to each other
STEPS = 2  # of a conversion by bits: logic, and the multiplication and addition


def convert_by_bits(sink: UOp, target: Target) -> UOp:
    """A program's effects, with casts of fields of words to float32 as logic where that takes fewer steps."""
    if target.convert_cost < STEPS or not any(map(_is_cast, nodes := sink.toposort())):
        return sink
    numbers = _Numbers(target.logic_operands)
    return rebuild(nodes, lambda u, src: numbers.of(src[0]) if _is_cast(u) else None)[sink]


def _is_cast(u: UOp) -> bool:
    return u.op is Ops.CAST and u.dtype is F32 and u.src[0].dtype in (I32, U32)


@dataclass(frozen=True)
class _Field:
    """Bits of a word in each lane: `widths` of them from `places` on, some of the word's inverted; `signed`: the
    highest counts as negative."""

    words: tuple[UOp, ...]
    places: tuple[int, ...]
    widths: tuple[int, ...]
    inverted: tuple[int, ...]
    signed: bool = False


@dataclass(frozen=True)
class _Numbers:
    """Integers as float32. `operands`: of an operation of logic."""

    operands: int

    def of(self, u: UOp, scale: int = 1, offset: int = 0) -> UOp | None:
        """scale · u + offset, where u is made of fields and `scale` is ± a power of two; None where it is not, or may
        not be exact."""
        if max(abs(u.vmin), abs(u.vmax)) * abs(scale) + abs(offset) > EXACT:
            return None
        if (field := _field(u)) is not None:
            return self._of_field(field, scale, offset)
        if u.op is Ops.CAST and u.src[0].dtype in (I32, U32):
            return self.of(u.src[0], scale, offset) if _keeps(u) else None
        if u.op is Ops.NEG:
            return self.of(u.src[0], -scale, offset)
        by = _constants(u.src[1]) if u.op in (Ops.ADD, Ops.MUL, Ops.SHL) else None
        if by is not None and len(set(by)) == 1:
            if u.op is Ops.ADD:
                return self.of(u.src[0], scale, offset + scale * by[0])
            factor = 1 << by[0] if u.op is Ops.SHL else by[0]
            return self.of(u.src[0], scale * factor, offset) if abs(factor).bit_count() == 1 else None
        return self._of_sum(u, scale, offset) if u.op is Ops.ADD else None

    def _of_sum(self, u: UOp, scale: int, offset: int) -> UOp | None:
        """… of a sum, of which one term is a field and the other one too, or the same in all lanes."""
        for a, b in (u.src, u.src[::-1]):
            first = self.of(a, scale, offset)
            if first is None:
                continue
            second = self.of(b, scale)
            if second is None and (one := repeated(b)) is not None and lanes_of(u) > 1:
                second = splat(make(Ops.MUL, one.dtype, (one, UOp.const(scale, one.dtype))).cast(F32), lanes_of(u))
            return None if second is None else first + second
        return None

    def _of_field(self, f: _Field, scale: int, offset: int) -> UOp | None:
        width = f.widths[0]
        if width >= FRACTION or set(f.widths) != {width}:
            return None
        moved = [_moved(p, width) for p in f.places]
        places = [p - by for p, by in zip(f.places, moved, strict=True)]
        # the highest bit of integers with a sign is inverted, in all fields of a word at once
        signs = [_every(width, p % width + width - 1) if f.signed else 0 for p in f.places]
        flips = [i ^ s for i, s in zip(f.inverted, signs, strict=True)]
        bits = self._logic(f.words, moved, flips, [(1 << width) - 1 << p for p in places]).bitcast(F32)
        ones = [scale * 2.0**-p for p in places]
        less = [-scale * (2.0 ** (FRACTION - p) + (f.signed << width - 1)) for p in places]
        together = all(float(np.float32(x + offset)) == x + offset for x in less)
        least = vector([x + offset if together else x for x in less], F32)
        whole = bits + least if set(ones) == {1} else UOp(Ops.MULADD, F32, (bits, vector(ones, F32), least))
        return whole if together else whole + vector([offset] * len(less), F32)

    def _logic(self, words: tuple[UOp, ...], moved: list[int], flips: list[int], masks: list[int]) -> UOp:
        """The bits of masks, of words that are moved down, with those of 2²³."""
        same = (whole := stack(words)).op is not Ops.STACK and len(set(zip(moved, flips))) == 1
        each = zip((whole,) if same else words, moved, flips, strict=not same)
        if self.operands > 2:
            found = [_shifted(_with(Ops.XOR, word, flip), by) for word, by, flip in each]
            return stack(found) & vector(masks, U32) | vector([BITS] * len(masks), U32)
        # the bits of 2²³ are set once for all fields of a word
        found = [_raised(word, by, flip >> by) for word, by, flip in each]
        return stack(found) & vector([BITS | m for m in masks], U32)


def _raised(word: UOp, by: int, flip: int) -> UOp:
    word = _shifted(word, by)
    if by + FRACTION < 32:
        word = _with(Ops.AND, word, REST)
    return _with(Ops.XOR if flip & REST else Ops.OR, word, flip & REST | BITS)


def _with(op: Ops, word: UOp, number: int) -> UOp:
    return word.alu(op, splat(UOp.const(number, U32), lanes_of(word))) if number else word


def _shifted(word: UOp, by: int) -> UOp:
    return _with(Ops.SHR, word, by)


def _moved(place: int, width: int) -> int:
    """How far a word is shifted so that a field lies within a fraction: as far for all that lie at distances of their
    width, so that they share it."""
    if place + width <= FRACTION:
        return 0
    least = FRACTION + 1 - width
    return least + (place - least) % width if width <= WIDEST else place


def _every(distance: int, first: int) -> int:
    """A word's bits at such distances from one of them."""
    return sum(1 << i for i in range(first % distance, 32, distance))


def _keeps(u: UOp) -> bool:
    """Whether a cast or bitcast between integers of 32 bits changes no number."""
    return u.src[0].dtype is u.dtype or (u.src[0].vmin >= 0 and u.src[0].vmax <= I32.max)


def _constants(u: UOp) -> list[int] | None:
    """What the lanes of a value are."""
    lanes = u.src if u.op is Ops.STACK else (u,)
    return [s.arg for s in lanes] if all(s.op is Ops.CONST for s in lanes) else None


def _field(u: UOp) -> _Field | None:
    if u.op in (Ops.CAST, Ops.BITCAST) and u.src[0].dtype in (I32, U32) and _keeps(u):
        return _field(u.src[0])
    if u.op is Ops.STACK:
        return _beside([_field(s) for s in u.src])
    by = _constants(u.src[1]) if u.op in (Ops.AND, Ops.SHR) else None
    if by is None:
        return None
    return _masked(u.src[0], by) if u.op is Ops.AND else _between(u.src[0], by, u.dtype is I32)


def _beside(lanes: list[_Field | None]) -> _Field | None:
    """Fields of single words as lanes of one value."""
    found = [f for f in lanes if f is not None]
    if len(found) < len(lanes) or len({f.signed for f in found}) > 1:
        return None
    words, places, widths, inverted = (
        tuple(x for f in found for x in getattr(f, name)) for name in ("words", "places", "widths", "inverted")
    )
    return _Field(words, places, widths, inverted, found[0].signed)


def _masked(u: UOp, masks: list[int]) -> _Field | None:
    """The lowest bits."""
    whole = _field(u) or _word(u)
    if whole is None or whole.signed or any(m <= 0 or m & (m + 1) for m in masks):
        return None
    return replace(whole, widths=tuple(min(w, m.bit_length()) for w, m in zip(whole.widths, masks, strict=True)))


def _between(u: UOp, down: list[int], signed: bool) -> _Field | None:
    """What is left of a word that is shifted down, and maybe up before."""
    if signed:
        if u.op is not Ops.BITCAST:
            return None
        u = u.src[0]
    up = _constants(u.src[1]) if u.op is Ops.SHL else None
    whole, up = (_word(u), [0] * len(down)) if up is None else (_word(u.src[0]), up)
    if whole is None or not all(0 <= a <= b < 32 for a, b in zip(up, down, strict=True)):
        return None
    places = tuple(b - a for a, b in zip(up, down, strict=True))
    return replace(whole, places=places, widths=tuple(32 - b for b in down), signed=signed)


def _word(u: UOp) -> _Field | None:
    """All of a word in each lane."""
    if u.dtype is not U32:
        return None
    words, inverted = [lane(u, i) for i in range(lanes_of(u))], []
    for i, w in enumerate(words):
        flipped = w.op is Ops.XOR and w.src[1].op is Ops.CONST
        inverted.append(int(w.src[1].arg) if flipped else 0)
        words[i] = w.src[0] if flipped else w
    each = (0,) * len(words)
    return _Field(tuple(words), each, (32,) * len(words), tuple(inverted))
