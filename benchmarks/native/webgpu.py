"""WebGPU without a browser: products beside tinygrad's and the device's bandwidth, and an exported chat in Node.

These rows are for real GPUs. Where the adapter is a processor that plays GPU they say so and measure nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.checkpoints import FOLDER, SHAPES, llama_folder, quantised_once
from benchmarks.contestant import Absent, Arrays, Contestant
from benchmarks.harness import Peer, Row, Side, Unit, close
from benchmarks.native.kernels import inputs, timed
from benchmarks.worker import ROOT, Worker

Floats = npt.NDArray[np.float32]


def gpu(software: bool) -> Any:
    """The open WEBGPU device; Absent where there is no GPU. `software`: take a processor that plays one, too."""
    from tinyweb.device import Device
    from tinyweb.errors import TinywebError

    try:
        device = Device["WEBGPU"]
    except TinywebError as error:
        raise Absent(f"no GPU here: {error}") from error
    runtime: Any = device.runtime
    if runtime.adapter.is_software and not software:
        raise Absent(f"no GPU here, only {runtime.adapter.name}")
    return device


class Ours(Contestant):
    """Tasks are operations on arrays of `shape`: "matmul" (m, k, n), "matvec" and "matvec q4" (rows, columns)."""

    def __init__(self, shape: list[int], software: bool = False):
        self.device, self.shape = gpu(software), shape
        self.steps: dict[str, tuple[Callable[[], Any], Any]] = {}

    def _step(self, task: str) -> tuple[Callable[[], Any], Any]:
        from tinyweb.nn.quantize import quantize
        from tinyweb.tensor import Tensor
        from tinyweb.tracing import jit

        if task not in self.steps:
            arrays = inputs("matmul" if task == "matmul" else "matvec", self.shape)
            if task == "matvec q4":
                with quantised_once():
                    weight = quantize(arrays[0], 4, "WEBGPU")
                assert weight is not None
                x = Tensor(arrays[1], device="WEBGPU").realize()

                def compute() -> Any:
                    return weight.product(x)

            else:
                a, b = (Tensor(v, device="WEBGPU").realize() for v in arrays)

                def compute() -> Any:
                    return a @ b

            out = compute().realize()
            self.steps[task] = jit(lambda: out.assign(compute())), out
        return self.steps[task]

    def run(self, task: str, repeat: int) -> float:
        return timed(self._step(task)[0], repeat, self.device.runtime.synchronize)

    def result(self, task: str) -> Arrays:
        step, out = self._step(task)
        step()
        return {"out": out.numpy()}

    def notes(self, task: str) -> dict[str, Any]:
        return {"adapter": self.device.runtime.adapter.name}


class Exact(Contestant):
    """What the arrays' product is, computed by NumPy: a reference that takes part in no ratio's target."""

    def __init__(self, shape: list[int]):
        self.shape = shape

    def run(self, task: str, repeat: int) -> float:
        a, b = inputs(task, self.shape)
        return timed(lambda: a @ b, repeat)

    def result(self, task: str) -> Arrays:
        a, b = inputs(task, self.shape)
        return {"out": a @ b}


class Tinygrad(Contestant):
    """tinygrad's WEBGPU device (Dawn) with its beam search over kernels, width 2."""

    def __init__(self, shape: list[int]):
        os.environ |= {"DEV": "WEBGPU", "BEAM": "2"}  # read when tinygrad is imported
        from tinygrad.device import Device
        from tinygrad.engine.jit import TinyJit
        from tinygrad.tensor import Tensor

        try:
            self.device: Any = Device["WEBGPU"]
        except Exception as error:
            raise Absent(f"tinygrad's WEBGPU does not open here: {str(error).splitlines()[0]}") from error
        a, b = (Tensor(v).realize() for v in inputs("matmul", shape))
        self.step = TinyJit(lambda: (a @ b).realize())
        for _ in range(3):
            self.out = self.step()

    def versions(self) -> dict[str, str]:
        return {"tinygrad": version("tinygrad")}

    def run(self, task: str, repeat: int) -> float:
        return timed(self.step, repeat, self.device.synchronize)

    def result(self, task: str) -> Arrays:
        return {"out": self.step().numpy()}


