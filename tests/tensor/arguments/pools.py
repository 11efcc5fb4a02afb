"""What arguments are drawn from: a pool gives a valid value, or one that is wrong in one respect."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

FLOATS = ("float32", "float32", "float32", "float16", "bfloat16", "float64")
INTS = ("int32", "int64", "int8", "uint8", "int16")
ANY = (*FLOATS[2:], *INTS, "bool")


@dataclass(frozen=True)
class Array:
    """A tensor to be: bfloat16 is held as float32."""

    data: npt.NDArray[Any]
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)

    def __repr__(self) -> str:
        return f"T({self.data.tolist()}, {self.dtype})" if self.data.size < 7 else f"T{self.shape}.{self.dtype}"


@dataclass(frozen=True)
class Type:
    """A dtype by name."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass
class Draw:
    """The drawing of one call: the random numbers, the tensor the method belongs to, and the arguments so far."""

    rng: random.Random
    x: Array
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def ndim(self) -> int:
        return len(self.x.shape)

    def array(self, shape: Sequence[int], dtype: str | None = None, low: int = -12, high: int = 12) -> Array:
        return array(self.rng, shape, dtype or self.x.dtype, low, high)

    def size(self) -> int:
        return self.rng.choice((0, 1, 2, 2, 3, 3, 4, 5))


Pool = Callable[[Draw, bool], Any]


def array(rng: random.Random, shape: Sequence[int], dtype: str, low: int = -12, high: int = 12) -> Array:
    """Quarters from low / 4 to high / 4 (which all floats hold), whole numbers, or truth values; floats without ties
    while there are enough of them."""
    generator = np.random.default_rng(rng.getrandbits(32))
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == "bool":
        return Array(generator.integers(0, 2, shape).astype(bool), dtype)
    if "float" in dtype:
        pool = generator.permutation(np.arange(low, high + 1))
        drawn = pool[:count] if count <= len(pool) else generator.integers(low, high + 1, count)
        return Array((drawn / 4).reshape(shape).astype("float32" if dtype == "bfloat16" else dtype), dtype)
    low, high = (max(low, 0) if dtype[0] == "u" else low) // 4, high // 4
    return Array(generator.integers(low, max(high, low) + 1, shape).astype(dtype), dtype)


def shape(rng: random.Random, ranks: Sequence[int] = (0, 1, 1, 2, 2, 2, 3, 3, 4)) -> tuple[int, ...]:
    return tuple(rng.choice((0, 1, 2, 2, 3, 3, 3, 4, 5)) for _ in range(rng.choice(ranks)))


# -- numbers ----------------------------------------------------------------------------------------------------------
def number(d: Draw, ok: bool) -> Any:
    if ok:
        return d.rng.choice((0, 1, 2, -1, 0.5, -1.5, 2.25, 3, True, np.float32(0.5)))
    return d.rng.choice((None, "1", [1.0], (2,), {}, b"1"))


def real(d: Draw, ok: bool) -> Any:
    """A number above 0."""
    if ok:
        return d.rng.choice((1, 2, 0.5, 1.5, 2.25, 3, np.float64(0.25)))
    return d.rng.choice((None, "1", [1.0], -1.0, 0, -2))


def order_of_norm(d: Draw, ok: bool) -> Any:
    return d.rng.choice((2, 1, 0, 3, 0.5, -1, -2.5, math.inf, -math.inf) if ok else (None, "1", [1.0], {}))


def share(d: Draw, ok: bool) -> Any:
    """A probability."""
    return d.rng.choice((0.0, 0.25, 0.5, 1.0, 1)) if ok else d.rng.choice((-0.5, 1.5, "0.5", None, 2))


def whole(low: int, high: int) -> Pool:
    def pool(d: Draw, ok: bool) -> Any:
        if ok:
            n = d.rng.randint(low, high)
            return d.rng.choice((n, n, n, n, np.int64(n)))
        return d.rng.choice((1.5, 2.0, None, "2", True, [2], -7, (1, 2), np.float32(1.0)))

    return pool


def flag(d: Draw, ok: bool) -> Any:
    return d.rng.choice((True, False)) if ok else d.rng.choice((None, "yes", 2, 0.5, [True]))


