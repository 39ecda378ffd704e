"""Recognise a model's Jinja chat template and say it in the declarative form that the runtime reads.

The keys are those of `hamburger_edge.chat.ChatTemplate`. Only ChatML is recognised (SmolLM2, Qwen); for
anything else the answer is None and the user names a template.
"""

from __future__ import annotations

import re
from typing import Any


def chatml(default_system: str | None) -> dict[str, Any]:
    return {
        "before_system": "<|im_start|>system\n",
        "after_system": "<|im_end|>\n",
        "before_user": "<|im_start|>user\n",
        "after_user": "<|im_end|>\n",
        "before_answer": "<|im_start|>assistant\n",
        "after_answer": "<|im_end|>\n",
        "default_system": default_system,
    }


def recognise(jinja: object) -> dict[str, Any] | None:
    if not isinstance(jinja, str) or "<|im_start|>" not in jinja or "<|im_sep|>" in jinja:
        return None
    # a system text spelled out in the template, its newline as such or escaped
    found = re.search(r"<\|im_start\|>system(?:\n|\\n)([^<{}]+)<\|im_end\|>", jinja)
    return chatml(found.group(1).replace("\\n", "\n") if found else None)
