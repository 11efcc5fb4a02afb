"""Graphs as PyTorch, scikit-learn and onnxruntime's quantiser write them, exported again as sites: in Chromium both
backends give what onnxruntime gives."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext

from tests.control.shared import Shared
from tests.e2e.pages import TIMEOUT_MS
from tests.formats.onnx.answered import answered, networks, peers
from tinyweb.export import OnnxOptions, export_onnx
from tinyweb.formats.onnx import OnnxModel

QUICK = {"forest", "bert-int8"}
RUN = """async ([backend, inputs]) => {
  const arrays = { float32: Float32Array, int64: BigInt64Array };
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const { load } = await import("/model/model.js");
  const model = await load({ backend });
  const given = inputs.map(([name, dtype, shape, data]) => [name, { data: new arrays[dtype](bytes(data)), shape }]);
  const found = await model.run(Object.fromEntries(given));
  return [model.info.backend, Object.fromEntries(Object.entries(found).map(([n, a]) => [n, Array.from(a, Number)]))];
}"""


@pytest.mark.parametrize("backend", ["wasm", "webgpu"])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in (*peers(), *networks())]
)
def test_as_onnxruntime(
    name: str, backend: str, shared: Shared, served: Callable[..., Any], context: BrowserContext
) -> None:
    graph = answered(name)

    def export(site: Path) -> None:
        file = site.with_suffix(".onnx")
        file.write_bytes(graph.model)
        ports = OnnxModel(file).inputs
        open_ones = {f"{p.name}[{axis}]": range(1, 17) for p in ports for axis, n in enumerate(p.shape) if n is None}
        export_onnx(file, site, OnnxOptions(open_ones, force=True))

    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(f"{served(shared(f'onnx-{name}', export)).address}/model/manifest.json")
    given = [
        [n, str(a.dtype), a.shape, base64.b64encode(np.ascontiguousarray(a)).decode()] for n, a in graph.inputs.items()
    ]
    used, found = page.evaluate(RUN, [backend, given])
    assert used.startswith(backend)
    graph.check(found)
