"""What a caller may ask of an answer, in one place: names, defaults, and where each value is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypedDict

from hamburger_edge.errors import InputError
from hamburger_edge.loop.backend import MODES, Mode, Recommended
from hamburger_edge.loop.sampling import SamplingSettings
from hamburger_edge.loop.structure import Structure
from hamburger_edge.support.values import among, flag, number_in, shown, whole_in


class Options(TypedDict, total=False):
    """Keyword arguments of `stream`, `generate` and `chat`."""

    max_tokens: int  # 256
    # 0 makes the largest groups, 1 is plain one-token-a-step decoding; where neither it nor `mode` is given,
    # both are as the model recommends, or 0.8 and "trust"
    confidence: float
    # "reread": merged is what is so sure that a whole group of it is as sure as `confidence`, the base checks
    # the rest, and where it is less sure than `confidence` itself, it reads the newest merged groups again;
    # "verify": the text of plain decoding, in fewer base calls
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
    banned: Sequence[int]
    seed: int | None
    json_schema: Any  # the answer is JSON that follows this schema: a dictionary, its JSON, a Pydantic model
    regex: str  # the answer matches this regular expression
    grammar: str  # the answer follows this grammar, in Lark's syntax
    lenient: bool  # keywords of a schema that are not supported are left out of account
    forced: Literal["split", "merge", "single"]  # how tokens that the structure forces are fed; see Decoding
    force_group: int | None  # for measurements
    ignore_eos: bool  # for measurements


@dataclass(frozen=True)
class Decoding:
    """How groups are made."""

    max_tokens: int = 256  # exactly this many come out, unless something else ends the answer
    confidence: float = 0.8  # a group goes on while 1 - p_stop is at least this; 1: one token a step
    # reread: what is so sure that a whole group of it is as sure as `confidence` is merged, the base checks
    # the rest, and is to be as sure as `confidence`, or it reads the newest merged groups again, token by
    # token; verify: it checks every token; plain decoding's output
    mode: Mode = "trust"
    # tokens that a structure leaves no choice about: one a slot but in one call of the base, merged into
    # groups (not at confidence 1 and in verify mode), or each with a call of its own
    forced: Literal["split", "merge", "single"] = "split"
    force_group: int | None = None  # for measurements: every group this size, whatever the stop head says
    ignore_eos: bool = False  # for measurements: do not end at an end token
    probabilities: bool = False  # report each token's probability (one pass over the scores each)

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_tokens", whole_in("max_tokens", self.max_tokens, 1, 2**31 - 1))
        object.__setattr__(self, "confidence", number_in("confidence", self.confidence, 0, 1))
        if not among(self.mode, MODES):
            raise InputError(f"mode must be {', '.join(map(repr, MODES))}, got {shown(self.mode)}")
        if not among(self.forced, ("split", "merge", "single")):
            raise InputError(f"forced must be 'split', 'merge' or 'single', got {shown(self.forced)}")
        if self.force_group is not None:
            object.__setattr__(self, "force_group", whole_in("force_group", self.force_group, 1, 2**31 - 1))
        flag("ignore_eos", self.ignore_eos)
        flag("probabilities", self.probabilities)

    @property
    def exact(self) -> bool:
        """Whether the answer must equal plain decoding's, so that no merged slot may serve it."""
        return self.mode == "verify" or (self.confidence >= 1 and self.force_group is None)


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
    def of(cls, options: Mapping[str, Any], recommended: Recommended | None = None) -> Settings:
        """`recommended` holds where neither mode nor confidence is asked for."""
        if recommended and not set(options) & {"mode", "confidence", "force_group"}:
            options = {**options, **asdict(recommended)}
        unknown = sorted(set(options) - set(Options.__annotations__))
        if unknown:
            raise InputError(
                f"unknown option {shown(unknown[0])} (known: {', '.join(Options.__annotations__)})"
            )
        stop = options.get("stop", ())
        stop = (stop,) if isinstance(stop, str) else stop
        if not isinstance(stop, Sequence) or not all(isinstance(text, str) and text for text in stop):
            raise InputError(f"stop must be texts of at least one character, got {shown(stop)}")
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
