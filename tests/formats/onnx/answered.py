"""Graphs with their inputs, and what onnxruntime made of them (written by peer_graphs.py)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.onnx.models import MODELS, make

GRAPHS, NETWORKS = (Path(__file__).with_name(f"peer_{name}.npz") for name in ("graphs", "networks"))
DYNAMO = "-dynamo"  # a network by PyTorch's newer exporter
INTEGERS = "-int8"
TOLERANCE = 1e-4
STEP = 1 / 127  # of the largest value, in graphs of 8-bit integers


@dataclass(frozen=True)
class Answered:
    """`model`: the bytes of the file."""

    name: str
    model: bytes
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]

    def check(self, found: dict[str, Any]) -> None:
        """Fails where arrays by output are further from onnxruntime's than the types of the graph allow."""
        for n, want in self.outputs.items():
            got = np.asarray(found[n], want.dtype).reshape(want.shape)
            scale = float(np.abs(want).max())
            near = STEP if self.name.endswith(INTEGERS) else TOLERANCE
            np.testing.assert_allclose(got, want, rtol=TOLERANCE, atol=near * scale, err_msg=n)


@cache
def _stored(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as found:
        return dict(found)


def peers() -> list[str]:
    """The graphs of other tools, by name."""
    return sorted({key.partition("/")[0] for key in _stored(GRAPHS)})


def networks() -> list[str]:
    """Networks as each of PyTorch's two exporters writes them, by name."""
    return [name + kind for kind in ("", DYNAMO) for name in MODELS]


def answered(name: str) -> Answered:
    """Of `peers()` or `networks()`. A network is made and exported anew, with the same weights every time."""
    if name not in networks():
        arrays = {tuple(k.split("/", 2)[1:]): a for k, a in _stored(GRAPHS).items() if k.startswith(f"{name}/")}
        inputs, outputs = ({k[1]: a for k, a in arrays.items() if k[0] == side} for side in ("in", "out"))
        return Answered(name, arrays["model",].tobytes(), inputs, outputs)
    network = make(name.removesuffix(DYNAMO), small=True)
    outputs = {n: _stored(NETWORKS)[f"{name}/{n}"] for n in network.outputs}
    inputs = {n: t.numpy() for n, t in network.inputs.items()}
    return Answered(name, network.graph(name.endswith(DYNAMO)), inputs, outputs)
