"""OpenAI's own JavaScript client, in a page of another site that is allowed to ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from browsing import Browser, needs_browser, site
from nodejs import PACKAGES, needs_packages
from serving import serving

from hamburger_edge.model import Model
from hamburger_edge.serve.gate import Access

KEY = "a-key-of-many-characters"

pytestmark = [needs_browser, needs_packages]
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


def test_it_may_ask_from_a_site_that_is_allowed(load_tiny: Callable[[], Model], browser: Browser) -> None:
    """Its preflight asks for headers of its own, x-stainless-os and others, which were refused."""
    with site(PACKAGES) as friend, site(PACKAGES) as other:
        access = Access.of("127.0.0.1", origins=[friend], keys=[KEY.encode()])
        with serving([("tiny", load_tiny)], access=access) as running:

            def said(origin: str, key: str = KEY) -> Any:
                browser.driver.get(f"{origin}/openai/package.json")
                return browser.driver.execute_async_script(ASK, f"{running.url}/v1", key)

            answer = "The capital of Norway is Oslo."
            assert said(friend) == [answer, answer, "n"]
            assert said(friend, "wrong").startswith("AuthenticationError: 401 the key is missing or wrong")
            assert said(other).startswith("APIConnectionError")
            browser.complaints()
