"""What works on this machine: every device is tried by running a small kernel on it."""

from __future__ import annotations

import functools
import importlib
import os
import platform
import struct
import time
from collections.abc import Callable
from typing import TypedDict

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.errors import TinywebError
from tinyweb.graph.ir import Ops, ParamArg, UOp, toposort
from tinyweb.graph.program import ParamInfo, Program
from tinyweb.native_runtimes.open import RUNTIMES, open_runtime
from tinyweb.native_runtimes.protocol import Launch, Runtime
from tinyweb.requirements import advice, unmet


class Finding(TypedDict):
    """One thing that was tried. `detail`: what was found; `reason`: why it does not work, "" where it does."""

    name: str
    works: bool
    detail: str
    reason: str


def diagnose() -> list[Finding]:
    """Look at the packages that are needed, try the toolchain and the first device of every kind, in the order CPU,
    WASM, WEBGPU, those with drivers of their own, INTERPRETER, look for a browser, and try what TINYWEB_DEVICE names.

    Takes a second or two; raises nothing.
    """
    drivers = (k for k in RUNTIMES if k not in ("CPU", "DISK", "WASM", "WEBGPU", "INTERPRETER"))
    checks: tuple[tuple[str, Callable[[], str]], ...] = (
        ("packages", _packages),
        ("toolchain", _toolchain),
        ("CPU", _cpu),
        ("WASM", _wasm),
        ("WEBGPU", _webgpu),
        *((kind, functools.partial(_driver, kind)) for kind in drivers),
        ("INTERPRETER", _interpreter),
        ("browser", _browser),
    )
    if chosen := os.environ.get("TINYWEB_DEVICE"):
        checks += (("TINYWEB_DEVICE", functools.partial(_chosen, chosen)),)
    return [_try(name, check) for name, check in checks]


def _try(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name=name, works=True, detail=check(), reason="")
    except TinywebError as error:
        return Finding(name=name, works=False, detail="", reason=str(error))
    except Exception as error:  # a driver or a library may fail in its own ways, and the others are still to be tried
        return Finding(name=name, works=False, detail="", reason=f"{type(error).__name__}: {error}")


def _packages() -> str:
    if missing := unmet():
        raise TinywebError(advice(missing))
    return f"Python {platform.python_version()}, NumPy {np.__version__}; all that tinyweb asks for is installed"


def _toolchain() -> str:
    from tinyweb.toolchain import cache_folder, find_clang

    return f"{find_clang().name}, compiled code is kept in {cache_folder()}"


def _cpu() -> str:
    from tinyweb.native_runtimes.cpu import CpuRuntime

    runtime = CpuRuntime()
    took = _run_a_kernel(runtime)
    return f"{_count(runtime.threads, 'thread')}, vectors of {runtime.target.vector_lanes} floats, first kernel {took}"


def _wasm() -> str:
    import importlib.metadata

    took = _run_a_kernel(open_runtime("WASM"))
    return f"wasmtime {importlib.metadata.version('wasmtime')}, SIMD, one thread, first kernel {took}"


def _webgpu() -> str:
    from tinyweb.native_runtimes.webgpu import WebGpuRuntime

    runtime = WebGpuRuntime()
    took = _run_a_kernel(runtime)
    adapter = runtime.adapter
    features = [f for f in ("shader-f16", "subgroups") if f in adapter.features]
    offers = f"offers {', '.join(features)}" if features else "no shader-f16, no subgroups"
    megabytes = min(adapter.max_buffer_bytes, adapter.max_binding_bytes) >> 20
    return (
        f"{adapter.name} through {runtime.backend_name}, {offers}, buffers up to {megabytes} MiB, first kernel {took}"
    )


def _driver(kind: str) -> str:
    """A kind of device whose driver lists what is there: the module of its runtime may tell, by `devices()`."""
    took = _run_a_kernel(open_runtime(kind))
    listed: list[str] = getattr(importlib.import_module(RUNTIMES[kind][0]), "devices", list)()
    names = [name if i == 0 else f"{kind}:{i} {name}" for i, name in enumerate(listed)]
    return f"{'; '.join([*names[:1], f'first kernel {took}', *names[1:]])}"


def _chosen(names: str) -> str:
    """The devices that everything runs on unless it says otherwise."""
    for name in names.split(","):
        _run_a_kernel(open_runtime(name.strip()))
    return f"{names}: what runs where nothing else is asked for"


def _interpreter() -> str:
    return f"NumPy, first kernel {_run_a_kernel(open_runtime('INTERPRETER'))}"


def _browser() -> str:
    """Only exported pages and their tests need one: looked for, not run."""
    import shutil
    from pathlib import Path

    names = (
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
        "chrome",
        "microsoft-edge",
        "firefox",
    )
    places = [shutil.which(name) for name in names]
    places += [
        str(p)
        for p in Path("/Applications").glob("*.app")
        if p.stem in ("Google Chrome", "Chromium", "Safari", "Firefox")
    ]
    found = [p for p in places if p]
    if not found:
        raise TinywebError("no browser was found on this machine: exported pages can still be opened on another one")
    return found[0]


def _run_a_kernel(runtime: Runtime) -> str:
    """Compile and run out[i] = 2 · a[i] + i; how long that took. TinywebError if the result is wrong."""
    count = 8
    program = _double_plus_index(count)
    begin = time.perf_counter()
    (executable,) = runtime.compile([program])
    out, a = runtime.allocate(4 * count), runtime.allocate(4 * count)
    runtime.copy_in(a, memoryview(struct.pack(f"<{count}f", *(i * 0.25 for i in range(count)))))
    runtime.run([Launch(executable, (out, a))], {})
    got = struct.unpack(f"<{count}f", runtime.copy_out(out, 4 * count))
    took = time.perf_counter() - begin
    runtime.free(out)
    runtime.free(a)
    if got != tuple(i * 1.5 for i in range(count)):
        raise TinywebError(f"a kernel computes wrong numbers on {runtime.name}: {got}")
    return f"{took * 1000:.0f} ms"


def _double_plus_index(count: int) -> Program:
    size = UOp.const(count, dtypes.index)
    out, a = (UOp(Ops.PARAM, dtypes.float32, (), ParamArg(slot, count)) for slot in (0, 1))
    i = UOp(Ops.SPECIAL, dtypes.index, (size,), ("grid", 0))
    value = UOp(Ops.LOAD, dtypes.float32, (a, i), 1) * 2.0 + i.cast(dtypes.float32)
    params = (ParamInfo(0, dtypes.float32, count, False, True), ParamInfo(1, dtypes.float32, count, True, False))
    return Program("doctor", tuple(toposort([out.store(i, value)])), params, (), (count, 1, 1), (1, 1, 1), 0)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
