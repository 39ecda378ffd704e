"""Both pages pass an accessibility checker, fit phones, and are used by keyboard alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.browsing import Browser, needs_axe, needs_browser
from helpers.nodejs import JAVASCRIPT, needs_packages
from helpers.serving import Running, serving

from hamburger_edge.model import Model
from hamburger_edge.serve.browser import InBrowser

pytestmark = [needs_browser, needs_packages, needs_axe, pytest.mark.slow]

PAGES = ("/", "/browser")
WIDTHS = (360, 390, 430, 1180)
CONTROLS = """const focusable = 'a, button, select, input, textarea, summary, [tabindex="0"]';
return [...document.querySelectorAll(focusable)]
  .filter((node) => node.checkVisibility() && !node.disabled && node.tabIndex >= 0)
  .map((node) => node.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def both(load_tiny: Callable[[], Model], tiny: Path) -> Iterator[Running]:
    with serving([("tiny", load_tiny)], in_browser=InBrowser.of(JAVASCRIPT, {"tiny": tiny})) as running:
        yield running


def opened(browser: Browser, running: Running, path: str, theme: str = "light") -> None:
    browser.driver.get(f"{running.url}{path}")
    browser.run("localStorage.clear(); localStorage.setItem('hamburger.theme', arguments[0])", theme)
    browser.driver.get(f"{running.url}{path}")
    if path == "/browser":
        browser.until(lambda: browser.find("#state").text.startswith("Ready"))
    else:
        browser.until(lambda: browser.all("#model option"))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_page_breaks_no_rule_of_the_checker(browser: Browser, both: Running, path: str, theme: str) -> None:
    """When opened, with answers, and with all settings open."""
    browser.size(390, 760)
    opened(browser, both, path, theme)
    assert browser.barriers() == []
    browser.ask("What is the capital of Norway?")
    browser.ask("Count from 3 to 12.")
    assert browser.barriers() == []
    browser.size(1180, 760)
    browser.run("for (const node of document.querySelectorAll('details')) node.open = true")
    browser.set("#schema", "{")
    assert browser.barriers() == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", PAGES)
def test_long_conversation_fits_the_width(browser: Browser, both: Running, path: str, width: int) -> None:
    browser.size(width, 640)
    opened(browser, both, path)
    browser.set("#prompt", "\n".join(["Count from 3 to 12, and no further."] * 30))
    browser.run("document.getElementById('ask').requestSubmit()")
    browser.until(lambda: browser.all("article.answer:not(.busy)"))
    browser.ask("a" * 200)  # a word that is wider than the page
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(
        "const talk = document.getElementById('talk'); return talk.scrollWidth <= talk.clientWidth"
    )
    for selector in ("#model", "#new", "#theme", "#prompt", "#send"):
        assert browser.in_reach(selector), selector


@pytest.mark.parametrize("path", PAGES)
def test_tab_key_reaches_every_control(browser: Browser, both: Running, path: str) -> None:
    browser.size(1180, 760)
    opened(browser, both, path)
    browser.run("for (const node of document.querySelectorAll('details')) node.open = true")
    browser.find("#prompt").send_keys("x")  # Send can be used then
    browser.run("document.activeElement.blur(); scrollTo(0, 0); getSelection().removeAllRanges()")
    controls = set(browser.run(CONTROLS))
    reached = set()
    for _ in range(len(controls) + 2):
        browser.driver.switch_to.active_element.send_keys("\ue004")
        reached.add(browser.run("return document.activeElement.outerHTML.slice(0, 200)"))
    assert controls <= reached
