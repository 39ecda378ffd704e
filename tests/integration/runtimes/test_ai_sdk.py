"""The Vercel AI SDK on the JavaScript runtime, bundled for a page in Chromium."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from helpers.browsing import browsing, needs_browser, site
from helpers.nodejs import JAVASCRIPT, NODE, PACKAGES, needs_node

import hamburger_edge

pytestmark = [needs_node, needs_browser]

ENTRY = """
export { generateText, Output, streamText } from "ai";
export { languageModel } from "hamburger-edge/ai-sdk";
export { load } from "hamburger-edge/web";
"""
ASK = """
const [prompt, done] = arguments;
(async () => {
  const { generateText, languageModel, load, Output, streamText } = await import("/app.js");
  const runtime = await load("/tiny", { threads: 1, store: false });
  const model = languageModel(runtime);
  const control = new AbortController();
  const cut = streamText({ model, prompt, abortSignal: control.signal });
  for await (const _ of cut.textStream) control.abort();
  let streamed = "";
  for await (const text of streamText({ model, prompt }).textStream) streamed += text;
  const { output } = await generateText({ model, prompt, output: Output.json(), providerOptions: {
    hamburger: { jsonSchema: { enum: ["yes", "no"] } } } });
  const { text, usage } = await generateText({ model, prompt });
  await runtime.close();
  return { text, streamed, output, tokens: usage.outputTokens };
})().then(done, (error) => done(`${error}`));
"""


def test_ai_sdk_in_a_page_equals_python(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny").symlink_to(tiny)
    (tmp_path / "node_modules").symlink_to(PACKAGES)
    (tmp_path / "entry.js").write_text(ENTRY)
    (tmp_path / "index.html").write_text("<!doctype html><title>app</title>")
    shutil.copy(PACKAGES / "onnxruntime-web" / "dist" / "ort-wasm-simd-threaded.wasm", tmp_path)
    command = [str(NODE), PACKAGES / "esbuild" / "bin" / "esbuild", "entry.js", "--bundle", "--format=esm"]
    command += ["--platform=browser", "--external:module", "--external:url", "--outfile=app.js"]
    command += [f"--alias:hamburger-edge/web={JAVASCRIPT / 'adapters' / 'onnxruntime-web.js'}"]
    command += [f"--alias:hamburger-edge/ai-sdk={JAVASCRIPT / 'ai-sdk' / 'index.js'}"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    prompt = "What is the capital of Norway?"
    with hamburger_edge.load(tiny, threads=1) as model:
        expected = model.generate(prompt)
    with site(tmp_path) as address, browsing() as browser:
        browser.driver.set_script_timeout(120)
        browser.driver.get(address)
        result: Any = browser.driver.execute_async_script(ASK, prompt)
    assert result["text"] == result["streamed"] == expected.text
    assert result["tokens"] == len(expected.tokens)
    assert result["output"] in ("yes", "no")
