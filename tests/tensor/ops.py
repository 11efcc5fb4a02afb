"""How a method of Tensor is compared with PyTorch: one `Op` per line of a table, checked on every runtime.

A table is a module `tests/tensor/test_<topic>.py` with `OPS = [Op(...), ...]` and

    test_values = values_test(OPS)
    test_gradients = gradients_test(OPS)

`make test` runs everything on CPU, and those with `sample=True` on WASM, WEBGPU and INTERPRETER too; `make test-all`
(the marker `slow`) runs everything everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from tinyweb import Tensor

RUNTIMES = ("CPU", "WASM", "WEBGPU", "INTERPRETER")


def data(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """float32 numbers, the same in every run, none of them equal."""
    return np.random.default_rng((seed, *shape)).uniform(low, high, shape).astype(np.float32)


@dataclass(frozen=True)
class Op:
    """`ours(*tensors)` must equal `theirs(*torch_tensors)` (or ours' very code where None) in value, dtype kind, shape.

    A function may return a tensor or a tuple of them. Float inputs get gradients (of every float output, weighted with
    fixed numbers) unless `gradient` is False. `rtol`, `atol` are for values; gradients get ten times as much. `exact`
    demands equal values.
    """

    name: str
    ours: Callable[..., Any]
    inputs: Sequence[np.ndarray]
    theirs: Callable[..., Any] | None = None
    gradient: bool = True
    sample: bool = False
    rtol: float = 1e-5
    atol: float = 2e-6
    exact: bool = False
    interpreter: bool = True  # False for sizes that take the interpreter seconds: they are `slow` there
    tags: tuple[str, ...] = field(default=())


def _outputs(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _numpy(t: Any) -> np.ndarray:
    t = t.detach()
    return t.float().numpy() if t.dtype is torch.bfloat16 else t.resolve_conj().numpy()


def _parameters(ops: Sequence[Op], gradients: bool) -> list[Any]:
    out = []
    for op in ops:
        if gradients and not (op.gradient and any(x.dtype.kind == "f" for x in op.inputs)):
            continue
        for runtime in RUNTIMES:
            fast = runtime == "CPU" or (op.sample and (op.interpreter or runtime != "INTERPRETER"))
            marks = [] if fast else [pytest.mark.slow]
            out.append(pytest.param(op, runtime, id=f"{op.name}-{runtime}", marks=marks))
    return out


def _close(got: np.ndarray, want: np.ndarray, op: Op, factor: float, what: str) -> None:
    assert got.shape == want.shape, f"{what}: shape {got.shape}, PyTorch has {want.shape}"
    kinds = {"b": "b", "i": "i", "u": "i", "f": "f"}
    assert kinds[got.dtype.kind] == kinds[want.dtype.kind], f"{what}: {got.dtype}, PyTorch has {want.dtype}"
    if (op.exact and factor == 1.0) or want.dtype.kind != "f":  # gradients are sums, in any order
        np.testing.assert_array_equal(got, want.astype(got.dtype), err_msg=what)
        return
    # sums of another order differ by the size of what was summed, not of the result
    scale = max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0.0)))
    np.testing.assert_allclose(
        got, want, rtol=op.rtol * factor, atol=op.atol * factor * scale, equal_nan=True, err_msg=what
    )


def check_values(op: Op, runtime: str) -> None:
    """The results of `op` on a runtime against PyTorch's."""
    got = _outputs(op.ours(*(Tensor(x, device=runtime) for x in op.inputs)))
    want = _outputs((op.theirs or op.ours)(*(torch.from_numpy(np.array(x)) for x in op.inputs)))
    assert len(got) == len(want)
    if len(got) > 1:
        got[0].realize(*got[1:])
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        _close(g.numpy(), _numpy(w), op, 1.0, f"{op.name}, output {i}, {runtime}")


def check_gradients(op: Op, runtime: str) -> None:
    """The gradients of a weighted sum of all float outputs, with respect to all float inputs, against PyTorch's."""
    ours = [Tensor(x, device=runtime) for x in op.inputs]
    theirs = [torch.from_numpy(np.array(x)) for x in op.inputs]
    for t in theirs:
        if t.is_floating_point():
            t.requires_grad_()
    loss: Any = None
    want_loss: Any = None
    pairs = zip(_outputs(op.ours(*ours)), _outputs((op.theirs or op.ours)(*theirs)), strict=True)
    for i, (g, w) in enumerate(pairs):
        if not w.is_floating_point() or not w.requires_grad:
            continue
        weights = data(*w.shape, seed=100 + i, low=0.5, high=1.5)
        a = (g * Tensor(weights, device=runtime)).sum()
        b = (w * torch.from_numpy(weights)).sum()
        loss, want_loss = (a, b) if loss is None else (loss + a, want_loss + b)
    assert want_loss is not None, f"{op.name}: no output of PyTorch's has a gradient: say gradient=False"
    want_loss.backward()
    wanted = [(i, t) for i, t in enumerate(theirs) if t.requires_grad and t.grad is not None]
    found = loss.gradient(*(ours[i] for i, _ in wanted))
    if found:
        loss.realize(*found)
    for (i, t), g in zip(wanted, found, strict=True):
        _close(g.numpy(), _numpy(t.grad), op, 10.0, f"{op.name}, gradient of input {i}, {runtime}")


def values_test(ops: Sequence[Op]) -> Any:
    """A test of the values of all `ops`, to be bound to a name that starts with test_."""

    @pytest.mark.parametrize(("op", "runtime"), _parameters(ops, gradients=False))
    def test(op: Op, runtime: str) -> None:
        check_values(op, runtime)

    return test


def gradients_test(ops: Sequence[Op]) -> Any:
    """A test of the gradients of all `ops` that have some."""

    @pytest.mark.parametrize(("op", "runtime"), _parameters(ops, gradients=True))
    def test(op: Op, runtime: str) -> None:
        check_gradients(op, runtime)

    return test
