"""`tinyweb export embed`: a sentence-embedding model becomes a site that searches its user's own texts by meaning; one
of texts and pictures (CLIP, SigLIP), also pictures.

The bundle has one function for each shape that the network runs at, all of the same weights: `embed_BxL` takes B texts
of at most L tokens, `picture_B` B pictures. Section `embed` of the manifest (docs/bundle.md) says what a page has to
know to make use of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tinyweb.errors import ExportError
from tinyweb.export.compile import Progress
from tinyweb.export.function import write_functions
from tinyweb.export.inspect_source import expect
from tinyweb.export.loader import write_loader
from tinyweb.export.precision import described, kept, reported
from tinyweb.export.site import REPORT, check_output, check_page, copy_page, new_site, write_json
from tinyweb.export.weights import DEFAULT_SHARD_BYTES, check_shard_bytes
from tinyweb.formats.huggingface import ModelFolder
from tinyweb.formats.onnx.folder import OnnxFolder
from tinyweb.formats.source import open_model
from tinyweb.formats.tokenizer import tokenizer_text
from tinyweb.graph.target import wasm_target, webgpu_target
from tinyweb.models.embedding import LENGTHS, Embedder, batch_size, padded_lengths
from tinyweb.models.encoder import Encoder
from tinyweb.models.encoder.image import ImageEncoder
from tinyweb.models.image_text import ImageEmbedder, ImageText, open_embedder
from tinyweb.models.onnx_encoder import OnnxEncoder
from tinyweb.nn.precision import Recipe
from tinyweb.nn.quantize import activations_for
from tinyweb.nn.state import get_state_dict
from tinyweb.quantization import EmbedReader, QuantOptions, Report, quantise
from tinyweb.sources import EMBED, locate
from tinyweb.tensor import Tensor

DEVICE = "DISK"  # where the weights wait to be written
FILES = {"tokenizer": "tokenizer.json", "tokenizer_config": "tokenizer_config.json"}
MAX_LENGTHS = 8


@dataclass(frozen=True)
class EmbedOptions:
    """What the command line offers. `max_length` None: what the model allows, at most the longest of `lengths`.
    `prefixes`: what queries and passages begin with, `pooling`: how tokens become one vector, in place of what the
    model's folder says."""

    quant: str | None = None  # as it is stored where that is quantised, else q8
    lengths: Sequence[int] = LENGTHS
    max_length: int | None = None
    prefixes: Mapping[str, str] = field(default_factory=dict)
    shard_bytes: int = DEFAULT_SHARD_BYTES
    name: str | None = None
    force: bool = False
    tune: float = 0.0  # seconds to look for faster kernels
    activations: str | None = None  # one of kinds.ACTIVATIONS for all targets; None: what suits each
    quantization: QuantOptions = field(default_factory=QuantOptions)
    pooling: str | None = None


@dataclass(frozen=True)
class Exported:
    """What was written. `section`: the manifest's `embed`."""

    weight_bytes: int
    shards: int
    section: Mapping[str, Any]
    report: Report  # what became of the weights


def export_embed(source: str | Path, output: Path, options: EmbedOptions, progress: Progress) -> Exported:
    """Write the site of the model at `source` (tinyweb/sources) to `output`; on an error nothing is left behind.

    Raises ExportError (output, options, page), ModelFormatError (the model) or ToolchainError.
    """
    check_output(output, options.force)
    check_page("embed")
    check_shard_bytes(options.shard_bytes)
    lengths = check_lengths(options.lengths)
    path = locate(source, EMBED.in_precision(options.quant), progress)
    expect(path, "embed")
    progress("reading the model", 0, 1)
    folder = open_model(path)
    embedder, report = _read(folder, options, progress)
    if embedder.note is not None:
        report = replace(report, notes=(*report.notes, embedder.note))
    # goes along as it is: damaged, it would stop the page, and a missing one is no obstacle
    folder.read_config(FILES["tokenizer_config"], required=False)
    progress("reading the model", 1, 1)
    name = options.name or folder.name
    with new_site(output, options.force) as site:
        write_texts(site / "model", folder)
        exact = replace(options, quant=described(folder, report.quant))
        write_json(site / REPORT, report.record())
        written = write_embedder(
            site / "model", name, embedder, text_lengths(embedder, lengths), exact, progress, report
        )
        write_loader(site / "model", written)
        copy_page(site, "embed", folder.path)
    return Exported(written["weights"]["bytes"], len(written["weights"]["shards"]), written["embed"], report)


def _read(folder: ModelFolder, options: EmbedOptions, progress: Progress) -> tuple[Embedder, Report]:
    """The model, and what became of its weights."""
    if isinstance(folder, OnnxFolder):
        from tinyweb.export.graphs import read_embedder  # checkpoints do without

        return read_embedder(folder, options, DEVICE)
    quant, reference = kept(folder, options.quant), "f32" if folder.stored_types() else None
    made = quantise(_reader(folder, options), quant, options.quantization, progress, reference)
    return made.reader.model, reported(made.report, folder, quant)


