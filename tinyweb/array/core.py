"""What a Tensor is: a node of the tensor graph, the device it lives on, and how its value is computed and read."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tinyweb.array.packing import pack, unpack
from tinyweb.device import Device, bindings, execute
from tinyweb.dtype import DType, dtypes, from_numpy
from tinyweb.graph.ir import Ops, Shape, Size, UOp, size_max, size_prod, substitute, toposort
from tinyweb.graph.schedule import new_buffer, schedule

Scalar: TypeAlias = "bool | int | float"
Method = TypeVar("Method", bound=Callable[..., Any])
_assign_ids = itertools.count()
_leaf_ids = itertools.count()
_live: WeakValueDictionary[int, TensorCore] = WeakValueDictionary()
_due: WeakValueDictionary[int, TensorCore] = WeakValueDictionary()


def live_tensors() -> list[TensorCore]:
    """Every tensor somebody holds: who reads memory that is about to change, and who waits for gradients."""
    return list(_live.values())


def realize_with_next(t: TensorCore) -> None:
    """Compute `t`, just updated in place, together with whatever is computed next on its device: nobody else may ask
    for it (the running statistics of a norm), and what it waits for would pile up."""
    _due[id(t)] = t


def leaf(value: UOp) -> UOp:
    """`value` (a constant) as a value of its own: gradients tell apart two tensors of equal constants."""
    return UOp(Ops.LEAF, value.dtype, (value,), next(_leaf_ids))


def accepts_dim(method: Method) -> Method:
    """Lets a method with a parameter `axis` be called with PyTorch's keywords `dim` and `keepdims` as well."""

    @functools.wraps(method)
    def call(*args: Any, **keywords: Any) -> Any:
        for theirs, ours in (("dim", "axis"), ("keepdims", "keepdim")):
            if theirs in keywords:
                if ours in keywords:
                    raise TypeError(f"{method.__name__}: {theirs} and {ours} are two names of one argument: give one")
                keywords[ours] = keywords.pop(theirs)
        return method(*args, **keywords)

    return cast("Method", call)


def scalar_dtype(value: Any) -> DType:
    """The dtype a Python number has on its own."""
    if isinstance(value, bool | np.bool_):
        return dtypes.bool
    return dtypes.int32 if isinstance(value, int | np.integer) else dtypes.float32


