"""The figures that documents name, each beside what computes it: `tests/test_figures.py` compares.

A figure is a document, a pattern that is found in it exactly once, and a function for the texts of the pattern's
groups. What was measured (times, ratios, accuracies of training) is no figure of this kind: it is dated where it
stands, with the commit that it was measured at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import lock
import page_size

import benchmarks.browser.works as browser_works
import benchmarks.native.kernels as native_kernels
import benchmarks.native.llama as native_llama
from benchmarks import run
from tests.figure_values import (
    DEVICE,
    MB,
    MODELS,
    ROOT,
    bits_of_types,
    blocks_of_prompts,
    bytes_of_models,
    chat_items,
    chat_launches,
    constant,
    embed_data,
    embed_percent,
    embed_row,
    embed_scores,
    factorisations,
    ground_truth,
    imported_sizes,
    interval_percent,
    llama_1b,
    megabytes,
    parameters,
    per_token,
    project,
    sampler_reductions,
    setting,
    shipped_pictures,
    untold,
)
from tinyweb.export.weights import DEFAULT_SHARD_BYTES
from tinyweb.graph.lower import blocks
from tinyweb.graph.optimize import cost
from tinyweb.graph.schedule import work
from tinyweb.models import detection
from tinyweb.nn.quantize import GROUP
from tinyweb.tuning import search

ARCHITECTURE, BENCHMARKS, JAVASCRIPT = "docs/architecture.md", "docs/benchmarks.md", "docs/javascript.md"


def runtime_budgets(*tasks: str) -> list[int]:
    return [page_size.RUNTIME_BUDGETS[task] // page_size.KB for task in tasks]


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
        r"runtime at most (\d+) KB for functions, (\d+) KB for a chat; whole chat page at most (\d+) KB",
        lambda: [*runtime_budgets("function", "chat"), page_size.PAGE_BUDGET // page_size.KB],
    ),
    Figure(
        JAVASCRIPT,
        r"worker are below (\d+) KB gzipped for functions, (\d+) for a chat",
        lambda: runtime_budgets("function", "chat"),
    ),
    Figure(
        "web/runtime/README.md",
        r"gzipped, is below (\d+) KB for functions, (\d+) for detection, (\d+) for pictures, (\d+) for embeddings, "
        r"(\d+) for a chat",
        lambda: runtime_budgets("function", "detect", "image", "embed", "chat"),
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
    Figure(
        "docs/install.md", r"embedded models \(`assets/models`, (\d+) MB\)", lambda: [f"{bytes_of_models() / MB:.0f}"]
    ),
    Figure(
        "docs/install.md", r"Python (\S+) to (\S+);", lambda: [".".join(map(str, lock.PYTHONS[i])) for i in (0, -1)]
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
    Figure(ARCHITECTURE, r"a reduce to one number over at most (\d+) elements", constant(work.LAUNCH)),
    Figure(ARCHITECTURE, r"it is an error if they are more than ([\d.]+) times those", constant(work.MOST_REPEATED)),
    Figure(ARCHITECTURE, r"in two steps beyond (\d+) threads", constant(cost.FLAT_EXCHANGE)),
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
        r"one half-float scale per (\d+) inputs \(default elsewhere\) \| (\S+) \|",
        lambda: [GROUP, f"{(GROUP + 2) / GROUP:.2f}"],
    ),
    Figure(
        "docs/export.md",
        r"in groups of (\d+) inputs; embeddings in 8 bits \| (\S+), (\S+), (\S+), (\S+), embeddings (\S+) \|",
        lambda: [GROUP, *(f"{bits / 8 + 2 / GROUP:.2f}" for bits in (6, 5, 4, 3, 8))],
    ),
    Figure("docs/export.md", r"Files of weights have at most (\d+) MiB", lambda: [DEFAULT_SHARD_BYTES >> 20]),
    Figure("docs/hosting.md", r"Weights come in shards of (\d+) MiB", lambda: [DEFAULT_SHARD_BYTES >> 20]),
    *(
        Figure(
            "docs/gguf.md",
            rf"\| {', '.join(f'`{name}`' for name in names.split())} \| (?:[^|\n]*\|){{4}} ([^|\n]+) \|",
            bits_of_types(*names.split()),
        )
        for names in (
            "Q4_0 Q5_0 Q8_0",
            "Q4_1 Q5_1",
            "Q2_K",
            "Q3_K",
            "Q4_K Q5_K",
            "Q6_K",
            "Q8_K",
            "IQ4_NL IQ4_XS",
            "MXFP4 NVFP4",
            "Q1_0 TQ1_0 TQ2_0",
        )
    ),
    Figure(
        "docs/hosting.md",
        r"\| (\d+) MiB \| 1 GB \|",
        setting("tinyweb/export/hosts.py", r'"GitHub Pages", False, (\d+) \* MIB'),
    ),
    Figure(
        "docs/hosting.md",
        r"\| (\d+) MiB \| (\S+) files",
        lambda: [
            str(value).replace("_", ",")
            for value in setting("tinyweb/export/hosts.py", r'"Cloudflare Pages", True, (\d+) \* MIB, (\w+),')()
        ],
    ),
    Figure(ARCHITECTURE, r"the sampler's (\d+) nested reductions", lambda: [sampler_reductions()]),
    Figure(
        "docs/tensor.md",
        r"of 16 columns `cholesky` (\d+), `lu` (\d+), `qr` (\d+), `eigh` (\d+) and `svd` (\d+)",
        factorisations,
    ),
    Figure(
        "docs/performance.md", r"three to eight tokens are a block of (\d+), 49 are one of (\d+)", blocks_of_prompts
    ),
    Figure(
        JAVASCRIPT,
        r"by default the logical cores, at most (\d+)",
        setting("web/runtime/src/backend.ts", r"MAX_THREADS = (\d+)"),
    ),
    Figure(
        JAVASCRIPT,
        r"gets fewer tokens, down to (\d+) \(`info.context`",
        setting("web/runtime/src/backend.ts", r"LEAST_CONTEXT = (\d+)"),
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
    "CHANGELOG.md": [r"keepachangelog.com/en/\S+", r"every GPU binds\*\* \(128 MiB\)"],
    ARCHITECTURE: [r"8 times the sums of the other factors"],
    BENCHMARKS: [r"bfloat16, 2\.3 GiB, never", r"every 0\.1 s"],
    "docs/bundle.md": [r"128 MiB that every adapter binds"],
    "docs/export.md": [r"128 MiB that every GPU binds"],
    "docs/hosting.md": [r"MiB \| 1 GB", r"larger than 10 MiB", r"100 GB a month", r"1 kB and 10 MB"],  # the hosts' own
    "docs/install.md": [r"Node\.js 20\.19 or newer"],  # what Vite asks for
    JAVASCRIPT: [r"TypeScript\*\* 5\.7"],  # tested: web/runtime/test/package.test.ts
    "docs/image.md": [r"0\.999\), f\(i\) = .*? 1\.008", r"`leading`: .*?, at most T − 1"],
    "docs/numerics.md": [r"within 2\.5 ulp", r"Algorithms\*, 4\.2", r"times 0\.1 in float32"],
    "docs/native.md": [r"ROCm 5\.2 or newer"],  # the oldest with all functions that are called
    "docs/onnx.md": [r"error of 2\.5 units in the last place"],  # what WGSL allows
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
