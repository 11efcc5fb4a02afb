from collections.abc import Iterator

import pytest

from tinyweb.native_runtimes.open import open_runtime
from tinyweb.native_runtimes.protocol import Runtime

_OPEN: dict[str, Runtime] = {}


@pytest.fixture(params=["CPU", "WASM", "WEBGPU"])
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    """Each compiled runtime in turn; opened once."""
    if request.param not in _OPEN:
        _OPEN[request.param] = open_runtime(request.param)
    yield _OPEN[request.param]


@pytest.fixture(params=["CPU", "WASM"])
def processor(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    """The runtimes of the C family."""
    if request.param not in _OPEN:
        _OPEN[request.param] = open_runtime(request.param)
    yield _OPEN[request.param]


@pytest.fixture
def gpu() -> Runtime:
    if "WEBGPU" not in _OPEN:
        _OPEN["WEBGPU"] = open_runtime("WEBGPU")
    return _OPEN["WEBGPU"]
