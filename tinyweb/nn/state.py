"""The tensors of a model by name: state dicts, and safetensors files of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import TensorSpec, serialize

from tinyweb.dtype import DType, dtypes
from tinyweb.formats.safetensors import DTYPES, SafetensorsFile
from tinyweb.graph.ir import size_max
from tinyweb.tensor import Tensor

# where the library's name is not ours
_LIBRARY_NAMES = {dtypes.float8_e4m3: "float8_e4m3fn"}
_FILE_NAMES: dict[DType, str] = {d: name for name, d in DTYPES.items()}


def get_state_dict(model: Any, prefix: str = "") -> dict[str, Tensor]:
    """All tensors reachable from `model`, by the path of attributes, keys and positions that leads to each.

    `model` is an object, or a dict, list or tuple of such; names are joined by dots, as PyTorch does it. Attributes
    that begin with an underscore are left out. A tensor reached on two ways is listed under both names.
    """
    return dict(_walk(model, prefix, ()))


def _walk(value: Any, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
        return
    if id(value) in above:
        return  # a model may know its parent
    parts: Any
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    else:
        names = [n for c in type(value).__mro__ for n in getattr(c, "__slots__", ())]
        slots = {n: getattr(value, n) for n in names if hasattr(value, n)}
        parts = ((n, v) for n, v in {**slots, **getattr(value, "__dict__", {})}.items() if not n.startswith("_"))
    for name, part in parts:
        yield from _walk(part, f"{path}.{name}" if path else str(name), (*above, id(value)))


def get_parameters(model: Any) -> list[Tensor]:
    """The tensors of `model` that an optimiser should change: those with `requires_grad`, each once.

    Without any such tensor, all that are of a float dtype.
    """
    found = list({id(t): t for t in get_state_dict(model).values()}.values())
    return [t for t in found if t.requires_grad] or [t for t in found if t.dtype.is_float]


def load_state_dict(model: Any, state: Mapping[str, Tensor], strict: bool = True) -> None:
    """Write the values of `state` into the model's tensors of the same names (cast to their dtypes, on their devices).

    Nothing is changed if anything does not fit: KeyError names what is missing from `state` and, where `strict`, what
    the model does not know; ValueError names tensors of other shapes.
    """
    own = get_state_dict(model)
    missing = [n for n in own if n not in state]
    unknown = [n for n in state if n not in own] if strict else []
    if (missing and strict) or unknown:
        told = [f"missing from the state: {_some(missing)}"] * bool(missing)
        told += [f"unknown to the model: {_some(unknown)}"] * bool(unknown)
        raise KeyError(f"load_state_dict: {'; '.join(told)}")
    both = [n for n in own if n in state]
    wrong = [f"{n} is {state[n].shape}, the model needs {own[n].shape}" for n in both if state[n].shape != own[n].shape]
    if wrong:
        raise ValueError(f"load_state_dict: shapes differ: {_some(wrong)}")
    changed = []
    for n in both:
        if not own[n].is_realized():
            own[n].realize()
        own[n].assign(state[n].detach().to(own[n].device).cast(own[n].dtype))
        changed.append(own[n])
    if changed:
        changed[0].realize(*changed[1:])


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def safe_save(state: Mapping[str, Tensor], path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a safetensors file. The file appears when it is complete.

    TypeError for a dtype the format does not know (4-bit integers).
    """
    for name, t in state.items():
        if t.dtype not in _FILE_NAMES:
            raise TypeError(f"safe_save: {name} is {t.dtype.name}, which safetensors files cannot hold: cast it first")
    if state:
        first, *rest = state.values()
        first.realize(*rest)
    held = {name: np.frombuffer(t.data(), np.uint8) for name, t in state.items()}  # alive until they are written
    parts = {
        name: TensorSpec(
            dtype=_LIBRARY_NAMES.get(t.dtype, t.dtype.name),
            shape=[size_max(s) for s in t.shape],
            data_ptr=held[name].ctypes.data,
            data_len=held[name].size,
        )
        for name, t in state.items()
    }
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(serialize(parts, dict(metadata) if metadata else None))
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def safe_load(path: str | Path, device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, as stored.

    ModelFormatError where the file is missing, truncated or contradicts itself; nothing in it is executed.
    """
    file = SafetensorsFile(path)
    return {name: Tensor(file.read(name), dtype=e.dtype, device=device) for name, e in file.entries.items()}
