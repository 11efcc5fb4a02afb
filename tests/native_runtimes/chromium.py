"""A WebGPU backend inside headless Chromium: the same runtime and programs, compiled by Tint, run by SwiftShader."""

import base64
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinyweb.errors import DeviceError
from tinyweb.native_runtimes.webgpu.backend import Adapter, Dispatch

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ADDRESS = "https://tinyweb.test/"  # answered by the test itself; WebGPU wants a secure context

OPEN = """async () => {
  const adapter = await navigator.gpu.requestAdapter();
  const requiredFeatures = [...adapter.features].filter((feature) => ["shader-f16", "subgroups"].includes(feature));
  const device = await adapter.requestDevice({ requiredFeatures });
  device.addEventListener("uncapturederror", (event) => { state.errors.push(event.error.message); });
  globalThis.state = { device, things: new Map(), errors: [] };
  globalThis.bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return { name: adapter.info.architecture, features: [...adapter.features],
           buffer: device.limits.maxBufferSize, binding: device.limits.maxStorageBufferBindingSize };
}"""

BUFFER = """([id, size, uniform]) => {
  const { STORAGE, UNIFORM, COPY_SRC, COPY_DST } = GPUBufferUsage;
  const usage = COPY_DST | (uniform ? UNIFORM : STORAGE | COPY_SRC);
  state.things.set(id, state.device.createBuffer({ size, usage }));
}"""

WRITE = "([id, offset, data]) => { state.device.queue.writeBuffer(state.things.get(id), offset, bytes(data)); }"

READ = """async ([id, offset, size]) => {
  const staging = state.device.createBuffer({ size, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
  const encoder = state.device.createCommandEncoder();
  encoder.copyBufferToBuffer(state.things.get(id), offset, staging, 0, size);
  state.device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const data = new Uint8Array(staging.getMappedRange());
  let text = "";
  for (let i = 0; i < data.length; i += 8192) text += String.fromCharCode(...data.subarray(i, i + 8192));
  staging.destroy();
  return { data: btoa(text), errors: state.errors.splice(0) };
}"""

PIPELINE = """async ([id, label, code, kinds]) => {
  const { device } = state;
  const module = device.createShaderModule({ label, code });
  const messages = (await module.getCompilationInfo()).messages.filter((m) => m.type === "error");
  if (messages.length) return messages.map((m) => `${m.lineNum}: ${m.message}`).join("\\n");
  const entries = kinds.map((type, binding) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } }));
  const group = device.createBindGroupLayout({ entries });
  const layout = device.createPipelineLayout({ bindGroupLayouts: [group] });
  try {
    const pipeline = await device.createComputePipelineAsync({ layout, compute: { module, entryPoint: "main" } });
    state.things.set(id, { pipeline, group });
  } catch (error) { return error.message; }
}"""

GROUP = """([id, pipeline, buffers]) => {
  const entries = buffers.map((b, binding) => ({ binding, resource: { buffer: state.things.get(b) } }));
  const layout = state.things.get(pipeline).group;
  state.things.set(id, state.device.createBindGroup({ layout, entries }));
}"""

SUBMIT = """(dispatches) => {
  const encoder = state.device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  for (const [pipeline, group, workgroups] of dispatches) {
    pass.setPipeline(state.things.get(pipeline).pipeline);
    pass.setBindGroup(0, state.things.get(group));
    pass.dispatchWorkgroups(...workgroups);
  }
  pass.end();
  state.device.queue.submit([encoder.finish()]);
}"""


class ChromiumBackend:
    """See `webgpu.backend.Backend`; handles are numbers of objects in the page."""

    name = "chromium"

    def __init__(self, browser: "Browser") -> None:
        self.page = browser.new_page()
        self.page.route(ADDRESS, lambda route: route.fulfill(body="<!doctype html>", content_type="text/html"))
        self.page.goto(ADDRESS)
        found = self.page.evaluate(OPEN)
        self.adapter = Adapter(found["name"], tuple(found["features"]), found["buffer"], found["binding"])
        self._ids = itertools.count()

    def create_buffer(self, nbytes: int, *, uniform: bool = False) -> int:
        self.page.evaluate(BUFFER, [buffer := next(self._ids), nbytes, uniform])
        return buffer

    def destroy_buffer(self, buffer: int) -> None:
        self.page.evaluate("(id) => { state.things.get(id).destroy(); state.things.delete(id); }", buffer)

    def write(self, buffer: int, offset: int, data: bytes | memoryview) -> None:
        self.page.evaluate(WRITE, [buffer, offset, base64.b64encode(data).decode()])

    def read(self, buffer: int, offset: int, nbytes: int) -> bytes:
        found = self.page.evaluate(READ, [buffer, offset, nbytes])
        assert not found["errors"], found["errors"]
        return base64.b64decode(found["data"])

    def create_pipeline(self, name: str, code: str, bindings: Sequence[str]) -> int:
        error = self.page.evaluate(PIPELINE, [pipeline := next(self._ids), name, code, list(bindings)])
        if error:
            raise DeviceError(f"kernel {name} was refused by Chromium:\n{error}\n{code}")
        return pipeline

    def create_bind_group(self, pipeline: int, buffers: Sequence[int]) -> int:
        self.page.evaluate(GROUP, [group := next(self._ids), pipeline, list(buffers)])
        return group

    def submit(self, dispatches: Sequence[Dispatch]) -> None:
        self.page.evaluate(SUBMIT, [[p, g, list(w)] for p, g, w in dispatches])

    def wait(self) -> None:
        self.page.evaluate("() => state.device.queue.onSubmittedWorkDone()")
