"""Bases from a model hub: one on this machine, asked by the hub's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.local_hub import LocalHub, serving
from helpers.places import names
from helpers.toys.toy_checkpoints import same_weights, save, write_hf
from helpers.toys.toy_models import toy_model
from huggingface_hub import HfApi, constants, file_download

from hamburger_edge.errors import CheckpointError, FetchError
from hamburger_edge.models.bases.loading import find_base
from hamburger_edge.models.bases.sources.fetch import base_folder, fetch, is_complete, pinned_name
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

OLD, NEW = "0" * 39 + "1", "0" * 39 + "2"  # commits
NAME = "hf:Org/Name-1.5"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """Where `fetch` asks: a repository of two commits, whose first is tagged v1."""
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")
    files = {"config.json": b"{}", "pytorch_model.bin": b"", "model.pt": b"", "code.py": b"raise"}
    local = LocalHub({"main": NEW, "v1": OLD}, {OLD: files, NEW: {**files, "LICENSE": b"MIT"}})
    with serving(local) as address:
        # constants that the client reads from the environment when it is imported
        monkeypatch.setattr(constants, "ENDPOINT", address)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.partition("/{repo_id}")
        for module in (constants, file_download):
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", address + "".join(template[1:]))
        yield local


def test_repository_is_fetched_once_without_code_and_second_weights(tmp_path: Path, hub: LocalHub) -> None:
    """Some repositories hold their weights a second time, as their authors had them."""
    weights = ["model.safetensors", "consolidated.safetensors", "original/consolidated.00.safetensors"]
    hub.commits[NEW] |= dict.fromkeys(weights, b"weights")
    folder = fetch(NAME)
    assert folder == tmp_path / "bases" / "hf--Org--Name-1.5"
    assert names(folder) == ["LICENSE", "config.json", "fetched.json", "model.safetensors"]
    asked = list(hub.asked)
    assert not any(path.endswith((".bin", ".pt", ".py")) or "consolidated" in path for path in asked)
    record = json.loads((folder / "fetched.json").read_text())
    assert (record["source"], record["commit"]) == (NAME, NEW)
    assert fetch(NAME) == folder
    assert hub.asked == asked  # nobody is asked


def test_repository_is_fetched_at_a_revision(
    tmp_path: Path, hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for revision in ("v1", OLD):
        folder = fetch(f"{NAME}@{revision}")
        assert folder == tmp_path / "bases" / f"hf--Org--Name-1.5--{revision}"
        assert names(folder) == ["config.json", "fetched.json"]
        assert json.loads((folder / "fetched.json").read_text())["commit"] == OLD
    with pytest.raises(FetchError, match=r"hf:Org/Name-1\.5@v2 could not be fetched"):
        fetch(f"{NAME}@v2")

    def out_of_reach(*_: object, **__: object) -> None:
        raise ConnectionError("Max retries exceeded\nwith many details")

    monkeypatch.setattr(HfApi, "model_info", out_of_reach)
    with pytest.raises(FetchError, match=r"could not be fetched \(Max retries exceeded\): check"):
        fetch(f"{NAME}@v2")
    assert not base_folder(f"{NAME}@v2").exists()


def test_damaged_repository_is_fetched_again_from_its_commit(hub: LocalHub) -> None:
    folder = fetch(NAME)
    hub.revisions["main"] = OLD  # the branch moves
    (folder / "LICENSE").write_text("other")
    assert fetch(NAME) == folder
    assert (folder / "LICENSE").read_text() == "MIT"
    assert is_complete(folder, verify=True)
    # and the name that a checkpoint keeps is that folder as well
    assert pinned_name(NAME, folder) == f"{NAME}@{NEW}"
    assert base_folder(f"{NAME}@{NEW}") == folder
    assert base_folder(f"{NAME}@{OLD}") != folder


def test_leftovers_of_another_commit_are_deleted(tmp_path: Path, hub: LocalHub) -> None:
    left = tmp_path / "bases" / ".hf--Org--Name-1.5.partial"
    left.mkdir(parents=True)
    (left / "begun-commit").write_text(OLD)
    (left / "model-00001-of-00002.safetensors").write_text("of the other commit")
    assert names(fetch(NAME)) == ["LICENSE", "config.json", "fetched.json"]


def test_repository_is_a_base(tmp_path: Path, hub: LocalHub) -> None:
    model = toy_model()
    written = tmp_path / "written"
    write_hf(written, model)
    hub.commits[NEW] = {path.name: path.read_bytes() for path in written.iterdir()}
    (fetch(NAME) / "chat_markup.json").write_text('{"kind": "chatml"}')
    base, reference = find_base(NAME)
    assert base.config == model.config.base
    assert reference["name"] == f"{NAME}@{NEW}"
    folder = save(tmp_path / "checkpoint", model, base=reference, tokenizer=None, chat_template=None)
    loaded = load_checkpoint(folder)
    assert loaded.chat_template == base.chat_template is not None
    assert loaded.tokenizer == tmp_path / "bases" / "hf--Org--Name-1.5" / "tokenizer.json"
    same_weights(loaded.model, model)
    other = save(tmp_path / "other", model, base={**reference, "sha256": "0" * 64}, tokenizer=None)
    with pytest.raises(CheckpointError, match="not the weights"):
        load_checkpoint(other)
