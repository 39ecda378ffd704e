"""Chat templates: turns of a conversation to text, with the markup around them.

    prefix [before_system SYSTEM after_system]
    before_user TEXT after_user before_answer ANSWER after_answer ...

A file `chat_markup.json` beside a base's weights names a known kind, and may override its fields:

    {"kind": "mistral"}        {"kind": "llama3", "default_system": "Be brief."}
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.support.strict import from_mapping, read_json
from hamburger_edge.support.values import among, check_text, safe_repr

MARKUP_FILE = "chat_markup.json"

Part = tuple[str, bool]  # text, and whether special tokens in it are recognised


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template, which converts the turns of a conversation to text.

    Special tokens are recognised in the markup only, never in user or system texts.
    """

    prefix: str = ""  # once, at the beginning of the conversation
    before_system: str = ""
    after_system: str = ""
    before_user: str = ""
    after_user: str = ""
    before_answer: str = ""  # opens the answer; the model continues from here
    after_answer: str = ""  # begins with the end token; not repeated if the model generated it
    default_system: str | None = None  # if none is given; " " with `trim`: an empty system part
    system_in_user: bool = False  # the first user turn contains the system text: before_user SYSTEM TEXT
    trim: bool = False  # strip white space around system and user texts

    @property
    def is_task(self) -> bool:
        """True for a template of single requests, such as the one that `tune` writes.

        `after_user` both ends the request and opens the answer; there is no markup for a system text.
        """
        return bool(self.after_user) and not (self.before_system or self.after_system or self.before_answer)

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


_CHATML = {
    "before_system": "<|im_start|>system\n",
    "after_system": "<|im_end|>\n",
    "before_user": "<|im_start|>user\n",
    "after_user": "<|im_end|>\n",
    "before_answer": "<|im_start|>assistant\n",
    "after_answer": "<|im_end|>\n",
}

_LLAMA3 = {
    "prefix": "<|begin_of_text|>",
    "before_system": "<|start_header_id|>system<|end_header_id|>\n\n",
    "after_system": "<|eot_id|>",
    "before_user": "<|start_header_id|>user<|end_header_id|>\n\n",
    "after_user": "<|eot_id|>",
    "before_answer": "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "after_answer": "<|eot_id|>",
    "trim": True,
}

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "chatml": _CHATML,
    "smollm2": _CHATML
    | {"default_system": "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
    "llama3": _LLAMA3,
    "llama3.1": _LLAMA3  # and 3.2: dates precede the system text, even an empty one
    | {
        "before_system": f"{_LLAMA3['before_system']}Cutting Knowledge Date: December 2023\n"
        "Today Date: 26 Jul 2024\n\n",
        "default_system": " ",
    },
    "llama2": {
        "prefix": "<s>",
        "before_system": "<<SYS>>\n",
        "after_system": "\n<</SYS>>\n\n",
        "before_user": "[INST] ",
        "after_user": " [/INST]",
        "after_answer": "</s><s>",
        "system_in_user": True,
        "trim": True,
    },
    "mistral": {
        "prefix": "<s>",
        "after_system": "\n\n",
        "before_user": "[INST] ",
        "after_user": " [/INST]",
        "after_answer": "</s>",
        "system_in_user": True,
    },
    "gemma": {
        "prefix": "<bos>",
        "after_system": "\n\n",
        "before_user": "<start_of_turn>user\n",
        "after_user": "<end_of_turn>\n",
        "before_answer": "<start_of_turn>model\n",
        "after_answer": "<end_of_turn>\n",
        "system_in_user": True,
        "trim": True,
    },
    "zephyr": {  # TinyLlama
        "before_system": "<|system|>\n",
        "after_system": "</s>\n",
        "before_user": "<|user|>\n",
        "after_user": "</s>\n",
        "before_answer": "<|assistant|>\n",
        "after_answer": "</s>\n",
    },
}

PRESETS = {name: ChatTemplate(**markup) for name, markup in KINDS.items()}


def markup_beside(folder: Path) -> dict[str, Any] | None:
    """Return the markup that `chat_markup.json` in this folder defines, or None without such a file."""
    file = folder / MARKUP_FILE
    if not file.exists():
        return None
    data = read_json(file)
    if not isinstance(data, dict):
        raise ConfigError(f'{file}: expected {{"kind": "llama3"}} or a table of its own')
    kind = data.pop("kind", "plain")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(f"{file}: unknown kind {kind!r} (known: {', '.join(KINDS)})")
    return asdict(from_mapping(ChatTemplate, KINDS[kind] | data, str(file)))
