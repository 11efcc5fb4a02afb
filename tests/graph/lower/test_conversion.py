"""Fields of words as floats by their bits: every place, width, sign and zero point, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.lower.evaluation import evaluate, leaf
from tinyweb import Tensor
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.gpu_targets import amd_target, nvidia_target, opencl_target
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower import program_for
from tinyweb.graph.lower.constructors import splat, stack, vector
from tinyweb.graph.lower.conversion import convert_by_bits
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, cpu_target, wasm_target, webgpu_target
from tinyweb.render_c import CUDA, render_gpu
from tinyweb.tracing import capture

F32, I32, U32 = dtypes.float32, dtypes.int32, dtypes.uint32
GPUS = {"two operands": webgpu_target(), "three": nvidia_target()}
WORD = leaf(U32)
rng = np.random.default_rng(23)
WORDS = np.concatenate([rng.integers(0, 2**32, 300, np.uint64), [0, 2**32 - 1, 0x80808080, 0x7F7F7F7F]]).astype(
    np.uint32
)


def unsigned(word: UOp, place: int, width: int) -> UOp:
    down = word.alu(Ops.SHR, UOp.const(place, U32)) if place else word
    return (down & UOp.const((1 << width) - 1, U32)).cast(I32)


def signed(word: UOp, place: int, width: int) -> UOp:
    up = word.alu(Ops.SHL, UOp.const(32 - place - width, U32)).bitcast(I32)
    return up.alu(Ops.SHR, UOp.const(32 - width, I32))


def plus(u: UOp, number: int) -> UOp:
    return UOp(Ops.ADD, I32, (u, UOp.const(number, I32)))


def same(number: UOp, target: Target, by_bits: bool = True) -> None:
    """The float of an integer is that of NumPy, and whether no conversion is left."""
    sink = UOp(Ops.SINK, dtypes.void, (number.cast(F32),))
    (made,) = convert_by_bits(sink, target).src
    assert any(u.op is Ops.CAST and u.dtype is F32 for u in made.toposort()) != by_bits
    np.testing.assert_array_equal(evaluate(made, {WORD: WORDS}), evaluate(number, {WORD: WORDS}).astype(np.float32))


@pytest.mark.parametrize("target", GPUS.values(), ids=GPUS)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 6, 7, 8, 11, 14, 15, 16, 20])
def test_every_place(width: int, target: Target) -> None:
    for place in range(33 - width):
        if place + width < 32:
            same(unsigned(WORD, place, width), target)
            same(signed(WORD, place, width), target)
        else:  # no mask, no shift to the top
            same(WORD.alu(Ops.SHR, UOp.const(place, U32)).cast(I32), target)
            same(WORD.bitcast(I32).alu(Ops.SHR, UOp.const(place, I32)), target)


@pytest.mark.parametrize("target", GPUS.values(), ids=GPUS)
def test_every_byte(target: Target) -> None:
    every = np.arange(256, dtype=np.uint32)
    for place in (0, 8, 16, 24):
        for number, expected in (
            (unsigned(WORD, place, 8), every.astype(np.float32)),
            (signed(WORD, place, 8), every.astype(np.uint8).view(np.int8).astype(np.float32)),
        ):
            (made,) = convert_by_bits(UOp(Ops.SINK, dtypes.void, (number.cast(F32),)), target).src
            np.testing.assert_array_equal(
                evaluate(made, {WORD: every << np.uint32(place) | ~np.uint32(255 << place)}), expected
            )


@pytest.mark.parametrize("target", GPUS.values(), ids=GPUS)
def test_zero_points_scales_and_sums(target: Target) -> None:
    nibble, pair = unsigned(WORD, 24, 4), unsigned(WORD, 6, 2)
    flipped = WORD ^ UOp.const(0x88888888, U32)
    planes = UOp(Ops.ADD, I32, (nibble, pair.alu(Ops.SHL, UOp.const(4, I32))))
    for number in (
        plus(nibble, -8), plus(nibble, 1000), signed(flipped, 12, 4), unsigned(flipped, 20, 4),
        nibble * UOp.const(-16, I32), nibble.alu(Ops.NEG), plus(nibble.alu(Ops.SHL, UOp.const(9, I32)), 3), planes,
        plus(planes, -32), UOp(Ops.ADD, I32, (nibble, unsigned(WORD, 0, 4).alu(Ops.NEG))),
        WORD.alu(Ops.SHR, WORD & UOp.const(7, U32)) & UOp.const(15, U32),
        WORD.alu(Ops.SHL, WORD & UOp.const(7, U32)).bitcast(I32).alu(Ops.SHR, UOp.const(24, I32)),
    ):  # fmt: skip
        same(number, target)


@pytest.mark.parametrize("target", GPUS.values(), ids=GPUS)
def test_lanes(target: Target) -> None:
    """The fields of one word, shifted once for those that lie too high; a word for each lane; another number of all."""
    four = leaf(U32, 1, 4)
    values = {WORD: WORDS[:300], four: WORDS[:300, None] * np.array([1, 3, 5, 7], np.uint32)}
    places = vector([16, 20, 24, 28], U32)
    one = (splat(WORD, 4).alu(Ops.SHR, places) & vector([15] * 4, U32)).cast(I32)
    each = (four.alu(Ops.SHR, vector([4] * 4, U32)) & vector([15] * 4, U32)).cast(I32)
    scalar = UOp(Ops.MAX, I32, (signed(WORD, 3, 9), UOp.const(-7, I32)))
    apart = stack([unsigned(WORD.alu(Ops.SHR, WORD & UOp.const(i, U32)), i, 2) for i in range(4)])
    for number in (
        one,
        each,
        apart,
        UOp(Ops.ADD, I32, (one, vector([-8] * 4, I32))),
        UOp(Ops.ADD, I32, (one, splat(scalar, 4))),
    ):
        (made,) = convert_by_bits(UOp(Ops.SINK, dtypes.void, (number.cast(F32),)), target).src
        assert not any(u.op is Ops.CAST and u.dtype is F32 and u.src[0].op is not Ops.MAX for u in made.toposort())
        np.testing.assert_array_equal(evaluate(made, values), evaluate(number, values).astype(np.float32))
    (made,) = convert_by_bits(UOp(Ops.SINK, dtypes.void, (one.cast(F32),)), target).src
    assert sum(u.op is Ops.SHR for u in made.toposort()) == 1


def test_what_stays_a_conversion() -> None:
    gpu = webgpu_target()
    for number in (
        unsigned(WORD, 3, 23), signed(WORD, 2, 24), WORD.cast(I32), unsigned(WORD, 0, 8) * UOp.const(3, I32),
        unsigned(WORD, 0, 16) * UOp.const(1 << 10, I32), plus(WORD.bitcast(I32), 5),
        WORD & UOp.const(0xF0, U32),
    ):  # fmt: skip
        same(number, gpu, by_bits=False)
    for target in (cpu_target(), wasm_target()):
        same(unsigned(WORD, 4, 4), target, by_bits=False)


TYPES = (dtypes.uint8, dtypes.int8, dtypes.uint4, dtypes.int4, dtypes.uint2, dtypes.uint1)


@pytest.mark.parametrize("device", ["OPENCL", "WEBGPU"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_value_of_a_type(dtype: DType, device: str) -> None:
    least = -(1 << dtype.bits - 1) if dtype.is_signed else 0
    numbers = np.arange(1024) % (1 << dtype.bits) + least
    x = Tensor(numbers, dtype=dtype, device=device)
    np.testing.assert_array_equal(x.float().numpy(), numbers)
    np.testing.assert_array_equal((x.int() - 8).float().numpy(), numbers - 8)
    zeros = Tensor(numbers[::-1].reshape(-1, 32)[:, :1].copy(), dtype=dtype, device=device)
    less = (x.reshape(-1, 32).int() - zeros.int()).float()
    np.testing.assert_array_equal(less.numpy(), numbers.reshape(-1, 32) - numbers[::-1].reshape(-1, 32)[:, :1])


def test_texts() -> None:
    """Rows of nibbles and bytes are converted by their bits on all GPUs; CUDA has one operation of logic for each."""
    x, w4, w8 = Tensor.empty(512), Tensor.empty(64, 512, dtype=dtypes.uint4), Tensor.empty(64, 512, dtype=dtypes.int8)

    def program(w: Tensor, target: Target) -> Program:
        (call,) = capture(lambda: ((w.int() - 8).float() * x).sum(1).realize(), target).calls
        return program_for(call.kernel, target)

    def conversions(p: Program) -> int:
        return sum(u.op is Ops.CAST and u.dtype is F32 and u.src[0].dtype.is_int for u in p.uops)

    for w in (w4, w8):
        for target in (webgpu_target(), webgpu_target(f16=True, subgroups=True), opencl_target(), amd_target()):
            assert not conversions(program(w, target))
        cuda = render_gpu([kernel := program(w, nvidia_target())], CUDA).partition("__global__")[2]
        assert "and_or(" in cuda and not conversions(kernel)
