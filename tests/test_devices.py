"""Devices by name: kinds, several of a kind, and what is no device."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tinyweb import Tensor, dtypes
from tinyweb.across import COPIES
from tinyweb.device import Device
from tinyweb.errors import DeviceError
from tinyweb.native_runtimes.open import device_name, open_runtime, parse_device

ROOT = Path(__file__).parents[1]


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
    environment = {**os.environ, "TINYWEB_DEVICE": "CPU:x"}
    command = [sys.executable, "-m", "tinyweb.cli", "run", "chat", "assets/models/tinychat-7m", "--prompt", "hi"]
    for more, env in ((["--device", "CPU:x"], None), ([], environment)):
        done = subprocess.run([*command, *more], capture_output=True, text=True, env=env, cwd=ROOT, timeout=500)
        assert done.returncode != 0 and "Traceback" not in done.stderr
        assert "a number from 0 to 63" in " ".join(done.stderr.split())


@pytest.mark.parametrize("source", ["CPU", "CPU:1", "WASM", "WEBGPU", "INTERPRETER", "DISK"])
@pytest.mark.parametrize("target", ["CPU", "CPU:1", "WASM:1", "WEBGPU", "INTERPRETER:1", "DISK"])
def test_copies_between_any_two(source: str, target: str) -> None:
    """Of every width of elements, and of views, which are made dense before they move."""
    values = np.random.default_rng(0).integers(0, 2, (3, 5))
    for dtype in (dtypes.bool, dtypes.int8, dtypes.uint4, dtypes.float16, dtypes.float32, dtypes.int64):
        x = Tensor(values, dtype=dtype, device=source)
        COPIES.count = COPIES.nbytes = 0
        there = x.to(target).realize()
        assert there.device == target
        assert (COPIES.count, COPIES.nbytes) == ((0, 0) if source == target else (1, -(-dtype.nbytes(15) // 4) * 4))
        np.testing.assert_array_equal(there.numpy().astype(np.int64), values)
        np.testing.assert_array_equal(x[1:, ::2].T.to(target).numpy().astype(np.int64), values[1:, ::2].T)
    assert Tensor.empty(0, 3, device=source).to(target).tolist() == []
