"""Folders of ONNX graphs as the models of texts that are exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tinyweb.errors import ExportError
from tinyweb.export.onnx_site import check_supported
from tinyweb.formats.onnx import OnnxModel
from tinyweb.formats.onnx.folder import OnnxFolder
from tinyweb.formats.onnx.report import report
from tinyweb.kinds import STORED
from tinyweb.models.embedding import Embedder
from tinyweb.models.onnx_decoder import OnnxDecoder, load_graph
from tinyweb.quantization import QuantOptions, Report
from tinyweb.sources.wanted import quant_of

if TYPE_CHECKING:
    from tinyweb.export.chat import ExportOptions
    from tinyweb.export.embed import EmbedOptions


def read_graph(folder: OnnxFolder, options: ExportOptions, device: str) -> tuple[OnnxDecoder, Report]:
    """The model, and what became of its weights: they are stored as the graph has them.

    ExportError for options that quantise, and for operators that are not supported; otherwise as `load_graph`.
    """
    check_options(folder, options)
    model = load_graph(folder, options.quant, options.context, device, cache=options.cache)
    check_supported(model.graph)
    return model, reported(folder, options.quant, model.graph)


def read_embedder(folder: OnnxFolder, options: EmbedOptions, device: str) -> tuple[Embedder, Report]:
    """The same for vectors; otherwise as `Embedder.from_folder`."""
    check_options(folder, options)
    graph = OnnxModel(folder.graph(options.quant))
    check_supported(graph)
    model = Embedder.from_folder(
        folder, options.quant, device, max_length=options.max_length, prefixes=options.prefixes, pooling=options.pooling
    )
    return model, reported(folder, options.quant, graph)


class Asked(Protocol):
    """What was said of an export that a graph cannot do."""

    @property
    def quantization(self) -> QuantOptions: ...


def check_options(folder: OnnxFolder, options: Asked) -> None:
    if options.quantization != QuantOptions():
        raise ExportError(
            f"The weights of {folder.path} are in ONNX graphs: leave out what says how they are quantised; --quant "
            "says which graph is taken, or how that of floats is quantised."
        )


def reported(folder: OnnxFolder, quant: str | None, graph: OnnxModel) -> Report:
    """What became of the weights of a graph."""
    found, stored = report(graph), quant_of(folder.graph(quant).name)
    if quant not in (None, STORED, stored):
        return Report(str(quant), found["initializer_bytes"], 4 * found["parameters"], [])
    types = sorted(found["stored"], key=lambda t: -found["stored"][t])
    size, before = found["initializer_bytes"], 4 * found["parameters"]
    return Report(stored, size, before, [], kept=", ".join(types[:3]))
