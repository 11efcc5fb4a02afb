"""Text that is computed: operators that move elements, or compare them, do so with places in one list of words."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from tinyweb.formats.onnx.call import Call, Host, is_text
from tinyweb.formats.onnx.graph import Graph, Node
from tinyweb.formats.words import Words
from tinyweb.tensor import Tensor

OTHER = "\0"  # stands for every word that is not listed
TABLES = {("ai.onnx.ml", op) for op in ("CategoryMapper", "LabelEncoder", "OneHotEncoder")}
NAMES = TABLES | {("ai.onnx.ml", f"{kind}Classifier") for kind in ("Linear", "SVM", "TreeEnsemble")}
TEXT = "tensor(string)"
COMPARES = ("Equal",)
MOVES = (
    "ArrayFeatureExtractor", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Reshape", "Slice",
    "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where", *COMPARES,
)  # fmt: skip


def as_places(call: Call, inputs: Sequence[Any]) -> tuple[list[Any], Host] | None:
    """The inputs with places in a list of words in place of text, and the list; None where no text is computed, or the
    operator does more with it."""
    computed = sum(isinstance(v, Words) for v in inputs)
    if call.op not in MOVES or not any(isinstance(v, Words) or is_text(v) for v in inputs):
        return None
    if not computed and not any(isinstance(v, Tensor) for v in inputs):
        return None
    if computed > 1 and call.op in COMPARES:
        raise call.unsupported("two texts of which both are computed")
    given = [list(v.table) if isinstance(v, Words) else v.reshape(-1).tolist() if is_text(v) else [] for v in inputs]
    places = {word: i for i, word in enumerate(dict.fromkeys(w for words in given for w in words))}
    if call.op in COMPARES and any(OTHER in words and len(set(words)) < len(places) for words in given):
        raise call.unsupported("text of an input beside text that is made anew")
    found = []
    for words, v in zip(given, inputs):
        own = np.array([places[w] for w in words], np.int32)
        if isinstance(v, Words):
            found.append(v.looked_up(own))
        else:
            found.append(own.reshape(v.shape) if is_text(v) else v)
    return found, word_list(places)


def as_words(call: Call, results: Sequence[Any], table: Host) -> list[Any]:
    """Text again of places that were moved."""
    return list(results) if call.op in COMPARES else [call.named(table, v) for v in results]


def word_list(words: Any) -> Host:
    return np.array([*words, ""], object)[:-1]


def known_words(graph: Graph) -> list[str]:
    """The words that nodes of a model, or its initializers, tell apart."""
    found = [s for t in graph.tensors() for s in t.strings]
    for node in graph.every_node():
        if (node.domain, node.op) in TABLES or node.op == "Constant":
            found += [s for a in node.attributes.values() for s in a.strings]
        if node.op == "Constant" and "value_string" in node.attributes:
            found.append(bytes(node.attributes["value_string"].s))
    return list(dict.fromkeys(bytes(s).decode("utf-8", "replace") for s in found))


def free_texts(graph: Graph) -> list[str]:
    """Outputs whose text nodes make anew, as parts of words or digits: in an export text is one of a list of words."""
    makers = {name: node for node in graph.nodes for name in node.outputs}
    numbers = {p.name for p in graph.inputs if p.type != TEXT} - graph.constants.keys()
    return [p.name for p in graph.outputs if p.type == TEXT and not _listed(p.name, makers, numbers)]


def _listed(name: str, makers: Mapping[str, Node], numbers: Container[str]) -> bool:
    waiting, seen = [name], set[str]()
    while waiting:
        name = waiting.pop()
        if name in numbers:
            return False
        node = makers.get(name)
        if node is None or name in seen or node.op == "Constant":
            continue
        seen.add(name)
        if (node.domain, node.op) in NAMES and name == node.outputs[0]:
            continue
        if node.body is not None or node.op not in (*MOVES, "Cast", "Identity"):
            return False
        waiting += node.inputs if node.op == "Concat" else node.inputs[1:] if node.op == "Where" else node.inputs[:1]
    return True
