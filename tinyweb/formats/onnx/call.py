"""What a lowering knows of the node it stands for: attributes, checked, and values that have to be known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from tinyweb.array.storage import bound_size
from tinyweb.device import Device, current_recorder, is_recording, not_recording
from tinyweb.dtype import dtypes, to_dtype
from tinyweb.errors import ModelFormatError
from tinyweb.formats.onnx.graph import Graph, Node
from tinyweb.formats.onnx.messages import Attribute, joined
from tinyweb.formats.onnx.sizes import Sizes, fixed_hint, sizes
from tinyweb.formats.onnx.stored import Kept, Stored
from tinyweb.formats.onnx.tensors import Files, dense, value_of
from tinyweb.formats.onnx.types import BY_NAME, ElementType, kind_of
from tinyweb.formats.words import Words
from tinyweb.graph.ir import Size, size_max
from tinyweb.graph.target import Target
from tinyweb.tensor import Tensor

Host: TypeAlias = npt.NDArray[Any]
Grow: TypeAlias = "Callable[[Tensor, int], Tensor]"
Array: TypeAlias = "Host | Tensor"

_KINDS = {1: "a number", 2: "a whole number", 3: "text", 4: "a tensor", 5: "a graph", 6: "numbers", 7: "whole numbers",
          8: "texts", 11: "a sparse tensor", 13: "a type"}  # fmt: skip
FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS = range(1, 9)
SPARSE = 11
NEEDED: Any = object()  # the default of an attribute that must be given


class Held:
    """A value of a type that tinyweb lacks, in a wider one. The interpreter carries the type along."""

    def __init__(self, value: Any, kind: ElementType):
        self.value, self.kind = value, kind


class Around(Protocol):
    """What evaluates the node."""

    device: str
    files: Files
    kept: Kept
    activations: str
    growing: Mapping[int, Grow]
    bound: dict[str, int]
    room: int

    def lift(self, value: Any, call: Call) -> Tensor: ...


class Call:
    """One node that is being lowered. `constant`: which inputs are the same in every call."""

    def __init__(
        self,
        node: Node,
        around: Around,
        run: Callable[[Graph, Sequence[Any]], list[Any]],
        kinds: Sequence[ElementType | None] = (),
        constant: Sequence[bool] = (),
        captured: Callable[[Graph], list[Any]] = lambda graph: [],
    ):
        self.node, self.around, self._run, self.kinds, self.constant = node, around, run, kinds, constant
        self.version, self.op, self.device, self._files = node.version, node.op, around.device, around.files
        self._growing, self.bound = around.growing, dict(around.bound)
        self.captured = captured  # what a graph of the node reads from outside

    @property
    def target(self) -> Target:
        """What the kernels are for: the device, or what is recorded."""
        recorder = current_recorder()
        told = None if recorder is None else recorder.target
        return Device[self.device].runtime.target if told is None else told

    def alone(self) -> Call:
        """The same without the values around it, for what outlives the call."""
        return Call(self.node, self.around, lambda graph, inputs: [], self.kinds, self.constant)

    # -- errors -------------------------------------------------------------------------------------------------------
    def error(self, message: str) -> ModelFormatError:
        return ModelFormatError(f"{self.node.label}: {message}")

    def unsupported(self, message: str) -> NotImplementedError:
        return NotImplementedError(f"{self.node.label}: {message}")

    # -- attributes ---------------------------------------------------------------------------------------------------
    def _attribute(self, name: str, kind: int, needed: bool) -> Attribute | None:
        found = self.node.attributes.get(name)
        if found is None:
            if needed:
                raise self.error(f"attribute {name!r} is missing: {_KINDS[kind]}")
            return None
        if found.kind != kind:
            raise self.error(
                f"attribute {name!r} is {_KINDS.get(found.kind, 'of an unknown kind')}, not {_KINDS[kind]}"
            )
        return found

    def has(self, name: str) -> bool:
        return name in self.node.attributes

    @overload
    def integer(self, name: str, default: None) -> int | None: ...
    @overload
    def integer(self, name: str, default: int = ...) -> int: ...
    def integer(self, name: str, default: Any = NEEDED) -> int | None:
        """A whole number; the default stands for one that is not given."""
        a = self._attribute(name, INT, default is NEEDED)
        return default if a is None else a.i

    @overload
    def real(self, name: str, default: None) -> float | None: ...
    @overload
    def real(self, name: str, default: float = ...) -> float: ...
    def real(self, name: str, default: Any = NEEDED) -> float | None:
        a = self._attribute(name, FLOAT, default is NEEDED)
        return default if a is None else a.f

    def text(self, name: str, default: Any = NEEDED) -> str:
        a = self._attribute(name, STRING, default is NEEDED)
        return str(default) if a is None else bytes(a.s).decode("utf-8", "replace")

    def choice(self, name: str, default: str, among: Sequence[str]) -> str:
        """Text that is one of a few words."""
        found = self.text(name, default)
        if found not in among:
            raise self.error(f"attribute {name!r} is {found!r}, not one of {', '.join(among)}")
        return found

    @overload
    def integers(self, name: str, default: None) -> list[int] | None: ...
    @overload
    def integers(self, name: str, default: Sequence[int] = ...) -> list[int]: ...
    def integers(self, name: str, default: Any = NEEDED) -> list[int] | None:
        a = self._attribute(name, INTS, default is NEEDED)
        if a is None:
            return None if default is None else list(default)
        return [int(n) for n in joined(a.ints, np.int64)]

    @overload
    def reals(self, name: str, default: None) -> list[float] | None: ...
    @overload
    def reals(self, name: str, default: Sequence[float] = ...) -> list[float]: ...
    def reals(self, name: str, default: Any = NEEDED) -> list[float] | None:
        a = self._attribute(name, FLOATS, default is NEEDED)
        if a is None:
            return None if default is None else list(default)
        return [float(x) for x in joined(a.floats, np.float32)]

    def texts(self, name: str, default: Sequence[str] = ()) -> list[str]:
        a = self._attribute(name, STRINGS, False)
        return list(default) if a is None else [s.decode("utf-8", "replace") for s in a.strings]

    def tensor(self, name: str) -> Any:
        """The value of a tensor, as `Held` where tinyweb lacks its type."""
        a = self._attribute(name, TENSOR, True)
        assert a is not None
        if a.t is None:
            raise self.error(f"attribute {name!r} has no tensor")
        value, kind = value_of(a.t, self._files)
        return Held(value, kind) if kind.held else value

    def sparse(self, name: str) -> Host:
        """The array of a sparse tensor."""
        a = self._attribute(name, SPARSE, True)
        assert a is not None
        if a.sparse is None:
            raise self.error(f"attribute {name!r} has no tensor")
        return dense(a.sparse, self._files)

    def kind(self, number: int) -> ElementType:
        return kind_of(number, self.node.label)

    # -- sizes that vary ----------------------------------------------------------------------------------------------
    def part(self, x: Tensor, shape: Sequence[Size]) -> Tensor:
        """The first elements of each axis."""
        return x.shrink([(0, bound_size(s, self.bound)) for s in shape])

    def bind(self, name: str, value: int) -> None:
        """A Variable begins here, with a value for what is recorded."""
        self.around.bound[name] = self.bound[name] = value

    def whole(self, value: Size, kind: np.dtype[Any]) -> Tensor:
        """One number as a Tensor."""
        held = sizes(value, kind)
        return lift_sizes(held, self.device, self.bound) if isinstance(held, Sizes) else lift(held, self.device)

    # -- memory -------------------------------------------------------------------------------------------------------
    def afford(self, count: Size, width: int = 8) -> None:
        """ModelFormatError where so many numbers, of `width` bytes, are more than what is known may take: a small file
        can ask for any number of them."""
        if size_max(count) * width > self.around.room:
            raise self.error(f"{size_max(count)} numbers would be made of what is known, more than there is room for")

    def spend(self, count: int, width: int) -> None:
        """`afford`, for what then lies in memory."""
        self.afford(count, width)
        self.around.room -= count * width

    # -- graphs -------------------------------------------------------------------------------------------------------
    def graph(self, name: str) -> Graph:
        if name not in self.node.graphs:
            raise self.error(f"attribute {name!r} is missing: a graph")
        return self.node.graphs[name]

    def run(self, graph: Graph, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a graph of the node."""
        return self._run(graph, inputs)

    # -- values -------------------------------------------------------------------------------------------------------
    def grows(self, past: Any) -> bool:
        """Whether a value is a cache, which keeps what is put behind it (`OnnxModel.run`)."""
        return id(past) in self._growing

    def grown(self, past: Tensor, new: Tensor, axis: int) -> Tensor:
        """Both behind each other; a cache keeps what is new."""
        grow = self._growing.get(id(past))
        return Tensor.cat(past, new, axis=axis) if grow is None else grow(new, axis)

    def lift(self, value: Array) -> Tensor:
        return lift(value, self.device)

    def given(self, value: Any) -> Any:
        """The Tensor of an input that was handed over as it is; None of one that is missing."""
        return value if value is None else self.around.lift(value, self)

    def array(self, place: int, value: Any) -> Host | None:
        """The NumPy array of an input that is the same in every call; None where it is not, or is missing."""
        if isinstance(value, np.ndarray) and place < len(self.constant) and self.constant[place]:
            return value
        if not isinstance(value, Tensor) or not self.constant[place]:
            return None
        with not_recording():
            return np.asarray(value.numpy())

    def matrix(self, place: int, value: Any, turned: bool) -> Stored | None:
        """An input that is a matrix of narrow integers: as the graph has it, or of floats that are to be quantised,
        which are multiplied (`turned`) or looked up. None for any other."""
        if isinstance(value, Stored):
            return value
        array = self.array(place, value) if isinstance(value, np.ndarray) else None
        if array is None:
            return None
        return self.around.kept.quantised(array, turned, self.node.inputs[place], self.around.activations)

    def named(self, words: Host, places: Array) -> Any:
        """Text by places (of any shape) in a list: known where these are, or can be read back; else `Words`."""
        if isinstance(places, Tensor) and is_recording():
            return Words(words, places.cast(dtypes.int32))
        return words[self.known(places, "the place of a text")]

    def known(self, value: Any, what: str = "an input") -> Host:
        """A value that decides shapes, as a NumPy array. NotImplementedError where it is computed from inputs while a
        jit or an export records."""
        if isinstance(value, Sizes):
            raise self.unsupported(f"{what} varies, and {fixed_hint(value.reshape(-1))}")
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, Words):
            raise self.unsupported("text that is computed can be given, looked up in a list, or moved, and no more")
        if not isinstance(value, Tensor):
            raise self.error(f"{what} is no tensor")
        if is_recording():
            raise self.unsupported(f"{what} decides shapes or steps, so it must not depend on the model's inputs")
        return np.asarray(value.numpy())


