"""What a tensor's graph means, written with NumPy: no schedule, no kernel, microseconds for a node. Floats are float64.

With it the methods of Tensor can be compared with PyTorch for many arguments at once. What runtimes make of a graph is
for the tests of the tables (ops.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tinyweb import Tensor
from tinyweb.device import Device
from tinyweb.graph.ir import Ops, UOp

UNARY: dict[Ops, Callable[[Any], Any]] = {
    Ops.NEG: np.negative, Ops.RECIPROCAL: np.reciprocal, Ops.SQRT: np.sqrt, Ops.EXP: np.exp, Ops.EXP2: np.exp2,
    Ops.EXPM1: np.expm1, Ops.LOG: np.log, Ops.LOG2: np.log2, Ops.LOG10: np.log10, Ops.LOG1P: np.log1p, Ops.SIN: np.sin,
    Ops.COS: np.cos, Ops.TAN: np.tan, Ops.ASIN: np.arcsin, Ops.ACOS: np.arccos, Ops.ATAN: np.arctan, Ops.SINH: np.sinh,
    Ops.COSH: np.cosh, Ops.TANH: np.tanh, Ops.ASINH: np.arcsinh, Ops.ACOSH: np.arccosh, Ops.ATANH: np.arctanh,
    Ops.FLOOR: np.floor, Ops.TRUNC: np.trunc, Ops.ROUND: np.rint, Ops.ERF: np.vectorize(math.erf, [np.float64]),
    Ops.ERFC: np.vectorize(math.erfc, [np.float64]),
}  # fmt: skip
BINARY: dict[Ops, Callable[[Any, Any], Any]] = {
    Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.DIV: np.true_divide, Ops.POW: np.power, Ops.FMOD: np.fmod,
    Ops.MAX: np.maximum, Ops.FLOORDIV: lambda a, b: np.where(b == 0, 0, a // np.where(b == 0, 1, b)),
    Ops.MOD: lambda a, b: np.where(b == 0, a, a % np.where(b == 0, 1, b)),
    Ops.AND: np.bitwise_and, Ops.OR: np.bitwise_or, Ops.XOR: np.bitwise_xor, Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift, Ops.LESS: np.less, Ops.EQUAL: np.equal,
}  # fmt: skip
REDUCE: dict[Ops, Any] = {Ops.ADD: np.add, Ops.MUL: np.multiply, Ops.MAX: np.maximum}
SAME = (Ops.CONTIGUOUS, Ops.LEAF, Ops.DETACH, Ops.CUSTOM_GRADIENT)


def numpy_type(u: UOp) -> Any:
    return np.float64 if u.dtype.is_float else u.dtype.numpy


def value(t: Tensor) -> np.ndarray:
    """The elements of a tensor, from its graph."""
    known: dict[UOp, np.ndarray] = {}
    waiting = [t.uop]
    with np.errstate(all="ignore"):
        while waiting:
            u = waiting[-1]
            needed = u.src[:1] if u.op in SAME else u.src
            missing = [s for s in needed if s not in known]
            if missing:
                waiting += missing
                continue
            known[waiting.pop()] = np.asarray(node(u, [known[s] for s in needed], t.device)).astype(numpy_type(u))
    return known[t.uop]


def node(u: UOp, src: list[np.ndarray], device: str) -> Any:
    """One node's value from those of its sources."""
    op, x = u.op, src[0] if src else np.zeros(0)
    if op is Ops.CONST:
        return u.arg
    if op is Ops.BUFFER:
        memory = Device[device].memory(u)
        stored = np.dtype(u.dtype.numpy)
        return np.frombuffer(memory.runtime.copy_out(memory.handle, stored.itemsize * u.arg.size, 0), stored)
    if op is Ops.IOTA:
        return np.arange(u.arg)
    if op is Ops.RESHAPE:
        return x.reshape(u.arg)
    if op is Ops.PERMUTE:
        return x.transpose(u.arg)
    if op is Ops.EXPAND:
        return np.broadcast_to(x, u.arg)
    if op is Ops.PAD:
        return np.pad(x, u.arg)
    if op is Ops.SHRINK:
        return x[tuple(slice(b, e) for b, e in u.arg)]
    if op is Ops.FLIP:
        return np.flip(x, u.arg)
    if op is Ops.TAKE:
        return taken(x, src[1], u.arg)
    if op is Ops.SCAN:
        return scanned(u.arg[0], u.arg[1], src)
    if op is Ops.SCATTER:
        return scattered(*src, *u.arg[:2])
    if op is Ops.FETCH_ADD:
        return fetched(*src)
    if op is Ops.REDUCE:
        least = -np.inf if u.dtype.is_float else u.dtype.min
        initial = {Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: least}[u.arg[0]]
        return REDUCE[u.arg[0]].reduce(x, axis=tuple(u.arg[1]), keepdims=True, initial=initial, dtype=x.dtype)
    if op in SAME:
        return x
    if op is Ops.CAST:
        return (
            np.clip(np.trunc(np.nan_to_num(x)), u.dtype.min, u.dtype.max)
            if u.dtype.is_int and x.dtype.kind == "f"
            else x
        )
    if op is Ops.BITCAST:
        stored = np.dtype(u.src[0].dtype.numpy)
        return x.astype(stored).view(u.dtype.numpy)
    if op is Ops.WHERE:
        return np.where(*src)
    return UNARY[op](x) if op in UNARY else BINARY[op](*src)


