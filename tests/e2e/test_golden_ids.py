"""The model's golden token ids, greedily, through the generated loader in Chromium: every prompt, both backends.

Chromium's WebGPU is SwiftShader here, the slowest of all: `make test` asks it every third prompt.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.conftest import ExportedSite, Served

LOAD = """async (backend) => {
  const { load } = await import("./model/model.js");
  window.chat = await load({ backend });
  return window.chat.info;
}"""
GENERATE = """async ([ids, maxTokens]) => {
  const out = [];
  for await (const id of window.chat.generateIds(ids, { maxTokens, temperature: 0 })) out.push(id);
  return out;
}"""
LOGITS = "async (ids) => [...await window.chat.logits(ids)]"


@pytest.fixture(scope="module")
def golden(model_folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((model_folder / "golden.json").read_text())
    return loaded


@pytest.fixture
def page(
    request: pytest.FixtureRequest, chromium: Browser, exported: ExportedSite, served: Callable[..., Served]
) -> Iterator[Page]:
    """A page of the f16 site with `window.chat` loaded on one backend."""
    site = served(exported("f16"))
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(f"{site.address}/model/model.d.ts")  # same origin and isolation, no page that loads a second model
        page.evaluate("history.replaceState(null, '', '/')")
        info = page.evaluate(LOAD, request.param)
        assert info["backend"] == request.param
        yield page
        page.evaluate("window.chat.dispose()")


EVERY = [pytest.param(name, 1, id=name) for name in ("wasm", "wasm-single")]
SLOWER = [pytest.param("webgpu", 3, id="webgpu"), pytest.param("webgpu", 1, id="webgpu-all", marks=pytest.mark.slow)]


@pytest.mark.parametrize(("page", "every"), [*EVERY, *SLOWER], indirect=["page"])
def test_golden_ids(page: Page, golden: dict[str, Any], every: int) -> None:
    differing = {}
    for item in golden["items"][::every]:
        ids = page.evaluate(GENERATE, [item["prompt_ids"], golden["max_new_tokens"]])
        if ids != item["output_ids"]:
            differing[item["id"]] = (item["output_ids"], ids)
    assert differing == {}
    for item in golden["items"][:3]:
        logits = page.evaluate(LOGITS, item["prompt_ids"])
        assert [logits[i] for i in item["top5_ids"]] == pytest.approx(item["top5_logits"], abs=5e-3)
