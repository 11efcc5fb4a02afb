"""A tensor multiplied with itself, and what is like it, on every runtime, sizes 1 to 2000: values against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from tinyweb import Tensor, nn
from tinyweb.device import Device, OpenDevice
from tinyweb.nn.quantize import quantize

U = 2.0**-24
DEVICES = ["CPU", "CPU 1", "WASM", "WEBGPU", "INTERPRETER"]
FEW = [1, 2, 3, 7, 16, 33, 64, 100]
MANY = [*range(4, 40), 63, 65, 127, 128, 129, 200, 255, 256, 257, 300, 384, 500]
LARGE = [512, 777, 1000, 1024, 2000]


@pytest.fixture
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device's name; "CPU 1" is the CPU with one thread."""
    name, _, threads = request.param.partition(" ")
    if threads:
        monkeypatch.setenv("TINYWEB_THREADS", threads)
        monkeypatch.setitem(Device._open, name, OpenDevice(name))
    return name


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape[-1]).standard_normal(shape).astype(np.float32)


def close(got: np.ndarray, want: np.ndarray, size: np.ndarray, steps: int, text: str) -> None:
    """A sum of `steps` products in any order is wrong by at most their number of roundings of what it adds up."""
    wrong = np.abs(got - want) > 2 * (steps + 2) * U * size + 1e-37
    assert got.shape == want.shape and not wrong.any(), f"{text}: {int(wrong.sum())} of {wrong.size} wrong"


PRODUCTS = ["x @ x", "x @ x.T", "x.T @ x", "x.T @ x.T", "x @ x + x", "x @ x[:, ::2]", "x[1:] @ x"]


def products(sizes: Iterable[tuple[int, int]], device: str, most: int) -> None:
    """All that fit the shapes, computed together: their kernels are compiled in one go."""
    made: list[tuple[str, np.ndarray, Tensor]] = []
    for m, n in sizes:
        x = normal(m, n)
        t = Tensor(x, device=device)
        for text in PRODUCTS:
            if (m == n or text in ("x @ x.T", "x.T @ x")) and m * n * min(m, n) <= most:
                made.append((text, x, eval(text, {"x": t})))
    assert made
    Tensor.realize(*(t for *_, t in made))
    for text, x, t in made:
        wide = x.astype(np.float64)
        want, size = (eval(text, {"x": a}) for a in (wide, np.abs(wide)))
        close(t.numpy(), want, size, max(x.shape), f"{text} of {x.shape} on {device}")


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_products(device: str) -> None:
    products([(n, n) for n in FEW], device, 1 << 20)


@pytest.mark.parametrize("device", ["CPU", "CPU 1", "WASM"], indirect=True)
def test_products_that_are_staged(device: str) -> None:
    """From about these sizes both operands come from nearer memory."""
    products([(256, 256), (2000, 64)], device, 1 << 25)


# multiplications of the largest product that a runtime without hardware of its own carries out in minutes
MOST = {"INTERPRETER": 1 << 21, "WEBGPU": 1 << 26}
SIZES = (MANY[:18], MANY[18:36], MANY[36:42], MANY[42:], LARGE)
PARTS = [
    pytest.param(fitting, device, id=f"to {fitting[-1]}-{device}")
    for device in DEVICES
    for sizes in SIZES
    if (fitting := [n for n in sizes if n**3 <= MOST.get(device, 1 << 33)])
]


@pytest.mark.slow
@pytest.mark.parametrize(("fitting", "device"), PARTS, indirect=["device"])
def test_products_of_more_sizes(fitting: list[int], device: str) -> None:
    most = MOST.get(device, 1 << 33)
    shapes = [(n, n) for n in fitting] + [(n, 64) for n in fitting] + [(30, n) for n in fitting]
    products([*shapes, (5000, 64)] if max(fitting) > 1000 else shapes, device, most)


# -- of other types, and in other words ----------------------------------------------------------------------------
def gram(q: Any) -> Tensor:
    """The products of all pairs of quantised rows: sums of integers in groups, times both scales."""
    v, s = q.values.int() - q.zero, q.scales.float()
    sums = (v.unsqueeze(1) * v.unsqueeze(0)).sum(-1)
    return (sums.float() * (s.unsqueeze(1) * s.unsqueeze(0))).sum(-1)


def unit_rows(x: Any) -> Any:
    return x / (x * x).sum(1, keepdims=True) ** 0.5


def updated(t: Tensor) -> Tensor:
    t = t.contiguous().realize()
    t += t @ t.T
    return t


def softmax(s: np.ndarray) -> np.ndarray:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def newton_schulz(x: np.ndarray) -> np.ndarray:
    a, b, c = nn.optim.Muon.COEFFICIENTS
    x = x / np.sqrt((x * x).sum())
    for _ in range(5):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x


