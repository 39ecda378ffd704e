"""The JavaScript package passes its own suite and generates Python's tokens."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from helpers.engine_runs import Entry, along, packed_index
from helpers.goldens import (
    BUNDLES,
    GREEDY,
    LOOPS,
    PROMPTS,
    REPEATED,
    SAMPLED,
    STRUCTURED,
    STRUCTURED_TALKS,
    write_goldens,
)
from helpers.nodejs import JAVASCRIPT as HERE
from helpers.nodejs import needs_node, node
from helpers.toys.toy_bundles import CHANGES, MERGING, PORTABLE

import hamburger_edge
from hamburger_edge import Chunk, Options, Result, Stats
from hamburger_edge.bundle.files import put_draft_index
from hamburger_edge.bundle.manifest import content_hash
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.drafts.copied_words import Words
from hamburger_edge.drafts.draft_index import DraftIndex
from hamburger_edge.drafts.drafting import Costs, Drafter
from hamburger_edge.loop.certainty import Certainty
from hamburger_edge.loop.dial import MODES
from hamburger_edge.structured.formats import PATTERNS
from hamburger_edge.tuning.draft_index import build_draft_index

TSC = HERE / "node_modules" / "typescript" / "bin" / "tsc"
STRICT = ["--noEmit", "--strict", "--target", "es2022"]
STRICT += ["--module", "nodenext", "--moduleResolution", "nodenext"]

pytestmark = needs_node


def test_package_passes_the_type_checker() -> None:
    node(TSC)


def test_package_passes_its_own_suite(tiny: Path) -> None:
    """With the tests of the AI SDK and of damaged bundles."""
    output = node("--test", *sorted((HERE / "tests").glob("*.test.js")), bundle=tiny)
    assert "# fail 0" in output
    assert "# skipped 0" in output
    assert "BUNDLE names no bundle" not in output


def test_format_patterns_equal_python() -> None:
    code = 'import { PATTERNS } from "./structured/formats.js"; console.log(JSON.stringify(PATTERNS))'
    assert json.loads(node("--input-type=module", "--eval", code)) == PATTERNS


DRAFTS = """
import { readFileSync } from "node:fs";
import { Words } from "./drafts/copied_words.js";
import { DraftIndex } from "./drafts/draft_index.js";
import { Drafter } from "./drafts/drafting.js";
const { index, cases } = JSON.parse(readFileSync(process.env.GOLDENS, "utf-8"));
const text = (token) => token < 10 ? "" : token < 1000 ? ` w${token}` : `w${token - 1000}`;
const number = (word) => Number(word.slice(1));
const encode = (word) => [1000 + number(word), ...(number(word) % 3 ? [] : [9])];
const words = new Words((token) => new TextEncoder().encode(text(token)), encode);
const table = new DraftIndex(Uint8Array.from(index), 2000);
const guessed = (prompt, answers, index) => {
  const drafter = new Drafter(prompt, index, words);
  return answers.map((answer, number) => {
    const guess = drafter.guess(answer);
    drafter.begin();
    drafter.add(guess);
    drafter.settle(number % 2);
    return guess && [guess.token, guess.chance, guess.floor, guess.place, guess.match];
  });
};
const both = ([prompt, answers]) => [table, null].map((index) => guessed(prompt, answers, index));
const guesses = cases.flatMap(both);
console.log(JSON.stringify(guesses));
"""


def guessed(drafter: Drafter, answers: list[list[int]]) -> list[list[float] | None]:
    guesses = []
    for number, answer in enumerate(answers):
        guesses.append(drafter.guess(answer))
        drafter.begin()
        drafter.add(guesses[-1])
        drafter.settle(number % 2)
    return [guess and list(guess) for guess in guesses]


def test_drafts_equal_python(tmp_path: Path) -> None:
    """At each position of right and wrong answers, from an index of answers that copy words, and without."""
    spelled = Words(
        lambda token: b"" if token < 10 else b" w%d" % token if token < 1000 else b"w%d" % (token - 1000),
        lambda text: [1000 + int(text[1:]), *([] if int(text[1:]) % 3 else [9])],
    )
    draw = random.Random(4)

    def command() -> tuple[list[int], list[int]]:
        first, second, third = (draw.randrange(100, 400) for _ in range(3))
        prompt = [1, 20, first, 21, second, *([22] if draw.random() < 0.5 else []), third, 2]
        after = prompt.index(21) + 1
        copied = [*spelled.of(prompt)[after].tokens, *prompt[after + 1 : after + draw.randrange(1, 4)]]
        return prompt, [1500, 1501, *copied[: draw.randrange(1, 5)], 1502, draw.choice([1503, 1504]), 2]

    packed = build_draft_index([command() for _ in range(300)], [], 2000, spelled)
    index, cases, guesses = DraftIndex(packed, 2000), [], []
    for _ in range(60):
        (prompt, answer), (_, second) = command(), command()
        again = [*answer[:-1], *answer]  # copies itself
        answers = [part[:size] for part in (answer, second, again) for size in range(len(part))]
        guesses += [guessed(Drafter(prompt, each, spelled), answers) for each in (index, None)]
        cases.append((prompt, answers))
    assert (
        len({guess[0] for prompt_guesses in guesses for guess in prompt_guesses if guess}) > 60
    )  # copied words, too
    goldens = tmp_path / "goldens.json"
    goldens.write_text(json.dumps({"index": list(packed), "cases": cases}))
    assert json.loads(node("--input-type=module", "--eval", DRAFTS, goldens=goldens)) == guesses


def named(changes: dict[str, Any]) -> str:
    return " ".join(map(str, changes.values()))


def compare(goldens: list[Path]) -> None:
    """Run one JavaScript test for each answer and conversation."""
    written = [json.loads(path.read_text()) for path in goldens]
    count = sum(len(golden["answers"]) + len(golden["conversations"]) for golden in written)
    output = node("--test", HERE / "tests" / "answers.test.js", goldens=",".join(map(str, goldens)))
    assert f"# pass {count}" in output


@pytest.mark.parametrize("changes", BUNDLES, ids=named)
def test_answers_equal_python(changes: dict[str, Any], bundles: Callable[..., Path], tmp_path: Path) -> None:
    goldens = tmp_path / "goldens.json"
    groups_of_several = write_goldens(goldens, bundles(**changes), repeated=REPEATED)
    assert groups_of_several > (60 if changes.get("max_group_tokens") != 1 else 20)
    answers = json.loads(goldens.read_text())["answers"]
    if "window" not in changes:  # a window is too short to copy from
        assert max(len(group) for answer in answers for group in answer["groups"]) > 4  # copied
    compare([goldens])


@pytest.mark.parametrize("changes", LOOPS, ids=named)
def test_first_drafts_and_structures_equal_python(
    changes: dict[str, Any], bundles: Callable[..., Path], tmp_path: Path
) -> None:
    """One prompt's answer begins with all guesses of the index, another's with some of them."""
    with hamburger_edge.load(bundles(**changes), threads=1) as model:
        plain = [model.generate(prompt, confidence=1.0, max_tokens=6).tokens for prompt in PROMPTS[:2]]
    goldens = [tmp_path / f"{name}.json" for name in ("all", "some", "structured")]
    wrong_second = [plain[1][0], plain[0][0]]
    for path, guesses, right in zip(goldens[:2], (plain[0], wrong_second), (6, 1), strict=True):
        folder = Path(shutil.copytree(bundles(**changes), path.with_suffix("")))
        add_index(folder, along(guesses, first=0))
        write_goldens(path, folder, asked=(*GREEDY, *SAMPLED)[::2])  # every mode, with and without sampling
        answers = json.loads(path.read_text())["answers"]
        assert any(answer["groups"][0][:right] == list(guesses[:right]) for answer in answers)
    write_goldens(goldens[2], bundles(**changes), asked=STRUCTURED, talks=STRUCTURED_TALKS)
    compare(goldens)


def add_index(folder: Path, entries: Iterable[Entry]) -> None:
    """Give a bundle a draft index of these entries."""
    put_draft_index(folder, load_manifest(folder), packed_index(*entries))


@pytest.mark.parametrize("changes", LOOPS, ids=named)
def test_index_drafts_equal_python(
    changes: dict[str, Any], bundles: Callable[..., Path], tmp_path: Path
) -> None:
    """Likely drafts are merged unchecked, unless the settings may forbid a token."""
    folder = Path(shutil.copytree(bundles(**changes), tmp_path / "indexed"))
    with hamburger_edge.load(folder, threads=1) as model:
        plain = [model.generate(prompt, confidence=1.0, max_tokens=12).tokens for prompt in PROMPTS]
    add_index(folder, (entry for answer in plain for entry in along(answer)))
    first_tokens = {answer[0] for answer in plain}
    banned = {
        "logit_bias": {token: -100 for answer in plain for token in answer if token not in first_tokens}
    }
    low: dict[str, Any] = {"mode": "hybrid", "confidence": 0.01}  # random weights give low probabilities
    dials = ({"mode": "verify"}, low, {**low, **banned}, {"mode": "verify", **banned})
    goldens = tmp_path / "goldens.json"
    write_goldens(goldens, folder, asked=dials, talks=())
    answers = json.loads(goldens.read_text())["answers"]
    assert max(len(group) for group in answers[0]["groups"]) > 4  # guessed
    for answer in answers[2 * len(PROMPTS) :]:
        assert not {token for group in answer["groups"] for token in group} & banned["logit_bias"].keys()
    compare([goldens])


def test_drafts_behind_long_texts_equal_python(bundles: Callable[..., Path], tmp_path: Path) -> None:
    """Attention makes rows so dear that drafts of copied tokens end sooner."""
    goldens, longest = [], []
    for row_slots in (0.0, 10.0):
        goldens.append(tmp_path / f"{row_slots}.json")
        folder = Path(shutil.copytree(bundles(**LOOPS[0]), goldens[-1].with_suffix("")))
        costs = Costs(row=0.05, micro=0.05, call_slots=0.5, row_slots=row_slots)
        replace(load_manifest(folder), draft_costs=costs).save(folder)
        write_goldens(goldens[-1], folder, asked=(), talks=(), repeated=REPEATED)
        answers = json.loads(goldens[-1].read_text())["answers"]
        longest.append([max(map(len, answer["groups"])) for answer in answers])
    assert sum(longest[1]) < sum(longest[0])
    compare(goldens)


@pytest.mark.parametrize("changes", [*LOOPS, MERGING], ids=named)
def test_certainty_equals_python(
    changes: dict[str, Any], bundles: Callable[..., Path], tmp_path: Path
) -> None:
    """In every mode, with structures, in conversations, and 0 for answers that were cut."""
    folder = Path(shutil.copytree(bundles(**changes), tmp_path / "measured"))
    replace(load_manifest(folder), certainty=Certainty(offset=5.0, slope=1.5)).save(folder)
    goldens = tmp_path / "goldens.json"
    ended = [{**request, "stop": ["e", "a", " "], "min_certainty": 0.5} for request in (*GREEDY, *SAMPLED)]
    write_goldens(goldens, folder, asked=(*ended, GREEDY[0], *STRUCTURED[12:18]))
    answers = json.loads(goldens.read_text())["answers"]
    certainties = {answer["certainty"] for answer in answers}
    assert 0 in certainties
    assert len(certainties) > 10
    assert {answer["unsure"] for answer in answers} == {False, True}
    compare([goldens])


def test_manifest_with_another_hash_is_refused() -> None:
    """The hash is of Python's JSON: numbers as written, sorted keys, ASCII."""
    facts = {
        "\u00e4": '\u00e9\x7f\n\U0001f600"\\ 1.5 /',
        "x": [1.0, 1e-05, -3, 1e16, True, None],
        "b": {"z": {}, "a": "", "\ud800": "\ud800"},
        "__proto__": {"n": "n1", "s": []},
    }
    text = json.dumps({**facts, "sha256": content_hash(facts)}, indent=1)
    program = (
        "import { checkManifest } from './bundle/manifest_hash.js';"
        "for (const text of process.argv.slice(1)) {"
        "  const content = new TextEncoder().encode(text);"
        "  console.log(await checkManifest(content, 'here').catch((error) => error.message));"
        "}"
    )
    edits = (('"a": ""', '"a": " "'), ("1.0,", "1,"), ("true", "false"), ('"x"', '"y"'))
    changed = [text.replace(old, new) for old, new in edits]
    unchanged, *messages = node("--input-type=module", "-e", program, text, *changed).splitlines()
    assert unchanged == "undefined"
    assert len(messages) == len(edits)
    assert all("here: manifest.json was changed since it was written" in message for message in messages)


