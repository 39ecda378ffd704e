"""Takes the screenshots of docs/guide/serve.md, in Chromium without a window.

    python docs/images/screenshots.py       # needs chromium, chromedriver and the extra [dev]

Each is one conversation with a built-in model on the page of `serve`.
"""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import hamburger_edge

IMAGES = Path(__file__).resolve().parent
sys.path.append(str(IMAGES.parents[1] / "tests"))

from helpers.browsing import Browser, browsing  # noqa: E402
from helpers.serving import serving  # noqa: E402

COLOUR = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "count": {"enum": [1, 2, 3]}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Screenshot:
    model: str
    messages: tuple[str, ...]
    schema: object = None
    theme: str = "light"
    width: int = 1180


SCREENSHOTS = {
    "serve-desktop": Screenshot(
        "tiny", ("What is the capital of Norway?", "Count from 3 to 12.", "What is 7 plus 8?")
    ),
    "serve-phone": Screenshot(
        "tiny", ("What is the capital of Norway?", "Count from 3 to 12."), theme="dark", width=390
    ),
    "serve-structure": Screenshot("tiny", ("What colour?",), schema=COLOUR),
    "serve-task": Screenshot(
        "voice-commands",
        (
            "Play some jazz by Miles Davis from the fifties",
            "book a table for four at an italian place in Boston tomorrow evening",
            "what will the weather be in Paris on friday",
        ),
    ),
}


def take(browser: Browser, url: str, name: str, shot: Screenshot) -> None:
    browser.size(shot.width, 760)
    browser.driver.get(url)
    browser.run("localStorage.clear(); localStorage.setItem('hamburger.theme', arguments[0])", shot.theme)
    browser.driver.get(url)
    browser.until(lambda: browser.all("#model option"))
    browser.set("#model", shot.model, "change")
    if shot.schema is not None:
        browser.find("#structure summary").click()
        browser.set("#schema", json.dumps(shot.schema))
    for message in shot.messages:
        print(f"{name}: {message} -> {browser.ask(message)}")
    browser.driver.save_screenshot(str(IMAGES / f"{name}.png"))


def main() -> None:
    names = sorted({shot.model for shot in SCREENSHOTS.values()})
    models = [(name, functools.partial(hamburger_edge.load, name)) for name in names]
    with serving(models) as running, browsing() as browser:
        for name, shot in SCREENSHOTS.items():
            take(browser, f"{running.url}/", name, shot)


if __name__ == "__main__":
    main()