def is_text(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object and not isinstance(value, Sizes)


def lift_sizes(value: Sizes, device: str, bound: Mapping[str, int]) -> Tensor:
    """Sizes as a Tensor; `bound`: values of their Variables."""
    dtype = to_dtype(value.kind)
    each = [Tensor(s if isinstance(s, int) else bound_size(s, dict(bound)), dtype, device) for s in value.reshape(-1)]
    return each[0].reshape(*value.shape) if len(each) == 1 else Tensor.stack(*each, axis=0).reshape(*value.shape)


def lift(value: Any, device: str) -> Tensor:
    """A value as a Tensor on a device."""
    if isinstance(value, Sizes):
        return lift_sizes(value, device, {})
    if isinstance(value, Tensor):
        return value if value.device == device else value.to(device)
    array = np.asarray(value)
    if array.dtype == object:
        raise NotImplementedError("text is supported only where it is known")
    if array.size == 1 and array.dtype.kind in "biuf":  # part of the kernels that use it
        return Tensor.full(array.shape, array.item(), to_dtype(array.dtype), device)
    return Tensor(np.ascontiguousarray(array).reshape(array.shape), dtype=to_dtype(array.dtype), device=device)


__all__ = ["BY_NAME", "Array", "Call", "Held", "Host", "lift", "lift_sizes"]
