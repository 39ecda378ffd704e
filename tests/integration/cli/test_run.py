"""`hamburger-edge run` prints the answer to standard output and the rest to standard error."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hamburger_edge.cli.main as cli
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.loop.certainty import Certainty

STATS_KEYS = {
    *("tokens", "macro_steps", "tokens_per_step", "slots", "kv_bytes", "kv_bytes_uncompressed"),
    *("ttft_s", "decode_tps", "provider", "precision"),
}


@pytest.fixture
def run(bundle: Path, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """`run` with the toy bundle, in this process: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(["run", str(bundle), *arguments, "--threads", "1"])
        return code, *capsys.readouterr()

    return call


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["hi", "--confidence", "2"], "confidence"),
        (["hi", "--cache-slots", "0"], "cache_slots"),
        (["hi", "--cache-slots", "3"], "slots"),
        (["hi", "--provider", "abacus"], "abacus"),
        (["hi", "--backend", "torch"], "torch"),
        (["hi", "--system", "\udcff"], "UTF-8"),
        (["hi", "--regex", "[0-9"], 'unclosed character class in "[0-9"'),
        (["hi", "--json-schema", '{"type": "colour"}'], "invalid type: colour"),
        (["hi", "--json-schema", "no-such-file.json"], "--json-schema no-such-file.json: cannot be read"),
        (["hi", "--grammar", "no\0file"], "--grammar"),
    ],
)
def test_bad_value_gives_one_line_and_exit_code_1(run, arguments: list[str], word: str) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert re.fullmatch(r"error: .+\n", err)
    assert word in err
    *traceback, line = run(*arguments, "--debug")[2].splitlines()
    assert traceback[0].startswith("Traceback")
    assert f"{line}\n" == err


def test_json_output_has_the_documented_keys(run) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run(
        "hello", "--json", "--max-tokens", "30", "--mode", "merge", "--confidence", "0.4", "--show-steps"
    )
    assert (code, err) == (0, "")
    [line] = out.splitlines()
    answer = json.loads(line)
    assert set(answer) == {"text", "tokens", "groups", "finish_reason", "stats"}
    assert answer["finish_reason"] == "length"
    assert set(answer["stats"]) == STATS_KEYS
    assert answer["tokens"] == [token for group in answer["groups"] for token in group]
    assert len(answer["tokens"]) == answer["stats"]["tokens"] == 30
    assert len(answer["groups"]) == answer["stats"]["macro_steps"] < 30
    assert answer["stats"]["tokens_per_step"] == pytest.approx(30 / len(answer["groups"]))
    assert answer["stats"]["kv_bytes"] < answer["stats"]["kv_bytes_uncompressed"]
    assert (answer["stats"]["provider"], answer["stats"]["precision"]) == ("cpu", "fp32")
    plain = run("hello", "--max-tokens", "30", "--mode", "merge", "--confidence", "0.4")
    cut = "the answer was cut after 30 tokens: allow more with  --max-tokens\n"
    assert plain == (0, answer["text"] + "\n", cut)


def test_options_seed_raw_stop_system_and_mode_take_effect(run) -> None:  # type: ignore[no-untyped-def]
    def answer(*arguments: str) -> Any:
        code, out, _ = run(*arguments, "--json", "--max-tokens", "24")
        assert code == 0
        return json.loads(out)

    def sampled(seed: str) -> Any:
        return answer("hello", "--temperature", "1.5", "--seed", seed)["tokens"]

    assert sampled("1") == sampled("1") != sampled("2")
    plain = answer("hello", "--confidence", "1")
    assert plain["stats"]["tokens_per_step"] == 1
    assert answer("hello", "--mode", "verify")["tokens"] == plain["tokens"]
    markup = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert answer(markup, "--raw", "--confidence", "1")["tokens"] == plain["tokens"]
    assert answer("hello", "--raw", "--confidence", "1")["tokens"] != plain["tokens"]
    assert answer("hello", "--system", "be kind", "--confidence", "1")["tokens"] != plain["tokens"]
    letter = next(letter for letter in plain["text"][1:] if letter.isprintable())
    stopped = answer("hello", "--confidence", "1", "--stop", letter, "--stop", "never said")
    assert stopped["text"] == plain["text"].split(letter)[0]


