"""Chat templates: turns of a conversation to text, with the markup around them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from hamburger_edge.chat.markup import KINDS, Markup
from hamburger_edge.errors import InputError
from hamburger_edge.support.strict import from_mapping
from hamburger_edge.support.values import among, check_text, safe_repr

Part = tuple[str, bool]  # text, and whether special tokens in it are recognised


@dataclass(frozen=True)
class ChatTemplate(Markup):
    """A chat template, which converts the turns of a conversation to text.

    Special tokens are recognised in the markup only, never in user or system texts.
    """

    def first_turn(self, text: str, system: str | None = None) -> list[Part]:
        """Return the beginning of a conversation; an empty system text omits the system turn."""
        system = self.default_system if system is None else system
        parts: list[Part] = [(self.prefix, True)]
        if system and self.system_in_user:
            user = [(self.before_user, True), *self._system(system), *self._user(text)[1:]]
        else:
            user = [*(self._system(system) if system else []), *self._user(text)]
        return [*parts, *user, (self.before_answer, True)]

    def next_turn(self, text: str) -> list[Part]:
        """Return the text between an answer and the next one, with the user's new message."""
        return [(self.after_answer, True), *self._user(text), (self.before_answer, True)]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> ChatTemplate:
        """Build a template from JSON data; None gives an empty one, without markup."""
        if data is None:
            return cls()
        template: ChatTemplate = from_mapping(cls, data, "chat template")
        return template

    @classmethod
    def preset(cls, name: str, default_system: str | None = None) -> ChatTemplate:
        """Return one of PRESETS, with another default system text if one is given."""
        if not among(name, PRESETS):
            raise InputError(f"unknown chat template {safe_repr(name)} (known: {', '.join(PRESETS)})")
        template = PRESETS[name]
        return template if default_system is None else replace(template, default_system=default_system)

    def _system(self, text: str) -> list[Part]:
        return [(self.before_system, True), (self._written(text), False), (self.after_system, True)]

    def _user(self, text: str) -> list[Part]:
        return [(self.before_user, True), (self._written(text), False), (self.after_user, True)]

    def _written(self, text: str) -> str:
        return check_text(text).strip() if self.trim else check_text(text)


PRESETS = {name: ChatTemplate(**markup) for name, markup in KINDS.items()}
