"""The manifest of a bundle whose other files are written, and the files that all bundles have."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hamburger_edge.bundle.files import file_entries
from hamburger_edge.bundle.manifest import (
    FORMAT,
    KIND,
    Flavor,
    KVLayout,
    Manifest,
    ModelSpec,
    Origin,
    PrecisionPlan,
)
from hamburger_edge.drafts.draft_index import read_draft_index
from hamburger_edge.drafts.drafting import USUAL_COSTS, Costs
from hamburger_edge.export.assembly.assemble import compact_tokenizer
from hamburger_edge.export.graphs.signatures import GraphIO
from hamburger_edge.loop.answer_facts import AnswerFacts
from hamburger_edge.models.architecture.config import HamburgerConfig
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.bases.sources.fetch import notice_of
from hamburger_edge.models.bases.sources.terms import NOTICE, copy_terms
from hamburger_edge.models.checkpoints.checkpoint import Checkpoint
from hamburger_edge.models.checkpoints.manifest import MANIFEST
from hamburger_edge.support.files import DRAFT_INDEX
from hamburger_edge.support.version import package_version

TOKENIZER = "tokenizer.json"
# Measured on two x86-64 cores, as shares of a call's fixed cost; other precisions have USUAL_COSTS. At int4 a
# call with one row reads the cache for two.
DRAFT_COSTS = {"int8": Costs(row=0.12, micro=0.2)}
LONG_TEXTS = {"int8": {"call_slots": 0.2, "row_slots": 0.19}, "int4": {"call_slots": 0.38, "row_slots": 0.19}}


def manifest_of(
    checkpoint: Checkpoint,
    folder: Path,
    ios: Mapping[str, GraphIO],
    *,
    flavor: Flavor,
    plan: PrecisionPlan,
    cache_slots: int,
    kv: str = "float32",
) -> Manifest:
    base = checkpoint.model.config.base
    layout = KVLayout(base.num_layers, base.num_kv_heads, base.head_dim, kv)
    origins = origins_of(checkpoint)
    return Manifest(
        format=FORMAT,
        kind=KIND,
        producer=f"hamburger-edge {package_version()}",
        flavor=flavor,
        model=model_spec(checkpoint.model),
        precision=plan,
        kv=layout,
        cache_slots=cache_slots,
        graphs=tuple(io.spec for io in ios.values()),
        files=tuple(file_entries(folder)),
        tokenizer=TOKENIZER if (folder / TOKENIZER).exists() else None,
        base=origins[0],
        graft=origins[1],
        chat_template=checkpoint.chat_template,
        **vars(AnswerFacts.of(checkpoint.manifest)),
        draft_costs=_draft_costs(checkpoint, plan, flavor),
    )


def _draft_costs(checkpoint: Checkpoint, plan: PrecisionPlan, flavor: Flavor) -> Costs:
    costs = DRAFT_COSTS.get(plan.base, USUAL_COSTS)
    if flavor != "fused" or checkpoint.is_task:  # its texts are short
        return costs
    return dataclasses.replace(costs, **LONG_TEXTS.get(plan.base, {}))


def write_shared_files(checkpoint: Checkpoint, folder: Path) -> None:
    """Write what graphs and GGUF files have in common: tokenizer, the base's terms, draft index."""
    if checkpoint.tokenizer is not None:
        compact_tokenizer(checkpoint.tokenizer, folder / TOKENIZER)
    copy_terms(checkpoint.folder, folder)
    name = checkpoint.manifest.get("base", {}).get("name")  # of a base that was fetched
    if name and not (folder / NOTICE).exists() and (notice := notice_of(name)):
        (folder / NOTICE).write_text(notice, encoding="utf-8")
    index = checkpoint.file(DRAFT_INDEX)
    if index and read_draft_index(index, checkpoint.model.config.base.vocab_size):
        shutil.copyfile(index, folder / DRAFT_INDEX)


def model_spec(model: Hamburger) -> ModelSpec:
    config: HamburgerConfig = model.config
    base = config.base
    return ModelSpec(
        family=base.family,
        vocab_size=base.vocab_size,
        hidden_size=base.hidden_size,
        num_layers=base.num_layers,
        max_group_tokens=config.max_group_tokens,
        micro_layers=config.micro_layers,
        taps=config.taps,
        position_rule=config.position_rule,
        stop_rule=config.stop_rule,
        merge_residual=config.merge_residual,
        context_length=base.context_length,
        eos_ids=config.eos_ids,
        tied_head=base.tied_head,
        draft_vocab=tuple(model.draft_vocab.tolist()) if config.draft_vocab_size else None,
    )


def origins_of(checkpoint: Checkpoint) -> tuple[Origin, Origin]:
    """The origins of base and graft, as far as the checkpoint records them."""
    facts: dict[str, Any] = checkpoint.manifest
    base, terms = facts.get("base", {}), facts.get("license", {})
    provenance = facts.get("provenance", {})
    name = checkpoint.path.resolve().name
    if not (checkpoint.path / MANIFEST).exists():  # an ordinary model is named as its base
        name = base.get("name") or name
    return (
        Origin(base.get("name") or name, terms.get("base"), base.get("kind"), base.get("sha256")),
        Origin(name, terms.get("graft"), provenance.get("source")),
    )
