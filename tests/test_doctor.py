"""`diagnose` tells what works here by running it, and why something does not."""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from tinyweb import doctor, requirements
from tinyweb.errors import DeviceError
from tinyweb.native_runtimes import open as open_module


def by_name() -> dict[str, doctor.Finding]:
    return {f["name"]: f for f in doctor.diagnose()}


def test_every_device_works_where_the_tests_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYWEB_DEVICE", "CPU,CPU:1")
    found = by_name()
    chosen = found.pop("TINYWEB_DEVICE")
    assert chosen["works"] and chosen["detail"].startswith("CPU,CPU:1: ")
    named = ("packages", "toolchain", "CPU", "WASM", "WEBGPU", "INTERPRETER", "browser")
    others = [k for k in found if k not in named]  # those of drivers, and of other tests
    assert list(found) == [*named[:5], *others, *named[5:]] and {"OPENCL", "CUDA", "HIP"} <= set(others)
    for name in ("packages", "toolchain", "CPU", "WASM", "WEBGPU", "INTERPRETER"):
        assert found[name]["works"], found[name]
        assert found[name]["reason"] == "" and found[name]["detail"]
    assert "through wgpu" in found["WEBGPU"]["detail"] and "first kernel" in found["CPU"]["detail"]


def test_what_does_not_work_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYWEB_DEVICE", "CPU,TPU:1")
    monkeypatch.setenv("TINYWEB_WEBGPU", "nothing")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("TINYWEB_CLANG", "no-such-clang")
    real = open_module.open_runtime

    def broken(name: str) -> object:
        if name == "WASM":
            raise DeviceError("the WASM runtime was taken away")
        if name == "INTERPRETER":
            raise OSError("disk on fire")
        return real(name)

    monkeypatch.setattr(doctor, "open_runtime", broken)
    found = by_name()
    assert not found["WEBGPU"]["works"] and "TINYWEB_WEBGPU is 'nothing'" in found["WEBGPU"]["reason"]
    assert not found["TINYWEB_DEVICE"]["works"] and "unknown device 'TPU:1'" in found["TINYWEB_DEVICE"]["reason"]
    assert not found["WASM"]["works"] and found["WASM"]["reason"] == "the WASM runtime was taken away"
    assert not found["INTERPRETER"]["works"] and found["INTERPRETER"]["reason"] == "OSError: disk on fire"


def test_old_and_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"numpy": "1.26.4", "rich": "13.10.0", "wgpu": "0.29", "wasmtime": "40.0.0rc1", "typer": "0.28"}
    asked = [
        "numpy>=2.0",
        "rich>=13.8",
        "wgpu>=0.29.0",
        "wasmtime>=40",
        "typer>=0.28.1",
        "jinja2",
        'pillow>=10; extra == "x"',
    ]

    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(requirements, "requires", lambda name: asked)
    monkeypatch.setattr(requirements, "version", version)
    assert requirements.unmet() == ["numpy>=2.0", "typer>=0.28.1", "jinja2"]
    found = doctor.diagnose()[0]
    assert not found["works"]
    assert 'run `pip install "numpy>=2.0" "typer>=0.28.1" "jinja2"`' in found["reason"]


def test_command_line_names_a_package_that_is_too_old(tmp_path: Path) -> None:
    """A typer without what is imported of it, as versions before 0.28."""
    (tmp_path / "typer").mkdir()
    (tmp_path / "typer" / "__init__.py").write_text("")
    for name, needs in (("tinyweb-0.1.0", "Requires-Dist: typer>=0.28\n"), ("typer-0.25.1", "")):
        info = tmp_path / f"{name}.dist-info"
        info.mkdir()
        package, number = name.split("-")
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {package}\nVersion: {number}\n{needs}")
    env = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(doctor.__file__).parents[1]}"}
    done = subprocess.run(
        [sys.executable, "-m", "tinyweb.cli", "doctor"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stderr == 'tinyweb: packages are missing or too old: run `pip install "typer>=0.28"`.\n'


def test_wrong_numbers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_double_plus_index", lambda count: _other(count))
    assert "wrong numbers on CPU" in by_name()["CPU"]["reason"]


def _other(count: int):
    from tests.native_runtimes.programs import elementwise
    from tinyweb.dtype import dtypes

    return elementwise("not_the_doctors", [dtypes.float32], dtypes.float32, lambda x: x + x, count, 1)
