"""The options of an answer: names, defaults and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypedDict

from hamburger_edge.errors import InputError
from hamburger_edge.loop.dial import DEFAULT_CONFIDENCE, UNMEASURED, Mode, Recommended, set_dial
from hamburger_edge.structured.structure import Structure
from hamburger_edge.support.values import flag, number_in, safe_repr, whole_in


class Options(TypedDict, total=False):
    """Keyword arguments of `stream`, `generate` and `chat`."""

    # None: 256; of a model that edits its prompt, 8 and twice the tokens of the text that it edits
    max_tokens: int | None
    # 0 to 1: probability that a further token of a group needs. At 0 groups are largest, at 1 each holds one
    # token. `confidence` and `mode` overlay the model's recommendation by the rule in `dial.py`.
    confidence: float
    # "plain": one token per step. "verify": the base checks every drafted token; the text equals plain
    # decoding's, with fewer calls. "hybrid": tokens with
    # p >= confidence ** (1 / max_group_tokens) are merged, the base checks the others. "merge": every group
    # is merged as drafted.
    mode: Mode
    stop: str | Sequence[str]  # the answer ends before any of these
    # Report each token's probability and the k likeliest tokens of the distribution that it was chosen from,
    # if the base chose or checked it. 0: the token's probability alone.
    top_probabilities: int | None
    # An answer with a lower certainty is `unsure`. The model's certainty must have been measured.
    min_certainty: float | None
    temperature: float  # 0: greedy
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]  # added to scores; -100 or less: the token is never chosen
    seed: int | None
    # The answer is JSON that follows this schema: a dictionary, its JSON, or a Pydantic model. As in OpenAI's
    # interface, {"schema": ..., "strict": False} ignores unsupported keywords of a schema.
    json_schema: Any
    regex: str  # the answer matches this regular expression
    grammar: str  # the answer follows this grammar, in Lark's syntax
    # of a model with tools: which of them, and which names, an answer may hold; see `Model.call`
    calls: Mapping[str, Any]
    ignore_eos: bool  # do not end at an end token: for measurements


BAN = -100  # a token with this bias or a lower one is never chosen, as in OpenAI's interface


@dataclass(frozen=True)
class SamplingSettings:
    temperature: float = 0.0  # 0: greedy
    top_k: int = 0  # keep the k likeliest (0: all) and ties with the k-th
    top_p: float = 1.0  # keep the smallest set of likeliest tokens with this total probability
    min_p: float = 0.0  # keep tokens with p >= min_p * (highest p)
    repetition_penalty: float = (
        1.0  # divides the scores of seen tokens (multiplies negative ones), prompt included
    )
    presence_penalty: float = 0.0  # subtracted once from the scores of tokens in the answer
    frequency_penalty: float = 0.0  # subtracted once per occurrence of the token in the answer
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # token id -> added to its score; see BAN
    seed: int | None = None  # None: a random one, see `Sampler.seed`

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "temperature": number_in("temperature", self.temperature, 0, 100),
            "top_k": whole_in("top_k", self.top_k, 0, 2**31 - 1),
            "top_p": number_in("top_p", self.top_p, 0, 1, above=True),
            "min_p": number_in("min_p", self.min_p, 0, 1),
            "repetition_penalty": number_in("repetition_penalty", self.repetition_penalty, 0.01, 100),
            "presence_penalty": number_in("presence_penalty", self.presence_penalty, -100, 100),
            "frequency_penalty": number_in("frequency_penalty", self.frequency_penalty, -100, 100),
        }
        if not isinstance(self.logit_bias, Mapping):
            raise InputError(f"logit_bias must map token ids to numbers, got {safe_repr(self.logit_bias)}")
        checked["logit_bias"] = {
            whole_in("logit_bias token", token, 0, 2**31 - 1): number_in("logit_bias", bias, -1000, 1000)
            for token, bias in self.logit_bias.items()
        }
        if self.seed is not None:
            checked["seed"] = whole_in("seed", self.seed, 0, 2**64 - 1)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def banned(self) -> frozenset[int]:
        return frozenset(token for token, bias in self.logit_bias.items() if bias <= BAN)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True)
class Decoding:
    """How groups are made."""

    max_tokens: int | None = None  # exact length of an answer that ends with "length"; None: the default
    confidence: float = DEFAULT_CONFIDENCE["merge"]  # a group continues while 1 - p_stop >= confidence
    mode: Mode = "merge"
    ignore_eos: bool = False  # do not end at an end token
    top_probabilities: int | None = None  # likeliest tokens to report; costs passes over the scores

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            object.__setattr__(self, "max_tokens", whole_in("max_tokens", self.max_tokens, 1, 2**31 - 1))
        object.__setattr__(self, "confidence", number_in("confidence", self.confidence, 0, 1))
        set_dial({"mode": self.mode}, UNMEASURED)
        if self.mode == "plain":
            object.__setattr__(self, "confidence", DEFAULT_CONFIDENCE["plain"])
        flag("ignore_eos", self.ignore_eos)
        if self.top_probabilities is not None:
            count = whole_in("top_probabilities", self.top_probabilities, 0, 2**31 - 1)
            object.__setattr__(self, "top_probabilities", count)

    @property
    def exact(self) -> bool:
        """Whether the answer must equal plain decoding's; its prompt then reuses no merged slot."""
        return self.mode in ("plain", "verify") or self.confidence >= 1


