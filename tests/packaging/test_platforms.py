"""What can be said of Windows and macOS from here: sources compile for them, and what they lack is not asked for."""

import importlib.util
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.native_runtimes.programs import elementwise
from tinyweb import cli, toolchain
from tinyweb.dtype import dtypes
from tinyweb.native_runtimes.cpu import CpuRuntime, pool
from tinyweb.render_c import render

SPEC = importlib.util.find_spec("ziglang")
MAGIC = {"x86_64-windows-gnu": b"\x64\x86", "x86_64-macos": b"\xcf\xfa\xed\xfe", "aarch64-macos": b"\xcf\xfa\xed\xfe"}


@pytest.mark.skipif(SPEC is None, reason="only the ziglang package compiles for other systems")
@pytest.mark.parametrize("target", MAGIC)
def test_sources_compile_for_other_systems(target: str, tmp_path: Path) -> None:
    """The thread pool, and a kernel: objects of the system's format that hold the functions that are called."""
    program = elementwise("doubled", [dtypes.float32], dtypes.float32, lambda x: x + x, 64, 4)
    for name, source, functions in (
        ("pool", pool.SOURCE, ("pool_create", "pool_run", "pool_destroy")),
        ("kernel", render([program]), ("doubled", "doubled_grid")),
    ):
        flags = [*toolchain.COMMON_FLAGS, "-fPIC", f"--target={target}", "-Werror"]
        command = [*toolchain._ziglang().clang, *flags, "-x", "c", "-c", "-", "-o", f"{name}.o"]
        done = subprocess.run(command, cwd=tmp_path, input=source, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        made = (tmp_path / f"{name}.o").read_bytes()
        assert made.startswith(MAGIC[target])
        assert all(function.encode() in made for function in functions)


def test_processor_is_opened_where_there_is_no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "register_at_fork", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert CpuRuntime(threads=1).threads == 1
    monkeypatch.delenv("TINYWEB_THREADS", raising=False)
    assert CpuRuntime().threads == os.cpu_count()


def test_stop_is_sent_again_where_there_are_no_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "setitimer", raising=False)
    monkeypatch.delattr(signal, "SIGALRM", raising=False)
    sent: list[int] = []
    arrived = threading.Event()

    def receive(number: int) -> None:
        sent.append(number)
        arrived.set()

    monkeypatch.setattr(signal, "raise_signal", receive)
    cli._send_again(signal.SIGTERM)
    assert arrived.wait(30)
    assert sent == [signal.SIGTERM]


def test_result_that_another_process_has_loaded_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows replaces no file that is in use."""
    monkeypatch.setenv("TINYWEB_CACHE", str(tmp_path))

    def replace(self: Path, target: Path) -> Path:
        Path(target).write_bytes(b"theirs")
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", replace)
    made = toolchain.cached(["key"], ".so", lambda folder, output: output.write_bytes(b"ours") and None)
    assert made.read_bytes() == b"theirs"
