"""The messages of an ONNX file, of which the fields that a computation needs: onnx.proto of ONNX 1.23."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tinyweb.formats.onnx.protobuf import Message

Parts = list[npt.NDArray[Any]]


@dataclass
class Entry(Message):
    """StringStringEntryProto."""

    FIELDS: ClassVar = {1: ("key", "text"), 2: ("value", "text")}
    key: str = ""
    value: str = ""


@dataclass
class OperatorSet(Message):
    """OperatorSetIdProto: which version of a domain's operators the names mean."""

    FIELDS: ClassVar = {1: ("domain", "text"), 2: ("version", "int")}
    domain: str = ""
    version: int = 0


@dataclass
class TensorMessage(Message):
    """TensorProto: the numbers of a tensor, raw, in lists, or in another file."""

    FIELDS: ClassVar = {
        1: ("dims", "ints"), 2: ("kind", "int"), 4: ("floats", "floats"), 5: ("words", "ints"), 6: ("strings", "blobs"),
        7: ("longs", "ints"), 8: ("name", "text"), 9: ("raw", "bytes"), 10: ("doubles", "doubles"),
        11: ("unsigned", "uints"), 13: ("external", (Entry,)), 14: ("location", "int"),
    }  # fmt: skip
    dims: Parts = field(default_factory=list)
    kind: int = 0
    floats: Parts = field(default_factory=list)
    words: Parts = field(default_factory=list)
    strings: list[bytes] = field(default_factory=list)
    longs: Parts = field(default_factory=list)
    name: str = ""
    raw: memoryview | None = None
    doubles: Parts = field(default_factory=list)
    unsigned: Parts = field(default_factory=list)
    external: list[Entry] = field(default_factory=list)
    location: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(n) for part in self.dims for n in part)


@dataclass
class SparseMessage(Message):
    """SparseTensorProto: values, where they are, and the shape."""

    FIELDS: ClassVar = {1: ("values", TensorMessage), 2: ("indices", TensorMessage), 3: ("dims", "ints")}
    values: TensorMessage = field(default_factory=TensorMessage)
    indices: TensorMessage = field(default_factory=TensorMessage)
    dims: Parts = field(default_factory=list)


@dataclass
class Dimension(Message):
    """One size: a number, a name, or nothing."""

    FIELDS: ClassVar = {1: ("value", "int"), 2: ("name", "text")}
    value: int | None = None
    name: str = ""


@dataclass
class ShapeMessage(Message):
    FIELDS: ClassVar = {1: ("dims", (Dimension,))}
    dims: list[Dimension] = field(default_factory=list)


@dataclass
class TensorType(Message):
    FIELDS: ClassVar = {1: ("kind", "int"), 2: ("shape", ShapeMessage)}
    kind: int = 0
    shape: ShapeMessage | None = None


@dataclass
class ElementOf(Message):
    """The type of what a sequence or an optional holds."""

    FIELDS: ClassVar[dict[int, tuple[str, Any]]] = {}
    element: TypeMessage | None = None


@dataclass
class TypeMessage(Message):
    """TypeProto."""

    FIELDS: ClassVar[dict[int, tuple[str, Any]]] = {
        1: ("tensor", TensorType), 4: ("sequence", ElementOf), 5: ("map", "bytes"), 8: ("sparse", TensorType),
        9: ("optional", ElementOf),
    }  # fmt: skip
    tensor: TensorType | None = None
    sequence: ElementOf | None = None
    map: memoryview | None = None
    sparse: TensorType | None = None
    optional: ElementOf | None = None


ElementOf.FIELDS = {1: ("element", TypeMessage)}


@dataclass
class ValueMessage(Message):
    """ValueInfoProto: a name and its type."""

    FIELDS: ClassVar = {1: ("name", "text"), 2: ("type", TypeMessage)}
    name: str = ""
    type: TypeMessage = field(default_factory=TypeMessage)