def test_show_steps_prints_to_standard_error_without_a_terminal(run) -> None:  # type: ignore[no-untyped-def]
    """Groups in brackets inside the answer looked like a broken JSON array."""
    options = ("--max-tokens", "12", "--mode", "merge", "--confidence", "0.2")
    answer = json.loads(run("hello", "--json", *options)[1])
    code, out, err = run("hello", "--show-steps", *options)
    assert (code, out) == (0, answer["text"] + "\n")
    groups, cut, stats = err.splitlines()
    assert groups.startswith("groups: ")
    assert 0 < groups.count("|") < len(answer["groups"])
    assert cut.startswith("the answer was cut after 12 tokens")
    assert re.fullmatch(r"12 tokens in \d+ steps .* saved", stats)


def test_statistics_name_no_saving_if_nothing_was_merged(run) -> None:  # type: ignore[no-untyped-def]
    """Every answer of plain decoding ended with "0% saved"."""
    code, _, err = run("hello", "--show-steps", "--max-tokens", "12", "--mode", "plain")
    assert code == 0
    assert re.fullmatch(r"12 tokens in 12 steps .* KV cache [\d.]+ MiB", err.splitlines()[-1])


def test_full_cache_names_the_option_that_enlarges_it(run) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run("hello", "--cache-slots", "30", "--confidence", "1", "--max-tokens", "400")
    assert (code, out[-1]) == (0, "\n")
    assert err == "the answer was cut: all 30 slots of the cache are full: allow more with  --cache-slots\n"


def test_schema_grammar_and_regex_constrain_the_answer(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    schema["additionalProperties"] = False
    (tmp_path / "schema.json").write_text(json.dumps(schema), encoding="utf-8")
    (tmp_path / "grammar.lark").write_text('start: "yes" | "no"', encoding="utf-8")
    for schema_option in (json.dumps(schema), str(tmp_path / "schema.json")):
        code, out, err = run("hi", "--json-schema", schema_option)
        assert (code, err) == (0, "")
        assert json.loads(out)["a"] in "xy"
    assert run("hi", "--grammar", str(tmp_path / "grammar.lark"))[1] in ("yes\n", "no\n")
    assert re.fullmatch("[0-9]{3}\n", run("hi", "--regex", "[0-9]{3}")[1])
    code, out, _ = run("hi", "--regex", "[0-9]{3}", "--json")
    assert json.loads(out)["complete"] is True
    code, out, err = run("hi", "--regex", "[0-9]{30}", "--max-tokens", "2")
    assert (code, len(out)) == (0, 3)
    assert "before its structure was complete" in err


def test_answer_below_min_certainty_gives_exit_code_3(  # type: ignore[no-untyped-def]
    run, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("hi", "--min-certainty", "0.9")[0] == 1  # the bundle has no certainty
    measured = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    certainty = Certainty(offset=0.0, slope=0.0)  # 0.5 for each complete answer
    replace(load_manifest(measured), certainty=certainty).save(measured)
    question = ["run", str(measured), "hi", "--regex", "[0-9]{3}", "--threads", "1"]
    assert cli.main(question) == 0
    text = capsys.readouterr().out
    assert cli.main([*question, "--min-certainty", "0.4"]) == 0
    assert capsys.readouterr() == (text, "")
    assert cli.main([*question, "--min-certainty", "0.9"]) == 3
    assert capsys.readouterr() == (text, "unsure: the answer's certainty is 0.5, below 0.9\n")
    assert cli.main([*question, "--min-certainty", "0.9", "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert (answer["certainty"], answer["unsure"]) == (0.5, True)


@pytest.mark.parametrize("shown", [[], ["--json"]], ids=["text", "json"])
def test_cut_correction_prints_the_prompt_and_gives_exit_code_3(
    shown: list[str], bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    editor = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    replace(load_manifest(editor), edits_prompt=True).save(editor)
    words = ["run", str(editor), "some words to correct", "--raw", "--threads", "1", *shown]
    assert cli.main([*words, "--max-tokens", "1"]) == 3
    out, err = capsys.readouterr()
    if shown:
        answer = json.loads(out)
        assert (answer["text"], answer["unsure"]) == ("some words to correct", True)
    else:
        assert out == "some words to correct\n"
        assert "unsure: the answer was cut or repeats itself; the text is the prompt's own" in err
