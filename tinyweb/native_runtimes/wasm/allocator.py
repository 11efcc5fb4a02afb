"""Addresses of a linear memory: first fit, neighbours joined when freed."""

from __future__ import annotations

from bisect import insort

ALIGNMENT = 64


class Allocator:
    """Hands out ranges of `begin` … `end`; whoever uses it makes the memory grow and tells so with `extend`."""

    def __init__(self, begin: int, end: int) -> None:
        begin = _round_up(begin)
        self.end = end
        self._free: list[tuple[int, int]] = (
            [(begin, end - begin)] if end > begin else []
        )  # (address, bytes), by address

    def take(self, nbytes: int) -> int | None:
        """The address of `nbytes` bytes (at least one), or None if no free range is large enough."""
        size = _round_up(max(nbytes, 1))
        for i, (address, free) in enumerate(self._free):
            if free >= size:
                self._free[i : i + 1] = [(address + size, free - size)] if free > size else []
                return address
        return None

    def give_back(self, address: int, nbytes: int) -> None:
        """Free what `take(nbytes)` gave out at `address`."""
        self._insert(address, _round_up(max(nbytes, 1)))

    def extend(self, end: int) -> None:
        """The memory now ends at `end`."""
        if end > self.end:
            self._insert(self.end, end - self.end)
            self.end = end

    def missing(self, nbytes: int) -> int:
        """By how many bytes the memory must grow for `take(nbytes)` to succeed."""
        size = _round_up(max(nbytes, 1))
        last = self._free[-1] if self._free else (self.end, 0)
        return size - (last[1] if sum(last) == self.end else 0)

    def free_bytes(self) -> int:
        """All free ranges together."""
        return sum(nbytes for _, nbytes in self._free)

    def _insert(self, address: int, nbytes: int) -> None:
        insort(self._free, (address, nbytes))
        joined: list[tuple[int, int]] = []
        for a, n in self._free:
            if joined and sum(joined[-1]) == a:
                joined[-1] = (joined[-1][0], joined[-1][1] + n)
            else:
                joined.append((a, n))
        self._free = joined


def _round_up(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT
