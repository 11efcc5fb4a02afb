"""Graphs that others' tools make: onnxruntime's quantisation of some of `models`, and scikit-learn's models through
skl2onnx. Runs with the peers' interpreter.

usage: python -m benchmarks.onnx.peers NAME FOLDER [SOURCE]       (SOURCE: the folder of the graph that is quantised)

`FOLDER` gets model.onnx and its inputs, inputs.npz.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np

QUANTISED = {"bert_int8": "bert", "resnet_int8": "resnet", "unet_int8": "unet"}
"""By the graphs of floats: scales that are computed (dynamic), QDQ nodes for each channel, operators of integers."""
LEARNED = ("forest", "perceptron")
ROWS, FEATURES, CLASSES = 1000, 30, 5


class Given:
    """Inputs to calibrate with, as onnxruntime asks for them."""

    def __init__(self, feeds: list[dict[str, Any]]):
        self.feeds = iter(feeds)

    def get_next(self) -> dict[str, Any] | None:
        return next(self.feeds, None)


def quantise(name: str, source: Path, folder: Path) -> None:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

    before, after = source / "model.onnx", folder / "model.onnx"
    copyfile(source / "inputs.npz", folder / "inputs.npz")
    if name == "bert_int8":
        quantize_dynamic(before, after, weight_type=QuantType.QInt8)
        return
    with np.load(source / "inputs.npz") as found:
        given = Given([dict(found)])
    how = QuantFormat.QDQ if name == "resnet_int8" else QuantFormat.QOperator
    quantize_static(before, after, given, quant_format=how, per_channel=how is QuantFormat.QDQ)


def forest(x: Any, y: Any) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(100, max_depth=8, random_state=0).fit(x, y)


def perceptron(x: Any, y: Any) -> Any:
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), MLPClassifier((100, 100), max_iter=20, random_state=0)).fit(x, y)


FITS: Mapping[str, Callable[[Any, Any], Any]] = {"forest": forest, "perceptron": perceptron}


def learn(name: str, folder: Path) -> None:
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType

    random = np.random.default_rng(0)
    x = random.standard_normal((ROWS, FEATURES)).astype(np.float32)
    y = (x @ random.standard_normal((FEATURES, CLASSES)).astype(np.float32)).argmax(1)
    model = FITS[name](x, y)
    opsets, types = {"": 18, "ai.onnx.ml": 3}, [("X", FloatTensorType(x.shape))]
    made = to_onnx(model, initial_types=types, options={id(model): {"zipmap": False}}, target_opset=opsets)
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    np.savez(folder / "inputs.npz", allow_pickle=False, X=x)


def main(name: str, path: str, source: str | None = None) -> None:
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    if source is None:
        learn(name, folder)
    else:
        quantise(name, Path(source), folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
