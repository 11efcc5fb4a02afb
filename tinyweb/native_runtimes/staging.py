"""Copies between the host and a GPU, through pinned memory that its driver reads and writes by itself."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tinyweb.native_runtimes.runs import Runs

PIECE = 8 << 20  # bytes of each of two pieces: one is filled or read while the other travels
ALIGNMENT = 256  # of what is in a piece


@dataclass(eq=False)
class _Piece:
    """Pinned memory, of which `used` bytes are in use until run number `run` has ended."""

    address: int
    bytes: npt.NDArray[np.uint8]
    used: int = 0
    run: int = 0


@dataclass(frozen=True)
class Copies:
    """A driver's calls: `pin(nbytes)` gives the address of pinned memory; `to_device` and `to_host` ask for a copy of
    so many bytes on the stream, (to, from, nbytes)."""

    pin: Callable[[int], int]
    to_device: Callable[[int, int, int], object]
    to_host: Callable[[int, int, int], object]


class Staging:
    """Copies on the stream of `runs`, in its order. Small ones share a piece, and wait for nothing."""

    def __init__(self, runs: Runs, copies: Copies) -> None:
        self._runs, self._copies = runs, copies
        self._pieces: list[_Piece] = []  # the first is the one in use

    @property
    def pinned(self) -> list[int]:
        """The addresses of pinned memory, for whoever gives it back."""
        return [piece.address for piece in self._pieces]

    def copy_in(self, address: int, data: memoryview) -> None:
        """Host bytes to an address; `data` may change afterwards."""
        source = np.frombuffer(data, np.uint8)
        for start in range(0, len(source), PIECE):
            part = source[start : start + PIECE]
            piece, place = self._room(len(part))
            piece.bytes[place : place + len(part)] = part
            self._copies.to_device(address + start, piece.address + place, len(part))
            piece.run = self._runs.mark()

    def copy_out(self, address: int, nbytes: int) -> bytes:
        """Bytes at an address, once everything before has happened."""
        out = bytearray(nbytes)
        asked: list[tuple[_Piece, int, int, int]] = []

        def arrived(piece: _Piece, place: int, start: int, count: int) -> None:
            self._runs.reached(piece.run)
            out[start : start + count] = piece.bytes[place : place + count].data

        for start in range(0, nbytes, PIECE):
            count = min(PIECE, nbytes - start)
            piece, place = self._room(count)
            self._copies.to_host(piece.address + place, address + start, count)
            piece.run = self._runs.mark()
            asked.append((piece, place, start, count))
            if len(asked) > 1:
                arrived(*asked.pop(0))
        for one in asked:
            arrived(*one)
        return bytes(out)

    def _room(self, count: int) -> tuple[_Piece, int]:
        """A place for `count` bytes that nothing uses any more."""
        while len(self._pieces) < 2:
            address = self._copies.pin(PIECE)
            self._pieces.append(_Piece(address, np.ctypeslib.as_array((ctypes.c_uint8 * PIECE).from_address(address))))
        if self._pieces[0].used + count > PIECE:
            self._pieces.reverse()
            self._runs.reached(self._pieces[0].run)
            self._pieces[0].used = 0
        piece = self._pieces[0]
        place, piece.used = piece.used, piece.used + -(-count // ALIGNMENT) * ALIGNMENT
        return piece, place
