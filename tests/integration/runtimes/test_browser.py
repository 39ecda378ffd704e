"""The package in a real browser generates Python's tokens, and the example's controls work."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.browser_example import Served, example, notice, ready
from helpers.browsing import IN_REACH, Browser, browsing, needs_browser
from helpers.goldens import BUNDLES, REPEATED, STRUCTURED, write_goldens
from helpers.nodejs import needs_packages

import hamburger_edge

pytestmark = [needs_browser, needs_packages, pytest.mark.slow]

# Compute shaders without a graphics card, and measure memory without delay.
FLAGS = (
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
    "--enable-blink-features=ForceEagerMeasureMemory",
)
# Count the answers and conversations that equal their goldens.
COMPARE = """
const [address, golden, options, done] = arguments;
const { answers, conversations } = JSON.parse(golden); // a schema's properties keep their order in a text
const groupsOf = async (stream) => {
  const groups = [];
  for await (const { tokens } of stream) groups.push([...tokens]);
  return groups;
};
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
(async () => {
  const { load } = await import("/hamburger-edge/adapters/onnxruntime-web.js");
  const model = await load(address, { ...options, store: false });
  const counts = { answers: 0, conversations: 0, isIsolated: crossOriginIsolated };
  for (const { prompt, options, groups, text, finishReason } of answers) {
    const result = await model.generate(prompt, options);
    counts.answers += same([result.groups, result.text, result.finishReason], [groups, text, finishReason]);
  }
  for (const { options, turns, slots } of conversations) {
    const chat = model.chat({ system: "Be brief.", ...options });
    let isSame = true;
    for (const { text, groups, goesOn, answer } of turns) {
      const generated = await groupsOf(chat.send(text));
      if (goesOn) generated.push(...(await groupsOf(chat.continueAnswer({ maxTokens: 7 }))));
      isSame &&= same(generated, groups) && chat.messages.at(-1).content === answer;
    }
    counts.conversations += isSame && same(chat.groups, slots);
  }
  await model.close();
  return counts;
})().then(done, (error) => done(error.message));
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing(*FLAGS) as browser:
        browser.driver.set_script_timeout(300)
        browser.driver.command_executor.client_config.timeout = 330
        yield browser


@pytest.fixture
def page(browser: Browser, tiny: Path, bundle: Path) -> Iterator[tuple[Browser, Served]]:
    """The example on a new origin, so that the browser has stored none of its files."""
    with example({"tiny": tiny, "toy": bundle}) as served:
        browser.driver.get(served.url)
        ready(browser)
        yield browser, served
        assert not browser.complaints()


def choose(browser: Browser, selector: str, value: str) -> None:
    browser.run(
        "const [node, value] = arguments; node.value = value; node.dispatchEvent(new Event('change'))",
        browser.find(selector),
        value,
    )


def compared(browser: Browser, bundle: Path, golden: dict[str, Any], **options: Any) -> Any:
    with example({"toy": bundle}) as served:
        browser.driver.get(served.url)
        counts = browser.driver.execute_async_script(
            COMPARE, f"{served.url}/bundles/toy", json.dumps(golden), options
        )
    assert not browser.complaints()
    return counts


@pytest.mark.parametrize(
    ("changes", "threads"),
    [(changes, 1 + number % 2) for number, changes in enumerate(BUNDLES)],
    ids=lambda words: " ".join(map(str, words.values())) if isinstance(words, dict) else f"threads {words}",
)
def test_browser_generates_the_tokens_of_python(
    changes: dict[str, Any], threads: int, bundles: Callable[..., Path], browser: Browser, tmp_path: Path
) -> None:
    """With quantized weights, WebAssembly's kernels round differently."""
    goldens, bundle = tmp_path / "goldens.json", bundles(**changes)
    write_goldens(goldens, bundle, repeated=REPEATED)
    golden = json.loads(goldens.read_text())
    counts = compared(browser, bundle, golden, threads=threads)
    if "precision" in changes:
        assert counts["answers"] >= len(golden["answers"]) / 3
    else:
        whole = {"answers": len(golden["answers"]), "conversations": len(golden["conversations"])}
        assert counts == {**whole, "isIsolated": True}


def test_structured_answers_equal_python(bundle: Path, browser: Browser, tmp_path: Path) -> None:
    goldens = tmp_path / "goldens.json"
    write_goldens(goldens, bundle, asked=STRUCTURED, talks=())
    golden = json.loads(goldens.read_text())
    assert compared(browser, bundle, golden)["answers"] == len(golden["answers"])


def test_stored_files_load_without_network_until_deleted(page: tuple[Browser, Served], tiny: Path) -> None:
    browser, served = page
    listed = {path.name for path in tiny.iterdir()}
    assert served.asked_of("tiny") == listed
    browser.driver.refresh()
    ready(browser)
    assert served.asked_of("tiny") == {"manifest.json"}  # to detect a newer version
    served.is_reachable = False
    browser.driver.refresh()
    ready(browser)
    assert browser.ask("What is the capital of Norway?") == "The capital of Norway is Oslo."
    browser.complaints()  # the browser logs the failed requests
    browser.find("#computing summary").click()
    browser.find("#forget").click()
    browser.until(lambda: browser.find("#memory").text.startswith("Nothing is kept"))
    browser.driver.refresh()
    assert "check the network" in notice(browser)
    browser.complaints()


