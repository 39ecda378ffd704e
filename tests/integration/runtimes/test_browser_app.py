"""The example as an installed app: offline answers, broken downloads and stored files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.browser_example import Served, example, notice, program, ready
from helpers.browsing import Browser, browsing, needs_browser
from helpers.nodejs import needs_packages

from hamburger_edge.models.bases.sources.fetch import base_folder, is_complete

pytestmark = [needs_browser, needs_packages, pytest.mark.slow]

WEIGHTS = "/bundles/tiny/weights.bin"
PIECE = 1 << 20  # as in bundle/store.js
KEPT = """
const done = arguments[0];
(async () => done((await (await caches.open("hamburger-edge")).keys()).map(({ url }) => url)))();
"""
QUESTION, ANSWER = "What is the capital of Norway?", "The capital of Norway is Oslo."


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        browser.driver.set_script_timeout(60)
        yield browser


@pytest.fixture
def served(tiny: Path) -> Iterator[Served]:
    with example({"tiny": tiny}) as served:
        yield served


def test_installed_app_answers_offline(browser: Browser, tiny: Path) -> None:
    """The server has stopped before page, service worker and worker load again."""
    with example({"tiny": tiny}) as served:
        address = served.url
        browser.driver.get(address)
        ready(browser)
        browser.driver.execute_async_script("navigator.serviceWorker.ready.then(arguments[0])")
        app_manifest = browser.driver.execute_cdp_cmd("Page.getAppManifest", {})
        assert app_manifest["url"] == f"{address}/app.webmanifest"
        assert not app_manifest["errors"]
        assert not browser.driver.execute_cdp_cmd("Page.getInstallabilityErrors", {})["installabilityErrors"]
    for path in ("/browser", "/"):  # the app's start page, and the page of the first visit
        browser.driver.get(address + path)
        ready(browser)
        assert browser.run("return crossOriginIsolated")
        assert browser.find("#offline").is_displayed()
        assert browser.ask(QUESTION) == ANSWER
    browser.complaints()  # about what it could not reach


def test_voice_commands_answers_offline(browser: Browser) -> None:
    """Its 178 MB are stored in pieces, as `make browser BUNDLES=voice-commands` serves them."""
    if not is_complete(base_folder("smollm2-135m")):
        pytest.skip("the base is not here: hamburger-edge fetch smollm2-135m")
    with example(program().bundles_of(["voice-commands"])) as served:
        browser.driver.get(served.url)
        ready(browser, seconds=180)
        browser.driver.execute_async_script("navigator.serviceWorker.ready.then(arguments[0])")
    browser.driver.get(f"{served.url}/browser")
    ready(browser, seconds=180)
    answer = json.loads(browser.ask("Where can I watch the trailer for Home Economics", seconds=180))
    assert answer["intent"] == "SearchCreativeWork"
    assert "Home Economics" in answer["slots"].values()
    browser.complaints()  # about what it could not reach


def test_broken_download_resumes_after_its_last_whole_piece(
    browser: Browser, served: Served, tiny: Path
) -> None:
    size = (tiny / "weights.bin").stat().st_size
    served.cuts[WEIGHTS] = 7 * PIECE // 2  # of which a browser may drop the last half MB
    assert size > served.cuts[WEIGHTS]
    browser.driver.get(served.url)
    message = notice(browser)
    assert re.search(rf"weights.bin: the connection broke after \d.\d MB of {size / 1e6:.1f} MB", message)
    assert message.endswith("load it again, it goes on from there")
    assert WEIGHTS not in served.ranges
    browser.driver.refresh()
    ready(browser)
    [start] = re.findall(r"^bytes=(\d+)-$", served.ranges[WEIGHTS])
    assert int(start) in (PIECE, 2 * PIECE, 3 * PIECE)  # after the whole pieces
    assert browser.ask(QUESTION) == ANSWER
    served.ranges.clear()
    served.asked.clear()
    browser.driver.refresh()
    ready(browser)
    assert served.asked_of("tiny") == {"manifest.json"}
    browser.complaints()


def test_damaged_stored_file_is_fetched_again(browser: Browser, served: Served) -> None:
    """The hash detects the damage, the page deletes the stored file, and the next load fetches it."""
    browser.driver.get(served.url)
    ready(browser)
    damage = """
    const [path, done] = arguments;
    (async () => {
      const cache = await caches.open("hamburger-edge");
      const [key] = (await cache.keys()).filter(({ url }) => url.includes(path) && url.endsWith("from=0"));
      const content = new Uint8Array(await (await cache.match(key)).arrayBuffer());
      content[1000] ^= 1;
      await cache.put(key, new Response(content));
    })().then(() => done(""), (error) => done(error.message));
    """
    assert browser.driver.execute_async_script(damage, WEIGHTS) == ""
    browser.driver.refresh()
    message = notice(browser)
    assert message.endswith(
        "weights.bin: its content differs from the manifest's sha256: copy the bundle again"
    )
    assert "\n" not in message
    browser.driver.refresh()
    ready(browser)
    assert WEIGHTS not in served.ranges
    assert not browser.complaints()


def test_model_is_used_unstored_when_the_quota_is_full(browser: Browser, served: Served) -> None:
    browser.driver.get(f"{served.url}/icon.svg")
    quota = {"origin": served.url, "quotaSize": 2_000_000}
    browser.driver.execute_cdp_cmd("Storage.overrideQuotaForOrigin", quota)
    browser.driver.get(served.url)
    ready(browser)
    assert re.search("used without keeping it.*no room to keep its files.*free some", notice(browser))
    assert not [url for url in browser.driver.execute_async_script(KEPT) if "sha256" in url]
    assert browser.ask(QUESTION) == ANSWER
    browser.complaints()


def test_files_of_an_earlier_bundle_version_are_deleted(browser: Browser, served: Served) -> None:
    plant = """
    const [url, done] = arguments;
    caches.open("hamburger-edge").then((cache) => cache.put(url, new Response("old"))).then(done);
    """
    browser.driver.get(served.url)
    ready(browser)
    old = f"{served.url}{WEIGHTS}?sha256={'0' * 64}&from=0"
    other = f"{served.url}/bundles/other/weights.bin?sha256={'0' * 64}&from=0"
    for url in (old, other):
        browser.driver.execute_async_script(plant, url)
    browser.driver.refresh()
    ready(browser)
    stored_urls = browser.driver.execute_async_script(KEPT)
    assert old not in stored_urls
    assert other in stored_urls
    assert not browser.complaints()
