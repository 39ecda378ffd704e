"""A base's chat template as markup.

It comes as a Jinja program, which never runs: well-known ones are recognised by their marks, others are
refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.chat.template import KINDS, MARKUP_FILE
from hamburger_edge.errors import CheckpointError
from hamburger_edge.support.files import read_regular
from hamburger_edge.support.strict import read_json

_LINE = r"(?:\n|\\n)"  # inside a string of the program: literal or escaped
_DATE = re.compile(r"""set date_string = "([^"]+)\"""")  # the date that is used without a clock
_DATED = re.compile(r"strftime|date_string|Today Date|Current Date", re.I)
_OPENS_A_THOUGHT = re.compile(rf"<\|im_start\|>assistant{_LINE}<think>")
_MISTRAL_TURN = re.compile(
    r"""(["'])(\s*\[INST\]\s*)\1 \+ message\[["']content["']\] \+ (["'])(\s*\[/INST\]\s*)\3"""
)
_ZEPHYR_TURN = re.compile(rf"'<\|user\|>{_LINE}' \+ message\['content'\] \+ eos_token }}}}\n")
_GEMMA_TURN = re.compile(
    rf"'<start_of_turn>' \+ role \+ '{_LINE}' \+ \(first_user_prefix if loop\.first else (?:''|\"\")\)"
)
_ZEPHYR_ANSWER = "'<|assistant|>' }}\n"


@dataclass(frozen=True)
class JinjaTemplate:
    where: Path  # its file
    text: str
    bos: str | None  # the text of its bos_token, if known
    eos: str | None

    def markup(self) -> dict[str, Any]:
        """Return the declarative form."""
        markup = _recognise(self.text)
        if markup is None:
            dated = ", which writes dates" if _DATED.search(self.text) else ""
            raise CheckpointError(
                f"{self.where}: unknown chat template{dated}: put a {MARKUP_FILE} "
                f"beside the weights that names the kind of markup ({', '.join(KINDS)}) or spells it out"
            )
        if "bos_token" in self.text:
            markup = {"prefix": self.bos or "", **markup}
        elif markup.get("prefix", "") not in self.text:
            markup = markup | {"prefix": ""}
        tokens = {"<s>": self.bos, "<|begin_of_text|>": self.bos, "</s>": self.eos}
        names = {usual: own for usual, own in tokens.items() if own is not None}
        return {name: _renamed(value, names) for name, value in markup.items()}


def template_beside(folder: Path) -> JinjaTemplate | None:
    """Find the template: a separate file, or an entry of tokenizer_config.json."""
    file = folder / "tokenizer_config.json"
    settings = read_json(file) if file.exists() else {}
    settings = settings if isinstance(settings, dict) else {}
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named[0].get("template") if named else None
    if (alone := folder / "chat_template.jinja").exists():
        file, template = alone, read_regular(alone).decode("utf-8", errors="replace")
    if not isinstance(template, str):
        return None
    return JinjaTemplate(file, template, *(_token(settings.get(f"{name}_token")) for name in ("bos", "eos")))


def _token(entry: object) -> str | None:
    """Return a token that is written as a text or as an object around it."""
    text = entry.get("content") if isinstance(entry, dict) else entry
    return text if isinstance(text, str) else None


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if not isinstance(value, str) or not names:
        return value
    return re.sub("|".join(map(re.escape, names)), lambda match: names[match[0]], value)


def _recognise(jinja: str) -> dict[str, Any] | None:
    """Return the known kind with the program's literal system text; None if it is another kind."""
    if "<|start_header_id|>" in jinja and "<|eot_id|>" in jinja:
        return _llama3(jinja)
    if "<|im_start|>" in jinja:
        return _chatml(jinja)
    if "<start_of_turn>" in jinja:
        return KINDS["gemma"] if _GEMMA_TURN.search(jinja) and "tools" not in jinja else None
    if "[INST]" in jinja:
        return _llama2(jinja) if "<<SYS>>" in jinja else _mistral(jinja)
    if _ZEPHYR_TURN.search(jinja) and _ZEPHYR_ANSWER in jinja:
        return KINDS["zephyr"]
    return None


def _llama3(jinja: str) -> dict[str, Any] | None:
    if not _DATED.search(jinja):
        kind = KINDS["llama3"]
        return kind | {"default_system": _spelled_out(jinja, kind)}
    kind, date = KINDS["llama3.1"], _DATE.search(jinja)
    if date is None or "Cutting Knowledge Date: December 2023" not in jinja:
        return None
    return kind | {"before_system": kind["before_system"].replace("26 Jul 2024", date[1])}


def _chatml(jinja: str) -> dict[str, Any] | None:
    if "<|im_sep|>" in jinja or _DATED.search(jinja) or _OPENS_A_THOUGHT.search(jinja):
        return None
    kind = KINDS["chatml"]
    return kind | {"default_system": _spelled_out(jinja, kind)}


def _llama2(jinja: str) -> dict[str, Any] | None:
    turns = "bos_token + '[INST] ' + content.strip() + ' [/INST]'" in jinja
    own_system = re.search(r"set system_message = ['\"]\S", jinja)
    return KINDS["llama2"] if turns and not own_system else None


def _mistral(jinja: str) -> dict[str, Any] | None:
    turn = _MISTRAL_TURN.search(jinja)
    if turn is None or "[SYSTEM_PROMPT]" in jinja:
        return None
    after_answer = "</s> " if "eos_token + ' '" in jinja else "</s>"
    return KINDS["mistral"] | {
        "before_user": turn[2],
        "after_user": turn[4],
        "after_answer": after_answer,
    }


def _spelled_out(jinja: str, kind: dict[str, Any]) -> str | None:
    """Return the literal system text of the program, not one that it takes from a message."""
    before, after = (re.escape(kind[name].rstrip("\n")) for name in ("before_system", "after_system"))
    match = re.search(rf"{before}{_LINE}+(?!['\"])([^<{{}}]+){after}", jinja)
    return re.sub(r"\\(.)", lambda escape: {"n": "\n"}.get(escape[1], escape[1]), match[1]) if match else None