@pytest.mark.parametrize(
    "changes", [PORTABLE, {"precision": "int8", "kv_cache_dtype": "fp32", **CHANGES}], ids=named
)
def test_react_native_adapter_equals_python(changes: dict[str, Any], bundles: Callable[..., Path]) -> None:
    """With node's binding of the same interface, because its own needs a phone."""
    bundle = bundles(**changes)
    output = node("tests/react_native.mjs", "onnxruntime-node", bundle, *PROMPTS)
    with hamburger_edge.load(bundle, threads=1) as model:
        assert json.loads(output) == [model.generate(prompt, max_tokens=24).groups for prompt in PROMPTS]


def test_react_native_adapter_refuses_an_int8_cache(
    bundles: Callable[..., Path],
) -> None:
    """Its ONNX Runtime 1.24 would report a type error of three lines."""
    message = node("tests/react_native.mjs", "no-such-binding", bundles(precision="int8", **CHANGES), "x")
    assert message.startswith("BundleError: ")
    assert message.endswith("computes float32 caches only: export it with --kv-cache-dtype fp32\n")


# -- as a package in an app --------------------------------------------------------------------------------


def tracked_files() -> list[str]:
    return subprocess.check_output(["git", "ls-files", "."], cwd=HERE, text=True).split()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, packed from a copy of its folder, since other tests use that; unpacked in an app."""
    app, copy = tmp_path_factory.mktemp("app"), tmp_path_factory.mktemp("copy")
    for name in tracked_files():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / name, copy / name)
    (copy / "node_modules").symlink_to(HERE / "node_modules")
    npm = str(shutil.which("npm"))
    command = [npm, "pack", "--silent", "--pack-destination", str(app)]
    subprocess.run(command, cwd=copy, check=True, capture_output=True, timeout=300)
    assert not (copy / "types").exists()  # the declarations are made for the archive alone
    [archive] = app.glob("*.tgz")
    with tarfile.open(archive) as content:
        content.extractall(app / "node_modules", filter="data")
    return (app / "node_modules" / "package").rename(app / "node_modules" / "hamburger-edge")


def test_package_holds_its_code_and_types_only(packed: Path) -> None:
    names = {path.relative_to(packed).as_posix() for path in packed.rglob("*") if path.is_file()}
    tracked = set(tracked_files())
    code = {name for name in tracked if not name.startswith(("tests/", "reference/", "tsconfig."))}
    types = {f"types/{name.removesuffix('.js')}.d.ts" for name in code if name.endswith(".js")}
    assert names == code | types


@pytest.fixture(scope="module")
def app(packed: Path) -> Path:
    """The folder of a TypeScript app with the package and its dependencies."""
    for path in (HERE / "node_modules").iterdir():
        if not path.name.startswith(".") and not (packed.parent / path.name).exists():
            (packed.parent / path.name).symlink_to(path)
    return packed.parents[1]


def test_readme_programs_print_groups(app: Path, bundle: Path) -> None:
    """A random model replaces the one that the text names."""
    (app / "my-bundle").symlink_to(bundle)
    readme = (app / "node_modules" / "hamburger-edge" / "README.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```js\n(.*?)^```$", readme, re.M | re.S)
    assert programs
    for text in programs:
        (app / "first.mjs").write_text(text, encoding="utf-8")
        assert node(app / "first.mjs", folder=app).startswith("[")


def test_typescript_app_has_the_types(app: Path) -> None:
    """Comments in the app mark the lines that must be type errors."""
    program = Path(shutil.copy(HERE / "tests" / "typed.mts", app))
    node(TSC, *STRICT, "--skipLibCheck", program)


def test_typescript_app_needs_no_optional_package(packed: Path, tmp_path: Path) -> None:
    """The compiler checks declarations, here without those of xgrammar and the AI SDK."""
    packages = tmp_path / "node_modules"
    shutil.copytree(packed, packages / "hamburger-edge")
    for name in ("onnxruntime-node", "onnxruntime-common", "@types"):
        (packages / name).symlink_to(HERE / "node_modules" / name)
    program = tmp_path / "lean.mts"
    names = ("", "/node", "/web", "/react-native")
    program.write_text(
        "".join(f'export * as part{i} from "hamburger-edge{name}";\n' for i, name in enumerate(names))
    )
    node(TSC, *STRICT, program, folder=tmp_path)


def test_editors_complete_the_names_of_python(app: Path) -> None:
    """Options, results and statistics have Python's names in camel case; options have comments."""

    def camel(names: Iterable[str]) -> set[str]:
        return {re.sub("_([a-z])", lambda letter: letter[1].upper(), name) for name in names}

    offered = json.loads(node("tests/completions.mjs", app))
    assert camel(Options.__annotations__) <= set(offered["options"]) & set(offered["chat"])
    assert all(comment for name, comment in offered["options"].items() if name != "grammar")
    assert set(offered["conversation"]) == {"messages"}
    assert set(offered["mode"]) == set(MODES)
    assert set(offered["role"]) == {"system", "user", "assistant"}
    assert camel({field.name for field in fields(Result)}) <= set(offered["result"])
    assert camel(Chunk._fields) <= set(offered["chunk"])
    assert camel(Stats().to_json()) <= set(offered["stats"])
    assert {"result", "text", "groups", "stats", "complete", "certainty", "unsure", "cancel"} <= set(
        offered["stream"]
    )
