"""Reading PyTorch checkpoints (`torch.save`: .pt, .pth, .ckpt, .bin) without PyTorch, and without running them.

A file is an uncompressed zip archive: `NAME/data.pkl` is a pickle that describes everything but the numbers, which lie
in `NAME/data/0`, `NAME/data/1` and so on. The pickle is read by `torch_pickle`, which runs nothing; a checkpoint that
holds whole modules (Ultralytics') gives its tensors by the names that the modules' `state_dict()` would have.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, dtypes, from_bits
from tinyweb.errors import ModelFormatError
from tinyweb.formats.tensors import NamedTensors
from tinyweb.formats.torch_pickle import Instance, Known, Name, PickleError, read_pickle

MAX_PICKLE = 32 << 20  # bytes
MAX_AXES = 8
MAX_TENSORS = 100_000
MAX_DEPTH = 64  # of modules in modules

STORAGES: dict[str, DType] = {
    "FloatStorage": dtypes.float32, "HalfStorage": dtypes.float16, "DoubleStorage": dtypes.float64,
    "BFloat16Storage": dtypes.bfloat16, "LongStorage": dtypes.int64, "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16, "CharStorage": dtypes.int8, "ByteStorage": dtypes.uint8, "BoolStorage": dtypes.bool,
}  # fmt: skip


@dataclass(frozen=True)
class Stored:
    """`count` numbers in the archive's file `data/KEY`."""

    key: str
    dtype: DType
    count: int


@dataclass(frozen=True)
class StoredTensor:
    """A strided view of stored numbers, proven to lie within them."""

    storage: Stored
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements


def _storage(identifier: Any) -> Stored:
    match identifier:
        case ("storage", Name(name=name), str(key), _, int(count)) if name in STORAGES and count >= 0:
            return Stored(key, STORAGES[name], count)
    raise PickleError("holds numbers of a kind that is not known")


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> StoredTensor:
    whole = isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides) <= MAX_AXES
    numbers = (offset, *shape, *strides) if whole else ()
    if not isinstance(storage, Stored) or not whole or any(type(n) is not int or not 0 <= n < 1 << 62 for n in numbers):
        raise PickleError("describes a tensor that cannot be")
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides))
    if math.prod(shape) and last >= storage.count:
        raise PickleError(f"describes a tensor of shape {shape} beyond the {storage.count} numbers it is of")
    if math.prod(shape) > storage.count:  # overlapping elements would take memory that the file does not have
        raise PickleError(f"describes a tensor of shape {shape} that repeats {storage.count} numbers")
    return StoredTensor(storage, offset, shape, strides)


def _first(value: Any, *_: Any) -> Any:
    return value


def _of_type(function: Any, _kind: Any, args: Any, *_: Any) -> Any:
    make = KNOWN.get(function) if isinstance(function, Name) else None
    if make is None or not isinstance(args, tuple):
        raise PickleError("describes a tensor of a kind that is not known")
    return make(*args)


KNOWN: Known = {
    Name("torch._utils", "_rebuild_tensor"): _tensor,
    Name("torch._utils", "_rebuild_tensor_v2"): _tensor,
    Name("torch._utils", "_rebuild_parameter"): _first,
    Name("torch._utils", "_rebuild_parameter_with_state"): _first,
    Name("torch._tensor", "_rebuild_from_type_v2"): _of_type,
    Name("collections", "OrderedDict"): lambda *_: {},  # its items are set afterwards
}


