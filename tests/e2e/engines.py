"""One way to use a page in Chromium, Firefox and WebKit: each by the library that its own makers' protocol has.

Chromium is driven by Playwright, Firefox by Mozilla's Marionette, WebKitGTK's MiniBrowser by WebDriver. A browser runs
for a whole session of tests; every test brings a server, so an origin, of its own.
"""

import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import browser as browser_tool  # tools/browser.py
from marionette_driver.errors import InvalidSessionIdException, MarionetteException
from marionette_driver.marionette import Marionette
from playwright.sync_api import Browser, BrowserContext, Page
from playwright.sync_api import Error as PlaywrightError
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.webkitgtk.options import Options
from selenium.webdriver.webkitgtk.service import Service

from tests.control.starting import started

START_S = 60
COMMAND_S = 90  # for one command, opening a page among them
WAIT_S = 40  # two cores may be shared with other work
DESKTOP = (1024, 768)
ENGINES = ("chromium", "firefox", "webkit")


def by_test_id(test_id: str) -> str:
    return f'[data-testid="{test_id}"]'


class Tab(ABC):
    """A tab; every wait has a limit."""

    @abstractmethod
    def goto(self, address: str) -> None: ...

    @abstractmethod
    def reload(self) -> None: ...

    @abstractmethod
    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page; what a promise resolves to."""

    @abstractmethod
    def screenshot(self, path: Path) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _click(self, selector: str) -> None: ...

    @abstractmethod
    def _fill(self, selector: str, text: str) -> None: ...

    @abstractmethod
    def _attach(self, selector: str, file: Path) -> None: ...

    def click(self, test_id: str) -> None:
        self._click(self._usable(test_id))

    def fill(self, test_id: str, text: str) -> None:
        self._fill(self._usable(test_id), text)

    def attach(self, test_id: str, file: Path) -> None:
        self._attach(self._usable(test_id), file)

    def _usable(self, test_id: str) -> str:
        selector = by_test_id(test_id)
        self.until(f"document.querySelector('{selector}')?.disabled === false")
        return selector

    def until(self, condition: str) -> None:
        """Waits for an expression to be true."""
        deadline = time.monotonic() + WAIT_S
        while not self._holds(condition):
            assert time.monotonic() < deadline, f"{condition} does not come true: {self.said()}"
            time.sleep(0.1)

    def _holds(self, condition: str) -> bool:
        return bool(self.evaluate(condition))

    def becomes(self, state: str) -> None:
        """Waits for the page's `data-state`."""
        self.until(f"""document.querySelector('{by_test_id("app")}')?.dataset.state === "{state}" """)

    def texts(self, test_id: str) -> list[str]:
        found = self.evaluate(
            f"Array.from(document.querySelectorAll('{by_test_id(test_id)}'), (found) => found.textContent)"
        )
        assert isinstance(found, list)
        return found

    def said(self) -> dict[str, list[str]]:
        """What the page tells its reader, for messages."""
        return {name: self.texts(name) for name in ("status", "error", "note")}

    def backend(self) -> str | None:
        return self.evaluate(f"document.querySelector('{by_test_id('backend')}')?.dataset.backend ?? null")


class Engine(ABC):
    """A running browser."""

    def __init__(self) -> None:
        self.tabs: list[Tab] = []

    def open(self) -> Tab:
        tab = self._open()
        self.tabs.append(tab)
        return tab

    def close(self, tab: Tab) -> None:
        self.tabs.remove(tab)
        tab.close()

    def close_tabs(self) -> None:
        """What a test opened."""
        while self.tabs:
            self.close(self.tabs[-1])

    @abstractmethod
    def _open(self) -> Tab: ...

    @abstractmethod
    def resize(self, width: int, height: int) -> None:
        """Sets the size of the pages: of open ones and of those to come."""


