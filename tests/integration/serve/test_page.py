"""The page in a real browser, which logs no error."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from helpers.browsing import Browser, needs_browser
from helpers.serving import Running, serving

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.loop.certainty import Certainty
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.model import Model
from hamburger_edge.serve.gate import Access

pytestmark = [needs_browser, pytest.mark.slow]

KEY = "a-key-of-many-characters"
COLOUR = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}},
    "required": ["colour"],
    "additionalProperties": False,
}


@pytest.fixture
def page(browser: Browser, running: Running) -> Iterator[Browser]:
    browser.size(1180, 760)
    browser.driver.get(f"{running.url}/")
    browser.run("localStorage.clear(); sessionStorage.clear()")
    browser.driver.get(f"{running.url}/")
    browser.until(lambda: browser.all("#model option"))
    browser.complaints()
    yield browser
    assert not browser.complaints()


def test_answer_streams_in_tinted_groups(page: Browser) -> None:
    page.run(
        """window.seen = [];
        new MutationObserver(() => window.seen.push(document.querySelectorAll('article.answer span').length))
          .observe(document.getElementById('talk'), {childList: true, subtree: true})"""
    )
    assert page.ask("What is the capital of Norway?") == "The capital of Norway is Oslo."
    page.ask("Count from 3 to 12.")
    page.ask("List four animals.")
    assert len(set(page.run("return window.seen"))) > 5  # piece by piece
    groups = page.all("article.answer p span[class^=g]")
    assert len(groups) >= 3
    assert groups[0].value_of_css_property("background-color") not in ("rgba(0, 0, 0, 0)", "transparent")
    assert float(page.find("#perstep").text) > 1
    assert float(page.find("#rate").text) > 0
    assert len(page.all("#plot rect")) >= 2
    page.find("#groups").click()
    assert groups[0].value_of_css_property("background-color") == "rgba(0, 0, 0, 0)"


def test_answers_use_the_chosen_confidence_and_mode(page: Browser) -> None:
    page.set("#confidence", "1")
    assert page.find("#confidence-shown").text == "1.00"
    page.ask("Count from 3 to 12.")
    assert page.find("#perstep").text == "1.00"
    assert not page.all("article.answer p span[class^=g]")
    page.find("#new").click()
    page.set("#confidence", "0.5")
    page.set("#mode", "verify", "change")
    page.ask("Count from 3 to 12.")
    assert float(page.find("#perstep").text) > 1
    assert page.find("#saved").text == "–"  # nothing is merged
    assert "cache" not in page.find(".about").text
    page.set("#mode", "merge", "change")
    page.ask("Count from 3 to 12.")
    assert page.find("#saved").text.endswith("%")
    assert "% of the cache saved" in page.all(".about")[-1].text


def as_a_task(template: ChatTemplate) -> ChatTemplate:
    """The template as a task's: `after_user` includes the markup before the answer."""
    ends = template.after_user + template.before_answer
    task = replace(template, after_user=ends, before_answer="", before_system="", after_system="")
    assert task.is_task
    assert not template.is_task
    return task


def test_page_uses_the_recommended_dial_of_a_task_model(
    page: Browser, load_tiny: Callable[[], Model]
) -> None:
    model = load_tiny()
    model.inference.engine.info = replace(model.info, recommended=Recommended("hybrid", 0.85))
    model.template = as_a_task(model.template)
    suggested = {"tuned": ["What is the capital of Norway?", "Count from 3 to 12."]}
    with serving([("tiny", load_tiny), ("tuned", lambda: model)], suggestions=suggested) as running:
        page.driver.get(f"{running.url}/")
        page.until(lambda: page.all("#model option"))
        assert page.find("#mode option").text == "as recommended: verify"
        assert page.find("#confidence-shown").text == "as recommended, 0.8"
        assert len(page.all("#examples button")) == 3
        page.set("#model", "tuned", "change")
        assert page.find("#mode option").text == "as recommended: hybrid"
        assert page.find("#confidence-shown").text == "as recommended, 0.85"
        assert page.find("#alone").is_selected()
        assert page.find("#alone-hint").is_displayed()
        assert [button.text for button in page.all("#examples button")] == suggested["tuned"]
        for _ in range(2):  # each request starts a new conversation
            assert page.ask("What is the capital of Norway?") == "The capital of Norway is Oslo."
            assert page.find("#saved").text != "–"  # mode hybrid merges
        page.set("#confidence", "0.6")  # the mode stays as recommended
        assert page.find("#confidence-shown").text == "0.60"
        assert page.find("#mode").get_attribute("value") == ""
        page.set("#mode", "verify", "change")  # a mode brings its own confidence
        assert page.find("#confidence-shown").text == "0.8"
        page.set("#mode", "plain", "change")
        assert not page.find("#confidence").is_enabled()
        page.set("#mode", "", "change")
        assert page.find("#confidence-shown").text == "as recommended, 0.85"
        page.set("#model", "tiny", "change")
        assert not page.find("#alone").is_selected()


