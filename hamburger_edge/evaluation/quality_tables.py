"""Format the results of an evaluation as text tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hamburger_edge.evaluation.base_judge import LOOP
from hamburger_edge.evaluation.figures import Figures
from hamburger_edge.evaluation.quality_report import Loss, ModelReport, QualityReport
from hamburger_edge.support.tables import number, table

_COLUMNS = (
    "model", "conf.", "tok/step", "KV saved", "nats/tok", "+plain", "agree", "micro", "prefix",
    "same", "repeat", "loops", "right",
)  # fmt: skip
_LEGEND = f"""\
tok/step: tokens of the answers a step, and so a KV entry; KV saved: of the whole cache, prompt included.
nats/tok: of the answers under the plain base; +plain: more than the base's own greedy answers have.
agree: tokens that are the plain base's choice after the same text; micro: of those not first in a group.
prefix: tokens in common with the model's own plain decoding, from the beginning; same: answers equal to it.
repeat: repeated 4-grams; loops: answers with {LOOP:g} of them and more; right: of the checkable answers.
By kind of prompt, @C: tokens a step at confidence C, then +plain and right there."""
_LOSS_COLUMNS = (
    "loss against the plain base",
    "conf.",
    "weights",
    "+ merging",
    "right: weights",
    "+ merging",
)


def tables(report: QualityReport) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in report.prompts["kinds"].items())
    parts = [
        f"plain base: {report.base_description}",
        f"prompts: {sum(report.prompts['kinds'].values())} of {report.prompts['file']} ({kinds}), "
        f"{report.base.all.checked} with a checkable answer; at most {report.settings['max_tokens']} tokens, "
        f"temperature {report.settings['temperature']:g}",
        *([_skips(report.skipped, _names(report))] if report.skipped else []),
        table([_COLUMNS, *_main_rows(report)]),
        _LEGEND,
        *(_by_kind(model) for model in report.models),
        *(_calibration(model) for model in report.models),
        table([_LOSS_COLUMNS, *map(_loss_cells, report.losses)]) if report.losses else "",
        "" if not report.settings["temperature"] else "weights: with what sampling costs, at confidence 1",
    ]
    return "\n\n".join(part for part in parts if part)


def _names(report: QualityReport) -> int:
    return len({report.base_name, *(model.name for model in report.models)})


def _main_rows(report: QualityReport) -> list[list[str]]:
    apart = all(model.name != report.base_name for model in report.models)
    rows = [[report.base_name, "1", *_cells(report.base.all)]] if apart else []
    for model in report.models:
        for row in model.rows:
            name = model.name if row is model.rows[0] else ""
            rows.append([name, f"{row.confidence:g}", *_cells(row.all)])
            if row.non_looping.answers < row.all.answers:
                count = f"  {row.non_looping.answers} of {row.all.answers} not looping"
                rows.append([count, "", *_cells(row.non_looping)])
    return rows


def _cells(found: Figures) -> list[str]:
    return [
        number(found.tokens_per_step, ".2f"),
        number(found.kv_saved, ".1%"),
        number(found.nll, ".3f"),
        number(found.nll_difference, "+.3f"),
        number(found.agreement, ".1%"),
        number(found.micro_agreement, ".1%"),
        number(found.prefix, ".1f"),
        number(found.identical, ".1%"),
        number(found.repetition, ".1%"),
        number(found.looping, ".1%"),
        number(found.right, ".1%"),
    ]


def _loss_cells(loss: Loss) -> list[str]:
    nats = [number(loss.weights_nll, "+.3f"), number(loss.merging_nll, "+.3f")]
    points = [_points(loss.weights_right), _points(loss.merging_right)]
    return [loss.model, f"{loss.confidence:g}", *nats, *points]


def _by_kind(model: ModelReport) -> str:
    """Return a table by kind of prompt for every confidence below 1."""
    rows = [row for row in model.rows if row.confidence < 1]
    if not rows or len(rows[0].kinds) < 2:
        return ""
    names = [head for row in rows for head in (f"@{row.confidence:g}", "+plain", "right")]
    cells = []
    for kind in rows[0].kinds:
        found = [row.kinds[kind] for row in rows]
        values = [
            [number(f.tokens_per_step, ".2f"), number(f.nll_difference, "+.3f"), number(f.right, ".1%")]
            for f in found
        ]
        cells.append([kind, str(found[0].answers), *(value for three in values for value in three)])
    return table([(model.name, "answers", *names), *cells])


def _calibration(model: ModelReport) -> str:
    found = model.calibration
    if found.error is None:
        return ""
    bins = [
        f"{expected:.2f}>{observed:.2f} ({count})"
        for expected, observed, count in zip(found.expected, found.observed, found.counts, strict=True)
        if expected is not None and observed is not None
    ]
    return (
        f"stop head of {model.name}: expected > observed agreement (proposals), all confidences; "
        f"mean error {found.error:.3f}\n  " + "  ".join(bins)
    )


def _skips(skipped: Sequence[Mapping[str, Any]], models: int) -> str:
    kinds = ", ".join(sorted({entry["kind"] for entry in skipped}))
    some = sorted({name for entry in skipped if len(entry["models"]) < models for name in entry["models"]})
    only = f"; some of them only by {', '.join(some)}" if some else ""
    return f"skipped, longer than the context: {len(skipped)} ({kinds}){only}"


def _points(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f}"
