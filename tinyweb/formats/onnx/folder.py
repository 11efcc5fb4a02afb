"""Folders of ONNX graphs beside config.json and tokenizer.json, as Optimum and transformers.js lay them out: one graph
in several precisions, `onnx/model.onnx`, `onnx/model_q4.onnx`, …"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tinyweb.errors import ModelFormatError, SourceError
from tinyweb.formats.huggingface import ModelFolder
from tinyweb.formats.onnx.model import OnnxModel
from tinyweb.kinds import FLOATS, STORED
from tinyweb.sources.wanted import graph_names, graph_of, quant_of

CONFIG = "config.json"


class OnnxFolder(ModelFolder):
    """A folder with config.json whose weights are in ONNX graphs. `chosen`: the graph that was named; None: the one of
    the quantisation that is asked for, else the first of `sources.wanted.PRECISIONS` that is there."""

    def __init__(self, path: str | Path, chosen: Path | None = None):
        super().__init__(path)
        self.chosen = chosen

    @classmethod
    def of_graph(cls, graph: Path) -> OnnxFolder:
        """The folder of a graph: its own or the one above, whichever has config.json."""
        for folder in (graph.parent, graph.parent.parent):
            if (folder / CONFIG).is_file():
                return cls(folder, graph)
        raise ModelFormatError(
            f"{graph} is a graph without {CONFIG} and tokenizer.json, beside it or in the folder above: "
            "`tinyweb export onnx` takes it as it is"
        )

    def graph(self, quant: str | None, stems: Iterable[str] = ("model",)) -> Path:
        """The graph to take: of a quantisation, or of floats, which can be quantised; ModelFormatError where there is
        none, or none is called so."""
        quant = None if quant == STORED else quant
        if self.chosen is not None:
            found = quant_of(self.chosen.name)
            if quant not in (None, found) and (quant == "f32" or found not in FLOATS):
                raise ModelFormatError(f"{self.chosen} is of {found}: leave out --quant {quant}, or name another")
            return self.chosen
        try:
            return self.path / graph_of(graph_names(self.path), quant, stems)
        except SourceError as error:
            raise ModelFormatError(f"{self.path}: {error}") from None

    def open(self, quant: str | None, stems: Iterable[str] = ("model",)) -> OnnxModel:
        """The same, opened: its matrices in `quant`, if they are not stored so."""
        path = self.graph(quant, stems)
        return OnnxModel(path, quant=None if quant in (None, STORED, quant_of(path.name)) else quant)
