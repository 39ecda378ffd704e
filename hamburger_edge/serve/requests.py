"""Convert a request body to a typed `AnswerRequest`. All checks that need no model are here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hamburger_edge.calls.catalogue import CallLimits, Catalogue
from hamburger_edge.errors import InputError
from hamburger_edge.loop.dial import MODES, Recommended
from hamburger_edge.loop.settings import Settings
from hamburger_edge.serve.catalogue_tools import CatalogueTools, read_catalogue_tools
from hamburger_edge.serve.chat_messages import LONGEST_NAME, answer_to_results, content, conversation
from hamburger_edge.serve.fields import Fields, RefusedError
from hamburger_edge.serve.tools import Tools, read_tools

MOST_STOPS = 16
MOST_LOGPROBS = 20  # likeliest tokens to list with each token
LONGEST_STOP = 1000
# Modes in which the base chooses every token, so that its probability is the base's own.
_EXACT = 'mode "plain" or "verify"'
_NUMBERS = (  # `Settings` checks their ranges
    *("temperature", "top_p", "top_k", "min_p", "confidence"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "min_certainty"),
)
_NOT_DIALS = ("prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "service_tier", "verbosity")


@dataclass(frozen=True)
class RequestLimits:
    """Limits of size and time of a request."""

    body: int = 1 << 20  # bytes
    messages: int = 512
    tokens: int = 1 << 16  # of an answer
    body_seconds: float = 10  # to receive a body
    answer_seconds: float = 600  # to complete an answer, waiting included


@dataclass(frozen=True)
class AnswerRequest:
    model: str | None
    messages: tuple[dict[str, str], ...] | None  # of a chat: as `Model.stream` takes them
    prompt: str | tuple[int, ...] | None  # of a completion: text or tokens, without the template
    settings: Settings
    stream: bool
    include_usage: bool
    tools: Tools | CatalogueTools | None = None
    user: str | None = field(default=None, compare=False)
    shown: str | None = None  # the answer to results of tools, which needs no model

    @property
    def logprobs(self) -> bool:
        return self.settings.decoding.top_probabilities is not None

    def messages_for(self, default_system: str | None) -> list[dict[str, str]] | None:
        """Return the messages with the functions to call, which are appended to the system text."""
        if self.messages is None:
            return None
        turns = [message for message in self.messages if message["role"] != "system"]
        given = [message["content"] for message in self.messages if message["role"] == "system"]
        system = given[0] if given else default_system or ""
        text = system if self.tools is None else f"{system}\n\n{self.tools.described()}".strip()
        return [{"role": "system", "content": text}, *turns]


# Model name -> recommended setting; raises `RefusedError` for an unknown model.
Recommends = Callable[[str | None], Recommended]


# Model name -> the tools that it was tuned with, if any.
Catalogues = Callable[[str | None], Catalogue | None]


def read_chat(
    data: dict[str, Any],
    recommends: Recommends,
    limits: RequestLimits,
    catalogues: Catalogues = lambda _: None,
) -> AnswerRequest:
    fields = Fields(data)
    model = fields.text("model", longest=LONGEST_NAME)
    recommended = recommends(model)
    catalogue = catalogues(model)
    tools: Tools | CatalogueTools | None
    tools = read_tools(fields) if catalogue is None else read_catalogue_tools(fields, catalogue)
    options = _options(fields, limits)
    options.update(_response_format(fields, tools))
    count = fields.whole("top_logprobs", 0, MOST_LOGPROBS)
    if fields.flag("logprobs"):
        options["top_probabilities"] = count or 0
    elif count:
        raise fields.refuse("top_logprobs", "needs logprobs: true")
    shown = None
    if catalogue is None:
        messages = conversation(fields, tools, limits.messages)
    else:
        writer = CatalogueTools(catalogue, CallLimits())
        given = fields.peek("messages")
        messages = conversation(fields, writer, limits.messages)
        shown = answer_to_results(given, catalogue)
    fields.only("modalities", ["text"])
    answer_request = _answer_request(fields, model, recommended, messages, None, options, tools)
    return answer_request if shown is None else replace(answer_request, tools=None, shown=shown)


def read_completion(data: dict[str, Any], recommends: Recommends, limits: RequestLimits) -> AnswerRequest:
    fields = Fields(data)
    model = fields.text("model", longest=LONGEST_NAME)
    recommended = recommends(model)
    options = _options(fields, limits)
    if (count := fields.whole("logprobs", 0, MOST_LOGPROBS)) is not None:
        options["top_probabilities"] = count
    fields.only("echo", False)
    fields.only("suffix", "")
    fields.only("best_of", 1)
    return _answer_request(fields, model, recommended, None, _raw_prompt(fields), options, None)


def _answer_request(
    fields: Fields,
    model: str | None,
    recommended: Recommended,
    messages: tuple[dict[str, str], ...] | None,
    prompt: str | tuple[int, ...] | None,
    options: dict[str, Any],
    tools: Tools | CatalogueTools | None,
) -> AnswerRequest:
    stream = fields.flag("stream")
    include_usage = False
    if fields.has("stream_options"):
        if not stream:
            raise fields.refuse("stream_options", "needs stream: true")
        inner = Fields(fields.take("stream_options"), "stream_options")
        include_usage = inner.flag("include_usage")
        inner.only("include_obfuscation", False)
        inner.end()
    fields.only("n", 1)
    fields.only("store", False)
    user = _harmless(fields)
    fields.end()
    try:
        settings = Settings.of(options, recommended)
    except InputError as error:
        raise RefusedError(str(error), _named(str(error))) from error
    if settings.decoding.top_probabilities is not None and not settings.decoding.exact:
        raise RefusedError(
            f"logprobs: tokens of a drafted group are not the base's own choice: ask for {_EXACT}", "logprobs"
        )
    return AnswerRequest(model, messages, prompt, settings, stream, include_usage, tools, user)


def _harmless(fields: Fields) -> str | None:
    """Return the user, and check fields that do not change the answer.

    These are bookkeeping, cache hints and options of reasoning models.
    """
    fields.texts("metadata")
    user, safety = (fields.text(name, longest=LONGEST_NAME) for name in ("user", "safety_identifier"))
    for name in _NOT_DIALS:
        fields.text(name, longest=LONGEST_NAME)
    if fields.has("prediction"):  # a draft of the answer, to speed up decoding; not used
        inner = Fields(fields.take("prediction"), "prediction")
        if inner.need("type") != "content":
            raise inner.refuse("type", "must be content")
        content(inner, required=True)
        inner.end()
    return user or safety


def _named(message: str) -> str | None:
    """Return the request field that an error of `Settings` refers to."""
    begins = {"json_schema": "response_format", "grammar": "tools", "calls": "tools"}
    begins |= {f"{name} must be ": name for name in _NUMBERS}
    return next((field for begin, field in begins.items() if message.startswith(begin)), None)


def _options(fields: Fields, limits: RequestLimits) -> dict[str, Any]:
    """Return the given options of both endpoints, with this project's `confidence` and `mode`."""
    limit = fields.whole("max_tokens", 1, limits.tokens)
    completion = fields.whole("max_completion_tokens", 1, limits.tokens)
    if limit is not None and completion is not None and limit != completion:
        raise fields.refuse("max_tokens", "differs from max_completion_tokens: give one")
    options: dict[str, Any] = {
        "max_tokens": limit if completion is None else completion,
        **{name: fields.take(name) for name in _NUMBERS},
        "seed": _seed(fields),
        "mode": fields.one_of("mode", MODES),
        "logit_bias": _bias(fields),
        "stop": _stop(fields),
    }
    return {name: value for name, value in options.items() if value is not None}