class Cublas(Contestant):
    """cuBLAS through PyTorch, float32 products in float32."""

    def __init__(self, shape: list[int]):
        import torch

        if not torch.cuda.is_available():
            raise Absent("no CUDA device, or PyTorch without CUDA")
        torch.backends.cuda.matmul.allow_tf32 = False
        self.torch: Any = torch
        self.a, self.b = (torch.from_numpy(v).cuda() for v in inputs("matmul", shape))

    def versions(self) -> dict[str, str]:
        return {"torch": version("torch")}

    def run(self, task: str, repeat: int) -> float:
        return timed(lambda: self.a @ self.b, repeat, self.torch.cuda.synchronize)

    def result(self, task: str) -> Arrays:
        return {"out": (self.a @ self.b).cpu().numpy()}


class Bandwidth:
    """What the device does at most, through wgpu alone: copies between buffers, by its copy engine or by a kernel of a
    vector for each thread, whichever is faster, and dispatches that do nothing."""

    COPY = """
    @group(0) @binding(0) var<storage, read_write> copy: array<vec4<f32>>;
    @group(0) @binding(1) var<storage, read> source: array<vec4<f32>>;
    @compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
      let i = id.x + (id.y << 22u);
      if (i < arrayLength(&copy)) { copy[i] = source[i]; }
    }
    """
    COPY_THREADS, COPY_ROW = 256, 1 << 22  # of a workgroup; of the grid's first dimension
    NOTHING = """
    @group(0) @binding(0) var<storage, read_write> x: array<u32>;
    @compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) { x[id.x] = id.x; }
    """
    DISPATCHES = 200

    def __init__(self, nbytes: int, software: bool) -> None:
        import wgpu  # type: ignore[import-untyped]

        gpu(software)  # raises Absent
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        limits = {name: adapter.limits[name] for name in ("max-buffer-size", "max-storage-buffer-binding-size")}
        self.device: Any = adapter.request_device_sync(required_limits=limits)
        self.nbytes = min(nbytes, limits["max-buffer-size"])
        usage = wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.STORAGE
        self.buffers = [self.device.create_buffer(size=self.nbytes, usage=usage) for _ in range(2)]
        self.small = self.device.create_buffer(size=256, usage=usage)
        self.pipeline, self.group = self._kernel(self.NOTHING, self.small)
        self.copies = [self._kernel(self.COPY, *pair) for pair in (self.buffers, self.buffers[::-1])]

    def _kernel(self, code: str, *buffers: Any) -> tuple[Any, Any]:
        """A pipeline, and the group of these buffers."""
        module = self.device.create_shader_module(code=code)
        pipeline = self.device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
        resources = [{"buffer": b, "offset": 0, "size": b.size} for b in buffers]
        entries = [{"binding": i, "resource": r} for i, r in enumerate(resources)]
        return pipeline, self.device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)

    def _seconds(self, record: Callable[[Any], None]) -> float:
        begin = time.perf_counter()
        encoder = self.device.create_command_encoder()
        record(encoder)
        self.device.queue.submit([encoder.finish()])
        self.device.queue.read_buffer(self.small, 0, 4)  # waits
        return time.perf_counter() - begin

    def read_bytes_per_second(self) -> float:
        """A copy reads and writes: what only reads may take half of its time. Eight copies against none."""

        def copies(count: int) -> Callable[[Any], None]:
            def record(encoder: Any) -> None:
                for i in range(count):
                    encoder.copy_buffer_to_buffer(self.buffers[i % 2], 0, self.buffers[1 - i % 2], 0, self.nbytes)

            return record

        def kernels(count: int) -> Callable[[Any], None]:
            rows = -(-self.nbytes // 16 // self.COPY_ROW)

            def record(encoder: Any) -> None:
                compute = encoder.begin_compute_pass()
                for i in range(count):
                    compute.set_pipeline(self.copies[i % 2][0])
                    compute.set_bind_group(0, self.copies[i % 2][1])
                    compute.dispatch_workgroups(self.COPY_ROW // self.COPY_THREADS, rows)
                compute.end()

            return record

        nothing = min(self._seconds(copies(0)) for _ in range(3))
        taken = min(self._seconds(way(8)) for way in (copies, kernels) for _ in range(4))
        return float(2 * 8 * self.nbytes / (taken - nothing))

    def launch_seconds(self) -> float:
        """One of many dispatches in one pass, each after the one before."""

        def record(encoder: Any) -> None:
            compute = encoder.begin_compute_pass()
            compute.set_pipeline(self.pipeline)
            compute.set_bind_group(0, self.group)
            for _ in range(self.DISPATCHES):
                compute.dispatch_workgroups(1)
            compute.end()

        return min(self._seconds(record) for _ in range(3)) / self.DISPATCHES


class CopyBound(Contestant):
    """Seconds in which `nbytes` are read at the bandwidth of copies."""

    def __init__(self, nbytes: int, software: bool = False):
        self.nbytes, self.bandwidth = nbytes, Bandwidth(nbytes, software)

    def run(self, task: str, repeat: int) -> float:
        return repeat * self.nbytes / self.bandwidth.read_bytes_per_second()


# -- an exported chat in Node ------------------------------------------------------------------------------------------
TOKENS, CONTEXT = 64, 512


def node_modules() -> Path:
    """Where the npm package "webgpu" is: TINYWEB_BENCH_NODE_MODULES, else what `make bench-peers` installed."""
    return Path(os.environ.get("TINYWEB_BENCH_NODE_MODULES") or ROOT / "benchmarks" / "browser" / "node_modules")


def site(shape: str, quant: str) -> Path:
    """Where the bundle is: in TINYWEB_BENCH_SITES what was exported elsewhere, for a machine without a compiler."""
    return Path(os.environ.get("TINYWEB_BENCH_SITES") or FOLDER) / f"site-{shape}-{quant}"


def random_shards(folder: Path) -> None:
    """Weights for a bundle that came without: random numbers, none of them infinite, as halves or as float32."""
    file, random, whole = folder / "model" / "manifest.json", np.random.default_rng(0), hashlib.sha256()
    manifest = json.loads(file.read_text())
    if all((file.parent / shard["file"]).exists() for shard in manifest["weights"]["shards"]):
        return
    for shard in manifest["weights"]["shards"]:
        words = np.frombuffer(random.bytes(-(-shard["bytes"] // 8) * 8), np.uint16) & np.uint16(0xBFFF)
        data = words.tobytes()[: shard["bytes"]]
        (file.parent / shard["file"]).parent.mkdir(exist_ok=True)
        (file.parent / shard["file"]).write_bytes(data)
        shard["sha256"] = hashlib.sha256(data).hexdigest()
        whole.update(data)
    manifest["weights"]["sha256"] = whole.hexdigest()
    file.write_text(json.dumps(manifest))


class Node(Contestant):
    """Decode of an exported bundle by tools/run_bundle.mjs, on Dawn."""

    def __init__(self, shape: str, quant: str, software: bool = False):
        from tinyweb.export.chat import ExportOptions, export_chat

        gpu(software)
        if shutil.which("node") is None:
            raise Absent("Node is not installed")
        if not (node_modules() / "webgpu").exists():
            raise Absent("the npm package webgpu is not installed: `make bench-peers`")
        if "TINYWEB_BENCH_SITES" in os.environ:
            random_shards(site(shape, quant))
        else:
            options = ExportOptions(quant, CONTEXT, force=True)
            with quantised_once():
                export_chat(llama_folder(shape), site(shape, quant), options, lambda *step: None)
        self.command = ["node", str(ROOT / "tools" / "run_bundle.mjs"), str(site(shape, quant)), "--backend", "webgpu"]
        self.command += ["--webgpu", str(node_modules().parent), "--json", "--runs", "1", "--tokens", str(TOKENS)]
        self.command += ["--prompt-tokens", "64", *(["--software"] if software else [])]
        self.last: dict[str, Any] = {}

    def run(self, task: str, repeat: int) -> float:
        seconds = 0.0
        for _ in range(repeat):
            done = subprocess.run(self.command, cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError((done.stderr.strip() or "node failed").splitlines()[-1])
            self.last = json.loads(done.stdout.splitlines()[-1])
            seconds += 1 / self.last["tokensPerSecond"]
        return seconds

    def notes(self, task: str) -> dict[str, Any]:
        names = ("adapter", "kernelsPerToken", "weightBytesPerToken", "cacheBytesPerToken", "promptTokensPerSecond")
        return {name: self.last[name] for name in names if name in self.last}


class StepBound(Contestant):
    """Seconds of a decode step at the bound: bytes of weights ÷ bandwidth + kernels · cost of a launch."""

    def __init__(self, shape: str, quant: str, software: bool = False):
        manifest = json.loads((site(shape, quant) / "model" / "manifest.json").read_text())
        self.nbytes = sum(b["bytes"] for b in manifest["buffers"] if b["kind"] == "weight" and b["name"] != "rotary")
        variant = next(iter(manifest["targets"]["webgpu"]["variants"].values()))
        entries, chat = variant["entry_points"], manifest["chat"]
        self.kernels = sum(len(entries[chat[name]]["dispatches"]) for name in ("decode", "greedy"))
        self.bandwidth = Bandwidth(256 << 20, software)

    def run(self, task: str, repeat: int) -> float:
        reading = self.nbytes / self.bandwidth.read_bytes_per_second()
        return float(repeat * (reading + self.kernels * self.bandwidth.launch_seconds()))

    def notes(self, task: str) -> dict[str, Any]:
        return {"kernels": self.kernels, "bytes": self.nbytes}


# -- rows --------------------------------------------------------------------------------------------------------------
HERE = "benchmarks.native.webgpu:"


def matmul_row(size: int, software: bool = False) -> Row:
    shape = (size, size, size)

    def side(name: str, contestant: str, peer: bool = False, **more: Any) -> Side:
        return Side(name, Worker.of(HERE + contestant, shape=shape, peer=peer, **more), "matmul")

    return Row(
        name=f"webgpu-matmul-f32-{size}",
        group="webgpu",
        work=f"f32 matmul {size}, WebGPU",
        ours=side("tinyweb", "Ours", software=software),
        peers=(
            Peer(side("tinygrad WEBGPU", "Tinygrad", True), 8, close(1e-4)),
            Peer(side("cuBLAS", "Cublas"), 0.6, close(1e-4)),
        ),
        unit=Unit("TFLOP/s", 2 * size**3 / 1e12),
        seconds=60,
    )


def matvec_rows(rows: int, columns: int, software: bool = False) -> list[Row]:
    shape, nbytes = (rows, columns), rows * columns * 4
    worker = Worker.of(HERE + "Ours", shape=shape, software=software)
    exact = Side("NumPy on the processor", Worker.of(HERE + "Exact", shape=shape), "matvec")
    bound = Side("copy bandwidth", Worker.of(HERE + "CopyBound", nbytes=nbytes, software=software))
    text = f"matvec {rows}×{columns}, WebGPU"
    f32 = Side("tinyweb f32", worker, "matvec")
    return [
        Row(
            name=f"webgpu-matvec-f32-{rows}x{columns}",
            group="webgpu",
            work=f"f32 {text}",
            ours=Side("tinyweb", worker, "matvec"),
            peers=(Peer(bound, 0.9, None), Peer(exact, 1.0, close(1e-4))),
            unit=Unit("GB/s", nbytes / 1e9),
            seconds=30,
        ),
        Row(
            name=f"webgpu-matvec-q4-{rows}x{columns}",
            group="webgpu",
            work=f"q4 {text}",
            ours=Side("tinyweb", worker, "matvec q4"),
            peers=(Peer(f32, 2.2, close(0.2)),),  # the error of 4-bit weights
            unit=Unit("products/s", 1),
            seconds=40,
        ),
    ]


def decode_row(shape: str, quant: str, software: bool = False) -> Row:
    def side(name: str, contestant: str) -> Side:
        return Side(name, Worker.of(HERE + contestant, shape=shape, quant=quant, software=software))

    layers = SHAPES[shape].num_hidden_layers
    return Row(
        name=f"webgpu-llama-{shape}-{quant}-decode",
        group="webgpu",
        work=f"Llama {shape.upper()} shape ({layers} layers), {quant}, decode, exported bundle in Node, WebGPU",
        ours=side("tinyweb", "Node"),
        peers=(Peer(side("bytes ÷ bandwidth + kernels × launch", "StepBound"), 0.6, None),),
        unit=Unit("tokens/s", 1),
        seconds=90,
        turns=3,
        turn_seconds=0,
    )


def rows() -> list[Row]:
    return [matmul_row(4096), *matvec_rows(16384, 8192), decode_row("1b", "q4"), decode_row("1b", "q8")]
