"""Whole networks on this processor: convolutional ones beside onnxruntime and PyTorch, and a step of training."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.checkpoints import FOLDER
from benchmarks.contestant import Arrays, Contestant
from benchmarks.harness import MILLISECONDS, Peer, Row, Side, close
from benchmarks.native.kernels import timed
from benchmarks.worker import Worker

Floats = npt.NDArray[np.float32]


def image(size: int) -> Floats:
    """The same picture of noise for everybody, (1, 3, size, size), values from 0 to 1."""
    return np.random.default_rng(3).random((1, 3, size, size), dtype=np.float32)


def files(work: str) -> Path:
    """Where a network's ONNX graph and weights are, once our side has made them."""
    return FOLDER / work


class Ours(Contestant):
    """`work`: a network of benchmarks/browser/works.py, which makes the peers' files too."""

    def __init__(self, work: str, size: int, threads: int):
        from benchmarks.browser.works import FUNCTIONS
        from tinyweb.device import Device
        from tinyweb.tensor import Tensor
        from tinyweb.tracing import jit

        FUNCTIONS[work].onnx(files(work))
        model, x = FUNCTIONS[work].make(), Tensor(image(size)).realize()

        def compute() -> list[Any]:
            found = model(x)
            return list(found) if isinstance(found, list | tuple) else [found]

        self.outputs = [t.realize() for t in compute()]

        def step() -> Any:
            return [out.assign(t) for out, t in zip(self.outputs, compute())]

        self.step: Callable[[], Any] = jit(step)
        self.wait = Device[self.outputs[0].device].runtime.synchronize
        self.step()

    def run(self, task: str, repeat: int) -> float:
        return timed(self.step, repeat, self.wait)

    def result(self, task: str) -> Arrays:
        self.step()
        return {f"y{i}": t.numpy() for i, t in enumerate(self.outputs)}


class Onnxruntime(Contestant):
    """onnxruntime's processor backend, all of its graph optimisations."""

    def __init__(self, work: str, size: int, threads: int):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        path = str(files(work) / "model.onnx")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = {"x": image(size)}
        self.outputs: list[Any] = []

    def versions(self) -> dict[str, str]:
        return {"onnxruntime": version("onnxruntime")}

    def step(self) -> None:
        self.outputs = self.session.run(None, self.inputs)

    def run(self, task: str, repeat: int) -> float:
        return timed(self.step, repeat)

    def result(self, task: str) -> Arrays:
        self.step()
        return {f"y{i}": y for i, y in enumerate(self.outputs)}


