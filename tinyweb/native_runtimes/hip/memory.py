"""Memory of a HIP device: blocks that are given back are kept for whoever asks for as many bytes next."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_size_t

from tinyweb.native_runtimes.hip.library import OUT_OF_MEMORY, Hip, HipError

GRANULE = 512  # bytes that sizes are rounded up to
KEPT = 1 / 4  # of the device's memory that may be kept for later


class HipBuffer:
    """Device memory. `address` and `nbytes` are 0 once it has been freed; `held` is what the driver gave; `life` the
    device's when it was taken: what was taken before a reset is lost.
    """

    __slots__ = ("__weakref__", "address", "held", "life", "nbytes")

    def __init__(self, address: int, nbytes: int, held: int, life: int) -> None:
        self.address, self.nbytes, self.held, self.life = address, nbytes, held, life


class Memory:
    """`before_free` is called before memory goes back to the driver, which waits for the device without a limit."""

    def __init__(self, hip: Hip, before_free: Callable[[], None]) -> None:
        self._hip, self._before_free = hip, before_free
        self._spare: dict[int, list[int]] = {}  # addresses by size
        self.spare_bytes = 0
        self.most_spare = int(self._info()[1] * KEPT)

    def take(self, nbytes: int) -> tuple[int, int]:
        """The address of a block, and its bytes. MemoryError where there is none."""
        size = max(-(-nbytes // GRANULE), 1) * GRANULE
        blocks = self._spare.get(size)
        if blocks:
            self.spare_bytes -= size
            return blocks.pop(), size
        if self.spare_bytes > self.most_spare:
            self.give_up()
        try:
            return self._new(size), size
        except HipError as error:
            if error.number != OUT_OF_MEMORY:
                raise
        self.give_up()
        try:
            return self._new(size), size
        except HipError as error:
            if error.number != OUT_OF_MEMORY:
                raise
            free, total = self._info()
            raise MemoryError(
                f"HIP has no memory for a buffer of {nbytes} bytes: {free} of {total} bytes are free; use smaller "
                "tensors or a narrower type (as --quant q4 of a model's weights), or another device"
            ) from None

    def put(self, address: int, size: int) -> None:
        """Give a block back; work in flight may still use it, as what uses it next comes after that."""
        self._spare.setdefault(size, []).append(address)
        self.spare_bytes += size

    def give_up(self) -> None:
        """Return to the driver all that is kept."""
        if self.spare_bytes:
            self._before_free()
        while self._spare:
            size, blocks = self._spare.popitem()
            for address in blocks:
                self._hip.call("hipFree", address)
                self.spare_bytes -= size

    def free_bytes(self) -> int:
        """Bytes that can still be had."""
        return self._info()[0] + self.spare_bytes

    def _new(self, size: int) -> int:
        return self._hip.made("hipMalloc", size).value or 0

    def _info(self) -> tuple[int, int]:
        free, total = c_size_t(), c_size_t()
        self._hip.call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value
