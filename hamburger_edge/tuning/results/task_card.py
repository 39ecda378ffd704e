"""The model card (README.md) of a tuned checkpoint."""

from __future__ import annotations

from pathlib import Path

from hamburger_edge.models.checkpoints.manifest import MANIFEST, read_manifest
from hamburger_edge.models.checkpoints.saving import CURVES
from hamburger_edge.support.files import sha256
from hamburger_edge.support.tables import pipes
from hamburger_edge.tuning.data.example_command import is_command
from hamburger_edge.tuning.results.outcome import Outcome
from hamburger_edge.tuning.tune import Tuned

UNKNOWN = "not stated"


def task_card(name: str, tuned: Tuned, outcome: Outcome, texts: str, curves_caption: str) -> str:
    """Return the card's text.

    texts           about the examples that the checkpoint holds; "" if it holds none
    curves_caption  of its `curves.png`; "" if it has none
    """
    recipe, recommendation = tuned.recipe, outcome.found
    manifest = read_manifest(tuned.checkpoint / MANIFEST)
    parts = ("base", "graft") if recipe.tune_base or recipe.merges else ("base",)
    licences = {part: manifest.license.get(part) or UNKNOWN for part in parts}
    update = ""
    if "graft" in licences:
        part = "graft and update of the base" if manifest.config.has_graft else "update of the base"
        update = f"""| {part} | {licences["graft"]} |

The update was trained on the examples above: their licence may restrict its use, too.
"""
    picture = f"\n![{curves_caption}]({CURVES})\n" if curves_caption else ""
    return f"""{_front_matter(licences)}
# {name}

A HAMburger on {recipe.base}, tuned to one task with {len(tuned.task.conversations)} examples.

## Use

```python
import hamburger_edge

with hamburger_edge.load("{name}") as model:  # this folder; or the faster bundle "{name}.bundle"
    print(model.generate(input("> ")).text)
```

A folder needs PyTorch (`pip install '.[export]'` in the checkout of hamburger-edge), a bundle does not.
`hamburger-edge export {name} -o {name}.bundle` makes a bundle.

## Scores

It was asked {recommendation.prompts} prompts that nothing was trained on: whole requests at
{recipe.precision}, settings in turn, judged by `{tuned.task.judge}`.

{outcome.markdown()}

Recommended: {recommendation.verdict}. `run`, `chat` and `load` use that by default.
{picture}
{outcome.certainty_markdown}

## Data

{_data(tuned)}

{texts or "The checkpoint holds no calibration text"}.

## Limits

{_limits(tuned, outcome)}

## Licences

| part | licence |
|---|---|
| base: {recipe.base} | {licences["base"]} |
{update}"""


def _front_matter(licences: dict[str, str]) -> str:
    """Return the metadata that model hubs read: one licence, if both parts have the same."""
    names = {licence.lower() for licence in licences.values()}
    licence = "" if len(names) > 1 or UNKNOWN in names else f"license: {names.pop()}\n"
    return f"---\nlibrary_name: hamburger-edge\npipeline_tag: text-generation\n{licence}---\n"


def _data(tuned: Tuned) -> str:
    recipe, task = tuned.recipe, tuned.task
    examples, split = task.dataset.examples, task.split
    source = "written by a command" if is_command(recipe.examples) else f"`{Path(recipe.examples).name}`"
    judging = f"{len(split.held_out)}, by a hash of the prompt"
    if task.dataset.calibration_judges(split):
        judging += f", and the {len(split.calibration)} that calibrate"
    if recipe.held_out:
        judging = f"{len(task.requests)} of `{Path(recipe.held_out).name}`"
    rows = [
        ["examples", f"{len(examples.examples)}, {source}"],
        ["... that train", str(len(split.train))],
        ["... that calibrate", str(len(split.calibration))],
        ["held out, judging", judging],
        ["duplicates left out; contradictions", f"{examples.duplicates}; {examples.contradictions}"],
    ]
    files = [] if is_command(recipe.examples) else [recipe.examples]
    for file in [*files, *([recipe.held_out] if recipe.held_out else [])]:
        rows.append([f"SHA-256 of `{Path(file).name}`", f"`{sha256(Path(file))}`"])
    return pipes([["data", ""], *rows])


def _limits(tuned: Tuned, outcome: Outcome) -> str:
    dataset, fields = tuned.task.dataset, tuned.task.copied_fields
    measured = outcome.certainty is not None
    remedy = (
        "An app that acts on answers asks for `min_certainty`" if measured else "No certainty was measured"
    )
    limits = [
        f"One task: any other prompt gets an answer in the same form. {remedy}.",
        "The scores hold for prompts like the held-out ones, in their language. Prompts of other people may "
        "score lower.",
        f"A prompt with its answer has at most {dataset.base.config.context_length} tokens; answers were "
        f"evaluated up to {dataset.longest}.",
    ]
    if fields:
        names = ", ".join(f"`{field}`" for field in fields)
        limits.append(f"Values of {names} are always spans of the prompt.")
    if tuned.recipe.edits_prompt:
        limits.append("Answers keep names, numbers and codes of the prompt, even wrong ones.")
    return "\n".join(f"- {limit}" for limit in limits)
