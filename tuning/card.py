"""The card of a task's model, as its evaluation found it."""

from __future__ import annotations

from collections.abc import Sequence

from hamburger_edge.evaluation.asking import Row, table
from hamburger_edge.support.tables import pipes
from hamburger_edge.support.tables import table as aligned
from hamburger_edge.tuning.examples import Examples
from hamburger_edge.tuning.tune_recipe import TuneRecipe


def card(
    name: str, recipe: TuneRecipe, examples: Examples, judged: int, rows: Sequence[Row], best: Row
) -> str:
    recommended = "plain decoding" if best.name == "plain" else f"`{best.name}`"
    return f"""# {name}

A HAMburger on {recipe.base}, tuned to one task with {len(examples.examples)} examples.

Asked {judged} prompts that nothing was trained on: whole requests at {recipe.precision}, settings in turn.

{pipes(table(rows))}

It recommends {recommended}: the fastest that loses no more than {recipe.evaluation.points:g} points.
`run`, `chat` and `load` use it where nothing else is asked for.
"""


def shown(rows: Sequence[Row]) -> str:
    """For a terminal."""
    return aligned(table(rows))
