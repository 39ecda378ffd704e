"""Measure a bundle's tokens per second in Python, Node.js and Chromium, and those of transformers.js.

    npm install --ignore-scripts --omit=optional --prefix examples/browser     # transformers.js
    python examples/browser/bench.py BUNDLE WEB_BUNDLE CHECKPOINT [--tokens N] [--rounds N] [--json FILE]

All contenders generate the same number of tokens after the same prompts, greedily and past any end token.
Each prompt goes to every contender before the next prompt. Python and Node.js run BUNDLE, Chromium runs
WEB_BUNDLE. transformers.js runs the checkpoint's base at int4 and int8 (see bench_theirs.py), with this
package's files of onnxruntime-web. Needs the extras bench and dev, Chromium and npm.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench_theirs import FILES, write_base

import hamburger_edge
from hamburger_edge.benchmarks.contender import Source
from hamburger_edge.benchmarks.peers.weights import folder_of
from hamburger_edge.benchmarks.speed.prompts import TEXTS
from serve import Server

HERE = Path(__file__).resolve().parent
THEIRS = HERE / "node_modules" / "@huggingface" / "transformers" / "dist" / "transformers.web.min.js"
BINDING = "/packages/onnxruntime-web/dist/ort.wasm.bundle.min.mjs"

Options = dict[str, Any]
Rate = Callable[[list[int], int, Options], float]  # prompt, number of tokens, options -> tokens per second


@dataclass(frozen=True)
class Contender:
    name: str
    rate: Rate
    options: Options


def settings(recommended: Any) -> dict[str, Options]:
    found = {
        "plain": {"mode": "plain"},
        "grouped": {"confidence": 0.8, "mode": "merge"},
    }
    asked = {"confidence": float(recommended.confidence), "mode": recommended.mode}
    if asked not in found.values():
        found["recommended"] = asked
    return found


def in_python(model: Any) -> Rate:
    def rate(prompt: list[int], tokens: int, options: Options) -> float:
        stats = model.generate(
            prompt, max_tokens=tokens, ignore_eos=True, reuse_prefix=False, **options
        ).stats
        return float(stats.decode_tps)

    return rate


@contextmanager
def in_node(bundle: Path, threads: int) -> Iterator[Rate]:
    command = ["node", str(HERE / "bench_node.mjs"), str(bundle), str(threads)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        stdin, stdout = process.stdin, process.stdout

        def rate(prompt: list[int], tokens: int, options: Options) -> float:
            stdin.write(json.dumps([prompt, tokens, options]) + "\n")
            stdin.flush()
            return float(stdout.readline())

        yield rate
        stdin.close()


@contextmanager
def served(bundle: Path, base: Path, folder: Path) -> Iterator[str]:
    """Serve both programs and both models from one server, and yield the page's address."""
    script = folder / "transformers.mjs"
    text = THEIRS.read_text(encoding="utf-8")
    for name in ("onnxruntime-web/webgpu", "onnxruntime-common"):
        text = text.replace(f'"{name}"', f'"{BINDING}"')
    script.write_text(text, encoding="utf-8")
    server = Server({"ours": bundle})
    server.files |= {"/bench": HERE / "bench.html", "/bench.mjs": HERE / "bench_browser.mjs"}
    server.files["/transformers.mjs"] = script
    server.files |= {f"/models/base/{path.relative_to(base)}": path for path in base.rglob("*.*")}
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{server.url}/bench"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def chromium() -> Iterator[Any]:
    sys.path.append(str(HERE.parents[1] / "tests" / "support"))
    from browsing import browsing

    with browsing() as browser:
        browser.driver.set_script_timeout(600)
        browser.driver.command_executor.client_config.timeout = 630
        yield browser.driver


def in_page(driver: Any, address: str, program: str, threads: int) -> Rate:
    """Open a separate page, because WebAssembly's number of threads is fixed per page."""
    driver.switch_to.new_window("tab")
    driver.get(f"{address}#{program}&{threads}")
    window = driver.current_window_handle
    script = (
        "const [prompt, tokens, options, done] = arguments;"
        "rate(prompt, tokens, options).then(done, (error) => done(String(error.stack ?? error)))"
    )

    def rate(prompt: list[int], tokens: int, options: Options) -> float:
        driver.switch_to.window(window)
        said = driver.execute_async_script(script, prompt, tokens, options)
        if not isinstance(said, int | float):
            sys.exit(f"error: {program}, {threads} threads: {said}")
        return float(said)

    return rate


