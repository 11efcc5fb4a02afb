"""Compile time of one decode step of a model shaped like Llama-3.2-1B, beside tinygrad in the same run.

usage: python -m benchmarks.compiler [--runs 3] [--layers 1,2,4,8,16,32,64,126] [--no-peer]

What is measured, in a process of its own for every run, on one core: from Python calls on tensors to source text. That
is building the graph, scheduling, optimising, lowering, rendering; not importing, and not compiling the text. Weights
are memory that is named and never allocated; the position is symbolic, so that the kernels serve every step.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.contestant import Contestant
from benchmarks.harness import SECONDS, Peer, Row, Side
from benchmarks.report import machine
from benchmarks.worker import ROOT, Worker

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# the sizes of Llama-3.2-1B
HIDDEN, MLP, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY, LAYERS = 2048, 8192, 32, 8, 64, 128256, 16
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": MLP,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "tie_word_embeddings": True,
}
CONTEXT = 1024
TARGETS = ("CPU", "WASM", "WEBGPU")
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 126)
IMPORTS = ("import tinyweb", "from tinyweb import Tensor")


@dataclass(frozen=True)
class Timing:
    """One run: wall and processor seconds of each phase in order, and what came out."""

    wall: dict[str, float]
    processor: dict[str, float]
    launches: int
    kernels: int
    characters: int

    @property
    def seconds(self) -> float:
        return sum(self.wall.values())

    @property
    def cpu_seconds(self) -> float:
        return sum(self.processor.values())


class Clock:
    """Splits a run into named phases."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.processor: dict[str, float] = {}
        self._last = time.perf_counter(), time.process_time()

    def phase(self, name: str) -> None:
        """What was done since the last phase was `name`."""
        now = time.perf_counter(), time.process_time()
        self.wall[name], self.processor[name] = now[0] - self._last[0], now[1] - self._last[1]
        self._last = now


# -- tinyweb -----------------------------------------------------------------------------------------------------------
def tinyweb_run(target_name: str, layers: int) -> Timing:
    """`Decoder.decode` of tinyweb/models/decoder, weights in float16, for one target."""
    from unittest.mock import patch

    import numpy as np

    from tinyweb.dtype import DType, dtypes
    from tinyweb.formats.huggingface import Config
    from tinyweb.graph.ir import Variable
    from tinyweb.graph.lower import lower
    from tinyweb.graph.optimize import optimize
    from tinyweb.graph.target import cpu_target, wasm_target, webgpu_target
    from tinyweb.models.decoder import Decoder, architectures, model
    from tinyweb.models.decoder.loader import Loader
    from tinyweb.nn.precision import Precision
    from tinyweb.render_c import render as render_c
    from tinyweb.render_wgsl import render as render_wgsl
    from tinyweb.tensor import Tensor
    from tinyweb.tracing import capture

    class Nothing:
        """A checkpoint of the right shapes without values."""

        def read(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.int8]:
            return np.broadcast_to(np.int8(1), shape)

        def dtype(self, name: str) -> DType:
            return dtypes.float16

        def __contains__(self, name: str) -> bool:
            return True

    class Unloaded(Loader):
        """Matrices are memory that is allocated when it is first used: never."""

        def matrix(self, values: npt.NDArray[Any], precision: Precision | None = None) -> Tensor:
            return Tensor.empty(*values.shape, dtype=dtypes.float16)

    config, names = architectures.read_config(Config(CONFIG | {"num_hidden_layers": layers}, "Llama-3.2-1B"))
    with patch.object(model, "Loader", Unloaded):
        decoder = Decoder(config, names, Nothing(), "f16", CONTEXT)  # type: ignore[arg-type]
    target = cpu_target() if target_name == "CPU" else wasm_target() if target_name == "WASM" else webgpu_target()

    clock = Clock()
    start = Variable("start_pos", 0, CONTEXT - 1).bind(0)
    plan = capture(lambda: decoder.decode(start))
    clock.phase("graph, schedule")
    kernels = [optimize(k, target) for k in plan.kernels]
    clock.phase("optimize")
    programs = [lower(k, target) for k in kernels]
    clock.phase("lower")
    if target_name == "WEBGPU":
        texts = [render_wgsl(p, {"start_pos": 0}) for p in programs]
    else:
        texts = [render_c(programs)]
    clock.phase("render")
    return Timing(clock.wall, clock.processor, len(plan.calls), len(programs), sum(map(len, texts)))


