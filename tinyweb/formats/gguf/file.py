"""Models in GGUF files: mapped into memory, their tensors decoded when they are asked for.

    f = gguf.read("model-Q4_K_M.gguf")
    f.metadata["general.architecture"], f.tensors["token_embd.weight"].shape
    f.tensors["token_embd.weight"].numpy()                # float32

`read` checks all headers; bytes of tensors are not looked at before `numpy`.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.errors import ModelFormatError
from tinyweb.formats.gguf.header import Header, read_header
from tinyweb.formats.gguf.types import TensorFormat

MAX_PARTS = 4096
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


@dataclass(frozen=True, eq=False)
class GgufTensor:
    """A tensor in its file. `shape`: outermost axis first. `raw`: its bytes, mapped, read-only. `path`: of its file."""

    name: str
    form: TensorFormat
    shape: tuple[int, ...]
    raw: npt.NDArray[np.uint8]
    path: Path

    @property
    def type(self) -> str:
        """The type's name in GGUF, such as "Q4_K"."""
        return self.form.name

    def numpy(self) -> npt.NDArray[np.float32]:
        """All values as float32, decoded anew with every call. Integers and doubles are rounded."""
        return self.form.decode(self.raw.reshape(-1, self.form.bytes)).reshape(self.shape)


@dataclass(frozen=True)
class GgufFile:
    """A model: `metadata` by key (numbers, bool, str; arrays of numbers as NumPy arrays, others as lists), `tensors` by
    name, `paths` of the files that hold it.
    """

    paths: tuple[Path, ...]
    version: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]


def read(path: str | Path) -> GgufFile:
    """Opens a GGUF file of version 2 or 3; of a model in several (`…-00001-of-00003.gguf`) give any, all are read.

    The files stay open, mapped into memory, as long as anything made from them lives. Raises ModelFormatError where one
    is missing, truncated, damaged, big-endian, or holds tensors of a type that is not known.
    """
    path = Path(path)
    header, tensors = _open(path)
    count = _integer(path, header, "split.count", 1)
    if count <= 1:
        return GgufFile((path,), header.version, header.metadata, tensors)
    paths = _parts(path, count)
    opened = [(header, tensors) if p == path else _open(p) for p in paths]
    found: dict[str, GgufTensor] = {}
    for number, (part, (head, held)) in enumerate(zip(paths, opened)):
        if (_integer(part, head, "split.no", 0), _integer(part, head, "split.count", 1)) != (number, count):
            raise ModelFormatError(f"{part} is not part {number + 1} of {count}, as its name says: download it again")
        if both := found.keys() & held.keys():
            raise ModelFormatError(f"{part} holds the tensor {min(both)[:80]!r}, which an earlier part holds as well")
        found |= held
    first = opened[0][0]
    total = _integer(paths[0], first, "split.tensors.count", len(found))
    if total != len(found):
        raise ModelFormatError(
            f"{paths[0]} speaks of {total} tensors, its {count} parts hold {len(found)}: they are not of one model"
        )
    return GgufFile(tuple(paths), first.version, first.metadata, found)


def _open(path: Path) -> tuple[Header, dict[str, GgufTensor]]:
    try:
        if path.stat().st_size == 0:  # also that of a pipe, which would be waited for
            raise ModelFormatError(f"{path} is empty: download it again")
        with path.open("rb") as f:
            mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as e:
        raise ModelFormatError(f"{path} cannot be read: {e.strerror or e}") from None
    return parse(path, memoryview(mapped))


def parse(path: Path, data: memoryview) -> tuple[Header, dict[str, GgufTensor]]:
    """Header and tensors of one file, given its bytes. Raises ModelFormatError, which names `path`."""
    header, numbers = read_header(path, data), np.frombuffer(data, np.uint8)
    return header, {
        name: GgufTensor(name, e.form, e.shape, numbers[e.begin : e.end], path) for name, e in header.tensors.items()
    }


def _integer(path: Path, header: Header, key: str, default: int) -> int:
    value = header.metadata.get(key, default)
    if type(value) is not int:
        raise ModelFormatError(f"{path}: {key!r} must be an integer, found {str(value)[:40]!r}; the file is damaged")
    return value


def _parts(path: Path, count: int) -> list[Path]:
    """Where all parts of a model lie, by the name of one of them."""
    named = _PART.fullmatch(path.name)
    if count > MAX_PARTS:
        raise ModelFormatError(f"{path} is one of {count} parts, of which {MAX_PARTS} are possible; refused")
    if not named or int(named[3]) != count:
        raise ModelFormatError(
            f"{path} is one of {count} parts and must be called …-00001-of-{count:05}.gguf, as the others: "
            "give them their names again"
        )
    return [path.with_name(f"{named[1]}-{i + 1:05}-of-{count:05}.gguf") for i in range(count)]
