"""Find a Chromium for the tests, installing one if need be; run as a script it prints the path.

Looked for in this order: $CHROME, an installed Chromium or Chrome, the one Playwright keeps. If there is none,
Playwright is asked to download its own, and failing that Debian's package is installed (as root).
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import debian
from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
MAC_APPLICATIONS = ("Google Chrome", "Chromium", "Microsoft Edge")

# WebGPU on the software adapter, and no request of the browser's own.
FLAGS = (
    "--no-sandbox",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
)


def playwright_chromium() -> Path | None:
    """The Chromium that Playwright has downloaded, if it has."""
    with sync_playwright() as playwright:
        path = Path(playwright.chromium.executable_path)
    return path if path.exists() else None


def find() -> Path | None:
    """The Chromium to use, or None; raises RuntimeError if $CHROME is set to something that is not there."""
    if chosen := os.environ.get("CHROME"):
        if found := shutil.which(chosen):
            return Path(found)
        raise RuntimeError(f"CHROME={chosen} is not a program; set it to the path of a Chromium or unset it.")
    for name in NAMES:
        if found := shutil.which(name):
            return Path(found)
    if platform.system() == "Darwin":
        for name in MAC_APPLICATIONS:
            path = Path(f"/Applications/{name}.app/Contents/MacOS/{name}")
            if path.exists():
                return path
    return playwright_chromium()


def ensure() -> Path:
    """The Chromium to use, installed now if there was none; raises RuntimeError with what to do if that fails."""
    if path := find():
        return path
    try:
        download = subprocess.run(
            [sys.executable, "-m", "playwright", "install", "chromium"], capture_output=True, timeout=300
        )
        if download.returncode == 0 and (path := playwright_chromium()):
            return path
    except subprocess.TimeoutExpired:
        pass  # no route to Playwright's server; Debian's mirror may be closer
    if debian.can_install():
        debian.install("chromium")
        if path := find():
            return path
    raise RuntimeError("No Chromium was found for the tests: install Chromium or Chrome, or set CHROME to its path.")


if __name__ == "__main__":
    try:
        print(ensure())
    except RuntimeError as error:
        sys.exit(f"tinyweb: {error}")
