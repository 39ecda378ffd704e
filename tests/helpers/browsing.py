"""A real browser without a window: Chromium, driven by Selenium, where both are installed."""

from __future__ import annotations

import importlib.util
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from helpers.nodejs import PACKAGES

AXE = PACKAGES / "axe-core" / "axe.min.js"
needs_axe = pytest.mark.skipif(
    not AXE.is_file(),
    reason="axe-core is missing: cd runtimes/javascript && npm install --ignore-scripts",
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
LACKING = (
    None
    if CHROMIUM and DRIVER and importlib.util.find_spec("selenium")
    else "needs chromium, chromium-driver and selenium"
)
needs_browser = pytest.mark.skipif(LACKING is not None, reason=str(LACKING))


# Whether a finger reaches an element: inside the viewport, and with nothing above its centre.
IN_REACH = """(selector) => {
  const node = document.querySelector(selector);
  const { left, top, right, bottom, width, height } = node.getBoundingClientRect();
  const { clientWidth, clientHeight } = document.documentElement;
  const isInside = left >= 0 && top >= 0 && right <= clientWidth && bottom <= clientHeight;
  const topmost = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  return isInside && width > 0 && height > 0 && node.contains(topmost);
}"""


class Browser:
    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def run(self, script: str, *words: Any) -> Any:
        return self.driver.execute_script(script, *words)

    def until(self, condition: Callable[[], Any], seconds: float = 60) -> Any:
        from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(self.driver, seconds, 0.02, [StaleElementReferenceException])
        try:
            return wait.until(lambda _: condition())
        except TimeoutException:
            raise AssertionError(f"nothing came of it; the page: {self.find('body').text}") from None

    def say(self, text: str) -> None:
        self.find("#prompt").send_keys(text, "\ue007")

    def ask(self, text: str, seconds: float = 60) -> str:
        """Say it, and wait for its answer."""
        before = len(self.answers())
        self.say(text)
        self.until(lambda: len(self.answers()) > before, seconds)
        return self.answers()[-1]

    def answers(self) -> list[str]:
        """Of those that are done."""
        return [node.text for node in self.all("article.answer:not(.busy) p")]

    def set(self, selector: str, value: str, event: str = "input") -> None:
        """As a hand on a slider would."""
        script = (
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event(arguments[2]));"
            "arguments[0].dispatchEvent(new Event('change'))"
        )
        self.run(script, self.find(selector), value, event)

    def in_reach(self, selector: str) -> bool:
        return bool(self.run(f"return ({IN_REACH})(arguments[0])", selector))

    def tap(self, selector: str) -> None:
        assert self.in_reach(selector), selector
        self.find(selector).click()

    def overflows(self) -> bool:
        """Whether the conversation is longer than its part of the page."""
        talk = "document.getElementById('talk')"
        return bool(self.run(f"return {talk}.scrollHeight > {talk}.clientHeight + 100"))

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def barriers(self) -> list[str]:
        """Check the page as it is now by axe-core: a line for each element that breaks a rule."""
        self.run(AXE.read_text(encoding="utf-8"))
        violations = self.driver.execute_async_script(
            "axe.run().then(({ violations }) => arguments[0](violations))"
        )
        return [
            f"{rule['id']}: {node['html'][:120]} ({node['failureSummary']})"
            for rule in violations
            for node in rule["nodes"]
        ]

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def browsing(*flags: str, width: int = 1180, height: int = 760) -> Iterator[Browser]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    usual = ["headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "no-proxy-server"]
    for flag in [*(f"--{name}" for name in usual), *flags]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    try:
        browser = Browser(driver)
        browser.size(width, height)
        yield browser
    finally:
        driver.quit()


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def site(folder: Path) -> Iterator[str]:
    """The address of a folder's files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(60)
