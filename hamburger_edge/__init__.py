"""HAMburger on the edge: language models that generate several tokens per step, stored in one KV cache entry.

import hamburger_edge

with hamburger_edge.load("my-bundle") as model:
    for chunk in model.stream("Why is the sky blue?", confidence=0.8, max_tokens=200):
        print(chunk.text, end="", flush=True)  # one chunk per macro step: 1..max_group_tokens tokens
    print(model.generate("And at night?").stats.tokens_per_step)
"""

from typing import TYPE_CHECKING, Any

from hamburger_edge.calls.catalogue import Catalogue
from hamburger_edge.calls.compact_form import Call, Calls
from hamburger_edge.calls.from_python import answer_template, tools_of
from hamburger_edge.chat.conversation import Chat
from hamburger_edge.chat.stream import Chunk, Result, Stream
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.errors import (
    BundleError,
    BusyError,
    CheckpointError,
    ClosedError,
    ConfigError,
    ContextFullError,
    FetchError,
    HamburgerError,
    HamburgerWarning,
    InputError,
    MissingExtraError,
    ParityError,
    RuntimeFailureError,
    RuntimeUnavailableError,
    SessionError,
)
from hamburger_edge.exporting import export_checkpoint
from hamburger_edge.loading import load
from hamburger_edge.loop.scores import TopToken
from hamburger_edge.loop.settings import Options
from hamburger_edge.loop.stats import Stats
from hamburger_edge.model import Model
from hamburger_edge.support.version import package_version

__all__ = [
    "BundleError",
    "BusyError",
    "Call",
    "Calls",
    "Catalogue",
    "Chat",
    "ChatTemplate",
    "CheckpointError",
    "Chunk",
    "ClosedError",
    "ConfigError",
    "ContextFullError",
    "FetchError",
    "HamburgerError",
    "HamburgerWarning",
    "InputError",
    "MissingExtraError",
    "Model",
    "Options",
    "ParityError",
    "Result",
    "RuntimeFailureError",
    "RuntimeUnavailableError",
    "SessionError",
    "Stats",
    "Stream",
    "TopToken",
    "__version__",
    "answer_template",
    "export_checkpoint",
    "load",
    "tools_of",
]

__version__: str

if not TYPE_CHECKING:  # for a type checker, other names stay errors

    def __getattr__(name: str) -> Any:
        if name == "__version__":  # looked up at its first use
            return package_version()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
