"""Devices by name: kinds, several of a kind, and what is no device."""

import subprocess
import sys

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.device import Device
from tinyweb.errors import DeviceError
from tinyweb.native_runtimes.open import device_name, open_runtime, parse_device


def test_names() -> None:
    assert parse_device("cpu") == parse_device("CPU:0") == ("CPU", 0)
    assert parse_device("Interpreter:12") == ("INTERPRETER", 12)
    assert device_name("cpu:0") == "CPU" and device_name("wasm:03") == "WASM:3"
    assert Device.canonical("cpu:1") == "CPU:1" and Device["cpu:0"] is Device["CPU"]


@pytest.mark.parametrize("name", ["CPU:", "CPU:-1", "CPU:1:2", "CPU:x", "CPU:64", "CPU:²", "CPU: 1", "CPU:99999999999"])
def test_numbers_that_are_none(name: str) -> None:
    with pytest.raises(DeviceError, match=r"behind the colon stands which CPU it is, a number from 0 to 63"):
        device_name(name)


@pytest.mark.parametrize("name", ["", ":1", "GPU", "CPU1", "TPU:0"])
def test_kinds_that_are_none(name: str) -> None:
    with pytest.raises(DeviceError, match=f"unknown device '{name}': choose one of CPU, "):
        open_runtime(name)


def test_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYWEB_DEVICE", "cpu:2")
    assert Tensor([1.0]).device == "CPU:2"
    monkeypatch.setenv("TINYWEB_DEVICE", "cpu:two")
    with pytest.raises(DeviceError, match="'cpu:two'"):
        Tensor([1.0])


@pytest.mark.parametrize("kind", ["CPU", "INTERPRETER", "WASM"])
def test_devices_of_a_kind_have_memory_of_their_own(kind: str) -> None:
    x = Tensor(np.arange(6, dtype=np.float32), device=kind)
    y = x.to(f"{kind}:1")
    assert (x.device, y.device) == (kind, f"{kind}:1")
    y.assign(y * 2)
    np.testing.assert_array_equal(y.numpy(), 2 * np.arange(6))
    np.testing.assert_array_equal(x.numpy(), np.arange(6))
    assert Device[kind].runtime is not Device[f"{kind}:1"].runtime
    with pytest.raises(ValueError, match=f"{kind}:1"):
        (x + y).numpy()


def test_command_line_refuses_a_number_that_is_none() -> None:
    command = [sys.executable, "-m", "tinyweb", "run", "chat", "none", "hello", "--device", "CPU:x"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "Traceback" not in done.stderr
