"""What every runtime must see to before it hands memory to compiled code, which checks nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Ops, Size
from tinyweb.graph.program import Program


def check_launch(program: Program, sizes: Sequence[int], identities: Sequence[int]) -> None:
    """`sizes` are the bytes of the buffers of one launch, `identities` tell the buffers apart.

    DeviceError if their number is wrong, if one is too small, or if memory that is written is passed twice.
    """
    if len(sizes) < len(program.params):
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


def evaluate(size: Size, variables: Mapping[str, int]) -> int:
    """The value of a size; DeviceError if it needs a variable without a value."""
    if isinstance(size, int):
        return size
    if size.op is Ops.CONST:
        return int(size.arg)
    if size.op is Ops.VARIABLE:
        return variable_values([size.arg[0]], variables)[0]
    if size.op is Ops.BIND:
        return evaluate(size.src[0], variables)
    if size.op not in _SIZE_OPS:
        raise DeviceError(f"a grid size cannot be made of {size.op.name}")
    return _SIZE_OPS[size.op](*(evaluate(s, variables) for s in size.src))


_SIZE_OPS: dict[Ops, Callable[..., int]] = {
    Ops.ADD: lambda a, b: a + b,
    Ops.MUL: lambda a, b: a * b,
    Ops.FLOORDIV: lambda a, b: a // b,
    Ops.MOD: lambda a, b: a % b,
    Ops.MAX: max,
}
