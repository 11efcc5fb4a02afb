"""Programs kept on disk: read back as they were made, made again where anything they follow from has changed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.graph.lower.hand_kernels import BY_NAME
from tests.graph.optimize.test_fragments import F16, product
from tinyweb.graph.gpu_targets import nvidia_target
from tinyweb.graph.ir import Fragments, KernelInfo, Ops, UOp
from tinyweb.graph.lower import program_cache, program_for
from tinyweb.graph.lower.program_cache import SUFFIX, read, text_of
from tinyweb.graph.program import Program
from tinyweb.graph.target import cpu_target, interpreter_target, wasm_target, webgpu_target

TARGETS = [cpu_target(8, 4), wasm_target(), webgpu_target(subgroups=True), interpreter_target()]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TINYWEB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


def refuse(*_: Any) -> Any:
    raise AssertionError("it was to be read")


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_what_is_read_is_what_was_made(target: Any, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    kernels = [BY_NAME[name].kernel for name in sorted(BY_NAME)[::3]]
    made = [program_for(k, target) for k in kernels]
    assert len(entries(folder)) == len(kernels) > 10
    monkeypatch.setattr("tinyweb.graph.lower.optimize_then", refuse)
    found = [program_for(k, target) for k in kernels]
    # nodes are interned: equal programs are made of the very same ones
    assert found == made and all(a is b for p, q in zip(made, found) for a, b in zip(p.uops, q.uops))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_programs_of_matrices_are_read(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, target = product(128, 128, 64, F16).kernel, nvidia_target(arch)
    made = program_for(kernel, target)
    assert any(isinstance(u.arg, Fragments) for u in made.uops)
    monkeypatch.setattr("tinyweb.graph.lower.optimize_then", refuse)
    assert program_for(kernel, target) == made


def test_another_process_reads_it(folder: Path) -> None:
    code = (
        "from tests.graph.lower.hand_kernels import BY_NAME\n"
        "from tinyweb.graph import lower\n"
        "from tinyweb.graph.target import cpu_target\n"
        "{extra}\n"
        "print(lower.program_for(BY_NAME['softmax_6_40'].kernel, cpu_target(8, 4)).name)\n"
    )
    names = []
    for extra in ("", "lower.optimize_then = None"):  # the second cannot make any
        done = subprocess.run(
            [sys.executable, "-c", code.format(extra=extra)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        names.append(done.stdout)
    assert names[0] == names[1] and len(entries(folder)) == 1


def test_whatever_a_program_follows_from_is_in_the_name(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    kernel = BY_NAME["softmax_6_40"].kernel
    kernels = [
        kernel,
        kernel.replace(arg=KernelInfo("named")),
        BY_NAME["convolution"].kernel,
    ]
    targets = [cpu_target(8, 4), cpu_target(16, 4), cpu_target(8, 1), replace(cpu_target(8, 4), max_buffers=30)]
    for n, kernel in enumerate(kernels, 1):
        program_for(kernel, targets[0])
        assert len(entries(folder)) == n
    for n, target in enumerate(targets, len(kernels)):
        program_for(kernel, target)
        assert len(entries(folder)) == n
    count = len(entries(folder))
    for name, value in (("_sources", "other sources"), ("spec_level", 2)):
        with monkeypatch.context() as changed:
            changed.setattr(program_cache, name, lambda *_, value=value: value)
            program_for(kernel, targets[0])
        count += 1
        assert len(entries(folder)) == count, name
    program_for(kernel, targets[0], ())
    assert len(entries(folder)) == count + 1


def test_values_that_compare_equal_are_different_texts() -> None:
    """1, 1.0 and True; the zeros."""
    from tinyweb.dtype import dtypes

    constants = [UOp.const(v, d) for v, d in ((1, dtypes.int32), (1, dtypes.index), (1.0, dtypes.float32))]
    constants += [UOp.const(True, dtypes.bool), UOp.const(0.0, dtypes.float32), UOp.const(-0.0, dtypes.float32)]
    constants += [UOp(Ops.CONST, dtypes.float32, (), float("nan"))]
    assert len({text_of(c) for c in constants}) == len(constants)


def damaged(data: bytes) -> dict[str, bytes]:
    return {
        "empty": b"",
        "cut short": data[: len(data) // 2],
        "no zlib": b"x" * 100,
        "no pickle": zlib.compress(b"x" * 100),
        "another object": zlib.compress(pickle.dumps([1, 2])),
    }


@pytest.mark.parametrize("how", sorted(damaged(b"")))
def test_a_damaged_entry_is_made_again(how: str, folder: Path) -> None:
    kernel, target = BY_NAME["softmax_6_40"].kernel, cpu_target(8, 4)
    made = program_for(kernel, target)
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    entry.write_bytes(damaged(whole)[how])
    assert program_for(kernel, target) == made  # and the entry is gone
    assert program_for(kernel, target) == made
    assert read(entries(folder)[0].read_bytes()) == made


class Hostile:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


def test_an_entry_calls_nothing_but_what_programs_are_made_of(folder: Path, tmp_path: Path) -> None:
    victim = tmp_path / "made by an entry"
    data = zlib.compress(pickle.dumps(Hostile(victim)))
    with pytest.raises(pickle.UnpicklingError, match="no part of a program"):
        read(data)
    kernel, target = BY_NAME["softmax_6_40"].kernel, cpu_target(8, 4)
    made = program_for(kernel, target)
    entries(folder)[0].write_bytes(data)
    assert program_for(kernel, target) == made and not victim.exists()


def test_without_a_folder_to_write_it_is_made_each_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("TINYWEB_CACHE", str(tmp_path / "a file"))
    assert isinstance(program_for(BY_NAME["softmax_6_40"].kernel, cpu_target(8, 4)), Program)


def test_what_cannot_be_lowered_leaves_nothing(folder: Path) -> None:
    narrow = replace(webgpu_target(), max_buffers=1)
    for _ in range(2):
        with pytest.raises(ValueError, match="buffers"):
            program_for(BY_NAME["softmax_6_40"].kernel, narrow)
    assert not entries(folder) and not list(folder.glob("building-*"))