# -- tinygrad ----------------------------------------------------------------------------------------------------------
def tinygrad_run(style: str, layers: int) -> Timing:
    """The same network written for tinygrad: same sizes, float16 weights, float32 activations, cache updated in place.

    Measured is from tensor calls to C text: `linear_with_vars` (schedule) and `to_program` of every distinct kernel
    with the Clang renderer, whose compiler is replaced by nothing. No beam search, no caches on disk, no checks of the
    graph (SPEC=0), no worker processes, no tracing of where tensors were made, no garbage collection: its fastest
    settings. `style` "function" makes every layer a precompiled @function, as tinygrad's own chat application does, so
    that it is scheduled once; "inline" is one graph.
    """
    # read when tinygrad is imported; NULL is its device without memory
    os.environ |= {"DEV": "NULL:CLANG:x86_64,native", "BEAM": "0", "CACHELEVEL": "0", "SPEC": "0"}
    os.environ |= {"PARALLEL": "0", "TRACEMETA": "0", "DEBUG": "0"}
    import gc

    from tinygrad.codegen import to_program
    from tinygrad.device import Device
    from tinygrad.dtype import dtypes
    from tinygrad.function import function
    from tinygrad.runtime.support.compiler_cpu import ClangCompiler
    from tinygrad.tensor import Tensor
    from tinygrad.uop import Ops
    from tinygrad.uop.ops import UOp

    setattr(ClangCompiler, "compile", lambda self, source: b"")  # noqa: B010

    def weight(*shape: int) -> Any:
        return Tensor.empty(*shape, dtype=dtypes.half)

    class Layer:
        def __init__(self) -> None:
            self.attention_norm, self.mlp_norm = weight(HIDDEN), weight(HIDDEN)
            self.query, self.output = weight(HEADS * HEAD_DIM, HIDDEN), weight(HIDDEN, HEADS * HEAD_DIM)
            self.key, self.value = weight(KV_HEADS * HEAD_DIM, HIDDEN), weight(KV_HEADS * HEAD_DIM, HIDDEN)
            self.gate, self.up, self.down = weight(MLP, HIDDEN), weight(MLP, HIDDEN), weight(HIDDEN, MLP)
            self.cache = Tensor.empty(2, 1, KV_HEADS, CONTEXT, HEAD_DIM)

        def __call__(self, x: Any, start: Any) -> Any:
            h = x + self.attention(norm(x, self.attention_norm), start)
            n = norm(h, self.mlp_norm)
            gated = n.linear(self.gate.T).silu().contiguous() * n.linear(self.up.T)
            return (h + gated.linear(self.down.T)).contiguous()

        def attention(self, x: Any, start: Any) -> Any:
            def heads(w: Any, count: int) -> Any:
                return x.linear(w.T).reshape(1, 1, count, HEAD_DIM).transpose(1, 2)

            turn = rotary[start : start + 1]
            query, key = rotate(heads(self.query, HEADS), turn), rotate(heads(self.key, KV_HEADS), turn)
            both = Tensor.stack(key, heads(self.value, KV_HEADS))
            stored = self.cache[:, :, :, start : start + 1, :].uop.store(both.uop)
            cache = Tensor(self.cache.uop.after(stored))
            key, value = cache[0, :, :, 0 : start + 1, :], cache[1, :, :, 0 : start + 1, :]
            mixed = query.scaled_dot_product_attention(key, value, enable_gqa=True)
            return mixed.transpose(1, 2).reshape(1, 1, -1).linear(self.output.T)

    def norm(x: Any, w: Any) -> Any:
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * w

    def rotate(x: Any, turn: Any) -> Any:
        cosine, sine = turn.reshape(1, 1, 1, HEAD_DIM).chunk(2, dim=-1)
        a, b = x.chunk(2, dim=-1)
        return (a * cosine - b * sine).cat(b * cosine + a * sine, dim=-1)

    def as_function(layer: Layer) -> Any:
        if style == "inline":
            return layer
        return function(precompile=True, allow_implicit=True)(lambda x, start: layer(x, start))

    embedding, last_norm, rotary = weight(VOCABULARY, HIDDEN), weight(HIDDEN), Tensor.empty(CONTEXT, HEAD_DIM)
    token = Tensor.empty(1, 1, dtype=dtypes.int)
    blocks = [Layer() for _ in range(layers)]
    renderer = Device[Device.DEFAULT].renderer
    gc.disable()

    clock = Clock()
    start = UOp.variable("start_pos", 0, CONTEXT - 1).bind(5)
    x = embedding[token].float()
    for block in blocks:
        x = as_function(block)(x, start)
    logits = norm(x, last_norm).linear(embedding.T)
    clock.phase("graph")
    calls, _ = logits.linear_with_vars()
    clock.phase("schedule")
    kernels = {call.src[0].key: call.src[0] for call in calls.src if call.src[0].op is Ops.SINK}
    programs = [to_program(kernel, renderer) for kernel in kernels.values()]
    clock.phase("codegen")
    texts = [part.arg for p in programs for part in p.src if part.op is Ops.SOURCE]
    return Timing(clock.wall, clock.processor, len(calls.src), len(texts), sum(map(len, texts)))


