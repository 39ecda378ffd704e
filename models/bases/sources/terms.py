"""Terms that come with a base's weights, and go with everything that is made from them.

The files lie beside the weights, then in every checkpoint and bundle.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from hamburger_edge.errors import FetchError
from hamburger_edge.support.files import is_terms

LICENSE, NOTICE, TERMS = "LICENSE", "NOTICE", "TERMS.html"

SMOLLM2 = (
    "SmolLM2-135M-Instruct\n"
    "Copyright Hugging Face. Licensed under the Apache License, Version 2.0, a copy of which is LICENSE.\n\n"
    "A checkpoint or a bundle beside this file is made from SmolLM2-135M-Instruct and modified: retrained, "
    "quantized or both.\n"
)


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
    for name in terms_in(source):
        shutil.copyfile(source / name, target / name)


def terms_in(folder: Path) -> set[str]:
    """Return the names of a folder's files of terms."""
    return {path.name for path in folder.glob("*") if is_terms(path.name) and path.is_file()}