class TensorCore:
    """Construction, realisation, reading. Lazy: nothing is computed before a value is asked for."""

    __slots__ = ("__weakref__", "device", "grad", "requires_grad", "uop")
    uop: UOp
    device: str
    requires_grad: bool  # whether backward() gives it a grad
    grad: Self | None

    def __init__(self, data: Any = None, dtype: DType | None = None, device: str | None = None):
        """From a NumPy array, nested lists, a number, a Variable, or another tensor. float64 data becomes float32
        unless
        `dtype` says otherwise, as numbers without a stated precision do.

        Raises TypeError for data that is no array of numbers, and for a dtype that is none.
        """
        if dtype is not None and not isinstance(dtype, DType):
            raise TypeError(f"dtype must be one of tinyweb.dtypes, got {dtype!r}")
        self.device = Device.canonical(device) if device else Device.DEFAULT
        self.requires_grad, self.grad = False, None
        _live[id(self)] = self
        if isinstance(data, TensorCore):
            data = data.uop
        if isinstance(data, UOp):
            u = data.cast(dtypes.int32) if data.dtype is dtypes.index else data
            self.uop = u if dtype is None else u.cast(dtype)
            return
        if isinstance(data, bool | int | float):
            self.uop = leaf(UOp.const(data, dtype or scalar_dtype(data)))
            return
        try:
            array = np.asarray(data)
        except ValueError as e:
            raise TypeError(f"Tensor needs an array of numbers with equal row lengths: {e}") from None
        if array.dtype == object or array.dtype.kind not in "biuf":
            raise TypeError(f"Tensor needs numbers, got {type(data).__name__} of {array.dtype}")
        if dtype is None:
            dtype = from_numpy(array.dtype)
            if not isinstance(data, np.ndarray | np.generic):
                dtype = {dtypes.float64: dtypes.float32, dtypes.int64: dtypes.int32}.get(dtype, dtype)
        self.uop = self._store(array, dtype, self.device)

    @staticmethod
    def _store(array: npt.NDArray[Any], dtype: DType, device: str) -> UOp:
        buffer = new_buffer(array.size, dtype)
        opened = Device[device]
        opened.runtime.copy_in(opened.memory(buffer).handle, pack(array, dtype).data)
        return UOp(Ops.RESHAPE, dtype, (buffer,), tuple(array.shape))

    @classmethod
    def from_bytes(
        cls, data: bytes | memoryview, shape: Sequence[int], dtype: DType, device: str | None = None
    ) -> Self:
        """A tensor over bytes exactly as memory holds them (little-endian, 4-bit types two to a byte)."""
        count = math.prod(shape)
        view = memoryview(data).cast("B")
        if view.nbytes != dtype.nbytes(count):
            raise ValueError(f"{dtype.name} {tuple(shape)} takes {dtype.nbytes(count)} bytes, got {view.nbytes}")
        name = Device.canonical(device) if device else Device.DEFAULT
        buffer = new_buffer(count, dtype)
        opened = Device[name]
        opened.runtime.copy_in(opened.memory(buffer).handle, view)
        return cls._wrap(UOp(Ops.RESHAPE, dtype, (buffer,), tuple(shape)), name)

    @classmethod
    def empty(cls, *shape: int | Sequence[int], dtype: DType = dtypes.float32, device: str | None = None) -> Self:
        """Memory of its own that starts as zeros; what in-place updates write into."""
        sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        name = Device.canonical(device) if device else Device.DEFAULT
        buffer = new_buffer(math.prod(sizes), dtype)  # type: ignore[arg-type]
        return cls._wrap(UOp(Ops.RESHAPE, dtype, (buffer,), sizes), name)

    @classmethod
    def _wrap(cls, uop: UOp, device: str) -> Self:
        t = object.__new__(cls)
        t.uop, t.device, t.requires_grad, t.grad = uop, device, False, None
        _live[id(t)] = t
        return t

    def _new(self, uop: UOp) -> Self:
        return self._wrap(uop, self.device)

    # -- facts --------------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> Shape:
        return self.uop.shape

    @property
    def dtype(self) -> DType:
        return self.uop.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def size(self, axis: int | None = None) -> Any:
        return self.shape if axis is None else self.shape[self._axis(axis)]

    def numel(self) -> Size:
        return size_prod(self.shape)

    def element_size(self) -> int:
        return self.dtype.itemsize

    def nbytes(self) -> int:
        return self.dtype.nbytes(size_max(self.numel()))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return size_max(self.shape[0])

    def __repr__(self) -> str:
        shape = tuple(s if isinstance(s, int) else "symbolic" for s in self.shape)
        return f"<Tensor {shape} {self.dtype.name} on {self.device}>"

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        raise TypeError("the truth of a Tensor is not known before it is computed: use .item()")

    def _axis(self, axis: int, extra: int = 0, method: str = "axis") -> int:
        n = self.ndim + extra
        if not isinstance(axis, int) or not -max(n, 1) <= axis < max(n, 1):
            raise IndexError(f"{method}: axis {axis} is outside of a tensor with {self.ndim} axes {self.shape}")
        return axis % n if n else 0

    # -- computing ----------------------------------------------------------------------------------------------------
    def contiguous(self) -> Self:
        """The same value in memory of its own."""
        return self._new(UOp(Ops.CONTIGUOUS, self.dtype, (self.uop,)))

    def is_realized(self) -> bool:
        """Whether the value lies in memory already, as a whole."""
        u = self.uop
        while u.op is Ops.RESHAPE:
            u = u.src[0]
        return u.op is Ops.BUFFER

    def realize(self, *others: TensorCore) -> Self:
        """Compute this tensor (and `others` with it, in one schedule)."""
        realize_all([self, *others])
        return self

    def assign(self, value: Any) -> Self:
        """Write `value` (broadcast to this shape) into this tensor's memory; later reads see it. Lazy like everything
        else.

        The tensor must be memory or a view of it made by slicing, reshape, permute, flip.
        """
        x = value if isinstance(value, TensorCore) else type(self)(value, dtype=self.dtype, device=self.device)
        if x.device != self.device:
            raise ValueError(f"assign: the value is on {x.device}, the tensor on {self.device}")
        return self._assign_into(self.uop, x)

    def _assign_into(self, view: UOp, value: TensorCore) -> Self:
        base = view
        while base.op in (Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP):
            base = base.src[0]
        if base.op not in (Ops.BUFFER, Ops.ASSIGN):
            raise ValueError(
                "assign: the tensor has no memory yet: call .realize() (or .contiguous().realize()) on it first"
            )
        if value.dtype is not view.dtype:
            raise TypeError(f"assign: value has dtype {value.dtype.name}, memory {view.dtype.name}: cast it first")
        written = UOp(Ops.ASSIGN, view.dtype, (view, value._broadcast_to(view.shape).uop), next(_assign_ids))
        # the tensor goes on as the same view, now of the updated memory
        self.uop = substitute(self.uop, {base: written})
        return self

    def _broadcast_to(self, shape: Shape) -> Self:
        raise NotImplementedError

    # -- reading ------------------------------------------------------------------------------------------------------
    def numpy(self) -> npt.NDArray[Any]:
        """The value as a NumPy array (bfloat16 as float32, 4-bit types as 8-bit)."""
        values = bindings(drop_executed([self.uop]))
        sizes = tuple(s if isinstance(s, int) else evaluate_size(s, values) for s in self.shape)
        held = tuple(size_max(s) for s in self.shape)
        t = self.realize()
        base = t.uop.buffer
        opened = Device[self.device]
        count = math.prod(held)
        data = opened.runtime.copy_out(opened.memory(base).handle, self.dtype.nbytes(count)) if count else b""
        return unpack(data, self.dtype, count).reshape(held)[tuple(slice(0, s) for s in sizes)]

    def data(self) -> bytes:
        """The bytes of the value as memory holds them."""
        t = self.realize()
        opened = Device[self.device]
        return opened.runtime.copy_out(opened.memory(t.uop.buffer).handle, self.nbytes())

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def item(self) -> Any:
        """The only element, as a Python number."""
        if size_max(self.numel()) != 1:
            raise ValueError(f"item: the tensor has shape {self.shape}, not one element")
        return self.numpy().reshape(()).item()

    def to(self, device: str | None) -> Self:
        """The tensor on another device (a copy through the host), or itself."""
        name = Device.canonical(device) if device else Device.DEFAULT
        if name == self.device:
            return self
        return type(self).from_bytes(self.data(), [size_max(s) for s in self.shape], self.dtype, name)

    def clone(self) -> Self:
        return self.contiguous()


