"""Many sequences in one step, their positions in pages: each gives what it gives alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.models.decoder_folders import STATES
from tests.models.test_architectures import MODELS
from tinyweb import Tensor
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models import load
from tinyweb.models.chat import Chat, Settings
from tinyweb.models.decoder.batch import Batch, Row

CONTEXT, ROWS = 29, 8
SAMPLES = ("Llama 3", "Gemma 2", "gpt-oss", "LFM2", "DeepSeek-V3", "GPT-2", "Bloom")
ANSWERS = (
    ("Hello!", Settings(temperature=0, max_tokens=30)),
    ("What is the capital of France?", Settings(temperature=0.9, top_p=0.9, top_k=0, seed=3, max_tokens=30)),
    ("Tell me a story about a dog and a cat.", Settings(temperature=0.7, seed=5, max_tokens=30)),
    ("Count to ten.", Settings(temperature=0.5, repetition_penalty=1.3, seed=-7, max_tokens=30)),
)


class Pool:
    """Pages in an order of chance, as sequences that come and go leave them."""

    def __init__(self, batch: Batch, random: np.random.Generator):
        self.batch = batch
        self.free = [int(p) for p in random.permutation(np.arange(batch.reserved, batch.pages))]

    def grow(self, pages: list[int], tokens: int) -> None:
        while len(pages) < self.batch.pages_for(tokens):
            pages.append(self.free.pop())


def paged_logits(batch: Batch, texts: list[np.ndarray], random: np.random.Generator) -> list[np.ndarray]:
    """Those of every token of several texts, read side by side in steps of any sizes."""
    pool, at = Pool(batch, random), [0] * len(texts)
    pages: list[list[int]] = [[] for _ in texts]
    out: list[list[np.ndarray]] = [[] for _ in texts]
    while any(a < len(t) for a, t in zip(at, texts)):
        rows: list[Row] = []
        owners: list[int] = []
        for i in random.permutation(len(texts)):
            count = min(int(random.integers(1, 6)), len(texts[i]) - at[i], ROWS - len(rows))
            for _ in range(count):
                pool.grow(pages[i], at[i] + 1)
                rows.append(Row(int(texts[i][at[i]]), at[i], pages[i], Settings(temperature=0)))
                owners.append(i)
                at[i] += 1
        chosen = batch.step(rows)
        for place, i in enumerate(owners):
            out[i].append(batch.row_logits(place))
            assert chosen[place] == out[i][-1].argmax()
    return [np.stack(each) for each in out]


@pytest.mark.parametrize(
    "name",
    [name if name in SAMPLES else pytest.param(name, marks=pytest.mark.slow) for name in MODELS if name not in STATES],
)
def test_every_architecture_with_positions(name: str, tmp_path: Path) -> None:
    MODELS[name].write(tmp_path)
    model, random = load(tmp_path, context=CONTEXT), np.random.default_rng(11)
    # of the longest text the scaling of positions may depend on a text's length: it is that of the context
    texts = [random.integers(3, 67, n).astype(np.int32) for n in (CONTEXT, CONTEXT, 7, 18)]
    got = paged_logits(Batch(model, 24, ROWS), texts, random)
    for each, text in zip(got, texts, strict=True):
        filled = np.concatenate([text, np.full(CONTEXT - len(text), 5, np.int32)])
        want = model(Tensor(filled[None])).numpy()[0, : len(text)]
        np.testing.assert_allclose(each, want, atol=1e-4)


@pytest.mark.parametrize("name", ["Mamba-2"])
def test_states_have_no_pages(name: str, tmp_path: Path) -> None:
    MODELS[name].write(tmp_path)
    with pytest.raises(NotImplementedError, match="states"):
        Batch(load(tmp_path, context=CONTEXT), 4)


def answers(batch: Batch, prompts: list[list[int]], settings: list[Settings], eos: tuple[int, ...]) -> list[list[int]]:
    """The answers to prompts that are read and continued side by side."""
    pool, live = Pool(batch, np.random.default_rng(2)), list(range(len(prompts)))
    ids, at = [list(p) for p in prompts], [0] * len(prompts)
    pages: list[list[int]] = [[] for _ in prompts]
    while live:
        rows, asking = list[Row](), list[int]()
        for i in live:
            while at[i] < len(ids[i]) and len(rows) < ROWS:
                pool.grow(pages[i], at[i] + 1)
                last = at[i] == len(ids[i]) - 1
                rows.append(Row(ids[i][at[i]], at[i], pages[i], settings[i] if last else None, ids[i]))
                asking += [i] if last else []
                at[i] += 1
        for i, token in zip(asking, batch.step(rows), strict=True):
            ids[i].append(token)
            if token in eos or len(ids[i]) - len(prompts[i]) == settings[i].max_tokens:
                live.remove(i)
    return [each[len(p) :] for each, p in zip(ids, prompts)]


def test_answers_are_those_of_a_chat(model_folder: Path) -> None:
    """Likeliest and drawn ones, with and without cuts and penalties."""
    model, tokenizer = load(model_folder), Tokenizer.from_folder(model_folder)
    chat = Chat(model, tokenizer)
    prompts = [tokenizer.prompt([{"role": "user", "content": text}]) for text, _ in ANSWERS]
    want = [list(chat.generate_ids(p, s)) for p, (_, s) in zip(prompts, ANSWERS)]
    assert answers(Batch(model, 64, ROWS), prompts, [s for _, s in ANSWERS], tokenizer.eos) == want


@pytest.mark.parametrize(
    "device", ["CPU", *(pytest.param(d, marks=pytest.mark.slow) for d in ("WASM", "WEBGPU", "OPENCL"))]
)
def test_golden_tokens(model_folder: Path, device: str) -> None:
    items = json.loads((model_folder / "golden.json").read_text())["items"][:ROWS]
    model, tokenizer = load(model_folder, device=device), Tokenizer.from_folder(model_folder)
    settings = [Settings(temperature=0, max_tokens=len(item["output_ids"])) for item in items]
    got = answers(Batch(model, 160, ROWS), [item["prompt_ids"] for item in items], settings, tokenizer.eos)
    assert got == [item["output_ids"] for item in items]


@pytest.mark.parametrize("kind", ["f16", "q8", "q4"])
def test_pages_of_every_kind(kind: str, tmp_path: Path) -> None:
    """Rows that are rounded may be rounded otherwise where sums differ in their last bits: few are."""
    MODELS["Llama 3"].write(tmp_path)
    model, random = load(tmp_path, context=CONTEXT, cache=kind), np.random.default_rng(4)
    texts = [random.integers(3, 67, CONTEXT).astype(np.int32) for _ in range(2)]
    got = paged_logits(Batch(model, 8, ROWS), texts, random)
    for each, text in zip(got, texts):
        want = model(Tensor(text[None])).numpy()[0]
        assert (np.abs(each - want).max(-1) < 1e-3 * want.std()).mean() > 0.5


def test_what_a_sequence_left_in_a_page_is_nothing_to_the_next(model_folder: Path) -> None:
    """Pages are not cleared: what is there, even if it is no number, is left out."""
    model = load(model_folder, quant="f32", cache="f32")
    clean, used = Batch(model, 4, ROWS), Batch(model, 4, ROWS)
    for cache in used.caches:
        noise = np.full(tuple(int(s) for s in cache.rows.shape), 3e38, np.float32)
        cache.rows.assign(Tensor(noise)).realize()
    rows = [
        Row(7 + i, i, list(range(clean.reserved, clean.reserved + 2)), Settings(temperature=0)) for i in range(ROWS)
    ]
    assert clean.step(rows) == used.step(rows)
    for place in range(ROWS):
        np.testing.assert_array_equal(clean.row_logits(place), used.row_logits(place))
