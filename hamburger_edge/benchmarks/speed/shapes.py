"""Bundles with random weights in the shape of a known model. Step times do not depend on weight values.

The text of such a model has no meaning. So the benchmark forces the group size and reports no quality.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hamburger_edge.bundle.files import file_entries
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.errors import InputError
from hamburger_edge.support.progress import Progress, no_progress

if TYPE_CHECKING:
    from hamburger_edge.models.architecture.config import HamburgerConfig

SMALL = 1 << 16  # numbers
PRECISION = "int4"

LLAMA_32_1B: dict[str, Any] = {
    "family": "llama",
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_layers": 16,
    "num_heads": 32,
    "num_kv_heads": 8,
    "head_dim": 64,
    "context_length": 8192,
    "rope_theta": 500000.0,
}
TINY: dict[str, Any] = {
    "family": "llama",
    "vocab_size": 1024,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_layers": 4,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "context_length": 2048,
}
# "llama-3.2-1b" has the graft of the paper: 4 micro layers, taps 3, 7, 11, groups of up to 4 tokens. Its
# micro head covers a draft vocabulary.
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama-3.2-1b": (LLAMA_32_1B, {"taps": (3, 7, 11), "merger_heads": 64, "draft_vocab_size": 8192}),
    "tiny": (TINY, {"taps": (1, 2), "merger_heads": 4, "draft_vocab_size": 256}),
}


def shape_bundle(name: str, *, progress: Progress = no_progress) -> Path:
    """Return the bundle of this shape, exported once into the cache folder."""
    from hamburger_edge import __version__
    from hamburger_edge.export.description import TOKENIZER
    from hamburger_edge.exporting import export_checkpoint
    from hamburger_edge.models.checkpoints.checkpoint import Checkpoint, build
    from hamburger_edge.support.cache import cache_folder
    from hamburger_edge.support.folders import made_once

    if name not in SHAPES:
        raise InputError(f"--shape {name}: unknown (known: {', '.join(SHAPES)})")
    config = shape_config(name)

    def make(out: Path) -> None:
        model = build(config, random_state(config))
        facts = {"base": {"name": f"{name}, random weights", "kind": "random"}}
        template = ChatTemplate.preset("chatml").to_json()
        # Export without a tokenizer to skip calibration, which random weights do not need.
        checkpoint = Checkpoint(model, None, template, facts, Path(name), Path(name))  # type: ignore[arg-type]  # see above
        bundle = export_checkpoint(
            checkpoint, out / "bundle", precision=PRECISION, verify=False, progress=progress
        )
        _write_tokenizer(bundle / TOKENIZER, config.base.vocab_size)
        manifest = load_manifest(bundle)
        replace(manifest, tokenizer=TOKENIZER, files=tuple(file_entries(bundle))).save(bundle)

    return made_once(cache_folder() / "shapes" / f"{name}-{PRECISION}-{__version__}", make) / "bundle"


def shape_config(name: str) -> HamburgerConfig:
    from hamburger_edge.models.architecture.config import BaseConfig, HamburgerConfig

    base, graft = SHAPES[name]
    return HamburgerConfig(
        base=BaseConfig(**base), eos_ids=(0,), max_group_tokens=4, micro_layers=4, stop_rule="after", **graft
    )


def random_state(config: HamburgerConfig) -> dict[str, Any]:
    """Return random weights. Large weights are overlapping views of one pool as large as the largest weight.

    Each view has a different offset. Small weights are copies, because a traced graph may store them, and
    stored tensors must not overlap.
    """
    import torch

    from hamburger_edge.models.architecture.hamburger import Hamburger
    from hamburger_edge.models.bases.weights import shapes

    with torch.device("meta"):
        sizes = shapes(Hamburger(config))
    generator = torch.Generator().manual_seed(0)
    largest = max(torch.Size(shape).numel() for shape in sizes.values())
    pool = torch.randn(largest + len(sizes), generator=generator).mul_(0.02)
    state: dict[str, Any] = {}
    for offset, (name, shape) in enumerate(sizes.items()):
        if name == "draft_vocab":
            state[name] = torch.arange(config.draft_vocab_size or config.base.vocab_size)
        elif name.endswith("norm.weight"):
            state[name] = torch.ones(shape)
        else:
            window = pool[offset : offset + torch.Size(shape).numel()].view(shape)
            state[name] = window if window.numel() > SMALL else window.clone()
    return state


def _write_tokenizer(path: Path, vocab_size: int) -> None:
    """Write a tokenizer with one word per token id, so that it can decode every answer."""
    vocab = {f"w{i}": i for i in range(vocab_size)}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "w1"}
    split = {"type": "Whitespace"}
    join = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    none = ("truncation", "padding", "normalizer", "post_processor")
    data: dict[str, Any] = {"version": "1.0", **dict.fromkeys(none), "added_tokens": []}
    data |= {"pre_tokenizer": split, "decoder": join, "model": model}
    path.write_text(json.dumps(data), encoding="utf-8")