@dataclass
class Attribute(Message):
    """AttributeProto. `kind` says which of the fields counts."""

    FIELDS: ClassVar[dict[int, tuple[str, Any]]] = {}
    name: str = ""
    f: float = 0.0
    i: int = 0
    s: memoryview = field(default_factory=lambda: memoryview(b""))
    t: TensorMessage | None = None
    g: GraphMessage | None = None
    floats: Parts = field(default_factory=list)
    ints: Parts = field(default_factory=list)
    strings: list[bytes] = field(default_factory=list)
    kind: int = 0
    reference: str = ""
    sparse: SparseMessage | None = None


@dataclass
class NodeMessage(Message):
    """NodeProto."""

    FIELDS: ClassVar = {
        1: ("inputs", "texts"), 2: ("outputs", "texts"), 3: ("name", "text"), 4: ("op", "text"),
        5: ("attributes", (Attribute,)), 7: ("domain", "text"), 8: ("overload", "text"),
    }  # fmt: skip
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    name: str = ""
    op: str = ""
    attributes: list[Attribute] = field(default_factory=list)
    domain: str = ""
    overload: str = ""


@dataclass
class GraphMessage(Message):
    """GraphProto."""

    FIELDS: ClassVar = {
        1: ("nodes", (NodeMessage,)), 2: ("name", "text"), 5: ("initializers", (TensorMessage,)),
        11: ("inputs", (ValueMessage,)), 12: ("outputs", (ValueMessage,)), 15: ("sparse", (SparseMessage,)),
    }  # fmt: skip
    nodes: list[NodeMessage] = field(default_factory=list)
    name: str = ""
    initializers: list[TensorMessage] = field(default_factory=list)
    inputs: list[ValueMessage] = field(default_factory=list)
    outputs: list[ValueMessage] = field(default_factory=list)
    sparse: list[SparseMessage] = field(default_factory=list)


Attribute.FIELDS = {
    1: ("name", "text"), 2: ("f", "float"), 3: ("i", "int"), 4: ("s", "bytes"), 5: ("t", TensorMessage),
    6: ("g", GraphMessage), 7: ("floats", "floats"), 8: ("ints", "ints"), 9: ("strings", "blobs"), 20: ("kind", "int"),
    21: ("reference", "text"), 22: ("sparse", SparseMessage),
}  # fmt: skip


@dataclass
class FunctionMessage(Message):
    """FunctionProto: an operator that the model itself defines."""

    FIELDS: ClassVar = {
        1: ("name", "text"), 4: ("inputs", "texts"), 5: ("outputs", "texts"), 7: ("nodes", (NodeMessage,)),
        9: ("opsets", (OperatorSet,)), 10: ("domain", "text"), 11: ("defaults", (Attribute,)), 13: ("overload", "text"),
    }  # fmt: skip
    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    nodes: list[NodeMessage] = field(default_factory=list)
    opsets: list[OperatorSet] = field(default_factory=list)
    domain: str = ""
    defaults: list[Attribute] = field(default_factory=list)
    overload: str = ""


@dataclass
class ModelMessage(Message):
    """ModelProto, and the file it came from."""

    FIELDS: ClassVar = {
        1: ("version", "int"), 2: ("producer", "text"), 7: ("graph", GraphMessage), 8: ("opsets", (OperatorSet,)),
        14: ("metadata", (Entry,)), 25: ("functions", (FunctionMessage,)),
    }  # fmt: skip
    version: int = 0
    producer: str = ""
    graph: GraphMessage | None = None
    opsets: list[OperatorSet] = field(default_factory=list)
    metadata: list[Entry] = field(default_factory=list)
    functions: list[FunctionMessage] = field(default_factory=list)
    path: Path | None = None


def joined(parts: Parts, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The numbers of a repeated field."""
    return np.concatenate(parts) if parts else np.zeros(0, dtype)
