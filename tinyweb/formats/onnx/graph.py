"""The graph of a model as it is computed: nodes in an order that can be followed, functions in place of their calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tinyweb.dtype import DType
from tinyweb.errors import ModelFormatError
from tinyweb.formats.onnx.messages import (
    Attribute,
    Dimension,
    FunctionMessage,
    GraphMessage,
    ModelMessage,
    NodeMessage,
    OperatorSet,
    TensorMessage,
    TypeMessage,
    ValueMessage,
)
from tinyweb.formats.onnx.tensors import Files, dense, value_of
from tinyweb.formats.onnx.types import ElementType, kind_of

MAX_NODES = 1 << 18  # with functions in place of their calls
MAX_CALLS = 32  # of functions within functions
ONNX = ("", "ai.onnx")
LONG = 400  # characters of a name
GRAPH = 5  # AttributeProto.AttributeType


def shortened(name: str) -> str:
    """A name as a sentence has it: those of hostile files fill pages."""
    return name if len(name) <= LONG else f"{name[: LONG // 2]}…{name[-LONG // 2 :]}"


@dataclass(frozen=True)
class Port:
    """An input or output. A size is a number, the name of a symbolic one, or None where the model does not say.

    `dtype` is the type of the Tensor that stands for it: a wider one for types that tinyweb lacks, None for text.
    """

    name: str
    dtype: DType | None
    shape: tuple[int | str | None, ...] | None
    type: str  # as ONNX writes it: "tensor(float)", "seq(tensor(int64))"
    kind: ElementType | None = None


@dataclass
class Node:
    """One operation. `path` says where it stands: graphs and functions around it, its name or its place."""

    op: str
    domain: str
    version: int
    path: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    graphs: dict[str, Graph] = field(default_factory=dict)  # attributes that are graphs
    body: Graph | None = None  # of a function of the model

    @property
    def label(self) -> str:
        return f"{shortened(self.path)} ({shortened(self.domain + '.' if self.domain else '')}{shortened(self.op)})"

    def uses(self) -> Iterator[str]:
        """What it reads, its graphs included."""
        yield from (n for n in self.inputs if n)
        for graph in self.graphs.values():
            yield from graph.free


@dataclass
class Graph:
    """Nodes in order, and what stands for names at the beginning."""

    path: str
    nodes: list[Node]
    inputs: list[Port]
    outputs: list[Port]
    constants: dict[str, TensorMessage]
    values: dict[str, tuple[Any, ElementType]] = field(default_factory=dict)  # of constants, as far as they were read
    free: tuple[str, ...] = ()  # names from outside

    def constant(self, name: str, files: Files) -> tuple[Any, ElementType]:
        """The value of an initializer."""
        if name not in self.values:
            self.values[name] = value_of(self.constants[name], files)
        return self.values[name]

    def keep(self, names: Iterable[str]) -> None:
        """Leaves out the other outputs, and what is computed for them alone: such outputs of nodes lose their names."""
        needed = set(names)
        self.outputs[:] = [p for p in self.outputs if p.name in needed]
        kept = []
        for node in reversed(self.nodes):
            if needed.intersection(filter(None, node.outputs)):
                node.outputs = tuple(n if n in needed else "" for n in node.outputs)
                needed.update(node.uses())
                kept.append(node)
        self.nodes[:] = reversed(kept)

    def every_node(self) -> Iterator[Node]:
        """The nodes, with those of graphs and functions within."""
        for node in self.nodes:
            if node.body is not None:
                yield from node.body.every_node()
                continue
            yield node
            for graph in node.graphs.values():
                yield from graph.every_node()

    def tensors(self) -> Iterator[TensorMessage]:
        """Initializers, and the tensors of attributes, with those of graphs and functions within."""
        yield from self.constants.values()
        for node in self.nodes:
            yield from (a.t for a in node.attributes.values() if a.t is not None)
            for inner in (*node.graphs.values(), *([node.body] if node.body else [])):
                yield from inner.tensors()


@dataclass
class Builder:
    """Makes graphs of messages. `left` is how many nodes may still come."""

    model: ModelMessage
    files: Files
    left: int = MAX_NODES
    functions: dict[tuple[str, str, str], FunctionMessage] = field(default_factory=dict)

    def main(self) -> Graph:
        for f in self.model.functions:
            self.functions[f.domain, f.name, f.overload] = f
        if self.model.graph is None:
            raise ModelFormatError("the model has no graph: it is no ONNX model, or damaged")
        return self.graph(self.model.graph, "", _versions(self.model.opsets), {}, 0, outer=frozenset())

    def graph(
        self,
        message: GraphMessage,
        path: str,
        versions: Mapping[str, int],
        given: Mapping[str, Attribute],
        calls: int,
        outer: frozenset[str] | None,
    ) -> Graph:
        """`given` are the attributes of the call of the function it stands in. `outer`: the names that are known around
        it, where nothing else may be used."""
        constants = {t.name: t for t in message.initializers}
        graph = Graph(path, [], [], [], constants)
        for sparse in message.sparse:
            values = dense(sparse, self.files)
            graph.values[sparse.values.name] = values, kind_of(sparse.values.kind, path)
            constants[sparse.values.name] = sparse.values
        graph.inputs = [port(v) for v in message.inputs]
        graph.outputs = [port(v) for v in message.outputs]
        known = {p.name for p in graph.inputs} | set(constants)
        nodes = [self.node(n, f"{path}{n.name or f'{n.op}#{i}'}", versions, given, calls)
                 for i, n in enumerate(message.nodes)]  # fmt: skip
        graph.nodes, graph.free = in_order(nodes, known, [p.name for p in graph.outputs], path)
        if outer is not None and (missing := [n for n in graph.free if n not in outer]):
            raise ModelFormatError(_missing(missing[0], graph, path))
        return graph

    def node(
        self, message: NodeMessage, path: str, versions: Mapping[str, int], given: Mapping[str, Attribute], calls: int
    ) -> Node:
        self.left -= 1
        if self.left < 0:
            raise ModelFormatError(f"the model has more than {MAX_NODES} nodes, with functions in place of their calls")
        domain = "" if message.domain in ONNX else message.domain
        attributes = dict(_bound(message.attributes, given))
        key = (message.domain, message.op, message.overload)
        function = self.functions.get(key)
        if domain not in versions and function is None and domain == "":
            raise ModelFormatError(f"{path} ({message.op}): the model does not say which version of ONNX it uses")
        node = Node(message.op, domain, versions.get(domain, 1), path, tuple(message.inputs), tuple(message.outputs),
                    attributes)  # fmt: skip
        for name, attribute in attributes.items():
            if attribute.kind == GRAPH and attribute.g is not None:
                node.graphs[name] = self.graph(attribute.g, f"{path}/{name}/", versions, given, calls, None)
        if function is not None:
            node.body = self._body(function, node, versions, calls)
        return node

    def _body(self, function: FunctionMessage, node: Node, versions: Mapping[str, int], calls: int) -> Graph:
        if calls >= MAX_CALLS:
            raise ModelFormatError(f"{node.label}: functions call each other more than {MAX_CALLS} deep")
        given = {a.name: a for a in function.defaults} | node.attributes
        used = dict(versions) | _versions(function.opsets)
        message = GraphMessage(
            function.nodes, function.name, [], [ValueMessage(n) for n in function.inputs],
            [ValueMessage(n) for n in function.outputs],
        )  # fmt: skip
        return self.graph(message, f"{node.path}/", used, given, calls + 1, frozenset())


def _bound(attributes: Iterable[Attribute], given: Mapping[str, Attribute]) -> Iterator[tuple[str, Attribute]]:
    """Attributes, those of a function's call in place of references to them."""
    for a in attributes:
        if not a.reference:
            yield a.name, a
        elif a.reference in given:
            yield a.name, given[a.reference]


