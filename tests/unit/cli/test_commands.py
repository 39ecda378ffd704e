"""`chat`, `eval` and `serve`: Ctrl-C at each moment, the compared models, and access."""

from __future__ import annotations

import io
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.toys.toy_bundles import toy_checkpoint
from helpers.toys.toy_checkpoints import save, write_hf

from hamburger_edge.cli.commands.chat import converse
from hamburger_edge.cli.commands.serve import access_of, for_browsers, named
from hamburger_edge.cli.main import main
from hamburger_edge.cli.parser import build_parser
from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.likelihood.base_judge import prompt_ids
from hamburger_edge.evaluation.likelihood.models import reference_base, sources
from hamburger_edge.model import Model
from hamburger_edge.models.checkpoints.built_in import ZOO
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.serve.gate import Access

# chat


class Input(io.StringIO):
    """Typed or piped input. A line ^C interrupts the program while it waits for the next line."""

    def __init__(self, lines: str, terminal: bool) -> None:
        super().__init__(lines)
        self.isatty = lambda: terminal  # type: ignore[method-assign]

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]
        if (line := super().readline()) == "^C\n":
            raise KeyboardInterrupt
        return line


def interrupting(steps: int) -> Any:
    """Ctrl-C in the middle of that step."""
    left = steps

    def before_macro(_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGINT)

    return before_macro


