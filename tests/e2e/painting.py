"""What tests of exported image sites do with the page: paint, look at the pixels."""

import base64
import io
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from playwright.sync_api import Page, expect

from tests.e2e.pages import TIMEOUT_MS

Pixels = npt.NDArray[np.uint8]


def paint(page: Page, prompt: str, seed: int = 7, steps: int | None = None) -> Pixels:
    """Ask for a picture; its pixels (height, width, 3)."""
    page.get_by_test_id("seed").fill(str(seed))
    if steps is not None:
        page.get_by_test_id("steps").fill(str(steps))
    page.get_by_test_id("prompt").fill(prompt)
    page.get_by_test_id("generate").click()
    page.locator(f'[data-testid="image"][alt="{prompt}"][data-seed="{seed}"], [data-testid="error"]').first.wait_for(
        timeout=2 * TIMEOUT_MS
    )
    assert page.get_by_test_id("error").count() == 0, page.get_by_test_id("error").inner_text()
    return shown(page)


def begin(page: Page, prompt: str, steps: int = 50) -> None:
    """Ask for a picture that takes long; returns after its first steps."""
    page.get_by_test_id("steps").fill(str(steps))
    page.get_by_test_id("prompt").fill(prompt)
    page.get_by_test_id("generate").click()
    page.get_by_test_id("preview").wait_for(timeout=TIMEOUT_MS)


def pictures(page: Page) -> list[str]:
    """The prompts of the gallery, newest first."""
    return [title or "" for title in page.get_by_test_id("picture").evaluate_all("(all) => all.map((p) => p.title)")]


def expect_pictures(page: Page, *prompts: str) -> None:
    """The gallery has these, newest first."""
    expect(page.get_by_test_id("picture")).to_have_count(len(prompts), timeout=TIMEOUT_MS)
    assert pictures(page) == list(prompts)


def shown(page: Page) -> Pixels:
    """The pixels of the finished picture."""
    url = page.get_by_test_id("image").evaluate(
        """async (image) => {
          await image.decode();
          const canvas = document.createElement("canvas");
          [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
          canvas.getContext("2d").drawImage(image, 0, 0);
          return canvas.toDataURL();
        }"""
    )
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))).convert("RGB"))


def psnr(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Likeness of two pictures in dB."""
    error = np.mean((a.astype(np.float64) - b.astype(np.float64)) ** 2)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))