def _versions(opsets: Iterable[OperatorSet]) -> dict[str, int]:
    return {"" if o.domain in ONNX else o.domain: o.version for o in opsets}


def in_order(nodes: list[Node], known: set[str], outputs: list[str], path: str) -> tuple[list[Node], tuple[str, ...]]:
    """The nodes, each behind those it reads, in the order they are given in as far as that holds; and the names that
    come from outside."""
    maker: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in node.outputs:
            if not name:
                continue
            if name in maker or name in known:
                raise ModelFormatError(f"{node.label}: {name!r} is made twice")
            maker[name] = i
    waits = [{maker[n] for n in node.uses() if n in maker} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for i, before in enumerate(waits):
        for j in before:
            readers[j].append(i)
    ready, order = deque(i for i, before in enumerate(waits) if not before), list[int]()
    if all(max(before, default=-1) < i for i, before in enumerate(waits)):
        order, ready = list(range(len(nodes))), deque[int]()
    count = [len(before) for before in waits]
    while ready:
        i = ready.popleft()
        order.append(i)
        for j in readers[i]:
            count[j] -= 1
            if not count[j]:
                ready.append(j)
    if len(order) < len(nodes):
        stuck = [n.label for i, n in enumerate(nodes) if count[i]]
        raise ModelFormatError(f"nodes wait for each other in a circle: {', '.join(stuck[:4])}")
    used = dict.fromkeys(n for node in nodes for n in node.uses()) | dict.fromkeys(n for n in outputs if n)
    free = tuple(n for n in used if n not in maker and n not in known)
    return [nodes[i] for i in order], free


def _missing(name: str, graph: Graph, path: str) -> str:
    for node in graph.nodes:
        if name in set(node.uses()):
            return f"{node.label} reads {name!r}, which is no input, no initializer, and made by no node"
    return f"output {name!r}{' of ' + path if path else ''} is no input, no initializer, and made by no node"


def port(value: ValueMessage) -> Port:
    """An input or output of a graph."""
    tensor, text = value.type.tensor, type_text(value.type)
    if tensor is None:
        inner = value.type
        while (held := inner.sequence or inner.optional) is not None and held.element is not None:
            inner = held.element
        kind = kind_of(inner.tensor.kind, value.name) if inner.tensor is not None and inner.tensor.kind else None
        return Port(value.name, None if kind is None else kind.dtype, None, text, kind)
    kind = kind_of(tensor.kind, f"{value.name!r}") if tensor.kind else None
    shape: tuple[int | str | None, ...] | None = None
    if tensor.shape is not None:
        shape = tuple(_size(d) for d in tensor.shape.dims)
    return Port(value.name, None if kind is None else kind.dtype, shape, text, kind)


def _size(d: Dimension) -> int | str | None:
    """Exporters write what they do not know in several ways."""
    if d.value is not None:
        return d.value if d.value >= 0 else None
    return d.name if d.name not in ("", "?") else None


def type_text(t: TypeMessage) -> str:
    """A type as ONNX writes it."""
    if t.tensor is not None:
        return f"tensor({kind_of(t.tensor.kind, 'a type').name})" if t.tensor.kind else "tensor"
    for name, held in (("seq", t.sequence), ("optional", t.optional)):
        if held is not None:
            return f"{name}({type_text(held.element) if held.element is not None else ''})"
    return "map" if t.map is not None else "sparse_tensor" if t.sparse is not None else "unknown"