def taken(x: np.ndarray, index: np.ndarray, shared: int) -> np.ndarray:
    """x picked along axis `shared`, 0 where the index is outside; the axes before it are those of the index."""
    n = x.shape[shared]
    out = np.zeros((*index.shape, *x.shape[shared + 1 :]), x.dtype)
    for at in np.ndindex(*index.shape):
        if 0 <= index[at] < n:
            out[at] = x[(*at[:shared], int(index[at]))]
    return out


def scanned(op: Ops, axis: int, src: list[np.ndarray]) -> np.ndarray:
    """The definition: step by step along an axis."""
    x, *factors = (np.moveaxis(s, axis, 0) for s in src)
    out = x.copy()
    for i in range(1, len(x)):
        out[i] = out[i - 1] * factors[0][i] + x[i] if factors else BINARY[op](out[i - 1], x[i])
    return np.moveaxis(out, 0, axis)


def fetched(x: np.ndarray, index: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The definition: the sums, then what each step found."""
    out, found = x.copy(), np.zeros(index.shape, x.dtype)
    for at in np.ndindex(*index.shape):
        if 0 <= index[at] < x.shape[-1]:
            place = (*at[:-1], int(index[at]))
            found[at] = out[place]
            out[place] += values[at]
    return np.concatenate([out, found], -1)


def scattered(x: np.ndarray, index: np.ndarray, values: np.ndarray, shared: int, op: Ops | None) -> np.ndarray:
    """The definition: value after value."""
    out = x.copy()
    for at in np.ndindex(*index.shape):
        if 0 <= index[at] < x.shape[shared]:
            place = (*at[:shared], int(index[at]))
            out[place] = values[at] if op is None else BINARY[op](out[place], values[at])
    return out


def outcome(function: Callable[[], Any]) -> Any:
    """The tensors a call gives, as NumPy's arrays; None where it refuses its arguments."""
    try:
        found = function()
    except (ValueError, TypeError, IndexError, RuntimeError, NotImplementedError):
        return None
    several = found if isinstance(found, tuple | list) else [found]
    return [
        value(t) if isinstance(t, Tensor) else t.detach().numpy() if isinstance(t, torch.Tensor) else t for t in several
    ]


def compare(what: str, ours: Callable[[], Any], theirs: Callable[[], Any], rtol: float = 2e-5) -> bool:
    """Both refuse (False), or both give equal shapes and values (True)."""
    got, want = outcome(ours), outcome(theirs)
    assert (got is None) == (want is None), (
        f"{what}: {'refused' if got is None else 'accepted'}, PyTorch does not agree"
    )
    if want is None:
        return False
    assert len(got) == len(want), f"{what}: {len(got)} results, PyTorch has {len(want)}"
    for a, b in zip(got, want, strict=True):
        assert np.shape(a) == np.shape(b), f"{what}: shape {np.shape(a)}, PyTorch has {np.shape(b)}"
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5, err_msg=what)
    return True
