"""Programs on disk, beside what Clang made: a kernel is optimised and lowered once, whoever asks for it and how often.

An entry's name is a digest of all that a program follows from: the kernel, the target, the schedule that search found,
how strictly graphs are checked, and the sources of the compiler itself. An entry that cannot be read is made again.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tinyweb import dtype
from tinyweb.errors import ToolchainError
from tinyweb.graph.ir import UOp
from tinyweb.graph.ir.printer import ARGS
from tinyweb.graph.ir.spec import spec_level
from tinyweb.graph.optimize import Schedule
from tinyweb.graph.optimize.digest import target_key
from tinyweb.graph.program import Layout, ParamInfo, Program
from tinyweb.graph.target import Target
from tinyweb.toolchain import cache_entry, keep

SUFFIX = ".program"
FOLDER = Path(__file__).parent.parent  # tinyweb/graph
# what a program is made of: nothing else is ever called while an entry is read
PARTS = {("tinyweb.dtype", "_by_name")} | {(t.__module__, t.__name__) for t in (*ARGS, UOp, Layout, ParamInfo, Program)}


def kept(kernel: UOp, target: Target, found: Schedule | None, make: Callable[[], Program]) -> Program:
    """What `make` gives for the kernel, from disk where it was made before; nothing is kept where nothing can be."""
    sources = _sources()
    if sources is None:
        return make()
    key = [sources, target_key(target), str(spec_level()), str(found), text_of(kernel)]
    entry = cache_entry(key, SUFFIX)
    with suppress(Exception):  # there is none, or it is damaged in any way whatever
        made = read(entry.read_bytes())
        with suppress(OSError):  # the folder is another's to write
            os.utime(entry)
        return made
    made = make()
    with suppress(ToolchainError):  # a folder that cannot be written
        keep(entry, zlib.compress(pickle.dumps(made, protocol=5), 1))
    return made


def read(data: bytes) -> Program:
    """The program in an entry. Raises whatever `pickle` and `zlib` do where it is damaged."""
    program = _Reader(io.BytesIO(zlib.decompress(data))).load()
    if not isinstance(program, Program):
        raise pickle.UnpicklingError(f"a {type(program).__name__}, no program")
    return program


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in PARTS:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a program")
        return super().find_class(module, name)


def text_of(kernel: UOp) -> str:
    """The kernel as text that is the same in every process, and another for every other kernel."""
    number: dict[UOp, int] = {}
    lines: list[str] = []
    for u in kernel.toposort():
        number[u] = len(number)
        lines.append(f"{u.op.name} {u.dtype.name} {type(u.arg).__name__} {u.arg!r} {[number[s] for s in u.src]}")
    return "\n".join(lines)


@cache
def _sources() -> str | None:
    """A digest of the compiler's sources; None where they are no files."""
    digest = hashlib.sha256()
    files = sorted(FOLDER.rglob("*.py"))
    try:
        for path in [*files, Path(dtype.__file__)]:
            digest.update(path.read_bytes())
    except OSError:
        return None
    return digest.hexdigest() if files else None