def everybody(stack: ExitStack, model: Any, options: argparse.Namespace) -> Iterator[Contender]:
    """Yield the contenders in the order of the table."""
    threads = options.threads
    modes = settings(model.info.recommended)
    node = stack.enter_context(in_node(options.bundle, threads))
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    source = Source(
        options.bundle, options.checkpoint, "int4", threads, 4096, forms=folder_of(options.checkpoint)
    )
    write_base(source, folder / "base")
    address = stack.enter_context(served(options.web_bundle, folder / "base", folder))
    driver = stack.enter_context(chromium())
    for name, asked in modes.items():
        yield Contender(f"Python, {threads} threads, {name}", in_python(model), asked)
        yield Contender(f"Node.js, {threads} threads, {name}", node, asked)
    for count in (1, 2):
        words = "1 thread" if count == 1 else f"{count} threads"
        page = in_page(driver, address, "ours", count)
        for name, asked in modes.items():
            yield Contender(f"Chromium, {words}, {name}", page, asked)
        for kind in FILES:
            theirs = in_page(driver, address, "theirs", count)
            yield Contender(f"Chromium, {words}, transformers.js {kind}", theirs, {"dtype": kind})


def measure(
    contenders: list[Contender], prompts: list[list[int]], tokens: int, rounds: int
) -> dict[str, list[float]]:
    """Return each contender's tokens per second. The first round is a warm-up and does not count."""
    found: dict[str, list[float]] = {each.name: [] for each in contenders}
    for turn in range(rounds + 1):
        for number, prompt in enumerate(prompts):
            start = (turn + number) % len(contenders)  # rotate the order
            for each in contenders[start:] + contenders[:start]:
                rate = each.rate(prompt, tokens if turn else 4, each.options)
                if turn:
                    found[each.name].append(rate)
    return found


def against(name: str) -> list[str]:
    """Return the names of the contenders that `name` is compared with."""
    place, threads, mode = name.split(", ")
    if place == "Node.js":
        return [f"Python, {threads}, {mode}"]
    return [] if "js" in mode else [f"{place}, {threads}, transformers.js {kind}" for kind in FILES]


def table(found: dict[str, list[float]]) -> Iterator[str]:
    yield "| | tokens a second (quartiles) | beside |"
    yield "|---|---|---|"
    for name, rates in found.items():
        low, middle, high = quantiles(rates, method="inclusive")
        ratios = [
            f"{median(a / b for a, b in zip(rates, found[other], strict=True)):.2f} of {other}"
            for other in against(name)
            if other in found
        ]
        yield f"| {name} | {middle:.1f} ({low:.1f}-{high:.1f}) | {'; '.join(ratios)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Tokens a second: Python, Node.js, Chromium, transformers.js."
    )
    parser.add_argument("bundle", type=Path, help="of ONNX graphs, for Python and Node.js")
    parser.add_argument("web_bundle", type=Path, help="of `export --precision int8`, for Chromium")
    parser.add_argument("checkpoint", type=Path, help="that both were made from, for transformers.js")
    parser.add_argument("--threads", type=int, default=2, help="of Python and Node.js (default 2)")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer (default 64)")
    parser.add_argument("--prompts", type=int, default=len(TEXTS), help=f"of {len(TEXTS)} (default all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="every rate, for later")
    options = parser.parse_args()
    if options.rounds * options.prompts < 2:
        parser.error("--rounds times --prompts must be 2 or more, for quartiles")
    if not THEIRS.is_file():
        sys.exit(
            f"error: no transformers.js: run  npm install --ignore-scripts --omit=optional --prefix {HERE}"
        )
    with ExitStack() as stack:
        model = stack.enter_context(hamburger_edge.load(options.bundle, threads=options.threads))
        turns = [model._parts.template.first_turn(text) for text in TEXTS[: options.prompts]]
        prompts = [model._parts.tokenizer.encode_parts(turn) for turn in turns]
        found = measure(list(everybody(stack, model, options)), prompts, options.tokens, options.rounds)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
