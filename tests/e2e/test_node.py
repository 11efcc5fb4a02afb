"""The JavaScript library in Node: `load()` takes every kind of bundle from a folder, and what comes out has meaning."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.e2e.pages import PAGES, ExportedPage
from tinyweb.export.site import BUILT

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "assets" / "models" / "tinyyolo" / "test_images"
SITES = {page.task: page for page in PAGES}
Exported = Callable[[ExportedPage], Path]


def node(tmp_path: Path, site: Path, task: str, body: str) -> Any:
    """What a program returns as JSON; in it `model` is the site's model."""
    library = (BUILT / "library").as_uri()
    program = tmp_path / "program.mjs"
    program.write_text(f"""
import {{ load }} from "{library}/tinyweb-load.js";
import {{ ChatSession, OpenAI }} from "{library}/tinyweb-openai.js";
import {{ readFileSync }} from "node:fs";
const model = await load("{(site / "model").as_posix()}", {{ task: "{task}", backend: "wasm" }});
const run = async () => {{ {body} }};
console.log(JSON.stringify(await run()));
await model.dispose();
""")
    done = subprocess.run(["node", program], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_chat(exported_page: Exported, tmp_path: Path) -> None:
    body = """
    const session = new ChatSession(model, { temperature: 0, maxTokens: 40 });
    let text = "";
    for await (const part of session.send("What is 2 + 3?")) text += part.text;
    const messages = [{ role: "user", content: "What is 2 + 3?" }];
    const openai = new OpenAI({ chat: model });
    const { choices } = await openai.chat.completions.create({ messages, temperature: 0, max_tokens: 40 });
    return [text, choices[0].message.content, choices[0].finish_reason];
    """
    text, again, reason = node(tmp_path, exported_page(SITES["chat"]), "chat", body)
    assert "5" in text
    assert [again, reason] == [text, "stop"]


@pytest.mark.slow
def test_a_detector(exported_page: Exported, tmp_path: Path) -> None:
    truth = json.loads((IMAGES / "ground_truth.json").read_text())["images"]["clean_card.png"]
    picture = np.asarray(Image.open(IMAGES / "clean_card.png").convert("RGBA"))
    (tmp_path / "picture.rgba").write_bytes(picture.tobytes())
    height, width, _ = picture.shape
    body = f"""
    const data = new Uint8Array(readFileSync("picture.rgba"));
    return model.detect({{ data, width: {width}, height: {height} }}, {{ confidence: 0.5 }});
    """
    found = node(tmp_path, exported_page(SITES["detect"]), "detect", body)
    assert sorted(one["label"] for one in found) == sorted(one["class"] for one in truth["objects"])


@pytest.mark.slow
def test_an_embedder(exported_page: Exported, tmp_path: Path) -> None:
    body = """
    const input = ["a cat sleeps", "The cat is sleeping on the sofa.", "the law on taxes"];
    const { data } = await new OpenAI({ embed: model }).embeddings.create({ input });
    return data.map(({ embedding }) => embedding);
    """
    vectors = np.array(node(tmp_path, exported_page(SITES["embed"]), "embed", body))
    near = vectors @ vectors.T
    assert np.allclose(np.diag(near), 1, atol=1e-5)
    assert near[0, 1] > near[0, 2] + 0.3


@pytest.mark.slow
def test_an_image_model(exported_page: Exported, tmp_path: Path) -> None:
    body = """
    const paint = () => model.generateRgba("a red circle on a white background", { seed: 7 });
    const [first, second] = [await paint(), await paint()];
    const { data, width, height } = first;
    const middle = 4 * (width * (height >> 1) + (width >> 1));
    const same = data.every((x, i) => x === second.data[i]);
    return { width, height, same, corner: [...data.slice(0, 4)], middle: [...data.slice(middle, middle + 4)] };
    """
    made = node(tmp_path, exported_page(SITES["image"]), "image", body)
    assert made["same"] and made["width"] == made["height"] >= 64
    red, green, blue, alpha = made["middle"]
    assert red > max(green, blue) + 40 and alpha == 255
    assert min(made["corner"]) > 180