def words(*known: str) -> Pool:
    def pool(d: Draw, ok: bool) -> Any:
        return d.rng.choice(known) if ok else d.rng.choice(("wrong", "", 1, None, known[0].upper() + "x"))

    return pool


def dtype(*known: str) -> Pool:
    names = known or ("float32", "float16", "bfloat16", "float64", "int32", "int64", "uint8", "bool")

    def pool(d: Draw, ok: bool) -> Any:
        return Type(d.rng.choice(names)) if ok else d.rng.choice(("float33", 3, [Type("int32")], ""))

    return pool


# -- axes and sizes ---------------------------------------------------------------------------------------------------
def axis(d: Draw, ok: bool) -> Any:
    n = max(d.ndim, 1)
    if ok:
        a = d.rng.randrange(-n, n)
        return d.rng.choice((a, a, a, np.int64(a)))
    return d.rng.choice((n, -n - 1, n + 3, 0.0, 1.5, "0", None, [0, 0], True))


def axis_beyond(d: Draw, ok: bool) -> Any:
    n = d.ndim + 1
    return d.rng.randrange(-n, n) if ok else d.rng.choice((n, -n - 1, 0.0, "0", None, [0], True))


def axes(d: Draw, ok: bool) -> Any:
    """Axes as a number, a tuple, a list, all or none of them."""
    n = d.ndim
    some = d.rng.sample(range(n), d.rng.randint(0, n))
    some = [a - n if d.rng.random() < 0.3 else a for a in some]
    if ok:
        return d.rng.choice((axis(d, True), tuple(some), some, None if d.rng.random() < 0.5 else tuple(some)))
    return d.rng.choice((axis(d, False), (0, 0), [0, -n], (n,), (0, 1.0), ("0",), (None,), -n - 2))


def two_axes(d: Draw, ok: bool) -> Any:
    n = d.ndim
    if ok and n >= 2:
        return d.rng.choice((tuple, list))(d.rng.sample(range(n), 2))
    return d.rng.choice(((0, 0), (0, n), (0,), (0, 1, 2), 0, None, (0.0, 1.0)))


def order(d: Draw, ok: bool) -> Any:
    n = d.ndim
    every = d.rng.sample(range(n), n)
    if ok:
        return tuple(a - n if d.rng.random() < 0.3 else a for a in every)
    return d.rng.choice(([0, 0], every[1:], [*every, 0], [*every[1:], n], [0.5], "01", None, [*every[:-1], None]))


def resized(d: Draw, ok: bool) -> Any:
    """A shape of as many elements."""
    count = d.x.data.size
    if ok:
        sizes = []
        left = count
        for _ in range(d.rng.randint(0, 3)):
            sizes.append(d.rng.choice([n for n in range(1, left + 1) if left % n == 0] or [1]))
            left //= sizes[-1] or 1
        sizes.insert(d.rng.randint(0, len(sizes)), left)
        if d.rng.random() < 0.4 and count:
            sizes[d.rng.randrange(len(sizes))] = -1
        return d.rng.choice((tuple, list))(sizes)
    return d.rng.choice(
        ((-1, -1), (-2, count), (count + 1,), (2.0,), "3", (None,), (-1, 0), (count, -3), (True, count))
    )


def grown(d: Draw, ok: bool) -> Any:
    """A shape this one broadcasts to."""
    sizes = [d.size() if s == 1 else d.rng.choice((s, s, -1)) for s in d.x.shape]
    lead = [d.size() for _ in range(d.rng.choice((0, 0, 1, 2)))]
    if ok:
        return tuple(lead + sizes)
    wrong = [[7, *sizes[1:]], sizes[1:], [-1, *sizes], [*sizes, -2], ["1"], None, [1.0, *sizes], [-3, *sizes[1:]]]
    return d.rng.choice(wrong)


def counts(d: Draw, ok: bool) -> Any:
    n = d.ndim + d.rng.choice((0, 0, 1))
    if ok:
        return tuple(d.rng.choice((0, 1, 1, 2, 3)) for _ in range(n))
    return d.rng.choice(((-1,) * n, (1.5,) * max(n, 1), ("2",), None, (2,) * max(d.ndim - 1, 0), (1, -2, 1)))


