"""A task that a toy base learns in seconds: a word, said back in capitals as JSON."""

from __future__ import annotations

import json
import random
from pathlib import Path

import torch

from hamburger_edge.models.architecture.config import HamburgerConfig
from hamburger_edge.models.architecture.hamburger import Hamburger
from helpers.toys.toy_checkpoints import write_hf
from helpers.toys.toy_models import toy_config
from helpers.toys.toy_tokenizers import byte_level


def write_base(folder: Path, layers: int = 2) -> Path:
    """A Hugging Face folder with a tokenizer and chat markup; its weights are random."""
    torch.manual_seed(0)
    config: HamburgerConfig = toy_config(
        vocab_size=512, hidden_size=64, intermediate_size=128, num_layers=layers
    )
    model = Hamburger(config)
    torch.nn.init.normal_(model.base.embed_tokens.weight, std=0.1)
    write_hf(folder, model)
    byte_level(folder).rename(folder / "tokenizer.json")
    (folder / "chat_markup.json").write_text('{"kind": "chatml"}')
    return folder


def write_examples(path: Path, count: int = 400, seed: int = 0) -> Path:
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        word = "".join(draw.choice("abcde") for _ in range(3))
        answer = json.dumps({"said": word.upper(), "length": len(word)})
        lines.append(json.dumps({"prompt": f"say {word} {draw.randrange(10**6)}", "answer": answer}) + "\n")
    path.write_text("".join(lines))
    return path
