"""Encoder–decoders of ONNX graphs as a bundle of two functions, `encode` and `decode`, around which a page loops."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinyweb.errors import ExportError
from tinyweb.export.compile import Progress
from tinyweb.export.function import export_functions
from tinyweb.export.onnx_site import DEVICE, OnnxOptions, check_supported, example, joined, sizes_of_functions
from tinyweb.formats.onnx.folder import OnnxFolder
from tinyweb.graph.ir import Variable
from tinyweb.graph.target import wasm_target, webgpu_target
from tinyweb.models.onnx_seq2seq import OnnxSeq2Seq, load_seq2seq
from tinyweb.nn.quantize import activations_for
from tinyweb.quantization import QuantOptions
from tinyweb.sources.wanted import ENCODER
from tinyweb.tensor import Tensor

BATCH = ("batch", "batch_size")  # what exporters call the size that is 1 here
LENGTH = "length"  # the Variable: ids of a text so far
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def export_seq2seq(
    folder: OnnxFolder, output: str | Path, options: OnnxOptions, progress: Progress = lambda step, done, total: None
) -> dict[str, Any]:
    """Write the graphs of a folder to `output` (docs/onnx.md); returns the manifest.

    `options.dims`: sizes of the encoder's inputs, each one number or a range. `options.fixed` and errors: as of
    `export_onnx`; ExportError where sizes are listed, as there is one text at a time.
    """
    if options.fixed:
        raise ExportError("--fix is for the inputs of a single graph: leave it out.")
    if options.quantization != QuantOptions():
        raise ExportError("Of an encoder and its decoder --quant alone says how they are stored: leave out the rest.")
    encoder = folder.open(None, (ENCODER,))
    batches = {d: [1] for p in encoder.inputs for d in p.shape or () if isinstance(d, str) and d in BATCH}
    each = sizes_of_functions(encoder.inputs, {**batches, **joined(encoder, options.dims)})
    if len(each) != 1:
        raise ExportError("An encoder and its decoder share what is between them: name one number for each --dim, or a "
                          "range (LO:HI).")  # fmt: skip
    (sizes,) = each.values()
    examples = {p.name: example(p, sizes) for p in encoder.inputs}
    model = load_seq2seq(folder, examples, options.quant, device=DEVICE)
    for graph in model.graphs:
        check_supported(graph)

    def prepare(target: str) -> None:
        for graph in model.graphs:
            graph.activations = activations_for(webgpu_target() if target == "webgpu" else wasm_target())

    ids = Tensor.zeros(model.room, dtype="int32", device=DEVICE)[: Variable(LENGTH, 1, model.room).bind(1)]
    files = {n.partition(".")[0]: folder.path / n for n in TOKENIZER if (folder.path / n).is_file()}
    return export_functions(
        {"encode": (model.encode, examples), "decode": (model.decode, {"ids": ids})}, output,
        name=options.name or folder.name, targets=options.targets, shard_bytes=options.shard_bytes,
        force=options.force, tune=options.tune, page=options.page, sections={"seq2seq": facts(folder, model)},
        files=files, prepare=prepare, progress=progress,
    )  # fmt: skip


def facts(folder: OnnxFolder, model: OnnxSeq2Seq) -> Mapping[str, Any]:
    """What a loop needs: the first ids of a text, those that end it, and how many there may be."""
    config = folder.config
    told = folder.read_config("generation_config.json", required=False)
    begin = config.ids("decoder_start_token_id") or told.ids("decoder_start_token_id")
    forced = told.values.get("forced_decoder_ids") or config.values.get("forced_decoder_ids") or []
    begin += tuple(pair[1] for pair in forced if isinstance(pair, list) and len(pair) == 2 and type(pair[1]) is int)
    return {"begin": list(begin), "eos": list(config.ids("eos_token_id")), "room": model.room}
