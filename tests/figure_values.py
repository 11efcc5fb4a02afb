"""What computes the figures that documents name (tests/figures.py)."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from benchmarks import harness
from tinyweb.formats.gguf import stored
from tinyweb.formats.gguf.blocks import BlockFormat
from tinyweb.formats.gguf.stored import HELD
from tinyweb.formats.gguf.types import BY_NAME

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "assets" / "models"
MB = 1e6
DEVICE = "web/runtime/src/device.ts"


def constant(value: object) -> Callable[[], Sequence[object]]:
    return lambda: [value]


def setting(file: str, pattern: str) -> Callable[[], Sequence[object]]:
    """What a source file says, found once."""

    def read() -> Sequence[object]:
        found = re.findall(pattern, (ROOT / file).read_text(encoding="utf-8"))
        assert len(found) == 1, f"{pattern} is found {len(found)} times in {file}"
        return [found[0]] if isinstance(found[0], str) else list(found[0])

    return read


def untold(kind: str) -> Callable[[], Sequence[object]]:
    """GiB that a model may take on a kind of device that does not tell its memory."""
    return lambda: [setting(DEVICE, rf"{kind}: \{{ untold: (?:(\S+) \* )?GIB")()[0] or "1"]


# -- models ------------------------------------------------------------------------------------------------------------
def bits_of_types(*names: str) -> Callable[[], Sequence[object]]:
    """Bits of a weight in blocks of GGUF: as a file stores them → as they are held, where that differs."""

    def text(bits: float) -> str:
        return f"{math.floor(100 * bits + 0.5) / 100:g}"

    def both(name: str) -> str:
        form, how = BY_NAME[name], HELD[name]
        assert isinstance(form, BlockFormat)
        parts = next(stored.parts(stored.rows_of(form, np.zeros(form.bytes, np.uint8), (1, form.elements))))
        held = [(4 if n in how.types else 8 * v.itemsize) * v.size for n, v in parts.items() if n != "codes"]
        found = [text(8 * form.bytes / form.elements), text(how.bits + sum(held) / form.elements)]
        return " → ".join(dict.fromkeys(found))

    return lambda: [", ".join(both(name) for name in names)]


def parameters(*files: str) -> int:
    """Numbers in safetensors files below assets/models."""
    total = 0
    for file in files:
        with safe_open(str(MODELS / file), "np") as tensors:
            total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    return total


def bytes_of_models() -> int:
    """Of all that the embedded models' folders hold, but for what Python leaves behind."""
    return sum(p.stat().st_size for p in MODELS.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def megabytes(file: str) -> str:
    return f"{(MODELS / file).stat().st_size / MB:.1f}"


@cache
def chat_launches() -> dict[str, dict[str, int]]:
    """Activations -> launches of the embedded chat model (q8): "decode", "sample", "greedy", and of one "layer"."""
    from tinyweb.graph.ir import Variable
    from tinyweb.models import load
    from tinyweb.tracing import capture

    model = load(MODELS / "tinychat-7m", "q8", device="CPU")
    layers, caches = model.layers, model.caches
    start = Variable("start_pos", 0, model.context - 1).bind(0)
    found: dict[str, dict[str, int]] = {}
    for activations in ("float", "int8"):
        model.activations, model.layers, model.caches = activations, layers, caches
        entries = {"decode": model.decode, "sample": model.sample, "greedy": model.greedy}
        calls = {name: len(capture(partial(entry, start)).calls) for name, entry in entries.items()}
        model.layers, model.caches = layers[:-1], caches[:-1]
        found[activations] = calls | {"layer": calls["decode"] - len(capture(lambda: model.decode(start)).calls)}
    return found


def sampler_reductions() -> int:
    """The most reductions of a kernel that chooses a token."""
    from tinyweb.graph.ir import Ops, Variable
    from tinyweb.models import load
    from tinyweb.tracing import capture

    model = load(MODELS / "tinychat-7m", "q8", device="CPU")
    plan = capture(lambda: model.sample(Variable("start_pos", 0, model.context - 1).bind(0)))
    return max(sum(u.op is Ops.REDUCE for u in kernel.toposort()) for kernel in plan.kernels)


def factorisations() -> list[int]:
    """Launches of cholesky, lu, qr, eigh and svd of 16 columns."""
    from tinyweb import Tensor
    from tinyweb.tracing import capture

    a = np.random.default_rng(0).random((16, 16)).astype(np.float32)
    x = Tensor(a @ a.T + np.eye(16, dtype=np.float32)).realize()
    return [len(capture(f).calls) for f in (x.cholesky, x.lu, x.qr, x.eigh, x.svd)]


def blocks_of_prompts() -> list[str]:
    """The blocks that reading three to eight and 49 tokens begins with."""
    from tinyweb.models.chat import BLOCKS, choose_block

    few = {choose_block((*BLOCKS, 1), n) for n in range(3, 9)}
    return [" ".join(map(str, few)), str(choose_block((*BLOCKS, 1), 49))]


def per_token(activations: str) -> list[int]:
    calls = chat_launches()[activations]
    return [calls["decode"] + calls["sample"], calls["decode"] + calls["greedy"]]


@cache
def llama_1b() -> Any:
    from benchmarks.compiler import tinyweb_run

    return tinyweb_run("CPU", 16)


@cache
def embed_scores(quant: str) -> tuple[list[str], list[str]]:
    """Of tinyembed and of a bag of words: share of right passages first, among three, reciprocal rank, Spearman."""
    command = [sys.executable, "tools/train/tinyembed/evaluate.py", "assets/models/tinyembed", "--quant", quant]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300).stdout
    model, bag = (re.findall(r": +(-?\d\.\d+)", line) for line in text.splitlines())
    return model, bag


