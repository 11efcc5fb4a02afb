"""What parent and worker send each other: programs as flat tables, pickled, each message with its length before it.

Both ends are this package in processes of one user, the worker started by the parent: pickles are safe here.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from tinyweb.dtype import DType
from tinyweb.graph.ir import Ops, Size, UOp
from tinyweb.graph.ir.uop import toposort
from tinyweb.graph.program import ParamInfo, Program


@dataclass(frozen=True)
class Memory:
    """What one argument of a kernel is filled with: `size` elements of `dtype`.

    Integers that pick elements of other memory are below `bound` (0: they pick nothing). The kernel writes what is
    `stored`.
    """

    dtype: DType
    size: int
    bound: int
    stored: bool


@dataclass(frozen=True)
class FlatProgram:
    """A Program whose graph is a table: nodes name their sources by position, and no graph is too deep to pickle."""

    name: str
    nodes: tuple[tuple[Ops, DType, tuple[int, ...], Any], ...]
    uops: tuple[int, ...]
    params: tuple[ParamInfo, ...]
    variables: tuple[int, ...]
    grid: tuple[int | tuple[int], ...]  # a number, or the position of an expression
    workgroup: tuple[int, int, int]
    shared_bytes: int


@dataclass(frozen=True)
class Job:
    """What a worker is asked to time.

    The first program is the reference. `bindings`: values of the variables, every one of which a turn runs. A program
    stops taking turns once it is `hopeless` times as slow as the reference. All turns end after `seconds`.
    """

    programs: tuple[FlatProgram, ...]
    memory: tuple[Memory, ...]
    bindings: tuple[dict[str, int], ...]
    turns: int
    seconds: float
    hopeless: float = 1.5


def flatten(program: Program) -> FlatProgram:
    sizes = [s for s in program.grid if isinstance(s, UOp)]
    order = toposort([*program.uops, *program.variables, *sizes])
    number = {u: i for i, u in enumerate(order)}
    return FlatProgram(
        program.name,
        tuple((u.op, u.dtype, tuple(number[s] for s in u.src), u.arg) for u in order),
        tuple(number[u] for u in program.uops),
        program.params,
        tuple(number[v] for v in program.variables),
        tuple((number[s],) if isinstance(s, UOp) else s for s in program.grid),
        program.workgroup,
        program.shared_bytes,
    )


def build(flat: FlatProgram) -> Program:
    nodes: list[UOp] = []
    for op, dtype, src, arg in flat.nodes:
        nodes.append(UOp(op, dtype, tuple(nodes[s] for s in src), arg))
    x, y, z = (_size(nodes, s) for s in flat.grid)
    return Program(
        flat.name,
        tuple(nodes[u] for u in flat.uops),
        flat.params,
        tuple(nodes[v] for v in flat.variables),
        (x, y, z),
        flat.workgroup,
        flat.shared_bytes,
    )


def _size(nodes: Sequence[UOp], size: int | tuple[int]) -> Size:
    return size if isinstance(size, int) else nodes[size[0]]


def send(stream: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next message; EOFError where the other end has gone."""
    head = stream.read(8)
    data = stream.read(int.from_bytes(head, "little")) if len(head) == 8 else b""
    if len(head) < 8 or len(data) < int.from_bytes(head, "little"):
        raise EOFError
    return pickle.loads(data)
