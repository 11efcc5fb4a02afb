"""The schedules that rules of thumb choose for kernels of all sizes are those that were meant.

They are recorded, not derived: what a rule is worth is measured elsewhere (benchmarks), and nothing but a change of
mind may change it. After one, `python -m tests.graph.optimize.test_chosen` writes the record anew, and the difference
of the file shows which kernels it was about.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.graph.optimize.families import FAMILIES, TARGETS
from tests.graph.recorded import changed, write
from tinyweb.graph.ir import UOp
from tinyweb.graph.optimize.heuristic import rules
from tinyweb.graph.target import Target

RECORD = Path(__file__).with_name("chosen.txt")
HOW = "python -m tests.graph.optimize.test_chosen"
# targets that have rules of their own for a family; all where it is not named
ASKED = {
    "products": ("cpu", "cpu16", "wasm", "webgpu", "emulated"),
    "mixed products": ("cpu", "wasm", "webgpu", "emulated"),
    "convolutions": ("cpu", "wasm", "webgpu", "emulated"),
    "rows": ("cpu", "webgpu", "subgroups", "emulated"),
    "dots": ("cpu", "alone", "wasm"),
    "quantised": ("cpu", "webgpu", "subgroups", "emulated"),
    "attention": ("cpu", "wasm", "webgpu", "emulated", "interpreter"),
}


def chosen(kernel: UOp, target: Target) -> str:
    """The first rule that is for the kernel, and its actions."""
    for i, rule in enumerate(rules(kernel, target)):
        actions = rule()
        if actions is not None:
            return "; ".join([f"rule {i}", *map(str, actions)])
    raise AssertionError("the last rule is for every kernel")


def schedules(family: str) -> dict[str, dict[str, str]]:
    """What every kernel of a family gets, by target."""
    targets = {name: TARGETS[name] for name in ASKED.get(family, tuple(TARGETS))}
    kernels = {name: make() for name, make in FAMILIES[family].items()}
    return {name: {n: chosen(k, t) for n, t in targets.items()} for name, k in kernels.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_chosen_is_what_was_meant(family: str) -> None:
    found = schedules(family)
    assert len(found) >= 12
    different = changed(RECORD, family, found)
    assert not different, f"not as recorded (`{HOW}` if that is meant):\n" + "\n".join(different)


if __name__ == "__main__":
    write(RECORD, {family: schedules(family) for family in FAMILIES}, HOW)
