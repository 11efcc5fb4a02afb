"""What a model is made of, without computing it: operators, those that are not supported, sizes, types, bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

from tinyweb.errors import ModelFormatError
from tinyweb.formats.onnx.graph import Graph, Node, Port
from tinyweb.formats.onnx.model import OnnxModel
from tinyweb.formats.onnx.registry import find
from tinyweb.formats.onnx.tensors import bytes_of
from tinyweb.formats.onnx.texts import free_texts
from tinyweb.formats.onnx.types import kind_of

SHOWN = 20  # paths of nodes that one entry names


def report(model: OnnxModel) -> dict[str, Any]:
    """What `tinyweb inspect FILE.onnx --json` prints, file names aside.

    `operators` counts them (in functions, once for each call); `unsupported` has each with the paths of its nodes,
    `host` those that read values back, so that a recording needs their inputs known; `dynamic` the symbolic sizes, with
    the inputs and outputs that have them; `stored` the elements of initializers by type; `remarks` says in words what
    an export does otherwise than the graph.
    """
    nodes = list(model.graph.every_node())
    counts = Counter(name_of(n) for n in nodes)
    unsupported = _paths(n for n in nodes if find(n.domain, n.op, n.version) is None)
    host = _paths(n for n in nodes if _reads_back(n))
    return {
        "operators": dict(sorted(counts.items(), key=lambda c: (-c[1], c[0]))),
        "unsupported": unsupported,
        "host": host,
        "supported": not unsupported,
        "inputs": [_port(p) for p in model.inputs],
        "outputs": [_port(p) for p in model.outputs],
        "dynamic": _dynamic(model),
        "opsets": model.opsets,
        "producer": model.producer,
        "remarks": _remarks(model),
        **_weights(model.graph),
    }


def _remarks(model: OnnxModel) -> list[str]:
    nodes = {name: node for node in model.graph.every_node() for name in node.outputs}
    found, free = [], free_texts(model.graph)
    for p in model.outputs:
        if p.name in free:
            found.append(f"output {p.name} is text that is made anew: an export leaves it out")
        elif p.name in nodes and nodes[p.name].op == "ZipMap":
            found.append(f"output {p.name} is the matrix that ZipMap makes maps of: a column for each class")
    return found


def name_of(node: Node) -> str:
    return f"{node.domain}.{node.op}" if node.domain else node.op


def _paths(nodes: Iterator[Node]) -> list[dict[str, Any]]:
    found: dict[tuple[str, int], list[str]] = {}
    for n in nodes:
        found.setdefault((name_of(n), n.version), []).append(n.path)
    return [
        {"operator": name, "version": version, "count": len(paths), "nodes": paths[:SHOWN]}
        for (name, version), paths in sorted(found.items())
    ]


def _reads_back(node: Node) -> bool:
    operator = find(node.domain, node.op, node.version)
    return operator is not None and 0 in operator.host and not operator.folds


def _port(p: Port) -> dict[str, Any]:
    dtype = None if p.dtype is None else p.dtype.name
    return {"name": p.name, "type": p.type, "dtype": dtype, "shape": None if p.shape is None else list(p.shape)}


def _dynamic(model: OnnxModel) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for p in (*model.inputs, *model.outputs):
        for axis, size in enumerate(p.shape or ()):
            if not isinstance(size, int):
                found.setdefault(size or f"{p.name}[{axis}]", []).append(f"{p.name}[{axis}]")
    return found


def _weights(graph: Graph) -> dict[str, Any]:
    stored: Counter[str] = Counter()
    total = 0
    for tensor in graph.tensors():
        stored[kind_of(tensor.kind, tensor.name).name] += prod(tensor.shape)
        try:
            total += bytes_of(tensor)
        except ModelFormatError:
            continue
    return {"parameters": sum(stored.values()), "stored": dict(stored), "initializer_bytes": total}
