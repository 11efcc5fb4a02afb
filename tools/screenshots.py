"""Take the pictures of docs/images: every page on desktop and phone, in light and dark.

usage: python tools/screenshots.py FOLDER TASK=SITE…        SITE: what `tinyweb export TASK` wrote
"""

import io
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import browser
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tinyweb.serve import open_server

PICTURES = Path(__file__).resolve().parent.parent / "assets/models/tinyyolo/test_images"
TIMEOUT_MS = 300_000
COLOURS = 256  # of a picture: pages are flat, and the repository keeps every version


@dataclass(frozen=True)
class Device:
    suffix: str
    options: dict[str, Any]


DEVICES = (
    Device("", {"viewport": {"width": 1280, "height": 800}}),
    Device(
        "-phone",
        {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True},
    ),
)


def idle(page: Page) -> None:
    page.locator("[data-testid=app][data-state=ready]").wait_for()


def chat(page: Page) -> None:
    for number, message in enumerate(("Hello, my name is Mira!", "What is 7 plus 5?", "Do you remember my name?")):
        page.get_by_test_id("prompt").fill(message)
        page.get_by_test_id("send").click()
        page.get_by_test_id("message-assistant").nth(number).wait_for()
        idle(page)


def detect(page: Page) -> None:
    page.get_by_test_id("file").set_input_files(PICTURES / "five_cards.jpg")
    expect(page.get_by_test_id("boxes")).not_to_be_empty(timeout=TIMEOUT_MS)
    idle(page)


def image(page: Page) -> None:
    for prompt in ("a blue star on a yellow background", "a green heart on a white background", "a red circle"):
        page.get_by_test_id("prompt").fill(prompt)
        page.get_by_test_id("generate").click()
        page.locator("[data-testid=app][data-state=generating]").wait_for()
        idle(page)
        page.get_by_test_id("image").wait_for()


def embed(page: Page) -> None:
    page.get_by_test_id("add-example").or_(page.get_by_test_id("document")).first.wait_for()
    if page.get_by_test_id("add-example").count():
        page.get_by_test_id("add-example").click()
    page.get_by_test_id("example").first.click()
    page.get_by_test_id("result-item").first.wait_for()


SCENES: dict[str, Callable[[Page], None]] = {"chat": chat, "detect": detect, "image": image, "embed": embed}


def save(page: Page, path: Path) -> None:
    """Write what the page shows as a PNG with a palette."""
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    shot.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {shot.width} x {shot.height}, {path.stat().st_size // 1024} KB")


def take(chromium: Browser, address: str, task: str, folder: Path) -> None:
    for device in DEVICES:
        with chromium.new_context(**device.options, color_scheme="light", reduced_motion="reduce") as context:
            context.set_default_timeout(TIMEOUT_MS)
            page = context.new_page()
            page.goto(address)
            idle(page)
            while page.get_by_test_id("dismiss").count():  # that this machine's GPU is none
                page.get_by_test_id("dismiss").first.click()
            SCENES[task](page)
            page.mouse.move(0, 0)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
                page.locator(f"html[data-theme={scheme}]").wait_for()
                page.wait_for_timeout(300)
                save(page, folder / f"{task}{device.suffix}{'-dark' if scheme == 'dark' else ''}.png")


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser.ensure(), args=list(browser.FLAGS))
        for argument in sys.argv[2:]:
            task, _, site = argument.partition("=")
            server = open_server(Path(site))
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                take(chromium, f"http://localhost:{server.server_port}/", task, folder)
            finally:
                server.shutdown()
                server.server_close()
                thread.join()
        chromium.close()


if __name__ == "__main__":
    main()
