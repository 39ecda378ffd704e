"""Mode and confidence of an answer: their defaults, and the rule that fills in missing values.

    given                 mode          confidence
    nothing               recommended   recommended
    confidence            recommended   as given; refused below 1 if the recommended mode is "plain"
    mode                  as given      recommended for this mode, else the mode's default
    mode and confidence   as given      as given; refused below 1 in mode "plain"

Python, the command line, `Chat.configure` and the server call `set_dial`. The JavaScript package and the
web pages use its twin in runtimes/javascript/loop/dial.js. tests/integration/chat/test_dial.py compares all
of them on the same inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.support.values import among, number_in, safe_repr

# plain: no drafts. verify: the base checks every drafted token. hybrid: tokens with
# p >= confidence ** (1 / max_group_tokens) are merged, the base checks the others. If its top probability is
# below the confidence, it re-reads the newest merged groups token by token. merge: all are merged.
Mode = Literal["plain", "verify", "hybrid", "merge"]
MODES: tuple[Mode, ...] = get_args(Mode)

# Default confidence of each mode, if neither the caller nor the model gives one.
DEFAULT_CONFIDENCE: Mapping[Mode, float] = {"plain": 1.0, "verify": 0.8, "hybrid": 0.95, "merge": 0.8}


@dataclass(frozen=True)
class Recommended:
    """A mode and its confidence: a model's recommendation or any other setting."""

    mode: Mode
    confidence: float

    @classmethod
    def of(cls, mode: Mode) -> Recommended:
        """Return a mode at its default confidence."""
        return cls(mode, DEFAULT_CONFIDENCE[mode])

    @classmethod
    def parse(cls, text: str) -> Recommended:
        """Parse "plain", "verify" (at its default confidence) or "verify-0.7", the inverse of `str`."""
        word, dash, number = text.partition("-")
        try:
            mode = _mode(word)
            return cls(mode, float(number)) if dash else cls.of(mode)
        except (ConfigError, InputError, ValueError):
            raise InputError(
                f"a setting is a mode ({', '.join(MODES)}), or one with a confidence of 0 to 1 as "
                f"verify-0.8, got {safe_repr(text)}"
            ) from None

    def __post_init__(self) -> None:
        if not among(self.mode, MODES):
            raise ConfigError(f"recommended.mode must be {_names()}, got {safe_repr(self.mode)}")
        if not 0 <= self.confidence <= 1:
            raise ConfigError(f"recommended.confidence must be 0 to 1, got {self.confidence}")
        if self.mode == "plain" and self.confidence != 1:
            raise ConfigError(f"recommended.confidence must be 1 in mode 'plain', got {self.confidence}")

    def __str__(self) -> str:
        return "plain" if self.mode == "plain" else f"{self.mode}-{float(self.confidence)}"


PLAIN = Recommended.of("plain")

# For a model without measurements: verify gives plain decoding's text with any graft.
UNMEASURED = Recommended.of("verify")


def set_dial(
    given: Mapping[str, Any], recommended: Recommended, current: Recommended | None = None
) -> Recommended:
    """Overlay the given keys "mode" and "confidence" on the recommendation.

    `current` is the setting of a conversation in `Chat.configure`: it is the default mode instead of the
    recommended one.
    """
    base = current or recommended
    mode = _mode(given["mode"]) if "mode" in given else base.mode
    if "confidence" not in given:
        same = next(
            (setting for setting in (base, recommended) if setting.mode == mode), Recommended.of(mode)
        )
        return Recommended(mode, same.confidence)
    confidence = number_in("confidence", given["confidence"], 0, 1)
    if mode == "plain" and confidence < 1:
        why = "mode 'plain'" if "mode" in given else "mode 'plain', which holds here because none is given"
        raise InputError(
            f"confidence {confidence} has no effect in {why}: leave it out, or give one of the modes "
            f"{', '.join(MODES[1:])}"
        )
    return Recommended(mode, confidence)


def _mode(name: Any) -> Mode:
    if not among(name, MODES):
        raise InputError(f"mode must be {_names()}, got {safe_repr(name)}")
    mode: Mode = name
    return mode


def _names() -> str:
    return f"{', '.join(map(repr, MODES[:-1]))} or {MODES[-1]!r}"
