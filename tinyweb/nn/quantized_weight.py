"""Matrices of narrow integers: what they hold, and the expressions of their values and products.

A value is (code − zero point) · scale − minimum. Which of these parts there are is data, so that one expression serves
our own quantisation and the blocks of other formats:

- Codes have 1 to 8 bits. Those of 3, 5, 6 and 7 bits lie in planes of 4, 2 and 1 bits: the lowest bits of all codes
  first, then the others. They may be numbers of a codebook.
- Codes of one plane below 8 bits, or of two, are woven where they fill words (`Weave`): vectors have words of several
  groups.
- Scales and minimums are one number for a group, or an integer for a group times a number for a block of groups.

Values are those of this arithmetic in float32. A matrix is never expanded in memory: `product` and `rows` are
expressions that a kernel evaluates as it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.array.packing import pack
from tinyweb.dtype import BY_NAME, DType, dtypes, from_numpy
from tinyweb.graph.ir import Ops, TableArg, UOp, size_max
from tinyweb.graph.optimize.instructions import multiplies_matrices
from tinyweb.graph.target import Target
from tinyweb.kinds import ACTIVATIONS
from tinyweb.tensor import Tensor

HALF_MAX = float(np.finfo(np.float16).max)
MATRIX_ROWS = 16  # of the matrix instructions of GPUs
HALVES = ("half", "scaled-half")  # activations that are rounded to float16

WOVEN = 8  # groups side by side: vectors have as many lanes or fewer
PLANES = {8: (8,), 7: (4, 2, 1), 6: (4, 2), 5: (4, 1), 4: (4,), 3: (2, 1), 2: (2,), 1: (1,)}  # of codes of so many bits


@dataclass(frozen=True)
class Weave:
    """How codes of one or two planes lie: `WOVEN` groups together, so that vectors have a word of each group: no sums
    are added up across lanes, and shifts and masks of whole words join both planes.

    Of the first plane the first words of all those groups, then the second ones, and so on. A word of the second plane
    has the bits of as many words of the first as its codes are narrower: byte b, one word after the other, of what byte
    b of each has. `widths`: bits of each plane's codes.
    """

    group: int
    widths: tuple[int, ...]

    @classmethod
    def of(cls, bits: int, group: int, groups: int) -> Weave | None:
        """For codes of so many bits, in blocks of so many groups; None where they do not fill words."""
        widths = PLANES[bits]
        if len(widths) > 2 or widths[0] > 4 or groups % WOVEN or group % (32 // widths[-1]):
            return None
        return cls(group, widths)

    def _words(self, width: int) -> tuple[int, int, int]:
        """Of a plane's codes: the words of a group, the first plane's words that each is for, and codes in a byte of
        the first plane.
        """
        return self.group * width // 32, self.widths[0] // width, 8 // self.widths[0]

    def woven(self, planes: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """(rows, groups, group) of each plane → (rows, groups / WOVEN, their codes)."""
        found = []
        for plane, width in zip(planes, self.widths, strict=True):
            words, runs, codes = self._words(width)
            turned = plane.reshape(len(plane), -1, WOVEN, words, runs, 4, codes).transpose(0, 1, 3, 2, 5, 4, 6)
            found.append(turned.reshape(len(plane), -1, WOVEN * self.group))
        return found

    def straight(self, planes: Sequence[Tensor]) -> list[Tensor]:
        """Planes (…, groups, group) in the order of codes again."""
        found = []
        for plane, width in zip(planes, self.widths, strict=True):
            before, (words, runs, codes) = plane.shape[:-1], self._words(width)
            axes, a = range(len(before)), len(before)
            turned = plane.reshape(*before, words, WOVEN, 4, runs, codes)
            turned = turned.permute(*axes, a + 1, a, a + 3, a + 2, a + 4)
            found.append(turned.reshape(*before[:-1], -1, self.group))
        return found


@dataclass(frozen=True)
class QuantizedWeight:
    """A matrix (out, in = groups · group).

    - `values`: codes (out, groups, group), int8 or unsigned integers of 1 to 8 bits; where there are `upper` planes,
      the codes' lowest bits. Woven planes are (out, groups / WOVEN, WOVEN · group).
    - `codebook`: the numbers, within int8, that codes stand for; None: themselves.
    - `scales`: (out, groups). Half floats; or exponents uint8 of 2^(exponent − 128); or with `scale_blocks`, half
      floats (out, blocks), integers that are multiplied with their block's.
    - `zeros`: the integers that stand for 0 (out, groups), or None: `zero` does, the middle of the type.
    - `minimums`: what is subtracted (out, groups), half floats, or integers with `minimum_blocks`. Codes have no zero
      point then.

    Groups of any size: one group per row is a scale for each output channel.
    """

    values: Tensor
    scales: Tensor
    zeros: Tensor | None = None
    upper: tuple[Tensor, ...] = ()
    codebook: tuple[int, ...] | None = None
    scale_blocks: Tensor | None = None
    minimums: Tensor | None = None
    minimum_blocks: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        rows, *columns = (int(s) for s in self.values.shape if isinstance(s, int))
        return rows, prod(columns)

    @property
    def bits(self) -> int:
        """Of a code."""
        return sum(plane.dtype.bits for plane in (self.values, *self.upper))

    @property
    def group(self) -> int:
        """Numbers of a row that share a scale."""
        return self.shape[1] // self.groups

    @property
    def groups(self) -> int:
        """Of a row."""
        return size_max(self.scales.shape[-1])

    @property
    def zero(self) -> int:
        """The integer that stands for 0 in weights without zero points, minimums or a codebook: 0 of int8, else half
        of the codes' number: 8 of 4 bits.
        """
        plain = self.values.dtype.is_signed or self.codebook is not None or self.minimums is not None
        return 0 if plain else 1 << (self.bits - 1)

    def product(self, x: Tensor, activations: str = "float") -> Tensor:
        """x (…, in) → x Wᵀ (…, out), float32.

        `activations` "int8": x is rounded to 8 bits first, in the groups of the weights, so that the products inside a
        group are integers: their int32 sum is exact, and is multiplied by both scales in float32. "half" and
        "scaled-half": of rows that matrix instructions take at a time, x and the matrix's values are rounded to
        float16, which tells apart all sums of multiples of half floats as far down as those reach.
        """
        if activations not in ACTIVATIONS:
            raise ValueError(f"activations can be {', '.join(ACTIVATIONS)}, not {activations!r}")
        if activations in HALVES and prod(map(size_max, x.shape[:-1])) >= MATRIX_ROWS and not self._of_powers:
            return half_product(x.float(), self._halves_product, activations)
        grouped = self._grouped(x.float())
        if activations != "int8":
            return (grouped.unsqueeze(-3) * self._dense()).sum((-2, -1))
        integers, steps = quantize_activations(grouped)
        axes = self._axes()
        over = tuple(range(-len(axes), 0))
        inner, steps = integers.unflatten(-2, axes).unsqueeze(-2 - len(axes)), steps.unflatten(-1, axes)
        scale = steps.unsqueeze(-1 - len(axes)) * self._scales(axes)
        factors = self._factors()
        terms = [(inner.int() * plane.unflatten(-2, axes)).sum(-1).float() * scale for _, plane in factors]
        less = self._less(integers, steps, scale, axes)
        if less is not None and self._weave is not None:
            # lanes have sums of groups: all that belongs to a group is one term
            terms[0], less = terms[0] - less, None
        y = None
        for (place, _), term in zip(factors, terms, strict=True):
            part = term.sum(over)
            # planes of other widths are read in another order: each has a kernel
            y = part if y is None else y.contiguous() + part * (1 << place)
        assert y is not None
        return y if less is None else y - less.sum(over).contiguous()

    def _grouped(self, x: Tensor) -> Tensor:
        """(…, in) → (…, groups, group)."""
        return x.reshape(*x.shape[:-1], self.groups, self.group)

    def _halves_product(self, x: Tensor) -> Tensor:
        """The product with float16 x, of values that are rounded to float16 where they are read: what would leave its
        range is held by smaller scales and minimums."""
        least, most = self._bounds()
        end = HALF_MAX if self.minimums is None else HALF_MAX / 2
        scales = self._scales().clamp(-end / max(most, -least), end / max(most, -least))
        values = self._integers().float() * scales.unsqueeze(-1)
        if self.minimums is not None:
            values = values - _spread(self.minimums, self.minimum_blocks).clamp(-end, end).unsqueeze(-1)
        return (self._grouped(x).float().unsqueeze(-3) * values.cast(dtypes.float16).float()).sum((-2, -1))

    def _bounds(self) -> tuple[int, int]:
        """The least and the largest of the multiples of scales that there may be."""
        if self.codebook is not None:
            return min(self.codebook), max(self.codebook)
        below, size = (128, 256) if self.values.dtype.is_signed else (self.zero, 1 << self.bits)
        return (-below, size - 1 - below) if self.zeros is None else (1 - size, size - 1)

    def _less(self, integers: Tensor, steps: Tensor, scale: Tensor, axes: tuple[int, ...]) -> Tensor | None:
        """What is subtracted for zero points or minimums, of each group; None where there are none."""
        if self.zeros is None and self.minimums is None:
            return None
        sums, above = integers.int().sum(-1).unflatten(-1, axes), -1 - len(axes)
        if self.zeros is not None:
            # Σ x · (v − z) = Σ x · v − z · Σ x, whose sums of x are the same for all outputs
            return self.zeros.float().unflatten(-1, axes) * sums.contiguous().float().unsqueeze(above) * scale
        assert self.minimums is not None
        # Σ x · (v · s − m) = s · Σ x · v − m · Σ x
        totals = (sums.float() * steps).contiguous()
        return totals.unsqueeze(above) * _spread(self.minimums, self.minimum_blocks, axes)

    @property
    def _weave(self) -> Weave | None:
        """Of planes that are woven."""
        if self.values.shape[-2] == self.groups:
            return None
        group = size_max(self.values.shape[-1]) // WOVEN
        return Weave(group, tuple(plane.dtype.bits for plane in (self.values, *self.upper)))

    def _axes(self) -> tuple[int, ...]:
        """The sizes of groups' axes, so that no index is divided: blocks if there are any, those that are woven
        together, if any are, and groups in what remains."""
        blocks = 1 if self.scale_blocks is None else size_max(self.scale_blocks.shape[-1])
        each = self.groups // blocks
        inner = (each,) if self._weave is None else (each // WOVEN, WOVEN)
        return inner if self.scale_blocks is None else (blocks, *inner)

    def rows(self, ids: Tensor) -> Tensor:
        """Rows by integer id: ids.shape + (in,), float32."""
        picked: dict[str, Any] = {name: t[ids] for name, t in self._parts().items()}
        upper = tuple(plane[ids] for plane in self.upper)
        return replace(self, upper=upper, **picked)._dense().reshape(*ids.shape, self.shape[1])

    def dense(self) -> Tensor:
        """The matrix (out, in), float32."""
        return self._dense().reshape(*self.shape)

    def tensors(self) -> dict[str, Tensor]:
        """The memory, by name."""
        found = {"weight" if name == "values" else name: t for name, t in self._parts().items()}
        return found | {f"upper{i}": plane for i, plane in enumerate(self.upper)}

    def _parts(self) -> dict[str, Tensor]:
        """All memory but of the upper planes, by the names of fields."""
        return {name: t for name, t in vars(self).items() if isinstance(t, Tensor)}

    def _dense(self) -> Tensor:
        scaled = self._integers().float() * self._scales().unsqueeze(-1)
        if self.minimums is None:
            return scaled
        return scaled - _spread(self.minimums, self.minimum_blocks).unsqueeze(-1)

    def _scales(self, axes: tuple[int, ...] | None = None) -> Tensor:
        """(…, groups), float32; or with groups as `axes`."""
        if self._of_powers:
            return _spread(_power(self.scales), None, axes)
        return _spread(self.scales, self.scale_blocks, axes)

    @property
    def _of_powers(self) -> bool:
        """Whether scales are powers of two, which half floats may not reach."""
        return self.scales.dtype is dtypes.uint8 and self.scale_blocks is None

    def _integers(self) -> Tensor:
        """The multiples of the scales, int32."""
        values = self._codes()
        if self.zeros is not None:
            return values - self.zeros.int().unsqueeze(-1)
        return values - self.zero if self.zero else values

    def _codes(self) -> Tensor:
        """What codes stand for, with no zero point subtracted, int32."""
        if self.codebook is not None and not self.upper:
            return looked_up(self._planes()[0], self.codebook)
        lowest, *upper = self._planes()
        values, place = lowest.int(), lowest.dtype.bits
        for plane in upper:
            values, place = values + (plane.int() << place), place + plane.dtype.bits
        return values if self.codebook is None else looked_up(values, self.codebook)

    def _planes(self) -> list[Tensor]:
        """Of codes in their order."""
        weave, planes = self._weave, (self.values, *self.upper)
        return list(planes) if weave is None else weave.straight(planes)

    def _factors(self) -> list[tuple[int, Tensor]]:
        """(place, int32): the multiples of the scales, but for `zeros`, are the sums of numbers · 2^place. The zero
        point of codes without zero points is half the range of their highest plane."""
        if self.codebook is not None or self._weave is not None:
            return [(0, self._codes() if self.zeros is not None else self._integers())]
        planes = (self.values, *self.upper)
        places = [sum(p.dtype.bits for p in planes[:i]) for i in range(len(planes))]
        factors = [plane.int() for plane in planes]
        if self.zeros is None and self.zero:
            factors[-1] = factors[-1] - (self.zero >> places[-1])
        return list(zip(places, factors))


def of_codes(
    parts: Iterable[Mapping[str, npt.NDArray[Any]]], bits: int, device: str | None = None,
    codebook: tuple[int, ...] | None = None, types: Mapping[str, DType] | None = None,
) -> QuantizedWeight:  # fmt: skip
    """A matrix of codes, from parts of its rows one after the other: in each `codes` (rows, groups, group), unsigned
    ones of `bits` 1 to 8 or int8, and what else there is by the names of fields: (rows, groups), or (rows, blocks).

    `types`: of fields that memory has in another type than the arrays'. One part is held unpacked at a time.
    """
    found: dict[str, _Gathered] = {}
    for part in parts:
        codes = part["codes"]
        planes = [(dtypes.int8, codes)] if codes.dtype == np.int8 else split(codes, bits)
        blocks = part["scale_blocks"].shape[1] if "scale_blocks" in part else 1
        weave = Weave.of(bits, codes.shape[2], codes.shape[1] // blocks) if codes.dtype != np.int8 else None
        if weave is not None and (codebook is None or len(planes) == 1):
            planes = list(zip((kind for kind, _ in planes), weave.woven([plane for _, plane in planes])))
        for i, (kind, plane) in enumerate(planes):
            found.setdefault(f"plane{i}", _Gathered(kind)).add(plane)
        for name, values in part.items():
            if name != "codes":
                kind = (types or {}).get(name) or from_numpy(values.dtype)
                found.setdefault(name, _Gathered(kind)).add(values)
    made = {name: gathered.tensor(device) for name, gathered in found.items()}
    lowest, *upper = (made.pop(name) for name in found if name.startswith("plane"))
    return QuantizedWeight(lowest, upper=tuple(upper), codebook=codebook, **made)


class _Gathered:
    """The rows of a tensor, packed as they come."""

    def __init__(self, dtype: DType):
        self.dtype, self.rows = dtype, 0
        self.packed: list[npt.NDArray[np.uint8]] = []
        self.inner: tuple[int, ...] = ()

    def add(self, values: npt.NDArray[Any]) -> None:
        self.packed.append(pack(values, self.dtype))
        self.rows, self.inner = self.rows + len(values), values.shape[1:]

    def tensor(self, device: str | None) -> Tensor:
        whole = np.concatenate(self.packed)
        self.packed.clear()
        return Tensor.from_bytes(whole.data, (self.rows, *self.inner), self.dtype, device)


def split(codes: npt.NDArray[np.uint8], bits: int) -> list[tuple[DType, npt.NDArray[np.uint8]]]:
    """Planes of unsigned codes with the types that hold them, the lowest bits first. ValueError for codes of 0 or more
    than 8 bits.
    """
    if bits not in PLANES:
        raise ValueError(f"codes have 1 to 8 bits, not {bits}")
    found, place = [], 0
    for width in PLANES[bits]:
        found.append((BY_NAME[f"uint{width}"], np.asarray(codes >> place & ((1 << width) - 1), np.uint8)))
        place += width
    return found


def looked_up(codes: Tensor, table: tuple[int, ...]) -> Tensor:
    """The numbers (within int8) of a table of 2, 4, 8 or 16 that integers of as many values stand for, int32."""
    return codes._new(UOp(Ops.LOOKUP, dtypes.int32, (codes.uop,), TableArg(table)))


def _power(exponents: Tensor) -> Tensor:
    """2^(exponent − 128) of uint8, float32: those of 0 and 1 are subnormal numbers."""
    e = exponents.int()
    return ((e - 1) << 23).maximum((e + 1) << 21).bitcast(dtypes.float32)


def _spread(values: Tensor, blocks: Tensor | None, axes: tuple[int, ...] | None = None) -> Tensor:
    """Numbers of groups (…, groups), float32: as they are, or times those of their blocks (…, blocks); or with groups
    as `axes`, blocks and what is in one."""
    if blocks is None:
        return values.float() if axes is None else values.float().unflatten(-1, axes)
    parts = _parts_of(blocks) if axes is None else axes
    each = values.float().unflatten(-1, parts) * blocks.float().reshape(*blocks.shape, *[1] * (len(parts) - 1))
    return each.flatten(-2) if axes is None else each


def _parts_of(blocks: Tensor) -> tuple[int, int]:
    """The sizes of groups' axes: blocks, and what is in one."""
    count = blocks.shape[-1]
    assert isinstance(count, int)
    return count, -1


