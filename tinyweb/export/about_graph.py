"""What a graph says beside its inputs and outputs, for the page beside its bundle: section "graph" of the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import read_json
from tinyweb.formats.labels import labels_of, literal
from tinyweb.formats.onnx import OnnxModel, Port
from tinyweb.formats.onnx.graph import Graph, Node
from tinyweb.formats.onnx.messages import joined
from tinyweb.graph.ir import Size

MAX_VALUE = 1000  # characters of a value of the metadata that goes along
MAX_ENTRIES = 64
MAX_TOKENIZER = 64 << 20  # bytes
LABELS = ("names", "labels", "classes", "class_names", "id2label")  # what exporters call them


def about(
    model: OnnxModel, source: Path, functions: Mapping[str, Mapping[str, Size]]
) -> tuple[dict[str, Any], dict[str, Path]]:
    """The section, and files for the bundle by what they are. `functions`: the sizes of each.

    Labels are those of the model's metadata, else of its classifiers (ai.onnx.ml), else of a config.json in its folder
    or the one above; a tokenizer.json there goes along.
    """
    tokenizer = next((p for p in _beside(source, "tokenizer.json") if p.stat().st_size <= MAX_TOKENIZER), None)
    listed = {name: {n: s for n, s in sizes.items() if isinstance(s, int)} for name, sizes in functions.items()}
    metadata = {k: v for k, v in model.metadata.items() if len(k) + len(v) <= MAX_VALUE}
    section = {
        "inputs": [_port(p) for p in model.inputs],
        "outputs": [_port(p) for p in model.outputs],
        "sizes": {name: sizes for name, sizes in listed.items() if sizes},
        "labels": _labels(model, source),
        "metadata": dict(list(metadata.items())[:MAX_ENTRIES]),
        "producer": model.producer[:MAX_VALUE],
        "tokenizer": tokenizer is not None,
    }
    return section, {} if tokenizer is None else {"tokenizer": tokenizer}


def _port(p: Port) -> dict[str, Any]:
    return {"name": p.name, "type": p.type, "shape": None if p.shape is None else list(p.shape)}


def _labels(model: OnnxModel, source: Path) -> list[str]:
    for key in LABELS:
        if found := labels_of(literal(model.metadata.get(key))):
            return found
    if found := _classes(model.graph):
        return found
    for path in _beside(source, "config.json"):
        try:
            return labels_of(read_json(path).get("id2label")) or []
        except ModelFormatError:
            continue
    return []


def _classes(graph: Graph) -> list[str]:
    """What the last node that knows names of classes calls them; of classes that are numbers these, unless they are
    those of the columns."""
    for node in reversed(list(graph.every_node())):
        named, numbered = _names(node, graph), _numbers(node)
        if node.op == "LabelEncoder":
            named = dict(zip(numbered, named))
            numbered = []
        found = labels_of(named) or labels_of([str(n) for n in numbered])
        if found and (named or numbered != list(range(len(numbered)))):
            return found
    return []


def _names(node: Node, graph: Graph) -> Any:
    """Texts that a node gives for numbers of classes."""
    if node.op == "ArrayFeatureExtractor":
        held = graph.constants.get(node.inputs[0]) if node.inputs else None
        return [] if held is None else _texts(held.strings)
    given = (node.attributes.get(name) for name in ("classlabels_strings", "values_strings"))
    return next((_texts(a.strings) for a in given if a is not None), [])


def _numbers(node: Node) -> list[int]:
    given = (node.attributes.get(name) for name in ("classlabels_ints", "classlabels_int64s", "keys_int64s"))
    return next((joined(a.ints, np.int64).tolist() for a in given if a is not None), [])


def _texts(strings: list[bytes]) -> list[str]:
    return [bytes(s).decode(errors="replace") for s in strings]


def _beside(source: Path, name: str) -> Iterator[Path]:
    """Files of a name in a graph's folder, or in the one above a folder called "onnx"."""
    folders = [source.parent] + ([source.parent.parent] if source.parent.name == "onnx" else [])
    yield from (f / name for f in folders if (f / name).is_file())
