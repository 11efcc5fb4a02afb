"""Rows measured in Chromium: exported bundles beside the libraries a page would use instead."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.browser.works import FUNCTIONS, LANGUAGE, LOAD
from benchmarks.checkpoints import RANDOM
from benchmarks.contestant import Arrays
from benchmarks.harness import MILLISECONDS, SECONDS, Peer, Row, Side, Unit, close
from benchmarks.worker import Worker

CHROMIUM = Worker.of("benchmarks.browser.chromium:Chromium")  # one for all rows
NAMES = {
    "tinyweb": "tinyweb",
    "onnxruntime": "onnxruntime-web",
    "jax": "jax-js",
    "wllama": "wllama",
}
BACKENDS = {"wasm": "WASM", "webgpu": "WebGPU"}


def side(work: str, library: str, backend: str, threads: int) -> Side:
    return Side(f"{NAMES[library]} {BACKENDS[backend]}", CHROMIUM, f"{work}/{library}-{backend}/{threads}")


def function_row(
    work: str, text: str, peers: dict[str, float], backend: str, threads: int, unit: Unit, priority: int, error: float
) -> Row:
    """`peers`: targets by library. Results agree to `error` of their largest value."""
    suffix = f"{threads}t" if backend == "wasm" else "gpu"
    many = f"{threads} thread{'s' if threads > 1 else ''}" if backend == "wasm" else "software adapter"
    return Row(
        name=f"chromium-{work}-{suffix}",
        group="browser",
        work=f"{text}, {BACKENDS[backend]} in Chromium, {many}",
        ours=side(work, "tinyweb", backend, threads),
        peers=tuple(
            Peer(side(work, library, backend, threads), target, close(error)) for library, target in peers.items()
        ),
        unit=unit,
        priority=priority,
        seconds=25,
        timing_seconds=20,
    )


AGREE = 0.75  # activations are rounded differently, and random logits lie close to each other


def same_tokens(ours: Arrays, theirs: Arrays) -> str | None:
    """Most greedy tokens after different prompts are the same."""
    equal = float(np.mean(ours["tokens"] == theirs["tokens"]))
    return None if equal >= AGREE else f"{equal:.0%} of the greedy tokens are the same, {AGREE:.0%} are wanted"


def language_row(
    shape: str, quant: str, task: str, threads: int, targets: tuple[float, float | None], priority: int
) -> Row:
    """`targets`: against wllama, and against the bound for decoding."""
    work = f"llama-{shape}-{quant}-{task}"
    tokens = LANGUAGE[work].tokens if task == "prefill" else 1
    peers = [Peer(side(work, "wllama", "wasm", threads), targets[0], same_tokens)]
    native = Worker.of("benchmarks.native.llama:LlamaCpp", shape=shape, quant=quant, threads=threads, peer=True)
    # its results are compared with ours in the rows of `benchmarks.native.llama`
    peers.append(Peer(Side("llama.cpp native", native, task), 0.8 if task == "decode" else 0.3, None))
    if targets[1] is not None:
        bound = Side("reading the weights once in WASM", CHROMIUM, f"{work}/bandwidth-wasm/{threads}")
        peers.append(Peer(bound, targets[1], None))
    what = "decode" if task == "decode" else f"prefill of {tokens} tokens"
    return Row(
        name=f"chromium-{work}-{threads}t",
        group="browser",
        work=f"Llama {shape.upper()} {quant} {what}, WASM in Chromium, {threads} thread{'s' if threads > 1 else ''}",
        ours=side(work, "tinyweb", "wasm", threads),
        peers=tuple(peers),
        unit=Unit("tokens/s", tokens),
        priority=priority,
        seconds=45,
        turns=5,
        turn_seconds=0,
        timing_seconds=25,
    )


def rows() -> list[Row]:
    return list(_rows())


def _rows() -> Iterator[Row]:
    for threads in (1, 2):
        for size in (512, 1024):
            unit = Unit("GFLOP/s", 2 * size**3 / 1e9)
            peers = {"onnxruntime": 1.6, "jax": 1.5}
            yield function_row(f"matmul-{size}", f"f32 matmul {size}³", peers, "wasm", threads, unit, 1, 1e-5)
        for work, text in (("resnet18-224", "ResNet-18, 224×224"), ("yolov8n-320", "YOLOv8n, 320×320")):
            assert work in FUNCTIONS
            yield function_row(work, text, {"onnxruntime": 1.3}, "wasm", threads, MILLISECONDS, 1, 1e-3)
        for quant in ("q8", "q4"):
            yield language_row("110m", quant, "decode", threads, (4, 0.6), 1 if threads == 2 else 2)
            yield language_row("110m", quant, "prefill", threads, (3, None), 1 if threads == 2 else 2)
        for quant in RANDOM if threads == 2 else ():
            yield language_row("110m", quant, "decode", threads, (4, None), 1)
    unit = Unit("GFLOP/s", 2 * 1024**3 / 1e9)
    peers = {"onnxruntime": 4.0, "jax": 1.3}
    yield function_row("matmul-1024", "f32 matmul 1024³", peers, "webgpu", 1, unit, 1, 1e-4)
    loaded = Side("onnxruntime-web WASM, a model of that size loaded", CHROMIUM, f"{LOAD}/onnxruntime-wasm/2")
    yield Row(
        name="chromium-first-token-second-visit",
        group="browser",
        work="embedded chat page: first token on a second visit, WASM in Chromium",
        ours=Side("tinyweb WASM", Worker.of("benchmarks.page:Page", backend="wasm"), "second visit"),
        peers=(Peer(loaded, 1.0, None),),  # there is no result that both have
        unit=SECONDS,
        priority=1,
        seconds=30,
        turns=7,
        turn_seconds=0,
    )