def activations_for(target: Target, stored: DType = dtypes.float16) -> str:
    """What weights are best multiplied with on a target. `stored`: the type that a checkpoint has floats of: where that
    reaches farther than float16, as bfloat16 does, so may what the model multiplies."""
    if target.dot_lanes:
        return "int8"
    if not multiplies_matrices(target, dtypes.float16):
        return "float"
    return "half" if stored is dtypes.float16 else "scaled-half"


def halves(x: Tensor) -> Tensor:
    """x rounded to float16: what is beyond its range is held at ±65504."""
    return x.clamp(-HALF_MAX, HALF_MAX).cast(dtypes.float16)


def rounded(x: Tensor, rows: int, activations: str) -> Tensor:
    """x, of which `rows` are multiplied with float16 at a time: with activations "half" or "scaled-half" these are
    `halves` in memory of their own, where matrix instructions read them, if they are as many as those take at a
    time."""
    return halves(x).contiguous() if activations in HALVES and rows >= MATRIX_ROWS else x


def half_product(x: Tensor, product: Callable[[Tensor], Tensor], activations: str) -> Tensor:
    """A `product` of x (…, in) with weights, in the type of x: x `rounded`, and with "scaled-half" each row that leaves
    the range of float16 divided before and multiplied after by what brings it back."""
    rows = prod(map(size_max, x.shape[:-1]))
    if activations != "scaled-half" or rows < MATRIX_ROWS:
        return product(rounded(x, rows, activations))
    over = (x.abs().max(-1, keepdim=True) * (1 / HALF_MAX)).maximum(1).contiguous()
    return product(rounded(x / over, rows, activations)) * over


def quantize_activations(grouped: Tensor) -> tuple[Tensor, Tensor]:
    """(…, groups, group) float32 → int8 of that shape and scales (…, groups) float32, both in memory of their own.

    Symmetric: a group's largest magnitude becomes ±127, halves round to even. A group of zeros has scale 0.
    """
    scales = (grouped.abs().max(-1) * (1 / 127)).contiguous()
    steps = (scales == 0).where(0.0, 1 / scales).unsqueeze(-1)
    return (grouped * steps).round().cast(dtypes.int8).contiguous(), scales
