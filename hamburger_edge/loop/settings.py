"""What a caller may ask of an answer, in one place: names, defaults, and where each value is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypedDict

from hamburger_edge.errors import InputError
from hamburger_edge.loop.dial import DEFAULT_CONFIDENCE, UNMEASURED, Mode, Recommended, set_dial
from hamburger_edge.loop.sampling import SamplingSettings
from hamburger_edge.loop.structure import Structure
from hamburger_edge.support.values import among, flag, number_in, safe_repr, whole_in


class Options(TypedDict, total=False):
    """Keyword arguments of `stream`, `generate` and `chat`."""

    max_tokens: int  # 256
    # How sure a further token of a group must be: at 0 groups are largest, at 1 each holds one token. It and
    # `mode` overlay what the model recommends by the rule in `dial.py`.
    confidence: float
    # "plain": one token a step. "verify": the base checks every drafted token; plain decoding's text, but for
    # near ties, in fewer calls. "hybrid": tokens with p >= confidence ** (1 / max_group_tokens) are merged,
    # the base checks the rest. "merge": every group is merged as drafted.
    mode: Mode
    stop: str | Sequence[str]  # the answer ends before any of these
    probabilities: bool  # report each token's probability
    temperature: float  # 0: greedy
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    suppress_tokens: Sequence[int]
    seed: int | None
    json_schema: Any  # the answer is JSON that follows this schema: a dictionary, its JSON, a Pydantic model
    regex: str  # the answer matches this regular expression
    grammar: str  # the answer follows this grammar, in Lark's syntax
    lenient: bool  # keywords of a schema that are not supported are left out of account
    forced: Literal["split", "merge"]  # how tokens that the structure forces are fed; see Decoding


class MeasuringOptions(Options, total=False):
    """Private to benchmarks and tests; so is "single" for `forced`."""

    force_group: int | None  # every group this size, whatever the stop head says
    ignore_eos: bool  # do not end at an end token


@dataclass(frozen=True)
class Decoding:
    """How groups are made."""

    max_tokens: int = 256  # exactly this many come out, unless something else ends the answer
    confidence: float = DEFAULT_CONFIDENCE["merge"]  # a group goes on while 1 - p_stop is at least this
    # plain: one token a step. verify: the base checks every token. hybrid: tokens with
    # p >= confidence ** (1 / max_group_tokens) are merged, the base checks the rest; if its top probability
    # is below the confidence, it reads the newest merged groups again, token by token. merge: every group is
    # merged.
    mode: Mode = "merge"
    # tokens that a structure leaves no choice about: one a slot but in one call of the base, merged into
    # groups (not at confidence 1 and in verify mode), or each with a call of its own
    forced: Literal["split", "merge", "single"] = "split"
    force_group: int | None = None  # for measurements: every group this size, whatever the stop head says
    ignore_eos: bool = False  # for measurements: do not end at an end token
    probabilities: bool = False  # report each token's probability (one pass over the scores each)

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_tokens", whole_in("max_tokens", self.max_tokens, 1, 2**31 - 1))
        object.__setattr__(self, "confidence", number_in("confidence", self.confidence, 0, 1))
        set_dial({"mode": self.mode}, UNMEASURED)
        if self.mode == "plain":
            object.__setattr__(self, "confidence", DEFAULT_CONFIDENCE["plain"])
        if not among(self.forced, ("split", "merge", "single")):
            raise InputError(f"forced must be 'split', 'merge' or 'single', got {safe_repr(self.forced)}")
        if self.force_group is not None:
            object.__setattr__(self, "force_group", whole_in("force_group", self.force_group, 1, 2**31 - 1))
        flag("ignore_eos", self.ignore_eos)
        flag("probabilities", self.probabilities)

    @property
    def exact(self) -> bool:
        """Whether the answer must equal plain decoding's, so that no merged slot may serve it."""
        return self.mode in ("plain", "verify") or (self.confidence >= 1 and self.force_group is None)


_DECODING = {item.name for item in fields(Decoding)}
_SAMPLING = {item.name for item in fields(SamplingSettings)}
_STRUCTURE = {"json_schema", "regex", "grammar", "lenient"}


@dataclass(frozen=True)
class Settings:
    decoding: Decoding = field(default_factory=Decoding)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    stop: tuple[str, ...] = ()
    structure: Structure | None = None

    @classmethod
    def of(
        cls,
        options: Mapping[str, Any],
        recommended: Recommended = UNMEASURED,
        current: Recommended | None = None,
    ) -> Settings:
        """Options over what the model recommends, or over the dial of a conversation, `current`."""
        unknown = sorted(set(options) - set(MeasuringOptions.__annotations__))
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
        return cls(Decoding(**decoding), SamplingSettings(**sampling), tuple(stop), structure)

    def to_options(self) -> dict[str, Any]:
        """What `of` takes; plain JSON."""
        structure = self.structure.to_options() if self.structure else {}
        return {**asdict(self.decoding), **asdict(self.sampling), "stop": list(self.stop), **structure}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """Options that went through JSON, where the token ids of the bias become text."""
        bias = {int(token): value for token, value in data["logit_bias"].items()}
        return cls.of({**data, "logit_bias": bias})
