"""The page beside an ONNX graph: what goes in comes out as the graph computes it, in every engine."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import FilePayload, Page

from tests.control.shared import Shared
from tests.e2e.conftest import Served
from tests.e2e.engines import ENGINES, Engine, visit
from tests.e2e.pages import wait_for
from tests.export.test_onnx import write
from tinyweb import Tensor
from tinyweb.export.onnx_site import OnnxOptions, export_onnx
from tinyweb.formats.onnx import OnnxModel

X = np.random.default_rng(5).standard_normal((1, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="session")
def graph_site(shared: Shared) -> Path:
    """A small graph as a site, with the graph beside it. Not to be changed by tests."""

    def make(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        export_onnx(write(folder / "small.onnx"), folder / "site", OnnxOptions({"batch": range(1, 3)}))

    return shared("graph", make)


def wanted(folder: Path) -> list[float]:
    found = OnnxModel(folder / "small.onnx")(x=Tensor(X))["y"].numpy()
    return [float(v) for v in found.reshape(-1)]


@pytest.mark.parametrize("backend", ["wasm", "webgpu"])
def test_numbers_in_and_out(graph_site: Path, open_site: Callable[..., Page], backend: str) -> None:
    page = open_site(graph_site / "site", f"?backend={backend}")
    page.get_by_test_id("input-0-kind").select_option("npy")
    file = io.BytesIO()
    np.save(file, X)
    chosen = FilePayload(name="x.npy", mimeType="application/octet-stream", buffer=file.getvalue())
    page.locator('input[type="file"][accept=".npy"]').set_input_files(chosen)
    page.get_by_test_id("times").wait_for()
    wait_for(page, "ready")
    page.get_by_test_id("output-0-view").select_option("numbers")
    shown = page.get_by_test_id("numbers").inner_text()
    np.testing.assert_allclose([float(v) for v in shown.split(",")], wanted(graph_site), rtol=1e-3, atol=1e-4)
    assert "{ data: new Float32Array(192), shape: [1, 3, 8, 8] }" in page.get_by_test_id("code").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_every_engine(graph_site: Path, served: Callable[..., Served], engine: Engine) -> None:
    """A drawn picture, then numbers as JSON, that go in as they are."""
    tab = visit(engine, f"{served(graph_site / 'site').address}/?backend=wasm")
    tab.click("run")
    tab.until("document.querySelector('[data-testid=times]')")
    tab.becomes("ready")
    json_of = json.dumps(json.dumps(X.tolist()))
    for test_id, value in (("input-0-kind", '"json"'), ("input-0-json", json_of), ("output-0-view", '"numbers"')):
        place = f"document.querySelector('[data-testid={test_id}]')"
        tab.until(place)
        prototype = f"Object.getPrototypeOf({place})"
        tab.evaluate(f"Object.getOwnPropertyDescriptor({prototype}, 'value').set.call({place}, {value})")
        for event in ("input", "change"):
            tab.evaluate(f"{place}.dispatchEvent(new Event('{event}', {{ bubbles: true }}))")
    tab.click("run")
    tab.until("document.querySelectorAll('.times td').length > 0")
    tab.becomes("ready")
    found = [float(v) for v in tab.texts("numbers")[0].split(",")]
    np.testing.assert_allclose(found, wanted(graph_site), rtol=1e-3, atol=1e-4)
