"""Calibrate the certainty of a run's bundle on prompts that neither trained nor judged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hamburger_edge.evaluation.asking import Request
from hamburger_edge.evaluation.certainty_fit import answer_likelihoods, fit_and_judge
from hamburger_edge.evaluation.certainty_report import CertaintyReport, reliability
from hamburger_edge.evaluation.judges import find_judge
from hamburger_edge.loop.dial import Recommended
from hamburger_edge.model import Model
from hamburger_edge.models.checkpoints.saving import PICTURE
from hamburger_edge.support.progress import Progress
from hamburger_edge.tuning.tune import Tuned

FEWEST = 10  # prompts that fit; fewer give no certainty
SIZE, EDGE = 240, 40  # of the picture


def calibrate(
    tuned: Tuned, model: Model, requests: Sequence[Request], setting: Recommended | None, progress: Progress
) -> CertaintyReport | None:
    """Fit the certainty, and judge it by the requests. None: too few prompts or whole answers.

    If no other prompt is left to fit, every second request does, and the others judge. For each purpose at
    most as many prompts are answered as there are requests.
    """
    task, limit = tuned.task, len(requests)
    fitting = task.dataset.certainty_requests(task.split)[:limit]
    judging = requests
    if not fitting:
        fitting, judging = list(requests[::2]), requests[1::2]
    off_topic = task.dataset.off_topic
    if len(fitting) < FEWEST:
        return None
    judge = find_judge(task.judge)
    groups = [fitting, judging, off_topic.calibrating[: limit // 2], off_topic.judging[: limit // 2]]
    answers = [
        answer_likelihoods(
            model, group, judge, setting=setting, max_tokens=task.dataset.longest, progress=progress
        )
        for group in groups
    ]
    if all(answer.nll is None for answer in answers[0]):
        return None
    return fit_and_judge(*answers)


def write_picture(folder: Path, report: CertaintyReport) -> None:
    """Draw the share of right answers over the mean certainty, as SVG; areas are numbers of answers."""
    scored = report.judged
    bins = reliability(scored.certainties, scored.right)
    total = EDGE + SIZE + EDGE
    points = [
        f'<circle cx="{EDGE + SIZE * one.certainty:.1f}" cy="{EDGE + SIZE * (1 - one.right):.1f}" '
        f'r="{3 + 12 * (one.answers / len(scored.right)) ** 0.5:.1f}" fill="#4477aa" fill-opacity="0.7">'
        f"<title>{one.answers} answers: certainty {one.certainty:.2f}, right {one.right:.2f}</title></circle>"
        for one in bins
    ]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {total}" width="{total}" '
        f'height="{total}" font-family="sans-serif" font-size="11">',
        f'<rect width="{total}" height="{total}" fill="white"/>',
        f'<rect x="{EDGE}" y="{EDGE}" width="{SIZE}" height="{SIZE}" fill="none" stroke="#999999"/>',
        f'<path d="M{EDGE} {EDGE + SIZE}L{EDGE + SIZE} {EDGE}" stroke="#999999" stroke-dasharray="4"/>',
        *points,
        f'<text x="{EDGE}" y="{EDGE - 10}">share of right answers</text>',
        f'<text x="{EDGE + SIZE}" y="{EDGE + SIZE + 28}" text-anchor="end">certainty</text>',
        *(
            f'<text x="{EDGE - 6}" y="{EDGE + SIZE * (1 - value) + 4}" text-anchor="end">{value:g}</text>'
            f'<text x="{EDGE + SIZE * value}" y="{EDGE + SIZE + 14}" text-anchor="middle">{value:g}</text>'
            for value in (0, 0.5, 1)
        ),
        "</svg>",
    ]
    (folder / PICTURE).write_text("\n".join(lines) + "\n", encoding="utf-8")
