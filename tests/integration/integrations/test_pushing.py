"""A model is pushed to a hub on this machine, by the hub's own client, and loaded from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.local_hub import LocalHub, serving
from helpers.places import PROGRAMS, contents, environment

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[optimum]'")

from hamburger_edge.integrations.model_card import model_card
from hamburger_edge.integrations.transformers import HamburgerForCausalLM, HamburgerHFConfig
from hamburger_edge.models.checkpoints.built_in import ZOO
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

TINY = ZOO / "tiny"


def test_pushed_model_is_one_commit_and_loads_by_its_name(tmp_path: Path) -> None:
    hub = LocalHub({}, {})
    with serving(hub) as address:
        hub_variables = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "cache"), "NO_PROXY": "*"}
        variables = environment(HF_HUB_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="1", **hub_variables)
        command = [sys.executable, PROGRAMS / "pushed_to_hub.py", TINY]
        done = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert hub.messages == {report["commit"]: "Two and two"}
    assert report["there"] == report["here"]
    assert all("Org" in path for path in hub.asked)
    assert report["text"] == "7 plus 8 is 15. So the answer is 15."
    folder = tmp_path / "folder"
    HamburgerForCausalLM.from_pretrained(TINY).save_pretrained(folder)
    pushed, saved = hub.commits[report["commit"]], contents(folder)
    assert pushed.keys() == saved.keys()
    assert {name for name in saved if pushed[name] != saved[name]} == {"README.md"}
    card = pushed["README.md"].decode()
    assert 'model="Org/Name-1.5"' in card
    assert card.replace("Org/Name-1.5", "folder") == saved["README.md"].decode()


def test_model_card_names_one_licence_and_omits_several() -> None:
    checkpoint, config = load_checkpoint(TINY), HamburgerHFConfig.from_pretrained(TINY)
    assert "\nlicense: apache-2.0\n" in model_card("me/tiny", config, checkpoint)
    checkpoint.manifest["license"] = {"graft": "Apache-2.0", "base": "llama3.2"}
    assert "\nlicense:" not in model_card("me/tiny", config, checkpoint)
