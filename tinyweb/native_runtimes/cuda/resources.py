"""What a compiled kernel takes of a multiprocessor, read from the cubin and from what ptxas says of it.

A cubin is an ELF file. Its section `.nv.info` has attributes of kernels, by their place in the table of symbols: a
byte for the form of the value, one for the attribute, two for the bytes that follow (as `cuobjdump -elf` shows them).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

REGISTERS, STACK = 0x2F, 0x11  # attributes of four bytes for the symbol and four for its value
INSTRUCTION, OPCODE = 16, 0x1FF  # bytes of an instruction, and the bits of its first ones that say what it does
# HMMA, IMMA, QMMA of a warp, HGMMA, IGMMA, QGMMA of a warpgroup, as nvdisasm -hex shows them
MATRICES = (0x03C, 0x037, 0x07A, 0x1F0, 0x1F1, 0x1F3)
SIZED = 4  # the form of attributes that say how many bytes follow; others have two in the place of that

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Resources:
    """Of one kernel: registers of a thread, bytes of its stack in local memory, bytes that its instructions store and
    load of spilled registers, bytes of shared memory that a workgroup declares.
    """

    registers: int
    stack_bytes: int
    spill_bytes: int
    shared_bytes: int


def resources(cubin: bytes, log: str) -> dict[str, Resources]:
    """What each kernel of a cubin takes. `log`: what ptxas printed of it with -v, the only one to tell spilled
    registers from arrays on the stack."""
    said: dict[str, tuple[int, int]] = {}
    for part in re.split(r"(?=Compiling entry function)", log):
        if entry := _ENTRY.search(part):
            spills, shared = _SPILLS.search(part), _SHARED.search(part)
            said[entry[1]] = sum(map(int, spills.groups())) if spills else 0, int(shared[1]) if shared else 0
    read = attributes(cubin)
    return {name: Resources(read[name][REGISTERS], read[name].get(STACK, 0), *said[name]) for name in said}


def matrix_instructions(cubin: bytes) -> int:
    """How many instructions of its machine code multiply matrices."""
    words = [np.frombuffer(s.data, "<u2")[:: INSTRUCTION // 2] for s in _sections(cubin) if s.name.startswith(".text.")]
    return sum(int(np.isin(w & OPCODE, MATRICES).sum()) for w in words)


def attributes(cubin: bytes) -> dict[str, dict[int, int]]:
    """Attributes of each function in `.nv.info` whose value is a number, by name."""
    sections = list(_sections(cubin))
    symbols = next(s for s in sections if s.name == ".symtab")
    names = next(s for s in sections if s.name == ".strtab").data
    out: dict[str, dict[int, int]] = {}
    for data in (s.data for s in sections if s.name == ".nv.info"):
        at = 0
        while at + 4 <= len(data):
            form, attribute, size = struct.unpack_from("<BBH", data, at)
            at += 4
            if form != SIZED:
                continue
            if size == 8:
                symbol, value = struct.unpack_from("<II", data, at)
                (name,) = struct.unpack_from("<I", symbols.data, 24 * symbol)
                out.setdefault(_text(names, name), {})[attribute] = value
            at += size
    return out


@dataclass(frozen=True)
class _Section:
    name: str
    data: bytes


def _sections(elf: bytes) -> Iterator[_Section]:
    """Sections of a 64-bit ELF file (System V ABI, chapter 4)."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + entry * i) for i in range(count)]
    name_data = elf[headers[names][4] :]
    for name, kind, _, _, start, size in headers:
        yield _Section(_text(name_data, name), b"" if kind == 8 else elf[start : start + size])  # 8: without bytes


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
