"""The schedules that rules of thumb choose for kernels of all sizes are those that were meant.

They are recorded, not derived: what a rule is worth is measured elsewhere (benchmarks), and nothing but a change of
mind may change it. After one, `python -m tests.graph.optimize.test_chosen` writes the record anew, and the difference
of the file shows which kernels it was about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.graph.optimize.families import (
    FAMILIES,
    TARGETS,
    attention,
    batched,
    chained,
    column_sums,
    convolution,
    elementwise,
    grouped,
    product_of,
    row_sums,
    symbolic_product,
    symbolic_rows,
    transposed,
)
from tests.graph.recorded import changed, write
from tinyweb.graph.ir import UOp
from tinyweb.graph.optimize.actions import apply, finished
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.choose import RULES
from tinyweb.graph.optimize.merge import prepared
from tinyweb.graph.target import Target

RECORD = Path(__file__).with_name("chosen.txt")
HOW = "python -m tests.graph.optimize.test_chosen"
# targets that have rules of their own for a family; all where it is not named
ASKED = {
    "products": ("cpu", "cpu16", "wasm", "webgpu"),
    "mixed products": ("cpu", "wasm", "webgpu"),
    "convolutions": ("cpu", "wasm", "webgpu"),
    "rows": ("cpu", "webgpu", "subgroups"),
    "dots": ("cpu", "alone", "wasm"),
    "quantised": ("cpu", "webgpu", "subgroups"),
    "attention": ("cpu", "wasm", "webgpu", "interpreter"),
}


def asked(kernel: UOp, target: Target) -> Iterator[tuple[int, Builder]]:
    """The rules that are for the kernel, by number, and what they make."""
    k = Analysis(prepared(kernel))
    for i, rule in enumerate(RULES[target.family]):
        if rule(builder := Builder(k, target)):
            yield i, builder


def chosen(kernel: UOp, target: Target, again: bool) -> str:
    """The first rule that is for the kernel, and its actions; with `again`, they alone give what it made."""
    number, builder = next(asked(kernel, target))
    assert not again or apply(kernel, builder.actions) is finished(kernel, builder.kernel, builder.actions)
    return "; ".join([RULES[target.family][number].__name__, *map(str, builder.actions)])


def schedules(family: str) -> dict[str, dict[str, str]]:
    """What every kernel of a family gets, by target; on one of them, in turn, it is made again."""
    targets = {name: TARGETS[name] for name in ASKED.get(family, tuple(TARGETS))}
    kernels = {name: make() for name, make in FAMILIES[family].items()}
    return {
        name: {n: chosen(k, t, i % len(targets) == j) for j, (n, t) in enumerate(targets.items())}
        for i, (name, k) in enumerate(kernels.items())
    }


def later(kernel: UOp, target: Target) -> str:
    """What the rules say that are asked when the first one's schedule does not do."""
    _, *others = (builder.actions for _, builder in asked(kernel, target))
    assert not others[-1]  # nothing at all
    return " then ".join("; ".join(map(str, actions)) for actions in others)


LATER = "later rules"
KERNELS: dict[str, Callable[[], UOp]] = {
    "one of each": lambda: elementwise(300),
    "plane": lambda: elementwise(40, 100),
    "cube": lambda: elementwise(7, 40, 65),
    "transposed": lambda: transposed(100, 60),
    "rows": lambda: row_sums(33, 500),
    "one row": lambda: row_sums(1, 4000),
    "columns": lambda: column_sums(300, 40),
    "product": lambda: product_of(64, 80, 96),
    "ragged product": lambda: product_of(33, 70, 50, "tn"),
    "batched": lambda: batched(3, 20, 30, 40),
    "convolution": lambda: convolution(1, 8, 12, 16, 3),
    "symbolic rows": lambda: symbolic_rows(30),
    "symbolic product": lambda: symbolic_product(32, 40),
    "quantised": lambda: grouped(4, 64, 8, 32),
    "attention": lambda: attention(2, 30, 50, 16, 16),
    "chain": lambda: chained(10, 20, 30),
}


def later_schedules() -> dict[str, dict[str, str]]:
    kernels = {name: make() for name, make in KERNELS.items()}
    return {name: {n: later(k, t) for n, t in TARGETS.items()} for name, k in kernels.items()}


def test_what_is_tried_when_that_does_not_do() -> None:
    different = changed(RECORD, LATER, later_schedules())
    assert not different, f"not as recorded (`{HOW}` if that is meant):\n" + "\n".join(different)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_chosen_is_what_was_meant(family: str) -> None:
    found = schedules(family)
    assert len(found) >= 12
    different = changed(RECORD, family, found)
    assert not different, f"not as recorded (`{HOW}` if that is meant):\n" + "\n".join(different)


if __name__ == "__main__":
    write(RECORD, {family: schedules(family) for family in FAMILIES} | {LATER: later_schedules()}, HOW)
