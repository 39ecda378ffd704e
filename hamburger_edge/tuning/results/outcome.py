"""The scores of a run, for a terminal, as JSON and for the model card."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hamburger_edge.evaluation.certainty_report import RIGHT, CertaintyReport
from hamburger_edge.evaluation.recommending import Recommendation
from hamburger_edge.models.checkpoints.saving import PICTURE
from hamburger_edge.support.tables import pipes
from hamburger_edge.support.tables import table as aligned
from hamburger_edge.tuning.dataset import FEW
from hamburger_edge.tuning.judging.baselines import Baseline, comparison, plain_score, unbeaten
from hamburger_edge.tuning.judging.score_range import score_range
from hamburger_edge.tuning.judging.tool_scores import ToolScore, show_tool_scores, tool_table
from hamburger_edge.tuning.results.wrong_answers import WrongAnswer, show_wrong

NOT_MEASURED = "certainty: not measured, since too few prompts neither train nor judge: give more examples"


@dataclass(frozen=True)
class Outcome:
    """The scores of a run: the baselines, and the model at every setting."""

    found: Recommendation
    baselines: list[Baseline]
    wrong: list[WrongAnswer]  # of plain decoding
    tools: list[ToolScore]  # of plain decoding; empty for a model without tools
    not_in_prompt: int | None  # plain decoding's answers with such values; None: not judged by fields
    certainty: CertaintyReport | None = None  # None: too few prompts to fit it
    right: float = RIGHT  # percent of right answers, for which a min_certainty is reported

    @property
    def plain(self) -> Baseline:
        return plain_score([self.found.choosing[0], self.found.confirming[0]])

    def to_json(self) -> dict[str, Any]:
        return {
            "baselines": [asdict(one) for one in self.baselines],
            "plain": asdict(self.plain),
            "plain_range": list(score_range(self.plain.score, self.found.prompts)),
            **({"tools": [asdict(tool) for tool in self.tools]} if self.tools else {}),
            **({} if self.not_in_prompt is None else {"values_not_in_the_prompt": self.not_in_prompt}),
            **self.found.to_json(),
            "certainty": None if self.certainty is None else self.certainty.to_json(self.right),
        }

    def __str__(self) -> str:
        """Format for a terminal, with warnings first: few prompts, and an unbeaten baseline."""
        warnings = [f"warning: {warning}" for warning in self._warnings]
        scores = f"{aligned(comparison(self.plain, self.baselines))}\n{self._range}"
        tools = [show_tool_scores(self.tools)] if self.tools else []
        certainty = NOT_MEASURED if self.certainty is None else self.certainty.text(self.right)
        wrong = show_wrong(self.wrong, self.found.prompts)
        return "\n\n".join([*warnings, scores, str(self.found), *tools, *self._copies, certainty, wrong])

    def markdown(self) -> str:
        warnings = [f"**Warning: {warning}.**" for warning in self._warnings]
        tools = [pipes(tool_table(self.tools))] if self.tools else []
        copies = [f"Plain decoding: {line}." for line in self._copies]
        scores = pipes(comparison(self.plain, self.baselines))
        text = f"{self._range[0].upper()}{self._range[1:]}."
        return "\n\n".join([*warnings, scores, text, self.found.markdown(), *tools, *copies])

    @property
    def certainty_markdown(self) -> str:
        if self.certainty is None:
            return f"## Certainty\n\n{NOT_MEASURED}."
        picture = f"![Share of right answers over certainty]({PICTURE})"
        return f"## Certainty\n\n{self.certainty.markdown(self.right)}.\n\n{picture}"

    @property
    def _warnings(self) -> list[str]:
        warnings, prompts = [], self.found.prompts
        if prompts < FEW:
            warnings.append(
                f"with {prompts} held-out prompts these scores are noise, since one answer is "
                f"{100 / prompts:.1f} points: give a file of hundreds to --held-out"
            )
        if warning := unbeaten(self.plain, self.baselines):
            warnings.append(warning)
        return warnings

    @property
    def _range(self) -> str:
        """The score of plain decoding with its 95% interval."""
        prompts, score = self.found.prompts, self.plain.score
        low, high = (100 * end for end in score_range(score, prompts))
        return (
            f"plain decoding: {100 * score:.1f}% of {prompts} prompts; of all such prompts between {low:.0f} "
            f"and {high:.0f}% (95% interval)"
        )

    @property
    def _copies(self) -> list[str]:
        if self.not_in_prompt is None:
            return []
        return [f"values not in the prompt: in {self.not_in_prompt} of {self.found.prompts} answers"]
