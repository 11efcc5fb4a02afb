"""The three kinds of memory a program sees. Indices arrive as (rows, width) element numbers, int64."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, from_bits, to_bits
from tinyweb.graph.ir import BufferArg, ParamArg

Array: TypeAlias = npt.NDArray[Any]


class Where(Protocol):
    """What memory asks of the run: who is accessing it, and when."""

    invocations: int
    threads: int
    thread: Array
    epoch: int


def _check(kernel: str, name: str, index: Array, size: int) -> None:
    outside = not 0 <= index.item() < size if index.size == 1 else (index.view(np.uint64) >= size).any()
    if outside:  # negative ones are large without their sign
        wrong = index[(index < 0) | (index >= size)].reshape(-1)[0]
        raise IndexError(f"kernel {kernel}: index {wrong} is outside of {name} with {size} elements")


def _rows(run: Where, *arrays: Array | None) -> int:
    return max((a.shape[0] for a in arrays if a is not None), default=1)


class DeviceMemory:
    """A launch's buffer, seen as elements of the type it is declared with. Types below 8 bits lie several to a byte."""

    def __init__(self, kernel: str, dtype: DType, arg: ParamArg, raw: npt.NDArray[np.uint8]):
        self.kernel, self.dtype, self.size = kernel, dtype, arg.size
        self.name = f"buffer {arg.slot}"
        held = f"uint{dtype.bits}" if dtype.held_wider and dtype.bits >= 8 else dtype.numpy
        self.data = raw if dtype.bits < 8 else raw[: dtype.nbytes(arg.size)].view(held)
        self.each, self.mask = max(8 // dtype.bits, 1), (1 << min(dtype.bits, 8)) - 1  # to a byte, and the bits of one

    def load(self, index: Array, gate: Array | None, run: Where) -> Array:
        if gate is not None:
            index, gate = np.broadcast_arrays(index, gate)
            _check(self.kernel, self.name, index[gate], self.size)
            value = self._read(np.where(gate, index, 0)) if self.size else np.zeros(index.shape, self.dtype.numpy)
            return np.where(gate, value, np.zeros((), value.dtype))
        _check(self.kernel, self.name, index, self.size)
        return self._read(index)

    def _read(self, index: Array) -> Array:
        if self.dtype.bits >= 8:
            found: Array = self.data[index]
            return from_bits(found, self.dtype) if self.dtype.held_wider else found
        shift = (index % self.each * self.dtype.bits).astype(np.uint8)
        field: Array = (self.data[index // self.each] >> shift) & self.mask
        if self.dtype.kind == "uint":
            return field
        up = 8 - self.dtype.bits
        signed: Array = (field << up).astype(np.uint8).view(np.int8) >> up
        return signed

    def store(self, index: Array, value: Array, gate: Array | None, run: Where, how: Any) -> None:
        everywhere = np.broadcast_shapes(index.shape, value.shape, (1, 1) if gate is None else gate.shape)
        index, value = np.broadcast_to(index, everywhere), np.broadcast_to(value, everywhere)
        if gate is not None:
            chosen = np.broadcast_to(gate, everywhere)
            index, value = index[chosen], value[chosen]
        index, value = index.reshape(-1), value.reshape(-1)
        _check(self.kernel, self.name, index, self.size)
        if how is not None:
            {"atomic_and": np.bitwise_and, "atomic_or": np.bitwise_or}[how].at(self.data, index, value)
            return
        if self.dtype.bits < 8:
            shift = (index % self.each * self.dtype.bits).astype(np.uint8)
            np.bitwise_and.at(self.data, index // self.each, ~(np.uint8(self.mask) << shift))
            np.bitwise_or.at(self.data, index // self.each, (value.astype(np.uint8) & self.mask) << shift)
            return
        if self.dtype.held_wider:
            value = to_bits(value, self.dtype)
        self.data[index] = value
        if (
            self.data[index].view(np.uint8) != np.ascontiguousarray(value.astype(self.data.dtype)).view(np.uint8)
        ).any():
            raise IndexError(f"kernel {self.kernel}: different values are stored in one element of {self.name}")


class Registers:
    """Memory of one invocation: (N, size), or (1, size) as long as all invocations agree."""

    def __init__(self, kernel: str, dtype: DType, arg: BufferArg, invocations: int):
        self.kernel, self.size, self.invocations = kernel, arg.size, invocations
        self.name = f"register buffer {arg.id}"
        self.data = np.zeros((1, arg.size), dtype.numpy)

    def load(self, index: Array, gate: Array | None, run: Where) -> Array:
        if gate is not None:
            index = np.where(gate, index, 0)
        _check(self.kernel, self.name, index, self.size)
        value = self.data[:, index[0]] if index.shape[0] == 1 else np.take_along_axis(self.data, index, axis=1)
        return value if gate is None else np.where(gate, value, np.zeros((), value.dtype))

    def store(self, index: Array, value: Array, gate: Array | None, run: Where, how: Any) -> None:
        _check(self.kernel, self.name, index if gate is None else np.where(gate, index, 0), self.size)
        rows = _rows(run, index, value, gate)
        if rows > self.data.shape[0]:
            self.data = np.repeat(self.data, rows, axis=0)
        if index.shape[0] == 1:
            old = self.data[:, index[0]]
            self.data[:, index[0]] = value if gate is None else np.where(gate, value, old)
        else:
            old = np.take_along_axis(self.data, index, axis=1)
            np.put_along_axis(self.data, index, value if gate is None else np.where(gate, value, old), axis=1)


class SharedMemory:
    """Memory of a workgroup, with a record of who touched an element since the last barrier."""

    NOBODY, SEVERAL = -1, -2

    def __init__(self, kernel: str, dtype: DType, arg: BufferArg, groups: int):
        self.kernel, self.size = kernel, arg.size
        self.name = f"shared buffer {arg.id}"
        self.data = np.zeros(groups * arg.size, dtype.numpy)
        self.writer = np.full(groups * arg.size, self.NOBODY)
        self.reader = np.full(groups * arg.size, self.NOBODY)
        self.epoch = -1

    def _flat(self, index: Array, gate: Array | None, run: Where, columns: int) -> tuple[Array, Array, Array]:
        """Flat element numbers, the threads that ask for them, and which of them are gated on; all (N, columns)."""
        shape = (run.invocations, columns)
        index = np.broadcast_to(index, shape)
        chosen = np.ones(shape, bool) if gate is None else np.broadcast_to(gate, shape)
        _check(self.kernel, self.name, index[chosen], self.size)
        group = (np.arange(run.invocations) // run.threads)[:, None]
        thread = np.broadcast_to(run.thread[:, None], shape)
        if self.epoch != run.epoch:
            self.writer[:], self.reader[:], self.epoch = self.NOBODY, self.NOBODY, run.epoch
        return np.where(chosen, index, 0) + group * self.size, thread, chosen

    def load(self, index: Array, gate: Array | None, run: Where) -> Array:
        flat, thread, chosen = self._flat(index, gate, run, index.shape[1])
        where, who = flat[chosen], thread[chosen]
        writer = self.writer[where]
        if ((writer != self.NOBODY) & (writer != who)).any():
            raise IndexError(
                f"kernel {self.kernel}: {self.name} is read without a barrier after another thread's store"
            )
        self._mark(self.reader, where, who)
        return np.where(chosen, self.data[flat], np.zeros((), self.data.dtype))

    def store(self, index: Array, value: Array, gate: Array | None, run: Where, how: Any) -> None:
        flat, thread, chosen = self._flat(index, gate, run, value.shape[1])
        where, who = flat[chosen], thread[chosen]
        for record in (self.writer, self.reader):
            if ((record[where] != self.NOBODY) & (record[where] != who)).any():
                raise IndexError(
                    f"kernel {self.kernel}: {self.name} is written without a barrier after another thread's access"
                )
        self._mark(self.writer, where, who)
        if (self.writer[where] == self.SEVERAL).any():
            raise IndexError(f"kernel {self.kernel}: several threads store in one element of {self.name}")
        self.data[where] = np.broadcast_to(value, flat.shape)[chosen]

    def _mark(self, record: Array, where: Array, who: Array) -> None:
        before = record[where]
        record[where] = who
        mixed = (record[where] != who) | ((before != self.NOBODY) & (before != who))
        record[where[mixed]] = self.SEVERAL
