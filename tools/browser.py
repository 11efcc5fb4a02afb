"""Find the browsers for the tests, installing them if need be; run as a script it prints the path of the Chromium.

Looked for in this order: $CHROME, an installed Chromium or Chrome, the one Playwright keeps. If there is none,
Playwright is asked to download its own, and failing that Debian's package is installed (as root).

Tests take the headless shell, Chromium's pages without the windows around them, where there is one: a quarter less
processor time. With TINYWEB_BROWSER=whole (`make test-all`) they run in what users have.

Firefox and WebKit, in which a part of the tests runs too, are those of the system: with --all, what is missing of them
is installed (Debian, as root), and what could not be had is named in one line.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import debian
from playwright.sync_api import sync_playwright

SHELL = "chromium-headless-shell"
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


def find(shell: bool = False) -> Path | None:
    """The Chromium to use, or None; raises RuntimeError if $CHROME is set to something that is not there."""
    if chosen := os.environ.get("CHROME"):
        if found := shutil.which(chosen):
            return Path(found)
        raise RuntimeError(f"CHROME={chosen} is not a program; set it to the path of a Chromium or unset it.")
    for name in (SHELL, *NAMES) if shell else NAMES:
        if found := shutil.which(name):
            return Path(found)
    if platform.system() == "Darwin":
        for name in MAC_APPLICATIONS:
            path = Path(f"/Applications/{name}.app/Contents/MacOS/{name}")
            if path.exists():
                return path
    return playwright_chromium()


def ensure(shell: bool = False) -> Path:
    """The Chromium to use, installed now if there was none; raises RuntimeError with what to do if that fails.

    `shell`: its headless shell is preferred.
    """
    if path := find(shell):
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
        debian.install(SHELL if shell else "chromium")
        if path := find(shell):
            return path
    raise RuntimeError("No Chromium was found for the tests: install Chromium or Chrome, or set CHROME to its path.")


def for_tests() -> Path:
    """As `ensure`: what this run of the tests opens pages in."""
    return ensure(shell=os.environ.get("TINYWEB_BROWSER") != "whole")


@dataclass(frozen=True)
class WebKit:
    """WebKitGTK's browser, what drives it, and the X server without a screen that it needs."""

    driver: Path
    browser: Path
    display: Path


def find_firefox() -> Path | None:
    for name in ("firefox-esr", "firefox"):
        if found := shutil.which(name):
            return Path(found)
    path = Path("/Applications/Firefox.app/Contents/MacOS/firefox")
    return path if path.exists() else None


def find_webkit() -> WebKit | None:
    driver, display = shutil.which("WebKitWebDriver"), shutil.which("Xvfb")
    folders = (Path("/usr/lib"), Path("/usr/libexec"))
    browsers = [found for folder in folders for found in sorted(folder.glob("**/webkit2gtk-4.*/MiniBrowser"))]
    return WebKit(Path(driver), browsers[0], Path(display)) if driver and display and browsers else None


OTHERS: dict[str, tuple[Callable[[], Path | WebKit | None], tuple[str, ...]]] = {
    "Firefox": (find_firefox, ("firefox-esr",)),
    "WebKit": (find_webkit, ("webkit2gtk-driver", "xvfb")),
}
"""How each is found, and Debian's packages of it."""


def missing() -> str:
    """Installs the other engines where that is possible; says in one line which could not be had, "" if none."""
    without = []
    for name, (find_it, packages) in OTHERS.items():
        if find_it():
            continue
        why = f"install {' and '.join(packages)}"
        if debian.can_install():
            try:
                debian.install(*packages)
            except RuntimeError as error:
                why = str(error)
        if not find_it():
            without.append(f"{name} ({why})")
    return f"no {', no '.join(without)}: tests in it are not run" if without else ""


if __name__ == "__main__":
    try:
        print(for_tests())
    except RuntimeError as error:
        sys.exit(f"tinyweb: {error}")
    if "--all" in sys.argv[1:] and (without := missing()):
        print(f"tinyweb: {without}", file=sys.stderr)
