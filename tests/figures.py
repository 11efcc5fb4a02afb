"""The figures that documents name, each beside what computes it: `tests/test_figures.py` compares.

A figure is a document, a pattern that is found in it exactly once, and a function for the texts of the pattern's
groups. What was measured (times, ratios, accuracies of training) is no figure of this kind: it is dated where it
stands, with the commit that it was measured at.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import page_size
from safetensors import safe_open

import benchmarks.browser.works as browser_works
import benchmarks.native.kernels as native_kernels
import benchmarks.native.llama as native_llama
from benchmarks import harness, run
from tinyweb.graph.lower import blocks, loops
from tinyweb.graph.optimize import search
from tinyweb.graph.schedule import fusion
from tinyweb.models import detection
from tinyweb.nn.quantize import GROUP

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "assets" / "models"
MB = 1e6
ARCHITECTURE, BENCHMARKS, JAVASCRIPT = "docs/architecture.md", "docs/benchmarks.md", "docs/javascript.md"
DEVICE = "web/runtime/src/device.ts"


@dataclass(frozen=True)
class Figure:
    """`pattern`: a regular expression; spaces stand for any white space. `values`: the text of each of its groups."""

    document: str
    pattern: str
    values: Callable[[], Sequence[object]]
    slow: bool = False

    @property
    def expression(self) -> re.Pattern[str]:
        return re.compile(self.pattern.replace(" ", r"\s+"), re.DOTALL)

    def __str__(self) -> str:
        return f"{self.document}: {self.pattern[:50]}"


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
def parameters(*files: str) -> int:
    """Numbers in safetensors files below assets/models."""
    total = 0
    for file in files:
        with safe_open(str(MODELS / file), "np") as tensors:
            total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    return total


def megabytes(file: str) -> str:
    return f"{(MODELS / file).stat().st_size / MB:.1f}"


@cache
def chat_launches() -> dict[str, dict[str, int]]:
    """Activations -> launches of the embedded chat model (q8): "decode", "sample", "greedy", and of one "layer"."""
    from tinyweb.graph.ir import Variable
    from tinyweb.models.llama import Llama
    from tinyweb.tracing import capture

    model = Llama.from_folder(MODELS / "tinychat-7m", "q8", device="CPU")
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


CHAT, EMBED, SD, YOLO = (
    f"assets/models/{name}/README.md" for name in ("tinychat-7m", "tinyembed", "tinysd", "tinyyolo")
)

FIGURES = [
    # the package
    Figure(
        "README.md",
        r"With Python (\d+\.\d+), Node (\d+)",
        lambda: [
            project()["project"]["requires-python"].removeprefix(">="),
            json.loads((ROOT / "web/runtime/package.json").read_text())["engines"]["node"]
            .removeprefix(">=")
            .split(".")[0],
        ],
    ),
    Figure(
        JAVASCRIPT,
        r"\*\*Node\*\* (\S+) and later",
        lambda: [
            json.loads((ROOT / "web/runtime/package.json").read_text())["engines"]["node"].removeprefix(">="),
        ],
    ),
    Figure(
        "README.md",
        r"runtime at most (\d+) KB, whole chat page at most (\d+) KB",
        lambda: [page_size.RUNTIME_BUDGET // page_size.KB, page_size.PAGE_BUDGET // page_size.KB],
    ),
    Figure(JAVASCRIPT, r"together are below (\d+) KB gzipped", lambda: [page_size.RUNTIME_BUDGET // page_size.KB]),
    Figure(
        "web/runtime/README.md",
        r"below (\d+) KB \((\d+),000 bytes\)",
        lambda: [page_size.RUNTIME_BUDGET // page_size.KB] * 2,
    ),
    Figure(
        JAVASCRIPT,
        r"`loadChat` alone (\S+) KB gzipped, of `loadDetector` (\S+), of `loadImageGenerator` (\S+), "
        r"of `loadEmbedder` (\S+) \(",
        imported_sizes,
    ),
    Figure(JAVASCRIPT, r"\| iPhone \| (\S+) GiB", untold("iphone")),
    Figure(JAVASCRIPT, r"\| iPad \| (\S+) GiB", untold("ipad")),
    Figure(JAVASCRIPT, r"\| Android \| \S+ of `navigator.deviceMemory`; (\S+) GiB", untold("android")),
    Figure(JAVASCRIPT, r"\| Android \| (\S+) of", setting(DEVICE, r"android: .* share: (\S+) \}")),
    Figure(
        JAVASCRIPT, r"half of `navigator.deviceMemory` where that is below (\d+) GiB", setting(DEVICE, r"CAP = (\d+);")
    ),
    # the compiler
    Figure(
        ARCHITECTURE, r"tinychat-7m takes (\d+) kernels per sampled token, (\d+) greedily", lambda: per_token("float")
    ),
    Figure(
        ARCHITECTURE,
        r"a layer is (\d+) kernels then, and tinychat-7m takes (\d+) and (\d+)",
        lambda: [chat_launches()["int8"]["layer"], *per_token("int8")],
    ),
    Figure(
        ARCHITECTURE, r"A Llama layer in decode is (\d+) kernels where", lambda: [chat_launches()["float"]["layer"]]
    ),
    Figure(
        "CHANGELOG.md",
        r"found in any expression of tensors; (\w+) kernels per Llama layer with activations as floats",
        lambda: [{6: "six"}.get(chat_launches()["float"]["layer"])],
    ),
    Figure(ARCHITECTURE, r"a reduce to one number over at most (\d+) elements", constant(fusion.CHEAP_REDUCE)),
    Figure(ARCHITECTURE, r"in two steps beyond (\d+) threads", constant(loops.FLAT_EXCHANGE)),
    Figure(
        ARCHITECTURE,
        r"Llama-3.2-1B \((\d+) layers, (\d+) launches, (\d+) kernels\)",
        lambda: [16, llama_1b().launches, llama_1b().kernels],
    ),
    Figure(
        "docs/numerics.md",
        r"has blocks of (\d+) inside loops of at most (\d+) steps",
        lambda: [blocks.BLOCK, blocks.LONGEST],
    ),
    Figure("docs/schedules.md", r"takes at most (\d+) % of its time in both", lambda: [f"{100 * search.WORTH:.0f}"]),
    Figure(
        "docs/schedules.md",
        r"The best (\w+) schedules are where the next round begins; the best (\w+) run again",
        lambda: [{4: "four"}.get(search.BEAM), {2: "two"}.get(search.RETIMED)],
    ),
    Figure("docs/schedules.md", r"At the end the (\w+) best", lambda: [{3: "three"}.get(search.FINALISTS)]),
    Figure(
        "docs/export.md",
        r"one half-float scale per (\d+) inputs \| (\S+) \|",
        lambda: [GROUP, f"{(GROUP + 2) / GROUP:.2f}"],
    ),
    Figure(
        "docs/export.md",
        r"4-bit integers in groups of (\d+) inputs; embeddings in 8 bits \| (\S+), embeddings (\S+) \|",
        lambda: [GROUP, f"{(GROUP / 2 + 2) / GROUP:.2f}", f"{(GROUP + 2) / GROUP:.2f}"],
    ),
    # benchmarks
    Figure(BENCHMARKS, r"its peers for about (\d+) minutes", lambda: [f"{run.SECONDS / 60:.0f}"]),
    Figure("Makefile", r"Measure speed against peers, (\d+) minutes", lambda: [f"{run.SECONDS / 60:.0f}"]),
    Figure(BENCHMARKS, r"`searched`: after (\d+) s of search", lambda: [f"{native_kernels.SEARCH_SECONDS:.0f}"]),
    Figure(
        BENCHMARKS,
        r"decode \((\d+) tokens behind (\d+)\) and prefill \((\d+) tokens\)",
        lambda: [native_llama.DECODED, native_llama.PROMPT, native_llama.PREFILLED],
    ),
    Figure(
        BENCHMARKS, r"for networks, (\d+) % of the norm of the logits", lambda: [f"{100 * native_llama.TOLERANCE:.0f}"]
    ),
    Figure(
        BENCHMARKS,
        r"with (\d+) % from six turns on \(nine turns without the least and the largest: (\d+) %\), with (\d+) % "
        r"for five, (\d+) % for three",
        interval_percent,
    ),
    Figure(
        BENCHMARKS,
        r"only loads a model of the same size \((\S+) MB\)",
        lambda: [f"{browser_works.LOAD_BYTES / MB:.1f}"],
    ),
    # pages
    Figure(
        "docs/search.md", r"done in slices of (\d+) ms", setting("web/search/src/app/finder.ts", r"SLICE_MS = (\d+)")
    ),
    Figure(
        "docs/search.md",
        r"passages of at most (\d+) tokens, at paragraphs",
        setting("web/runtime/src/embed/embedder.ts", r"PASSAGE_TOKENS = (\d+)"),
    ),
    Figure(
        "docs/search.md",
        r"and up to (\S+) for the share",
        setting("web/search/src/app/rank.ts", r"WORDS_WORTH = ([\d.]+)"),
    ),
    Figure(
        "docs/detect.md",
        r"Grey \((\d+)\) around the picture; the network; the (\d+) positions",
        lambda: [detection.PAD, detection.CANDIDATES],
    ),
    Figure(
        "docs/detect.md",
        r"bits; (\d+) candidates are then decided by each of (\d+) launches",
        lambda: [detection.WORD, detection.CANDIDATES // detection.WORD],
    ),
    Figure("docs/detect.md", r"`boxes` \| f32 \[(\d+), 4\]", constant(detection.MAX_BOXES)),
    Figure(
        "docs/detect.md",
        r"Of the (\d+) objects in tinyyolo's (\w+) held-out pictures",
        lambda: [sum(len(p["objects"]) for p in ground_truth().values()), {6: "six"}.get(len(ground_truth()))],
    ),
    # the embedded models
    Figure(
        CHAT,
        r"A (\d+)-million-parameter chat model",
        lambda: [f"{parameters('tinychat-7m/model.safetensors') / MB:.0f}"],
    ),
    Figure(
        "README.md",
        r"the embedded (\d+)-million-parameter chat model",
        lambda: [f"{parameters('tinychat-7m/model.safetensors') / MB:.0f}"],
    ),
    Figure(
        CHAT,
        r"layout \((\d+) layers, hidden (\d+), (\d+) heads, (\d+) key/value heads",
        lambda: [
            json.loads((MODELS / "tinychat-7m/config.json").read_text())[key]
            for key in ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads")
        ],
    ),
    Figure(CHAT, r"is float16, (\S+) MB", lambda: [megabytes("tinychat-7m/model.safetensors")]),
    Figure(
        CHAT, r"`eval.json`: (\d+) items", lambda: [len(json.loads((MODELS / "tinychat-7m/eval.json").read_text()))]
    ),
    Figure(CHAT, r"items of a skill\) asks: (\d+) items", lambda: [len(chat_items())]),
    Figure(
        EMBED,
        r"of (\d) layers \(hidden (\d+), (\d+) heads, vocabulary of (\d+) word pieces, (\d+) positions; (\S+) million",
        lambda: [
            *(
                json.loads((MODELS / "tinyembed/config.json").read_text())[key]
                for key in (
                    "num_hidden_layers",
                    "hidden_size",
                    "num_attention_heads",
                    "vocab_size",
                    "max_position_embeddings",
                )
            ),
            f"{parameters('tinyembed/model.safetensors') / MB:.1f}",
        ],
    ),
    Figure(EMBED, r"is float16, (\S+) MB", lambda: [megabytes("tinyembed/model.safetensors")]),
    Figure(
        EMBED,
        r"`eval.json`: (\d+) passages .*? and (\d+) pairs",
        lambda: [embed_data("search"), embed_data("similarity")],
    ),
    *(
        Figure(EMBED, rf"\| tinyembed, {quant} \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|", embed_row(quant))
        for quant in ("f16", "q8", "q4")
    ),
    Figure(
        EMBED,
        r"\| bag of words \| (\S+) \| (\S+) \| (\S+) \| −(\S+) \|",
        lambda: [f"{abs(float(v)):.2f}" for v in embed_scores("q8")[1]],
    ),
    Figure(
        "docs/search.md",
        r"\((\S+) million parameters, \S+ MB with 8-bit weights\) puts the right one of (\d+) passages",
        lambda: [f"{parameters('tinyembed/model.safetensors') / MB:.1f}", embed_data("search")],
    ),
    Figure(
        "docs/search.md",
        r"first for (\d+) % of queries .*? first three for (\d+) %; .*? bag of words for (\d+) % and (\d+) %",
        embed_percent,
    ),
    Figure(
        SD,
        r"cross-attention at the two lower levels, (\S+) M values",
        lambda: [f"{parameters('tinysd/unet/diffusion_pytorch_model.safetensors') / MB:.1f}"],
    ),
    Figure(
        SD,
        r"downsampling by four, (\S+) M values",
        lambda: [f"{parameters('tinysd/vae/diffusion_pytorch_model.safetensors') / MB:.1f}"],
    ),
    Figure(
        SD,
        r"float16: UNet (\S+) MB, text encoder (\S+) MB, autoencoder (\S+) MB",
        lambda: [
            megabytes(f"tinysd/{part}")
            for part in (
                "unet/diffusion_pytorch_model.safetensors",
                "text_encoder/model.safetensors",
                "vae/diffusion_pytorch_model.safetensors",
            )
        ],
    ),
    Figure(
        SD,
        r"scaled-linear betas (\S+) to (\S+), (\d+) steps; DDIM",
        lambda: [
            json.loads((MODELS / "tinysd/scheduler/scheduler_config.json").read_text())[key]
            for key in ("beta_start", "beta_end", "num_train_timesteps")
        ],
    ),
    Figure(YOLO, r"(\S+) M values, strides", lambda: [f"{parameters('tinyyolo/model.safetensors') / MB:.2f}"]),
    Figure(
        YOLO,
        r"\(depth (\S+), width (\S+)\)",
        lambda: [
            json.loads((MODELS / "tinyyolo/config.json").read_text())[key]
            for key in ("depth_multiple", "width_multiple")
        ],
    ),
    Figure(YOLO, r"`model.safetensors`, float16, (\S+) MB", lambda: [megabytes("tinyyolo/model.safetensors")]),
    Figure(
        YOLO,
        r"settings \| confidence (\S+), class-agnostic NMS at IoU (\S+) \(also",
        lambda: [
            json.loads((MODELS / "tinyyolo/config.json").read_text())["recommended"][key] for key in ("conf", "iou")
        ],
    ),
    Figure(
        YOLO,
        r"on `alphabet_sheet`\) \| (\d+) / (\d+) \| (\S+) \| (\S+) \| 0.45: precision (\S+), recall (\S+) \|",
        shipped_pictures,
        slow=True,
    ),
]


PLAIN = {
    "CHANGELOG.md": [r"keepachangelog.com/en/\S+"],
    ARCHITECTURE: [r"8 times the sums of the other factors"],
    JAVASCRIPT: [r"TypeScript\*\* 5\.7"],  # tested: web/runtime/test/package.test.ts
    "docs/image.md": [r"0\.999\), f\(i\) = .*? 1\.008", r"`leading`: .*?, at most T − 1"],
    "docs/numerics.md": [r"within 2\.5 ulp", r"Algorithms\*, 4\.2", r"times 0\.1 in float32"],
    "docs/detect.md": [r"above 0\.5, on WebGPU"],  # tests/e2e/test_detect_site.py
    "docs/performance.md": [
        r"rows of B are 4 KiB apart", r"all of `k` \(24 KiB\)", r"128 KiB of B and 6 KiB of A",  # sizes times four
        r"with 32 KiB of workgroup memory", r"With the 16 KiB that .*? need 16\.25 KiB",
    ],
    CHAT: [r"subtraction to 100, times"],
    EMBED: [r"License 2\.0", r"WordNet 3\.1", r"model` 0\.1\.2", r"db` 3\.1\.14"],
    YOLO: [r"at confidence 0\.25 and IoU 0\.5", r"\| 0\.25: precision", r"\| 0\.4[05](:| \(chosen)"],
}  # fmt: skip
"""Numbers that no command of ours makes: versions, names, formulas, arithmetic, thresholds that tests name."""
