"""Attention whose two products are matrix instructions of subgroups: values, what is multiplied, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import from_bf16, run, to_bf16
from tests.graph.optimize.test_online import attend
from tinyweb import Tensor
from tinyweb.dtype import BY_NAME, DType, dtypes
from tinyweb.graph.gpu_targets import amd_target, nvidia_target
from tinyweb.graph.ir import Fragments, Ops, UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import optimize
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.native_runtimes.protocol import Runtime
from tinyweb.tracing import capture

F16, BF16, F32 = dtypes.float16, dtypes.bfloat16, dtypes.float32
CHIPS: dict[str, Target] = {
    "sm_90": nvidia_target("sm_90"),
    **{chip: amd_target(chip) for chip in ("gfx942", "gfx1100", "gfx1201")},
}


SM_80 = nvidia_target("sm_80")
AMD = [chip for chip in CHIPS if chip.startswith("gfx")]


@dataclass(frozen=True)
class Shape:
    """Sizes of an attention; `mask`: "", "causal", "bool" (some rows see nothing), "bias"; "spelled": as
    its parts, each rounded to the type."""

    heads: int
    shared: int
    rows: int
    keys: int
    width: int
    columns: int
    mask: str = ""
    dtype: DType = F16


SHAPES = [
    Shape(2, 2, 64, 128, 64, 64),
    Shape(2, 2, 64, 128, 64, 64, "causal", BF16),
    Shape(4, 2, 33, 77, 32, 32, "causal"),
    Shape(1, 1, 130, 257, 128, 128, "bool"),
    Shape(2, 1, 17, 40, 80, 48, "bias"),
    Shape(1, 1, 16, 5, 20, 36),
    Shape(1, 1, 40, 70, 256, 256),
    Shape(2, 2, 70, 100, 64, 64, "spelled"),
    Shape(1, 1, 33, 130, 64, 32, "spelled", BF16),
]


def stored(values: np.ndarray, dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Values as memory has them, and as they are then."""
    if dtype is BF16:
        return to_bf16(values), from_bf16(to_bf16(values))
    memory = values.astype(dtype.numpy)
    return memory, memory.astype(np.float32)


def kernel_of(s: Shape, target: Target) -> UOp:
    """Attention as one kernel; of its parameters the memory for queries, keys, values and a mask, in this order."""
    sizes = (s.heads, s.rows, s.width), (s.shared, s.keys, s.width), (s.shared, s.keys, s.columns)
    q, k, v = (Tensor.empty(*size, dtype=s.dtype) for size in sizes)
    kind = {"bool": dtypes.bool, "bias": F32}.get(s.mask)
    mask = None if kind is None else Tensor.empty(s.rows, s.keys, dtype=kind)

    def compute() -> Tensor:
        if s.mask == "spelled":
            return ((q @ k.transpose(-1, -2)) * s.width**-0.5).softmax(-1) @ v
        return q.scaled_dot_product_attention(k, v, mask, is_causal=s.mask == "causal", enable_gqa=True)

    (call,) = capture(lambda: compute().realize(), target).calls
    return call.kernel


def program_of(s: Shape, target: Target) -> Program:
    return lower(optimize(kernel_of(s, target), target), target)


