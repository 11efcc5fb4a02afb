"""Starting a Chromium for tests."""

import browser as browser_tool  # tools/browser.py
from playwright.sync_api import Browser, BrowserType, Error

from tests.control.starting import started

START_MS = 60_000


def launch(kind: BrowserType, *flags: str) -> Browser:
    """A headless Chromium with WebGPU on SwiftShader; tools/watchdog.py can ask it for its pages."""
    args = [*browser_tool.FLAGS, "--remote-debugging-port=0", *flags]
    path = browser_tool.for_tests()
    return started("Chromium", lambda: kind.launch(executable_path=path, args=args, timeout=START_MS), Error)
