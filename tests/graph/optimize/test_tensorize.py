"""Dots of small integers: what may be one, what spread refuses, the schedules of products of rounded activations."""

from functools import partial

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import BY_NAME, check
from tinyweb import Tensor
from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import Bind, Factor, RFactor, ScheduleError, Split, Tensorize, apply, heuristic, optimize
from tinyweb.graph.target import Target, cpu_target, wasm_target, webgpu_target
from tinyweb.nn.quantize import QuantizedWeight, quantize
from tinyweb.tracing import capture

PROCESSORS = [cpu_target(8, 2), cpu_target(4, 2), wasm_target(2), wasm_target(2, relaxed=True)]
DOT4, OCTETS, PAIRS, NIBBLES = "dot4_i8", "dot4_u8_i8", "dot2_i16", "dot8_u4_i8"
WORDS = "dot4_words"
H = (Split("r1", 2), Bind("r1.1", AxisKind.UNROLL))  # the two integers of a byte


def product(bits: int, tokens: int) -> UOp:
    """The kernel that multiplies rounded activations with quantised weights."""
    q = quantize(np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32), bits)
    assert q is not None
    x = Tensor(np.ones((tokens, 256), np.float32))
    return capture(lambda: q.product(x, "int8").realize()).calls[-1].kernel


@pytest.mark.parametrize("target", PROCESSORS, ids=lambda t: f"{t.name}{t.dot_lanes}")
@pytest.mark.parametrize(("bits", "tokens"), [(8, 1), (4, 1), (8, 2), (4, 2), (8, 32), (4, 32)])
def test_products_are_dots(target: Target, bits: int, tokens: int) -> None:
    """All multiplications of integers of the activations are inside of dots: of bytes without a sign or of pairs where
    there are many tokens, of pairs also where the target has nothing else.
    """
    program = lower(optimize(product(bits, tokens), target), target)
    dots = [u for u in program.uops if u.op is Ops.DOT]
    many = "uint8" if OCTETS in target.instructions else "int16"
    wanted = many if tokens > 8 else "uint32" if bits == 4 else "int8"
    best = next(name for name in target.instructions if bits == 4 or name != NIBBLES)
    if tokens < 8 and best == PAIRS:
        assert {u.src[1].dtype.name for u in dots} == {"int16"}
        wanted = "uint32" if bits == 4 else "int16"
    found = {u.src[0].dtype.name for u in dots}
    assert wanted in found and found <= {wanted, "int8", *(["int16"] if best == PAIRS else [])}  # kept sums
    assert not any(u.op is Ops.MUL and u.dtype.name == "int32" for u in program.uops)
    if best == NIBBLES and bits == 4 and tokens == 1:
        # the activations' even and odd ones are taken out of vectors
        assert {u.arg for u in program.uops if u.op is Ops.LOAD and u.dtype.name == "int8"} <= {4, 8, 16, 32}


def rounded_product(q: QuantizedWeight, x: Tensor) -> Tensor:
    return q.product(x, "int8").realize()


def test_gpus_have_none() -> None:
    assert not any(isinstance(a, RFactor) for a in heuristic(product(8, 1), webgpu_target()))


