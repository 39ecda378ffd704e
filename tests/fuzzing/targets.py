"""What is damaged, and how it is used then. Honest files are made once, from `tiny`."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hamburger_edge
from hamburger_edge.bundle.manifest import FILE_NAME, content_hash
from hamburger_edge.errors import InputError
from hamburger_edge.evaluation.checks import read_prompts
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint
from hamburger_edge.models.training.training_recipe import read_recipe
from hamburger_edge.runtimes.llamacpp import library as llama_library
from hamburger_edge.runtimes.onnx import sessions as onnx_sessions
from hamburger_edge.support.files import sha256

PRELOADED = llama_library, onnx_sessions  # once, and not in every process that is forked

QUESTION = "What is 7 plus 8?"
OPTIONS: dict[str, Any] = {
    "question": QUESTION,
    "load": {
        "backend": "onnx",
        "provider": "cpu",
        "threads": 1,
        "cache_slots": 256,
        "kv_cache_dtype": "int8",
        "verify": False,
    },
    "generate": {
        "mode": "merge",
        "confidence": 0.5,
        "max_tokens": 8,
        "stop": ["zzz"],
        "top_probabilities": 0,
        "temperature": 0.5,
        "top_k": 5,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "seed": 0,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.1,
        "logit_bias": {3: -100},
        "regex": "[0-9a-z =.]{1,40}",
        "forced": "split",
        "force_group": None,
        "system": "",
        "raw": False,
        "reuse_prefix": True,
        "ignore_eos": False,
    },
}


@dataclass(frozen=True)
class Target:
    name: str
    files: tuple[str, ...]  # that may be damaged, in the folder
    use: Callable[[Path], str]  # what is said with them; raises a HamburgerError
    seal: Callable[[Path], None] | None = None  # hashes made right again, as by one who means harm
    hashed: bool = False  # without that, every change is noticed, or changes nothing


def make(folder: Path) -> None:
    """The honest files; takes a minute, once."""
    export = hamburger_edge.export_checkpoint
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "text").mkdir(parents=True)
    zoo = Path(hamburger_edge.__file__).parents[1] / "models" / "zoo" / "tiny"
    shutil.copytree(zoo, partial / "checkpoint")
    export("tiny", partial / "bundle", precision="int8", verify=False)
    export("tiny", partial / "gguf", formats=["gguf"], precision="int8", verify=False)
    shutil.copytree(partial / "bundle", partial / "session")
    with hamburger_edge.load(partial / "session") as model:
        chat = model.chat(confidence=0.5, max_tokens=8)
        list(chat.send(QUESTION))
        chat.save(partial / "session" / "talk")
    shutil.copytree(partial / "bundle", partial / "options")
    (partial / "options" / "options.json").write_text(json.dumps(OPTIONS))
    shutil.copy(zoo.with_name("smollm2-135m") / "recipe.toml", partial / "text")
    lines = '{"prompt": "What is 1 plus 1?", "kind": "sum", "check": {"type": "number", "value": 2}}\n' * 4
    (partial / "text" / "prompts.jsonl").write_text(lines)
    partial.rename(folder)


def _say(folder: Path, backend: str = "onnx") -> str:
    with hamburger_edge.load(folder, backend, verify=True) as model:
        return model.generate(QUESTION, confidence=0.5, max_tokens=8).text


def _go_on(folder: Path) -> str:
    with hamburger_edge.load(folder, "onnx") as model:
        chat = model.resume(folder / "talk")
        return "".join(chunk.text for chunk in chat.send("And 3 more?"))


def _ask(folder: Path) -> str:
    """Values of options may be anything; their names are the caller's own, and Python knows them."""
    try:
        asked = json.loads((folder / "options.json").read_bytes())
        known = asked.keys() <= OPTIONS.keys() and all(
            asked.get(name, {}).keys() <= OPTIONS[name].keys() for name in ("load", "generate")
        )
    except (ValueError, AttributeError):  # not JSON any more, or no objects
        known = False
    if not known:
        raise InputError("options of other names")
    with hamburger_edge.load(folder, **asked.get("load", {})) as model:
        return model.generate(asked.get("question"), **asked.get("generate", {})).text


def _load_checkpoint(folder: Path) -> str:
    load_checkpoint(folder)
    return ""


def _read_recipe(folder: Path) -> str:
    read_recipe(folder / "recipe.toml")
    return ""


def _read_prompts(folder: Path) -> str:
    read_prompts(folder / "prompts.jsonl")
    return ""


def _seal_session(folder: Path) -> None:
    talk = folder / "talk"
    content = talk.read_bytes()[:-32]
    talk.write_bytes(content + hashlib.sha256(content).digest())


def _seal_bundle(folder: Path) -> None:
    path = folder / FILE_NAME
    try:
        manifest = json.loads(path.read_bytes())
        for entry in manifest["files"]:
            file = folder / entry["path"]
            entry["bytes"], entry["sha256"] = file.stat().st_size, sha256(file)
        manifest["sha256"] = content_hash(manifest)
    except Exception:  # the manifest itself is what was damaged: nothing to make right
        return
    path.write_text(json.dumps(manifest))


GRAPHS = ("base.onnx", "embedder.onnx", "micro_decoder.onnx", "weights.bin")
GGUFS = ("base.gguf", "micro_decoder.gguf", "graft.gguf")
CHECKPOINT = ("hamburger.json", "base.safetensors", "graft.safetensors", "tokenizer.json")
TARGETS = (
    Target("bundle", (FILE_NAME, *GRAPHS, "tokenizer.json"), _say, _seal_bundle, hashed=True),
    Target("gguf", (FILE_NAME, *GGUFS), lambda folder: _say(folder, "llamacpp"), _seal_bundle, hashed=True),
    Target("session", ("talk",), _go_on, _seal_session, hashed=True),
    Target("options", ("options.json",), _ask),
    Target("checkpoint", CHECKPOINT, _load_checkpoint),
    Target("recipe", ("recipe.toml",), _read_recipe),
    Target("prompts", ("prompts.jsonl",), _read_prompts),
)
FOLDERS = {"recipe": "text", "prompts": "text"}  # of the honest files, where not by the target's name