class TorchResNet(Contestant):
    """ResNet-18 in eager PyTorch from the same folded weights."""

    def __init__(self, work: str, size: int, threads: int):
        import torch
        from torch.nn import functional as f

        torch.set_num_threads(threads)
        with np.load(files(work) / "weights.npz") as found:
            weights = {name: torch.from_numpy(found[name]) for name in found}
        x = torch.from_numpy(image(size))

        def conv(x: Any, name: str, stride: int = 1) -> Any:
            kernel = weights[f"{name}.weight"]
            return f.conv2d(x, kernel, weights[f"{name}.bias"], stride, kernel.shape[-1] // 2)

        def network() -> Any:
            y = f.max_pool2d(f.relu(conv(x, "stem", 2)), 3, 2, 1)
            for i in range(8):
                block = f"blocks.{i}."
                fits = f"{block}downsample.weight" in weights
                stride = 2 if fits else 1
                z = conv(f.relu(conv(y, f"{block}convolutions.0", stride)), f"{block}convolutions.1")
                y = f.relu(z + (conv(y, f"{block}downsample", stride) if fits else y))
            return f.linear(y.mean((2, 3)), weights["head.weight"], weights["head.bias"])

        def step() -> Any:
            with torch.inference_mode():
                return network()

        self.step = step

    def versions(self) -> dict[str, str]:
        return {"torch": version("torch")}

    def run(self, task: str, repeat: int) -> float:
        return timed(self.step, repeat)

    def result(self, task: str) -> Arrays:
        return {"y0": self.step().numpy()}


# -- training ----------------------------------------------------------------------------------------------------------
BATCH, RATE = 64, 0.05
LAYERS = {"first": (8, 1, 3, 3), "second": (16, 8, 3, 3), "out": (10, 16 * 4 * 4)}  # of examples/train_digits.py
CHECKED_STEPS = 5


def training_data() -> tuple[dict[str, Floats], Floats, npt.NDArray[np.int64]]:
    """Weights, images (BATCH, 1, 16, 16) and labels."""
    random = np.random.default_rng(5)
    weights = {n: (random.standard_normal(s) * 0.2).astype(np.float32) for n, s in LAYERS.items()}
    return weights, random.random((BATCH, 1, 16, 16), dtype=np.float32), random.integers(0, 10, BATCH)


class OurTraining(Contestant):
    """Forward, gradients and SGD's update, jitted."""

    def __init__(self, threads: int):
        from tinyweb.nn.optim import SGD
        from tinyweb.tensor import Tensor
        from tinyweb.tracing import jit

        def build() -> tuple[Callable[[], Any], dict[str, Any]]:
            arrays, images, labels = training_data()
            weights = {n: Tensor(w).realize().requires_grad_() for n, w in arrays.items()}
            x, y = Tensor(images).realize(), Tensor(labels.astype(np.int32)).realize()
            optimizer = SGD(list(weights.values()), lr=RATE)

            def step() -> Any:
                optimizer.zero_grad()
                with Tensor.train():
                    h = x.conv2d(weights["first"], padding=1).relu().max_pool2d(2)
                    h = h.conv2d(weights["second"], padding=1).relu().max_pool2d(2)
                    loss = (h.flatten(1) @ weights["out"].T).cross_entropy(y).backward()
                return loss.realize(*optimizer.schedule_step())

            return jit(step), weights

        self.build = build
        self.step, _ = build()
        self.step()

    def run(self, task: str, repeat: int) -> float:
        return timed(self.step, repeat)

    def result(self, task: str) -> Arrays:
        step, weights = self.build()
        for _ in range(CHECKED_STEPS):
            step()
        return {name: w.numpy() for name, w in weights.items()}


class TorchTraining(Contestant):
    """The same in eager PyTorch."""

    def __init__(self, threads: int):
        import torch
        from torch.nn import functional as f

        torch.set_num_threads(threads)

        def build() -> tuple[Callable[[], Any], dict[str, Any]]:
            arrays, images, labels = training_data()
            weights = {n: torch.from_numpy(w).requires_grad_() for n, w in arrays.items()}
            x, y = torch.from_numpy(images), torch.from_numpy(labels)
            optimizer = torch.optim.SGD(list(weights.values()), lr=RATE)

            def step() -> Any:
                optimizer.zero_grad()
                h = f.max_pool2d(f.relu(f.conv2d(x, weights["first"], padding=1)), 2)
                h = f.max_pool2d(f.relu(f.conv2d(h, weights["second"], padding=1)), 2)
                loss = f.cross_entropy(h.flatten(1) @ weights["out"].T, y)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                return loss

            return step, weights

        self.build = build
        self.step, _ = build()

    def versions(self) -> dict[str, str]:
        return {"torch": version("torch")}

    def run(self, task: str, repeat: int) -> float:
        return timed(self.step, repeat)

    def result(self, task: str) -> Arrays:
        step, weights = self.build()
        for _ in range(CHECKED_STEPS):
            step()
        return {name: w.detach().numpy() for name, w in weights.items()}


# -- rows --------------------------------------------------------------------------------------------------------------
HERE = "benchmarks.native.networks:"
NETWORKS = {"resnet18-224": ("ResNet-18, 224×224", 224), "yolov8n-320": ("YOLOv8n, 320×320", 320)}


def network_row(work: str, threads: int) -> Row:
    text, size = NETWORKS[work]

    def side(name: str, contestant: str, peer: bool = False) -> Side:
        return Side(name, Worker.of(HERE + contestant, work=work, size=size, threads=threads, peer=peer))

    peers = [Peer(side("onnxruntime", "Onnxruntime", True), 1.0, close(1e-3))]
    if work.startswith("resnet"):
        peers.append(Peer(side("PyTorch", "TorchResNet"), 1.0, close(1e-3)))
    return Row(
        name=f"{work}-{threads}t",
        group="networks",
        work=f"{text}, f32, {threads} thread{'s' if threads > 1 else ''}",
        ours=side("tinyweb", "Ours"),
        peers=tuple(peers),
        unit=MILLISECONDS,
        priority=2,
        seconds=25,
        turns=7,
        timing_seconds=15,
    )


def rows() -> list[Row]:
    found = [network_row(work, threads) for threads in (2, 1) for work in NETWORKS]
    ours, theirs = (Worker.of(HERE + name, threads=2) for name in ("OurTraining", "TorchTraining"))
    found.append(
        Row(
            name="training-step-2t",
            group="networks",
            work=f"step of training, two convolutions and a linear layer, batch {BATCH}, 2 threads",
            ours=Side("tinyweb", ours),
            peers=(Peer(Side("PyTorch", theirs), 1.0, close(1e-3)),),
            unit=MILLISECONDS,
            priority=3,
            seconds=20,
        )
    )
    return found
