"""Graphs as PyTorch exports them, exported again as sites: both backends give in Chromium what PyTorch gives."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext

from benchmarks.onnx.models import make
from tests.control.shared import Shared
from tests.e2e.pages import TIMEOUT_MS

SAMPLE = ("mobilenet_v3", "swin", "gpt2", "whisper_decoder", "yolo", "lstm_tagger", "diffusion_unet")
RUN = """async ([backend, inputs]) => {
  const arrays = { float32: Float32Array, int64: BigInt64Array };
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const { load } = await import("/model/model.js");
  const model = await load({ backend });
  const given = Object.fromEntries(inputs.map(([name, dtype, data]) => [name, new arrays[dtype](bytes(data))]));
  const found = await model.run(given);
  return [model.info.backend, Object.fromEntries(Object.entries(found).map(([n, a]) => [n, [...a]]))];
}"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["wasm", "webgpu"])
@pytest.mark.parametrize("name", SAMPLE)
def test_as_pytorch(
    name: str, backend: str, shared: Shared, served: Callable[..., Any], context: BrowserContext
) -> None:
    model = make(name, small=True)

    def export(site: Path) -> None:
        graph = site.with_suffix(".onnx")
        graph.write_bytes(model.graph())
        command = [sys.executable, "-m", "tinyweb.cli", "export", "onnx", str(graph), "--force", "-o", str(site)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1100)
        assert done.returncode == 0, done.stderr

    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(f"{served(shared(f'onnx-{name}', export)).address}/model/manifest.json")
    given = []
    for n, t in model.inputs.items():
        array = np.ascontiguousarray(t.numpy())
        given.append([n, str(array.dtype), base64.b64encode(array.tobytes()).decode()])
    used, found = page.evaluate(RUN, [backend, given])
    assert used.startswith(backend)
    for n, want in model().items():
        got = np.asarray(found[n], np.float32).reshape(want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max(), err_msg=n)