@pytest.fixture
def slow(load_tiny: Callable[[], Model]) -> Iterator[Running]:
    """A server whose answers have no end token, slowed down."""
    model = load_tiny()
    model.inference.engine.info = replace(model.info, eos_ids=())
    macro = model.backend.macro

    def late(*words: Any) -> Any:
        time.sleep(0.05)
        return macro(*words)

    model.backend.macro = late  # type: ignore[method-assign]
    with serving(lambda: model) as server:
        yield server


def test_stopped_answer_is_retried_and_a_new_conversation_is_empty(page: Browser, slow: Running) -> None:
    page.driver.get(f"{slow.url}/")
    page.until(lambda: page.all("#model option"))
    page.set("#max-tokens", "400")
    page.say("Count from 3 to 12.")
    page.until(lambda: page.all("article.answer p span"))
    page.find("#stop").click()
    page.until(lambda: page.all("article.answer:not(.busy)"))
    assert page.find(".ended").text == "stopped"
    assert page.find("#send").is_displayed()
    page.find(".retry").click()
    page.until(lambda: page.all("article.answer.busy p span"))
    page.find("#prompt").send_keys("\ue00c")  # Escape
    page.until(lambda: page.all("article.answer:not(.busy)"))
    assert len(page.all("article.answer")) == 1
    page.find("#new").click()
    assert not page.all("article")
    assert page.find("#welcome").is_displayed()


def test_schema_constrains_the_answer_or_is_refused(page: Browser) -> None:
    page.find("#structure summary").click()
    page.find("#schema").send_keys('{"type": "object"')
    assert page.find("#schema").get_attribute("aria-invalid") == "true"
    page.set("#schema", json.dumps(COLOUR))
    assert page.find("#schema-state").text == "Answers follow this schema."
    assert json.loads(page.ask("What colour?"))["colour"] in ("red", "green")
    page.set("#schema", '{"type": "array", "uniqueItems": true}')
    page.say("Which?")
    assert "uniqueItems" in page.until(lambda: page.find("#notice").text)
    assert any("400" in line for line in page.complaints())  # the browser logs the status


def test_page_fits_a_phone_and_the_keyboard_reaches_it(page: Browser) -> None:
    page.find("#theme").click()
    page.find("#theme").click()
    assert page.find("#theme").get_attribute("aria-label") == "Theme: dark"
    page.size(390, 760)
    page.ask("What is the capital of Norway?")
    page.ask("Count from 3 to 12.")
    assert page.run("return document.documentElement.scrollWidth") <= 390
    assert not page.find("#mode").is_displayed()
    page.find("#settings-toggle").send_keys("\ue007")
    assert page.find("#mode").is_displayed()
    assert page.find("header").rect["y"] == 0
    unnamed = """return [...document.querySelectorAll('button, select, input, textarea')].filter(
        (node) => !(node.labels?.length || node.textContent.trim() || node.ariaLabel || node.ariaHidden)
      ).map((node) => node.id)"""
    assert page.run(unnamed) == []
    assert page.find("#talk").get_attribute("role") == "log"


