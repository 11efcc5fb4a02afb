"""Products on an NVIDIA GPU's tensor cores: sizes, epilogues and orders of operands. Where there is no GPU, the text of
kernels runs on the processor, for small matrices."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.native_runtimes.text.runtime import TEXTS
from tinyweb import Tensor
from tinyweb.device import Device
from tinyweb.dtype import DType, dtypes
from tinyweb.errors import TinywebError
from tinyweb.graph.ir import Fragments, Ops
from tinyweb.graph.lower import program_for
from tinyweb.tracing import capture

F16, BF16, F32, I8, I32 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.int8, dtypes.int32


def _device() -> str:
    try:
        Device["CUDA"]
    except TinywebError:
        return TEXTS[0]
    return "CUDA"


DEVICE = _device()
MOST = 1 << 25  # products that the processor multiplies
pytestmark = [pytest.mark.slow] if DEVICE in TEXTS else []


def fits(*sizes: int) -> None:
    """Skips what takes the processor minutes."""
    if DEVICE in TEXTS and np.prod(sizes) > MOST:
        pytest.skip("no NVIDIA GPU for so many products")


rng = np.random.default_rng(11)


def numbers(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def on_device(values: np.ndarray, dtype: DType) -> tuple[Tensor, np.ndarray]:
    """A tensor of the device, and its values in float64."""
    t = Tensor(values, device=DEVICE).cast(dtype).realize()
    return t, t.cast(F32).numpy().astype(np.float64)


def with_matrices(compute: Callable[[], Tensor]) -> bool:
    """Whether kernels have matrix instructions."""
    target = Device[DEVICE].runtime.target
    programs = [program_for(c.kernel, target) for c in capture(lambda: compute().realize()).calls]
    return any(u.op is Ops.DOT and isinstance(u.arg, Fragments) for p in programs for u in p.uops)


def check(got: Tensor, want: np.ndarray, steps: int) -> None:
    scale = np.sqrt(steps)
    np.testing.assert_allclose(got.cast(F32).numpy(), want, rtol=1e-2, atol=2e-3 * scale + 1e-2 * scale / 10)


SIZES = (
    [(64, 64, 64), (128, 256, 64), (512, 512, 512), (1024, 768, 3072), (16, 4096, 4096), (100, 100, 100)]
    + [(17, 33, 65), (1000, 1000, 1000), (257, 511, 129), (64, 50257, 64), (31, 129, 2049), (4096, 32, 48)]
    + [tuple(int(n) for n in rng.integers(16, 700, 3)) for _ in range(12)]
)


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("m,n,k", SIZES)
def test_sizes(m: int, n: int, k: int, dtype: DType) -> None:
    fits(m, n, k)
    (a, x), (b, y) = on_device(numbers(m, k), dtype), on_device(numbers(k, n), dtype)
    check(a @ b, x @ y, k)


@pytest.mark.parametrize("flipped", [(i, j) for i in (False, True) for j in (False, True)])
@pytest.mark.parametrize("m,n,k", [(256, 384, 128), (130, 70, 200), (512, 512, 96)])
def test_orders(m: int, n: int, k: int, flipped: tuple[bool, bool]) -> None:
    fits(m, n, k)
    a, x = on_device(numbers(k, m) if flipped[0] else numbers(m, k), F16)
    b, y = on_device(numbers(n, k) if flipped[1] else numbers(k, n), F16)
    a, x = (a.T, x.T) if flipped[0] else (a, x)
    b, y = (b.T, y.T) if flipped[1] else (b, y)
    check(a @ b, x @ y, k)


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_they_are_used(dtype: DType) -> None:
    a, b = (Tensor.empty(512, 512, dtype=dtype, device=DEVICE) for _ in range(2))
    assert with_matrices(lambda: a @ b)


@pytest.mark.parametrize("m,n,k", [(256, 512, 256), (77, 200, 100)])
def test_epilogues(m: int, n: int, k: int) -> None:
    fits(m, n, k)
    (a, x), (b, y), (c, z) = (on_device(numbers(*s), F16) for s in ((m, k), (k, n), (n,)))
    product = x @ y / 16
    check(((a @ b).cast(F32) / 16 + c.cast(F32)).relu(), np.maximum(product + z, 0), k)
    gelu = ((a @ b).cast(F32) / 16 + c.cast(F32)).gelu("tanh").numpy()
    v = product + z
    want = 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)))
    np.testing.assert_allclose(gelu, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    "heads,rows,columns,width", [(8, 128, 128, 64), (6, 197, 197, 64), (4, 1, 300, 128), (3, 65, 33, 80)]
)
def test_attention_shapes(heads: int, rows: int, columns: int, width: int) -> None:
    fits(2, heads, rows, columns, width)
    (q, x), (k, y), (v, z) = (on_device(numbers(2, heads, n, width), F16) for n in (rows, columns, columns))
    check(q @ k.transpose(-1, -2), x @ y.swapaxes(-1, -2), width)
    p, w = on_device(rng.random((2, heads, rows, columns)).astype(np.float32), F16)
    check(p @ v, w @ z, columns)


@pytest.mark.parametrize("m,n,k", [(128, 128, 128), (256, 512, 1024), (33, 65, 129), (100, 200, 300)])
def test_bytes(m: int, n: int, k: int) -> None:
    fits(m, n, k)
    x, y = (rng.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (k, n)))
    a, b = (Tensor(v, device=DEVICE) for v in (x, y))
    product = (a.cast(I32).reshape(m, 1, k) * b.cast(I32).T.reshape(1, n, k)).sum(-1)
    np.testing.assert_array_equal(product.cast(I32).numpy(), x.astype(np.int32) @ y.astype(np.int32))


ATTENTIONS = [
    (2, 2, 64, 128, 64, False), (16, 16, 2048, 2048, 128, False), (8, 2, 300, 517, 64, True),
    (4, 4, 130, 257, 32, True), (2, 1, 33, 40, 80, False), (1, 1, 100, 1000, 256, True), (3, 3, 16, 5, 16, False),
    (12, 4, 1024, 1024, 96, True),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("heads,shared,rows,keys,width,causal", ATTENTIONS)
def test_attention(heads: int, shared: int, rows: int, keys: int, width: int, causal: bool, dtype: DType) -> None:
    """Both products of a fused attention, causal or not, with heads that share keys and values."""
    (q, x), (k, y), (v, z) = (
        on_device(numbers(*s), dtype) for s in ((heads, rows, width), *[(shared, keys, width)] * 2)
    )

    def attend() -> Tensor:
        return q.scaled_dot_product_attention(k, v, is_causal=causal, enable_gqa=True)

    assert with_matrices(attend)
    y, z = (np.repeat(t, heads // shared, 0) for t in (y, z))
    scores = x @ y.swapaxes(-1, -2) * width**-0.5
    if causal:
        scores = np.where(np.arange(keys) <= np.arange(rows)[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ z
    tolerance = 2e-2 if dtype is BF16 else 3e-3
    np.testing.assert_allclose(attend().cast(F32).numpy(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masked_attention(kind: str) -> None:
    (q, x), (k, y), (v, z) = (on_device(numbers(2, n, 64), F16) for n in (70, 150, 150))
    keep = rng.random((70, 150)) < 0.3
    keep[5] = False
    scores = x @ y.swapaxes(-1, -2) / 8
    if kind == "bool":
        mask, scores = Tensor(keep, device="CUDA"), np.where(keep, scores, -np.inf)
    else:
        bias = numbers(70, 150)
        mask, scores = Tensor(bias, device="CUDA"), scores + bias
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        want = np.nan_to_num(weights / weights.sum(-1, keepdims=True) @ z)
    got = q.scaled_dot_product_attention(k, v, mask).cast(F32).numpy()
    np.testing.assert_allclose(got, want, rtol=3e-3, atol=3e-3)
