"""Measure a task's whole requests in Python, Node.js and Chromium, and beside transformers.js.

    npm install --ignore-scripts --omit=optional --prefix examples/browser     # transformers.js
    python examples/browser/bench.py BUNDLE CHECKPOINT EXAMPLES [--requests N] [--report FILE]

EXAMPLES is JSON lines with "prompt" and "answer", as for `tune`. Each request is answered greedily from its
first to its end token, by every contender before the next request. transformers.js runs the checkpoint's
base at q8 (see bench_theirs.py), with this package's files of onnxruntime-web. Needs the extras bench and
dev, Chromium and npm.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from bench_theirs import write_base
from serve import Server

import hamburger_edge
from hamburger_edge.benchmarks.contender import Source
from hamburger_edge.benchmarks.peers.peer_files import folder_of
from hamburger_edge.model import Model
from hamburger_edge.models.checkpoints.built_in import resolve

HERE = Path(__file__).resolve().parent
THEIRS = HERE / "node_modules" / "@huggingface" / "transformers" / "dist" / "transformers.web.min.js"
BINDING = "/packages/onnxruntime-web/dist/ort.wasm.bundle.min.mjs"
MEMORY = "--enable-blink-features=ForceEagerMeasureMemory"

Options = dict[str, Any]
Answer = tuple[float, float, list[int]]  # milliseconds to the first tokens and of all, tokens
Ask = Callable[[list[int], Options], Answer]


@dataclass
class Contender:
    name: str
    ask: Ask
    options: Options = field(default_factory=dict)
    memory: Callable[[], float] | None = None  # megabytes of its page
    answers: list[Answer] = field(default_factory=list)

    @property
    def times(self) -> list[float]:
        return [answer[1] for answer in self.answers]


def in_python(model: Model) -> Ask:
    def ask(prompt: list[int], options: Options) -> Answer:
        begin = perf_counter()
        result = model.generate(prompt, max_tokens=128, reuse_prefix=False, **options)
        return 1000 * result.stats.ttft_s, 1000 * (perf_counter() - begin), result.tokens

    return ask


@contextmanager
def in_node(bundle: Path, threads: int) -> Iterator[Ask]:
    command = ["node", str(HERE / "bench_node.mjs"), str(bundle), str(threads)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        stdin, stdout = process.stdin, process.stdout

        def ask(prompt: list[int], options: Options) -> Answer:
            stdin.write(json.dumps([prompt, options]) + "\n")
            stdin.flush()
            first, whole, tokens = json.loads(stdout.readline())
            return first, whole, tokens

        yield ask
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
    sys.path.append(str(HERE.parents[1] / "tests"))
    from helpers.browsing import browsing

    with browsing(MEMORY) as browser:
        browser.driver.set_script_timeout(600)
        browser.driver.command_executor.client_config.timeout = 630
        yield browser.driver


def in_page(driver: Any, address: str, program: str, threads: int) -> tuple[Ask, Callable[[], float]]:
    """Open a separate page, because WebAssembly's number of threads is fixed per page."""
    driver.switch_to.new_window("tab")
    driver.get(f"{address}#{program}&{threads}")
    window = driver.current_window_handle

    def run(call: str, *words: Any) -> Any:
        driver.switch_to.window(window)
        driver.execute_cdp_cmd("Page.bringToFront", {})  # Chromium gives hidden pages a low priority
        script = (
            "const words = [...arguments], done = words.pop();"
            f"{call}(...words).then(done, (error) => done(String(error.stack ?? error)))"
        )
        said = driver.execute_async_script(script, *words)
        if isinstance(said, str):
            sys.exit(f"error: {program}, {threads} threads: {said}")
        return said

    def ask(prompt: list[int], options: Options) -> Answer:
        first, whole, tokens = run("ask", prompt, options)
        return first, whole, tokens

    return ask, lambda: float(run("memory")) / 1e6


