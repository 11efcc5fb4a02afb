"""What a Tensor is: a node of the tensor graph, the device it lives on, and how its value is computed and read."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from tinyweb.array.arguments import check_arguments
from tinyweb.array.packing import check_fits, pack, unpack
from tinyweb.array.realize import realize_all, realize_with_next
from tinyweb.array.storage import Storage, Value, bound_size, evaluate_size, leaf, live_values, memory_view, remember
from tinyweb.array.update import update
from tinyweb.device import Device, bindings, is_recording
from tinyweb.dtype import DType, DTypeLike, as_dtype, dtypes, from_numpy, to_dtype
from tinyweb.graph.ir import MOVEMENT, CopyArg, Ops, Shape, Size, UOp, numel_max, size_max, size_prod
from tinyweb.graph.schedule import even_sizes, spans

Scalar: TypeAlias = "bool | int | float"
VIEWS = (MOVEMENT - {Ops.PAD}) | {Ops.DETACH}  # padding is no memory of what is padded


def scalar_dtype(value: Any) -> DType:
    """The dtype a Python number has on its own: a whole number that int32 does not hold is an int64, or a uint64."""
    if isinstance(value, bool | np.bool_):
        return dtypes.bool
    if not isinstance(value, int | np.integer):
        return dtypes.float32
    return next((t for t in (dtypes.int32, dtypes.int64) if t.min <= value <= t.max), dtypes.uint64)


def _whole(data: Any, array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """Nested lists as NumPy reads them, but whole numbers as such: of one beyond int64 and others it makes floats."""
    if not (np.abs(array) >= 2.0**63).any():
        return array
    exact = np.asarray(data, object)
    if not all(isinstance(v, int) for v in exact.flat):
        return array
    check_fits(exact, dtype)
    return exact.astype(dtype.numpy)


class TensorCore(Value):
    """Construction, realisation, reading. Lazy: nothing is computed before a value is asked for."""

    __slots__ = ("grad",)
    grad: Self | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.startswith("tinyweb."):  # what others add is theirs to check
            check_arguments(cls)

    def __init__(self, data: Any = None, dtype: DTypeLike | None = None, device: str | None = None):
        """From a NumPy array, nested lists, a number, a Variable, or another tensor. float64 data becomes float32
        unless `dtype` says otherwise, as numbers without a stated precision do; whole numbers become int32, and int64
        where that does not hold them.

        Raises TypeError for data that is no array of numbers, and for a dtype that is none; ValueError for numbers and
        lists that an integer `dtype` cannot hold. Arrays and tensors are cast.
        """
        if dtype is not None:
            dtype = to_dtype(dtype)
        if isinstance(data, TensorCore):
            same = data if device is None else data.to(device)
            self.device, self.storage, self.uop = same.device, same.storage, same.uop
            if dtype is not None and dtype is not same.dtype:
                self.storage, self.uop = Storage(), same.uop.cast(dtype)
            self._begin()
            return
        self.device, self.storage = Device.canonical(device) if device else Device.DEFAULT, Storage()
        self.uop = self._given(data, dtype)
        self._begin()  # last: what could not be made is not among the live tensors

    def _given(self, data: Any, dtype: DType | None) -> UOp:
        """The node of what a tensor is made from."""
        if isinstance(data, UOp):
            u = data.cast(dtypes.int32) if data.dtype is dtypes.index else data
            return u if dtype is None else u.cast(dtype)
        if isinstance(data, bool | int | float):
            kind = dtype or scalar_dtype(data)
            check_fits(data, kind)
            return leaf(UOp.const(data, kind))
        try:
            array = np.asarray(data)
        except ValueError as e:
            raise TypeError(f"Tensor needs an array of numbers with equal row lengths: {e}") from None
        if array.dtype == object or array.dtype.kind not in "biuf":
            if array.dtype == object and all(isinstance(v, int | float) for v in array.flat):
                raise TypeError(f"Tensor needs numbers of at most 64 bits, got {data!r:.60}")
            shown = f"{type(data).__name__} of {array.dtype}" if array.ndim else f"{type(data).__name__} {data!r:.40}"
            raise TypeError(f"Tensor needs numbers, got {shown}")
        if isinstance(data, Sequence) and array.dtype.kind == "f" and (dtype is None or dtype.is_int):
            array = _whole(data, array, dtype or dtypes.uint64)
        if dtype is None:
            dtype = from_numpy(array.dtype)
            if not isinstance(data, np.ndarray | np.generic):
                narrow = dtype is dtypes.int64 and bool((array == array.astype(np.int32)).all())
                dtype = dtypes.float32 if dtype is dtypes.float64 else dtypes.int32 if narrow else dtype
        elif isinstance(data, Sequence | np.generic):  # numbers as they stand in a program
            check_fits(array, dtype)
        stored = self._store(array, dtype, self.device)
        self.storage.memory = stored.buffer
        return stored

    def _begin(self) -> None:
        self.requires_grad, self.grad = False, None
        remember(self)

    @staticmethod
    def _store(array: npt.NDArray[Any], dtype: DType, device: str) -> UOp:
        buffer = Device.new_buffer(device, array.size, dtype)
        Device.place(device).memory(buffer).fill(pack(array, dtype).data)
        return UOp(Ops.RESHAPE, dtype, (buffer,), tuple(array.shape))

    @classmethod
    def from_bytes(
        cls, data: bytes | memoryview, shape: Sequence[int], dtype: DTypeLike, device: str | None = None
    ) -> Self:
        """A tensor over bytes exactly as memory holds them (little-endian, 4-bit types two to a byte)."""
        dtype, count = to_dtype(dtype), math.prod(shape)
        view = memoryview(data).cast("B")
        if view.nbytes != dtype.nbytes(count):
            raise ValueError(f"{dtype.name} {tuple(shape)} takes {dtype.nbytes(count)} bytes, got {view.nbytes}")
        name = Device.canonical(device) if device else Device.DEFAULT
        buffer = Device.new_buffer(name, count, dtype)
        Device.place(name).memory(buffer).fill(view)
        return cls._wrap(UOp(Ops.RESHAPE, dtype, (buffer,), tuple(shape)), name, Storage(buffer))

    @classmethod
    def empty(
        cls,
        *shape: int | Sequence[int],
        size: int | Sequence[int] | None = None,
        dtype: DTypeLike = dtypes.float32,
        device: str | None = None,
    ) -> Self:
        """Memory of its own that starts as zeros; what in-place updates write into."""
        if size is not None:
            if shape:
                raise TypeError(f"empty: given twice, as {shape} and by keyword as {size}")
            shape = (size,)
        dtype = to_dtype(dtype)
        sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        if any(not hasattr(s, "__index__") or isinstance(s, bool) or operator.index(s) < 0 for s in sizes):
            raise ValueError(f"empty: sizes must be whole numbers ≥ 0, got {sizes}")
        sizes = tuple(operator.index(s) for s in sizes)  # type: ignore[arg-type]
        name = Device.canonical(device) if device else Device.DEFAULT
        buffer = Device.new_buffer(name, math.prod(sizes), dtype)  # type: ignore[arg-type]
        return cls._wrap(UOp(Ops.RESHAPE, dtype, (buffer,), sizes), name, Storage(buffer))

    @classmethod
    def _wrap(cls, uop: UOp, device: str, storage: Storage | None = None, beside: bool = True) -> Self:
        """A tensor of a node: a value of its own, unless it is given the storage of another. `beside`: unless the node
        is a view of that storage's memory."""
        t = object.__new__(cls)
        t.uop, t.device, t.storage = uop, device, storage or Storage()
        t.requires_grad, t.grad = False, None
        remember(t, beside)
        return t

    def _new(self, uop: UOp) -> Self:
        """What a method makes of this tensor; a movement of its node is a view, which shares its memory."""
        is_view = uop.op in VIEWS and uop.src[0] is self.uop
        return self._wrap(uop, self.device, self.storage if is_view else None)

    def _same(self) -> Self:
        """The value alone, no view: updates in place of one do not reach the other."""
        return self._new(self.uop)

    # -- facts --------------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> Shape:
        """The size of every axis; a symbolic size is an expression in Variables."""
        return self.uop.shape

    @property
    def dtype(self) -> DType:
        """The type of the elements, one of `tinyweb.dtypes`."""
        return self.uop.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def dim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def size(self, axis: int | None = None) -> Any:
        """The shape, or the size of one axis."""
        if axis is None:
            return self.shape
        if not self.shape:
            raise IndexError(f"size: a 0-d tensor has no axis {axis}")
        return self.shape[self._axis(axis, method="size")]

    def numel(self) -> Size:
        """The number of elements."""
        return size_prod(self.shape)

    def element_size(self) -> int:
        """Bytes of one element in memory; ValueError for 4-bit types."""
        return self.dtype.itemsize

    def nbytes(self) -> int:
        """Bytes of the value in memory, symbolic sizes at their largest."""
        return self.dtype.nbytes(numel_max(self.shape))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        count = self.shape[0]
        if not isinstance(count, int):
            raise TypeError(f"len: axis 0 of {self.shape} has a symbolic number of parts: take .shape[0]")
        return count

    def __repr__(self) -> str:
        shape = tuple(s if isinstance(s, int) else "symbolic" for s in self.shape)
        return f"<Tensor {shape} {self.dtype.name} on {self.device}>"

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        raise TypeError("the truth of a Tensor is not known before it is computed: use .item()")

    def _axis(self, axis: int, extra: int = 0, method: str = "axis") -> int:
        n = self.ndim + extra
        if type(axis) is not int:
            if isinstance(axis, bool) or not hasattr(axis, "__index__"):
                raise TypeError(f"{method}: an axis is a whole number, got {axis!r}")
            axis = operator.index(axis)
        if not -max(n, 1) <= axis < max(n, 1):
            raise IndexError(f"{method}: axis {axis} is outside of a tensor with {self.ndim} axes {self.shape}")
        return axis % n if n else 0

    # -- computing ----------------------------------------------------------------------------------------------------
    def contiguous(self) -> Self:
        """The same value in memory of its own."""
        return self._new(UOp(Ops.CONTIGUOUS, self.dtype, (self.uop,)))

    def is_realized(self) -> bool:
        """Whether the value lies in memory already, if only as a view of it."""
        return memory_view(self.uop) is not None

    def realize(self, *others: TensorCore) -> Self:
        """Compute this tensor (and `others` with it, in one schedule)."""
        realize_all([self, *others])
        return self

    def assign(self, value: Any) -> Self:
        """Write `value` (broadcast to this shape) into this tensor's memory: views of it see it from now on, what has
        been computed from it keeps its value. Lazy like everything else. Numbers and arrays are cast to this dtype.

        A tensor that has no memory yet gets it. ValueError for a value on another device or of a shape that does not
        broadcast, and for a broadcast view, whose elements share memory; TypeError for a tensor of another dtype.
        """
        x = value if isinstance(value, TensorCore) else type(self)(value, dtype=self.dtype, device=self.device)
        update("assign", self, x)
        return self

    def _update(self, method: str, value: TensorCore) -> Self:
        """Write `value`, cast to this dtype."""
        update(
            method, self, value if value.dtype is self.dtype else value._wrap(value.uop.cast(self.dtype), value.device)
        )
        return self

    def _assign_into(self, view: UOp, value: TensorCore) -> Self:
        """Write into a view of this tensor, given as movements of its node."""
        update("setitem", self._wrap(view, self.device, self.storage), value)
        return self

    # -- reading ------------------------------------------------------------------------------------------------------
    def numpy(self) -> npt.NDArray[Any]:
        """The value as a NumPy array (bfloat16 as float32, 4-bit types as 8-bit)."""
        return self._array("numpy")

    def _array(self, method: str) -> npt.NDArray[Any]:
        held = tuple(size_max(s) for s in self.shape)
        count = math.prod(held)
        data = self._bytes(method) if count else b""
        values = bindings([self.uop])
        sizes = tuple(evaluate_size(s, values) for s in self.shape)
        return unpack(data, self.dtype, count).reshape(held)[tuple(slice(0, s) for s in sizes)]

    def data(self) -> bytes:
        """The bytes of the value as memory holds them."""
        return self._bytes("data")

    def _bytes(self, method: str) -> bytes:
        """Compute, and copy to the host; symbolic sizes take their maximum."""
        if is_recording():
            raise RuntimeError(
                f"{method}: a value cannot be read while jit or an export records: return the tensor, read it outside"
            )
        first, *others = Device.members(self.device)
        if others:
            return self.to(first)._bytes(method)
        view = memory_view(self.realize().uop)
        assert view is not None
        while (
            view.op is Ops.DETACH
            or (view.op is Ops.RESHAPE and _keeps_places(view))
            or (view.op is Ops.SHRINK and _cuts_the_end(view))
        ):
            view = view.src[0]
        if view.op is not Ops.BUFFER:
            return self.contiguous()._bytes(method)
        opened = Device[self.device]
        return opened.runtime.copy_out(opened.memory(view).handle, self.nbytes())

    def tolist(self) -> Any:
        """The value as nested lists of Python numbers (a number for a tensor without axes)."""
        return self._array("tolist").tolist()

    def item(self) -> Any:
        """The only element, as a Python number."""
        if size_max(self.numel()) != 1:
            raise ValueError(f"item: the tensor has shape {self.shape}, not one element")
        return self._array("item").reshape(()).item()

    def to(self, device: Any = None, dtype: DTypeLike | None = None) -> Self:
        """The tensor on another device, as another dtype, or both: `to("CPU:1")`, `to(dtype)`, `to("CPU", dtype)`, or
        `to(other)`, which takes both from a tensor. What several devices have (`shard`) is gathered, and
        `to("CPU,CPU:1")` copies to each of several. Gradients go back to where the tensor was.

        Lazy; memory goes through the host where two devices have no other way. DeviceError for a name that is no
        device's.
        """
        where: str | None = None
        if isinstance(device, TensorCore):
            where, dtype = device.device, dtype or device.dtype
        elif device is not None:
            named = as_dtype(device)
            if named is not None and dtype is not None:
                raise TypeError(f"to: two dtypes, {device!r} and {dtype!r}")
            if named is None and not isinstance(device, str):
                raise TypeError(f"to: needs a device, a dtype or a tensor, got {device!r}")
            where, dtype = (self.device, named) if named is not None else (device, dtype)
        elif dtype is not None:
            where = self.device
        name = Device.DEFAULT if where is None else Device.canonical(where)
        kind = self.dtype if dtype is None else to_dtype(dtype)
        t = self if kind is self.dtype else self._new(self.uop.cast(kind))
        if name == self.device:
            return t
        return t._moved(name)

    def _moved(self, device: str, axis: int | None = None, sizes: tuple[int, ...] = ()) -> Self:
        """On another device; on several, whole on each or divided along an axis into parts of these sizes."""
        arg = CopyArg(Device.members(self.device), Device.members(device), axis, sizes)
        return self._wrap(UOp(Ops.COPY, self.dtype, (self.uop,), arg), device)

    def shard(self, devices: str | Sequence[str], axis: int | None = None, sizes: Sequence[int] | None = None) -> Self:
        """The tensor on several devices (`["CPU", "CPU:1"]`, or `"CPU,CPU:1"`): divided along `axis` into parts, in
        their order, or (None) whole on each of them. `sizes` are the parts' along the axis, as even as can be unless
        given: of 10 elements 4, 3 and 3.

        What is computed of tensors on the same devices is computed by all of them, each of its part: elementwise, with
        reductions, products of matrices, movement and gathers, as long as the axis that is divided stays one axis. Of
        a whole tensor each takes its part. A reduction along the divided axis ends in an all-reduce: the result is
        whole on each. Whatever else needs all of a tensor gathers it first. `to` gathers it on one device; `shard` on
        the same devices divides it along another axis. Lazy. Gradients are divided as their tensors are computed.

        ValueError for an axis whose size is symbolic, and for sizes that are not those of its parts; IndexError for an
        axis that is not there; DeviceError for a name that is no device's, or named twice.
        """
        members = Device.members(devices)
        name, count, each = ",".join(members), len(members), tuple[int, ...]()
        if axis is not None:
            axis = self._axis(axis, method="shard")
            if not self.shape:
                raise IndexError("shard: a tensor without axes is whole on each device: axis=None")
            size = self.shape[axis]
            if not isinstance(size, int):
                raise ValueError(
                    f"shard: axis {axis} of {self.shape} has a symbolic number of elements: choose another axis"
                )
            each = even_sizes(size, count) if sizes is None else tuple(map(operator.index, sizes))
            if len(each) != count or min(each) < 0 or sum(each) != size:
                raise ValueError(
                    f"shard: parts of sizes {list(each)} do not divide the {size} elements of axis {axis} of "
                    f"{self.shape} among {count} devices: give one size for each, which together make {size}"
                )
        elif sizes is not None:
            raise ValueError("shard: sizes are those of parts along an axis, which is missing: give axis=")
        if name == self.device and (count == 1 or (axis is None and not spans(self.uop))):
            return self._same()
        return self._moved(name, axis, each) if count > 1 else self._moved(name)

    def clone(self) -> Self:
        """A copy: the same value in memory of its own."""
        return self.contiguous()


check_arguments(TensorCore)


def live_tensors() -> list[TensorCore]:
    """Every tensor somebody holds, as those know it who ask for gradients."""
    return [t for t in live_values() if isinstance(t, TensorCore)]


def _keeps_places(view: UOp) -> bool:
    """Whether a RESHAPE leaves elements where they lie: axes that vary, which memory has more room for, stay apart."""
    shapes = view.shape, view.src[0].shape
    if all(isinstance(s, int) for shape in shapes for s in shape):
        return True
    new, old = (tuple(size_max(s) for s in shape if s != 1) for shape in shapes)
    return new == old


def _cuts_the_end(shrink: UOp) -> bool:
    """Whether memory holds all sizes at their maximum: then what is beyond a symbolic size is not looked at."""
    return all(b == 0 and size_max(e) == s for (b, e), s in zip(shrink.arg, shrink.src[0].shape, strict=True))


__all__ = [
    "Scalar", "TensorCore", "bound_size", "leaf", "live_tensors", "realize_all",
    "realize_with_next", "scalar_dtype",
]  # fmt: skip
