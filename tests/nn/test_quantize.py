"""Quantised weights: exactness where it can be, error bounds, layouts, and products against NumPy on every device."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import heuristic, optimize
from tinyweb.graph.target import SSE, Target, cpu_target, wasm_target
from tinyweb.kinds import BITS
from tinyweb.native_runtimes.cpu.runtime import CpuRuntime
from tinyweb.nn.layers import Embedding, Linear
from tinyweb.nn.quantize import (
    QuantizedWeight,
    activations_for,
    group_size,
    quantize,
    quantize_activations,
    quantize_groups,
    quantize_ranges,
)
from tinyweb.tensor import realize_all
from tinyweb.tracing import capture

DEVICES = ("CPU", "WASM", "WEBGPU")
EVERYWHERE = (*DEVICES, "INTERPRETER")


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def restored(groups: np.ndarray, bits: int) -> np.ndarray:
    values, scales = quantize_groups(groups, bits)
    return values.astype(np.float32) * scales.astype(np.float32)[:, None]


@pytest.mark.parametrize("bits", [8, 4])
def test_integers_stay_in_range_and_use_it(bits: int) -> None:
    values, scales = quantize_groups(random(1000, 32), bits)
    low, high = {8: (-127, 127), 4: (-8, 7)}[bits]
    assert values.dtype == np.int8 and scales.dtype == np.float16
    assert values.min() == low and values.max() == high
    assert np.isfinite(scales).all() and (scales != 0).all()


def test_eight_bits_error_is_half_a_step() -> None:
    groups = random(500, 32)
    step = np.abs(groups).max(axis=1, keepdims=True) / 127
    assert (np.abs(restored(groups, 8) - groups) <= step * 0.55).all()


def test_four_bits_error() -> None:
    """Of normally distributed weights 0.7 % of the energy is lost; the search beats the plain maximum by a tenth."""
    groups = random(20_000, 32)
    error = ((restored(groups, 4) - groups) ** 2).sum() / (groups**2).sum()
    scale = np.abs(groups).max(axis=1, keepdims=True) / 7
    plain = np.clip(np.round(groups / scale), -8, 7) * scale
    assert error < 0.007
    assert error < 0.9 * ((plain - groups) ** 2).sum() / (groups**2).sum()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("sign", [1, -1])
def test_representable_groups_are_exact(bits: int, sign: int) -> None:
    top = {8: 127, 4: -8}[bits]
    integers = np.random.default_rng(1).integers(-abs(top) + 1, abs(top), (50, 32))
    integers[:, 3] = top
    groups = (integers * (sign * 0.25)).astype(np.float32)
    np.testing.assert_array_equal(restored(groups, bits), groups)


@pytest.mark.parametrize("bits", [8, 4])
def test_extreme_groups(bits: int) -> None:
    one = np.eye(1, 32)[0]
    groups = np.array([0 * one, one * 0 + 1e-12, one * 0 + 6e4, one * 0 - 1e5, one * 3e38, -one], np.float32)
    values, scales = quantize_groups(groups, bits)
    assert np.isfinite(scales).all()
    got = values.astype(np.float32) * scales.astype(np.float32)[:, None]
    np.testing.assert_array_equal(got[0], 0)
    np.testing.assert_allclose(got[2], groups[2], rtol=1e-3)
    np.testing.assert_allclose(got[5], groups[5], rtol=1e-3)


@pytest.mark.parametrize("bits", sorted(BITS.values()))
@pytest.mark.parametrize("size", [3e-5, 1e-6, 2e-7])
def test_groups_of_the_smallest_scales(bits: int, size: float) -> None:
    """No half float is below 6e-8: weights are not 0 for that, and none is off by more than a step."""
    groups = size * random(200, 32)
    values, scales = quantize_groups(groups, bits)
    assert (scales != 0).all() and values.any(axis=1).mean() > 0.99
    wrong = values.astype(np.float32) * scales.astype(np.float32)[:, None] - groups
    step = np.maximum(np.abs(groups).max(axis=1, keepdims=True) / (1 << (bits - 1)), 2.0**-24)
    assert (np.abs(wrong) <= 1.01 * step).mean() > 0.99
    assert np.linalg.norm(wrong) < (0.2 if bits < 6 else 0.1 if size < 1e-6 else 0.05) * np.linalg.norm(groups)


def test_group_sizes() -> None:
    assert {w: group_size(w) for w in (256, 192, 48, 40, 72, 8, 20, 517, 1)} == {
        256: 32, 192: 32, 48: 16, 40: 8, 72: 8, 8: 8, 20: None, 517: None, 1: None
    }  # fmt: skip
    assert quantize(random(3, 20), 8) is None


def test_other_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="8, 6, 5, 4 or 3 bits, not 7"):
        quantize_groups(random(1, 32), 7)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("bits", "rows", "width"), [(8, 33, 64), (4, 33, 64), (8, 5, 48), (4, 7, 40), (4, 64, 320)])
def test_products_and_rows(device: str, bits: int, rows: int, width: int) -> None:
    weight = random(rows, width)
    q = quantize(weight, bits, device)
    assert q is not None and q.shape == (rows, width)
    assert q.values.dtype is (dtypes.int8 if bits == 8 else dtypes.uint4)
    group = group_size(width)
    assert group is not None
    dense = restored(weight.reshape(-1, group), bits).reshape(rows, width)
    np.testing.assert_array_equal(q.dense().numpy(), dense)
    bias = random(rows, seed=3)
    layer = Linear.of(q, Tensor(bias, device=device))
    given = [random(*shape, seed=2) for shape in ((1, width), (9, width), (2, 3, width))]
    found = [layer(Tensor(x, device=device)) for x in given]
    realize_all(found)
    for x, got in zip(given, found, strict=True):
        np.testing.assert_allclose(got.numpy(), x @ dense.T + bias, atol=2e-4)
    ids = np.array([[rows - 1, 0], [2, 2]], np.int32)
    np.testing.assert_array_equal(Embedding.of(q)(Tensor(ids, device=device)).numpy(), dense[ids])


@pytest.mark.parametrize("bits", [8, 4])
def test_rows_by_id(bits: int) -> None:
    q = quantize(random(6, 16), bits, "INTERPRETER")
    assert q is not None
    ids = np.array([[5, 0], [2, 2]], np.int32)
    np.testing.assert_array_equal(q.rows(Tensor(ids, device="INTERPRETER")).numpy(), restored(random(6, 16), bits)[ids])


@pytest.mark.parametrize("bits", [8, 4])
def test_weights_are_not_expanded_in_memory(bits: int) -> None:
    """A product with a quantised weight is one kernel that reads the packed memory, with no buffers in between."""
    q = quantize(random(256, 128), bits)
    x = Tensor(random(1, 128))
    assert q is not None
    plan = capture(lambda: Linear.of(q)(x).realize())
    assert len(plan.calls) == 1 and plan.temporaries == ()
    assert q.values.nbytes() == 256 * 128 * bits // 8
    assert q.scales.nbytes() == 256 * 4 * 2


def rounded(x: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Activations in 8 bits as NumPy makes them: integers (…, groups, group) and scales (…, groups)."""
    groups = x.reshape(*x.shape[:-1], -1, group)
    scales = np.abs(groups).max(-1) * np.float32(1 / 127)
    with np.errstate(divide="ignore"):
        steps = np.where(scales == 0, np.float32(0), np.float32(1) / scales)
    return np.rint(groups * steps[..., None]).astype(np.int64), scales


