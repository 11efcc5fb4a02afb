"""Graphs that others' tools write, and what onnxruntime makes of them, for `answered.py`.

peer_graphs.npz: scikit-learn's models through skl2onnx, and PyTorch's graphs quantised by onnxruntime.
peer_networks.npz: outputs alone of the networks of `benchmarks.onnx.models`, by each of PyTorch's two exporters.

To be run where scikit-learn, skl2onnx, onnxruntime and what the tests need are, from the repository's root:
python -m tests.formats.onnx.peer_graphs graphs networks
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
from skl2onnx import to_onnx
from sklearn.cluster import KMeans
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from benchmarks.onnx.models import MODELS, make
from tests.formats.onnx.answered import DYNAMO, GRAPHS, INTEGERS, NETWORKS

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((120, 5)).astype(np.float32)
CLASSES, VALUES = (X[:, 0] > X[:, 1]).astype(int) + (X[:, 2] > 1), X[:, 0] * 2 + np.sin(X[:, 1])
LEARNED: dict[str, Any] = {
    "forest": RandomForestClassifier(8, max_depth=5, random_state=0).fit(X, CLASSES),
    "boosting": GradientBoostingRegressor(n_estimators=10, random_state=0).fit(X, VALUES),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()).fit(X, CLASSES),
    "ridge": make_pipeline(Normalizer(), Ridge()).fit(X, VALUES),
    "perceptron": MLPClassifier((8,), max_iter=50, random_state=0).fit(X, CLASSES),
    "means": KMeans(3, n_init=1, random_state=0).fit(X),
    "bayes": GaussianNB().fit(X, CLASSES),
}


class Given:
    """Inputs to calibrate with, as onnxruntime asks for them."""

    def __init__(self, feeds: list[dict[str, Any]]):
        self.feeds = iter(feeds)

    def get_next(self) -> dict[str, Any] | None:
        return next(self.feeds, None)


def learned() -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    for name, model in LEARNED.items():
        options = {"zipmap": False} if hasattr(model, "predict_proba") else {}
        made = to_onnx(
            model, X[:1], options={id(model): options} if options else None, target_opset={"": 18, "ai.onnx.ml": 3}
        )
        yield name, made.SerializeToString(), {"X": X[:9]}


def quantised() -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as folder:
        for name, how in (("bert", None), ("resnet", QuantFormat.QDQ), ("unet", QuantFormat.QOperator)):
            model = make(name, small=True)
            before, after = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}{INTEGERS}.onnx"
            before.write_bytes(model.graph())
            feed = {n: t.numpy() for n, t in model.inputs.items()}
            if how is None:
                quantize_dynamic(before, after, weight_type=QuantType.QInt8)
            else:
                quantize_static(before, after, Given([feed]), quant_format=how, per_channel=how is QuantFormat.QDQ)
            yield f"{name}{INTEGERS}", after.read_bytes(), feed


def answers(content: bytes, feed: dict[str, Any]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, feed)))


def graphs() -> None:
    arrays: dict[str, Any] = {}
    for name, content, feed in (*learned(), *quantised()):
        arrays[f"{name}/model"] = np.frombuffer(content, np.uint8)
        arrays |= {f"{name}/in/{n}": a for n, a in feed.items()}
        arrays |= {f"{name}/out/{n}": a for n, a in answers(content, feed).items()}
        print(name, len(content))
    np.savez_compressed(GRAPHS, allow_pickle=False, **arrays)


def networks() -> None:
    arrays: dict[str, Any] = {}
    for name in MODELS:
        model = make(name, small=True)
        feed = {n: t.numpy() for n, t in model.inputs.items()}
        for kind in ("", DYNAMO):
            found = answers(model.graph(dynamo=kind == DYNAMO), feed)
            arrays |= {f"{name}{kind}/{n}": a for n, a in found.items()}
        print(name)
    np.savez_compressed(NETWORKS, allow_pickle=False, **arrays)


if __name__ == "__main__":
    for what in sys.argv[1:]:
        {"graphs": graphs, "networks": networks}[what]()
