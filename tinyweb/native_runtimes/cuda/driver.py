"""The CUDA driver's functions with their errors as exceptions, and what these mean in words."""

from __future__ import annotations

import importlib
from typing import Any

from tinyweb.errors import DeviceError

# Results of the driver (CUresult) after which a context can do nothing more, and what a kernel has done then.
FAULTS = {
    214: "met memory that is damaged (an ECC error)",
    700: "accessed memory that is not its own",
    702: "ran longer than the driver allows",
    710: "stopped itself",
    714: "overflowed its stack",
    715: "met an instruction that this GPU does not have",
    716: "accessed memory that is not aligned",
    717: "accessed memory of the wrong space",
    718: "jumped to where no code is",
    719: "failed",
}
OUT_OF_MEMORY, NOT_READY = 2, 600
NEWER_DRIVER = (209, 218, 222, 223)  # the code is for a newer driver, or not for this GPU
NO_DEVICE, NO_DRIVER = (100, 101), (3, 34, 35, 802, 803, 804, 999)
INSTALL = "install NVIDIA's driver 580 or newer, or choose another device (OPENCL, WEBGPU, CPU)"


class CudaError(Exception):
    """What a function of the driver returned."""

    def __init__(self, function: str, code: int, name: str):
        super().__init__(f"{function} failed with {name}")
        self.code = code


class Driver:
    """The functions of a module like `cuda.bindings.driver` by their names, which return their values alone.

    CudaError where one fails.
    """

    def __init__(self, module: Any = None) -> None:
        self.module = _bindings() if module is None else module

    def __getattr__(self, function: str) -> Any:
        called = getattr(self.module, function)

        def call(*arguments: Any) -> Any:
            error, *values = called(*arguments)
            if error:
                raise CudaError(function, int(error), getattr(error, "name", str(error)))
            return values[0] if len(values) == 1 else values

        setattr(self, function, call)
        return call


def _bindings() -> Any:
    try:
        driver = importlib.import_module("cuda.bindings.driver")
        driver.cuDriverGetVersion()  # loads the driver's library
    except ImportError as error:
        raise DeviceError(
            "CUDA needs the Python package cuda-bindings, which is not installed: pip install 'tinyweb[cuda]'"
        ) from error
    except RuntimeError as error:  # cuda-bindings finds no libcuda
        raise DeviceError(f"CUDA needs NVIDIA's driver, which is not installed here: {INSTALL}") from error
    return driver


def open_device(driver: Driver, index: int, compiler: int) -> Any:
    """The `index`-th GPU. `compiler`: the major version of NVRTC, whose code older drivers do not load.

    DeviceError that says what is missing.
    """
    try:
        driver.cuInit(0)
        served, count = driver.cuDriverGetVersion(), driver.cuDeviceGetCount()
    except CudaError as error:
        if error.code in NO_DEVICE:
            raise DeviceError(f"there is no NVIDIA GPU here ({error}): choose another device") from error
        if error.code in NO_DRIVER:
            raise DeviceError(f"NVIDIA's driver does not start ({error}): {INSTALL}") from error
        raise DeviceError(f"CUDA does not open: {error}; {INSTALL}") from error
    if not count:
        raise DeviceError("there is no NVIDIA GPU here: choose another device")
    if served // 1000 < compiler:
        raise DeviceError(
            f"NVIDIA's driver is for CUDA {served // 1000}.{served % 1000 // 10}, and kernels are compiled for CUDA "
            f"{compiler}: {INSTALL}"
        )
    if index >= count:
        names = f"CUDA:0 to CUDA:{count - 1}" if count > 1 else "CUDA:0 alone"
        raise DeviceError(f"there is no device CUDA:{index}: choose {names}")
    return driver.cuDeviceGet(index)
