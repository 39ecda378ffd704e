"""Home Assistant's own parser: `hassil` with the package's templates and the names of one home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hassil import Intents, recognize_best
from hassil.intents import SlotList, TextSlotList

from hamburger_edge.models.zoo.home_commands.making.templates import read_package

HERE = "(the room of the speaker)"  # a room that no sentence names


class HomeParser:
    def __init__(self, home: Mapping[str, Any]):
        self.intents = Intents.from_dict(read_package())
        self.home(home)

    def home(self, home: Mapping[str, Any]) -> None:
        """Set the names: lists of "area" and "floor", and under "name" a list of names for each domain."""
        names = [(name, name, {"domain": domain}) for domain, names in home["name"].items() for name in names]
        self.lists: dict[str, SlotList] = {
            "area": text_list(home["area"]),
            "floor": text_list(home["floor"]),
            "name": TextSlotList.from_tuples(names, allow_template=False),
        }

    def calls(self, text: str) -> list[dict[str, Any]]:
        """Return the call that the best matching template makes of a sentence, or no call."""
        context = {"area": HERE}
        best = recognize_best(
            text, self.intents, self.lists, intent_context=context, language="en", best_slot_name="name"
        )
        if best is None:
            return []
        values = {name: entity.value for name, entity in best.entities.items() if entity.value != HERE}
        return [
            {"name": best.intent.name, "arguments": {name: plain(value) for name, value in values.items()}}
        ]


def text_list(names: Sequence[str]) -> TextSlotList:
    return TextSlotList.from_strings(names, allow_template=False)


def plain(value: Any) -> Any:
    """Drop the spaces and marks that a wildcard of hassil brings along."""
    return value.strip(" .,!?") if isinstance(value, str) else value
