"""What a GGUF file's metadata says of its architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinyweb.formats.gguf.file import GgufFile
from tinyweb.formats.huggingface import Config

MOST = 1 << 30
PATTERN = "attention.sliding_window_pattern"


class Facts:
    """Metadata of one architecture, by keys without its name, and which tensors there are. Raises ModelFormatError for
    what is missing or no such number.
    """

    def __init__(self, file: GgufFile):
        self.file = file
        everything = Config(dict(file.metadata), str(file.paths[0]))
        self.architecture = everything.word("general.architecture")
        start = self.architecture + "."
        own = {k.removeprefix(start): v for k, v in file.metadata.items() if k.startswith(start)}
        self.where = f"{file.paths[0]}, {self.architecture}"
        self.own = Config({k: self._same(k, v) for k, v in own.items()}, self.where)
        self.tokens = Config({k: v for k, v in file.metadata.items() if k.startswith("tokenizer.")}, self.where)

    def _same(self, key: str, value: Any) -> Any:
        """One number for all layers where each has its own, and they are equal."""
        if isinstance(value, np.ndarray) and value.size and (value == value[0]).all() and key != PATTERN:
            return value[0].item()
        return value

    def integer(self, key: str, high: int = MOST, default: Any = ...) -> int:
        return self.own.integer(key, 0, high, default)

    def number(self, key: str, default: Any = ...) -> float:
        """A number; of a float32 the shortest decimal number that it is (1e-05, not 9.999999747378752e-06)."""
        value = self.own.number(key, -1e12, 1e12, default)
        return float(str(np.float32(value))) if np.float32(value) == value else value

    def optional(self, fields: Mapping[str, str]) -> dict[str, Any]:
        """Those numbers that the file has, by other names."""
        return {theirs: self.number(key) for theirs, key in fields.items() if key in self.own.values}

    def has(self, tensor: str) -> bool:
        return tensor in self.file.tensors

    @property
    def layers(self) -> int:
        return self.integer("block_count", 1024)

    @property
    def heads(self) -> int:
        return self.own.integer("attention.head_count", 1, 1024)

    @property
    def hidden(self) -> int:
        return self.own.integer("embedding_length", 1, 1 << 16)

    @property
    def head_dim(self) -> int:
        return self.own.integer("attention.key_length", 1, 1 << 16, self.hidden // self.heads)