@pytest.mark.parametrize("width", [360, 390])
def test_controls_stay_in_reach_on_a_phone_with_a_long_conversation(
    page: Browser, slow: Running, width: int
) -> None:
    """Messages once covered the header, and the theme button was cut off."""
    page.size(width, 640)
    page.driver.get(f"{slow.url}/")
    page.until(lambda: page.all("#model option"))
    page.set("#prompt", "\n".join(["Count from 3 to 12."] * 30))
    page.tap("#send")
    page.until(lambda: page.all("article.answer.busy p span"))
    assert page.overflows()
    assert page.run("return document.documentElement.scrollWidth") <= width
    for selector in ("#model", "#new", "#settings-toggle", "#theme", "#prompt"):
        assert page.in_reach(selector), selector
    page.tap("#stop")
    page.until(lambda: page.all("article.answer:not(.busy)"))
    page.tap("#settings-toggle")
    for selector in ("#confidence", "#mode", "#model", "#new", "#theme", "#prompt"):
        assert page.in_reach(selector), selector
    page.run("document.getElementById('groups').scrollIntoView({block: 'nearest'})")  # inside the settings
    page.tap("#groups")
    page.tap("#settings-toggle")
    assert not page.find("#mode").is_displayed()
    for name in ("light", "dark", "as the system"):
        page.tap("#theme")
        assert page.find("#theme").get_attribute("aria-label") == f"Theme: {name}"
    page.tap(".retry")
    page.tap("#stop")
    page.tap("#new")
    assert not page.all("article")


def test_focus_moves_to_the_next_usable_control(page: Browser, slow: Running) -> None:
    """Hiding a button once lost the focus."""
    page.driver.get(f"{slow.url}/")
    page.until(lambda: page.all("#model option"))

    def focus() -> str:
        return str(page.run("return document.activeElement.id"))

    page.find("#examples button").send_keys("\ue007")
    assert focus() == "stop"
    page.find("#stop").send_keys("\ue007")
    page.until(lambda: page.all("article.answer:not(.busy)"))
    assert focus() == "prompt"
    page.find(".retry").send_keys("\ue007")
    assert focus() == "stop"
    page.find("#stop").send_keys("\ue00c")  # Escape
    page.until(lambda: page.all("article.answer:not(.busy)"))
    assert focus() == "talk"
    speakers = [node.get_attribute("aria-label") for node in page.all("article")]
    assert speakers == ["You", "Model"]


def test_page_asks_for_the_key(browser: Browser, load_tiny: Callable[[], Model]) -> None:
    with serving(load_tiny, access=Access.of("127.0.0.1", keys=[KEY.encode()])) as running:
        browser.size(1180, 760)
        browser.driver.get(f"{running.url}/")
        assert "key" in browser.until(lambda: browser.find("#notice").text)
        browser.find("#key").send_keys(KEY, "\ue007")
        browser.until(lambda: browser.all("#model option"))
        browser.ask("What is the capital of Norway?")
        assert not browser.find("#notice").is_displayed()


def test_page_loads_from_its_server_only(page: Browser) -> None:
    assert not page.find("#in-browser").is_displayed()  # this server offers no bundle
    loaded = page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert loaded
    assert all(name.startswith("http://127.0.0.1:") for name in loaded)
    blocked = "const node = document.createElement('script'); node.textContent = 'window.evil = 1';"
    page.run("try {" + blocked + "document.head.append(node)} catch {}")
    assert page.run("return window.evil") is None
    assert any("Content Security Policy" in line or "TrustedScript" in line for line in page.complaints())


def test_page_asks_back_below_the_chosen_certainty(page: Browser, load_tiny: Callable[[], Model]) -> None:
    model = load_tiny()
    model.inference.engine.info = replace(model.info, certainty=Certainty(0, 0))  # certainty 0.5
    with serving([("tiny", lambda: model)]) as running:
        page.driver.get(f"{running.url}/")
        page.until(lambda: page.all("#model option"))
        question = "What is the capital of Norway?"
        page.ask(question)
        assert page.find(".ask-back").text.startswith("Did you mean")
        assert "certainty 50%" in page.find(".about").text
        refuse = page.all(".ask-back button")[1]
        assert refuse.text == "No"
        refuse.click()
        assert not page.all("article.answer")
        assert page.find("#prompt").get_property("value") == question
        page.run("document.getElementById('prompt').value = ''")
        page.ask(question)
        page.all(".ask-back button")[0].click()  # Yes
        assert len(page.all("article.answer")) == 1
        page.set("#min-certainty", "0.4", "change")
        page.ask(question)
        assert not page.all(".ask-back")