KIN: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "einsum": (lambda t: Tensor.einsum("ij,kj->ik", t, t), lambda x: x @ x.T),
    "three times": (lambda t: (t @ t) * t @ t.T, lambda x: (x @ x) * x @ x.T),
    "power": (lambda t: (t * 0.05).matrix_power(5), lambda x: np.linalg.matrix_power(x * x.dtype.type(0.05), 5)),
    "cov": (lambda t: t.cov(), np.cov),
    "corrcoef": (lambda t: t.corrcoef(), np.corrcoef),
    "similarity": (
        lambda t: (t / (t * t).sum(1, keepdim=True).sqrt()) @ (t / (t * t).sum(1, keepdim=True).sqrt()).T,
        lambda x: unit_rows(x) @ unit_rows(x).T,
    ),
    "attention": (lambda t: t.scaled_dot_product_attention(t, t), lambda x: softmax(x @ x.T / x.shape[1] ** 0.5) @ x),
    "softmax": (lambda t: (t @ t.T * 0.1).softmax(-1) @ t, lambda x: softmax(x @ x.T * x.dtype.type(0.1)) @ x),
    "batches": (
        lambda t: t.reshape(4, -1, t.shape[1]) @ t.reshape(4, -1, t.shape[1]).transpose(1, 2),
        lambda x: (b := x.reshape(4, -1, x.shape[1])) @ b.transpose(0, 2, 1),
    ),
    "in place": (updated, lambda x: x + x @ x.T),
    "a row": (lambda t: t @ t[0], lambda x: x @ x[0]),
    "Muon": (lambda t: nn.optim.Muon([t]).orthogonalize(t), newton_schulz),
}


def kin(n: int, device: str, names: Iterable[str]) -> None:
    """NumPy in float32 is wrong by rounding as well: sixteen times that, of the largest element, is plenty."""
    x = normal(n, n)
    t = Tensor(x, device=device)
    made = {name: KIN[name][0](t) for name in names}
    Tensor.realize(*made.values())
    for name, got in made.items():
        want, single = (np.asarray(KIN[name][1](a), np.float64) for a in (x.astype(np.float64), x))
        bound = 16 * np.abs(want - single).max() + 64 * U * np.abs(want).max()
        assert np.abs(got.numpy() - want).max() <= bound, (name, n, device)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_kin(device: str) -> None:
    kin(36, device, KIN)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["CPU", "CPU 1", "WASM", "WEBGPU"], indirect=True)
@pytest.mark.parametrize("n", [64, 256, 300, 512])
def test_kin_of_more_sizes(n: int, device: str) -> None:
    kin(n, device, [name for name in KIN if name != "three times" or n <= 256])


def test_a_step_of_muon() -> None:
    """As training calls it, at a size where products are staged."""
    x, g = normal(256, 256), normal(1, 256, 256)[0]
    weight = Tensor(x)
    step = nn.optim.Muon([weight], lr=0.1, weight_decay=0.0, nesterov=False)
    weight.grad = Tensor(g)
    step.step()
    want, single = (x - 0.1 * newton_schulz(a) for a in (g.astype(np.float64), g))
    assert np.abs(weight.numpy() - want).max() <= 16 * np.abs(want - single).max() + 64 * U * np.abs(want).max()


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_other_types(device: str) -> None:
    n = 48 if device in ("WEBGPU", "INTERPRETER") else 264
    rng = np.random.default_rng(1)
    whole, halves = rng.integers(-9, 10, (n, n)), normal(n, n).astype(np.float16)
    small, half = Tensor(whole.astype(np.int8), device=device), Tensor(halves, device=device)
    weights = {bits: quantize(normal(n, 64), bits, device) for bits in (8, 4)}
    narrow = [small @ small, small.int() @ small.int().T, (small.int().unsqueeze(1) * small.int().unsqueeze(0)).sum(-1)]
    wide = [half.float() @ half.float(), half.float().T @ half.float()]
    quantised = [gram(q) for q in weights.values()] + [q.product(q.dense()) for q in weights.values()]
    Tensor.realize(*narrow, *wide, *quantised)
    products = whole @ whole.T
    for got, want in zip(narrow, ((whole @ whole).astype(np.int8), products, products), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)
    h = halves.astype(np.float64)
    for got, (a, b) in zip(wide, ((h, h), (h.T, h)), strict=True):
        close(got.numpy(), a @ b, np.abs(a) @ np.abs(b), n, "halves")
    for got, q in zip(quantised, [*weights.values()] * 2, strict=True):
        d = q.dense().numpy().astype(np.float64)
        close(got.numpy(), d @ d.T, np.abs(d) @ np.abs(d).T, 64 + 6, "quantised")


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_convolutions_with_a_part_of_the_picture(device: str) -> None:
    n = 12 if device in ("WEBGPU", "INTERPRETER") else 34
    x = normal(8, 6, n, n)
    got = (t := Tensor(x, device=device)).conv2d(t[:7, :, 3:6, 1:4], padding=1).numpy()
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    part = x[:7, :, 3:6, 1:4].astype(np.float64)
    want, size = (np.einsum("bcyxuv,ocuv->boyx", a, b) for a, b in ((windows, part), (np.abs(windows), np.abs(part))))
    close(got, want, size, 6 * 9, "convolution")
