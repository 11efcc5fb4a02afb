"""`diagnose` tells what works here by running it, and why something does not."""

import pytest

from tinyweb import doctor
from tinyweb.errors import DeviceError
from tinyweb.native_runtimes import open as open_module


def by_name() -> dict[str, doctor.Finding]:
    return {f["name"]: f for f in doctor.diagnose()}


def test_every_device_works_where_the_tests_run() -> None:
    found = by_name()
    assert list(found) == ["toolchain", "CPU", "WASM", "WEBGPU", "INTERPRETER", "browser"]
    for name in ("toolchain", "CPU", "WASM", "WEBGPU", "INTERPRETER"):
        assert found[name]["works"], found[name]
        assert found[name]["reason"] == "" and found[name]["detail"]
    assert "through wgpu" in found["WEBGPU"]["detail"] and "first kernel" in found["CPU"]["detail"]


def test_what_does_not_work_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert not found["WASM"]["works"] and found["WASM"]["reason"] == "the WASM runtime was taken away"
    assert not found["INTERPRETER"]["works"] and found["INTERPRETER"]["reason"] == "OSError: disk on fire"


def test_wrong_numbers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_double_plus_index", lambda count: _other(count))
    assert "wrong numbers on CPU" in by_name()["CPU"]["reason"]


def _other(count: int):
    from tests.native_runtimes.programs import elementwise
    from tinyweb.dtype import dtypes

    return elementwise("not_the_doctors", [dtypes.float32], dtypes.float32, lambda x: x + x, count, 1)