def _seed(fields: Fields) -> int | None:
    """Return `seed % 2**64`: OpenAI's seed is a signed 64-bit integer, the sampler's is unsigned."""
    seed = fields.whole("seed", -(2**63), 2**63 - 1)
    return None if seed is None else seed % 2**64


def _stop(fields: Fields) -> tuple[str, ...] | None:
    if not fields.has("stop"):
        return None
    value = fields.take("stop")
    given = value if isinstance(value, list) else [value]
    if len(given) > MOST_STOPS:
        raise fields.refuse("stop", f"has {len(given)} texts, at most {MOST_STOPS} are taken")
    texts = tuple(fields.checked_text("stop", text, LONGEST_STOP) for text in given)
    if not all(texts):
        raise fields.refuse("stop", "must be texts of at least one character")
    return texts


def _bias(fields: Fields) -> dict[int, float] | None:
    if not fields.has("logit_bias"):
        return None
    value = fields.take("logit_bias")
    if not isinstance(value, dict) or not all(name.isascii() and name.isdigit() for name in value):
        raise fields.refuse("logit_bias", "must map token ids to numbers")
    inner = Fields(value, "logit_bias")
    biases = {int(name): inner.number(name, -100, 100) for name in value if len(name) < 12}
    inner.end()
    return {token: bias for token, bias in biases.items() if bias is not None}


def _response_format(fields: Fields, tools: Tools | CatalogueTools | None) -> dict[str, Any]:
    structure = {} if tools is None else tools.options()
    if not fields.has("response_format"):
        return structure
    inner = Fields(fields.take("response_format"), "response_format")
    kind = inner.one_of("type", ("text", "json_object", "json_schema"))
    if kind is None:
        raise inner.refuse("type", "is missing")
    if kind != "text" and tools is not None:
        raise RefusedError(
            "response_format: an answer follows either tools or a format: leave one out", "tools"
        )
    if kind == "json_object":
        structure = {"json_schema": {"type": "object"}}
    elif kind == "json_schema":
        described = Fields(inner.need("json_schema"), "response_format.json_schema")
        described.text("name", longest=LONGEST_NAME)  # no effect
        described.text("description")
        strict = described.flag("strict", True)
        structure = {"json_schema": {"schema": described.need("schema"), "strict": strict}}
        described.end()
    inner.end()
    return structure


def _raw_prompt(fields: Fields) -> str | tuple[int, ...]:
    value = fields.need("prompt")
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], int):
        [value] = value  # a batch of one
    if isinstance(value, list):
        if not value or not all(type(token) is int and 0 <= token < 2**31 for token in value):
            raise fields.refuse("prompt", "must be one text, or the token ids of one")
        return tuple(value)
    text = fields.checked_text("prompt", value)
    if not text:
        raise fields.refuse("prompt", "is empty: say something")
    return text
