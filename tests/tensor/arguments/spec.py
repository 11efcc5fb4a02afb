"""A line for each method: which tensors it belongs to and what its arguments are drawn from."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import torch
import torch.nn.functional as F

from tests.tensor.arguments import pools
from tests.tensor.arguments.pools import Array, Draw, Pool

Outputs = list[npt.NDArray[Any]]
Maker = Callable[[random.Random], Array]


@dataclass(frozen=True)
class Argument:
    name: str
    pool: Pool
    optional: bool
    keyword: bool  # only by keyword


@dataclass(frozen=True)
class Spec:
    """How calls of one method are drawn. `theirs` is PyTorch's function of the tensor and the arguments."""

    name: str
    theirs: Callable[..., Any]
    maker: Maker
    arguments: tuple[Argument, ...]
    values: bool = True  # whether the elements are determined, not only shape and dtype
    invariant: Callable[[Call, Outputs], Outputs] | None = None  # of outputs that are not determined: what of them is
    rtol: float = 1e-4
    spread: bool = False  # a sequence may be given number by number
    joins: bool = False  # takes a list of tensors: the first of them stands for self
    static: bool = False  # makes tensors: no self
    axes: int = 2  # of windows


@dataclass(frozen=True)
class Call:
    """One call: arguments by position and by keyword, and whether one of them was drawn to be wrong."""

    spec: Spec
    x: Array | None
    args: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    wrong: str = ""
    inplace: bool = False

    @property
    def name(self) -> str:
        return self.spec.name + "_" * self.inplace

    def __repr__(self) -> str:
        said = [*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.keywords.items())]
        return f"{self.x!r}.{self.name}({', '.join(said)})"


def tensor(dtypes: tuple[str, ...] = pools.ANY, ranks: tuple[int, ...] = (0, 1, 1, 2, 2, 2, 3, 3, 4), low: int = -12,
           high: int = 12, shape: str = "") -> Maker:  # fmt: skip
    """Tensors of these dtypes, with values low / 4 … high / 4; with `shape` of a size for each letter, digits fixed."""

    def make(rng: random.Random) -> Array:
        sizes: tuple[int, ...] = pools.shape(rng, ranks)
        if shape:
            known: dict[str, int] = {}
            pick = rng.choice(shape.split())
            sizes = tuple(int(c) if c.isdigit() else known.setdefault(c, rng.randint(1, 5)) for c in pick)
            if rng.random() < 0.08:  # an axis too few
                sizes = sizes[1:]
        return pools.array(rng, sizes, rng.choice(dtypes), low, high)

    return make


def method(name: str) -> Callable[..., Any]:
    """PyTorch's method of the name; functional or torch's function where there is none."""
    for home in (torch.Tensor, F, torch, torch.linalg):
        if callable(getattr(home, name, None)):
            found: Callable[..., Any] = getattr(home, name)
            return found
    raise LookupError(name)


def define(
    table: dict[str, Spec],
    names: str,
    maker: Maker,
    arguments: str = "",
    pool: Mapping[str, Pool] | None = None,
    theirs: Callable[..., Any] | None = None,
    **options: Any,
) -> None:
    """Specs of several methods. `arguments`: "name:pool" with ? where it may be left out, after "*" by keyword only;
    a pool is one of `pool` or of the module `pools`."""
    found: list[Argument] = []
    only = False
    for word in arguments.split():
        if word == "*":
            only = True
            continue
        key, _, kind = word.partition(":")
        kind = kind or key
        optional = kind.endswith("?")
        kind = kind.rstrip("?")
        chosen = (pool or {}).get(kind) or COMMON.get(kind) or getattr(pools, kind)
        found.append(Argument(key, chosen, optional, only))
    for name in names.split():
        assert name not in table, f"{name} has two specs"
        table[name] = Spec(name, theirs or method(name), maker, tuple(found), **options)


COMMON: dict[str, Pool] = {
    "dtype": pools.dtype(),
    "int": pools.whole(-3, 4),
    "count": pools.whole(0, 4),
    "positive": pools.whole(1, 3),
    "reduction": pools.words("none", "mean", "sum"),
    "interpolation": pools.words("linear", "lower", "higher", "nearest", "midpoint"),
}


def draw(spec: Spec, rng: random.Random) -> Call:
    """A call of the method: in one of three something is wrong with it, usually one argument."""
    x = spec.maker(rng)
    d = Draw(rng, x, {"axes": spec.axes})
    given = [a for a in spec.arguments if not a.optional or rng.random() < 0.45]
    wrong = rng.choice(given).name if given and rng.random() < 0.33 else ""
    values: dict[str, Any] = {}
    for a in spec.arguments:  # in this order: pools look at what was drawn before
        if a in given:
            values[a.name] = d.given[a.name] = a.pool(d, a.name != wrong)
    args: list[Any] = []
    keywords: dict[str, Any] = {}
    gap = False
    for a in spec.arguments:
        if a.name not in values:
            gap = True
        elif gap or a.keyword or rng.random() < 0.25:
            gap = True
            keywords[a.name] = values[a.name]
        else:
            args.append(values[a.name])
    if spec.spread and len(args) == 1 and isinstance(args[0], tuple | list) and rng.random() < 0.5:
        args = list(args[0])
    if rng.random() < 0.03:  # one too many, one of no such name, or one missing
        wrong = "signature"
        kind = rng.randrange(3)
        if kind == 0 and not spec.spread:
            args.append(rng.choice((7, None, "x")))
        elif kind == 1:
            keywords["no_such_argument"] = 1
        elif args:
            args.pop()
    if spec.joins:
        rest = args[0] if args and isinstance(args[0], list) else None
        if "tensors" in keywords and isinstance(keywords["tensors"], list):
            keywords["tensors"] = [x, *keywords["tensors"]]
        elif rest is not None:
            args[0] = [x, *rest]
        return Call(spec, None, tuple(args), keywords, wrong)
    return Call(spec, None if spec.static else x, tuple(args), keywords, wrong)
