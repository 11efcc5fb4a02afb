"""What parent and worker send each other, pickled: each message with its length before it.

Both ends are this package in processes of one user, the worker started by the parent: pickles are safe here.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import IO, Any

from tinyweb.dtype import DType
from tinyweb.graph.program import Program


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
class Job:
    """What a worker is asked to time.

    The first program is the reference. `bindings`: values of the variables, every one of which a turn runs. A program
    stops taking turns once it is `hopeless` times as slow as the reference. All turns end after `seconds`.
    """

    programs: tuple[Program, ...]
    memory: tuple[Memory, ...]
    bindings: tuple[dict[str, int], ...]
    turns: int
    seconds: float
    hopeless: float = 1.5


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
