"""Text-generation graphs, encoders with decoders, and encoders in transformers.js's layout: what their sites give in
Chromium is what onnxruntime gives, on both backends."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.control.shared import Shared
from tests.e2e.conftest import Served
from tests.e2e.pages import DESKTOP, TIMEOUT_MS, ask, find
from tests.models.onnx_texts import CHATS, COUNT, FILE, GIVEN, LOOPS, PROMPT, TEXTS, embedder, vector
from tinyweb.export import OnnxOptions, export_onnx
from tinyweb.export.chat import ExportOptions, export_chat
from tinyweb.export.embed import EmbedOptions, export_embed

ANSWERS = dict(np.load(FILE))
CHAT = """async ([backend, prompt, maxTokens]) => {
  const { load } = await import("/model/model.js");
  const chat = await load({ backend });
  const ids = [...prompt];
  for await (const id of chat.generateIds(prompt, { maxTokens, temperature: 0 })) ids.push(id);
  return [chat.info.backend, ids, [...await chat.logits(ids.slice(0, -1))]];
}"""
# the loop of docs/onnx.md
LOOP = """async ([backend, inputs, count]) => {
  const { load } = await import("/model/model.js");
  const { seq2seq } = await (await fetch("/model/manifest.json")).json();
  const model = await load({ backend });
  const source = Object.fromEntries(inputs.map(([name, dtype, shape, numbers]) =>
    [name, { data: dtype === "int64" ? BigInt64Array.from(numbers, BigInt) : Float32Array.from(numbers), shape }]));
  await model.run(source, { function: "encode", outputs: [] });
  const given = [...seq2seq.begin];
  const ids = [given.shift()];
  let last;
  while (ids.length < count) {
    last = await model.run({ ids: Int32Array.from(ids) }, { function: "decode" });
    ids.push(given.shift() ?? last.next[0]);
  }
  return [model.info.backend, ids, [...last.logits]];
}"""
EMBED = """async ([backend, texts]) => {
  const { load } = await import("/model/model.js");
  const model = await load({ backend });
  return [model.info.backend, (await model.embed(texts)).map((vector) => [...vector])];
}"""


def quiet(*_: Any) -> None:
    pass


@pytest.fixture
def opened(context: BrowserContext, served: Callable[..., Served]) -> Callable[[Path], Page]:
    """A page of the site's origin that loads nothing by itself."""

    def open_one(site: Path) -> Page:
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.goto(f"{served(site).address}/model/manifest.json")
        return page

    return open_one


def check(name: str, ids: list[int], logits: list[float]) -> None:
    want = ANSWERS[f"{name}/logits"]
    assert ids == ANSWERS[f"{name}/ids"].tolist()
    np.testing.assert_allclose(logits, want, atol=1e-4 * np.abs(want).max())


@pytest.fixture
def chat_site(shared: Shared, model_folder: Path) -> Callable[[str], Path]:
    def export(name: str) -> Path:
        def make(site: Path) -> None:
            folder = CHATS[name](site.with_name(f"{name}-model"), model_folder)
            export_chat(folder, site, ExportOptions(context=48, cache="f32", force=True), quiet)

        return shared(name, make)

    return export


@pytest.mark.parametrize("backend", ["wasm", "webgpu"])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n != "chat-grouped" else ()) for n in CHATS]
)
def test_the_ids_of_a_chat(
    name: str, backend: str, chat_site: Callable[[str], Path], opened: Callable[[Path], Page]
) -> None:
    used, ids, logits = opened(chat_site(name)).evaluate(CHAT, [backend, PROMPT, COUNT])
    assert used == backend
    check(name, ids, logits)


@pytest.mark.slow
def test_the_page_of_a_chat(chat_site: Callable[[str], Path], open_site: Callable[..., Page]) -> None:
    """What a random model says makes no sense, but it is said, and its end is told."""
    page = open_site(chat_site("chat-grouped"), **DESKTOP)
    assert ask(page, "Hello") != ""
    expect(page.get_by_test_id("message-assistant")).to_have_count(1)
    assert re.search(r"\d", page.get_by_test_id("speed").inner_text())


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("loop-whisper", "wasm"),
        pytest.param("loop-whisper", "webgpu", marks=pytest.mark.slow),
        pytest.param("loop-t5", "wasm", marks=pytest.mark.slow),
        pytest.param("loop-t5", "webgpu", marks=pytest.mark.slow),
    ],
)
def test_the_loop_around_an_encoder_and_its_decoder(
    name: str, backend: str, shared: Shared, opened: Callable[[Path], Page]
) -> None:
    write, kind, begin = LOOPS[name]

    def export(site: Path) -> None:
        folder = write(site.with_name(f"{name}-model"))
        dims = {"encoder_sequence_length": range(1, 17)} if kind == "t5" else {}
        export_onnx(folder, site, OnnxOptions(dims, force=True))

    given = [[n, str(a.dtype), a.shape, a.reshape(-1).tolist()] for n, a in GIVEN[kind].items()]
    page = opened(shared(name, export))
    used, ids, logits = page.evaluate(LOOP, [backend, given, len(begin) + COUNT])
    assert used == backend
    check(name, ids, logits)


@pytest.fixture
def embed_site(shared: Shared) -> Path:
    def export(site: Path) -> None:
        options = EmbedOptions(quant="f32", lengths=(24,), activations="float", force=True)
        export_embed(embedder(site.with_name("embed-graph-model")), site, options, quiet)

    return shared("embed-graph", export)


@pytest.mark.parametrize("backend", ["wasm", "webgpu"])
def test_the_vectors_of_texts(backend: str, embed_site: Path, opened: Callable[[Path], Page]) -> None:
    used, found = opened(embed_site).evaluate(EMBED, [backend, TEXTS])
    assert used == backend
    want = [vector(ANSWERS[f"embed/{i}"]) for i in range(len(TEXTS))]
    np.testing.assert_allclose(found, want, atol=1e-5)


@pytest.mark.slow
def test_the_search_page_of_a_graph(embed_site: Path, open_site: Callable[..., Page]) -> None:
    """A passage is most like itself, whatever the weights are."""
    page = open_site(embed_site, **DESKTOP)
    page.get_by_test_id("text").fill("the cat sat.\n\ntrees, trees: a b c.\n\nquery the tree")
    page.get_by_test_id("add").click()
    page.get_by_test_id("documents").get_by_text("3 passages", exact=True).wait_for()
    for text in ("the cat sat.", "query the tree"):
        assert find(page, text)[0].strip() == text
