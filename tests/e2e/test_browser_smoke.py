"""The browser that the end-to-end tests use offers what they rely on."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser

DOUBLE_ON_GPU = """async () => {
  const adapter = await navigator.gpu.requestAdapter();
  const device = await adapter.requestDevice();
  const code = `@group(0) @binding(0) var<storage, read_write> x: array<f32>;
    @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3u) { x[id.x] = 2.0 * x[id.x]; }`;
  const pipeline = await device.createComputePipelineAsync(
    { layout: "auto", compute: { module: device.createShaderModule({ code }), entryPoint: "main" } });
  const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const values = device.createBuffer({ size: 16, usage: STORAGE | COPY_SRC | COPY_DST });
  const read = device.createBuffer({ size: 16, usage: MAP_READ | COPY_DST });
  device.queue.writeBuffer(values, 0, new Float32Array([1, 2, 3, 4.5]));
  const group = device.createBindGroup(
    { layout: pipeline.getBindGroupLayout(0), entries: [{ binding: 0, resource: { buffer: values } }] });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline); pass.setBindGroup(0, group); pass.dispatchWorkgroups(1); pass.end();
  encoder.copyBufferToBuffer(values, 0, read, 0, 16);
  device.queue.submit([encoder.finish()]);
  await read.mapAsync(GPUMapMode.READ);
  return { architecture: adapter.info.architecture, result: [...new Float32Array(read.getMappedRange())] };
}"""


@pytest.fixture
def empty_page() -> Iterator[str]:
    """Address of a page with nothing on it; its path says whether it is cross-origin isolated."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            if self.path == "/isolated":
                self.send_header("Cross-Origin-Opener-Policy", "same-origin")
                self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>empty</title>")

        def log_message(self, format: str, *args: object) -> None:
            pass  # the tests' output is for the tests

    with ThreadingHTTPServer(("localhost", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join(60)


def test_webgpu_computes(chromium: Browser, empty_page: str) -> None:
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(empty_page)
        answer = page.evaluate(DOUBLE_ON_GPU)
    assert answer == {"architecture": "swiftshader", "result": [2, 4, 6, 9]}


@pytest.mark.parametrize(("path", "isolated"), [("/isolated", True), ("/plain", False)])
def test_shared_memory_follows_the_headers(chromium: Browser, empty_page: str, path: str, isolated: bool) -> None:
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(empty_page + path)
        assert page.evaluate("[crossOriginIsolated, typeof SharedArrayBuffer]") == [
            isolated,
            "function" if isolated else "undefined",
        ]
