"""Every error that this project raises on purpose.

    HamburgerError
    ├── InputError               a value the caller passed: prompt, option, sampling setting
    │   └── ContextFullError     more slots or positions than the context holds
    ├── ConfigError              an impossible value in a configuration, recipe or manifest
    ├── CheckpointError          weights: missing, unknown, mis-shaped, truncated, not finite
    ├── BundleError              an exported folder: missing or changed file, wrong version, escaping path
    ├── FetchError               a download or its verification failed
    ├── MissingExtraError        an optional dependency is not installed; names the pip command
    ├── RuntimeUnavailableError  a runtime or provider this machine does not have; lists what it has
    ├── RuntimeFailureError      a runtime failed in the middle: no memory, a node that it cannot compute
    ├── ParityError              an exported graph disagrees with its PyTorch module
    ├── SessionError             a saved session that does not belong to this model
    ├── BusyError                a second thread entered a model that is generating
    └── ClosedError              a model was used after it was closed

Each message is one line of at most 500 printable characters. It names the fault and the remedy. The command
line prints it after `error:` and exits with code 1; `--debug` adds the traceback.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

LONGEST = 500  # upper limit of characters in a message


def one_line(text: str, limit: int = LONGEST) -> str:
    """Return the text as one printable line of at most `limit` characters.

    Other characters are escaped, and a long text is cut in the middle.
    """
    if len(text) <= limit:
        text = printable(text)
    if len(text) <= limit:
        return text
    end = (limit - 5) // 3
    return f"{printable(text[: limit - 5 - end])[: limit - 5 - end]} ... {printable(text[-end:])[-end:]}"


def printable(line: str) -> str:
    """Escape unprintable characters: names from files may contain terminal control codes."""
    return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


class HamburgerError(Exception):
    """The root of this project's errors."""

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message))


class InputError(HamburgerError):
    pass


class ContextFullError(InputError):
    pass


class ConfigError(HamburgerError):
    pass


class CheckpointError(HamburgerError):
    pass


class BundleError(HamburgerError):
    pass


class FetchError(HamburgerError):
    pass


class MissingExtraError(HamburgerError):
    pass


class RuntimeUnavailableError(HamburgerError):
    pass


class RuntimeFailureError(HamburgerError):
    pass


class ParityError(HamburgerError):
    pass


class SessionError(HamburgerError):
    pass


class BusyError(HamburgerError):
    pass


class ClosedError(HamburgerError):
    def __init__(self, message: str = "this model is closed: load it again") -> None:
        super().__init__(message)


class HamburgerWarning(UserWarning):
    """A request was fulfilled differently; never issued for default options."""


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Turn a missing dependency in this block into MissingExtraError with the extra to install.

    "" stands for the package without extras.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").split(".")[0]
        if module in ("", "hamburger_edge"):
            raise
        raise missing(module, f"'.[{extra}]'" if extra else ".") from error


def missing(what: str, wanted: str) -> MissingExtraError:
    """Return the error; `wanted` is pip's argument in the checkout: no index is known to have it."""
    return MissingExtraError(f"{what} is not installed: run  pip install {wanted}  in the checkout")


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency."""
    with needing(extra):
        return importlib.import_module(module)