class TorchCheckpoint(NamedTensors):
    """The tensors of a checkpoint, by name. `root` is what was saved, as inert values; `module` the network's, where
    one was saved whole.

    Of a dictionary the moving average (`ema`) is taken before the `model`, and either before a `state_dict`.
    ModelFormatError where the file is damaged, not such an archive, or holds no tensors.
    """

    def __init__(self, path: str | Path):
        path = Path(path)
        self._archive, self._folder = _open(path)
        if self._folder + "byteorder" in self._archive.namelist() and self._file("byteorder", 16) != b"little":
            raise ModelFormatError(f"{path} was saved on a big-endian machine: save it again on another")
        try:
            self.root = read_pickle(self._file("data.pkl", MAX_PICKLE), KNOWN, _storage)
            self.module, self.tensors = _chosen(self.root)
        except PickleError as e:
            raise ModelFormatError(f"{path}: its description {e}; download the file again") from None
        if not self.tensors:
            raise ModelFormatError(f"{path} holds no tensors by name: save the model or its state_dict() in it")
        super().__init__(path, {n: t.shape for n, t in self.tensors.items()})

    def attribute(self, name: str) -> Any:
        """What the saved module has under this name; None without one."""
        return self.module.attribute(name) if self.module else None

    def _values(self, name: str) -> npt.NDArray[Any]:
        tensor = self.tensors[name]
        stored = tensor.storage
        size = stored.dtype.itemsize
        data = self._file(f"data/{stored.key}", stored.count * size, exact=True)
        if stored.dtype.held_wider:
            values: npt.NDArray[Any] = from_bits(np.frombuffer(data, np.dtype(f"<u{size}")), stored.dtype)
        else:
            values = np.frombuffer(data, np.dtype(stored.dtype.numpy).newbyteorder("<"))
        strides = tuple(s * values.itemsize for s in tensor.strides)
        if not math.prod(tensor.shape):
            return np.zeros(tensor.shape, values.dtype)
        return np.lib.stride_tricks.as_strided(values[tensor.offset :], tensor.shape, strides).copy()

    def _file(self, name: str, limit: int, exact: bool = False) -> bytes:
        path, archive = self._archive.filename, self._archive
        try:
            info = archive.getinfo(self._folder + name)
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
                raise ModelFormatError(
                    f"{path}: {name} is compressed or encrypted, which torch.save never does; refused"
                )
            if info.compress_size != info.file_size:  # so many would be read at once
                raise ModelFormatError(
                    f"{path}: {name} has {info.file_size} bytes, of which {info.compress_size} are stored: the file is "
                    "damaged, download it again"
                )
            if info.file_size > limit or (exact and info.file_size != limit):
                raise ModelFormatError(
                    f"{path}: {name} has {info.file_size} bytes where {limit} are expected; download the file again"
                )
            return archive.read(info)
        except KeyError:
            raise ModelFormatError(f"{path} lacks {name}: it is incomplete, download it again") from None
        except (zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error) as e:
            raise ModelFormatError(f"{path}: {name} cannot be read ({str(e)[:200]}): download the file again") from None


def _open(path: Path) -> tuple[zipfile.ZipFile, str]:
    """The archive, and the folder in it with a slash."""
    try:
        with path.open("rb") as f:
            begin = f.read(2)
        if begin != b"PK":
            raise ModelFormatError(
                f"{path} is no PyTorch checkpoint of version 1.6 or later: save it again with a newer torch.save"
            )
        archive = zipfile.ZipFile(path)
    except OSError as e:
        raise ModelFormatError(f"{path} cannot be read: {e.strerror or e}") from None
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError, OverflowError, MemoryError):
        raise ModelFormatError(f"{path} is truncated or damaged: download the file again") from None
    found = [n for n in archive.namelist() if n.endswith("/data.pkl") and n.count("/") == 1]
    if len(found) != 1:
        raise ModelFormatError(f"{path} is a zip archive but no PyTorch checkpoint: it has no data.pkl")
    return archive, found[0].removesuffix("data.pkl")


def _chosen(root: Any) -> tuple[Instance | None, dict[str, StoredTensor]]:
    """The module that was saved, if one was, and its tensors."""
    if isinstance(root, dict):
        for key in ("ema", "model", "state_dict"):
            value = root.get(key)
            if isinstance(value, Instance | dict):
                return _chosen_in(value)
    return _chosen_in(root)


def _chosen_in(value: Any) -> tuple[Instance | None, dict[str, StoredTensor]]:
    if isinstance(value, dict):
        return None, {k: t for k, t in value.items() if isinstance(k, str) and isinstance(t, StoredTensor)}
    if isinstance(value, Instance):
        return value, dict(_of_modules(value))
    return None, {}


def _of_modules(module: Instance) -> Iterator[tuple[str, StoredTensor]]:
    """Parameters and buffers of a module and of those in it, by their full names."""
    pending, count = [("", module, 0)], 0
    while pending:
        prefix, found, depth = pending.pop()
        count += 1
        if count > MAX_TENSORS or depth > MAX_DEPTH:
            raise PickleError("nests modules without end")
        for kind in ("_parameters", "_buffers"):
            held = found.attribute(kind, {})
            for name, value in held.items() if isinstance(held, dict) else ():
                if isinstance(name, str) and isinstance(value, StoredTensor):
                    yield prefix + name, value
        inner = found.attribute("_modules", {})
        for name, value in inner.items() if isinstance(inner, dict) else ():
            if isinstance(name, str) and isinstance(value, Instance):
                pending.append((f"{prefix}{name}.", value, depth + 1))
