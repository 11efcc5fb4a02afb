"""Which sums of a tensor graph are products of matrices, and which are convolutions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tinyweb.graph.ir import MOVEMENT, Ops, Shape, UOp, through

REMEMBERED = 4096


@dataclass(frozen=True)
class Product:
    """Σ a · b over axes that both have: axes of the product, by who varies along them."""

    a: UOp
    b: UOp
    batch: tuple[int, ...]
    rows: tuple[int, ...]  # of a alone
    columns: tuple[int, ...]  # of b alone
    inner: tuple[int, ...]

    @property
    def sources(self) -> tuple[UOp, UOp]:
        return self.a, self.b

    def operands(self) -> Iterator[tuple[UOp, list[int], list[Sequence[int]]]]:
        """Both, with the axes that they vary along, and the groups that become axes of matrices."""
        yield self.a, sorted((*self.batch, *self.rows, *self.inner)), [*self._each(), self.rows, self.inner]
        yield self.b, sorted((*self.batch, *self.inner, *self.columns)), [*self._each(), self.inner, self.columns]

    def _each(self) -> list[tuple[int, ...]]:
        return [(a,) for a in self.batch]


@dataclass(frozen=True)
class Convolution:
    """Of x (N, groups · C, n…) with weight, whose elements are those of (groups · O, C, k…)."""

    x: UOp
    weight: UOp
    weight_shape: tuple[int, ...]
    steps: tuple[int, ...]
    apart: tuple[int, ...]
    pads: tuple[int, ...]  # before all axes, then behind all
    groups: int

    @property
    def sources(self) -> tuple[UOp, UOp]:
        return self.x, self.weight


def product_of(u: UOp) -> Product | None:
    """The product that a REDUCE is, or None."""
    factors = _factors(u)
    if factors is None:
        return None
    shape, reduced = u.src[0].shape, u.arg[1]
    (a, of_a), (b, of_b) = (_varying(s) for s in factors)
    axes = [i for i, n in enumerate(shape) if n != 1]
    inner = tuple(i for i in axes if i in reduced)
    both = of_a & of_b
    if not inner or not both.issuperset(inner) or not (of_a | of_b).issuperset(axes):
        return None
    rows, columns = (tuple(i for i in axes if i in one - other) for one, other in ((of_a, of_b), (of_b, of_a)))
    return Product(a, b, tuple(i for i in axes if i in both and i not in inner), rows, columns, inner)


@lru_cache(REMEMBERED)
def convolution_of(u: UOp) -> Convolution | None:
    """The convolution that a REDUCE is, or None: Σ over C and k… of windows (N, G, 1, C, o…, k…), of a value that may
    have a border, times weights (1, G, O, C, 1…, k…)."""
    factors, shape = _factors(u), _plain(u.src[0].shape)
    n = (len(shape) - 4) // 2
    axes = tuple(range(4 + n, 4 + 2 * n))
    if factors is None or n not in (1, 2, 3) or len(shape) != 4 + 2 * n or tuple(u.arg[1]) != (3, *axes):
        return None
    (_, of_x), (weight, of_weight) = (_varying(s) for s in factors)
    x = factors[0].src[0] if factors[0].op is Ops.EXPAND else factors[0]
    if of_x & {2} or of_weight & {0, *range(4, 4 + n)}:
        return None
    groups, out, channels = shape[1:4]
    places = _windows(x, n, groups * channels)
    if places is None:
        return None
    base, steps, apart = places
    pads = (0,) * (2 * n)
    if base.op is Ops.PAD and not any(map(any, base.arg[:2])):
        pads = tuple(before for before, _ in base.arg[2:]) + tuple(after for _, after in base.arg[2:])
        base = base.src[0]
    kernel = tuple(shape[a] for a in axes)
    return Convolution(base, weight, (groups * out, channels, *kernel), steps, apart, pads, groups)


def _plain(shape: Shape) -> tuple[int, ...]:
    """A shape of numbers; of nothing where a size varies."""
    return tuple(n for n in shape if isinstance(n, int)) if all(isinstance(n, int) for n in shape) else ()


def below_reshapes(u: UOp) -> UOp:
    return through(u, (Ops.RESHAPE,))[1]


def _factors(u: UOp) -> tuple[UOp, UOp] | None:
    product = u.src[0]
    if u.op is not Ops.REDUCE or u.arg[0] is not Ops.ADD or product.op is not Ops.MUL or not product.dtype.is_float:
        return None
    return product.src[0], product.src[1]


def _varying(s: UOp) -> tuple[UOp, set[int]]:
    """An operand before it was expanded, and the axes along which it varies."""
    below = s.src[0] if s.op is Ops.EXPAND else s
    return below_reshapes(below), {i for i, n in enumerate(below.shape) if n != 1}


def _windows(x: UOp, n: int, channels: int) -> tuple[UOp, tuple[int, ...], tuple[int, ...]] | None:
    """What windows (N, G, 1, C, o…, k…) are of, with steps and distances, where they lie regularly in it."""
    chain, below = through(x, MOVEMENT - {Ops.PAD})
    for i in range(len(chain), -1, -1):
        base = chain[i] if i < len(chain) else below
        shape = _plain(base.shape)
        if len(shape) != n + 2 or shape[:2] != (x.shape[0], channels):
            continue
        at = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
        for move in reversed(chain[:i]):
            at = _moved(at, move)
        if (found := _regular(at, shape, n)) is not None:
            return base, *found
    return None


def _moved(at: npt.NDArray[np.int64], u: UOp) -> npt.NDArray[np.int64]:
    if u.op is Ops.RESHAPE:
        return at.reshape(_plain(u.shape))
    if u.op is Ops.PERMUTE:
        return at.transpose(u.arg)
    if u.op is Ops.EXPAND:
        return np.broadcast_to(at, _plain(u.shape))
    if u.op is Ops.SHRINK:
        return at[tuple(slice(a, b) for a, b in u.arg)]
    return np.flip(at, u.arg)


def _regular(at: npt.NDArray[np.int64], shape: Sequence[int], n: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Steps and distances of windows at these places of an array, from the first one on."""
    each = [math.prod(shape[a + 1 :]) for a in range(n + 2)]
    own = [int(at.take([1], a).flat[0]) if at.shape[a] > 1 else 0 for a in range(at.ndim)]
    wanted = sum(
        np.arange(size).reshape([-1 if i == a else 1 for i in range(at.ndim)]) * own[a]
        for a, size in enumerate(at.shape)
    )
    channels = [own[3] in (0, each[1]), own[1] in (0, at.shape[3] * each[1]), own[0] in (0, each[0])]
    if not all(channels) or not np.array_equal(at, np.broadcast_to(np.asarray(wanted), at.shape)):
        return None
    steps, apart = own[4 : 4 + n], own[4 + n :]
    if any(s % e or d % e or s < 0 or d < 0 for s, d, e in zip(steps, apart, each[2:])):
        return None
    # where there is one window only, a step beyond the end says so
    ones = [size if windows == 1 else 1 for size, windows in zip(shape[2:], at.shape[4 : 4 + n])]
    return (
        tuple(max(s // e, one) for s, e, one in zip(steps, each[2:], ones)),
        tuple(max(d // e, 1) for d, e in zip(apart, each[2:])),
    )
