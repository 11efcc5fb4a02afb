"""Take the pictures of docs/images from a site that `tinyweb export chat` wrote.

usage: python tools/screenshots.py SITE FOLDER
"""

import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import browser
from playwright.sync_api import Browser, Page, sync_playwright

from tinyweb.serve import open_server

CONVERSATION = ("Hello, my name is Mira!", "What is 7 plus 5?", "Do you remember my name?")
ANSWER_TIMEOUT_MS = 120_000


@dataclass(frozen=True)
class Picture:
    name: str
    width: int
    height: int
    scheme: str  # "light" or "dark"
    phone: bool


PICTURES = (
    Picture("chat.png", 1280, 800, "light", phone=False),
    Picture("chat-dark.png", 1280, 800, "dark", phone=False),
    Picture("chat-phone.png", 390, 844, "light", phone=True),
)


def converse(page: Page) -> None:
    """Hold the conversation, waiting for each answer to end."""
    for number, message in enumerate(CONVERSATION, start=1):
        page.get_by_test_id("prompt").fill(message)
        page.get_by_test_id("send").click(timeout=ANSWER_TIMEOUT_MS)
        answers = page.get_by_test_id("message-assistant")
        answers.nth(number - 1).wait_for(timeout=ANSWER_TIMEOUT_MS)
        page.get_by_test_id("send").wait_for(timeout=ANSWER_TIMEOUT_MS)  # it is `stop` while the model talks


def take(chromium: Browser, address: str, picture: Picture, path: Path) -> None:
    context = chromium.new_context(
        viewport={"width": picture.width, "height": picture.height},
        device_scale_factor=2 if picture.phone else 1,
        color_scheme="dark" if picture.scheme == "dark" else "light",
        reduced_motion="reduce",
        is_mobile=picture.phone,
        has_touch=picture.phone,
    )
    with context:
        page = context.new_page()
        page.goto(address)
        converse(page)
        page.screenshot(path=path)
    print(f"{path}: {picture.width} x {picture.height}, {path.stat().st_size // 1024} KB")


def main() -> None:
    site, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    server = open_server(site)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser.ensure(), args=list(browser.FLAGS))
            for picture in PICTURES:
                take(chromium, f"http://localhost:{server.server_port}/", picture, folder / picture.name)
            chromium.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    main()
