"""A device of the name WEBGPU that is Chromium's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.native_runtimes.chromium import ChromiumBackend
from tinyweb import Device
from tinyweb.device import OpenDevice
from tinyweb.native_runtimes.webgpu import WebGpuRuntime


class OnePage(ChromiumBackend):
    """Buffers live as long as the page: one may be collected while the browser is waited for, and then nothing else may
    be asked of it.
    """

    def destroy_buffer(self, buffer: int) -> None:
        pass


@pytest.fixture
def chromium_device(chromium: Browser, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """WEBGPU, for the time of a test, as Chromium's compiler and SwiftShader make it."""
    opened = OpenDevice("WEBGPU")
    backend = OnePage(chromium)
    opened.runtime = WebGpuRuntime(backend)
    monkeypatch.setitem(Device._open, "WEBGPU", opened)
    yield "WEBGPU"
    backend.page.close()


@pytest.fixture(params=["CPU", "WASM", "WEBGPU", "INTERPRETER", "CHROMIUM"])
def device(request: pytest.FixtureRequest) -> str:
    """Every device in turn."""
    return request.getfixturevalue("chromium_device") if request.param == "CHROMIUM" else str(request.param)
