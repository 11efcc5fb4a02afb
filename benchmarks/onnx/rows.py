"""Graphs of ordinary networks beside onnxruntime and onnxruntime-web: what PyTorch's exporter writes, as it is, what
onnxruntime makes of some of these in 8-bit integers, and what skl2onnx writes of scikit-learn's models.

A figure is a call whose inputs are in memory, with its outputs. The first call is a note of ours: the seconds from the
file to the first result, with what is compiled already (`TINYWEB_CACHE` of an empty folder: with nothing).
"""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.browser.chromium import Chromium
from benchmarks.browser.works import write_inputs
from benchmarks.checkpoints import FOLDER
from benchmarks.contestant import Arrays, Contestant
from benchmarks.harness import MILLISECONDS, Peer, Row, Side, close
from benchmarks.native.kernels import timed
from benchmarks.onnx.peers import LEARNED, QUANTISED
from benchmarks.worker import ROOT, Worker, peer_python

NAMES = (
    "resnet", "mobilenet_v2", "mobilenet_v3", "convnext", "efficientnet", "vit", "swin", "detr", "bert", "gpt2",
    "t5_encoder", "whisper_encoder", "whisper_decoder", "yolo", "unet", "lstm_tagger", "diffusion_unet",
)  # fmt: skip
"""Those of `benchmarks.onnx.models`, which needs PyTorch: the peers' interpreter has none."""
NATIVE, WEB, ERROR = 1.0, 1.4, 1e-3
STEP = 0.1  # of the largest value: a step of 8 bits and what it becomes in the layers behind it
VERSION = 2  # of the models: another number makes files anew


def files(name: str) -> Path:
    """The folder of a model's graph and inputs."""
    return FOLDER / "onnx" / f"{name}-v{VERSION}"


def made(name: str) -> Path:
    """The same, where they are."""
    folder = files(name)
    if not (folder / "model.onnx").exists():
        if name in QUANTISED or name in LEARNED:
            command = [peer_python(), "-m", "benchmarks.onnx.peers", name, str(folder)]
            command += [str(made(QUANTISED[name]))] if name in QUANTISED else []
        else:
            command = [sys.executable, "-m", "benchmarks.onnx.models", name, str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"exporting {name} failed: {done.stderr.strip().splitlines()[-1]}")
    return folder


def inputs(folder: Path) -> Arrays:
    with np.load(folder / "inputs.npz") as found:
        return dict(found)


class Ours(Contestant):
    """The graph read and recorded."""

    def __init__(self, work: str, threads: int):
        from tinyweb.device import Device
        from tinyweb.formats.onnx import OnnxModel
        from tinyweb.tensor import Tensor
        from tinyweb.tracing import jit

        folder = made(work)
        given = {n: Tensor(a).realize() for n, a in inputs(folder).items()}
        begin = time.perf_counter()
        model = OnnxModel(folder / "model.onnx")
        shapes = {n: (t.shape, t.dtype) for n, t in model(**given).items()}
        self.outputs = {n: Tensor.zeros(*shape, dtype=dtype).realize() for n, (shape, dtype) in shapes.items()}

        def step() -> Any:
            found = model(**given)
            return [out.assign(found[n]) for n, out in self.outputs.items()]

        self.step = jit(step)
        self.wait = Device[Tensor.zeros(1).device].runtime.synchronize
        self.step()
        self.wait()
        self.first = time.perf_counter() - begin

    def run(self, task: str, repeat: int) -> float:
        return timed(self.step, repeat, self.wait)

    def result(self, task: str) -> Arrays:
        self.step()
        return {n: t.numpy() for n, t in self.outputs.items()}

    def notes(self, task: str) -> dict[str, Any]:
        return {"first_call_seconds": round(self.first, 2)}


