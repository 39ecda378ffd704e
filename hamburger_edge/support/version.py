"""The version of the installed package."""

from __future__ import annotations

import functools


@functools.cache
def package_version() -> str:
    """Return the version. Its look-up imports a mail parser, which an answer does not need."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("hamburger-edge")
    except PackageNotFoundError:  # a source tree that is not installed
        return "0+unknown"