@pytest.mark.parametrize("terminal", [True, False])
def test_ctrl_c_stops_the_answer_on_a_terminal_and_the_program_on_a_pipe(
    terminal: bool, model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal Ctrl-C stops the answer; with a pipe it ends the program."""
    model.backend.eos_rate = 0.0
    model.backend.before_macro = interrupting(3)
    monkeypatch.setattr(sys, "stdin", Input("hello\n/continue\n^C\n/stats\n", terminal))
    if terminal:
        converse(model, system=None, show_steps=False, max_tokens=50)
    else:
        with pytest.raises(KeyboardInterrupt):
            converse(model, system=None, show_steps=False, max_tokens=50)
    out = capsys.readouterr().out
    assert out.count(" [stopped]\n") == 1
    assert ("/quit or Ctrl-D ends" in out, "groups hold" in out) == (terminal, terminal)


def test_ctrl_c_between_answers_keeps_the_conversation(
    model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    encode, calls = model.tokenizer.encode_parts, 0

    def interrupted(parts: Any) -> list[int]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return encode(parts)

    monkeypatch.setattr(model.tokenizer, "encode_parts", interrupted)
    monkeypatch.setattr(sys, "stdin", Input(f"one\ntwo\nthree\n/save {tmp_path}/session\n", True))
    converse(model, system=None, show_steps=False, max_tokens=5)
    assert [message.text for message in model.resume(tmp_path / "session").messages[::2]] == ["one", "three"]


# eval


def test_quick_uses_the_built_in_prompts(run_eval: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run_eval(str(ZOO / "tiny"), "--quick", "--max-tokens", "8", "--threads", "1")
    assert code == 0, err
    assert re.search(r"prompts: 1[4-6] of the built-in set", out)  # two of a kind, the long ones if they fit
    assert "  0.8  " in out


def test_reference_is_the_unchanged_base(tmp_path: Path) -> None:
    """A checkpoint with a delta is compared with its unchanged base."""
    checkpoint = toy_checkpoint(tmp_path / "toy")
    model = checkpoint.model
    write_hf(tmp_path / "base", model)
    generator = torch.Generator().manual_seed(1)
    weight = "layers.1.self_attn.q_proj.weight"
    before = {name: value.clone() for name, value in model.base.state_dict().items()}
    rows, columns = before[weight].shape
    delta = {
        f"{weight}.lora_a": torch.randn(2, columns, generator=generator),
        f"{weight}.lora_b": torch.randn(rows, 2, generator=generator),
        "norm.weight.delta": torch.randn(columns, generator=generator),
    }
    described = {"tokenizer": checkpoint.tokenizer, "chat_template": checkpoint.chat_template}
    base = {"kind": "path", "path": "../base"}
    folder = save(tmp_path / "changed", model, base=base, base_delta=delta, **described)
    judge = reference_base(str(folder), cache_slots=64)
    assert "without what training the graft changed in it" in judge.description
    found = judge.model.backend.model.base.state_dict()  # type: ignore[attr-defined]
    for name, expected in before.items():
        torch.testing.assert_close(found[name], expected, atol=1e-5, rtol=0)
    changed = load_checkpoint(folder).model.base.state_dict()
    assert not torch.allclose(changed[weight], found[weight], atol=0.1)
    ids = prompt_ids(judge.model, "the cat")
    assert judge.read(ids, ids).nll.shape == (len(ids),)
    assert judge.model.info.cache_slots == 64


def test_every_runtime_of_a_bundle_is_evaluated(tmp_path: Path) -> None:
    for name, files in {"both": ("a.onnx", "b.gguf"), "one": ("a.gguf",), "other/one": ()}.items():
        (tmp_path / name).mkdir(parents=True)
        for file in files:
            (tmp_path / name / file).touch()
    paths = [str(tmp_path / name) for name in ("both", "one", "other/one")]
    found = sources(paths, "all")
    assert [source.backend for source in found] == ["onnx", "llamacpp", "llamacpp", "auto"]
    assert [source.label for source in found] == [
        "both",
        "both",
        *paths[1:],
    ]  # names that are not given twice
    assert [source.backend for source in sources(paths, "onnx")] == ["onnx"] * 3
    with pytest.raises(InputError, match="given twice"):
        sources([paths[0], paths[0]], "auto")


# serve


def access(*words: str) -> Access:
    return access_of(build_parser().parse_args(["serve", "bundle", *words]))


def test_served_models_are_named_by_option_or_folder(tmp_path: Path) -> None:
    odd = tmp_path / "a=b"
    odd.mkdir()
    assert named([str(tmp_path), "small=x/y", str(odd)]) == [
        (tmp_path.name, str(tmp_path)),
        ("small", "x/y"),
        ("a=b", str(odd)),
    ]
    assert named([]) == [("smollm2-135m", "smollm2-135m")]
    for given in (["=x"], ["x="], ["a=x", "a=y"], ["x/one", "y/one"]):
        with pytest.raises(InputError):
            named(given)


def test_serving_beyond_this_machine_needs_a_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-many-characters")
    assert not access().keys
    assert not access("--host", "::1").keys
    with pytest.raises(InputError, match="--api-key-file"):
        access("--host", "0.0.0.0")
    assert access("--host", "0.0.0.0", "--api-key-file", str(keys)).keys == (keys.read_bytes(),)
    assert not access("--host", "0.0.0.0", "--no-auth").keys
    with pytest.raises(InputError, match="exclude"):
        access("--no-auth", "--api-key-file", str(keys))
    assert access("--allow-host", "Edge.Local").knows("edge.local:8080")
    assert access("--cors", "https://a.example").allows_origin("https://a.example", "localhost")


@pytest.mark.parametrize("name", ["other", "bundle=other"])
def test_browsers_get_their_bundle_or_the_served_one(
    name: str,
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Their own bundle where there is one, else the one that is served, with a word about its speed."""

    def offered(folders: dict[str, Path], *words: str) -> dict[str, Path]:
        given = [f"{name}={folder}" for name, folder in folders.items()]
        return for_browsers(build_parser().parse_args(["serve", *given, *words]), folders)

    monkeypatch.chdir(tmp_path)
    shutil.copytree(bundle, "other")
    assert offered({"bundle": bundle}) == {"bundle": bundle}
    assert "export --precision int8" in capsys.readouterr().err
    assert offered({"bundle": bundle}, "--browser-bundle", name) == {"bundle": Path("other")}
    with pytest.raises(InputError, match="no such model is served"):
        offered({"a": Path("x"), "b": Path("y")}, "--browser-bundle", "other")


def test_used_port_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "no-such-folder", "--port", str(taken.getsockname()[1])]) == 1
    assert "in use" in capsys.readouterr().err
