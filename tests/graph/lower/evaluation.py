"""Carries out the values of programs in NumPy, for many inputs at once: scalars are (n,), vectors (n, lanes)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, ParamArg, UOp
from tinyweb.native_runtimes.interpreter.spelling import COMPUTE


def leaf(dtype: DType, number: int = 0, lanes: int = 1) -> UOp:
    """A value that a program has loaded."""
    memory = UOp(Ops.PARAM, dtype, (), ParamArg(number, 1 << 20))
    return UOp(Ops.LOAD, dtype, (memory, UOp.const(0, dtypes.index)), lanes)


def evaluate(root: UOp, values: Mapping[UOp, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The value of `root` where leaves have these values; every node's has the type of the node."""
    done = dict(values)
    count = max((len(v) for v in values.values()), default=1)
    stack = [root]
    with np.errstate(all="ignore"):
        while stack:
            u = stack[-1]
            missing = [s for s in u.src if s not in done] if u not in done else []
            if missing:
                stack += missing
                continue
            stack.pop()
            if u in done:
                continue
            src = [done[s] for s in u.src]
            if u.op is Ops.CONST:
                out = np.full(count, u.arg).astype(u.dtype.numpy)
            elif u.op is Ops.STACK:
                out = np.stack(src, -1)
            elif u.op is Ops.LANE:
                out = src[0][..., u.arg]
            else:
                out = COMPUTE[u.op](u, *src)
            assert out.dtype == u.dtype.numpy, (u.op, out.dtype, u.dtype)
            done[u] = out
    return done[root]