def sizes(d: Draw, ok: bool) -> Any:
    if ok:
        return d.rng.choice((tuple, list))(shape(d.rng))
    return d.rng.choice(((-1,), (2, -3), (1.5,), ("2",), (None,), (2, (3,)), -2))


def split_sizes(d: Draw, ok: bool) -> Any:
    """What `split` takes, for axis 0 unless one is given."""
    n = extent(d)
    if ok:
        first = d.rng.randint(0, n)
        return d.rng.choice((d.rng.randint(1, 4), [first, n - first], (n,)))
    return d.rng.choice((0, -1, [n + 1], [n, 1], [-1, n + 1], 1.5, "1", None, [0.5]))


def cuts(d: Draw, ok: bool) -> Any:
    """What `tensor_split` takes."""
    if ok:
        return d.rng.choice((d.rng.randint(1, 5), (1, 2), [0], [2, 1], (-1,), (9,), ()))
    return d.rng.choice((0, -1, 1.5, "1", None, [0.5], (None,)))


def extent(d: Draw) -> int:
    a = d.given.get("dim", 0)
    n = d.ndim
    return d.x.shape[a] if isinstance(a, int | np.integer) and -n <= a < n else 1


def shifts(d: Draw, ok: bool) -> Any:
    n = d.rng.randint(0, 2)
    d.given["pairs"] = n
    if ok:
        return d.rng.randint(-7, 7) if n == 0 else tuple(d.rng.randint(-7, 7) for _ in range(n))
    return d.rng.choice((1.5, "1", None, (1, 2, 3, 4, 5), (0.5,), ()))


def shift_axes(d: Draw, ok: bool) -> Any:
    n = d.given.get("pairs", 0)
    if ok:
        return axis(d, True) if n == 0 else tuple(axis(d, True) for _ in range(n))
    return d.rng.choice((d.ndim, (d.ndim,), "0", 0.0, (0, 0, 0), (0.5,)))


def index(d: Draw, ok: bool) -> Any:
    """An element of an axis."""
    n = extent(d)
    if ok and n:
        return d.rng.randrange(-n, n)
    return d.rng.choice((n, -n - 1, 0.0, "0", None, [0]))


def kernel(d: Draw, ok: bool) -> Any:
    """A size of a window, or one for each axis."""
    n = d.given.get("axes", 2)
    if ok:
        return d.rng.choice((1, 2, 2, 3, tuple(d.rng.randint(1, 3) for _ in range(n)), [2] * n, (2,)))
    return d.rng.choice((0, -1, 9, (0,) * n, (2,) * (n + 1), 1.5, "2", None, (2, -2, 2)[:n], ()))


def steps(d: Draw, ok: bool) -> Any:
    n = d.given.get("axes", 2)
    if ok:
        return d.rng.choice((1, 1, 2, 3, tuple(d.rng.randint(1, 3) for _ in range(n)), (2,)))
    return d.rng.choice((0, -1, (1, 0, 1)[:n], (1,) * (n + 1), 1.5, "1"))


def border(d: Draw, ok: bool) -> Any:
    n = d.given.get("axes", 2)
    if ok:
        return d.rng.choice((0, 0, 1, tuple(d.rng.randint(0, 1) for _ in range(n)), (1,)))
    return d.rng.choice((-1, (1,) * (n + 1), (1,) * 2 * n, 2, 3, 0.5, "1", None, (-1, 0, 0)[:n], ((1, 1),) * n))


# -- tensors ----------------------------------------------------------------------------------------------------------
def like(d: Draw, ok: bool) -> Any:
    """A tensor that broadcasts with this one."""
    if not ok:
        return d.rng.choice((None, "x", d.array((7, *d.x.shape[1:])), d.array((*d.x.shape, 6)), [1, 2], {}))
    s = [1 if d.rng.random() < 0.25 else n for n in d.x.shape]
    s = s[d.rng.choice((0, 0, 0, 1)) :]
    if d.rng.random() < 0.1:
        s = [2, *s]
    return d.array(s, d.rng.choice((None, None, d.rng.choice(ANY))))


def other(d: Draw, ok: bool) -> Any:
    """A tensor that broadcasts with this one, or a number."""
    return number(d, ok) if d.rng.random() < 0.35 else like(d, ok)


