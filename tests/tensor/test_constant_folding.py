"""What is computed before the run has the value that the run would give it: random expressions of every dtype, once
with all operands in memory, once with some of them known to the compiler.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from tests.tensor.test_dtypes import TYPES, edges, same
from tinyweb import Tensor
from tinyweb.dtype import DType, dtypes
from tinyweb.tensor import realize_all

LANES = 7
Maker = Callable[[list[Tensor]], Tensor]

INT_BINARY: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a // b, lambda a, b: a % b,
    lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b, lambda a, b: a << b, lambda a, b: a >> b,
    lambda a, b: a.maximum(b), lambda a, b: a.minimum(b), lambda a, b: (a < b).where(a, b),
    lambda a, b: (a == b).where(b + 1, a), lambda a, b: a // (b & min(7, int(b.dtype.max))), lambda a, b: a % (b | 1),
)  # fmt: skip
# narrow floats are rounded where the run stores them, and a product may be fused with a sum: both are left out
NARROW_BINARY: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: a.maximum(b), lambda a, b: a.minimum(b),
    lambda a, b: (a < b).where(a, b), lambda a, b: (a == b).where(b, a),
)  # fmt: skip
FLOAT_BINARY = (*NARROW_BINARY, lambda a, b: a + b, lambda a, b: a - b)
BOOL_BINARY: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b, lambda a, b: a.where(b, a), lambda a, b: a < b,
)  # fmt: skip
UNARY: tuple[Callable[[Tensor], Tensor], ...] = (lambda a: -a, lambda a: a.abs(), lambda a: a)


def expression(chance: random.Random, t: DType, leaves: list[DType], depth: int, types: tuple[DType, ...]) -> Maker:
    """A function that builds one expression of dtype `t` from operands; `leaves` grows by the dtype of each operand."""
    kind = chance.random()
    if depth == 0 or kind < 0.15:
        number = len(leaves)
        leaves.append(t)
        return lambda xs: xs[number]
    if kind < 0.4:
        source = chance.choice(types)
        below = expression(chance, source, leaves, depth - 1, types)
        return lambda xs: below(xs).cast(t)
    a = expression(chance, t, leaves, depth - 1, types)
    if kind < 0.5 and t is not dtypes.bool:
        unary = chance.choice(UNARY)
        return lambda xs: unary(a(xs))
    b = expression(chance, t, leaves, depth - 1, types)
    floats = NARROW_BINARY if t.bits < 32 else FLOAT_BINARY
    binary = chance.choice(INT_BINARY if t.is_int else floats if t.is_float else BOOL_BINARY)
    return lambda xs: binary(a(xs), b(xs))


def check(device: str, seed: int, count: int) -> None:
    chance = random.Random(seed)
    types = tuple(t for t in TYPES if not (t is dtypes.float64 and device == "WEBGPU"))
    made: list[tuple[Tensor, Tensor, str]] = []
    for n in range(count):
        t = types[n % len(types)]
        leaves: list[DType] = []
        build = expression(chance, t, leaves, 4, types)
        # one value for all elements: then it may be known beforehand
        values = [edges(d)[chance.randrange(len(edges(d)))] for d in leaves]
        memory = [Tensor(np.full(LANES, v), d, device) for v, d in zip(values, leaves)]
        known = [Tensor(v.item(), d, device) if chance.random() < 0.7 else m for v, d, m in zip(values, leaves, memory)]
        shown = ", ".join(f"{v!r}: {d.name}" for v, d in zip(values, leaves))
        made.append((build(memory) + Tensor.zeros(LANES, dtype=t, device=device) if t is not dtypes.bool
                     else build(memory), build(known), f"expression {n} of {t.name} ({shown})"))  # fmt: skip
    realize_all([x for run, folded, _ in made for x in (run, folded)])
    for run, folded, label in made:
        want = run.numpy()
        same(np.broadcast_to(folded.numpy(), want.shape).copy(), want, run.dtype, device, label, signs=False)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU", "INTERPRETER"])
def test_known_operands(device: str) -> None:
    check(device, 0, 51)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU", "INTERPRETER"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_known_operands_of_many(device: str, seed: int) -> None:
    check(device, seed, 170)
