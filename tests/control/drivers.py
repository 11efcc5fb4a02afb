"""Tests of devices whose driver is a system package are skipped where there is none that could be installed."""

from __future__ import annotations

import functools

import pytest

DRIVERS = ("OPENCL",)


@functools.cache
def missing(device: str) -> str:
    """Why the device cannot be used here; "" if it can."""
    from tinyweb.errors import DeviceError
    from tinyweb.native_runtimes.open import open_runtime

    try:
        open_runtime(device)
    except DeviceError as error:
        return str(error)
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        values = (
            item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
        )
        for value in values:
            if isinstance(value, str) and value.partition(":")[0] in DRIVERS and (why := missing(value)):
                item.add_marker(pytest.mark.skip(reason=why))
