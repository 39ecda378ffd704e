"""Convert a chat's markup to a Jinja template for transformers' tokenizers."""

from __future__ import annotations

import re

from hamburger_edge.chat.template import ChatTemplate

_AROUND = ("before_system", "after_system", "before_user", "after_user", "before_answer", "after_answer")
_TEMPLATE = """
{%- if messages and messages[0]['role'] == 'system' -%}
    {%- set system, turns = messages[0]['content'], messages[1:] -%}
{%- else -%}
    {%- set system, turns = DEFAULT_SYSTEM, messages -%}
{%- endif -%}
{%- set system = BEFORE_SYSTEM + system WRITTEN + AFTER_SYSTEM if system else '' -%}
{{- PREFIX if IN_USER else PREFIX + system -}}
{%- for message in turns -%}
    {%- if message['role'] != ('user', 'assistant')[loop.index0 % 2] -%}
        {{- raise_exception('after a system text, if any, user and assistant take turns') -}}
    {%- endif -%}
    {%- if message['role'] == 'user' -%}
        {{- BEFORE_USER + (system if IN_USER and loop.first else '') -}}
        {{- message['content'] WRITTEN + AFTER_USER -}}
    {%- else -%}
        {{- BEFORE_ANSWER + message['content'] WRITTEN + AFTER_ANSWER -}}
    {%- endif -%}
{%- endfor -%}
{{- BEFORE_ANSWER if add_generation_prompt else '' -}}
"""


def jinja_of(markup: ChatTemplate) -> str:
    """Return a Jinja template with the output of `ChatTemplate`, including earlier answers."""
    words = {
        "WRITTEN": "| trim" if markup.trim else "",
        "IN_USER": str(markup.system_in_user).lower(),
        "DEFAULT_SYSTEM": _literal(markup.default_system or ""),
        "PREFIX": _literal(markup.prefix),
        **{name.upper(): _literal(getattr(markup, name)) for name in _AROUND},
    }
    return re.sub(
        "|".join(rf"\b{word}\b" for word in words), lambda match: words[match[0]], _TEMPLATE.strip()
    )


def _literal(text: str) -> str:
    """Return a Jinja string literal in ASCII, with Python's escapes."""
    escaped = text.encode("unicode_escape").decode("ascii").replace("'", "\\'")
    return f"'{escaped}'"
