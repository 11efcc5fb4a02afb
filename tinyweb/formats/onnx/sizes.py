"""Known whole numbers that vary: what shapes are computed with where a size is a Variable."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.device import current_recorder
from tinyweb.graph.ir import Size, UOp, as_index, larger_size, size_add, size_mul, size_prod, size_sub, smaller_size
from tinyweb.graph.ir.bounds import fold_size, polynomial, size_bounds

INT64 = np.dtype(np.int64)


class Sizes(np.ndarray):
    """Whole numbers of the type `kind`, of which some are index expressions. As known as other arrays are, but what
    compares them may have no answer."""

    kind: np.dtype[Any]

    def __array_finalize__(self, source: Any) -> None:
        self.kind = getattr(source, "kind", INT64)


class UndecidedError(Exception):
    """What is asked of sizes depends on what they are."""


def sizes(values: Any, kind: np.dtype[Any] = INT64) -> npt.NDArray[Any]:
    """Numbers and index expressions in canonical form: an array where all are numbers, else `Sizes`."""
    held = np.asarray(values, object)
    flat = [fold_size(v) if isinstance(v, UOp) else int(v) for v in held.reshape(-1)]
    if all(isinstance(v, int) for v in flat):
        return np.array(flat, np.int64).astype(kind).reshape(held.shape)
    made = np.empty(len(flat), object)
    made[:] = flat
    found = made.reshape(held.shape).view(Sizes)
    found.kind = kind
    return found


def names_of(given: Iterable[Any]) -> list[str]:
    """The Variables in sizes, or names of some."""
    found = {str(v.arg[0]) for s in given if isinstance(s, UOp) for v in s.variables()}
    return sorted(found | {s for s in given if isinstance(s, str)})


def fixed_hint(given: Iterable[Any]) -> str:
    """What to do where a number is needed."""
    names, counted = names_of(given), _counted()
    listed = [n for n in names if n not in counted]
    if names and not listed:
        return (
            f"a number is needed here, but {names[0]} is counted while the model runs, which no --dim can say: fix "
            "inputs that it follows from (--fix), or export a graph that ends before this operator"
        )
    name, _, step = (listed or ["name"])[0].partition(" / ")
    more = f", or take steps that it may be divided by, as {shlex.quote(f'{name}=64:640:32')}" if not step else ""
    return f"a number is needed here: list sizes, as in --dim {shlex.quote(f'{name}=16,64')}{more}"


def _counted() -> set[str]:
    """The Variables of what is recorded whose values the host finds between launches."""
    recorder = current_recorder()
    return {str(step.variable.arg[0]) for _, step in (recorder and recorder.host_steps) or ()}


def fixed(size: Size) -> int:
    """A size that is a plain number; NotImplementedError for another."""
    if isinstance(size, UOp):
        raise NotImplementedError(f"a size varies, and {fixed_hint([size])}")
    return int(size)


def size_low(size: Size) -> int:
    return size if isinstance(size, int) else size_bounds(size)[0]


def quotient(a: Size, b: Size) -> Size:
    """a / b of sizes, rounded to 0: where b divides a, the exact quotient."""
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            return 0
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    exact = _exact(as_index(a), as_index(b))
    if exact is not None:
        return exact
    if size_low(a) < 0 or size_low(b) <= 0:
        raise UndecidedError
    return fold_size(as_index(a) // as_index(b))


def _exact(a: UOp, b: UOp) -> Size | None:
    """The polynomial that times b is a, if b is one product that divides every term of a."""
    over = polynomial(b)
    if len(over) != 1:
        return 1 if a is b else None
    ((factors, number),) = over.items()
    total: Size = 0
    for term, count in polynomial(a).items():
        rest = list(term)
        for f in factors:
            if f not in rest:
                return None
            rest.remove(f)
        if count % number:
            return None
        total = size_add(total, size_prod([count // number, *rest]))
    return total


def remainder(a: Size, b: Size) -> Size:
    """Of sizes that are not negative."""
    return size_sub(a, size_mul(quotient(a, b), b))


def less(a: Size, b: Size) -> bool:
    if size_low(size_sub(b, a)) > 0:
        return True
    if size_low(size_sub(a, b)) >= 0:
        return False
    raise UndecidedError


def equal(a: Size, b: Size) -> bool:
    more = size_sub(a, b)
    if isinstance(more, int):
        return more == 0
    if size_low(more) > 0 or size_low(size_sub(b, a)) > 0:
        return False
    raise UndecidedError


_NUMBERS: dict[str, Callable[[Any, Any], Size]] = {
    "Add": size_add, "Sub": size_sub, "Mul": size_mul, "Div": quotient, "Mod": remainder, "Max": larger_size,
    "Min": smaller_size,
}  # fmt: skip
_TRUTHS: dict[str, Callable[[Any, Any], bool]] = {
    "Equal": equal, "Less": less, "Greater": lambda a, b: less(b, a), "LessOrEqual": lambda a, b: not less(b, a),
    "GreaterOrEqual": lambda a, b: not less(a, b),
}  # fmt: skip
FOLDS: dict[str, Callable[[Any, Any], Size]] = {
    "ReduceProd": size_mul, "ReduceSum": size_add, "ReduceMax": larger_size, "ReduceMin": smaller_size
}  # fmt: skip


def compute(name: str, given: list[Any]) -> Any:
    """What an operator of elements, or a fold of all of them, gives for sizes; None: it is none that sizes take.

    UndecidedError where that depends on what they are.
    """
    if name == "Neg":
        return _each(lambda a: size_sub(0, a), given)
    if name in _NUMBERS:
        return functools.reduce(lambda a, b: _each(_NUMBERS[name], [a, b]), given)
    if name in _TRUTHS and len(given) == 2:
        return np.asarray(_each(_TRUTHS[name], given)).astype(bool)
    if name in FOLDS and given[0].ndim == 1 and given[0].size:
        return functools.reduce(FOLDS[name], given[0].tolist())
    return None


def _each(f: Callable[..., Any], given: list[Any]) -> Any:
    return np.frompyfunc(f, len(given), 1)(*(np.asarray(a) for a in given))
