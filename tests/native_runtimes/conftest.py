import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.native_runtimes.chromium import ChromiumBackend
from tests.native_runtimes.devices import BROWSERS, COMPILED, GPUS, PROCESSORS
from tests.native_runtimes.hip.standin import StandIn, library
from tests.native_runtimes.text import runtime as text_runtime
from tinyweb.native_runtimes.open import open_runtime
from tinyweb.native_runtimes.protocol import Runtime
from tinyweb.native_runtimes.webgpu import WebGpuRuntime

if TYPE_CHECKING:  # most tests need no browser, and run where Playwright is not installed
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def runtimes(request: pytest.FixtureRequest) -> Iterator[dict[str, Runtime]]:
    """Those opened so far."""
    yield {}


@pytest.fixture(scope="session")
def hip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """HIP with the stand-in for AMD's library, a copy of its own."""
    own = shutil.copy(library(), tmp_path_factory.mktemp("hip"))
    with pytest.MonkeyPatch.context() as patch:
        standin = StandIn(patch, path=own)
        yield open_runtime("HIP")
        standin.check()


def opened(name: str, runtimes: dict[str, Runtime], request: pytest.FixtureRequest) -> Runtime:
    """CHROMIUM is the WebGPU runtime with a browser's implementation, which is not the one of wgpu."""
    if name not in runtimes:
        if name == "CHROMIUM":
            browser: Browser = request.getfixturevalue("chromium")
            runtimes[name] = WebGpuRuntime(ChromiumBackend(browser))
        elif name == "CUDA_TEXT":
            runtimes[name] = text_runtime.CudaText()
        elif name == "HIP":
            runtimes[name] = request.getfixturevalue("hip")
        else:
            runtimes[name] = open_runtime(name)
    return runtimes[name]


@pytest.fixture(params=COMPILED)
def runtime(request: pytest.FixtureRequest, runtimes: dict[str, Runtime]) -> Runtime:
    """Each compiled runtime in turn."""
    return opened(request.param, runtimes, request)


@pytest.fixture(params=PROCESSORS)
def processor(request: pytest.FixtureRequest, runtimes: dict[str, Runtime]) -> Runtime:
    """The runtimes of the C family."""
    return opened(request.param, runtimes, request)


@pytest.fixture(params=BROWSERS)
def webgpu(request: pytest.FixtureRequest, runtimes: dict[str, Runtime]) -> Runtime:
    """Implementations of WebGPU."""
    return opened(request.param, runtimes, request)


@pytest.fixture(params=GPUS)
def gpu(request: pytest.FixtureRequest, runtimes: dict[str, Runtime]) -> Runtime:
    return opened(request.param, runtimes, request)
