"""WebGPU through the `wgpu` package (wgpu-native, naga)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import wgpu  # type: ignore[import-untyped]
from wgpu.backends.wgpu_native import _api, extras  # type: ignore[import-untyped]

from tinyweb.errors import DeviceError
from tinyweb.native_runtimes.webgpu.backend import Adapter, Dispatch, first_lines, runtime_folder

# OpenGL adapters lack limits that WebGPU guarantees
BACKENDS = ("Vulkan", "Metal", "DX12")
STAGING_BYTES = 4 << 20  # read-back goes through one buffer of this size, in pieces

# WGPUShaderRuntimeChecks_ForceLoopBounding: loops without it are written out by NVIDIA's compiler, and run slower
CHECKS = 2

# wgpu's own spelling of the features a program may ask for
FEATURES = {"shader-f16": "shader-f16", "subgroup": "subgroups", "timestamp-query": "timestamp-query"}
USED_FEATURES = ("shader-f16", "subgroup")


@functools.cache
def _restrict_backends() -> None:
    with contextlib.suppress(RuntimeError):  # somebody in this process has opened wgpu already
        extras.set_instance_extras(backends=list(BACKENDS))


class WgpuBackend:
    """See `backend.Backend`."""

    name = "wgpu"

    def __init__(self) -> None:
        _restrict_backends()
        try:
            with runtime_folder():
                adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        except (RuntimeError, wgpu.GPUError) as error:
            lines = [line.strip() for line in str(error).splitlines()]
            raise _no_adapter(next((line for line in reversed(lines) if len(line) > 1), "none was found")) from error
        if adapter is None:
            raise _no_adapter("none was found")
        offered = adapter.limits
        shared = "max-compute-workgroup-storage-size"
        wanted = ("max-buffer-size", "max-storage-buffer-binding-size", shared)
        try:
            self._device = adapter.request_device_sync(
                required_features=[f for f in USED_FEATURES if f in adapter.features],
                required_limits={k: offered[k] for k in wanted},
            )
        except (RuntimeError, wgpu.GPUError) as error:
            raise DeviceError(f"WebGPU through wgpu: the adapter gives no device ({error})") from error
        info = adapter.info
        self.adapter = Adapter(
            name=f"{info['device'] or info['description']} ({info['backend_type']})",
            features=tuple(sorted(FEATURES[f] for f in adapter.features if f in FEATURES)),
            max_buffer_bytes=offered["max-buffer-size"],
            max_binding_bytes=offered["max-storage-buffer-binding-size"],
            shared_bytes=offered[shared],
            discrete=info["adapter_type"] == "DiscreteGPU",
        )
        self._layouts: dict[tuple[str, ...], tuple[Any, Any]] = {}
        self._staging: Any = None
        self._fence: Any = None

    def create_buffer(self, nbytes: int, *, uniform: bool = False) -> Any:
        usage = wgpu.BufferUsage.UNIFORM if uniform else wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
        try:
            return self._device.create_buffer(size=nbytes, usage=usage | wgpu.BufferUsage.COPY_DST)
        except wgpu.GPUError as error:
            raise MemoryError(f"WebGPU has no memory for a buffer of {nbytes} bytes ({error})") from error

    def destroy_buffer(self, buffer: Any) -> None:
        buffer.destroy()

    def write(self, buffer: Any, offset: int, data: bytes | memoryview) -> None:
        self._device.queue.write_buffer(buffer, offset, data)

    def read(self, buffer: Any, offset: int, nbytes: int) -> bytes:
        if self._staging is None:
            usage = wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.MAP_READ
            self._staging = self._device.create_buffer(size=STAGING_BYTES, usage=usage)
        parts = []
        for start in range(offset, offset + nbytes, STAGING_BYTES):
            count = min(STAGING_BYTES, offset + nbytes - start)
            encoder = self._device.create_command_encoder()
            encoder.copy_buffer_to_buffer(buffer, start, self._staging, 0, count)
            self._device.queue.submit([encoder.finish()])
            self._staging.map_sync(wgpu.MapMode.READ, 0, count)
            parts.append(bytes(self._staging.read_mapped(0, count, copy=False)))
            self._staging.unmap()
        return b"".join(parts)

    def _layout(self, bindings: tuple[str, ...]) -> tuple[Any, Any]:
        """The bind group layout and the pipeline layout; one of each for all kernels with the same bindings."""
        found = self._layouts.get(bindings)
        if found is None:
            entries = [
                {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                for i, kind in enumerate(bindings)
            ]
            group = self._device.create_bind_group_layout(entries=entries)
            found = self._layouts[bindings] = (group, self._device.create_pipeline_layout(bind_group_layouts=[group]))
        return found

    def create_pipeline(self, name: str, code: str, bindings: Sequence[str]) -> Any:
        group, layout = self._layout(tuple(bindings))
        try:
            # naga has subgroups, but does not know yet that they must be enabled
            module = _module(self._device, name, code.removeprefix("enable subgroups;\n"))
            compute = {"module": module, "entry_point": "main"}
            return group, self._device.create_compute_pipeline(label=name, layout=layout, compute=compute)
        except wgpu.GPUError as error:
            raise DeviceError(f"kernel {name} was refused by wgpu:\n{first_lines(str(error))}") from error

    def create_bind_group(self, pipeline: Any, buffers: Sequence[Any]) -> Any:
        whole = [{"buffer": b, "offset": 0, "size": b.size} for b in buffers]
        entries = [{"binding": i, "resource": r} for i, r in enumerate(whole)]
        return self._device.create_bind_group(layout=pipeline[0], entries=entries)

    def submit(self, dispatches: Sequence[Dispatch]) -> None:
        encoder = self._device.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        current = None
        for pipeline, group, workgroups in dispatches:
            if pipeline is not current:
                compute_pass.set_pipeline(pipeline[1])
                current = pipeline
            compute_pass.set_bind_group(0, group)
            compute_pass.dispatch_workgroups(*workgroups)
        compute_pass.end()
        self._device.queue.submit([encoder.finish()])

    def wait(self) -> None:
        # a queue works in order: what is read back now comes after everything submitted (wgpu 0.32 cannot ask directly)
        if self._fence is None:
            self._fence = self.create_buffer(4)
        self.read(self._fence, 0, 4)


def _module(device: Any, name: str, code: str) -> Any:
    """A shader module without checks of each index: programs gate what may lie beyond memory. wgpu offers that to
    native programs alone, and its Python package does not name it.
    """
    ffi, lib = _api.ffi, _api.lib
    source = _api.new_struct_p("WGPUShaderSourceWGSL *", code=_api.to_c_string_view(code))
    source[0].chain.next, source[0].chain.sType = ffi.NULL, lib.WGPUSType_ShaderSourceWGSL
    descriptor = _api.new_struct_p(
        "WGPUShaderModuleDescriptor *",
        nextInChain=ffi.cast("WGPUChainedStruct *", source),
        label=_api.to_c_string_view(name),
    )
    module = _api.libf.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, CHECKS)
    return _api.GPUShaderModule(name, module, device)


def _no_adapter(why: str) -> DeviceError:
    return DeviceError(
        f"WebGPU through wgpu needs a GPU driver ({why}): install a Vulkan driver, "
        "for a machine without a GPU Mesa's software driver (Debian: mesa-vulkan-drivers)"
    )
