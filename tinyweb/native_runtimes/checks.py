"""What every runtime must see to before it hands memory to compiled code, which checks nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tinyweb.errors import DeviceError
from tinyweb.graph.program import Program


def check_launch(program: Program, sizes: Sequence[int], identities: Sequence[int]) -> None:
    """`sizes` are the bytes of the buffers of one launch, `identities` tell the buffers apart.

    DeviceError if their number is wrong, if one is too small, or if memory that is written is passed twice.
    """
    if len(sizes) != len(program.params):
        raise DeviceError(f"kernel {program.name} takes {len(program.params)} buffers and was given {len(sizes)}")
    for info in program.params:
        needed = info.dtype.nbytes(info.size)
        if sizes[info.slot] < needed:
            raise DeviceError(
                f"kernel {program.name}: buffer {info.slot} has {sizes[info.slot]} bytes and needs {needed}"
            )
        if info.written and identities.count(identities[info.slot]) > 1:
            raise DeviceError(f"kernel {program.name}: buffer {info.slot} is written and passed a second time")


def check_range(handle_bytes: int, nbytes: int, offset: int) -> None:
    """ValueError unless bytes offset … offset + nbytes - 1 lie within a buffer of `handle_bytes` bytes."""
    if offset < 0 or nbytes < 0 or offset + nbytes > handle_bytes:
        raise ValueError(f"bytes {offset} to {offset + nbytes} do not lie within a buffer of {handle_bytes} bytes")


def variable_values(names: Iterable[str], variables: Mapping[str, int]) -> list[int]:
    """The values of the named variables in order; DeviceError naming one that has none."""
    try:
        return [int(variables[n]) for n in names]
    except KeyError as error:
        raise DeviceError(f"the variable {error.args[0]} has no value: bind it before running") from None


def barriers(accesses: Sequence[tuple[set[int], set[int], bool]]) -> list[bool]:
    """For each launch (memory read, memory written, surely run by the first thread alone) whether all threads must meet
    before it: it touches what an earlier launch since the last barrier wrote, or writes what one read.
    """
    out: list[bool] = []
    read: set[int] = set()  # since the last barrier, by launches of many threads
    written: set[int] = set()
    serial_read: set[int] = set()  # and by launches of the first thread alone, which keep their order anyway
    serial_written: set[int] = set()
    for reads, writes, serial in accesses:
        clash = bool(writes & (read | written) or reads & written)
        if not serial:
            clash = clash or bool(writes & (serial_read | serial_written) or reads & serial_written)
        out.append(clash)
        if clash:
            read, written, serial_read, serial_written = set(), set(), set(), set()
        if serial:
            serial_read, serial_written = serial_read | reads, serial_written | writes
        else:
            read, written = read | reads, written | writes
    return out
