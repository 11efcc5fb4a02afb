"""Kernels of whole networks for any target, without their weights, and of `python -m benchmarks cliffs`: what must
compile for GPUs that are not here."""

from __future__ import annotations

import argparse
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import UOp, size_max
from tinyweb.graph.lower import program_for
from tinyweb.graph.optimize import FallbackWarning
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.tensor import Tensor
from tinyweb.tracing import Plan, capture

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "native.md"
MODELS = ROOT / "assets" / "models"
# the sizes of Llama-3.2-1B; layers are alike but for the last one, of which a prompt needs less
LLAMA_1B = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True,
}  # fmt: skip
CONTEXT, BLOCK = 1024, 128  # tokens of the cache, and of a prompt that are read together
DEVICE = "CPU"  # where the tensors are that are recorded: nothing is computed

Plans = dict[str, Plan]


def tinychat(target: Target) -> Plans:
    """All entry points of the embedded chat model, with 8-bit weights."""
    from tinyweb.models import load
    from tinyweb.models.chat import entry_points
    from tinyweb.nn.quantize import activations_for

    model: Any = load(MODELS / "tinychat-7m", "q8", device=DEVICE)
    model.activations = activations_for(target)
    return entry_points(model, None, target)


def yolov8n(target: Target) -> Plans:
    """The detector with its boxes for a picture of 320 × 320."""
    from tinyweb.models.yolov8 import YOLOv8

    detector = YOLOv8.random("n", device=DEVICE).detector((320, 320))
    return {"detect": capture(lambda: list(detector(**detector.inputs(DEVICE)).values()), target)}


def unet(target: Target) -> Plans:
    """All parts of the embedded image generator, for its own size."""
    from tinyweb.export import image
    from tinyweb.export.recording import record
    from tinyweb.models.stable_diffusion.source import Source

    model = Source.open(MODELS / "tinysd")
    sizes = image.tiled_sizes(model, image.ImageOptions())
    plans: Plans = {}
    for part in image.PARTS:
        layers = getattr(model, f"load_{part.removeprefix('vae_')}")("f16", image.DEVICE)
        functions = image.part_functions(part, layers, model, list(sizes), list(sizes.values()))
        plans |= {name: record(*how, target).plan for name, how in functions.items()}
    return plans


def llama(quant: str, target: Target) -> Plans:
    """Two layers and the head of a decoder with the sizes of Llama-3.2-1B: a token, and a block of a prompt."""
    from tinyweb.graph.ir import Variable
    from tinyweb.nn.quantize import activations_for

    model = _llama(quant)
    model.activations = activations_for(target)
    start = Variable("start_pos", 0, CONTEXT - BLOCK).bind(0)
    count = Variable("count", 1, BLOCK).bind(1)
    return {
        "decode": capture(lambda: model.decode(start), target),
        "prefill": capture(lambda: model.prefill(BLOCK, start, count), target),
    }


@cache
def _llama(quant: str) -> Any:
    from tinyweb.formats.huggingface import Config
    from tinyweb.models.decoder import Decoder, architectures, model
    from tinyweb.models.decoder.loader import Loader
    from tinyweb.nn.precision import Precision
    from tinyweb.nn.quantized_weight import QuantizedWeight

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

        def matrix(self, values: npt.NDArray[Any], precision: Precision | None = None) -> Tensor | QuantizedWeight:
            made = (precision or self.recipe.layers).convert(np.ones((8, values.shape[1]), np.float32), DEVICE)
            if made is None:
                return Tensor.empty(*values.shape, dtype=dtypes.float16, device=DEVICE)

            def as_large(part: Tensor) -> Tensor:
                return Tensor.empty([len(values), *map(size_max, part.shape[1:])], dtype=part.dtype, device=DEVICE)

            return replace(
                made, values=as_large(made.values), scales=as_large(made.scales), upper=tuple(map(as_large, made.upper))
            )

    config, names = architectures.read_config(Config(LLAMA_1B, "Llama-3.2-1B"))
    with patch.object(model, "Loader", Unloaded):
        return Decoder(config, names, Nothing(), quant, CONTEXT, DEVICE, "float")  # type: ignore[arg-type]


def products(target: Target) -> Plans:
    """Products of square matrices, of types that GPUs have matrix instructions for."""

    def product(operand: DType, result: DType) -> Plan:
        a, b = (Tensor.empty(2048, 2048, dtype=operand, device=DEVICE) for _ in range(2))
        return capture(lambda: (a.cast(result) @ b.cast(result)).realize(), target)

    floats = {t.short: product(t, dtypes.float32) for t in (dtypes.float16, dtypes.bfloat16)}
    return {**floats, "i8": product(dtypes.int8, dtypes.int32)}


PRODUCTS = "products f16, bf16, i8"
NETWORKS: dict[str, Callable[[Target], Plans]] = {
    "tinychat-7m q8": tinychat,
    "YOLOv8n": yolov8n,
    "tinysd": unet,
    **{f"Llama-1B {quant}": partial(llama, quant) for quant in ("q4", "q8", "f16")},
    PRODUCTS: products,
}
CLIFFS = "benchmarks cliffs"
SETS = (*NETWORKS, CLIFFS)


def kernels(name: str, target: Target) -> Iterator[UOp]:
    """The different kernels of a set, in the order of their first launch. Of array code they are planned one work
    after the other, so that those of one compile while others are planned."""
    if name != CLIFFS:
        plans = NETWORKS[name](target)
        yield from dict.fromkeys(call.kernel for plan in plans.values() for call in plan.calls)
        return
    if str(ROOT) not in sys.path:  # where a tool is run as a file
        sys.path.append(str(ROOT))
    from benchmarks.cliffs.works import WORKS
    from benchmarks.count.run import planned

    seen: set[UOp] = set()
    for work in WORKS.values():
        new = dict.fromkeys(call.kernel for call in planned(work, target)[0].calls if call.kernel not in seen)
        seen.update(new)
        yield from new


def programs(name: str, target: Target) -> Iterator[Program]:
    """… lowered, each once. A schedule that lowering refuses is an error."""
    seen: set[str] = set()
    for kernel in kernels(name, target):
        with warnings.catch_warnings():
            warnings.simplefilter("error", FallbackWarning)
            program = program_for(kernel, target)
        if program.name not in seen:
            seen.add(program.name)
            yield program


def arguments(about: str | None, sets: Sequence[str], chips: Sequence[str]) -> argparse.Namespace:
    """What is asked for: `sets` of kernels by their names and `chips`, all of them where none is named. `write`: that
    it is everything, which the page shows."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "sets", nargs="*", metavar="SET", help=f"default: all, and the page is written: {', '.join(map(repr, sets))}"
    )
    parser.add_argument("--chips", nargs="+", default=list(chips), metavar="CHIP")
    given = parser.parse_args()
    for name in given.sets:
        if name not in sets:
            parser.error(f"there is no set {name!r}: choose of {', '.join(map(repr, sets))}")
    given.write = not given.sets and given.chips == list(chips)
    given.sets = given.sets or list(sets)
    return given


def write_table(tool: str, lines: Sequence[str]) -> None:
    """Put a table of what kernels take into docs/native.md, at the place of a tool, with the date and the commit."""
    begin, end = f"<!-- tools/{tool} writes from here -->", "<!-- to here -->"
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    table = "\n".join([f"Compiled without a GPU ({date.today()}, {commit}):", "", *lines])
    before, _, rest = PAGE.read_text().partition(begin)
    PAGE.write_text(f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}")
