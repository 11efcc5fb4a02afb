"""AMD's HIP runtime library through ctypes: where it is, its functions, and what its errors mean."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from tinyweb.errors import DeviceError

VERSIONS = (7, 6, 5)  # of ROCm: the library has the number in its name
FOLDERS = ("", "/opt/rocm/lib/")

OUT_OF_MEMORY, NOT_READY = 2, 600
LOST = {700, 702, 710, 719, 999}
"""Errors after which nothing works on the device until it is reset."""

# what a user can do, by the number of the error
ADVICE = {
    2: "use smaller tensors or a narrower type, or free what is not needed any more",
    3: "is the amdgpu kernel driver loaded, and may this user open /dev/kfd?",
    35: "the kernel driver is older than the installed ROCm: update it",
    100: "there is no AMD GPU that ROCm supports, or this user may not open /dev/kfd (join the group render)",
    101: "there is no AMD GPU, or its kernel driver (amdgpu) is not loaded, or this user may not open /dev/kfd (join "
    "the group render); choose another device (OPENCL, WEBGPU, CPU) where there is none",
    209: "the code object is for another chip",
    700: "a kernel accessed memory that is not its own",
    701: "a kernel needs more registers or shared memory than the device has",
    702: "the driver ended a kernel that ran for too long",
    710: "a kernel stopped itself",
    719: "a kernel was ended by the driver",
}

_POINTER_TO_POINTER = POINTER(c_void_p)
# the functions that are called, with their parameters; each returns an error's number
FUNCTIONS: dict[str, list[Any]] = {
    "hipInit": [c_uint],
    "hipRuntimeGetVersion": [POINTER(c_int)],
    "hipGetDeviceCount": [POINTER(c_int)],
    "hipSetDevice": [c_int],
    "hipDeviceReset": [],
    "hipDeviceGetName": [c_char_p, c_int, c_int],
    "hipMemGetInfo": [POINTER(c_size_t), POINTER(c_size_t)],
    "hipMalloc": [_POINTER_TO_POINTER, c_size_t],
    "hipFree": [c_void_p],
    "hipHostMalloc": [_POINTER_TO_POINTER, c_size_t, c_uint],
    "hipHostFree": [c_void_p],
    "hipMemcpyAsync": [c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    "hipMemsetAsync": [c_void_p, c_int, c_size_t, c_void_p],
    "hipMemsetD32Async": [c_void_p, c_int, c_size_t, c_void_p],
    "hipStreamCreateWithFlags": [_POINTER_TO_POINTER, c_uint],
    "hipStreamDestroy": [c_void_p],
    "hipStreamBeginCapture": [c_void_p, c_int],
    "hipStreamEndCapture": [c_void_p, _POINTER_TO_POINTER],
    "hipEventCreateWithFlags": [_POINTER_TO_POINTER, c_uint],
    "hipEventDestroy": [c_void_p],
    "hipEventRecord": [c_void_p, c_void_p],
    "hipEventQuery": [c_void_p],
    "hipGraphInstantiate": [_POINTER_TO_POINTER, c_void_p, c_void_p, c_void_p, c_size_t],
    "hipGraphDestroy": [c_void_p],
    "hipGraphExecDestroy": [c_void_p],
    "hipGraphLaunch": [c_void_p, c_void_p],
    "hipModuleLoadData": [_POINTER_TO_POINTER, c_void_p],
    "hipModuleUnload": [c_void_p],
    "hipModuleGetFunction": [_POINTER_TO_POINTER, c_void_p, c_char_p],
    "hipModuleLaunchKernel": [c_void_p, *[c_uint] * 7, c_void_p, _POINTER_TO_POINTER, _POINTER_TO_POINTER],
}


class HipError(DeviceError):
    """An error that HIP returned, with its `number`."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


class Hip:
    """The library, loaded. `call(function, …)` raises HipError unless all is well."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._functions: dict[str, Any] = {}
        for name, parameters in FUNCTIONS.items():
            function = getattr(library, name, None)
            if function is None:
                raise DeviceError(f"the HIP library has no function {name}: ROCm 5.2 or newer is needed")
            function.argtypes, function.restype = parameters, c_int
            self._functions[name] = function
        # its record has another layout since ROCm 6, under another name; the chip's name is looked for in it
        self._properties = getattr(library, "hipGetDevicePropertiesR0600", None) or library.hipGetDeviceProperties
        self._properties.argtypes, self._properties.restype = [c_void_p, c_int], c_int
        self._error_name = library.hipGetErrorName
        self._error_name.argtypes, self._error_name.restype = [c_int], c_char_p

    def ask(self, function: str, *arguments: Any) -> int:
        """Call a function; the error's number, 0 if there is none."""
        return int(self._functions[function](*arguments))

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function; HipError if it fails."""
        number = self.ask(function, *arguments)
        if number:
            raise self.error(number, function)

    def made(self, function: str, *arguments: Any) -> c_void_p:
        """What a function makes and writes to its first parameter."""
        out = c_void_p()
        self.call(function, ctypes.byref(out), *arguments)
        return out

    def made_with(self, function: str, argument: c_void_p) -> c_void_p:
        """What a function makes of its first parameter and writes to its second."""
        out = c_void_p()
        self.call(function, argument, ctypes.byref(out))
        return out

    def error(self, number: int, where: str) -> HipError:
        """What is raised for an error's number."""
        name = (self._error_name(number) or b"unknown error").decode(errors="replace")
        advice = f": {ADVICE[number]}" if number in ADVICE else ""
        return HipError(f"HIP's {where} failed with {name} ({number}){advice}", number)

    def properties(self, index: int) -> bytes:
        """The bytes of a device's record."""
        record = ctypes.create_string_buffer(16384)  # 1472 in ROCm 6; what is newer only grows at the end
        number = self._properties(record, index)
        if number:
            raise self.error(number, "hipGetDeviceProperties")
        return record.raw


def hip_library() -> Hip:
    """The HIP runtime; DeviceError that says what to install where there is none."""
    return Hip(_loaded())


def rtc_library() -> tuple[str, str]:
    """The library with HIPRTC, and its version; DeviceError where there is none."""
    for library in _candidates("hiprtc"), _candidates("amdhip64"):
        for name in library:
            try:
                found = ctypes.CDLL(name)
                major, minor = c_int(), c_int()
                if found.hiprtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0:
                    return name, f"{major.value}.{minor.value}"
            except (OSError, AttributeError):
                continue
    raise DeviceError("no HIPRTC was found: it comes with ROCm")


@functools.cache
def _open(names: tuple[str, ...]) -> ctypes.CDLL:
    reasons = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reasons.append(str(error))
    said = next((r for r in reasons if "No such file" not in r and "cannot open" not in r), "")
    raise DeviceError(
        f"no HIP runtime was found ({names[0]}{': ' + said if said else ''}): install AMD's ROCm (Debian: "
        "libamdhip64-5), or set TINYWEB_HIP_LIBRARY to the path of libamdhip64.so"
    )


def _loaded() -> ctypes.CDLL:
    chosen = os.environ.get("TINYWEB_HIP_LIBRARY")
    return _open((chosen,) if chosen else tuple(_candidates("amdhip64")))


def _candidates(library: str) -> list[str]:
    if sys.platform == "win32":
        return [f"{library}.dll", *(f"{library}_{v}.dll" for v in VERSIONS)]
    names = [f"lib{library}.so", *(f"lib{library}.so.{v}" for v in VERSIONS)]
    return [folder + name for folder in FOLDERS for name in names]