def embed_row(quant: str) -> Callable[[], list[str]]:
    return lambda: [f"{float(v):.2f}" for v in embed_scores(quant)[0]]


def embed_percent() -> list[str]:
    model, bag = embed_scores("q8")
    return [f"{100 * float(v):.0f}" for v in (*model[:2], *bag[:2])]


def embed_data(key: str) -> int:
    return len(json.loads((MODELS / "tinyembed" / "eval.json").read_text())[key])


@cache
def chat_items() -> list[dict[str, Any]]:
    """The items of the chat model's evaluation, made by its generator."""
    code = (
        "import json, sys; sys.path.insert(0, 'tools/train/tinychat'); import evaluate; "
        "print(json.dumps(evaluate.evalset.build(evaluate.SEED, evaluate.PER_SKILL)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, timeout=300)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@cache
def ground_truth() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MODELS / "tinyyolo/test_images/ground_truth.json").read_text())["images"]
    return found


def shipped_pictures() -> list[str]:
    """mAP50, mAP50-95, precision and recall of tinyyolo on the pictures that come with it."""
    folder = MODELS / "tinyyolo"
    command = [sys.executable, "evaluate_images.py", "--model", str(folder), "--images", str(folder / "test_images")]
    done = subprocess.run(
        [*command, "--conf", "0.45"],
        cwd=ROOT / "tools/train/tinyyolo",
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    found = re.search(
        r"(\d+) images, (\d+) objects: mAP50 (\S+)  mAP50-95 (\S+); .*precision (\S+) recall (\S+)", done.stdout
    )
    assert found is not None, done.stdout
    return [found[1], found[2], *(f"{float(v):.3f}" for v in found.groups()[2:])]


def interval_percent() -> list[str]:
    nine, five, three = (harness.interval(n)[1] for n in (9, 5, 3))
    return [f"{100 * v:.0f}" for v in (harness.CONFIDENCE, nine, five, three)]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def imported_sizes() -> list[str]:
    """Kilobytes of a page that imports one thing of the library."""
    done = subprocess.run(
        ["node", "web/runtime/scripts/imports.mjs"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    return [f"{int(line.split()[1]) / 1000:.1f}" for line in done.stdout.splitlines()]
