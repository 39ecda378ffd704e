"""Terms that come with a base's weights, and go with everything that is made from them.

The files lie beside the weights, then in every checkpoint and bundle.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from hamburger_edge.errors import FetchError

NOTICE, TERMS = "NOTICE", "TERMS.html"
FILES = (NOTICE, TERMS)


@dataclass(frozen=True)
class License:
    """A licence that a user agrees to before a fetch."""

    name: str  # for --accept-license
    title: str
    url: str
    notice: str  # text of NOTICE

    def check(self, base: str, accepted: str | None) -> None:
        """Raise a FetchError that asks for consent, unless this licence was accepted."""
        if accepted == self.name:
            return
        raise FetchError(
            f"{base} is under the {self.title}, which restrict its use: read {self.url}, and if you agree, "
            f"run  hamburger-edge fetch {base} --accept-license {self.name}"
        )


GEMMA = License(
    name="gemma",
    title="Gemma Terms of Use",
    url="https://ai.google.dev/gemma/terms",
    notice="Gemma is provided under and subject to the Gemma Terms of Use found at "
    "ai.google.dev/gemma/terms\n\n"
    "Those terms, a copy of which is TERMS.html, restrict how Gemma and models made from it may be used. "
    "A checkpoint or a bundle beside this file is made from Gemma and modified: retrained, quantized or "
    "both.\n",
)


def copy_terms(source: Path, target: Path) -> None:
    """Copy the files of terms in a folder, if there are any."""
    for name in FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
