"""Reading a Hugging Face model folder: its JSON files and its (possibly sharded) safetensors checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType
from tinyweb.errors import ModelFormatError
from tinyweb.formats.safetensors import SafetensorsFile
from tinyweb.sources import model_name

MAX_JSON = 64 << 20  # bytes of one JSON file; the largest tokenizers take a quarter of that
MAX_SHARDS = 4096


def read_text(path: Path, limit: int = MAX_JSON) -> str:
    """A UTF-8 file of at most `limit` bytes; ModelFormatError otherwise."""
    try:
        if not path.is_file():
            raise ModelFormatError(f"{path} is missing: the model folder is incomplete, download it again")
        size = path.stat().st_size
        if size > limit:
            raise ModelFormatError(f"{path} has {size} bytes, more than the {limit} such a file may have; refused")
        return path.read_text("utf-8")
    except OSError as e:
        raise ModelFormatError(f"{path} cannot be read: {e.strerror or e}") from None
    except UnicodeDecodeError:
        raise ModelFormatError(f"{path} is not UTF-8 text: the file is damaged, download it again") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; ModelFormatError where there is none."""
    return parse_json(read_text(path), str(path))


def parse_json(text: str, path: str) -> dict[str, Any]:
    """A JSON object from a text; ModelFormatError, which names its `path`, where there is none."""
    value = _parse(text, path)
    if not isinstance(value, dict):
        raise ModelFormatError(f"{path} holds no JSON object: it is not the file its name says, download it again")
    return value


def parse_json_list(text: str, path: str) -> list[Any]:
    """A JSON array from a text; ModelFormatError, which names its `path`, where there is none."""
    value = _parse(text, path)
    if not isinstance(value, list):
        raise ModelFormatError(f"{path} holds no JSON array: it is not the file its name says, download it again")
    return value


