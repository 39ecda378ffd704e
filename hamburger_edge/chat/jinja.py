"""Write a chat's markup as a Jinja template, for transformers' tokenizers and for GGUF files."""

from __future__ import annotations

import json
import re

from hamburger_edge.chat.template import ChatTemplate

_AROUND = (
    "prefix",
    "before_system",
    "after_system",
    "before_user",
    "after_user",
    "before_answer",
    "after_answer",
)
_TEMPLATE = """
{%- if messages and messages[0]['role'] == 'system' -%}
{%- set system = messages[0]['content'] -%}{%- set turns = messages[1:] -%}
{%- else -%}
{%- set system = DEFAULT_SYSTEM -%}{%- set turns = messages -%}
{%- endif -%}
{%- set system = BEFORE_SYSTEM + system WRITTEN + AFTER_SYSTEM if system else '' -%}
{{- PREFIX -}}
{%- if not IN_USER -%}{{- system -}}{%- endif -%}
{%- for message in turns -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('after a system text, if any, user and assistant take turns') -}}
{%- endif -%}
{%- if message['role'] == 'user' -%}
{{- BEFORE_USER -}}
{%- if IN_USER and loop.first -%}{{- system -}}{%- endif -%}
{{- message['content'] WRITTEN -}}
{{- AFTER_USER -}}
{%- else -%}
{{- BEFORE_ANSWER + message['content'] WRITTEN + AFTER_ANSWER -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- BEFORE_ANSWER -}}{%- endif -%}
"""


def jinja_of(markup: ChatTemplate) -> str:
    """Return a Jinja template with the output of `ChatTemplate`, including earlier answers.

    It uses what llama.cpp's own reader of Jinja knows.
    """
    words = {
        "WRITTEN": "| trim" if markup.trim else "",
        "IN_USER": json.dumps(markup.system_in_user),
        "DEFAULT_SYSTEM": _literal(markup.default_system or ""),
        **{name.upper(): _literal(getattr(markup, name)) for name in _AROUND},
    }
    return re.sub(
        "|".join(rf"\b{word}\b" for word in words), lambda match: words[match[0]], _TEMPLATE.strip()
    )


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
