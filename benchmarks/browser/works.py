"""What is computed in the browser: each work's files, as a tinyweb bundle and as the peers want them.

Files are made when a side first asks for them, below the folder that the driver serves.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.contestant import Absent
from benchmarks.worker import ROOT, peer_python


@dataclass(frozen=True)
class Function:
    """A function of tensors: `make` gives what to export; `graph` is its kind and size for `graphs.py`."""

    make: Callable[[], Callable[..., Any]]
    shapes: dict[str, tuple[int, ...]]
    graph: tuple[str, int]

    def bundle(self, folder: Path) -> Path:
        """The exported site; its weights are read by `onnx` too."""
        from tinyweb.export import export_function
        from tinyweb.tensor import Tensor

        site = folder / "site"
        if not site.exists():
            inputs = {name: Tensor.zeros(*shape) for name, shape in self.shapes.items()}
            export_function(self.make(), inputs, site, name=folder.name)
        return site

    def onnx(self, folder: Path) -> Path:
        path = folder / "model.onnx"
        if not path.exists():
            kind, size = self.graph
            weights = None if kind == "matmul" else _tensors(self.make())
            write_graph(path, kind, size, weights)
        return path


def write_graph(
    path: Path, kind: str, size: int, tensors: dict[str, Any] | None = None, record: Path | None = None
) -> None:
    """An ONNX file, by the peers' interpreter, of a network with these tensors or of a file that describes its nodes;
    `Absent` where it has no onnx.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [peer_python(), "-m", "benchmarks.browser.graphs", kind, str(path), str(size)]
    if tensors is not None:
        weights = path.with_name("weights.npz")
        np.savez(weights, **{n: t.numpy() for n, t in tensors.items()})
        command.append(str(weights))
    elif record is not None:
        command.append(str(record))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if "No module named" in done.stderr:
        raise Absent("onnx is not installed: `make bench-peers`")
    if done.returncode:
        raise RuntimeError(f"writing {path.name} failed: {done.stderr.strip().splitlines()[-1]}")


def write_inputs(file: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """The arrays behind each other in one file, and what `pages/inputs.js` reads them by."""
    found, at = {}, 0
    with file.open("wb") as out:
        for name, a in arrays.items():
            found[name] = {"dtype": str(a.dtype), "shape": list(a.shape), "at": at}
            data = np.ascontiguousarray(a).tobytes()
            padding = -len(data) % 8
            out.write(data + bytes(padding))
            at += len(data) + padding
    return found


def _tensors(function: Callable[..., Any]) -> dict[str, Any]:
    """A model's tensors by name; `function` is the model or one of its methods."""
    from tinyweb.nn.state import get_state_dict

    return get_state_dict(getattr(function, "__self__", function))


def _matmul(a: Any, b: Any) -> Any:
    return a @ b


def _resnet18() -> Callable[..., Any]:
    from tinyweb.models.resnet import ResNet

    return ResNet.random(18)


def _yolov8n() -> Callable[..., Any]:
    from tinyweb.models.yolov8 import YOLOv8

    return YOLOv8.random("n").maps


def _square(size: int) -> Function:
    return Function(lambda: _matmul, {"a": (size, size), "b": (size, size)}, ("matmul", size))


FUNCTIONS = {
    "matmul-512": _square(512),
    "matmul-1024": _square(1024),
    "resnet18-224": Function(_resnet18, {"x": (1, 3, 224, 224)}, ("resnet", 224)),
    "yolov8n-320": Function(_yolov8n, {"x": (1, 3, 320, 320)}, ("yolov8", 320)),
}


@dataclass(frozen=True)
class Language:
    """A Llama of a shape of `benchmarks.checkpoints`; a run is `tokens` decoded one by one, or read at once."""

    shape: str
    quant: str
    task: str  # "decode" or "prefill"
    tokens: int
    context: int = 512

    def bundle(self, folder: Path) -> Path:
        from benchmarks.checkpoints import RANDOM, llama_folder, quantised_once
        from tinyweb.export.chat import ExportOptions, export_chat

        self.gguf()  # peers cannot make it: they have no tinyweb
        site = folder / f"llama-{self.shape}-{self.quant}"
        if not site.exists():
            stored = self.quant in RANDOM
            options = ExportOptions("stored" if stored else self.quant, self.context)
            source = self.gguf() if stored else llama_folder(self.shape)
            with quantised_once():
                export_chat(source, site, options, lambda step, done, total: None)
        return site

    def gguf(self) -> Path:
        from benchmarks.checkpoints import gguf_file

        return gguf_file(self.shape, self.quant)

    def weight_bytes(self, site: Path) -> int:
        """Bytes that one token has to read."""
        manifest = json.loads((site / "model" / "manifest.json").read_text())
        return sum(b["bytes"] for b in manifest["buffers"] if b["kind"] == "weight")


LOAD = "load-7.8mb"
"""The task of loading a model as large as the embedded one with 8-bit weights."""
LOAD_BYTES = 7_800_000

LANGUAGE = {
    f"llama-{shape}-{quant}-{task}": Language(shape, quant, task, 16 if task == "decode" else 256)
    for shape in ("15m", "110m")
    for quant in ("q8", "q4", "q4_k", "q6_k", "mxfp4")
    for task in ("decode", "prefill")
}

READ = """
typedef float v4 __attribute__((vector_size(16)));
float sink;
void read(const v4 *at, const v4 *end) {
  v4 a = {0}, b = {0}, c = {0}, d = {0};
  for (; at < end; at += 4) { a += at[0]; b += at[1]; c += at[2]; d += at[3]; }
  a += b; c += d; a += c;
  sink = a[0] + a[1] + a[2] + a[3];
}
"""


def read_module(folder: Path) -> Path:
    """A WASM module whose `read(begin, end)` reads memory as fast as it can."""
    from tinyweb.toolchain import compile_wasm

    path = folder / "read.wasm"
    if not path.exists():
        path.write_bytes(compile_wasm(READ, threads=True, exports=["read"], memory_pages=None))
    return path