def test_conversation_equals_python_and_memory_is_shown(page: tuple[Browser, Served], tiny: Path) -> None:
    browser, _ = page
    turns = ("What is the capital of Norway?", "Count from 3 to 12.", "List four animals.")
    with hamburger_edge.load(tiny, threads=1) as model:
        plain, drawn = model.chat(max_tokens=400), model.chat(max_tokens=400, temperature=0.9, seed=7)
        for chat in (plain, drawn):
            for text in turns:
                list(chat.send(text))
        steps = chat.stats.macro_steps
    assert [browser.ask(text) for text in turns] == [message.text for message in plain.messages[1::2]]
    assert len(browser.all("article.answer p span[class^=g]")) >= 3
    assert float(browser.find("#rate").text) > 0
    assert float(browser.find("#perstep").text) > 1
    assert browser.find("#saved").text == "–"  # nothing is merged
    browser.until(
        lambda: "MB of memory. " in browser.find("#memory").text
    )  # the browser measures it with a delay
    browser.find("#new").click()
    browser.set("#temperature", "0.9")
    browser.set("#seed", "7")
    assert [browser.ask(text) for text in turns] == [message.text for message in drawn.messages[1::2]]
    assert f"in {steps} steps" in browser.all(".about")[-1].text


def test_schema_constrains_the_answer(page: tuple[Browser, Served]) -> None:
    browser, _ = page
    browser.find("#structure summary").click()
    colour = {"type": "object", "properties": {"colour": {"enum": ["red", "green"]}}, "required": ["colour"]}
    browser.set("#schema", json.dumps({**colour, "additionalProperties": False}))
    assert json.loads(browser.ask("What colour?"))["colour"] in ("red", "green")
    browser.set("#schema", "{")
    browser.say("And now?")
    assert "jsonSchema is not plain JSON" in notice(browser)


def test_answer_stops_in_the_middle_and_the_page_stays_smooth(page: tuple[Browser, Served]) -> None:
    browser, _ = page
    choose(browser, "#model", "toy")
    browser.until(lambda: browser.find("#state").text.startswith("Starting"))
    ready(browser)
    browser.set("#confidence", "1")
    browser.run(
        """window.longest = 0;
        let last = performance.now();
        const look = (now) => {
          window.longest = Math.max(window.longest, now - last);
          last = now;
          requestAnimationFrame(look);
        };
        requestAnimationFrame(look);
        const observer = new MutationObserver(() => {
          if (document.querySelectorAll("article.answer p span").length > 5) {
            observer.disconnect();
            document.getElementById("stop").click();
          }
        });
        observer.observe(document.getElementById("talk"), { childList: true, subtree: true })"""
    )
    browser.ask("Say something long.")
    assert browser.find(".ended").text == "stopped"
    assert len(browser.all("article.answer p span")) < 200
    assert browser.run("return window.longest") < 1000
    browser.set("#max-tokens", "4")
    browser.ask("And now?")
    assert browser.all(".ended")[-1].text == "cut at the most tokens"


@pytest.mark.parametrize("width", [360, 390])
def test_controls_stay_in_reach_on_a_phone_with_a_long_conversation(
    page: tuple[Browser, Served], width: int
) -> None:
    """Messages once covered the header and the settings."""
    browser, _ = page
    browser.size(width, 640)
    browser.set("#prompt", "\n".join(["Count from 3 to 12."] * 30))
    browser.run(
        f"""new MutationObserver((_, observer) => {{
          if (!document.querySelector("article.answer.busy p span")) return;
          observer.disconnect();
          const controls = ["#stop", "#model", "#settings-toggle", "#theme", "#prompt"];
          window.outOfReach = controls.filter((selector) => !({IN_REACH})(selector));
          document.getElementById("stop").click();
        }}).observe(document.getElementById("talk"), {{ childList: true, subtree: true }})"""
    )
    browser.tap("#send")
    browser.until(lambda: browser.all("article.answer:not(.busy)"))
    assert browser.overflows()
    assert browser.run("return window.outOfReach") == []
    assert browser.run("return document.documentElement.scrollWidth") <= width
    browser.tap("#settings-toggle")
    for selector in ("#confidence", "#mode", "#model", "#new", "#theme", "#prompt"):
        assert browser.in_reach(selector), selector
    browser.tap("#settings-toggle")
    assert not browser.find("#mode").is_displayed()
    for name in ("light", "dark", "as the system"):
        browser.tap("#theme")
        assert browser.find("#theme").get_attribute("aria-label") == f"Theme: {name}"
    browser.tap("#new")
    assert not browser.all("article")
    browser.size(1180, 760)


def test_webgpu_computes_portable_bundles_and_refuses_fused_ones(
    page: tuple[Browser, Served], bundles: Callable[..., Path], tmp_path: Path
) -> None:
    browser, _ = page
    choose(browser, "#provider", "webgpu")
    assert "WebGPU cannot compute this bundle's attention" in notice(browser)
    goldens, bundle = tmp_path / "goldens.json", bundles(draft_vocab_size=100, flavor="portable")
    write_goldens(goldens, bundle, max_tokens=4)
    few = {"answers": json.loads(goldens.read_text())["answers"][:60:30], "conversations": []}
    assert compared(browser, bundle, few, provider="webgpu")["answers"] == 2


def test_example_serves_its_own_files_only(tiny: Path) -> None:
    with example({"tiny": tiny}) as served:

        def status(path: str, host: str | None = None) -> int:
            connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=60)
            connection.request("GET", path, headers={"Host": host} if host else {})
            response = connection.getresponse()
            assert response.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
            return response.status

        assert status("/") == status("/bundles/tiny/manifest.json") == 200
        for path in ("/serve.py", "/../README.md", "/bundles/tiny/../tiny/manifest.json", "/bundles", "/?x"):
            assert status(path) == 404
        assert status("/", "somewhere.example") == 421
