"""The WebGPU part of a bundle, run as docs/bundle.md says: like the loader in tests/export/test_bundle_runs.py."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

from tests.export.test_bundle_runs import WasmBundle
from tinyweb.native_runtimes.webgpu.backend import open_backend

OPERATIONS = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b,
    "max": max,
}  # fmt: skip


class WebGpuBundle(WasmBundle):
    """The variant for every adapter."""

    def __init__(self, model: Path):
        self.manifest: dict[str, Any] = json.loads((model / "manifest.json").read_text())
        target = self.manifest["targets"]["webgpu"]
        self.variant = target["variants"]["base"]
        self.backend = open_backend()
        texts = "".join((model / f).read_text() for f in (self.variant["file"], *self.variant["shared"]))
        code = dict(re.findall(r"^//# kernel (\S+)\n(.*?)(?=^//# kernel|\Z)", texts, re.MULTILINE | re.DOTALL))
        self.pipelines = [
            self.backend.create_pipeline(
                k["name"], code[k["name"]], [*k["bindings"], *(["uniform"] if k["uniform"] else [])]
            )
            for k in self.variant["kernels"]
        ]
        sizes = [b["bytes"] for b in (*self.manifest["buffers"], *target["temporaries"])]
        self.buffers = [self.backend.create_buffer(max(4, -(-size // 4) * 4)) for size in sizes]
        self.variables = [int(v["min"]) for v in self.manifest["variables"]]
        self.uniform = self.backend.create_buffer(-(-len(self.variables) // 4) * 16, uniform=True)
        shards = [(model / s["file"]).read_bytes() for s in self.manifest["weights"]["shards"]]
        for b in self.manifest["buffers"]:
            for s in b.get("segments", ()):
                self.write(b["id"], shards[s["shard"]][s["offset"] : s["offset"] + s["bytes"]], s["at"])

    def write(self, id: int, data: bytes, at: int = 0) -> None:
        self.backend.write(self.buffers[id], at, data + bytes(-len(data) % 4))

    def read(self, id: int, size: int, at: int = 0) -> bytes:
        return self.backend.read(self.buffers[id], at, size)

    def run(self, entry: str, **variables: int) -> None:
        names = [v["name"] for v in self.manifest["variables"]]
        for name, value in variables.items():
            if name in names:
                self.variables[names.index(name)] = value
        words = struct.pack(f"<{len(self.variables)}i", *self.variables)
        self.backend.write(self.uniform, 0, words + bytes(-len(words) % 16))
        dispatches = []
        for d in self.variant["entry_points"][entry]["dispatches"]:
            bound = [self.buffers[id] for id in d["buffers"]]
            if self.variant["kernels"][d["kernel"]]["uniform"]:
                bound.append(self.uniform)
            pipeline = self.pipelines[d["kernel"]]
            x, y, z = (self._size(s) for s in d["grid"])
            if min(x, y, z) > 0:
                dispatches.append((pipeline, self.backend.create_bind_group(pipeline, bound), (x, y, z)))
        self.backend.submit(dispatches)

    def _size(self, size: Any) -> int:
        if isinstance(size, int):
            return size
        if "var" in size:
            return self.variables[[v["name"] for v in self.manifest["variables"]].index(size["var"])]
        return int(OPERATIONS[size["op"]](*(self._size(s) for s in size["args"])))
