"""A small bundle made by hand: real weights and a whole manifest, kernels that are only text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tinyweb.dtype import DType, dtypes
from tinyweb.export.manifest import ChatFacts, manifest, write_manifest
from tinyweb.export.memory import Memory, Named
from tinyweb.export.weights import ShardWriter
from tinyweb.graph.ir import BufferArg, Ops, Space, UOp, Variable

VOCABULARY, CONTEXT = 32, 16


def buffer(id: int, dtype: DType, size: int) -> UOp:
    return UOp(Ops.BUFFER, dtype, (), BufferArg(Space.DEVICE, id, size))


def named(id: int, name: str, kind: str, dtype: DType, shape: tuple[int, ...]) -> Named:
    size = 1
    for s in shape:
        size *= s
    return Named(name, kind, buffer(id, dtype, size), dtype, shape, dtype.nbytes(size), None)


@pytest.fixture
def memory() -> Memory:
    """Two weights, four states, one pool."""
    all_named = (
        named(0, "embed.weight", "weight", dtypes.float16, (VOCABULARY, 8)),
        named(1, "norm.weight", "weight", dtypes.float32, (2000,)),
        named(2, "ids", "state", dtypes.int32, (CONTEXT + 8,)),
        named(3, "logits", "state", dtypes.float32, (1, VOCABULARY)),
        named(4, "sampling_f", "state", dtypes.float32, (4,)),
        named(5, "sampling_i", "state", dtypes.int32, (2,)),
    )
    return Memory(all_named, (4096,), {n.buffer: i for i, n in enumerate(all_named)})


def entry(kernels: int, *variables: str) -> dict[str, Any]:
    dispatch = {"kernel": 0, "buffers": [3, 0], "grid": [1, {"var": "start_pos"}, 1]}
    return {"variables": list(variables), "dispatches": [dispatch] * kernels}


@pytest.fixture
def make_bundle(tmp_path: Path, memory: Memory) -> Callable[[], Path]:
    """Writes a site with a bundle into a new folder each time it is called."""

    def make() -> Path:
        site = tmp_path / f"site{len(list(tmp_path.iterdir()))}"
        bundle = site / "model"
        (bundle / "kernels").mkdir(parents=True)
        for file in ("webgpu.wgsl", "simd.wasm", "simd-threads.wasm"):
            (bundle / "kernels" / file).write_text(f"{file}\n")
        with ShardWriter(bundle, 4096) as writer:
            segments = {
                i: writer.add(bytes([i + 1]) * n.nbytes) for i, n in enumerate(memory.named) if n.kind == "weight"
            }
        by_name = {n.name: n.buffer for n in memory.named if n.kind == "state"}
        entries = {"prefill_8": entry(9, "count", "start_pos"), "decode": entry(7, "start_pos")}
        entries |= {"sample": entry(3, "start_pos"), "greedy": entry(2, "start_pos")}
        need = {"weights": memory.total("weight"), "state": memory.total("state"), "temporaries": memory.pool_bytes}
        kernel = {"name": "k", "entry": "main", "bindings": ["storage", "read-only-storage"], "uniform": False}
        variant = {"features": [], "file": "kernels/webgpu.wgsl", "kernels": [kernel], "entry_points": entries}
        webgpu = {
            "limits": {"maxBufferSize": 8000},
            "bytes": need,
            "temporaries": [{"id": 6, "bytes": 4096}],
            "variants": {"base": variant},
        }
        stacks = {"base": 4096, "bytes": 65536, "max_threads": 8}
        wasm = {
            "bytes": need,
            "memory": {"pages": 20, "buffers": {"0": 589824}, "variables": 1024, "control": 2048, "stacks": stacks},
            "variants": {
                "simd": {"file": "kernels/simd.wasm", "threads": False},
                "simd-threads": {"file": "kernels/simd-threads.wasm", "threads": True},
            },
            "entry_points": {
                name: {"function": name, "variables": e["variables"], "kernels": len(e["dispatches"]) + 1}
                for name, e in entries.items()
            },
        }
        variables = (Variable("start_pos", 0, CONTEXT - 1), Variable("count", 1, 8))
        figures = {"architecture": "llama", "parameters": 2256, "layers": 1, "vocab_size": VOCABULARY}
        figures |= {"context": CONTEXT, "quant": "f16"}
        files = {
            "tokenizer": "tokenizer.json",
            "tokenizer_config": "tokenizer_config.json",
            "chat_template": "chat_template.jinja",
        }
        defaults = {"temperature": 0.7, "top_p": 0.95, "top_k": 40, "repetition_penalty": 1.0, "max_tokens": 16}
        facts = ChatFacts((4, 1), 0, (8,), by_name, defaults)
        targets = {"webgpu": webgpu, "wasm": wasm}
        for file in files.values():
            (bundle / file).write_text(f"{file}\n")
        write_manifest(bundle, manifest("toy", figures, files, writer, segments, memory, variables, facts, targets))
        return site

    return make