def _parse(text: str, path: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ModelFormatError(f"{path} is not valid JSON ({e}): the file is damaged, download it again") from None


class Config:
    """The fields of a JSON object, each read with the type and bounds it must have. A field that is `null` counts as
    absent.

    Every getter raises ModelFormatError naming file and field; without a `default` the field is required.
    """

    def __init__(self, values: dict[str, Any], where: str):
        self.values, self.where = values, where

    def _get(self, key: str, default: Any, kind: str) -> Any:
        value = self.values.get(key)
        if value is None:
            if default is ...:
                raise ModelFormatError(
                    f"{self.where} lacks {key!r} ({kind}): the file is incomplete or of another kind of model"
                )
            return default
        return value

    def _refuse(self, key: str, value: Any, kind: str) -> ModelFormatError:
        return ModelFormatError(
            f"{self.where}: {key[:80]!r} must be {kind}, found {json.dumps(value, default=str)[:60]}"
        )

    def integer(self, key: str, low: int, high: int, default: Any = ...) -> int:
        kind = f"an integer from {low} to {high}"
        value = self._get(key, default, kind)
        if type(value) is not int or not low <= value <= high:
            raise self._refuse(key, value, kind)
        return value

    def number(self, key: str, low: float, high: float, default: Any = ...) -> float:
        kind = f"a number from {low:g} to {high:g}"
        value = self._get(key, default, kind)
        if type(value) not in (int, float) or not low <= value <= high:
            raise self._refuse(key, value, kind)
        return float(value)

    def flag(self, key: str, default: Any = ...) -> bool:
        value = self._get(key, default, "true or false")
        if not isinstance(value, bool):
            raise self._refuse(key, value, "true or false")
        return value

    def word(self, key: str, default: Any = ...) -> str:
        value = self._get(key, default, "a string")
        if not isinstance(value, str):
            raise self._refuse(key, value, "a string")
        return value

    def section(self, key: str) -> Config | None:
        """A nested object, or None where it is absent."""
        value = self._get(key, None, "an object")
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._refuse(key, value, "an object")
        return Config(value, f"{self.where}, {key[:80]}")

    def ids(self, key: str) -> tuple[int, ...]:
        """Token ids: one integer or a list of them; () where absent."""
        value = self._get(key, (), "a token id or a list of them")
        found = value if isinstance(value, list | tuple) else [value]
        if any(type(v) is not int or not 0 <= v < 1 << 31 for v in found):
            raise self._refuse(key, value, "a token id or a list of them")
        return tuple(found)


class ModelFolder:
    """A model folder: `config` is checked to be there on opening, `weights` opens the checkpoint. `path` names it in
    messages; its other files are asked for by `text` and `read_config`.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.exists():
            raise ModelFormatError(f"{self.path} does not exist: give the path of a downloaded model folder")
        if not self.path.is_dir():
            raise ModelFormatError(f"{self.path} is a file: give a folder that holds config.json, or a GGUF file")
        self.config = self.read_config("config.json")

    @property
    def name(self) -> str:
        """What the model is called."""
        return model_name(self.path)

    def read_config(self, name: str, required: bool = True) -> Config:
        """A JSON file of this folder; empty where it is missing and not required."""
        text, where = self.text(name, required), str(self.path / name)
        return Config({} if text is None else parse_json(text, where), where)

    def text(self, name: str, required: bool = False, limit: int = MAX_JSON) -> str | None:
        """A text file of this folder, of at most `limit` bytes; None where it is missing and not required."""
        path = self.path / name
        return read_text(path, limit) if required or path.is_file() else None

    def stored_types(self) -> dict[str, int]:
        """How many elements are stored in each type that is quantised, by the format's names."""
        return {}

    def weights(self) -> Checkpoint:
        """All tensors; weights that others quantised come as float32 (formats/packed)."""
        from tinyweb.formats.packed import unpacked  # most models do without

        return unpacked(Checkpoint(self.path), self.config)


class TensorEntry(Protocol):
    """What is known of a tensor without reading it."""

    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


class TensorFile(Protocol):
    """A file of tensors by name. `read`: the values; those of floats that NumPy lacks as float32."""

    @property
    def path(self) -> Path: ...
    @property
    def entries(self) -> Mapping[str, TensorEntry]: ...
    def read(self, name: str) -> npt.NDArray[Any]: ...


class Checkpoint:
    """All tensors of a model folder, from one safetensors file or from the shards that an index names; or (`of`) of a
    file of another format.

    `stem`: what the files are called before `.safetensors`. Where there is no such file, one of half floats
    (`.fp16.safetensors`) will do.
    """

    def __init__(self, folder: Path, stem: str = "model"):
        self.folder = folder
        self._home: dict[str, TensorFile] = {}
        full, index = f"{stem}.safetensors", f"{stem}.safetensors.index.json"
        half, half_index = f"{stem}.fp16.safetensors", f"{stem}.safetensors.index.fp16.json"
        found = next((n for n in (full, index, half, half_index) if (folder / n).is_file()), None)
        if found is None:
            raise ModelFormatError(f"{folder} holds no {full} and no {index}: download the model in safetensors format")
        if found in (full, half):
            file = SafetensorsFile(folder / found)
            self._home = dict.fromkeys(file.entries, file)
        else:
            self._read_index(folder / found)

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """All tensors of one safetensors file."""
        return cls.of(SafetensorsFile(path))

    @classmethod
    def of(cls, file: TensorFile) -> Self:
        """All tensors of a file of any format."""
        checkpoint = cls.__new__(cls)
        checkpoint.folder = file.path.parent
        checkpoint._home = dict.fromkeys(file.entries, file)
        return checkpoint

    def _read_index(self, index: Path) -> None:
        where = read_json(index).get("weight_map")
        if not isinstance(where, dict) or not all(isinstance(v, str) for v in where.values()):
            raise ModelFormatError(f"{index} has no 'weight_map' from tensor names to files: download it again")
        names = sorted(set(where.values()))
        if len(names) > MAX_SHARDS:
            raise ModelFormatError(f"{index} names {len(names)} files, more than the limit of {MAX_SHARDS}; refused")
        for name in names:
            if Path(name).name != name or name in ("", ".", "..") or "\\" in name or not name.endswith(".safetensors"):
                raise ModelFormatError(
                    f"{index} names the file {name[:80]!r}, which is no safetensors file of this folder; refused"
                )
        files = {name: SafetensorsFile(index.parent / name) for name in names}
        for tensor, name in where.items():
            if tensor not in files[name].entries:
                raise ModelFormatError(
                    f"{index} puts tensor {tensor[:80]!r} into {name}, but it is not there: download both again"
                )
            self._home[tensor] = files[name]

    def __contains__(self, name: str) -> bool:
        return name in self._home

    def __iter__(self) -> Iterator[str]:
        return iter(self._home)

    def entry(self, name: str) -> TensorEntry:
        """Dtype and shape of a tensor, without reading it."""
        if name not in self._home:
            raise ModelFormatError(
                f"the checkpoint in {self.folder} has no tensor {name[:80]!r}: it is incomplete or of another model"
            )
        return self._home[name].entries[name]

    def dtype(self, name: str) -> DType:
        return self.entry(name).dtype

    @property
    def path(self) -> Path:
        """One of its files."""
        return next((file.path for file in self._home.values()), self.folder)

    def stored(self, name: str) -> npt.NDArray[Any]:
        """The values of a tensor of any type; those of floats that NumPy lacks as float32."""
        self.entry(name)
        return self._home[name].read(name)

    def stored_type(self, name: str) -> str | None:
        """The format's name for the quantised type of a tensor that may be used as it is stored; None for numbers."""
        return getattr(self.entry(name), "quantised", None)

    def rows(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any] | None:
        """A quantised tensor that must have `shape` as rows of blocks (formats/gguf/stored.py), of a matrix its output
        rows; None where these are not whole rows of one type that can be held.
        """
        self._check_shape(name, shape)
        rows = getattr(self.entry(name), "rows", None)
        return None if rows is None else rows()

    def _check_shape(self, name: str, shape: tuple[int, ...]) -> None:
        entry = self.entry(name)
        if entry.shape != shape:
            raise ModelFormatError(
                f"{self._home[name].path}: tensor {name[:80]!r} has shape {entry.shape}, config.json makes it {shape}: "
                "the files are not of one model"
            )

    def read(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """The values, all finite, of a floating-point tensor that must have `shape`; bfloat16 comes as float32."""
        self._check_shape(name, shape)
        entry = self.entry(name)
        if not entry.dtype.is_float:
            raise ModelFormatError(
                f"{self._home[name].path}: tensor {name[:80]!r} holds {entry.dtype.name}, weights must be floating "
                "point: use the model that was not quantised"
            )
        values = self._home[name].read(name)
        if not np.isfinite(values).all():
            file = self._home[name].path
            raise ModelFormatError(
                f"{file}: tensor {name[:80]!r} holds infinities or NaNs: the file is damaged, download it again"
            )
        return values
