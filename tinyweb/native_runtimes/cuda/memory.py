"""Memory of one GPU, from the driver's pool, and copies to and from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tinyweb.native_runtimes.cuda.driver import OUT_OF_MEMORY, CudaError, Driver
from tinyweb.native_runtimes.cuda.queue import Queue
from tinyweb.native_runtimes.staging import Copies, Staging

ALIGNMENT = 256
POOLS_SUPPORTED = 115  # a CUdevice_attribute
RELEASE_THRESHOLD, RESERVED, USED = 4, 5, 7  # CUmemPool_attribute


@dataclass(eq=False)
class CudaBuffer:
    """Device memory. `generation`: of the context that it belongs to; `address` is 0 once it has been freed."""

    address: int
    nbytes: int
    generation: int


class Memory:
    """Allocation in the order of a stream, so that freeing waits for nothing, and the stream's copies.

    Where a driver has no pools, memory is allocated and freed at once, which waits.
    """

    def __init__(self, driver: Driver, device: Any, queue: Queue) -> None:
        self._driver, self._queue = driver, queue
        self._pool: Any = None
        stream = queue.stream
        self.staging = Staging(
            queue,
            Copies(
                lambda nbytes: int(driver.cuMemHostAlloc(nbytes, 0)),
                lambda to, source, nbytes: driver.cuMemcpyHtoDAsync(to, source, nbytes, stream),
                lambda to, source, nbytes: driver.cuMemcpyDtoHAsync(to, source, nbytes, stream),
            ),
        )
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
