"""Bases from a model hub: one on this machine, asked by the hub's own client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants, file_download
from local_hub import LocalHub, serving
from places import names
from toy_checkpoints import same_weights, save, write_hf
from toy_models import toy_model

from hamburger_edge.errors import FetchError
from hamburger_edge.models.bases import hub as hub_module
from hamburger_edge.models.bases.fetch import base_folder, fetch, is_complete, pinned_name
from hamburger_edge.models.bases.loading import find_base
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

OLD, NEW = "0" * 39 + "1", "0" * 39 + "2"  # commits


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """`hub(name)` fetches from a repository of two commits, whose first is tagged v1."""
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")
    files = {"config.json": b"{}", "pytorch_model.bin": b"", "model.pt": b"", "code.py": b"raise"}
    local = LocalHub({"main": NEW, "v1": OLD}, {OLD: files, NEW: {**files, "LICENSE": b"MIT"}})
    with serving(local) as address:
        # what the client takes from the environment as it is imported
        monkeypatch.setattr(constants, "ENDPOINT", address)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.partition("/{repo_id}")
        for module in (constants, file_download):
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", address + "".join(template[1:]))

        def bring(name: str) -> Path:
            return fetch(name)

        bring.asked, bring.local = local.asked, local  # type: ignore[attr-defined]
        yield bring


def test_repository(tmp_path: Path, hub: Any) -> None:
    folder = hub("hf:Org/Name-1.5")
    assert folder == tmp_path / "bases" / "hf--Org--Name-1.5"
    assert names(folder) == ["LICENSE", "config.json", "fetched.json"]
    asked = list(hub.asked)
    assert asked[0].startswith("/api/models/Org/Name-1.5")
    assert not any(path.endswith((".bin", ".pt", ".py")) for path in asked)
    assert "*.safetensors" in hub_module._WANTED
    record = json.loads((folder / "fetched.json").read_text())
    assert (record["source"], record["commit"]) == ("hf:Org/Name-1.5", NEW)
    assert fetch("hf:Org/Name-1.5") == folder
    assert hub.asked == asked  # nobody is asked


def test_weights_come_once(hub: Any) -> None:
    """Some repositories hold them a second time, as their authors had them."""
    files = ["model.safetensors", "consolidated.safetensors", "original/consolidated.00.safetensors"]
    hub.local.commits[NEW] |= dict.fromkeys(files, b"weights")
    folder = hub("hf:Org/Name-1.5")
    assert names(folder) == ["LICENSE", "config.json", "fetched.json", "model.safetensors"]
    assert not any("consolidated" in path for path in hub.asked)


def test_a_repository_at_a_revision(tmp_path: Path, hub: Any) -> None:
    tagged, exact = hub("hf:Org/Name-1.5@v1"), hub(f"hf:Org/Name-1.5@{OLD}")
    assert tagged == tmp_path / "bases" / "hf--Org--Name-1.5--v1"
    assert exact == tmp_path / "bases" / f"hf--Org--Name-1.5--{OLD}"
    for folder in (tagged, exact):
        assert names(folder) == ["config.json", "fetched.json"]
        assert json.loads((folder / "fetched.json").read_text())["commit"] == OLD


def test_a_damaged_repository_comes_again_from_its_commit(hub: Any) -> None:
    folder = hub("hf:Org/Name-1.5")
    hub.local.revisions["main"] = OLD  # the branch moves
    (folder / "LICENSE").write_text("other")
    assert hub("hf:Org/Name-1.5") == folder
    assert (folder / "LICENSE").read_text() == "MIT"
    assert is_complete(folder, verify=True)
    # and the name that a checkpoint keeps is that folder as well
    assert pinned_name("hf:Org/Name-1.5", folder) == f"hf:Org/Name-1.5@{NEW}"
    assert base_folder(f"hf:Org/Name-1.5@{NEW}") == folder
    assert base_folder(f"hf:Org/Name-1.5@{OLD}") != folder


def test_what_a_killed_fetch_left_of_another_commit_is_thrown_away(tmp_path: Path, hub: Any) -> None:
    left = tmp_path / "bases" / ".hf--Org--Name-1.5.partial"
    left.mkdir(parents=True)
    (left / "begun-commit").write_text(OLD)
    (left / "model-00001-of-00002.safetensors").write_text("of the other commit")
    assert names(hub("hf:Org/Name-1.5")) == ["LICENSE", "config.json", "fetched.json"]


def test_a_revision_that_is_not_there(hub: Any) -> None:
    with pytest.raises(FetchError, match=r"hf:Org/Name-1\.5@v2 could not be fetched"):
        hub("hf:Org/Name-1.5@v2")
    assert not base_folder("hf:Org/Name-1.5@v2").exists()


def test_a_repository_is_a_base(tmp_path: Path, hub: Any) -> None:
    model = toy_model()
    written = tmp_path / "written"
    write_hf(written, model)
    hub.local.commits[NEW] = {path.name: path.read_bytes() for path in written.iterdir()}
    hub("hf:Org/Name-1.5")
    base, reference = find_base("hf:Org/Name-1.5")
    assert base.config == model.config.base
    assert reference["name"] == f"hf:Org/Name-1.5@{NEW}"
    folder = save(tmp_path / "checkpoint", model, base=reference, tokenizer=None)
    loaded = load_checkpoint(folder)
    assert loaded.tokenizer == tmp_path / "bases" / "hf--Org--Name-1.5" / "tokenizer.json"
    same_weights(loaded.model, model)


def test_repository_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def model_info(*_: object, **__: object) -> None:
        raise ConnectionError("Max retries exceeded\nwith many details")

    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    with pytest.raises(FetchError, match=r"Org/Name could not be .*\(Max retries exceeded\): check") as error:
        fetch("hf:Org/Name")
    assert "\n" not in str(error.value)
    assert not base_folder("hf:Org/Name").exists()
