"""What the host does between two launches of what is recorded: it finds what the number of depends on values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyweb.array.core import TensorCore, realize_all
from tinyweb.array.realize import due
from tinyweb.device import current_recorder
from tinyweb.graph.ir import UOp


@dataclass(frozen=True)
class HostStep:
    """`operator` finds rows of whole numbers in `inputs`, and writes them to `output` (most, columns), int32.
    `variable` is their number from then on; without an output it is what the input says. All are memory from outside,
    of inputs the part in use; `numbers` are parameters.
    """

    operator: str
    inputs: tuple[TensorCore, ...]
    output: TensorCore | None
    variable: UOp
    numbers: tuple[tuple[str, float], ...] = ()


def add_host_step(step: HostStep, given: Sequence[TensorCore]) -> None:
    """The host is to carry out a step with these values as its inputs, which are written to their memory first.
    NotImplementedError where nothing is recorded that has a host.
    """
    recorder = current_recorder()
    if recorder is None or recorder.host_steps is None:
        raise NotImplementedError("a shape depends on values, which only a bundle's host can wait for")
    for memory, value in zip(step.inputs, given, strict=True):
        memory.assign(value)
    realize_all([*step.inputs, *due()])
    recorder.host_steps.append((len(recorder.schedules), step))
