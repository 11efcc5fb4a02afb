"""A text-generation graph of ONNX as the model of a chat that is exported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyweb.errors import ExportError
from tinyweb.export.onnx_site import check_supported
from tinyweb.formats.onnx.folder import OnnxFolder
from tinyweb.formats.onnx.report import report
from tinyweb.models.onnx_decoder import OnnxDecoder, load_graph
from tinyweb.quantization import QuantOptions, Report
from tinyweb.sources.wanted import quant_of

if TYPE_CHECKING:
    from tinyweb.export.chat import ExportOptions


def read_graph(folder: OnnxFolder, options: ExportOptions, device: str) -> tuple[OnnxDecoder, Report]:
    """The model, and what became of its weights: they are stored as the graph has them.

    ExportError for options that quantise, and for operators that are not supported; otherwise as `load_graph`.
    """
    if options.quantization != QuantOptions() or options.activations is not None:
        raise ExportError(
            f"The weights of {folder.path} are in ONNX graphs, which are taken as they are: leave out what says how "
            "they are quantised, and choose a graph by --quant."
        )
    quant = options.quant
    model = load_graph(folder, quant, options.context, device, cache=options.cache)
    check_supported(model.graph)
    found = report(model.graph)
    types = sorted(found["stored"], key=lambda t: -found["stored"][t])
    size, before = found["initializer_bytes"], 4 * found["parameters"]
    return model, Report(quant or quant_of(folder.graph(quant).name), size, before, [], kept=", ".join(types[:3]))
