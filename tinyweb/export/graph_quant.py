"""ONNX graphs of floats with quantised matrices, and the report of them, as of chats (docs/quantization.md).

Matrices are those that are known and multiplied by MatMul or Gemm, or looked up by Gather.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.errors import ExportError
from tinyweb.formats.onnx import OnnxModel
from tinyweb.kinds import BITS, MIXED
from tinyweb.nn.precision import Precision
from tinyweb.nn.quantize import QuantizedWeight
from tinyweb.quantization import LayerReport, QuantOptions, Report
from tinyweb.quantization.mixed import choose
from tinyweb.quantization.prepare import choices, quantisation_error
from tinyweb.tensor import Tensor

DEVICE = "CPU"
DRAWS = 4  # random inputs that a quantised graph is compared on
LARGEST = 2  # integers that are drawn are smaller: an index is within any table


@dataclass
class Matrices:
    """The matrices of a model, as they are made: integers, and floats that they stand for."""

    made: list[tuple[QuantizedWeight, npt.NDArray[Any]]] = field(default_factory=list)

    def watch(self, weight: Tensor | QuantizedWeight, values: npt.NDArray[Any]) -> None:
        if isinstance(weight, QuantizedWeight):
            self.made.append((weight, values))

    def named(self, model: OnnxModel) -> dict[str, tuple[QuantizedWeight, npt.NDArray[Any]]]:
        names = {id(weight): name for name, weight in model.matrices(DEVICE).items()}
        return {names[id(weight)]: (weight, values) for weight, values in self.made}


@dataclass(frozen=True)
class Floats:
    """A matrix that bits are chosen for."""

    floats: npt.NDArray[Any]

    @property
    def shape(self) -> tuple[int, int]:
        rows, width = self.floats.shape
        return rows, width

    def values(self) -> npt.NDArray[Any]:
        return self.floats


def quantised(
    source: str | Path, quant: str, options: QuantOptions, examples: Mapping[str, Tensor], fixed: Mapping[str, Any]
) -> tuple[OnnxModel, Report]:
    """The model at `source` quantised as `quant` and `options` say, run once on `examples`; and the report.

    `options.evaluate`: an .npz of inputs by name to compare on, in place of random ones. ExportError for options that
    graphs do not have, and files that are none.
    """
    if options.calibrate is not None or options.head is not None:
        raise ExportError("--calibrate and --quant-head are for chats: the matrices of a graph are rounded to nearest.")
    recipe, kinds, given = options.recipe(quant), dict[str, Precision](), _inputs(options.evaluate, examples, fixed)
    if quant == MIXED:
        fewest, least = replace(recipe.layers, kind=min(BITS, key=lambda kind: BITS[kind])), Matrices()
        first = OnnxModel(source, quant=replace(recipe, layers=fewest, embedding=fewest).watched(least.watch))
        first(**examples, **fixed)
        found = {name: choices(Floats(values), recipe, None, 1) for name, (_, values) in least.named(first).items()}
        rest = _size(first) - sum(_bytes(weight) for weight, _ in least.made)
        kinds = {n: replace(recipe.layers, kind=kind) for n, kind in choose(found, options.bytes or 0, rest).items()}
        recipe = replace(recipe, layers=fewest, embedding=fewest)
    matrices = Matrices()
    model = OnnxModel(source, quant=recipe.watched(matrices.watch), precisions=kinds)
    model(**examples, **fixed)
    layers, named = [], matrices.named(model)
    for name, (weight, values) in named.items():
        error = quantisation_error(weight, values)
        layers.append(LayerReport(name, weight.shape, f"q{weight.bits}", weight.group, weight.zeros is not None,
                                  _bytes(weight), error))  # fmt: skip
    plain = OnnxModel(source)
    try:
        before = [plain(**{n: Tensor(v, device=DEVICE) for n, v in x.items()}, **fixed) for x in given]
    except TypeError as e:
        raise ExportError(f"--evaluate {options.evaluate}: {e}") from None
    evaluation = _compared(model, before, given, fixed, options.evaluate)
    return model, Report(quant, _size(model), _size(plain), layers, evaluation=evaluation)


def _bytes(weight: QuantizedWeight) -> int:
    return sum(t.nbytes() for t in weight.tensors().values())


def _size(model: OnnxModel) -> int:
    return sum(t.nbytes() for t in model.weights(DEVICE).values())


def _inputs(file: Path | None, examples: Mapping[str, Tensor], fixed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What both are given: the arrays of a file, or random ones of the examples' shapes."""
    shapes = {name: t for name, t in examples.items() if name not in fixed}
    if file is not None:
        try:
            with np.load(file, allow_pickle=False) as held:
                arrays = {name: held[name] for name in shapes}
        except (OSError, ValueError, KeyError, EOFError) as e:
            raise ExportError(
                f"--evaluate {file} is no .npz file of the model's inputs ({', '.join(shapes)}): {e}"
            ) from None
        return [arrays]
    random, found = np.random.default_rng(0), []
    for _ in range(DRAWS):
        drawn = {}
        for name, t in shapes.items():
            sizes = [s if isinstance(s, int) else s.vmin for s in t.shape]
            numbers = random.standard_normal(sizes) if t.dtype.is_float else random.integers(0, LARGEST, sizes)
            drawn[name] = numbers.astype(t.dtype.numpy)
        found.append(drawn)
    return found


def _compared(
    model: OnnxModel, before: list[dict[str, Any]], given: list[dict[str, Any]], fixed: Mapping[str, Any],
    file: Path | None,
) -> dict[str, Any]:  # fmt: skip
    """Cosines of all outputs of floats, beside those of the graph as it is."""
    cosines = []
    for x, wanted in zip(given, before):
        got = model(**{n: Tensor(v, device=DEVICE) for n, v in x.items()}, **fixed)
        pairs = [(got[n].numpy(), w.numpy()) for n, w in wanted.items() if isinstance(w, Tensor) and w.dtype.is_float]
        a, b = (np.concatenate([p[i].reshape(-1).astype(np.float64) for p in pairs] or [np.zeros(1)]) for i in (0, 1))
        known = np.isfinite(a) & np.isfinite(b)  # of a random input a graph may have no logarithm, say
        a, b = a[known], b[known]
        length = np.linalg.norm(a) * np.linalg.norm(b)
        cosines.append(float(a @ b / length) if length else 1.0)
    return {
        "text": file.name if file is not None else "random inputs", "held_out": False, "pieces": len(cosines),
        "cosine": {"mean": float(np.mean(cosines)), "least": min(cosines)},
    }  # fmt: skip
