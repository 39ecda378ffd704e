"""`serve`: names of models, who is let in, and what is refused before a model is loaded."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from hamburger_edge.cli.commands.serve import access_of, for_browsers, named
from hamburger_edge.cli.main import main
from hamburger_edge.cli.parser import build_parser
from hamburger_edge.errors import InputError
from hamburger_edge.serve.gate import Access

KEY = "a-key-of-many-characters"


def access(*words: str) -> Access:
    return access_of(build_parser().parse_args(["serve", "bundle", *words]))


def test_models_have_names(tmp_path: Path) -> None:
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


def test_beyond_this_machine_a_key_is_needed(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(KEY)
    assert not access().keys
    assert not access("--host", "::1").keys
    with pytest.raises(InputError, match="--api-key-file"):
        access("--host", "0.0.0.0")
    assert access("--host", "0.0.0.0", "--api-key-file", str(keys)).keys == (KEY.encode(),)
    assert not access("--host", "0.0.0.0", "--no-auth").keys
    with pytest.raises(InputError, match="exclude"):
        access("--no-auth", "--api-key-file", str(keys))
    assert access("--allow-host", "Edge.Local").knows("edge.local:8080")
    assert access("--cors", "https://a.example").allows_origin("https://a.example", "localhost")


@pytest.mark.parametrize("given", ["other", "bundle={}"])
def test_what_browsers_get(
    given: str, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their own bundle where there is one, else the one that is served, with a word about its speed."""
    made = tmp_path / "made for browsers"
    shutil.copytree(bundle, made)
    folders = {"bundle": str(bundle)}

    def offered(*words: str) -> dict[str, Path]:
        parser = build_parser()
        return for_browsers(parser.parse_args(["serve", f"bundle={bundle}", *words]), folders)

    assert offered() == {"bundle": bundle}
    assert "export --precision int8" in capsys.readouterr().err
    name = given.format(made) if "{}" in given else str(made)
    assert offered("--browser-bundle", name) == {"bundle": made}
    parsed = build_parser().parse_args(["serve", "a=x", "b=y", "--browser-bundle", str(made)])
    with pytest.raises(InputError, match="no such model is served"):
        for_browsers(parsed, {"a": "x", "b": "y"})


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "no-such-folder", "--port", str(taken.getsockname()[1])]) == 1
    assert "in use" in capsys.readouterr().err