# -- running it --------------------------------------------------------------------------------------------------------
def pin() -> None:
    """This process and its children stay on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def in_process_of_its_own(*arguments: str) -> Timing:
    command = [sys.executable, "-m", "benchmarks.compiler", "--child", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip() or f"{' '.join(command)} failed")
    return Timing(**json.loads(done.stdout.splitlines()[-1]))


def import_seconds(statement: str, runs: int) -> list[float]:
    """Wall seconds of an import in fresh processes, after one that fills the caches of the file system."""
    program = f"import time; begin = time.perf_counter(); {statement}; print(time.perf_counter() - begin)"
    command = [sys.executable, "-c", program]
    return [float(subprocess.check_output(command, cwd=ROOT, text=True)) for _ in range(runs + 1)][1:]


def show(values: list[float], digits: int = 2) -> str:
    """Median, and from the least to the largest."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} … {max(values):.{digits}f})"


def row(name: str, timings: list[Timing]) -> str:
    middle = sorted(timings, key=lambda t: t.seconds)[len(timings) // 2]
    phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in middle.wall.items())
    wall, processor = show([t.seconds for t in timings]), show([t.cpu_seconds for t in timings])
    return f"| {name} | {wall} | {processor} | {middle.launches} | {middle.kernels} | {phases} |"


def median(timings: list[Timing]) -> float:
    return statistics.median(t.seconds for t in timings)


def median_processor(timings: list[Timing]) -> float:
    return statistics.median(t.cpu_seconds for t in timings)


class Compile(Contestant):
    """Seconds from graph to text, every time in a fresh process. `variant`: a target, or a style of tinygrad_run."""

    def __init__(self, library: str, variant: str):
        pin()
        self.case = library, variant

    def versions(self) -> dict[str, str]:
        from importlib.metadata import version

        return {self.case[0]: version(self.case[0])}

    def run(self, task: str, repeat: int) -> float:
        return sum(in_process_of_its_own(*self.case, str(LAYERS)).seconds for _ in range(repeat))


def rows() -> list[Row]:
    """For the harness: one row per target. There is no result to compare: the texts are different programs."""

    def side(library: str, variant: str) -> Side:
        worker = Worker.of("benchmarks.compiler:Compile", library=library, variant=variant)
        return Side(library if library == "tinyweb" else f"{library}, {variant}", worker)

    return [
        Row(
            name=f"compile-llama-1b-{target.lower()}",
            group="compiler",
            work=f"Llama-3.2-1B decode step, graph to source text, {target}",
            ours=side("tinyweb", target),
            peers=(Peer(side("tinygrad", "function"), 3.0, None),),
            unit=SECONDS,
            priority=3,
            seconds=45,
            turns=3,
            turn_seconds=0,
        )
        for target in TARGETS
    ]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiler", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="how often each figure is measured")
    parser.add_argument("--layers", default=",".join(map(str, DEPTHS)), help="depths of the table of growth")
    parser.add_argument("--no-peer", action="store_true", help="tinyweb alone")
    given = parser.parse_args(arguments)
    depths = [int(n) for n in given.layers.split(",") if n]
    pin()
    here = machine()
    print(f"One decode step, Llama-3.2-1B sizes, graph to source text, one core; {here['processor']}.")
    print("Seconds, median (least … largest).\n")

    cases = {f"tinyweb, {name}": ("tinyweb", name) for name in TARGETS}
    if not given.no_peer:
        cases |= {f"tinygrad, {style}": ("tinygrad", style) for style in ("function", "inline")}
    found: dict[str, list[Timing]] = {name: [] for name in cases}
    for _ in range(given.runs):  # turn by turn: what disturbs the machine disturbs all alike
        for name, case in cases.items():
            found[name].append(in_process_of_its_own(*case, str(LAYERS)))
    print("| | wall | processor | launches | kernels | of this, wall |\n| --- | --- | --- | --- | --- | --- |")
    for name, timings in found.items():
        print(row(name, timings))
    if not given.no_peer:
        best = min((n for n in cases if n.startswith("tinygrad")), key=lambda n: median(found[n]))
        for kind, of in (("wall", median), ("processor", median_processor)):
            ratios = [f"{of(found[best]) / of(found[f'tinyweb, {t}']):.1f} × ({t})" for t in TARGETS]
            print(f"\nFaster than {best}, {kind} time: {', '.join(ratios)}.")

    if depths:
        print("\n| layers | tinyweb, CPU: wall | processor | launches | kernels | of this, wall |")
        print("| --- | --- | --- | --- | --- | --- |")
        growth: dict[int, float] = {}
        for depth in depths:
            timings = [in_process_of_its_own("tinyweb", "CPU", str(depth)) for _ in range(given.runs)]
            growth[depth] = median_processor(timings)
            print(row(str(depth), timings), flush=True)
        print()
        for a, b in itertools.pairwise(depths):
            each = 1000 * (growth[b] - growth[a]) / max(b - a, 1)
            print(f"{a} to {b} layers: {each:.1f} ms of processor time for each layer")
    print()
    for statement in IMPORTS:
        print(f"`{statement}`: {show(import_seconds(statement, max(given.runs, 5)), 3)} s")


def child(arguments: list[str]) -> None:
    pin()
    library, variant, layers = arguments
    timing = (tinyweb_run if library == "tinyweb" else tinygrad_run)(variant, int(layers))
    print(json.dumps(vars(timing)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
    else:
        main(sys.argv[1:])
