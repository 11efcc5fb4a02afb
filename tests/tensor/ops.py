"""How methods of Tensor are compared with PyTorch: one `Op` per line of a table, checked on every runtime.

A table is a module `tests/tensor/test_<topic>.py` with `OPS = [Op(...), ...]` and

    test_values = values_test(OPS)
    test_gradients = gradients_test(OPS)

A test is a runtime: it computes the whole table at once, so that the compiler starts once and equal kernels are
compiled once, and names every line that differs. `make test` runs the values of all lines on CPU and on one of WASM,
WEBGPU and INTERPRETER, which take turns, those with `sample=True` on each of them; gradients of all on CPU and of those
with `sample=True` on one of the others, in turn. `make test-all` (the marker `slow`) runs the rest. On OPENCL, whose
compiler on processors is slow, `make test` runs the values of some with `sample=True`; where the text for other GPUs is
run (CUDA_TEXT, HIP_TEXT: tests/native_runtimes/text) all is slow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests.native_runtimes.text.runtime import TEXTS
from tinyweb import Tensor
from tinyweb.tensor import realize_all

# TINYWEB_TEST_DEVICES=CUDA: on a machine that has another one
_DEFAULT = ("CPU", "WASM", "WEBGPU", "OPENCL", "INTERPRETER", *TEXTS)
IN_TURN = ("WASM", "WEBGPU", "INTERPRETER")  # one of them computes a line that is no sample, beside CPU
MOST_OPENCL = 8  # lines of a table: PoCL compiles each kernel by itself, for as long as others take for all of them
RUNTIMES = tuple(os.environ.get("TINYWEB_TEST_DEVICES", " ".join(_DEFAULT)).split())


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


def _outputs(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _numpy(t: Any) -> np.ndarray:
    t = t.detach()
    return t.float().numpy() if t.dtype is torch.bfloat16 else t.resolve_conj().numpy()


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


@dataclass
class Comparison:
    """Tensors of ours that one line of a table gives, not computed yet, and PyTorch's."""

    op: Op
    pairs: list[tuple[str, Tensor, Any]]
    factor: float  # of the tolerances

    def check(self) -> None:
        for what, got, want in self.pairs:
            _close(got.numpy(), _numpy(want), self.op, self.factor, what)


def values(op: Op, runtime: str) -> Comparison:
    """The results of `op` on a runtime."""
    got = _outputs(op.ours(*(Tensor(x, device=runtime) for x in op.inputs)))
    want = _outputs((op.theirs or op.ours)(*(torch.from_numpy(np.array(x)) for x in op.inputs)))
    assert len(got) == len(want)
    names = (f"{op.name}, output {i}, {runtime}" for i in range(len(got)))
    return Comparison(op, list(zip(names, got, want, strict=False)), 1.0)


def gradients(op: Op, runtime: str) -> Comparison:
    """The gradients of a weighted sum of all float outputs, with respect to all float inputs."""
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
    checks = [
        (f"{op.name}, gradient of input {i}, {runtime}", g, t.grad) for (i, t), g in zip(wanted, found, strict=True)
    ]
    return Comparison(op, checks, 10.0)


def compare_all(ops: Sequence[Op], runtime: str, build: Callable[[Op, str], Comparison]) -> None:
    """Compute what `build` makes of all `ops` together, and compare it; every `Op` that differs or fails is named."""
    failures: list[str] = []

    def trying(op: Op, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except Exception as error:
            failures.append(f"{op.name} on {runtime}: {type(error).__name__}: {error}")
            return None

    comparisons = [c for op in ops if (c := trying(op, partial(build, op, runtime))) is not None]
    try:
        realize_all([got for c in comparisons for _, got, _ in c.pairs])
    except Exception:  # whose fault it is, each alone shows
        for c in comparisons:
            trying(c.op, partial(realize_all, [got for _, got, _ in c.pairs]))
        assert failures, f"{runtime}: every line can be computed alone, but not all together"
    for c in comparisons:
        trying(c.op, c.check)
    assert not failures, f"{len(failures)} of {len(ops)} differ\n" + "\n\n".join(failures)


def _table_test(ops: Sequence[Op], build: Callable[[Op, str], Comparison], fast: Callable[[Op, int, str], bool]) -> Any:
    cases = []
    for runtime in RUNTIMES:
        quick = [op for number, op in enumerate(ops) if fast(op, number, runtime)]
        if runtime == "OPENCL":
            quick = quick[:: -(-len(quick) // MOST_OPENCL) or 1]
        chosen_ids = {id(op) for op in quick}
        for chosen, name, marks in ((True, runtime, []), (False, f"{runtime}-rest", [pytest.mark.slow])):
            some = [op for op in ops if (id(op) in chosen_ids) is chosen]
            if some:
                cases.append(pytest.param(some, runtime, id=name, marks=marks))

    @pytest.mark.parametrize(("some", "runtime"), cases)
    def test(some: list[Op], runtime: str) -> None:
        compare_all(some, runtime, build)

    return test


def _in_turn(op: Op, number: int) -> str:
    """The one runtime beside CPU on which a line of a table is tried."""
    return IN_TURN[number % (3 if op.interpreter else 2)]


def _values_quick(op: Op, number: int, runtime: str) -> bool:
    if runtime in ("OPENCL", *TEXTS):
        return op.sample and runtime == "OPENCL"
    if runtime in IN_TURN and not op.sample:
        return runtime == _in_turn(op, number)
    return op.interpreter or runtime != "INTERPRETER"


def _gradients_quick(op: Op, number: int, runtime: str) -> bool:
    if runtime in IN_TURN:
        return op.sample and _in_turn(op, number) == runtime
    return runtime == "CPU"


def values_test(ops: Sequence[Op]) -> Any:
    """A test of the values of all `ops`, to be bound to a name that starts with test_."""
    return _table_test(ops, values, _values_quick)


def gradients_test(ops: Sequence[Op]) -> Any:
    """A test of the gradients of all `ops` that have some."""
    some = [op for op in ops if op.gradient and any(x.dtype.kind == "f" for x in op.inputs)]
    return _table_test(some, gradients, _gradients_quick)
