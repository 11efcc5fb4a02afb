"""WebGPU through the `dawn-python` package (Dawn with Tint, the implementation inside Chrome)."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

from tinyweb.errors import DeviceError
from tinyweb.native_runtimes.webgpu.backend import Adapter, Dispatch, first_lines, runtime_folder

STAGING_BYTES = 4 << 20  # read-back goes through one buffer of this size, in pieces

_FEATURES = {"ShaderF16": "shader-f16", "Subgroups": "subgroups", "TimestampQuery": "timestamp-query"}
_API = {1: "Null", 3: "D3D11", 4: "D3D12", 5: "Metal", 6: "Vulkan", 7: "OpenGL", 8: "OpenGL ES"}


class _Group:
    """A bind group that is released with its last user."""

    def __init__(self, pointer: Any, release: Any) -> None:
        self.pointer = pointer
        weakref.finalize(self, release, pointer).atexit = False


class DawnBackend:
    """See `backend.Backend`."""

    name = "dawn"

    def __init__(self) -> None:
        try:
            from pydawn import utils, webgpu  # type: ignore[import-not-found,unused-ignore]
        except (ImportError, OSError) as error:
            raise DeviceError(
                f"WebGPU through Dawn needs the Python package dawn-python ({error}): install tinyweb[dawn], "
                "or unset TINYWEB_WEBGPU to use wgpu"
            ) from error
        self._utils, self._api = utils, webgpu
        try:
            with runtime_folder():
                adapter = utils.request_adapter_sync(webgpu.WGPUPowerPreference_HighPerformance)
                names = (f.removeprefix("WGPUFeatureName_") for f in utils.supported_features(adapter))
                offered = [f for f in names if f in _FEATURES]
                used = [getattr(webgpu, f"WGPUFeatureName_{f}") for f in ("ShaderF16", "Subgroups") if f in offered]
                self._device = utils.request_device_sync(adapter, used)
        except (RuntimeError, AssertionError) as error:
            raise DeviceError(f"WebGPU through Dawn needs a GPU driver ({error}): install a Vulkan driver") from error
        self._queue = webgpu.wgpuDeviceGetQueue(self._device)
        info, limits = webgpu.WGPUAdapterInfo(), webgpu.WGPUSupportedLimits()
        webgpu.wgpuAdapterGetInfo(adapter, info)
        webgpu.wgpuAdapterGetLimits(
            adapter, ctypes.cast(ctypes.pointer(limits), ctypes.POINTER(webgpu.struct_WGPUSupportedLimits))
        )
        self.adapter = Adapter(
            name=f"{utils.from_wgpu_str(info.device)} ({_API.get(info.backendType, 'unknown API')})",
            features=tuple(sorted(_FEATURES[f] for f in offered)),
            max_buffer_bytes=limits.limits.maxBufferSize,
            max_binding_bytes=limits.limits.maxStorageBufferBindingSize,
            shared_bytes=limits.limits.maxComputeWorkgroupStorageSize,
            discrete=info.adapterType == webgpu.WGPUAdapterType_DiscreteGPU,
        )
        self._layouts: dict[tuple[str, ...], tuple[Any, Any]] = {}
        self._staging: Any = None

    def create_buffer(self, nbytes: int, *, uniform: bool = False) -> Any:
        w = self._api
        usage = w.WGPUBufferUsage_Uniform if uniform else w.WGPUBufferUsage_Storage | w.WGPUBufferUsage_CopySrc
        for kind in (w.WGPUErrorFilter_Validation, w.WGPUErrorFilter_OutOfMemory):
            w.wgpuDevicePushErrorScope(self._device, kind)
        buffer = self._utils.create_buffer(self._device, nbytes, usage | w.WGPUBufferUsage_CopyDst)
        errors = [self._utils.pop_error(self._device) for _ in range(2)]
        if any(errors):
            raise MemoryError(f"WebGPU has no memory for a buffer of {nbytes} bytes ({errors[0] or errors[1]})")
        return buffer

    def destroy_buffer(self, buffer: Any) -> None:
        self._api.wgpuBufferDestroy(buffer)
        self._api.wgpuBufferRelease(buffer)

    def write(self, buffer: Any, offset: int, data: bytes | memoryview) -> None:
        block = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        self._api.wgpuQueueWriteBuffer(self._queue, buffer, offset, block, len(data))

    def read(self, buffer: Any, offset: int, nbytes: int) -> bytes:
        if self._staging is None:
            usage = self._api.WGPUBufferUsage_CopyDst | self._api.WGPUBufferUsage_MapRead
            self._staging = self._utils.create_buffer(self._device, STAGING_BYTES, usage)
        parts = []
        for start in range(offset, offset + nbytes, STAGING_BYTES):
            count = min(STAGING_BYTES, offset + nbytes - start)
            self._utils.copy_buffer_to_buffer(self._device, buffer, start, self._staging, 0, count)
            self._utils.map_buffer(self._staging, count)
            pointer = self._api.wgpuBufferGetConstMappedRange(self._staging, 0, count)
            parts.append(ctypes.string_at(pointer, count))
            self._api.wgpuBufferUnmap(self._staging)
        return b"".join(parts)

    def _layout(self, bindings: tuple[str, ...]) -> tuple[Any, Any]:
        """The bind group layout and the pipeline layout; one of each for all kernels with the same bindings."""
        found = self._layouts.get(bindings)
        if found is None:
            w = self._api
            kinds = {
                "storage": w.WGPUBufferBindingType_Storage,
                "read-only-storage": w.WGPUBufferBindingType_ReadOnlyStorage,
                "uniform": w.WGPUBufferBindingType_Uniform,
            }
            entries = [
                {"binding": i, "visibility": w.WGPUShaderStage_Compute, "buffer": {"type": kinds[kind]}}
                for i, kind in enumerate(bindings)
            ]
            group = self._utils.create_bind_group_layout(self._device, entries)
            found = self._layouts[bindings] = (group, self._utils.create_pipeline_layout(self._device, [group]))
        return found

    def create_pipeline(self, name: str, code: str, bindings: Sequence[str]) -> Any:
        group, layout = self._layout(tuple(bindings))
        try:
            module = self._utils.create_shader_module(self._device, code)
            compute = {"module": module, "entry_point": "main"}
            return group, self._utils.create_compute_pipeline(self._device, layout, compute)
        except RuntimeError as error:
            raise DeviceError(f"kernel {name} was refused by Dawn:\n{first_lines(str(error))}") from error

    def create_bind_group(self, pipeline: Any, buffers: Sequence[Any]) -> Any:
        sizes = [self._api.wgpuBufferGetSize(b) for b in buffers]
        entries = [
            {"binding": i, "resource": {"buffer": b, "offset": 0, "size": size}}
            for i, (b, size) in enumerate(zip(buffers, sizes))
        ]
        group = self._utils.create_bind_group(self._device, pipeline[0], entries)
        return _Group(group, self._api.wgpuBindGroupRelease)

    def submit(self, dispatches: Sequence[Dispatch]) -> None:
        u = self._utils
        encoder = u.create_command_encoder(self._device)
        compute_pass = u.begin_compute_pass(encoder)
        for pipeline, group, workgroups in dispatches:
            u.set_pipeline(compute_pass, pipeline[1])
            u.set_bind_group(compute_pass, group.pointer)
            u.dispatch_workgroups(compute_pass, *workgroups)
        u.end_compute_pass(compute_pass)
        commands = u.command_encoder_finish(encoder)
        u.submit(self._device, [commands])
        self._api.wgpuCommandBufferRelease(commands)
        self._api.wgpuComputePassEncoderRelease(compute_pass)
        self._api.wgpuCommandEncoderRelease(encoder)

    def wait(self) -> None:
        self._utils.sync(self._device)
