"""A model that runs inside the browser, and OpenAI's JavaScript client in a page of another site."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers.browsing import Browser, needs_browser, site
from helpers.nodejs import JAVASCRIPT, PACKAGES, needs_packages
from helpers.serving import served, serving

from hamburger_edge import export_checkpoint
from hamburger_edge.model import Model
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.serve.browser import InBrowser
from hamburger_edge.serve.gate import Access

pytestmark = [needs_browser, needs_packages, pytest.mark.slow]

KEY = "a-key-of-many-characters"


def test_model_runs_in_the_browser_without_requests_to_the_server(
    browser: Browser, load_tiny: Callable[[], Model], tiny: Path
) -> None:
    access = Access.of("127.0.0.1", keys=[KEY.encode()])
    bundles = InBrowser.of(JAVASCRIPT, {"tiny": tiny})
    models = [("other", load_tiny), ("tiny", load_tiny)]
    pages: Any = {"in_browser": bundles, "suggestions": {"tiny": ["Count to 3."]}}
    with serving(models, access=access, **pages) as running, running.client() as client:
        for path in ("/bundles.json", "/bundles/tiny/manifest.json", "/bundles/tiny/weights.bin"):
            assert client.get(path).status_code == 401
        client.headers["authorization"] = f"Bearer {KEY}"
        assert client.get("/bundles.json").json() == {"tiny": ["Count to 3."]}
        assert client.get("/bundles/tiny/weights.bin").content == (tiny / "weights.bin").read_bytes()
        for path in (
            "/bundles/tiny/../../pyproject.toml",
            "/bundles/other/manifest.json",
            "/hamburger-edge/package.json",
        ):
            assert client.get(path).status_code == 404
        policy = client.get("/browser").headers["content-security-policy"]
        assert "script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'" in policy
        assert "wasm" not in client.get("/").headers["content-security-policy"]

        browser.size(1180, 760)
        browser.driver.get(f"{running.url}/")
        browser.until(lambda: browser.find("#notice").text)
        browser.find("#key").send_keys(KEY, "\ue007")
        browser.until(lambda: browser.all("#model option"))
        assert not browser.find("#in-browser").is_displayed()  # `other` has no bundle
        browser.set("#model", "tiny", "change")
        browser.complaints()
        browser.find("#in-browser").click()
        browser.until(lambda: browser.all("#state") and browser.find("#state").text.startswith("Ready"))
        assert browser.find("#state").text == "Ready: int8, wasm."
        assert [button.text for button in browser.all("#examples button")] == ["Count to 3."]
        assert browser.run("return crossOriginIsolated")
        assert browser.ask("What is the capital of Norway?") == "The capital of Norway is Oslo."
        metrics = client.get("/metrics").text
        assert "/v1/chat/completions" not in metrics  # the server received no chat request
        assert not browser.complaints()


def test_browser_loads_the_bundle_of_browser_bundle(browser: Browser, tiny: Path, tmp_path: Path) -> None:
    """The server computes with one bundle, the browser with the other."""
    browser_bundle = tmp_path / "browser"
    export_checkpoint(
        load_checkpoint("tiny"), browser_bundle, precision="int8", kv_cache_dtype="fp32", verify=False
    )
    with served(tiny, "--browser", str(JAVASCRIPT), "--browser-bundle", str(browser_bundle)) as program:
        address = f"http://127.0.0.1:{program.port}"
        manifest = httpx.get(f"{address}/bundles/{tiny.name}/manifest.json", trust_env=False)
        assert manifest.content == (browser_bundle / "manifest.json").read_bytes()

        def chat_requests() -> list[str]:
            metrics = httpx.get(f"{address}/metrics", trust_env=False).text
            return [line for line in metrics.splitlines() if "/v1/chat/completions" in line]

        browser.driver.get(f"{address}/")
        browser.until(lambda: browser.all("#model option"))
        assert browser.ask("What is the capital of Norway?") == "The capital of Norway is Oslo."
        before = chat_requests()
        assert before
        browser.find("#in-browser").click()
        browser.until(lambda: browser.all("#state") and browser.find("#state").text.startswith("Ready"))
        assert browser.ask("What is the capital of Norway?") == "The capital of Norway is Oslo."
        assert not browser.complaints()
        assert chat_requests() == before


ASK = """
const [baseURL, apiKey, done] = arguments;
(async () => {
  const { default: OpenAI } = await import("/openai/index.mjs");
  const client = new OpenAI({ baseURL, apiKey, dangerouslyAllowBrowser: true, maxRetries: 0 });
  const asked = { model: "tiny", messages: [{ role: "user", content: "What is the capital of Norway?" }] };
  const { choices } = await client.chat.completions.create(asked);
  let streamed = "";
  for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
    streamed += chunk.choices[0]?.delta.content ?? "";
  }
  const refused = await client.chat.completions.create({ ...asked, n: 2 }).catch((error) => error.param);
  return [choices[0].message.content, streamed, refused];
})().then(done, (error) => done(`${error.constructor.name}: ${error.message}`));
"""


def test_openai_client_works_from_an_allowed_site_only(
    load_tiny: Callable[[], Model], browser: Browser
) -> None:
    """Its preflight names headers such as x-stainless-os, which the server once refused."""
    with site(PACKAGES) as friend, site(PACKAGES) as other:
        access = Access.of("127.0.0.1", origins=[friend], keys=[KEY.encode()])
        with serving([("tiny", load_tiny)], access=access) as running:

            def answers(origin: str, key: str = KEY) -> Any:
                browser.driver.get(f"{origin}/openai/package.json")
                return browser.driver.execute_async_script(ASK, f"{running.url}/v1", key)

            oslo = "The capital of Norway is Oslo."
            assert answers(friend) == [oslo, oslo, "n"]
            assert answers(friend, "wrong").startswith("AuthenticationError: 401 the key is missing or wrong")
            assert answers(other).startswith("APIConnectionError")
            browser.complaints()
