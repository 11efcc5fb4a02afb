"""Evaluates a graph: node by node, on Tensors, and on NumPy arrays as long as everything is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinyweb.device import not_recording
from tinyweb.dtype import dtypes
from tinyweb.errors import ModelFormatError
from tinyweb.formats.onnx.call import Call, Grow, Held, lift, lift_sizes
from tinyweb.formats.onnx.graph import Graph, Node
from tinyweb.formats.onnx.registry import Operator, find, instead
from tinyweb.formats.onnx.sizes import FOLDS, Sizes, UndecidedError, compute, fixed_hint, sizes
from tinyweb.formats.onnx.stored import Kept, dense
from tinyweb.formats.onnx.tensors import Files
from tinyweb.formats.onnx.texts import as_places, as_words
from tinyweb.formats.onnx.types import ElementType
from tinyweb.graph.ir import UOp
from tinyweb.tensor import Tensor

ROOM = 1 << 28  # bytes that known values take, beside four times those of initializers
MAX_NODES = 1 << 18  # of a call with all the steps of its loops, which in hostile files go on for years
WORTH_KNOWING = 1 << 16  # elements: what is larger is no shape, and stays on the device
# what a lowering raises for values it cannot take
WRONG = (
    TypeError, ValueError, IndexError, KeyError, ZeroDivisionError, OverflowError, AttributeError, AssertionError,
    MemoryError,
)  # fmt: skip


@dataclass
class Scope:
    """Values by name, and the scope around it."""

    outer: Scope | None = None
    values: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, ElementType] = field(default_factory=dict)  # of those in a wider type
    constant: set[str] = field(default_factory=set)  # what is the same in every call

    def find(self, name: str) -> tuple[Any, ElementType | None]:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name], scope.kinds.get(name)
            scope = scope.outer
        raise ModelFormatError(f"{name!r} is used before it is made")

    def get(self, name: str) -> Any:
        """The value of a name, None where there is none yet."""
        scope: Scope | None = self
        while scope is not None and name not in scope.values:
            scope = scope.outer
        return None if scope is None else scope.values[name]

    def is_constant(self, name: str) -> bool:
        scope: Scope | None = self
        while scope is not None and name not in scope.values:
            scope = scope.outer
        return scope is not None and name in scope.constant

    def set(self, name: str, value: Any) -> None:
        if isinstance(value, Held):
            self.kinds[name], value = value.kind, value.value
        self.values[name] = value


@dataclass
class Interpreter:
    """Evaluates graphs on a device. `kept` lives from call to call. `growing`: what inputs that are caches do with what
    is put behind them, by the ids of their Tensors. `activations`: what matrices are multiplied with that allow it."""

    device: str
    files: Files
    kept: Kept
    activations: str = "float"
    growing: Mapping[int, Grow] = field(default_factory=dict)
    bound: dict[str, int] = field(default_factory=dict)  # values of the Variables in shapes
    evaluated: int = 0  # graphs and nodes
    room: int = ROOM  # bytes that are left for known values

    def run(self, graph: Graph, inputs: Mapping[str, Any], outer: Scope | None = None) -> list[Any]:
        """The outputs in order, as `Held` where their type is one that tinyweb lacks."""
        self.evaluated += 1 + len(graph.nodes)
        if self.evaluated > MAX_NODES:
            raise NotImplementedError(f"more than {MAX_NODES} nodes are evaluated: its loops take too many steps")
        scope = Scope(outer)
        for name in graph.constants:
            value, kind = graph.constant(name, self.files)
            self.room += 4 * getattr(value, "nbytes", 0) if isinstance(value, np.ndarray) else 0
            scope.set(name, Held(value, kind) if kind.held else value)
            scope.constant.add(name)
            self.kept.names.setdefault(id(value), name)
        for name, value in inputs.items():
            scope.set(name, value)
            scope.constant.discard(name)
        for node in graph.nodes:
            constant = self._is_constant(node, scope)
            results = self.kept.results.get(id(node)) if constant else None
            if results is None:
                results = self.node(node, scope)
            if constant:
                self.kept.results[id(node)] = results
            for name, value in zip(node.outputs, results):
                if name:
                    scope.set(name, value)
                    if constant:
                        scope.constant.add(name)
                        self.kept.names.setdefault(id(value), name)
        found = [scope.find(p.name) for p in graph.outputs]
        return [dense(value) if kind is None else Held(value, kind) for value, kind in found]

    @staticmethod
    def _is_constant(node: Node, scope: Scope) -> bool:
        """Whether a node gives the same in every call: it draws nothing, holds no graph, and reads constants alone."""
        operator = None if node.graphs or node.body else find(node.domain, node.op, node.version)
        drawn = operator is None or operator.draws
        return not drawn and all(scope.is_constant(n) for n in node.inputs if n)

    def node(self, node: Node, scope: Scope) -> list[Any]:
        """What a node gives."""
        found = [scope.find(n) if n else (None, None) for n in node.inputs]
        inputs, kinds = [v for v, _ in found], [k for _, k in found]
        if node.body is not None:
            given = [v if k is None else Held(v, k) for v, k in found]
            ports = [p.name for p in node.body.inputs]
            return self.run(node.body, dict(zip(ports, given + [None] * (len(ports) - len(given)))))
        operator = find(node.domain, node.op, node.version)
        if operator is None:
            more = instead(node.domain)
            raise NotImplementedError(f"{node.label}: the operator is not supported in version {node.version}{more}")
        while inputs and inputs[-1] is None and not operator.takes(len(inputs)):
            inputs.pop()
        if not operator.takes(len(inputs)):
            raise ModelFormatError(f"{node.label} has {len(inputs)} inputs")

        def run(graph: Graph, values: Sequence[Any]) -> list[Any]:
            return self.run(graph, dict(zip((p.name for p in graph.inputs), values)), scope)

        def captured(graph: Graph) -> list[Any]:
            names = {n for inner in graph.every_node() for n in inner.inputs} | {p.name for p in graph.outputs}
            return [v for n in sorted(names) if (v := scope.get(n)) is not None]

        call = Call(node, self, run, kinds, [bool(n) and scope.is_constant(n) for n in node.inputs], captured)
        try:
            return self._lower(operator, call, inputs)
        except UndecidedError:
            raise call.unsupported(f"what it gives depends on sizes that vary, and {fixed_hint(self.bound)}") from None
        except NotImplementedError as e:
            raise e if str(e).startswith(node.label) else NotImplementedError(f"{node.label}: {e}") from None
        except RecursionError:
            raise ModelFormatError(f"{node.label}: graphs are nested too deep") from None
        except WRONG as e:
            if self.bound:  # numbers may do where expressions do not
                raise call.unsupported(f"{e}; sizes vary, and {fixed_hint(self.bound)}") from e
            raise ModelFormatError(f"{node.label}: {e}") from e

    def _lower(self, operator: Operator, call: Call, inputs: list[Any]) -> list[Any]:
        if (of_text := as_places(call, inputs)) is not None:
            places, words = of_text
            return as_words(call, self._lower(operator, call, places), words)
        if operator.raw:
            return _several(operator.function(call, *map(dense, inputs)))
        varies = next((v.kind for v in inputs if isinstance(v, Sizes)), None)
        if varies is not None and (of_sizes := self._of_sizes(operator, call, inputs, varies)) is not None:
            return of_sizes
        known = varies is None and all(v is None or isinstance(v, np.ndarray) for v in inputs)
        if known and (operator.folds or any(isinstance(v, np.ndarray) and v.dtype == object for v in inputs)):
            call.afford(_broadcast(inputs))
            with np.errstate(all="ignore"):
                return [self._counted(call, v) for v in _several(operator.function(call, *inputs))]
        given = [self._given(operator, call, i, v) for i, v in enumerate(inputs)]
        if not known or operator.keeps:
            return _several(operator.function(call, *given))
        with not_recording():
            return [_value(call, v) for v in _several(operator.function(call, *given))]

    def _counted(self, call: Call, value: Any) -> Any:
        """A known result, for which there was room."""
        if isinstance(value, np.ndarray) and value.base is None:
            call.spend(value.size, value.itemsize)
        return value

    def _given(self, operator: Operator, call: Call, place: int, value: Any) -> Any:
        """An input as an operator takes it."""
        if value is None or (operator.sizes and place in operator.host and isinstance(value, Sizes)):
            return value
        if place in operator.host:
            return call.known(dense(value), f"input {place + 1}")
        return value if place in operator.stored and not isinstance(value, Sizes) else self.lift(value, call)

    @staticmethod
    def _of_sizes(operator: Operator, call: Call, inputs: list[Any], kind: np.dtype[Any]) -> list[Any] | None:
        """What an operator gives for known numbers that vary, as far as that is known; None: it takes Tensors."""
        given = [v for i, v in enumerate(inputs) if v is not None and i not in operator.host]
        told = [v for i, v in enumerate(inputs) if i in operator.host]
        if not all(isinstance(v, np.ndarray) for v in inputs if v is not None) or call.node.domain or not given:
            return None
        if any(isinstance(v, Sizes) for v in told):
            return None
        try:
            found = compute(call.op, given)
        except UndecidedError:
            return None
        if found is not None:
            if call.op in FOLDS and call.integer("keepdims", 1):
                found = np.asarray([found], object)
            truth = isinstance(found, np.ndarray) and found.dtype == bool
            return [found if truth else sizes(found, kind)]
        if not operator.sizes:
            return None
        try:
            parts = _parts(operator.function(call, *inputs))
        except UndecidedError:  # a row of a table at a place that varies, say
            return None
        return [sizes(v, kind) if isinstance(v, int | UOp) or (isinstance(v, np.ndarray) and v.dtype == object) else v
                for v in parts]  # fmt: skip

    def lift(self, value: Any, call: Call) -> Tensor:
        """The Tensor of a value, one for each array."""
        if isinstance(value, Sizes):
            return lift_sizes(value, self.device, self.bound)
        value = dense(value)
        if isinstance(value, np.ndarray):
            held = self.kept.tensors.get(id(value))
            if held is None or held[0] is not value:
                with not_recording():
                    made = lift(value, self.device)
                    made = self.kept.narrowed(made)
                held = (value, made)
                if id(value) in self.kept.names:
                    self.kept.tensors[id(value)] = held
            kept = held[1]
            return kept.cast(dtypes.float32) if kept.dtype is dtypes.float16 and value.dtype == np.float32 else kept
        if not isinstance(value, Tensor):
            call.known(value)  # says why text is none
            raise call.error(f"an input is no tensor but {type(value).__name__}")
        return lift(value, self.device)


def _parts(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def _several(result: Any) -> list[Any]:
    results = _parts(result)
    return [np.asarray(v) if isinstance(v, np.generic) else v for v in results]


def _broadcast(inputs: Sequence[Any]) -> int:
    """The elements that arrays have together, where they go together: 0 where not."""
    try:
        return math.prod(np.broadcast_shapes(*(v.shape for v in inputs if isinstance(v, np.ndarray))))
    except ValueError:
        return 0


def _value(call: Call, value: Any) -> Any:
    """A known value as a NumPy array, if it is small and NumPy has its type."""
    if isinstance(value, Held):
        return Held(_value(call, value.value), value.kind)
    if isinstance(value, Tensor):
        call.afford(value.numel(), value.dtype.nbytes(8) // 8 or 1)
    if not isinstance(value, Tensor) or value.dtype.held_wider or not value.numel() <= WORTH_KNOWING:
        return value.realize() if isinstance(value, Tensor) else value
    return np.asarray(value.numpy())