def same(d: Draw, ok: bool) -> Any:
    """A tensor of this shape and dtype."""
    if ok:
        return d.array(d.x.shape)
    return d.rng.choice((None, "x", 1, d.array((6,)), d.array((*d.x.shape, 2)), d.array(d.x.shape, "int32"), [1.0]))


def mask(d: Draw, ok: bool) -> Any:
    if ok:
        return d.array([1 if d.rng.random() < 0.2 else n for n in d.x.shape], "bool")
    return d.rng.choice((None, True, d.array(d.x.shape, "int32"), d.array(d.x.shape, "float32"), d.array((7,), "bool")))


def indices(d: Draw, n: int, shape: Sequence[int], ok: bool) -> Any:
    """Places on an axis of n."""
    if ok and n:
        drawn = d.array(shape, "int64", 0, 4 * (n - 1))
        return drawn
    wrong = [None, 1.5, d.array(shape, "float32"), d.array(shape, "bool"), d.array((*shape, 2), "int64", 0, 0), "0"]
    return d.rng.choice(wrong)


def vector_index(d: Draw, ok: bool) -> Any:
    return indices(d, extent(d), d.rng.choice(((), (0,), (1,), (2,), (3,), (5,))), ok)


def distinct_index(d: Draw, ok: bool) -> Any:
    """A vector that names no place twice."""
    n = extent(d)
    if not ok or not n:
        return indices(d, 0, (2,), False)
    found = d.rng.sample(range(n), d.rng.randint(0, n))
    return Array(np.array(found, np.int64), "int64")


def gather_index(d: Draw, ok: bool) -> Any:
    a = d.given.get("dim", 0)
    n = d.ndim
    if not isinstance(a, int | np.integer) or not -max(n, 1) <= a < max(n, 1):
        a = 0
    s = [d.rng.randint(0, m) if d.rng.random() < 0.3 else m for m in d.x.shape]
    if n:
        s[a] = d.rng.randint(0, 4)
    return indices(d, extent(d), s, ok)


def along_index(d: Draw, ok: bool) -> Any:
    """Like the source of an `index_add`: as long along the axis as the index."""
    i, a, n = d.given.get("index"), d.given.get("dim", 0), d.ndim
    s = list(d.x.shape)
    if n and isinstance(i, Array) and isinstance(a, int | np.integer) and -n <= a < n:
        s[a] = i.data.size
    if ok:
        return d.array(s)
    return d.rng.choice((None, 1.5, d.array((*s, 2)), d.array((7,)), d.array(s, "int16"), "x"))


def scatter_source(d: Draw, ok: bool) -> Any:
    i = d.given.get("index")
    s = i.shape if isinstance(i, Array) else d.x.shape
    if ok:
        return d.array([n + d.rng.choice((0, 0, 1)) for n in s])
    return d.rng.choice((None, "x", d.array((*s, 2)), d.array([max(n - 1, 0) for n in s]), d.array(s, "int16")))


def matrix(*sizes_of: str) -> Pool:
    """A tensor whose sizes are letters: those of the tensor's own axes, from the last one on as "…kn", or new ones."""

    def pool(d: Draw, ok: bool) -> Any:
        s = [_letter(d, c) for c in d.rng.choice(sizes_of)]
        if ok:
            return d.array(s)
        return d.rng.choice((None, 2.0, "x", d.array((7, *s)), d.array((*s[:-1], 6)), d.array(s, "bool"), [1.0]))

    return pool


def _letter(d: Draw, c: str) -> int:
    """a, b, c, …: the size of that axis of self; p, q, …: one size for each letter of a call."""
    if c < "h":
        i = ord(c) - ord("a")
        return d.x.shape[i] if i < d.ndim else 2
    sizes_known: dict[str, int] = d.given.setdefault("letters", {})
    return sizes_known.setdefault(c, d.size())


def tensors(d: Draw, ok: bool) -> Any:
    """More tensors to join with this one, along axis 0 or the axis drawn before."""
    if not ok:
        return d.rng.choice(([None], [1.0], [d.array((7, 7, 7))], [d.array((*d.x.shape, 2))], ["x"], None, 3))
    return [d.array(d.x.shape, d.rng.choice((None, None, d.rng.choice(ANY)))) for _ in range(d.rng.randint(0, 2))]