@pytest.mark.parametrize(
    ("name", "schedule", "message"),
    [
        ("dots_i8", [Bind("r1", AxisKind.DOT)], "by tensorize"),
        ("dots_i8", [Tensorize("r1", "dot5")], "no such instruction, but dot4_i8, dot4_u8_i8, dot2_i16"),
        ("dots_i8", [Tensorize("r1", DOT4)], "takes 4 steps"),
        ("dots_i8", [Split("r1", 8), Tensorize("r1.1", DOT4)], "takes 4 steps"),
        ("dots_i8", [Split("r1", 4), Tensorize("r1.1", PAIRS)], "takes 2 steps"),
        (
            "dots_i8",
            [Split("r1", 4), Bind("r1.1", AxisKind.UNROLL), Tensorize("r1.1", DOT4)],
            "bound to unroll already",
        ),
        ("dots_i8", [Split("r0", 4), Tensorize("r0.1", DOT4)], "takes 4 steps"),
        ("matmul", [Split("r2", 4), Tensorize("r2.1", DOT4)], "there is no axis|takes 4 steps"),
        ("dots_i8", [RFactor("r1")], "no integer sum would be left"),
        ("dots_i8", [RFactor("i0")], "not reduced"),
        ("dots_i8", [RFactor("r0")], "integers that cannot overflow"),
        ("dots_i8", [Split("r1", 4), RFactor("r1.0"), RFactor("r1.0")], "integers that cannot overflow"),
        ("dots_i8", [Factor(("r1",))], "no factor of a sum of floats"),
        ("matmul", [Factor(("r0",))], "no factor of a sum of floats"),
        ("dots_i8_alone", [Split("r1", 2), Tensorize("r1.1", WORDS)], "takes 4 steps"),
        ("dots_i4_alone", [Split("r1", 4), Tensorize("r1.1", WORDS)], "no memory of whole words"),
        ("dots_i8", [Bind("r1", AxisKind.UNROLL), Tensorize("r1", NIBBLES)], "bound to unroll already"),
        ("dots_i8", [Split("r1", 4), Tensorize("r1.1", NIBBLES, "i0")], "takes 4 steps"),
        ("dots_i4", [Split("r1", 4), Tensorize("r1.1", NIBBLES, "i0")], "takes 4 steps"),
        ("dots_i4", [*H, Split("r1.0", 4), Tensorize("r1.0.1", NIBBLES)], "there is no axis ''"),
        ("dots_i4", [*H, Split("r1.0", 4), Tensorize("r1.0.1", NIBBLES, "r0")], "an output loop or of the grid"),
        (
            "dots_i4",
            [*H, Split("r1.0", 4), Bind("i0", AxisKind.UNROLL), Tensorize("r1.0.1", NIBBLES, "i0")],
            "output loop or of",
        ),
    ],
)
def test_refused(name: str, schedule: list[Split | Bind | RFactor | Tensorize], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        apply(BY_NAME[name].kernel, schedule)


@pytest.mark.parametrize(
    "name",
    [
        "dots_i8", "dots_i4", "dots_i4_4", "dots_i8_alone", "dots_i4_alone", "dots_i4_alone_4",
        "dots_u4", "dots_u4_4", "dots_u4_few", "dots_u4_alone", "dots_u4_alone_4",
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", PROCESSORS, ids=lambda t: f"{t.name}{t.dot_lanes}")
def test_heuristic(name: str, target: Target) -> None:
    case = BY_NAME[name]
    program = check(case, optimize(case.kernel, target), target)
    assert any(u.op is Ops.DOT for u in program.uops)


@pytest.mark.parametrize("bits", [8, 4])
def test_gated_rows_are_finished_in_vectors(bits: int) -> None:
    """SwiGLU of two products: the sums of eight rows wait for each other, on any processor with products of pairs."""
    random, rows, width = np.random.default_rng(1), 352, 256
    found = [quantize(random.standard_normal((rows, width)).astype(np.float32), bits, device="WASM") for _ in range(2)]
    x = random.standard_normal((1, width)).astype(np.float32)
    gate, up = (q for q in found if q is not None)
    given = Tensor(x, device="WASM").realize()
    plan = capture(lambda: (gate.product(given, "int8").silu() * up.product(given, "int8")).realize())
    for relaxed in (False, True):
        text = [str(a) for a in heuristic(plan.calls[-1].kernel, wasm_target(2, relaxed))]
        assert any(a.startswith("hoist(") for a in text)
        # a row's scales are converted together, but where lanes have groups, as scales have
        assert any("at=acc." in a for a in text) == (bits == 8)
        assert any("dot8_u4_i8" in a for a in text) == (relaxed and bits == 4)
    if bits == 4:  # both products are of the same activations, whose sums are kept once
        kernel = optimize(plan.calls[-1].kernel, wasm_target(2, True))
        stages = [u for u in kernel.toposort() if u.op is Ops.STAGE and u.dtype.name == "int32"]
        assert len(stages) == 1

    groups = x.reshape(-1, 32)
    steps = (np.abs(groups).max(1) * np.float32(1 / 127)).astype(np.float32)
    rounded = (np.rint(groups * (1 / steps)[:, None]) * steps[:, None]).reshape(1, width).astype(np.float64)
    a, b = (rounded @ q.dense().numpy().astype(np.float64).T for q in (gate, up))
    made = (gate.product(given, "int8").silu() * up.product(given, "int8")).numpy()
    np.testing.assert_allclose(made, a / (1 + np.exp(-a)) * b, rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("target", PROCESSORS, ids=lambda t: f"{t.name}{t.dot_lanes}")
def test_long_rows_of_both_halves_take_turns(bits: int, target: Target) -> None:
    """Far apart in memory, with one load of what both are multiplied with; short rows come one after the other."""
    for width, streams in ((128, False), (2048, True)):
        q = quantize(np.random.default_rng(0).standard_normal((64, width)).astype(np.float32), bits)
        assert q is not None
        kernel = capture(partial(rounded_product, q, Tensor.empty(1, width))).calls[-1].kernel
        assert (Split("i1", 32) in heuristic(kernel, target)) == streams
