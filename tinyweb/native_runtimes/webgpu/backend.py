"""What the runtime needs of a WebGPU implementation, and which one to use."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tinyweb.errors import DeviceError

Dispatch = tuple[Any, Any, tuple[int, int, int]]  # pipeline, bind group, workgroups


@dataclass(frozen=True)
class Adapter:
    """The GPU that was chosen."""

    name: str  # for people: device and API
    features: tuple[str, ...]  # WebGPU features it offers, by their names in the specification
    max_buffer_bytes: int
    max_binding_bytes: int
    shared_bytes: int = 16384  # of workgroup memory; the default is what WebGPU guarantees
    discrete: bool = False  # a card with memory of its own

    @property
    def is_software(self) -> bool:
        """Whether the processor does the work, in its own memory."""
        return any(name in self.name.lower() for name in ("llvmpipe", "swiftshader", "warp"))


class Backend(Protocol):
    """One implementation with an open device. Offsets and sizes are multiples of 4; sizes are positive."""

    name: str
    adapter: Adapter

    def create_buffer(self, nbytes: int, *, uniform: bool = False) -> Any:
        """Zero-filled device memory that can be copied to and from; MemoryError if there is none."""

    def destroy_buffer(self, buffer: Any) -> None:
        """Free the memory, once submitted work is done with it."""

    def write(self, buffer: Any, offset: int, data: bytes | memoryview) -> None:
        """Copy to the device, ordered after what was submitted before and before what is submitted later."""

    def read(self, buffer: Any, offset: int, nbytes: int) -> bytes:
        """Wait, and copy to the host."""

    def create_pipeline(self, name: str, code: str, bindings: Sequence[str]) -> Any:
        """A compute pipeline of the entry point `main`; DeviceError with the compiler's words and the kernel's name."""

    def create_bind_group(self, pipeline: Any, buffers: Sequence[Any]) -> Any:
        """The buffers at the pipeline's bindings 0, 1, …"""

    def submit(self, dispatches: Sequence[Dispatch]) -> None:
        """Run the dispatches in order."""

    def wait(self) -> None:
        """Wait for everything submitted."""


def open_backend(name: str | None = None) -> Backend:
    """The implementation `name` ("wgpu" or "dawn"), by default TINYWEB_WEBGPU or wgpu, with an adapter and a device.

    DeviceError if it is not installed or there is no GPU it can use.
    """
    chosen = (name or os.environ.get("TINYWEB_WEBGPU") or "wgpu").lower()
    if chosen == "wgpu":
        from tinyweb.native_runtimes.webgpu.wgpu_backend import WgpuBackend

        return WgpuBackend()
    if chosen == "dawn":
        from tinyweb.native_runtimes.webgpu.dawn_backend import DawnBackend

        return DawnBackend()
    raise DeviceError(f"TINYWEB_WEBGPU is {chosen!r}: set it to wgpu or dawn")


def first_lines(text: str, count: int = 12) -> str:
    """The head of a compiler's message."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return "\n".join(lines[:count])


@contextlib.contextmanager
def runtime_folder() -> Iterator[None]:
    """Without XDG_RUNTIME_DIR, Wayland's library complains on stderr as soon as a driver asks it for a display."""
    if "XDG_RUNTIME_DIR" in os.environ:
        yield
        return
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        del os.environ["XDG_RUNTIME_DIR"]
