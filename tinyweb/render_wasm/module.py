"""A module whose kernels a host calls one by one, with pointers, as the native runtime does."""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.errors import DeviceError
from tinyweb.graph.program import Program
from tinyweb.render_c import render
from tinyweb.toolchain import compile_wasm

DATA_SECTION = 11


def compile_module(programs: Sequence[Program], static_base: int | None = None, stack_bytes: int = 65536) -> bytes:
    """A module that exports for each program `NAME(buffers, variables, begin, end)`; it imports `env.memory`.

    `static_base`: address of static data, the initial stack behind it; None: the stack at 0 and static data behind it.
    `stack_bytes` must hold the programs' arrays (`render_common.local_bytes`).
    """
    names = list(dict.fromkeys(p.name for p in programs))
    return compile_wasm(
        render(programs),
        threads=False,
        exports=names,
        memory_pages=None,
        global_base=static_base,
        stack_bytes=stack_bytes,
    )


def static_data_bytes(module: bytes) -> int:
    """Bytes of the data section of a module: 0 if it keeps no static data, as is usual for kernels."""
    position = 8  # magic number and version
    while position < len(module):
        section = module[position]
        size, position = _read_leb128(module, position + 1)
        if section == DATA_SECTION:
            return size
        position += size
    return 0


def _read_leb128(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data):
            raise DeviceError("a WebAssembly module ends in the middle of a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, position
