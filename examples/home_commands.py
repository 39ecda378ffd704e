"""Voice control of a home: Home Assistant's own parser first, the model for all other sentences.

    python examples/home_commands.py BUNDLE HOME.json "could somebody kill the lights in the kitchen"

BUNDLE is home-commands, or a model of your own. HOME.json lists the home's names, as Home Assistant has them:
{"area": ["kitchen"], "floor": ["upstairs"], "name": {"light": ["desk lamp"], "media_player": ["TV"]}}.
Needs  pip install hassil==3.12.1 home-assistant-intents==2026.10.27 .
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import home_assistant_intents
from hassil import Intents, recognize_best
from hassil.intents import TextSlotList

import hamburger_edge

CERTAINTY = 0.6  # of the model's calls that are carried out without asking
TEMPLATES = Path(home_assistant_intents.__file__).parent / "data" / "en.json"
HERE = "(here)"  # the room of the speaker: Home Assistant adds it, sentences do not name it

# The devices that a function acts on, by domain; others act on any. Timers have names of their own.
DOMAINS = {
    "HassLightSet": ("light",),
    "HassFanSetSpeed": ("fan",),
    "HassSetPosition": ("cover", "valve"),
    **dict.fromkeys(("HassListAddItem", "HassListCompleteItem", "HassListRemoveItem"), ("todo",)),
    **dict.fromkeys(("HassVacuumStart", "HassVacuumReturnToBase", "HassVacuumCleanArea"), ("vacuum",)),
    **dict.fromkeys(("HassLawnMowerStartMowing", "HassLawnMowerDock"), ("lawn_mower",)),
    **dict.fromkeys(("HassSetVolume", "HassSetVolumeRelative", "HassMediaSearchAndPlay"), ("media_player",)),
    **dict.fromkeys(("HassMediaPause", "HassMediaUnpause", "HassMediaNext"), ("media_player",)),
}
ANY_DEVICE = ("HassTurnOn", "HassTurnOff", "HassGetState")

Call = tuple[str, Mapping[str, Any]]  # a function of Home Assistant and its arguments


def make_parser(home: Mapping[str, Any]) -> Callable[[str], list[Call]]:
    """Return a function from a sentence to the call that a template of Home Assistant makes of it, if any."""
    intents = Intents.from_dict(json.loads(TEMPLATES.read_text("utf-8")))
    names = [(name, name, {"domain": domain}) for domain, names in home["name"].items() for name in names]
    lists = {
        "area": TextSlotList.from_strings(home["area"], allow_template=False),
        "floor": TextSlotList.from_strings(home["floor"], allow_template=False),
        "name": TextSlotList.from_tuples(names, allow_template=False),
    }

    def parse(text: str) -> list[Call]:
        context = {"area": HERE}
        best = recognize_best(
            text, intents, lists, intent_context=context, language="en", best_slot_name="name"
        )
        if best is None:
            return []
        arguments = {slot: entity.value for slot, entity in best.entities.items() if entity.value != HERE}
        return [(best.intent.name, arguments)]

    return parse


def names_of(home: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the values that arguments may have in this home."""
    devices = home["name"]
    names = {"area": home["area"], "floor": home["floor"]}
    for function, domains in {**DOMAINS, **dict.fromkeys(ANY_DEVICE, tuple(devices))}.items():
        names[f"{function}.name"] = [name for domain in domains for name in devices.get(domain, ())]
    return {argument: values for argument, values in names.items() if values}


def understand(
    text: str, parse: Callable[[str], list[Call]], model: hamburger_edge.Model, home: Mapping[str, Any]
) -> tuple[str, list[Call]]:
    """Return who understood a sentence ("parser", "model" or "nobody"), and the calls it means."""
    if calls := parse(text):
        return "parser", calls
    answers = model.call(text, names=names_of(home))
    if not answers or any(
        answer.certainty is not None and answer.certainty < CERTAINTY for answer in answers
    ):
        return "nobody", []
    return "model", [(answer.name, answer.arguments) for answer in answers]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("bundle", metavar="BUNDLE")
    parser.add_argument("home", type=Path, metavar="HOME.json")
    parser.add_argument("sentences", nargs="+", metavar="SENTENCE")
    options = parser.parse_args()
    home = json.loads(options.home.read_text("utf-8"))
    parse = make_parser(home)
    try:
        with hamburger_edge.load(options.bundle) as model:
            for text in options.sentences:
                source, calls = understand(text, parse, model, home)
                print(f"{text}\n  understood by {source}")
                for function, arguments in calls:
                    print(f"  {function}({json.dumps(arguments, ensure_ascii=False)})")
    except hamburger_edge.HamburgerError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
