"""The stand-in for AMD's HIP library: built here, with kernels whose text runs on this processor."""

from __future__ import annotations

import ctypes
import struct
import traceback
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.native_runtimes.text.library import library as text_library
from tests.native_runtimes.text.library import run
from tinyweb.graph.program import Program
from tinyweb.native_runtimes.checks import evaluate
from tinyweb.native_runtimes.hip import runtime as module
from tinyweb.native_runtimes.hip.resources import metadata
from tinyweb.render_c import HIP
from tinyweb.toolchain import compile_shared

KINDS = ("", "memory", "pinned memory", "stream", "event", "module", "function", "graph", "executable graph")
OWNED = (1, 2, 3, 4, 5, 7, 8)  # what somebody has to give back; a function goes with its module
MEGABYTE = 1 << 20
_FIND = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, POINTER(c_int), POINTER(c_int))
_RUN = ctypes.CFUNCTYPE(c_int, c_char_p, POINTER(c_uint), POINTER(c_uint), POINTER(c_uint64), c_int)


@cache
def library() -> str:
    """The path of the library."""
    return str(compile_shared(Path(__file__).with_name("standin.c").read_text()))


class StandIn:
    """Some devices of one chip with `megabytes` of memory each, which TINYWEB_HIP_LIBRARY names from now on."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        chip: str = "gfx1100",
        devices: int = 1,
        megabytes: int = 64,
        path: str | None = None,
    ) -> None:
        path = path or library()
        monkeypatch.setenv("TINYWEB_HIP_LIBRARY", path)
        self.c = ctypes.CDLL(path)
        self.c.standin_complaint.restype, self.c.standin_bytes.restype = c_char_p, c_size_t
        self.c.standin_bytes.argtypes = [c_void_p]
        self.c.standin_reset.argtypes = [c_char_p, c_int, c_size_t]
        self.c.standin_reset(chip.encode(), devices, megabytes * MEGABYTE)
        self.programs: dict[str, tuple[Program, str]] = {}
        self.wave = 32 if chip.startswith("gfx1") else 64
        self.ran: list[str] = []
        self.errors: list[str] = []
        self._callbacks = _FIND(self._find), _RUN(self._run)
        self.c.standin_kernels(*self._callbacks)
        real: Callable[..., str] = vars(module)["render_gpu"]

        def render(programs: Any, dialect: Any) -> str:
            source = real(programs, dialect)
            self.programs.update((p.name, (p, source)) for p in programs)
            return source

        monkeypatch.setattr(module, "render_gpu", render)

    # -- faults -------------------------------------------------------------------------------------------------------
    def fail(self, function: str, number: int, after: int = 0) -> None:
        """The function, or "kernel", fails once, after it has worked `after` times."""
        self.c.standin_fail(function.encode(), number, after)

    def hang(self, on: bool = True) -> None:
        """From now on no kernel ends."""
        self.c.standin_hang(int(on))

    # -- what was found ---------------------------------------------------------------------------------------------
    def check(self) -> None:
        """AssertionError where a call was not as it should be, or a kernel could not run."""
        assert not self.errors, self.errors[0]
        assert self.complaint == ""

    @property
    def complaint(self) -> str:
        return self.c.standin_complaint().decode()

    @property
    def alive(self) -> dict[str, int]:
        """What has not been given back, by kind."""
        found = {KINDS[kind]: self.c.standin_alive(kind) for kind in OWNED}
        return {name: count for name, count in found.items() if count}

    @property
    def launches(self) -> int:
        """Kernels that were launched one by one, or recorded."""
        return self.c.standin_count(0)

    @property
    def graph_launches(self) -> int:
        return self.c.standin_count(1)

    @property
    def resets(self) -> int:
        return self.c.standin_count(2)

    # -- kernels ------------------------------------------------------------------------------------------------------
    def _find(self, image: int, name: bytes, count: Any, threads: Any) -> int:
        try:
            head = ctypes.string_at(image, 64)
            (sections,), (size, number) = struct.unpack_from("<Q", head, 40), struct.unpack_from("<HH", head, 58)
            kernels = metadata(ctypes.string_at(image, sections + size * number))["amdhsa.kernels"]
            found = next((k for k in kernels if k[".name"] == name.decode()), None)
            if found is None:
                return 1
            assert all(a[".size"] == 8 and a[".address_space"] == "global" for a in found[".args"]), found
            count[0], threads[0] = len(found[".args"]), found[".max_flat_workgroup_size"]
            return 0
        except Exception:
            self.errors.append(traceback.format_exc())
            return 1

    def _run(self, name: bytes, grid: Any, block: Any, arguments: Any, count: int) -> int:
        try:
            self._run_program(*self.programs[name.decode()], tuple(grid[:3]), tuple(block[:3]), arguments[:count])
            return 0
        except Exception:
            self.errors.append(traceback.format_exc())
            return 1

    def _run_program(
        self, program: Program, source: str, grid: tuple[int, ...], block: tuple[int, ...], arguments: list[int]
    ) -> None:
        values = arguments[len(program.params) :]
        assert len(values) == bool(program.variables), f"{program.name}: {len(arguments)} arguments"
        names = [v.arg[0] for v in program.variables]
        numbers = np.frombuffer(ctypes.string_at(values[0], 4 * len(names)), np.int32).tolist() if names else []
        variables = dict(zip(names, numbers))
        assert grid == tuple(evaluate(size, variables) for size in program.grid), program.name
        assert block == program.workgroup, program.name
        self.ran.append(program.name)
        for address, param in zip(arguments, program.params):
            size = param.dtype.nbytes(param.size)
            assert self.c.standin_bytes(address) >= size, f"{program.name}: an argument has less than {size} bytes"
        built = text_library(source, ((program.name, len(arguments)),), HIP.name, self.wave)
        run(built, program.name, grid, block, arguments)