def _reader(folder: ModelFolder, options: EmbedOptions) -> Callable[[Recipe], EmbedReader]:
    def read(recipe: Recipe) -> EmbedReader:
        return EmbedReader(
            open_embedder(
                folder,
                recipe,
                DEVICE,
                max_length=options.max_length,
                prefixes=options.prefixes,
                pooling=options.pooling,
            )
        )

    return read


def check_lengths(lengths: Sequence[int]) -> tuple[int, ...]:
    """Shortest first, each once; ExportError where there is none, too many, or one too short for a text."""
    found = tuple(sorted(set(lengths)))
    if not 1 <= len(found) <= MAX_LENGTHS or found[0] < 3:
        raise ExportError(f"--lengths takes 1 to {MAX_LENGTHS} numbers of at least 3 tokens, as in 32,128,512.")
    return found


def text_lengths(embedder: Embedder, wanted: Sequence[int]) -> tuple[int, ...]:
    """What texts are padded to: those of `wanted`, unless the model has one length for all."""
    if isinstance(embedder, ImageText) and embedder.pad is not None:
        return embedder.lengths
    return padded_lengths(min(embedder.settings.max_length, max(wanted)), wanted)


def write_embedder(
    bundle: Path, name: str, embedder: Embedder, lengths: Sequence[int], options: EmbedOptions, progress: Progress,
    report: Report | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Write the bundle but for the loader; its manifest. Its texts are there. What is embedded is cut after the last of
    `lengths` tokens. `report`: what became of the weights."""
    model, settings = embedder.model, embedder.settings
    images = embedder.images if isinstance(embedder, ImageText) else None
    networks: list[Encoder | OnnxEncoder | ImageEncoder] = [model] if images is None else [model, images.model]
    shapes = [(batch, length) for length in lengths for batch in sorted({1, batch_size(length)})]
    rounded = any(not t.dtype.is_float for n in networks for t in get_state_dict(n.layers).values())
    functions: dict[str, tuple[Callable[..., Any], Mapping[str, Tensor]]] = {
        function_name(batch, length): (
            embedder.vectors,
            {
                "ids": Tensor(np.zeros((batch, length), np.int32), device=model.device),
                "lengths": Tensor(np.ones(batch, np.int32), device=model.device),
            },
        )
        for batch, length in shapes
    }
    if images is not None:
        size = images.preprocessing.size
        functions |= {
            f"picture_{n}": (images.vectors, {"pixels": Tensor(np.zeros((n, size, size, 3), np.uint8), device=DEVICE)})
            for n in picture_batches(images)
        }
    targets = {"webgpu": webgpu_target(), "wasm": wasm_target()}

    def prepare(target: str) -> None:
        for network in networks:
            network.activations = options.activations or activations_for(targets[target])

    section: dict[str, Any] = {
        "dimensions": embedder.dimensions,
        "max_length": lengths[-1],
        "pooling": list(settings.pooling),
        "normalized": settings.normalize,
        "lowercase": settings.lowercase,
        "prefixes": dict(settings.prefixes),
        "functions": [{"name": function_name(b, n), "batch": b, "length": n} for b, n in shapes],
    }
    if isinstance(embedder, ImageText):
        section["fill"] = embedder.pad
        section["logit_scale"], section["logit_bias"] = embedder.logit_scale, embedder.logit_bias
    if images is not None:
        section["pictures"] = {
            "size": images.preprocessing.size,
            "shortest": images.preprocessing.shortest,
            "filter": images.preprocessing.filter,
            "functions": [{"name": f"picture_{n}", "batch": n} for n in picture_batches(images)],
        }
    figures = {
        "architecture": model.config.model_type,
        "parameters": sum(network.parameter_count for network in networks),
        "layers": len(model.config.layers),
        "vocab_size": model.config.vocab_size,
        "quant": options.quant or "",
    } | ({"fidelity": report.fidelity} if report is not None and report.fidelity else {})
    return write_functions(
        bundle, name, functions, task="embed", sections={"embed": section}, model=figures, files=FILES,
        prepare=prepare if rounded else None, shard_bytes=options.shard_bytes, tune=options.tune,
        progress=progress,
    )  # fmt: skip


def picture_batches(images: ImageEmbedder) -> list[int]:
    """How many pictures run side by side, for one and for many."""
    return sorted({1, images.batch})


def function_name(batch: int, length: int) -> str:
    """The function that takes `batch` texts of at most `length` tokens."""
    return f"embed_{batch}x{length}"


def write_texts(bundle: Path, folder: ModelFolder) -> None:
    """The tokenizer's files, in the folder `bundle`, which is made."""
    bundle.mkdir()
    texts = {
        "tokenizer": tokenizer_text(folder),
        "tokenizer_config": folder.text("tokenizer_config.json") or "{}\n",
    }
    for name, text in texts.items():
        (bundle / FILES[name]).write_text(text, encoding="utf-8", newline="\n")
