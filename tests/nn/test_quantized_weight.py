"""Matrices of codes of any width, scales and minimums of two levels, codebooks: values and products on every device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, PlanesArg
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import heuristic, optimize
from tinyweb.graph.target import Target, cpu_target, wasm_target
from tinyweb.nn.layers import Embedding, Linear
from tinyweb.nn.quantized_weight import QuantizedWeight, of_codes, split
from tinyweb.tensor import realize_all
from tinyweb.tracing import capture

ROWS, GROUPS, GROUP, BLOCK = 16, 8, 32, 4
KINDS = ("middle", "zeros", "two levels", "codebook", "powers")
Floats = npt.NDArray[np.float32]


def made(kind: str, bits: int, device: str, group: int = GROUP) -> tuple[QuantizedWeight, Floats]:
    """A random matrix, and its values by NumPy."""
    rng = np.random.default_rng(bits)
    codes = rng.integers(0, 1 << bits, (ROWS, GROUPS, group)).astype(np.uint8)
    whole, scales = codes.astype(np.float32), rng.normal(size=(ROWS, GROUPS)).astype(np.float16)
    part: dict[str, Any] = {"codes": codes, "scales": scales}
    wide, least = scales.astype(np.float32), np.zeros((ROWS, GROUPS), np.float32)
    more: dict[str, Any] = {}
    if kind in ("middle", "powers"):
        whole = whole - (1 << (bits - 1))
    if kind == "powers":
        part["scales"] = rng.integers(0, 200, (ROWS, GROUPS)).astype(np.uint8)
        part["scales"][:2] = [[0], [1]]
        wide = np.ldexp(np.float32(1), part["scales"].astype(np.int32) - 128).astype(np.float32)
    if kind == "zeros":
        part["zeros"] = rng.integers(0, 1 << bits, (ROWS, GROUPS)).astype(np.uint8)
        whole = whole - part["zeros"][..., None]
        more["types"] = {"zeros": split(codes, bits)[0][0]}
    if kind == "two levels":
        part["scales"] = rng.integers(-32, 32, (ROWS, GROUPS)).astype(np.int8)
        part["minimums"] = rng.integers(0, 16, (ROWS, GROUPS)).astype(np.uint8)
        more["types"] = {"minimums": dtypes.uint4}
        for name in ("scale_blocks", "minimum_blocks"):
            part[name] = rng.random((ROWS, GROUPS // BLOCK)).astype(np.float16)
        wide, least = (
            part[n].astype(np.float32) * np.repeat(part[f"{n[:-1]}_blocks"].astype(np.float32), BLOCK, axis=1)
            for n in ("scales", "minimums")
        )
    if kind == "codebook":
        table = tuple(int(v) for v in rng.integers(-127, 128, 1 << bits))
        more["codebook"], whole = table, np.array(table, np.float32)[codes]
    with np.errstate(under="ignore"):
        values = whole * wide[..., None] - least[..., None]
    halves = [{n: v[at] for n, v in part.items()} for at in (slice(0, 5), slice(5, ROWS))]
    return of_codes(halves, bits, device, **more), values.reshape(ROWS, -1)


def possible(kind: str, bits: int) -> bool:
    return not (kind == "zeros" and bits not in (1, 2, 4, 8)) and not (kind == "codebook" and bits > 4)


CASES = [(kind, bits) for kind in KINDS for bits in range(1, 9) if possible(kind, bits)]


@pytest.mark.parametrize(  # quickly every other number of bits, of the next kind the others
    ("kind", "bits"),
    [c if (KINDS.index(c[0]) + c[1]) % 2 else pytest.param(*c, marks=pytest.mark.slow) for c in CASES],
)
def test_values_and_products(kind: str, bits: int) -> None:
    check("CPU", kind, bits)


@pytest.mark.parametrize(("kind", "bits"), [("two levels", 4), ("middle", 6), ("codebook", 4), ("powers", 3)])
@pytest.mark.parametrize("device", ["WASM", "WEBGPU", "INTERPRETER"])
def test_other_devices(device: str, kind: str, bits: int) -> None:
    check(device, kind, bits, subnormal=device != "WEBGPU")


@pytest.mark.parametrize(("kind", "bits"), [("two levels", 3), ("two levels", 2), ("middle", 6), ("codebook", 4)])
@pytest.mark.parametrize("group", [16, 128])
def test_other_groups(kind: str, bits: int, group: int) -> None:
    check("CPU", kind, bits, group)


def check(device: str, kind: str, bits: int, group: int = GROUP, subnormal: bool = True) -> None:
    q, dense = made(kind, bits, device, group)
    assert q.shape == dense.shape and q.bits == bits
    # products of scales are exact: what is rounded is one difference, of codes of 7 and 8 bits also a product
    rounded = kind == "two levels" and bits > 6
    relative, absolute = 1e-6 if rounded else 0, 1e-4 if rounded else 0 if subnormal else 1e-37
    np.testing.assert_allclose(q.dense().numpy(), dense, relative, absolute)
    ids = np.array([[3, 1], [0, 15]], np.int32)
    np.testing.assert_allclose(Embedding.of(q)(Tensor(ids, device=device)).numpy(), dense[ids], relative, absolute)
    rng = np.random.default_rng(7)
    given = [rng.integers(-127, 128, (tokens, dense.shape[1])).astype(np.float32) for tokens in (1, 5, 40)]
    for x in given:
        x[:, ::group] = 127  # rounding to 8 bits changes nothing
    kinds = ("float", "int8")
    found = [{how: Linear.of(q)(Tensor(x, device=device), how) for how in kinds} for x in given]
    realize_all([got for both in found for got in both.values()])
    for x, both in zip(given, found, strict=True):
        want = x.astype(np.float64) @ dense.T.astype(np.float64)
        largest = (np.abs(x).astype(np.float64) @ np.abs(dense).T.astype(np.float64)).max(0) + 1e-37
        for how, got in both.items():
            assert (np.abs(got.numpy() - want) <= 2e-6 * largest).all(), (how, len(x))


@pytest.mark.parametrize(
    ("kind", "bits"), [("middle", 4), ("middle", 8), ("zeros", 2), ("two levels", 5), ("powers", 4)]
)
@pytest.mark.parametrize("activations", ["half", "scaled-half"])
def test_halves(kind: str, bits: int, activations: str) -> None:
    """Both factors are rounded to float16, but of few rows, and where scales are powers of two, which that may not
    reach."""
    q, dense = made(kind, bits, "CPU")
    x = np.random.default_rng(7).normal(size=(20, dense.shape[1])).astype(np.float32)
    for rows in (x, x[:15]):
        seen, weights = rows.astype(np.float64), dense.astype(np.float64)
        if len(rows) == 20 and kind != "powers":
            seen, weights = (m.astype(np.float16).astype(np.float64) for m in (seen, dense))
        got, most = q.product(Tensor(rows, device="CPU"), activations).numpy(), np.abs(seen) @ np.abs(weights).T
        assert (np.abs(got - seen @ weights.T) <= 1e-6 * most.max(0)).all()


@pytest.mark.parametrize(
    ("kind", "bits"), [("middle", 4), ("middle", 8), ("zeros", 4), ("two levels", 5), ("codebook", 4)]
)
def test_halves_end(kind: str, bits: int) -> None:
    """Weights beyond float16 are held within it: nothing becomes infinite, and other groups are as they were."""
    q, dense = made(kind, bits, "CPU")
    scales = "scales" if q.scale_blocks is None else "scale_blocks"
    part = np.array(getattr(q, scales).numpy())
    part[::2] = 65504
    x = np.random.default_rng(7).normal(size=(20, dense.shape[1])).astype(np.float32)
    held = replace(q, **{scales: Tensor(part, device="CPU")})
    got, want = (m.product(Tensor(x, device="CPU"), "half").numpy() for m in (held, q))
    np.testing.assert_array_equal(got[:, 1::2], want[:, 1::2])
    assert np.isfinite(got).all()
    assert (np.abs(got - want)[:, ::2] > np.abs(want).max()).any()


def test_memory() -> None:
    """Codes, scales and minimums of the types that were asked for, by name; a product needs no other memory."""
    q, _ = made("two levels", 6, "CPU")
    sizes = {name: t.nbytes() for name, t in q.tensors().items()}
    count = ROWS * GROUPS
    assert sizes == {
        "weight": count * GROUP // 2, "upper0": count * GROUP // 4, "scales": count, "minimums": count // 2,
        "scale_blocks": count // BLOCK * 2, "minimum_blocks": count // BLOCK * 2,
    }  # fmt: skip
    x = Tensor(np.ones((1, GROUPS * GROUP), np.float32))
    plan = capture(lambda: q.product(x).realize())
    assert len(plan.calls) == 1 and plan.temporaries == ()


@pytest.mark.parametrize(("bits", "group"), [(6, 16), (5, 32)])
@pytest.mark.parametrize("target", [cpu_target(8, 2), wasm_target(2), wasm_target(2, relaxed=True)])
def test_planes_are_one_product(bits: int, group: int, target: Target) -> None:
    """Both planes of codes that fill words are read by one kernel, and joined before they are multiplied."""
    q, _ = made("middle", bits, "CPU", group)
    x = Tensor(np.ones((1, q.shape[1]), np.float32)).realize()
    plan = capture(lambda: q.product(x, "int8").realize())
    reads = [c for c in plan.calls if any(u.op is Ops.PARAM and u.dtype.bits < 8 for u in c.kernel.toposort())]
    assert len(reads) == 1
    dots = [u for u in lower(optimize(reads[0].kernel, target), target).uops if u.op is Ops.DOT]
    places = [u.arg.places for u in dots if isinstance(u.arg, PlanesArg)]
    assert {p for _, p in places} == set(range(4 // q.upper[0].dtype.bits))


@pytest.mark.parametrize("target", [cpu_target(8, 2), wasm_target(2), wasm_target(2, relaxed=True)])
def test_minimums_are_part_of_the_product(target: Target) -> None:
    """One kernel reads all that a matrix has whose groups lie in lanes."""
    rng, sizes = np.random.default_rng(0), (ROWS, GROUPS)
    part: dict[str, Any] = {n: rng.random(sizes).astype(np.float16) for n in ("scales", "minimums")}
    q = of_codes([{"codes": rng.integers(0, 16, (*sizes, GROUP)).astype(np.uint8), **part}], 4)
    x = Tensor(np.ones((1, q.shape[1]), np.float32)).realize()
    plan = capture(lambda: q.product(x, "int8").realize(), target)
    memory = {t.uop.buffer for t in q.tensors().values()}
    assert [len(memory.intersection(c.buffers)) for c in plan.calls if memory.intersection(c.buffers)] == [len(memory)]


@pytest.mark.parametrize("target", [cpu_target(8, 2), wasm_target(2), wasm_target(2, relaxed=True)])
def test_lanes_have_sums_of_groups(target: Target) -> None:
    """Instructions for packed integers add up to sums of groups, which vectors of scales are multiplied with."""
    q, _ = made("middle", 4, "CPU")
    x = Tensor(np.ones((1, q.shape[1]), np.float32)).realize()
    kernel = capture(lambda: q.product(x, "int8").realize(), target).calls[-1].kernel
    actions = [str(a) for a in heuristic(kernel, target)]
    assert any(a.startswith("tensorize") for a in actions) and not any(
        a.startswith(("rfactor", "fuse")) for a in actions
    )


@pytest.mark.parametrize("bits", [0, 9])
def test_widths_that_cannot_be(bits: int) -> None:
    with pytest.raises(ValueError, match=f"codes have 1 to 8 bits, not {bits}"):
        split(np.zeros((1, 1, 8), np.uint8), bits)
