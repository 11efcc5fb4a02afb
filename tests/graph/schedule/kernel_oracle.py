"""Carries out scheduled kernels straight from their definition: every range is a NumPy axis, nothing is lowered."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyweb import Tensor
from tinyweb.graph.ir import Ops, UOp, size_max
from tinyweb.graph.schedule import KernelCall, schedule

BINARY: dict[Ops, Any] = {
    Ops.MUL: np.multiply, Ops.DIV: np.divide, Ops.FLOORDIV: np.floor_divide, Ops.MOD: np.mod, Ops.MAX: np.maximum,
    Ops.AND: np.bitwise_and, Ops.OR: np.bitwise_or, Ops.XOR: np.bitwise_xor, Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift,
    Ops.LESS: np.less, Ops.EQUAL: np.equal, Ops.WHERE: np.where, Ops.NEG: np.negative, Ops.RECIPROCAL: np.reciprocal,
    Ops.SQRT: np.sqrt, Ops.EXP: np.exp, Ops.LOG: np.log,
    Ops.EXP2: np.exp2, Ops.LOG2: np.log2, Ops.SIN: np.sin, Ops.FLOOR: np.floor, Ops.TRUNC: np.trunc,
    Ops.ROUND: np.rint, Ops.TANH: np.tanh,
}  # fmt: skip


class Oracle:
    """Holds buffers' contents and runs kernels on them; counts them."""

    def __init__(self) -> None:
        self.data: dict[UOp, np.ndarray] = {}
        self.kernels = 0

    def tensor(self, values: np.ndarray) -> Tensor:
        t = Tensor.empty(*values.shape, dtype=_dtype(values))
        self.data[t.uop.buffer] = values.reshape(-1).copy()
        return t

    def numpy(self, t: Tensor, **variables: int) -> np.ndarray:
        plan = schedule([UOp(Ops.CONTIGUOUS, t.dtype, (t.uop,))])
        self.kernels = len(plan.calls)
        for call in plan.calls:
            self.run(call, variables)
        held = self.data[plan.results[0]].reshape([size_max(s) for s in t.shape])
        sizes = [s if isinstance(s, int) else _evaluate(s, variables) for s in t.shape]
        return held[tuple(slice(0, n) for n in sizes)]

    def run(self, call: KernelCall, variables: dict[str, int]) -> None:
        buffers = [self.data.setdefault(b, np.zeros(b.arg.size, b.dtype.numpy)) for b in call.buffers]
        ranges = [u for u in call.kernel.toposort() if u.op is Ops.RANGE]
        value: dict[UOp, np.ndarray] = {}
        for u in call.kernel.toposort():
            if u.op not in (Ops.PARAM, Ops.STORE, Ops.SINK):
                value[u] = np.asarray(_node(u, value, buffers, ranges, variables)).astype(u.dtype.numpy)
        for store in call.kernel.src:
            index, new = np.broadcast_arrays(value[store.src[1]], value[store.src[2]])
            buffers[store.src[0].arg.slot][index.reshape(-1)] = new.reshape(-1)


def _dtype(values: np.ndarray) -> Any:
    from tinyweb.dtype import from_numpy

    return from_numpy(values.dtype)


def _evaluate(u: UOp, variables: dict[str, int]) -> int:
    from tinyweb.graph.symbolic import evaluate

    return int(evaluate(u, {v: variables[v.arg[0]] for v in u.variables()}))


def _node(
    u: UOp, value: dict[UOp, np.ndarray], buffers: list[np.ndarray], ranges: list[UOp], variables: dict[str, int]
) -> Any:
    if u.op is Ops.CONST:
        return u.arg
    if u.op is Ops.VARIABLE:
        return variables[u.arg[0]]
    if u.op is Ops.RANGE:
        n = int(value[u.src[0]])
        return np.arange(n).reshape([n if r is u else 1 for r in ranges])
    if u.op is Ops.LOAD:
        memory, index = buffers[u.src[0].arg.slot], value[u.src[1]]
        gate = value[u.src[2]] if len(u.src) > 2 else np.array(True)
        index, gate = np.broadcast_arrays(index, gate)
        assert ((index >= 0) & (index < memory.size))[gate].all(), "a load leaves its memory"
        return np.where(gate, memory[np.where(gate, index, 0)], 0)
    if u.op is Ops.REDUCE:
        body = value[u.src[0]]
        sizes = list(np.broadcast_shapes(body.shape, (1,) * len(ranges)))
        for r in u.src[1:]:
            sizes[ranges.index(r)] = int(value[r.src[0]])
        fold = {Ops.ADD: np.sum, Ops.MAX: np.max, Ops.MUL: np.prod}[u.arg]
        return fold(np.broadcast_to(body, sizes), axis=tuple(ranges.index(r) for r in u.src[1:]), keepdims=True)
    operands = [value[s] for s in u.src]
    if u.op is Ops.CAST:
        return operands[0]
    if u.op is Ops.BITCAST:
        return operands[0].view(u.dtype.numpy)
    if u.op is Ops.ADD:
        return operands[0] | operands[1] if u.dtype.kind == "bool" else operands[0] + operands[1]
    with np.errstate(all="ignore"):
        return BINARY[u.op](*operands)