def evaluate_size(s: Size, values: dict[str, int]) -> int:
    """A size with the variables' values put in."""
    from tinyweb.graph.symbolic import evaluate

    return s if isinstance(s, int) else int(evaluate(s, {v: values[v.arg[0]] for v in s.variables()}))


def bound_size(s: Size, values: dict[str, int]) -> Size:
    """A size that remembers the values of its variables."""
    return s if isinstance(s, int) else substitute(s, {v: v.bind(values[v.arg[0]]) for v in s.variables()})


def drop_executed(roots: list[UOp]) -> list[UOp]:
    """In-place updates that have happened are plain memory."""
    done = {u: u.buffer for u in toposort(roots) if u.op is Ops.ASSIGN and u.__dict__.get("executed")}
    return [substitute(r, done) for r in roots] if done else roots


def realize_all(tensors: Sequence[TensorCore]) -> None:
    """Compute tensors in one schedule per device; afterwards each is a view of its own memory."""
    for device in dict.fromkeys(t.device for t in tensors):
        due = [_due.pop(key) for key, t in list(_due.items()) if t.device == device]
        here = list({id(t): t for t in (*(t for t in tensors if t.device == device), *due)}.values())
        # other tensors hold these very nodes, so it is they that are marked once they have happened
        updates = [u for u in toposort(t.uop for t in here) if u.op is Ops.ASSIGN]
        for t, u in zip(here, drop_executed([t.uop for t in here]), strict=True):
            t.uop = u
        waiting = [t for t in here if not t.is_realized()]
        roots: list[UOp] = []
        for t in waiting:
            base = t.uop
            while base.op is Ops.RESHAPE:
                base = base.src[0]
            roots.append(base if base.op in (Ops.ASSIGN, Ops.CONTIGUOUS) else UOp(Ops.CONTIGUOUS, t.dtype, (t.uop,)))
        if not roots:
            continue
        plan = schedule(roots)
        values = bindings(roots)
        execute(plan, device, values)
        for t, buffer in zip(waiting, plan.results, strict=True):
            held = tuple(size_max(s) for s in t.shape)
            view = buffer if held == (buffer.arg.size,) else UOp(Ops.RESHAPE, t.dtype, (buffer,), held)
            if held != t.shape:
                view = UOp(Ops.SHRINK, t.dtype, (view,), tuple((0, bound_size(s, values)) for s in t.shape))
            t.uop = view
        for u in updates:
            u.__dict__["executed"] = True