def contenders(stack: ExitStack, model: Model, options: argparse.Namespace) -> Iterator[Contender]:
    """Yield the contenders in the order of the table."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    source = Source(options.bundle, options.checkpoint, "int8", 2, 4096, forms=folder_of(options.checkpoint))
    write_base(source, folder / "base")
    address = stack.enter_context(served(options.bundle, folder / "base", folder))
    driver = stack.enter_context(chromium())
    yield Contender("Python, 2 threads", in_python(model))
    yield Contender("Node.js, 2 threads", stack.enter_context(in_node(options.bundle, 2)))
    for threads in (1, 2):
        where = f"Chromium, {threads} thread{'s' * (threads > 1)}"
        ask, memory = in_page(driver, address, "ours", threads)
        yield Contender(where, ask, memory=memory)
        yield Contender(f"{where}, plain", ask, {"mode": "plain"})
        ask, memory = in_page(driver, address, "theirs", threads)
        yield Contender(f"{where}, transformers.js q8", ask, memory=memory)


def measure(found: list[Contender], prompts: list[list[int]]) -> None:
    """Ask everybody each prompt, in another order each time. The first prompt warms up and does not count."""
    for number, prompt in enumerate([prompts[0], *prompts]):
        start = number % len(found)
        for each in found[start:] + found[:start]:
            answer = each.ask(prompt, each.options)
            if number:
                each.answers.append(answer)


def table(found: list[Contender], right: Callable[[list[int], int], bool]) -> Iterator[str]:
    yield "| | first tokens, ms | whole request, ms (quartiles) | tokens/s | right | MB | to theirs |"
    yield "|---|---|---|---|---|---|---|"
    for each in found:
        low, middle, high = quantiles(each.times, method="inclusive")
        rate = 1000 * sum(len(answer[2]) for answer in each.answers) / sum(each.times)
        count = sum(right(answer[2], number) for number, answer in enumerate(each.answers))
        peer = next(
            (other for other in found if other.name == f"{each.name.removesuffix(', plain')}, {PEER}"), None
        )
        cells = (
            each.name,
            f"{median(answer[0] for answer in each.answers):.0f}",
            f"{middle:.0f} ({low:.0f}-{high:.0f})",
            f"{rate:.1f}",
            f"{count} of {len(each.answers)}",
            f"{each.memory():.0f}" if each.memory else "",
            f"{median(b / a for a, b in zip(each.times, peer.times, strict=True)):.2f}" if peer else "",
        )
        yield f"| {' | '.join(cells)} |"


PEER = "transformers.js q8"


def examples(path: Path, count: int) -> list[tuple[str, str]]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = [json.loads(line) for line in content.decode().splitlines()]
    return [(row["prompt"], row["answer"]) for row in rows[:: max(1, len(rows) // count)][:count]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="A task's requests: Python, Node.js, Chromium, transformers.js.", allow_abbrev=False
    )
    parser.add_argument("bundle", type=Path, help="of ONNX graphs at int8")
    parser.add_argument("checkpoint", type=resolve, help="that it was made from, for transformers.js")
    parser.add_argument("examples", type=Path, help='JSON lines with "prompt" and "answer"')
    parser.add_argument(
        "--requests", type=int, default=20, help="how many of them, evenly spread (default 20)"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write every answer with its times")
    options = parser.parse_args()
    if not THEIRS.is_file():
        sys.exit(
            f"error: no transformers.js: run  npm install --ignore-scripts --omit=optional --prefix {HERE}"
        )
    asked = examples(options.examples, options.requests)
    with ExitStack() as stack:
        model = stack.enter_context(hamburger_edge.load(options.bundle, threads=2))
        prompts = [model.inference.turn(text, (), None) for text, _ in asked]
        found = list(contenders(stack, model, options))
        measure(found, prompts)

        def right(tokens: list[int], number: int) -> bool:
            return (
                model.decode([token for token in tokens if token not in model.info.eos_ids])
                == asked[number][1]
            )

        print("\n".join(table(found, right)))
    if options.report:
        options.report.write_text(
            json.dumps({each.name: each.answers for each in found}) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