_DECODING = {item.name for item in fields(Decoding)}
_SAMPLING = {item.name for item in fields(SamplingSettings)}
_STRUCTURE = {"json_schema", "regex", "grammar", "calls"}
_FORMER = {"forced", "force_group"}  # in sessions of older versions


@dataclass(frozen=True)
class Settings:
    decoding: Decoding = field(default_factory=Decoding)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    stop: tuple[str, ...] = ()
    structure: Structure | None = None
    min_certainty: float | None = None  # 0 to 1: answers below are unsure

    @classmethod
    def of(
        cls,
        options: Mapping[str, Any],
        recommended: Recommended = UNMEASURED,
        current: Recommended | None = None,
    ) -> Settings:
        """Overlay options on the model's recommendation, or on a conversation's setting `current`."""
        unknown = sorted(set(options) - set(Options.__annotations__))
        if unknown:
            raise InputError(
                f"unknown option {safe_repr(unknown[0])} (known: {', '.join(Options.__annotations__)})"
            )
        options = {**options, **asdict(set_dial(options, recommended, current))}
        stop = options.get("stop", ())
        stop = (stop,) if isinstance(stop, str) else stop
        if not isinstance(stop, Sequence) or not all(isinstance(text, str) and text for text in stop):
            raise InputError(f"stop must be texts of at least one character, got {safe_repr(stop)}")
        decoding = {name: value for name, value in options.items() if name in _DECODING}
        sampling = {name: value for name, value in options.items() if name in _SAMPLING}
        structure = Structure.of(**{name: value for name, value in options.items() if name in _STRUCTURE})
        least = options.get("min_certainty")
        least = None if least is None else number_in("min_certainty", least, 0, 1)
        return cls(Decoding(**decoding), SamplingSettings(**sampling), tuple(stop), structure, least)

    def to_options(self) -> dict[str, Any]:
        """Return the options for `of` as plain JSON."""
        structure = self.structure.to_options() if self.structure else {}
        others = {"stop": list(self.stop), "min_certainty": self.min_certainty}
        return {**asdict(self.decoding), **asdict(self.sampling), **others, **structure}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """Read options from JSON, whose object keys turn the token ids of `logit_bias` into text."""
        bias = {int(token): value for token, value in data["logit_bias"].items()}
        options = {name: value for name, value in data.items() if name not in _FORMER}
        return cls.of({**options, "logit_bias": bias})
