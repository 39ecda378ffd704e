"""Time a bundle's calls by their rows, and show what drafts cost on this machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hamburger_edge.drafts.drafting import Costs
from hamburger_edge.errors import InputError
from hamburger_edge.loading import load
from hamburger_edge.loop.call_costs import CallTimes, time_calls
from hamburger_edge.support.tables import table

ROWS = (1, 2, 4, 8, 16, 24)
LONG = 2000  # slots of a long text, in the table
SECONDS = 20.0  # after which no further round begins


@dataclass(frozen=True)
class CallReport:
    times: CallTimes
    stored: Costs  # what the bundle says
    measured: Costs | None  # what drafts here go by; None: the bundle's
    undisturbed: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "ms": {str(rows): 1000 * seconds for rows, seconds in self.times.rows.items()},
            "micro_ms": None if self.times.micro is None else 1000 * self.times.micro,
            "undisturbed": self.undisturbed,
            **{
                name: None if costs is None else asdict(costs)
                for name, costs in (
                    ("now", self.times.costs()),
                    ("kept", self.measured),
                    ("bundle", self.stored),
                )
            },
        }

    def text(self) -> str:
        """Format for a terminal."""
        one = self.times.rows[1]
        calls = [(f"{rows} rows", seconds) for rows, seconds in self.times.rows.items()]
        if self.times.micro is not None:
            calls.append(("micro step", self.times.micro))
        lines = [("call", "ms", "of one row"), *(_line(*call, one) for call in calls)]
        costs = [
            ("costs of drafts", "row", "micro step", f"behind {LONG} slots: row", "micro step"),
            ("now", *_costs(self.times.costs())),
        ]
        if self.measured is not None:
            costs.append(("kept for this machine", *_costs(self.measured)))
        costs.append(("of the bundle", *_costs(self.stored)))
        used = "those kept for this machine" if self.measured else "those of the bundle"
        notes = [f"`verify` goes by {used}, `hybrid` by those of the bundle"]
        if not self.undisturbed:
            notes.append("other programs took processors away: measure again on an idle machine")
        return "\n\n".join([table(lines), table(costs), "\n".join(notes)])


def time_bundle(bundle: Path, threads: int) -> CallReport:
    """Time the calls of a bundle's graphs on the CPU."""
    with load(bundle, "onnx", threads=threads) as model:
        backend = model.inference.engine.backend
        times = time_calls(backend, ROWS, seconds=SECONDS)
        if times is None:
            raise InputError(
                f"{bundle}: a call takes more than {SECONDS / 10:.0f} s here: give more --threads"
            )
        info = backend.info
        return CallReport(times, info.draft_costs, info.machine_costs, times.undisturbed(threads))


def _line(name: str, seconds: float, one: float) -> tuple[str, str, str]:
    return name, f"{1000 * seconds:.2f}", f"{seconds / one:.2f}"


def _costs(costs: Costs) -> tuple[str, ...]:
    long = costs.behind(LONG)
    return tuple(f"{cost:.2f}" for cost in (costs.row, costs.micro, long.row, long.micro))
