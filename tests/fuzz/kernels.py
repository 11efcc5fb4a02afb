"""Random kernels that reduce products and sums of loads of few parameters, and what NumPy says they give.

Closer to the optimiser than programs are: loads walk along any axes in any order, some of them along no reduced axis,
several of one parameter, gated, converted; two reductions may share their steps. Values are small integers and halves,
so that every order of additions gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from tests.graph.lower.hand_kernels import axes, kernel, param, reduce
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp, substitute
from tinyweb.graph.symbolic import simplify

T = TypeVar("T")
SIZES = (1, 2, 3, 4, 5, 8, 13, 16, 17, 24, 32, 33, 48, 62, 64, 65, 96, 100, 128, 200, 256, 257, 300, 512)
WHOLE = (dtypes.int8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int4)
FLOATS = (*[dtypes.float32] * 4, dtypes.float16, dtypes.bfloat16, dtypes.int8)
LEAST = 1 << 15  # multiplications: below, hardly any rule has much to decide


class _Kernel:
    """A kernel in the making, from a tuple of numbers alone."""

    def __init__(self, numbers: tuple[int, ...], most: int):
        self.chance = np.random.default_rng(numbers)
        outputs, reduced = self.pick((1, 2, 2, 2, 2, 3, 3, 4)), self.pick((1, 1, 1, 1, 2, 2, 3))
        sizes = [0]
        while not LEAST <= np.prod(sizes) <= most:
            sizes = [self.pick(SIZES) for _ in range(outputs + reduced)]
        self.outputs = axes(*sizes[:outputs])
        self.reduced = axes(*sizes[outputs:], reduce=True, first=outputs)
        self.size = dict(zip((*self.outputs, *self.reduced), sizes))
        whole = self.happens(0.3)
        self.sum = dtypes.int32 if whole else dtypes.float32
        self.types = [self.pick(WHOLE if whole else FLOATS) for _ in range(self.pick((1, 1, 1, 2, 3)))]
        self.spans = [1] * len(self.types)
        self.loads: list[UOp] = []

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.chance.integers(len(options)))]

    def happens(self, probability: float) -> bool:
        return bool(self.chance.random() < probability)

    def mixed(self, nodes: Sequence[UOp]) -> list[UOp]:
        return [nodes[i] for i in self.chance.permutation(len(nodes))]

    def load(self, among: Sequence[UOp]) -> UOp:
        """An element of some parameter: row-major along some axes in some order, or nearly so."""
        which = self.pick(range(len(self.types)))
        walked = [r for r in among if self.happens(0.7)]
        walked = self.mixed(walked)
        index, stride, last = UOp.const(0, dtypes.index), 1, 0
        for r in walked:
            step = 1 if self.happens(0.1) else stride * self.pick((1, 1, 1, 1, 2))  # 1: windows overlap
            index = index + (r * step if self.happens(0.93) else (r * -1 + (self.size[r] - 1)) * step)
            last += step * (self.size[r] - 1)
            stride = max(stride, last + 1)
        begin = self.pick((0, 7, 50))
        self.spans[which] = max(self.spans[which], last + begin + 1)
        gate = [self.pick(walked) < max(self.size[walked[0]] - 1, 1)] if walked and self.happens(0.08) else []
        p = param(which + 1, 1, self.types[which])  # its size is known in the end
        return UOp(Ops.LOAD, p.dtype, (p, index + begin, *gate)).cast(self.sum)

    def value(self, depth: int, among: Sequence[UOp]) -> UOp:
        way = self.chance.random()
        if depth == 0 or way < 0.3:
            known = [u for u in self.loads if u.ranges <= set(among)]
            u = self.pick(known) if known and self.happens(0.15) else self.load(among)
            self.loads.append(u)
            return u
        if way > 0.95:
            return self.value(depth - 1, among) * (2 if self.sum.is_int else 0.5)
        a, b = self.value(depth - 1, among), self.value(depth - 1, among)
        return a * b if way < 0.75 else a + b if way < 0.9 else a.maximum(b)

    def reduction(self) -> UOp:
        """Mostly a product of what has some of the output axes with what has the others."""
        if self.happens(0.4):
            value = self.value(self.pick((1, 2, 3)), [*self.outputs, *self.reduced])
        else:
            left = [r for r in self.outputs if self.happens(0.5)]
            right = [r for r in self.outputs if r not in left or self.happens(0.2)]
            a, b = (self.value(self.pick((0, 1, 1, 2)), [*part, *self.reduced]) for part in (left, right))
            value = a * b
        return reduce(Ops.ADD if self.happens(0.93) else Ops.MAX, value, *self.reduced)

    def made(self) -> UOp:
        result = self.reduction()
        if self.happens(0.15):
            more, first = self.reduction(), len(self.size)
            own = {
                r: r.replace(arg=replace(r.arg, name=f"r{i}", order=first + i)) for i, r in enumerate(self.reduced, 9)
            }
            result = result + substitute(more, own)
        if self.happens(0.2):
            result = result * self.load(self.outputs)
        order, index, stride = list(self.outputs), UOp.const(0, dtypes.index), 1
        if self.happens(0.2):
            order = self.mixed(order)
        for r in reversed(order):
            index, stride = index + r * stride, stride * self.size[r]
        out = self.sum if self.happens(0.85) else dtypes.int8 if self.sum.is_int else dtypes.float16
        k = simplify(kernel(param(0, stride, out).store(index, result.cast(out))))
        read = [u for u in k.toposort() if u.op is Ops.PARAM and u.arg.slot]
        return substitute(k, {u: param(i, self.spans[u.arg.slot - 1], u.dtype) for i, u in enumerate(read, 1)})


def random_kernel(numbers: tuple[int, ...], most: int = 1 << 24) -> UOp:
    """A kernel of at most that many multiplications, or twice as many; it follows from the numbers alone."""
    return _Kernel(numbers, most).made()


# -- values --------------------------------------------------------------------------------------------------------
def inputs(k: UOp) -> list[np.ndarray]:
    """-1, 0 and 1 for every parameter, by slot; the first is what is stored to."""
    params = sorted((u for u in k.toposort() if u.op is Ops.PARAM), key=lambda u: u.arg.slot)
    return [np.random.default_rng(u.arg.slot).integers(-1, 2, u.arg.size) for u in params]


def expected(k: UOp, memory: Sequence[np.ndarray]) -> np.ndarray:
    """What the kernel stores, in the order of memory: computed over all axes at once."""
    ranges = [u for u in k.toposort() if u.op is Ops.RANGE]
    wide: dict[DType, Any] = {dtypes.bool: np.bool_}
    done: dict[UOp, np.ndarray] = {}
    functions = {
        Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.MAX: np.maximum, Ops.LESS: np.less, Ops.XOR: np.bitwise_xor,
        Ops.AND: np.bitwise_and, Ops.OR: np.bitwise_or, Ops.WHERE: np.where,
    }  # fmt: skip
    out = memory[0].copy()
    for u in k.toposort():
        src = [done[s] for s in u.src if s in done]
        if u.op is Ops.RANGE:
            shape = [-1 if r is u else 1 for r in ranges]
            done[u] = np.arange(int(u.src[0].arg)).reshape(shape)
        elif u.op is Ops.CONST:
            done[u] = np.full([1] * len(ranges), u.arg)
        elif u.op is Ops.LOAD:
            inside = src[1] if len(src) > 1 else np.True_
            done[u] = np.where(inside, memory[u.src[0].arg.slot][np.where(inside, src[0], 0)], 0)
        elif u.op is Ops.CAST:
            done[u] = src[0].astype(u.dtype.numpy if u.dtype is dtypes.float16 else wide.get(u.dtype, np.float64))
            if u.dtype.is_int and u.dtype.bits < 32:
                done[u] = done[u].astype(np.int64).astype(u.dtype.numpy)
        elif u.op is Ops.REDUCE:
            over = tuple(ranges.index(r) for r in u.src[1:])
            full = [int(r.src[0].arg) if i in over else n for i, (r, n) in enumerate(zip(ranges, src[0].shape))]
            whole = np.broadcast_to(src[0], full)
            done[u] = whole.sum(over, keepdims=True) if u.arg is Ops.ADD else whole.max(over, keepdims=True)
        elif u.op is Ops.STORE:
            index, value = np.broadcast_arrays(*src)
            out = out.astype(value.dtype)
            out[index] = value
        elif u.op not in (Ops.PARAM, Ops.SINK):
            done[u] = functions[u.op](*src)
    return out
