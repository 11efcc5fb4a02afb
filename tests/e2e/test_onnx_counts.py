"""Graphs whose results have as many rows as values say, in Chromium: both backends give what a call gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext

from tests.control.shared import Shared
from tests.e2e.pages import TIMEOUT_MS
from tests.export import counted_graphs
from tinyweb import Tensor
from tinyweb.export import OnnxOptions, export_onnx
from tinyweb.formats.onnx import OnnxModel

RUN = """async ([backend, calls]) => {
  const { load } = await import("/model/model.js");
  const model = await load({ backend });
  const said = [];
  for (const call of calls) {
    const given = Object.entries(call).map(([n, [shape, numbers]]) => [n, { data: Float32Array.from(numbers), shape }]);
    const found = Object.entries(await model.run(Object.fromEntries(given)));
    said.push(Object.fromEntries(found.map(([n, a]) => [n, [a.shape, Array.from(a, Number)]])));
  }
  return [model.info.backend, said];
}"""


@pytest.mark.parametrize("backend", ["wasm", "webgpu"])
@pytest.mark.parametrize("name", ["boxes", pytest.param("chosen", marks=pytest.mark.slow)])
def test_as_a_call(
    name: str, backend: str, shared: Shared, served: Callable[..., Any], context: BrowserContext
) -> None:
    content, given = counted_graphs.graph(name), counted_graphs.calls(name)

    def export(site: Path) -> None:
        graph = site.with_suffix(".onnx")
        graph.write_bytes(content)
        export_onnx(graph, site, OnnxOptions(force=True))

    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(f"{served(shared(f'counts-{name}', export)).address}/model/manifest.json")
    told = [{n: [v.shape, v.ravel().tolist()] for n, v in call.items()} for call in given]
    used, said = page.evaluate(RUN, [backend, told])
    assert used.startswith(backend)
    model = OnnxModel(content)
    for call, found in zip(given, said, strict=True):
        for n, t in model(**{k: Tensor(v) for k, v in call.items()}).items():
            shape, numbers = found[n]
            np.testing.assert_allclose(np.reshape(numbers, shape), t.numpy(), rtol=1e-5, err_msg=n)
