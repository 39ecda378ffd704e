"""Where a constraint refuses an answer, byte by byte: bytes are tokens here."""

from __future__ import annotations

from hamburger_edge.support.constraint import Constraint

END = 256  # the end token


def refused(constraint: Constraint, answer: str) -> str | None:
    """Return the answer up to the first refused byte; "end" if it may not end; None if all is allowed."""
    for number, byte in enumerate(answer.encode()):
        if not constraint.allows(byte):
            return answer.encode()[: number + 1].decode(errors="replace")
        constraint.consume(byte)
    return None if constraint.allows(END) else "end"
