"""A random Llama of any shape in memory, made within seconds: all layers have the weights of one, and each group of a
quantised matrix the scale of its largest element. What is timed reads as many bytes as ever.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from benchmarks.checkpoints import BLOCK, SHAPES, Shape

Half = npt.NDArray[np.float16]
ROWS = 4096  # at most that many rows of a matrix differ


@dataclass(frozen=True)
class Entry:
    """What is known of a tensor."""

    dtype: Any
    shape: tuple[int, ...]


class Repeated:
    """What a model is read from (`tinyweb.models.decoder.ModelSource`); `read` gives parameters by name."""

    def __init__(self, name: str) -> None:
        self.shape: Shape = SHAPES[name]
        self.path = Path(f"llama-{name}")
        self._made: dict[tuple[str, tuple[int, ...]], Half] = {}

    @property
    def config(self) -> Any:
        from tinyweb.formats.huggingface import Config

        more = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}
        return Config({**more, **asdict(self.shape)}, str(self.path))

    def weights(self) -> Any:
        from tinyweb.formats.huggingface import Checkpoint

        return Checkpoint.of(self)

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        from tinyweb.dtype import dtypes

        return {f"{name}.weight": Entry(dtypes.float16, shape) for name, shape in self.shapes().items()}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of all parameters, by name."""
        return {**dict(self.shape.matrices()), **dict.fromkeys(self.shape.norms(), (self.shape.hidden_size,))}

    def read(self, name: str) -> Half:
        """A parameter; of another layer the same array."""
        shape = self.shapes()[name.removesuffix(".weight")]
        key = name.split(".")[-2], shape  # the norms are alike, too
        if key not in self._made:
            self._made[key] = self._make(key[0], shape)
        return self._made[key]

    def _make(self, part: str, shape: tuple[int, ...]) -> Half:
        random = np.random.default_rng(list(part.encode()))
        if len(shape) == 1:
            return (1 + 0.1 * random.standard_normal(shape, dtype=np.float32)).astype(np.float16)
        rows = next(n for n in range(min(ROWS, shape[0]), 0, -1) if shape[0] % n == 0)
        deviation = shape[1] ** -0.5
        if part in ("o_proj", "down_proj"):
            deviation *= (2 * self.shape.num_hidden_layers) ** -0.5  # the sum over all layers stays near 1
        block = random.standard_normal((rows, shape[1]), dtype=np.float32) * np.float32(deviation)
        return np.tile(block.astype(np.float16), (shape[0] // rows, 1))


def rounded(groups: npt.NDArray[Any], bits: int, importance: object = None) -> tuple[npt.NDArray[np.int8], Half]:
    """Integers and scales (n,) of groups (n, size): the largest magnitude becomes the largest integer."""
    most = (1 << bits - 1) - 1
    scales = (np.abs(groups).max(1).astype(np.float32) / most).astype(np.float16)
    inverse = 1 / np.maximum(scales.astype(np.float32), np.float32(1e-8))
    return np.rint(groups * inverse[:, None]).clip(-most, most).astype(np.int8), scales


def widened(matrix: Half, bits: int) -> Half:
    """What a matrix is once it has been quantised."""
    values, scales = rounded(matrix.reshape(-1, BLOCK), bits)
    return (values * scales.astype(np.float32)[:, None]).astype(np.float16).reshape(matrix.shape)


@contextmanager
def rounding() -> Iterator[None]:
    """Within this context `tinyweb.nn.quantize` rounds by `rounded`, each matrix once."""
    known: list[tuple[Any, Any]] = []

    def once(groups: npt.NDArray[Any], bits: int, importance: object = None) -> Any:
        sample = (groups.shape, bits, groups[:64].tobytes(), groups[-64:].tobytes())
        found = next((made for s, made in known if s == sample), None)
        if found is None:
            found = rounded(groups, bits)
            known.append((sample, found))
        return found

    with patch.object(importlib.import_module("tinyweb.nn.quantize"), "quantize_groups", once):
        yield