class Onnxruntime(Contestant):
    """onnxruntime's processor backend, all of its graph optimisations."""

    def __init__(self, work: str, threads: int):
        import onnxruntime

        folder = files(work)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self.given = inputs(folder)
        begin = time.perf_counter()
        path = str(folder / "model.onnx")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.step()
        self.first = time.perf_counter() - begin

    def versions(self) -> dict[str, str]:
        return {"onnxruntime": version("onnxruntime")}

    def step(self) -> None:
        self.found = self.session.run(None, self.given)

    def run(self, task: str, repeat: int) -> float:
        return timed(self.step, repeat)

    def result(self, task: str) -> Arrays:
        self.step()
        return {o.name: y for o, y in zip(self.session.get_outputs(), self.found)}

    def notes(self, task: str) -> dict[str, Any]:
        return {"first_call_seconds": round(self.first, 2)}


class Graphs(Chromium):
    """Both sides in a page: graphs exported by `export_onnx`, with the module alone that is run here."""

    def side(self, work: str, side: str, threads: str) -> tuple[str, dict[str, Any]]:
        library, _, backend = side.partition("-")
        module, options = self.prepared(library, backend, threads)
        folder, source = self.work / work, made(work)
        folder.mkdir(exist_ok=True)
        options |= {"data": self._url(folder / "inputs.bin")}
        options["arrays"] = write_inputs(folder / "inputs.bin", inputs(source))
        if library == "tinyweb":
            return module, options | {"bundle": self._url(self._exported(source, folder, int(threads))) + "/"}
        model = folder / "model.onnx"
        if not model.exists():
            model.symlink_to(source / "model.onnx")
        return module, options | {"model": self._url(model)}

    def _exported(self, source: Path, folder: Path, threads: int) -> Path:
        from tinyweb.export import OnnxOptions, export_onnx, wasm

        variant = "relaxed-threads" if threads > 1 else "relaxed"
        site = folder / variant
        if not site.exists():
            with patch.object(wasm, "VARIANTS", {variant: wasm.VARIANTS[variant]}):
                export_onnx(source / "model.onnx", site, OnnxOptions(targets=["wasm"], name=folder.name))
        return site / "model"


HERE = "benchmarks.onnx.rows:"
CHROMIUM = Worker.of(HERE + "Graphs")  # one for all rows


def row(name: str, ours: Side, theirs: Side, target: float, where: str) -> Row:
    graph = name.rsplit("-", 2)[0].removeprefix("onnx-")
    how = "as onnxruntime quantises it" if graph in QUANTISED else "of scikit-learn" if graph in LEARNED else ""
    return Row(
        name=name,
        group="onnx",
        work=f"{QUANTISED.get(graph, graph)} {how or 'as PyTorch exports it'}, {where}",
        ours=ours,
        peers=(Peer(theirs, target, close(STEP if graph in QUANTISED else ERROR)),),
        unit=MILLISECONDS,
        priority=2,
        seconds=40,
        turns=7,
        timing_seconds=15,
    )


def native_row(work: str, threads: int) -> Row:
    ours = Side("tinyweb", Worker.of(HERE + "Ours", work=work, threads=threads))
    theirs = Side("onnxruntime", Worker.of(HERE + "Onnxruntime", work=work, threads=threads, peer=True))
    return row(f"onnx-{work}-native-{threads}t", ours, theirs, NATIVE, f"{threads} thread{'s' if threads > 1 else ''}")


def web_row(work: str, threads: int) -> Row:
    ours, theirs = (
        Side(f"{name} WASM", CHROMIUM, f"{work}/{library}-wasm/{threads}")
        for name, library in (("tinyweb", "tinyweb"), ("onnxruntime-web", "onnxruntime"))
    )
    return row(f"onnx-{work}-wasm-{threads}t", ours, theirs, WEB, f"WASM in Chromium, {threads} threads")


def rows() -> list[Row]:
    works = (*NAMES, *QUANTISED, *LEARNED)
    native = [native_row(work, threads) for threads in (2, 1) for work in works]
    return native + [web_row(work, 2) for work in works]
