"""One call, made here and in PyTorch: whether both take it, and whether they give the same."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.tensor.arguments.pools import Array, Type
from tests.tensor.arguments.spec import Call
from tinyweb import Tensor
from tinyweb.dtype import BY_NAME, DType
from tinyweb.errors import DeviceError

CLEAR = (TypeError, ValueError, IndexError, NotImplementedError, RuntimeError)
SIGNATURE = ("argument", "positional", "unexpected keyword")
# what PyTorch's kernels do not have, and errors of its Python code that were not meant for the user: no verdict
LACKING = (
    "not implemented for", "not supported on", "Could not run", "object of type", "has no attribute", "to unpack",
        "mul(): argument", "INTERNAL ASSERT FAILED",
)  # fmt: skip


@dataclass
class Result:
    """What came of a call: tensors and numbers, or the error."""

    outputs: list[Any]
    error: BaseException | None = None


@dataclass(frozen=True)
class Finding:
    """A difference: its kind, and what was seen."""

    call: Call
    kind: str  # refused, accepted, internal, outputs, shape, dtype, values
    seen: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.call!r}: {self.seen}"


def converted(value: Any, array: Callable[[Array], Any], dtype: Callable[[str], Any]) -> Any:
    if isinstance(value, Array):
        return array(value)
    if isinstance(value, Type):
        return dtype(value.name)
    if isinstance(value, tuple | list):
        return type(value)(converted(v, array, dtype) for v in value)
    if isinstance(value, Mapping):
        return {k: converted(v, array, dtype) for k, v in value.items()}
    return value


def _torch(a: Array) -> torch.Tensor:
    return torch.from_numpy(np.array(a.data)).to(getattr(torch, a.dtype))


def _ours(a: Array, device: str) -> Tensor:
    return Tensor(a.data, dtype=BY_NAME[a.dtype], device=device)


def theirs(call: Call) -> Result:
    def array(a: Array) -> Any:
        return _torch(a)

    x = [] if call.x is None else [array(call.x)]
    function: Any = getattr(torch.Tensor, call.name) if call.inplace else call.spec.theirs
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args = converted(call.args, array, lambda n: getattr(torch, n))
            found = function(*x, *args, **converted(call.keywords, array, lambda n: getattr(torch, n)))
    except Exception as e:
        return Result([], e)
    return Result(_flat(found))


def ours(call: Call, device: str) -> Result:
    def array(a: Array) -> Any:
        return _ours(a, device)

    def dtype(name: str) -> DType:
        return BY_NAME[name]

    try:
        x = Tensor if call.x is None else array(call.x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = getattr(x, call.name)(*converted(call.args, array, dtype), **converted(call.keywords, array, dtype))
    except Exception as e:
        return Result([], e)
    return Result(_flat(found))


def _flat(found: Any) -> list[Any]:
    if isinstance(found, tuple | list):
        return [x for f in found for x in _flat(f)]
    return [found]


def is_clear(e: BaseException) -> bool:
    """Whether an error was raised for the user: by a `raise` of the package, or by Python for a wrong signature."""
    last = traceback.extract_tb(e.__traceback__)[-1]
    file = last.filename.replace("\\", "/")
    if isinstance(e, DeviceError):  # one that the user named, not one that a compiler's step ran into
        return file.endswith(("/tinyweb/device.py", "/tinyweb/native_runtimes/open.py"))
    if not isinstance(e, CLEAR):
        return False
    if "/tinyweb/" not in file:
        return isinstance(e, TypeError) and any(s in str(e) for s in SIGNATURE)
    if (last.line or "").startswith("raise "):
        return True
    return isinstance(e, TypeError) and any(s in str(e) for s in SIGNATURE)


def _shape(x: Any) -> tuple[int, ...] | None:
    return tuple(x.shape) if isinstance(x, torch.Tensor | Tensor) else None


def _dtype(x: Any) -> str:
    if isinstance(x, torch.Tensor):
        return str(x.dtype).removeprefix("torch.")
    return x.dtype.name if isinstance(x, Tensor) else type(x).__name__


def accepted(call: Call, device: str) -> tuple[Finding | None, list[tuple[Tensor, torch.Tensor]]]:
    """What can be said without computing; and the pairs of tensors whose values remain to be compared."""
    want = theirs(call)
    got = ours(call, device)
    if got.error is not None and not is_clear(got.error):
        return Finding(call, "internal", f"{type(got.error).__name__}: {got.error}"), []
    if want.error is not None:
        said = str(want.error).splitlines()[0][:160] if str(want.error) else type(want.error).__name__
        lacking = isinstance(want.error, NotImplementedError) or any(s in str(want.error) for s in LACKING)
        if got.error is not None or lacking:
            return None, []
        return Finding(call, "accepted", said), []
    if got.error is not None:
        if call.wrong == "signature":  # an argument that PyTorch's Python functions have besides those of the spec
            return None, []
        return Finding(call, "refused", f"{type(got.error).__name__}: {got.error}"), []
    if len(got.outputs) != len(want.outputs):
        return Finding(call, "outputs", f"{len(got.outputs)}, PyTorch gives {len(want.outputs)}"), []
    pairs = []
    for g, w in zip(got.outputs, want.outputs, strict=True):
        if _shape(g) != _shape(w):
            return Finding(call, "shape", f"{_shape(g)}, PyTorch gives {_shape(w)}"), []
        if _dtype(g) != _dtype(w):
            return Finding(call, "dtype", f"{_dtype(g)}, PyTorch gives {_dtype(w)}"), []
        if isinstance(g, Tensor):
            pairs.append((g, w))
        elif g != w and not (g != g and w != w):
            return Finding(call, "values", f"{g!r}, PyTorch gives {w!r}"), []
    return None, pairs if call.spec.values or call.spec.invariant else []


TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2}


def valued(call: Call, pairs: Sequence[tuple[Tensor, torch.Tensor]]) -> Finding | None:
    """Whether the values agree, or what follows from them where they are not determined."""
    try:
        got = [g.numpy() for g, _ in pairs]
    except Exception as e:
        return Finding(call, "internal", f"when it is computed: {type(e).__name__}: {str(e)[:300]}")
    want = [(w.float() if w.dtype is torch.bfloat16 else w).detach().resolve_neg().numpy() for _, w in pairs]
    types = [_dtype(w) for _, w in pairs]
    if call.spec.invariant is not None:
        got, want = call.spec.invariant(call, got), call.spec.invariant(call, want)
        types = [types[0]] * len(want)
    for mine, yours, dtype in zip(got, want, types, strict=True):
        if mine.dtype.kind != "f":
            if not np.array_equal(mine, yours):
                return Finding(call, "values", f"{mine.tolist()}, PyTorch gives {yours.tolist()}")
            continue
        narrow = [TOLERANCE.get(d, 0.0) for d in dtypes_of(call)]
        rtol = max(call.spec.rtol, *narrow, TOLERANCE.get(dtype, 0.0))
        finite = np.abs(yours[np.isfinite(yours)])
        atol = rtol * max(1.0, float(finite.max(initial=0.0)))
        with np.errstate(all="ignore"):
            if not np.allclose(mine, yours, rtol=rtol, atol=atol, equal_nan=True):
                return Finding(call, "values", f"{mine.tolist()}, PyTorch gives {yours.tolist()}")
    return None


def dtypes_of(call: Call) -> set[str]:
    """The dtypes of the tensors in a call."""
    found: set[str] = set()

    def note(a: Array) -> None:
        found.add(a.dtype)

    converted([call.x, call.args, call.keywords], note, lambda n: found.add(n))
    return found