SHAPES = [
    (8, 33, 64),
    (4, 33, 64),
    (8, 5, 48),
    (4, 7, 40),
    (4, 19, 320),
    (4, 12, 96),
    (4, 9, 80),
    (4, 8, 104),
    (4, 8, 24),
]


@pytest.mark.parametrize(  # all on the processor, elsewhere quickly those that are made of other instructions
    ("bits", "rows", "width", "device"),
    [
        (*s, device) if device == "CPU" or i < 5 else pytest.param(*s, device, marks=pytest.mark.slow)
        for i, s in enumerate(SHAPES)
        for device in EVERYWHERE
    ],
)
def test_products_with_rounded_activations(device: str, bits: int, rows: int, width: int) -> None:
    """Integer products inside of a group are exact: what differs from NumPy is the sum of groups in float32."""
    weight = random(rows, width)
    q = quantize(weight, bits, device)
    group = group_size(width)
    assert q is not None and group is not None
    values, scales = quantize_groups(weight.reshape(-1, group), bits)
    integers = values.reshape(rows, -1, group).astype(np.int64)
    given = [random(*shape, seed=4) * 3 for shape in ((1, width), (5, width), (2, 5, width), (33, width))]
    for x in given:
        x[..., :group] = 0  # a group of zeros
    found = [q.product(Tensor(x, device=device), "int8") for x in given]
    realize_all(found)
    for x, got in zip(given, found, strict=True):
        wanted, steps = rounded(x, group)
        sums = np.einsum("...gk,rgk->...rg", wanted, integers).astype(np.float64)
        want = (sums * steps[..., None, :] * scales.reshape(rows, -1).astype(np.float64)).sum(-1)
        np.testing.assert_allclose(got.numpy(), want, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("device", ["CPU", "WASM", "INTERPRETER"])
@pytest.mark.parametrize(("bits", "group"), [(8, 16), (8, 96), (4, 16), (4, 48), (4, 96)])
def test_products_with_zero_points(device: str, bits: int, group: int) -> None:
    """Every form of the product is that with (integer - zero point) · scale."""
    weight = random(9, 96) + 0.5
    q = quantize(weight, bits, device, group=group, symmetric=False)
    assert q is not None and q.zeros is not None and q.values.shape == (9, 96 // group, group)
    integers, zeros, scales = (t.numpy().astype(np.float64) for t in (q.values, q.zeros, q.scales))
    dense = ((integers - zeros[..., None]) * scales[..., None]).reshape(9, 96)
    np.testing.assert_allclose(q.dense().numpy(), dense, rtol=1e-6)
    np.testing.assert_allclose(q.rows(Tensor([4, 0], device=device)).numpy(), dense[[4, 0]], rtol=1e-6)
    given = [random(tokens, 96, seed=tokens) * 2 for tokens in (1, 5)]
    found = [[q.product(Tensor(x, device=device), how) for how in ("float", "int8")] for x in given]
    realize_all([got for both in found for got in both])
    for x, (plain, whole) in zip(given, found, strict=True):
        tokens = len(x)
        np.testing.assert_allclose(plain.numpy(), x @ dense.T, rtol=1e-4, atol=1e-4)
        wanted, steps = rounded(x, group)
        rows = (wanted * steps[..., None]).reshape(tokens, 96)
        np.testing.assert_allclose(whole.numpy(), rows @ dense.T, rtol=1e-4, atol=1e-4)
    assert set(q.tensors()) == {"weight", "scales", "zeros"}


@pytest.mark.parametrize(("bits", "gain"), [(8, 1.6), (4, 1.5)])
def test_zero_points_serve_ranges_beside_zero(bits: int, gain: float) -> None:
    weight = random(64, 128) + 2
    errors = []
    for symmetric in (True, False):
        q = quantize(weight, bits, group=64, symmetric=symmetric)
        assert q is not None
        errors.append(np.linalg.norm(q.dense().numpy() - weight))
    assert errors[0] > gain * errors[1]
    shifted = quantize(np.zeros((2, 32)), bits, symmetric=False)
    assert shifted is not None and not shifted.dense().numpy().any(), "a group of zeros stays one"


@pytest.mark.parametrize("bits", [8, 4])
def test_extreme_integers(bits: int) -> None:
    """The largest products there are, of every combination of signs."""
    low, high = (-128, 127) if bits == 8 else (-8, 7)
    values = np.stack([np.full((2, 32), v) for v in (low, high, 0, -1)])
    values[2, 0, ::2] = low
    scales = Tensor(np.ones((4, 2), np.float16))
    stored = Tensor(values, dtype=dtypes.int8) if bits == 8 else Tensor(values + 8, dtype=dtypes.uint4)
    q = QuantizedWeight(stored, scales)
    for sign in (1, -1):
        x = np.full((1, 64), 127 * sign, np.float32)
        for device in ("CPU", "WASM"):
            moved = QuantizedWeight(q.values.to(device), q.scales.to(device))
            got = moved.product(Tensor(x, device=device), "int8").numpy()
            np.testing.assert_allclose(got, x @ values.reshape(4, 64).T, rtol=1e-6)


def test_other_activations_are_refused() -> None:
    q = quantize(random(3, 32), 8)
    assert q is not None
    with pytest.raises(ValueError, match="float, half, scaled-half, int8, not 'f16'"):
        q.product(Tensor(random(1, 32)), "f16")


@pytest.mark.parametrize(("tokens", "axis"), [(1, "r1"), (8, "r1"), (32, "i1")])
def test_lanes_lie_along_rows_for_many_tokens(tokens: int, axis: str) -> None:
    q = quantize(random(64, 128), 8)
    assert q is not None
    plan = capture(lambda: q.product(Tensor(random(tokens, 128)), "int8").realize())
    vectors = [a for a in heuristic(plan.calls[-1].kernel, cpu_target(8, 2)) if "vector" in str(a)]
    assert [str(a).startswith(f"bind({axis}.") for a in vectors] == [True]


@pytest.mark.parametrize("bits", [8, 4])
def test_two_kernels_for_rounded_activations(bits: int) -> None:
    """Scales with integers, and the product, which reads both."""
    q = quantize(random(256, 128), bits)
    assert q is not None
    plan = capture(lambda: q.product(Tensor(random(1, 128)), "int8").realize())
    assert [len(call.kernel.src) for call in plan.calls] == [2, 1]


def searched(group: np.ndarray) -> tuple[np.ndarray, float]:
    """Four bits by the definition: nine places for the largest from -10 to -6, least squares after each."""

    def half(scale: np.float32) -> np.float32:
        rounded = np.float32(np.float16(np.clip(scale, -65504, 65504)))
        return rounded if rounded else np.float32(1)

    largest, best = group[np.abs(group).argmax()], np.inf
    for place in (-10, -9.5, -9, -8.5, -8, -7.5, -7, -6.5, -6):
        values = np.clip(np.round(group / half(largest / np.float32(place))), -8, 7).astype(np.float32)
        square = (values * values).sum()
        scale = half((values * group).sum() / square) if square else half(largest / np.float32(place))
        error = ((values * scale - group) ** 2).sum()
        if error < best:
            best, found = error, (values, float(scale))
    return found


def test_four_bits_by_definition() -> None:
    groups = random(40, 32) * np.float32(10) ** np.arange(-4, 4, 0.2, dtype=np.float32)[:40, None]
    groups[3], groups[4, 1:] = 0, 0
    groups[5] = [168, *[0] * 31]  # eights, sevenths and sixths are all exact: the first stays
    values, scales = quantize_groups(groups, 4)
    for group, got, scale in zip(groups, values, scales, strict=True):
        want, step = searched(group)
        assert got.tolist() == want.tolist() and scale == step


@pytest.mark.parametrize("bits", [8, 4])
def test_groups_by_the_million_are_taken_in_turns(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = random(23, 8)
    whole = quantize_groups(groups, bits)
    module = sys.modules["tinyweb.nn.quantize"]
    name = {8: "_eight_bits", 4: "_few_bits"}[bits]
    one, taken = getattr(module, name), list[int]()

    def note(some: np.ndarray, *rest: Any) -> tuple[np.ndarray, np.ndarray]:
        taken.append(len(some))
        return one(some, *rest)

    monkeypatch.setattr(module, name, note)
    for chunk, rows in ((1, 1), (8, 1), (40, 5), (183, 22), (184, 23), (1 << 22, 23)):
        monkeypatch.setattr(module, "CHUNK", chunk)
        for a, b in zip(quantize_groups(groups.astype(np.float64), bits), whole, strict=True):
            np.testing.assert_array_equal(a, b)
        assert taken == [rows] * (23 // rows) + [23 % rows] * (23 % rows > 0)
        taken.clear()
    values, scales = quantize_groups(groups[:0], bits)
    assert values.shape == (0, 8) and scales.shape == (0,)


def test_scales_stay_half_floats() -> None:
    groups = np.array([[65504 * 127, -65504 * 127], [1e30, 0], [1e-9, -1e-9], [127, -64.5], [0, -1e30]], np.float32)
    values, scales = quantize_groups(groups, 8)
    assert scales.tolist() == [65504, 65504, 2**-24, 1, 65504]
    assert values.tolist() == [[127, -127], [127, 0], [0, 0], [127, -64], [0, -127]]


def test_every_group_size() -> None:
    for width in range(1, 300):
        assert group_size(width) == next((g for g in (32, 16, 8) if width % g == 0), None)


def test_names_of_formats() -> None:
    kept = {name: quantize(random(2, 32), bits, "INTERPRETER") for name, bits in BITS.items()}
    planes = {name: [t.dtype.name for t in (q.values, *q.upper)] for name, q in kept.items()}
    assert planes == {
        "q8": ["int8"], "q6": ["uint4", "uint2"], "q5": ["uint4", "uint1"], "q4": ["uint4"], "q3": ["uint2", "uint1"]
    }  # fmt: skip


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [6, 5, 3])
def test_errors_and_products_of_other_widths(bits: int, symmetric: bool) -> None:
    weight, x = random(24, 96), random(3, 96, seed=3)
    q = quantize(weight, bits, "INTERPRETER", symmetric=symmetric)
    assert q is not None and q.bits == bits
    dense = q.dense().numpy()
    error = np.linalg.norm(dense - weight) / np.linalg.norm(weight)
    assert 0.15 / 2**bits < error < 1.4 / 2**bits
    for activations, near in (("float", 1e-4), ("int8", 0.2)):
        got = q.product(Tensor(x, device="INTERPRETER"), activations).numpy()
        np.testing.assert_allclose(got, x @ dense.T, atol=near)


@pytest.mark.parametrize("quantised", [quantize_groups, quantize_ranges])
def test_what_counts_more_has_less_error(quantised: Any) -> None:
    groups, importance = random(64, 32), np.ones((1, 32), np.float32)
    importance[0, :4] = 1000
    errors = []
    for counts in (None, importance):
        values, scales, *zeros = quantised(groups, 3, counts)
        multiples = values.astype(np.float32) - (zeros[0][:, None] if zeros else 0)
        errors.append(((multiples * scales[:, None] - groups) ** 2)[:, :4].sum())
    assert errors[1] < 0.9 * errors[0]


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(
    ("rows", "target", "kept"),
    [
        (1, cpu_target(8, 2), "int8"),
        (1, cpu_target(8, 2, instructions=SSE), "int16"),
        (1, wasm_target(2), "int16"),
        (16, cpu_target(8, 2), "int8"),
        (16, wasm_target(2), "int16"),
        (40, cpu_target(8, 2, instructions=SSE), "int16"),
        (40, cpu_target(8, 2), "uint8"),
    ],
)
def test_what_activations_are_kept_in_is_the_schedules(bits: int, rows: int, target: Target, kept: str) -> None:
    """Memory has 8 bits; a kernel has them as its instruction takes them."""
    q = quantize(random(64, 128), bits)
    assert q is not None
    plan = capture(lambda: q.product(Tensor(random(rows, 128)), "int8").realize())
    kernel = plan.calls[-1].kernel
    assert {u.dtype.name for u in kernel.toposort() if u.op is Ops.LOAD} == {
        "int8" if bits == 8 else "uint4", "int8", "float16", "float32",
    }  # fmt: skip
    program = lower(optimize(kernel, target), target)
    octets = bits == 4 and target.instructions[0] == "dot8_u4_i8" and rows < 32
    whole = {"int8", "uint8"} if kept == "uint8" else {"int8" if octets else kept}
    assert {s.dtype.name for u in program.uops if u.op is Ops.DOT for s in u.src[kept != "uint8" : -1]} == whole


def test_what_a_target_multiplies_with() -> None:
    assert activations_for(replace(cpu_target(8, 2), dot_lanes=0)) == "float"
    assert activations_for(replace(cpu_target(8, 2), dot_lanes=4)) == "int8"


@pytest.mark.parametrize(
    ("flags", "best"),
    [
        ({"avx2", "avx512_vnni"}, "dot4_i8"),
        ({"avx2", "avx_vnni"}, "dot4_i8"),
        ({"asimddp"}, "dot4_i8"),
        ({"asimddp", "i8mm"}, "mma_2x2x8_i8"),
        ({"avx2"}, "dot2_i16"),
        (set(), "dot4_i8"),
    ],
)
def test_instructions_of_this_processor(flags: set[str], best: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices, else products of four bytes, are preferred where the processor says that it has them, or nothing; of
    what takes signed bytes."""
    monkeypatch.setattr("tinyweb.native_runtimes.cpu.runtime._processor_flags", lambda: flags)
    instructions = CpuRuntime(1).target.instructions
    assert next(i for i in instructions if i not in ("dot8_u4_i8", "dot4_u8_i8")) == best


@pytest.mark.parametrize(("groups", "group"), [(1, 8), (2, 32), (3, 32), (8, 8), (6, 16), (1, 128)])
def test_rounded_activations(groups: int, group: int) -> None:
    x = random(2, groups, group, seed=5)
    x[0, 0] = 0
    x[1, 0, :4] = 127, 2.5, -3.5, 0.5
    want, steps = rounded(x.reshape(2, -1), group)
    integers, scales = quantize_activations(Tensor(x, device="INTERPRETER"))
    assert integers.dtype is dtypes.int8 and integers.numpy().tolist() == want.tolist()
    np.testing.assert_array_equal(scales.numpy(), steps)
