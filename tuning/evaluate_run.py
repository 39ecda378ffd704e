"""Export a trained checkpoint, evaluate it on its task, and store what it then recommends."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hamburger_edge.evaluation.asking import Row
from hamburger_edge.evaluation.judges import find_judge, fitting_judge, judge_files
from hamburger_edge.evaluation.recommending import (
    Recommendation,
    find_recommendation,
    tell_bundle,
    tell_checkpoint,
)
from hamburger_edge.exporting import export_checkpoint
from hamburger_edge.loading import load
from hamburger_edge.models.checkpoints.checkpoint import CARD, copy_checkpoint
from hamburger_edge.models.checkpoints.manifest import MANIFEST
from hamburger_edge.support.files import sha256, write_atomically
from hamburger_edge.support.progress import Progress
from hamburger_edge.support.strict import from_mapping, read_json
from hamburger_edge.support.version import __version__
from hamburger_edge.tuning.tune import CHECKPOINT, Tuning

BUNDLE, EVALUATION = "bundle", "evaluation.json"


def judged(tuning: Tuning, *, threads: int | None = None, progress: Progress) -> Recommendation:
    """Every setting's figures on the checkpoint's bundle, and the setting to recommend. Bundle and checkpoint
    in the working folder then recommend it."""
    recipe, work = tuning.recipe, tuning.work
    asked = _asked(tuning)
    found = _known(work / EVALUATION, asked)
    if found is None:
        export_checkpoint(
            work / CHECKPOINT,
            work / BUNDLE,
            precision=recipe.precision,
            prefer=recipe.prefer,
            force=True,
            progress=progress,
        )
        with load(work / BUNDLE, "onnx", threads=threads) as model:
            found = find_recommendation(
                model,
                tuning.requests,
                find_judge(asked["judge"]),
                recipe.evaluation,
                max_tokens=tuning.dataset.longest,
                progress=progress,
            )
        with write_atomically(work / EVALUATION) as temporary:
            kept = {"asked": asked, "found": asdict(found)}
            temporary.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    tell_bundle(work / BUNDLE, found.best)
    tell_checkpoint(work / CHECKPOINT, found.best)
    return found


def _asked(tuning: Tuning) -> dict[str, Any]:
    """List everything the figures depend on, by content: a changed file is another one."""
    recipe, checkpoint = tuning.recipe, tuning.work / CHECKPOINT
    manifest = read_json(checkpoint / MANIFEST)
    judge = recipe.judge or fitting_judge([request.expected for request in tuning.requests])
    requests = json.dumps([asdict(request) for request in tuning.requests])
    asked = {
        "version": __version__,
        "checkpoint": {
            **{name: manifest.get(name) for name in ("config", "base", "chat_template", "answer_prefix")},
            "files": {
                file.name: sha256(file)
                for file in sorted(checkpoint.iterdir())
                if file.is_file() and file.name not in (MANIFEST, CARD)
            },
        },
        "judge": judge,
        "judge_files": judge_files(judge),
        "precision": recipe.precision,
        "prefer": recipe.prefer,
        "evaluation": asdict(recipe.evaluation),
        "requests": hashlib.sha256(requests.encode()).hexdigest(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(asked))
    return plain


def _known(path: Path, asked: dict[str, Any]) -> Recommendation | None:
    """The figures of an evaluation that asked the same."""
    kept = read_json(path) if path.exists() else {}
    if kept.get("asked") != asked:
        return None
    found = kept["found"]
    choosing, confirming = (
        [from_mapping(Row, row, str(path)) for row in found[name]] for name in ("choosing", "confirming")
    )
    return Recommendation(choosing, confirming, found["points"])


def publish_checkpoint(tuning: Tuning, found: Recommendation, output: Path) -> Path:
    """With its card."""
    recipe = tuning.recipe
    text = f"""# {output.absolute().name}

A HAMburger on {recipe.base}, tuned to one task with {len(tuning.dataset.examples.examples)} examples.

It was asked {found.prompts} prompts that nothing was trained on: whole requests at
{recipe.precision}, settings in turn.

{found.markdown()}

Recommended: {found.verdict}. `run`, `chat` and `load` use that by default.
"""
    return copy_checkpoint(tuning.work / CHECKPOINT, output, card=text)