def computed(s: Shape, target: Target, runtime: Runtime | None = None) -> tuple[Program, np.ndarray, np.ndarray]:
    """The program, what it gives on a runtime (or the interpreter), and what NumPy does."""
    random, kernel = np.random.default_rng(0), kernel_of(s, target)
    program = lower(optimize(kernel, target), target)
    sizes = (s.heads, s.rows, s.width), (s.shared, s.keys, s.width), (s.shared, s.keys, s.columns)
    memory, values = zip(*(stored(random.standard_normal(size).astype(np.float32), s.dtype) for size in sizes))
    waiting, keep, bias = list(memory), None, np.zeros((s.rows, s.keys), np.float32)
    if s.mask == "causal":
        keep = np.arange(s.keys) <= np.arange(s.rows)[:, None]
    elif s.mask == "bool":
        keep = random.random((s.rows, s.keys)) < 0.3
        keep[3] = False
        waiting.append(keep.astype(np.uint8))
    elif s.mask == "bias":
        bias = random.standard_normal((s.rows, s.keys)).astype(np.float32)
        waiting.append(bias)
    buffers = [np.zeros((s.heads, s.rows, s.columns), memory[0].dtype)]
    for p in sorted({u for u in kernel.toposort() if u.op is Ops.PARAM}, key=lambda u: u.arg.slot)[1:]:
        buffers.append(waiting.pop(next(i for i, m in enumerate(waiting) if m.size == p.arg.size)))
    out = run(program, target, buffers, {}, runtime)[0]
    q, k, v = values
    k, v = (np.repeat(x, s.heads // s.shared, 0) for x in (k, v))
    # a bias is one more element of queries, of which keys have the identity
    with np.errstate(invalid="ignore"):
        if s.mask == "bias":
            rows, eye = np.broadcast_to(bias, (s.heads, s.rows, s.keys)), np.eye(s.keys)
            q = np.concatenate([q * s.width**-0.5, rows], -1)
            k = np.concatenate([k, np.broadcast_to(eye, (s.heads, s.keys, s.keys))], -1)
            want = attend(q, k, v)
        else:
            want = attend(q, k, v, s.width**-0.5, keep)
    return program, from_bf16(out) if s.dtype is BF16 else out.astype(np.float32), np.nan_to_num(want)


def multiplied(program: Program) -> int:
    """Products of 16 × 16 × 16 that all subgroups carry out, where the numbers of steps are known."""
    count, times = 0, [1]
    grid = prod(int(n) for n in program.grid if isinstance(n, int))
    for u in program.uops:
        if u.op is Ops.RANGE:
            times.append(times[-1] * int(u.src[0].vmax))
        elif u.op is Ops.END:
            times.pop()
        elif isinstance(u.arg, Fragments):
            size = prod(u.arg.sums.shape) * u.arg.a.shape[1] // 16**3
            count += times[-1] * size * grid * prod(program.workgroup) // prod(u.arg.threads)
    return count


@pytest.mark.parametrize("number", range(len(SHAPES)))
@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_values(number: int, vendor: str) -> None:
    """Whatever the sizes, masks and shared heads; rows that see no key are 0."""
    s, chip = SHAPES[number], "sm_90" if vendor == "nvidia" else AMD[number % len(AMD)]
    program, got, want = computed(s, CHIPS[chip])
    assert any(isinstance(u.arg, Fragments) for u in program.uops)
    tolerance = 2e-2 if s.dtype is BF16 else 3e-3
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("chip", CHIPS)
def test_no_more_is_multiplied_than_is_wanted(chip: str) -> None:
    """Both products, each once; sums are in registers while other blocks are read."""
    for width in (32, 64, 128):
        s = Shape(16, 16, 1024, 1024, width, width)
        program = program_of(s, CHIPS[chip])
        wanted = s.heads * s.rows * s.keys * 2 * width // 16**3
        assert wanted <= multiplied(program) <= 1.25 * wanted
        others = [u for u in program.uops if u.op in (Ops.MUL, Ops.MULADD) and u.dtype is F32]
        assert len(others) < 800


def test_weights_stay_where_they_are() -> None:
    """A block of keys takes one barrier, and shared memory has but queries, keys and values, where sums lie as operands
    do; elsewhere also weights."""
    for chip, barriers in (("sm_80", 1), ("sm_90", 1), ("gfx942", 3)):
        program, inside, found = program_of(Shape(16, 16, 1024, 1024, 64, 64), {**CHIPS, "sm_80": SM_80}[chip]), 0, 0
        steps = {"sm_90": 8}.get(chip, 16)
        for u in program.uops:
            inside += u.op is Ops.RANGE and u.src[0].vmax == steps
            inside -= u.op is Ops.END and u.src[-1].src[0].vmax == steps
            found += inside > 0 and u.op is Ops.BARRIER and (u.arg is None or isinstance(u.arg, int))
        assert found == barriers
        fragments = list(dict.fromkeys(u.arg for u in program.uops if isinstance(u.arg, Fragments)))
        assert fragments[0].chains(fragments[-1]) == (chip != "gfx942")


def test_a_maximum_is_exchanged_without_memory() -> None:
    """Threads that have parts of a row read each other's registers."""
    program = program_of(Shape(2, 2, 64, 64, 64, 64), CHIPS["sm_90"])
    combined = [u for u in program.uops if u.op is Ops.SUBGROUP]
    assert {u.arg.op for u in combined} == {Ops.ADD, Ops.MAX} and {u.arg.count for u in combined} == {4}


@pytest.mark.parametrize(
    "s", [Shape(2, 2, 8, 128, 64, 64), Shape(2, 2, 64, 64, 64, 64, dtype=F32)], ids=["few queries", "float32"]
)
def test_what_stays_as_it_was(s: Shape) -> None:
    assert not any(isinstance(u.arg, Fragments) for u in program_of(s, CHIPS["sm_90"]).uops)


def test_large_scores() -> None:
    """Weights of 0 and 1, and sums that are rescaled by 0."""
    target = CHIPS["sm_90"]
    s = Shape(1, 1, 16, 320, 16, 16)
    program = program_of(s, target)
    q, k = np.zeros((1, 16, 16), np.float16), np.zeros((1, 320, 16), np.float16)
    q[0, :, 0], k[0, :, 0] = 200, np.linspace(-200, 200, 320)
    v = np.random.default_rng(0).standard_normal((1, 320, 16)).astype(np.float16)
    out = run(program, target, [np.zeros((1, 16, 16), np.float16), q, k, v], {})[0]
    np.testing.assert_allclose(out, attend(q, k, v, 0.25), rtol=2e-3, atol=2e-3)


def halves(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


def capped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q.matmul(k.transpose(-1, -2), F32) / 8 / 3).tanh() * 3
    return scores.softmax(-1).matmul(v.cast(F32), F32)


def window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    i, j = Tensor.arange(64).unsqueeze(1) + 32, Tensor.arange(96)
    return q.scaled_dot_product_attention(k, v, (j <= i) & (i - j < 20))


def packed(x: Tensor) -> Tensor:
    q, k, v = (x[:, i].transpose(0, 1) for i in range(3))
    return q.scaled_dot_product_attention(k, v, is_causal=True)


def chosen(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    seen = (Tensor.arange(64).unsqueeze(1) >= 8) & (Tensor.arange(96) >= 70)
    scores = seen.where(q.matmul(k.transpose(-1, -2), F32) / 8, LEAST)
    return scores.softmax(-1).matmul(v.cast(F32), F32)


def reference_masked() -> np.ndarray:
    """Scores that are the least float in all of some rows, whose weights are equal then, and in blocks of others."""
    q, k, v = (x.astype(np.float64) for x in QKV)
    scores = np.where(SEEN, np.einsum("htd,hnd->htn", q, k) / 8, LEAST)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def reference_capped(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = np.tanh(np.einsum("htd,hnd->htn", q.astype(np.float64), k) / 24) * 3
    weights = np.exp(scores)
    return weights / weights.sum(-1, keepdims=True) @ v


D = np.arange(64)[:, None] + 32 - np.arange(96)
QKV = (halves(2, 64, 64), halves(2, 96, 64), halves(2, 97, 64)[:, 1:])
X = halves(64, 3, 4, 32)
LEAST = float(np.finfo(np.float32).min)
SEEN = (np.arange(64)[:, None] >= 8) & (np.arange(96) >= 70)
KINDS: dict[str, tuple[list[np.ndarray], Callable[..., Tensor], np.ndarray]] = {
    "soft cap": ([*QKV], capped, reference_capped(*QKV)),
    "window": ([*QKV], window, attend(*QKV, 0.125, (D >= 0) & (D < 20))),
    "least float chosen": ([*QKV], chosen, reference_masked()),
    "least float added": ([*QKV, np.where(SEEN, 0, LEAST).astype(np.float32)],
                          lambda q, k, v, mask: q.scaled_dot_product_attention(k, v, mask), reference_masked()),
    "one tensor": ([QKV[0]], lambda x: x.scaled_dot_product_attention(x, x), attend(*QKV[:1] * 3, 0.125)),
    "side by side": ([X], packed, attend(*(X[:, i].swapaxes(0, 1) for i in range(3)), 32**-0.5, np.tri(64) > 0)),
    "keys in columns": ([QKV[0], QKV[1].swapaxes(1, 2), QKV[2]],
                        lambda q, k, v: q.scaled_dot_product_attention(k.transpose(-1, -2), v), attend(*QKV, 0.125)),
}  # fmt: skip


@pytest.mark.parametrize("chip", ["sm_90", "gfx942"])
@pytest.mark.parametrize("name", KINDS)
def test_whatever_stands_between(name: str, chip: str) -> None:
    """Caps and windows of scores; operands that are parts of one tensor, or lie otherwise."""
    arrays, compute, want = KINDS[name]
    tensors = [Tensor.empty(*a.shape, dtype=BY_NAME[str(a.dtype)]) for a in arrays]
    (call,) = capture(lambda: compute(*tensors).realize(), CHIPS[chip]).calls
    program = lower(optimize(call.kernel, CHIPS[chip]), CHIPS[chip])
    assert any(isinstance(u.arg, Fragments) for u in program.uops)
    out, waiting = program.params[0], list(arrays)
    sizes = [p.arg.size for p in sorted({u for u in program.uops if u.op is Ops.PARAM}, key=lambda u: u.arg.slot)]
    given = [waiting.pop(next(i for i, a in enumerate(waiting) if a.size == n)) for n in sizes[1:]]
    buffers = [np.zeros(want.shape, out.dtype.numpy), *map(np.ascontiguousarray, given)]
    np.testing.assert_allclose(run(program, CHIPS[chip], buffers, {})[0], want, rtol=3e-3, atol=3e-3)