class ChromiumTab(Tab):
    def __init__(self, page: Page) -> None:
        self.page = page
        page.set_default_timeout(COMMAND_S * 1000)

    def goto(self, address: str) -> None:
        self.page.goto(address)

    def reload(self) -> None:
        self.page.reload()

    def evaluate(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    def _holds(self, condition: str) -> bool:
        try:
            return super()._holds(condition)
        except PlaywrightError as error:  # the page it was asked of is gone: ask the next one
            if "because of a navigation" not in str(error):
                raise
            return False

    def screenshot(self, path: Path) -> None:
        self.page.screenshot(path=path)

    def close(self) -> None:
        self.page.close()

    def _click(self, selector: str) -> None:
        self.page.click(selector)

    def _fill(self, selector: str, text: str) -> None:
        self.page.fill(selector, text)

    def _attach(self, selector: str, file: Path) -> None:
        self.page.set_input_files(selector, file)


class Chromium(Engine):
    def __init__(self, browser: Browser) -> None:
        super().__init__()
        self.browser = browser
        self.size = DESKTOP
        self.context: BrowserContext | None = None

    def _open(self) -> Tab:
        self.context = self.context or self.browser.new_context(
            viewport={"width": self.size[0], "height": self.size[1]}
        )
        return ChromiumTab(self.context.new_page())

    def close_tabs(self) -> None:
        super().close_tabs()
        if self.context:
            self.context.close()
            self.context = None

    def resize(self, width: int, height: int) -> None:
        self.size = (width, height)
        for tab in self.tabs:
            assert isinstance(tab, ChromiumTab)
            tab.page.set_viewport_size({"width": width, "height": height})


class ElementTab(Tab):
    """As Marionette and WebDriver see it: one of a browser's windows, all of which one client drives."""

    def __init__(self, client: Any, handle: str) -> None:
        self.client, self.handle = client, handle

    @abstractmethod
    def _switch(self, handle: str) -> None: ...

    def _shown(self) -> Any:
        if self.client.current_window_handle != self.handle:
            self._switch(self.handle)
        return self.client

    def close(self) -> None:
        self._shown().close()
        self._switch(self.client.window_handles[0])

    def _find(self, selector: str) -> Any:
        return self._shown().find_element("css selector", selector)

    def _click(self, selector: str) -> None:
        self._stand_still(selector)
        self._find(selector).click()

    def _stand_still(self, selector: str) -> None:
        """Waits while an element moves, as in a dialog that slides in: a click goes where it was looked for."""
        place = f"JSON.stringify(document.querySelector('{selector}')?.getBoundingClientRect())"
        deadline, before = time.monotonic() + WAIT_S, None
        while before != (now := self.evaluate(place)):
            assert time.monotonic() < deadline, f"{selector} does not stand still: {before}, {now}"
            before = now
            time.sleep(0.05)

    def _fill(self, selector: str, text: str) -> None:
        field = self._find(selector)
        field.clear()
        field.send_keys(text)

    def _attach(self, selector: str, file: Path) -> None:
        self._find(selector).send_keys(str(file))


class FirefoxTab(ElementTab):
    def _switch(self, handle: str) -> None:
        self.client.switch_to_window(handle)

    def goto(self, address: str) -> None:
        self._shown().navigate(address)

    def reload(self) -> None:
        self.goto(self.evaluate("location.href"))  # Marionette's own way passes by caches and service workers

    def evaluate(self, expression: str) -> Any:
        return self._shown().execute_script(f"return {expression}", sandbox=None)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(self._shown().screenshot(format="binary", full=False))


class Firefox(Engine):
    def __init__(self, client: Marionette) -> None:
        super().__init__()
        self.client = client
        self.resize(*DESKTOP)

    def _open(self) -> Tab:
        return FirefoxTab(self.client, self.client.open(type="tab")["handle"])

    def resize(self, width: int, height: int) -> None:
        frame = self.client.execute_script("return [outerWidth - innerWidth, outerHeight - innerHeight]", sandbox=None)
        self.client.set_window_rect(width=width + frame[0], height=height + frame[1])


class WebKitTab(ElementTab):
    def _switch(self, handle: str) -> None:
        self.client.switch_to.window(handle)

    def goto(self, address: str) -> None:
        self._shown().get(address)

    def reload(self) -> None:
        self._shown().refresh()

    def evaluate(self, expression: str) -> Any:
        return self._shown().execute_script(f"return {expression}")

    def screenshot(self, path: Path) -> None:
        path.write_bytes(self._shown().get_screenshot_as_png())


class WebKit(Engine):
    """Each tab is a window: a tab that is opened is not the one shown."""

    def __init__(self, client: webdriver.WebKitGTK) -> None:
        super().__init__()
        self.client = client
        self.size = DESKTOP

    def _open(self) -> Tab:
        self.client.switch_to.new_window("window")
        self._fit()
        tab = WebKitTab(self.client, self.client.current_window_handle)
        tab.until("document.readyState === 'complete'")  # else its first navigation may be taken for done, or wait on
        return tab

    def _fit(self) -> None:
        frame = self.client.execute_script("return [outerWidth - innerWidth, outerHeight - innerHeight]")
        self.client.set_window_size(self.size[0] + frame[0], self.size[1] + frame[1])

    def resize(self, width: int, height: int) -> None:
        self.size = (width, height)
        for tab in self.tabs:
            assert isinstance(tab, WebKitTab)
            self.client.switch_to.window(tab.handle)
            self._fit()


@contextmanager
def firefox(program: Path) -> Iterator[Engine]:
    with TemporaryDirectory() as folder:

        def start() -> Marionette:
            client = Marionette(
                bin=str(program),
                headless=True,
                port=0,
                gecko_log=f"{folder}/firefox.log",  # what is there is deleted first: never a device
                startup_timeout=START_S,
                socket_timeout=WAIT_S,
            )
            client.start_session({"strictFileInteractability": False})  # pages hide them
            return client

        client = started("Firefox", start, MarionetteException, OSError)
        client.timeout.page_load = client.timeout.script = COMMAND_S
        try:
            yield Firefox(client)
        finally:
            with suppress(InvalidSessionIdException):  # the browser is gone already
                client.quit(in_app=False)


@contextmanager
def display(program: Path) -> Iterator[str]:
    """A screen that is not there, its name as in $DISPLAY."""
    reading, writing = os.pipe()
    command = [program, "-displayfd", str(writing), "-screen", "0", "1600x1200x24", "-nolisten", "tcp"]
    with (
        subprocess.Popen(command, pass_fds=[writing], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server,
        os.fdopen(reading) as answers,
    ):
        os.close(writing)
        try:
            yield f":{answers.readline().strip()}"
        finally:
            server.terminate()
            server.wait(START_S)


@contextmanager
def webkit(programs: browser_tool.WebKit) -> Iterator[Engine]:
    options = Options()
    options.binary_location = str(programs.browser)
    options.add_argument("--automation")
    with display(programs.display) as name:
        environment = {**os.environ, "DISPLAY": name, "GDK_BACKEND": "x11"}

        def start() -> webdriver.WebKitGTK:
            return webdriver.WebKitGTK(options=options, service=Service(str(programs.driver), env=environment))

        client = started("WebKit", start, WebDriverException)
        client.set_page_load_timeout(COMMAND_S)
        client.set_script_timeout(COMMAND_S)
        try:
            yield WebKit(client)
        finally:
            client.quit()


def visit(engine: Engine, address: str) -> Tab:
    """The page in a new tab, ready, and kept on the device by its service worker."""
    tab = engine.open()
    tab.goto(address)
    tab.becomes("ready")
    tab.evaluate("navigator.serviceWorker.ready.then(() => 0)")
    return tab


def ask(tab: Tab, text: str) -> str:
    answers = f"""document.querySelectorAll('{by_test_id("message-assistant")}')"""
    number = tab.evaluate(f"{answers}.length")
    tab.fill("prompt", text)
    tab.click("send")
    tab.until(f"{answers}.length > {number}")
    tab.becomes("ready")
    return tab.texts("message-assistant")[-1]
