"""Memory of one GPU, from the driver's pool, and copies to and from it through pinned memory of the host."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.native_runtimes.cuda.driver import OUT_OF_MEMORY, CudaError, Driver
from tinyweb.native_runtimes.cuda.queue import Queue

STAGING_BYTES = 8 << 20  # of each of two pieces of pinned memory: one is filled while the other travels
ALIGNMENT = 256
POOLS_SUPPORTED = 115  # a CUdevice_attribute
RELEASE_THRESHOLD, RESERVED, USED = 4, 5, 7  # CUmemPool_attribute


@dataclass(eq=False)
class CudaBuffer:
    """Device memory. `generation`: of the context that it belongs to; `address` is 0 once it has been freed."""

    address: int
    nbytes: int
    generation: int


@dataclass(eq=False)
class _Staging:
    """Pinned memory; `used` bytes of it are in use until run number `run` has ended."""

    address: int
    bytes: npt.NDArray[np.uint8]
    used: int = 0
    run: int = 0


class Memory:
    """Allocation in the order of a stream, so that freeing waits for nothing, and the stream's copies.

    Where a driver has no pools, memory is allocated and freed at once, which waits.
    """

    def __init__(self, driver: Driver, device: Any, queue: Queue) -> None:
        self._driver, self._queue = driver, queue
        self._pool: Any = None
        self._staging: list[_Staging] = []
        if driver.cuDeviceGetAttribute(driver.module.CUdevice_attribute(POOLS_SUPPORTED), device):
            self._pool = driver.cuDeviceGetDefaultMemPool(device)
            everything = driver.module.cuuint64_t(
                2**64 - 1
            )  # what is free stays with the pool: taking it again is quick
            driver.cuMemPoolSetAttribute(self._pool, self._attribute(RELEASE_THRESHOLD), everything)

    def _attribute(self, number: int) -> Any:
        return self._driver.module.CUmemPool_attribute(number)

    def allocate(self, nbytes: int, zeroed: bool) -> int:
        """The address of new memory; CudaError where there is none."""
        size = max(nbytes, ALIGNMENT)
        try:
            address = self._take(size)
        except CudaError as error:
            if error.code != OUT_OF_MEMORY or self._pool is None:
                raise
            self._queue.wait()  # what was freed is there only when the stream has come to it
            self._driver.cuMemPoolTrimTo(self._pool, 0)
            address = self._take(size)
        if zeroed:
            self._driver.cuMemsetD8Async(address, 0, size, self._queue.stream)
        return address

    def _take(self, size: int) -> int:
        if self._pool is None:
            return int(self._driver.cuMemAlloc(size))
        return int(self._driver.cuMemAllocAsync(size, self._queue.stream))

    def free(self, address: int) -> None:
        """Give memory back, once the work that was asked for so far is done."""
        if self._pool is None:
            self._driver.cuMemFree(address)
        else:
            self._driver.cuMemFreeAsync(address, self._queue.stream)

    def free_bytes(self) -> int:
        """What the driver has left, and what the pool holds."""
        free = int(self._driver.cuMemGetInfo()[0])
        if self._pool is None:
            return free
        reserved, used = (
            int(self._driver.cuMemPoolGetAttribute(self._pool, self._attribute(n))) for n in (RESERVED, USED)
        )
        return free + reserved - used

    def copy_in(self, address: int, data: memoryview) -> None:
        """Host bytes to an address, in the stream's order; `data` may change afterwards."""
        source = np.frombuffer(data, np.uint8)
        for start in range(0, len(source), STAGING_BYTES):
            part = source[start : start + STAGING_BYTES]
            staging, place = self._room(len(part))
            staging.bytes[place : place + len(part)] = part
            self._driver.cuMemcpyHtoDAsync(address + start, staging.address + place, len(part), self._queue.stream)
            staging.run = self._queue.mark()

    def copy_out(self, address: int, nbytes: int) -> bytes:
        """Bytes at an address, once everything before has happened."""
        parts: list[bytes] = []
        asked: list[tuple[_Staging, int, int]] = []

        def arrived() -> None:
            staging, place, count = asked.pop(0)
            self._queue.reached(staging.run)
            parts.append(staging.bytes[place : place + count].tobytes())

        for start in range(0, nbytes, STAGING_BYTES):
            count = min(STAGING_BYTES, nbytes - start)
            staging, place = self._room(count)
            self._driver.cuMemcpyDtoHAsync(staging.address + place, address + start, count, self._queue.stream)
            staging.run = self._queue.mark()
            asked.append((staging, place, count))
            if len(asked) > 1:
                arrived()
        while asked:
            arrived()
        return b"".join(parts)

    def _room(self, count: int) -> tuple[_Staging, int]:
        """A place for `count` bytes in pinned memory that nothing uses any more."""
        if not self._staging:
            self._staging.extend(self._pinned())
        if self._staging[0].used + count > STAGING_BYTES:
            self._staging.reverse()
            self._queue.reached(self._staging[0].run)
            self._staging[0].used = 0
        staging = self._staging[0]
        place, staging.used = staging.used, staging.used + -(-count // ALIGNMENT) * ALIGNMENT
        return staging, place

    def _pinned(self) -> Iterator[_Staging]:
        for _ in range(2):
            address = int(self._driver.cuMemHostAlloc(STAGING_BYTES, 0))
            yield _Staging(address, np.ctypeslib.as_array((ctypes.c_uint8 * STAGING_BYTES).from_address(address)))
