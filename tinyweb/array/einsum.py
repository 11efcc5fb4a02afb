"""Einstein's summation convention.

Every operand is a tensor with a label for each axis. Two operands are contracted at a time: broadcast over the labels
of both, multiplied, and summed over those that nobody needs any more, which is one kernel.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import prod
from typing import Any, Self, TypeVar

from tinyweb.array.core import TensorCore
from tinyweb.array.linalg import Linalg
from tinyweb.dtype import promote
from tinyweb.graph.ir import Size, size_max
from tinyweb.graph.schedule.indexing import same

T = TypeVar("T", bound="Einsum")
Labels = tuple[str, ...]
MOST_ORDERED = 5  # operands whose contractions are tried in every order


class Einsum(Linalg):
    """`einsum`."""

    __slots__ = ()

    @classmethod
    def einsum(cls, formula: Any, *operands: Any) -> Self:
        """Sums of products by labels: `Tensor.einsum("bij,bjk->bik", a, b)`.

        Letters name axes; a letter twice in an operand takes its diagonal, "..." stands for axes that broadcast. What
        is not in the output is summed over; without "->" the output has the letters that occur once, in alphabetical
        order, after the axes of "...". Axes of size 1 broadcast. Several operands are contracted in pairs: up to 5 in
        the order that multiplies least, of more those first whose result is smallest next to what it replaces (the
        optimal and the greedy order of opt_einsum, Smith and Gray 2018).
        Also `einsum(a, [0, 1], b, [1, 2], [0, 2])`, with numbers for letters.
        """
        if isinstance(formula, TensorCore):
            formula, operands = _from_numbers((formula, *operands))
        if len(operands) == 1 and isinstance(operands[0], list | tuple):
            operands = tuple(operands[0])
        tensors: list[Any] = []
        for o in operands:
            if not isinstance(o, TensorCore):
                raise TypeError(f"einsum: operands are tensors, got {type(o).__name__}")
            if o.device != operands[0].device:
                raise ValueError(f"einsum: tensors live on {operands[0].device} and {o.device}: move one with .to()")
            tensors.append(o)
        inputs, output = _parse(formula, tensors)
        sizes: dict[str, Size] = {}
        for labels, t in zip(inputs, tensors, strict=True):
            for label, n in zip(labels, t.shape, strict=True):
                old = sizes.setdefault(label, n)
                if old == 1:
                    sizes[label] = n
                elif n != 1 and not same(old, n):
                    raise ValueError(
                        f"einsum: {formula!r}: {label!r} is both {old} and {n} in {[t.shape for t in tensors]}"
                    )
        dtype = promote(*(t.dtype for t in tensors))
        terms = [_diagonals(t.cast(dtype), labels) for t, labels in zip(tensors, inputs, strict=True)]
        while len(terms) > 1:
            i, j = _cheapest([labels for _, labels in terms], output, sizes)
            rest = [t for k, t in enumerate(terms) if k not in (i, j)]
            needed = set(output).union(*(labels for _, labels in rest))
            terms = [*rest, _contract(terms[i], terms[j], needed)]
        t, labels = _summed(*terms[0], set(output))
        found: Self = t.permute(*(labels.index(x) for x in output))
        return found


def _parse(formula: str, tensors: Sequence[TensorCore]) -> tuple[list[Labels], Labels]:
    """The labels of every operand and of the output; those of "..." are numbers, counted from the right."""
    if not isinstance(formula, str):
        raise TypeError(f"einsum: the formula is a string, got {type(formula).__name__}")
    text = formula.replace(" ", "")
    if not re.fullmatch(r"[A-Za-z.,]*(->[A-Za-z.]*)?", text) or re.search(r"(?<!\.)(\.{1,2}|\.{4,})(?!\.)", text):
        raise ValueError(f"einsum: {formula!r} holds more than letters, commas, '...' and one '->'")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(tensors):
        raise ValueError(f"einsum: {formula!r} names {len(parts)} operands, got {len(tensors)}")
    inputs: list[Labels] = []
    widest = 0
    for part, t in zip(parts, tensors, strict=True):
        before, dots, after = part.partition("...")
        many = t.ndim - len(before) - len(after)
        if many < 0 or (many and not dots) or "." in after:
            raise ValueError(f"einsum: {part!r} in {formula!r} does not fit the shape {t.shape}")
        widest = max(widest, many)
        inputs.append((*before, *(str(i) for i in range(many, 0, -1)), *after))
    dots_labels = tuple(str(i) for i in range(widest, 0, -1))
    if arrow:
        before, dots, after = right.partition("...")
        output = (*before, *(dots_labels if dots else ()), *after)
    else:
        letters = [x for labels in inputs for x in labels if x.isalpha()]
        output = (*dots_labels, *sorted(x for x in set(letters) if letters.count(x) == 1))
    known = {x for labels in inputs for x in labels}
    if len(set(output)) != len(output) or not known.issuperset(output):
        raise ValueError(f"einsum: the output of {formula!r} may hold each label of the operands once")
    return inputs, output


def _from_numbers(arguments: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """The other form: tensors and lists of numbers in turns."""

    def text(labels: Sequence[Any]) -> str:
        return "".join("..." if x is Ellipsis else string.ascii_letters[x] for x in labels)

    count = len(arguments) // 2
    formula = ",".join(text(arguments[2 * i + 1]) for i in range(count))
    if len(arguments) % 2:
        formula += "->" + text(arguments[-1])
    return formula, tuple(arguments[2 * i] for i in range(count))


def _diagonals(t: T, labels: Labels) -> tuple[T, Labels]:
    """Each label once."""
    names = list(labels)
    for label in dict.fromkeys(labels):
        while names.count(label) > 1:
            first = names.index(label)
            second = names.index(label, first + 1)
            if not same(t.shape[first], t.shape[second]):
                raise ValueError(f"einsum: {label!r} names axes {first} and {second} of {t.shape}, which differ")
            t = t.diagonal(0, first, second)
            del names[second], names[first]
            names.append(label)
    return t, tuple(names)


def _cheapest(terms: Sequence[Labels], output: Labels, sizes: dict[str, Size]) -> tuple[int, int]:
    """The pair to be contracted first."""

    def count(labels: Iterable[str]) -> int:
        return prod(size_max(sizes[x]) for x in labels)

    def kept(terms: Sequence[Labels], pair: tuple[int, int]) -> frozenset[str]:
        needed = set(output).union(*(labels for k, labels in enumerate(terms) if k not in pair))
        return frozenset(needed.intersection((*terms[pair[0]], *terms[pair[1]])))

    def left(pair: tuple[int, int]) -> tuple[int, int]:
        i, j = pair
        return count(kept(terms, pair)) - count(terms[i]) - count(terms[j]), count({*terms[i], *terms[j]})

    def choices(terms: Sequence[Labels]) -> list[tuple[int, int]]:
        """All pairs, but for products that only grow, where there are others: what sums them would compute them."""
        pairs = list(combinations(range(len(terms)), 2))
        largest = max(map(count, terms))

        def only_grows(pair: tuple[int, int]) -> bool:
            both = {*terms[pair[0]], *terms[pair[1]]}
            return kept(terms, pair) == both and count(both) > largest

        return [p for p in pairs if not only_grows(p)] or pairs

    def multiplied(terms: Sequence[Labels], pair: tuple[int, int]) -> int:
        """By this pair and the best of those after it."""
        i, j = pair
        rest = [*(labels for k, labels in enumerate(terms) if k not in pair), tuple(kept(terms, pair))]
        after = min((multiplied(rest, p) for p in (choices(rest) if len(rest) > 1 else ())), default=0)
        return count({*terms[i], *terms[j]}) + after

    def cost(pair: tuple[int, int]) -> tuple[int, ...]:
        return (multiplied(terms, pair), *left(pair)) if len(terms) <= MOST_ORDERED else left(pair)

    return min(choices(terms), key=cost)


def _summed(t: T, labels: Labels, needed: set[str]) -> tuple[T, Labels]:
    """Without the labels that nobody needs."""
    axes = tuple(i for i, x in enumerate(labels) if x not in needed)
    return (t.sum(axes).cast(t.dtype) if axes else t), tuple(x for x in labels if x in needed)


def _contract(first: tuple[T, Labels], second: tuple[T, Labels], needed: set[str]) -> tuple[T, Labels]:
    """The product of two operands, summed over the labels that nobody else needs."""
    (a, mine), (b, yours) = first, second
    a, mine = _summed(a, mine, needed | set(yours))
    b, yours = _summed(b, yours, needed | set(mine))
    shared = [x for x in mine if x in yours]
    kept = [
        *(x for x in shared if x in needed),
        *(x for x in mine if x not in yours),
        *(x for x in yours if x not in mine),
    ]
    order = [*kept, *(x for x in shared if x not in needed)]
    x, y = _aligned(a, mine, order), _aligned(b, yours, order)
    x, y = x._pair(y, "einsum")
    axes = range(len(kept), len(order))
    return (x._summed_product(y, axes) if axes else x.mul(y)), tuple(kept)


def _aligned(t: T, labels: Labels, order: Sequence[str]) -> T:
    """With the axes in an order, size 1 where it has none."""
    t = t.permute(*(labels.index(x) for x in order if x in labels))
    sizes = iter(t.shape)
    return t._reshape(tuple(next(sizes) if x in labels else 1 for x in order))
