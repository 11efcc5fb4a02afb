"""The browser's rows: their tasks name works and sides that exist, and the driver runs our side in Chromium."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from benchmarks.browser import rows, works
from benchmarks.browser.chromium import HERE, Chromium
from benchmarks.browser.rows import CHROMIUM, same_tokens


def test_rows_name_what_there_is() -> None:
    found = rows.rows()
    assert len({row.name for row in found}) == len(found)
    for row in found:
        for side in row.sides:
            if side.worker != CHROMIUM:
                continue
            work, library, threads = side.task.split("/")
            assert work in {*works.FUNCTIONS, *works.LANGUAGE, works.LOAD}
            assert library.split("-")[0] in {*rows.NAMES, "bandwidth"} and int(threads) in (1, 2)


def test_tokens_that_mostly_agree() -> None:
    ours = {"tokens": np.arange(8)}
    assert same_tokens(ours, {"tokens": np.array([0, 1, 2, 3, 4, 5, 0, 0])}) is None
    said = same_tokens(ours, {"tokens": np.array([0, 1, 2, 3, 4, 0, 0, 0])})
    assert said is not None and "62%" in said


def test_lock_file_pins_every_peer() -> None:
    lock = (HERE / "package-lock.json").read_text()
    for package in ("onnxruntime-web", "@jax-js/jax", "@wllama/wllama", "@huggingface/transformers"):
        assert f'"node_modules/{package}"' in lock


def test_our_side_in_chromium(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small product, exported and run in a page, is what NumPy says of the inputs the page makes."""
    monkeypatch.setitem(works.FUNCTIONS, "tiny", works._square(24))
    # in a thread of its own: Playwright allows one browser per thread, and other tests have theirs in this one
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(_in_chromium).result()


def _in_chromium() -> None:
    chromium = Chromium()
    a, b = (centred(24 * 24, seed).reshape(24, 24) for seed in (1, 2))
    try:
        for threads, adapter in ((1, "1 CPU thread"), (2, "2 CPU threads")):
            task = f"tiny/tinyweb-wasm/{threads}"
            result = chromium.result(task)
            assert result is not None
            np.testing.assert_allclose(result["output"], (a @ b).ravel(), atol=1e-4)
            assert 0 < chromium.run(task, 2) < 60
            assert chromium.notes(task)["adapter"] == adapter
    finally:
        chromium.close()


def centred(count: int, seed: int) -> np.ndarray:
    """pages/inputs.js in Python."""
    state, values = (seed * 2654435761 + 12345) % 2**32, []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        values.append(state / 2**32)
    return np.array(values, np.float32) - np.float32(0.5)
