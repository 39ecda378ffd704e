"""Counts and times, in Prometheus's text format."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TOKENS = (1, 2, 3, 4, 6, 8, 12, 16)

COUNTERS = {
    "requests_total": "Requests answered, by path and status.",
    "prompt_tokens_total": "Tokens of prompts.",
    "reused_tokens_total": "Tokens of prompts that a cache already held.",
    "tokens_total": "Tokens of answers.",
    "macro_steps_total": "Macro steps: groups of tokens that were said.",
    "slots_total": "KV slots that finished answers left in use, prompts included.",
    "slots_saved_total": "KV slots that a cache with one slot a token would have needed beyond those.",
    "cancelled_total": "Answers that were ended early, by reason.",
}
HISTOGRAMS = {
    "tokens_per_step": ("Tokens of a macro step.", _TOKENS),
    "time_to_first_token_seconds": (
        "From a request's arrival to its first text, waiting included.",
        _SECONDS,
    ),
    "step_seconds": ("Time of a macro step, but for the one that reads the prompt.", _SECONDS),
}
GAUGES = {
    "queue_length": "Requests that wait for a worker.",
    "workers": "Workers.",
    "workers_busy": "Workers that are making an answer.",
    "sessions": "Conversations kept in memory.",
    "sessions_bytes": "Memory that they take.",
}

Labels = tuple[tuple[str, str], ...]


@dataclass
class _Histogram:
    counts: list[int]
    total: float = 0.0
    observed: int = 0


@dataclass
class Metrics:
    """Counters and histograms. Thread-safe."""

    _counts: dict[str, dict[Labels, float]] = field(default_factory=lambda: defaultdict(dict))
    _histograms: dict[str, dict[Labels, _Histogram]] = field(default_factory=lambda: defaultdict(dict))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, name: str, value: float = 1, **labels: str) -> None:
        assert name in COUNTERS
        key = tuple(sorted(labels.items()))
        with self._lock:
            self._counts[name][key] = self._counts[name].get(key, 0) + value

    def observe(self, name: str, value: float, **labels: str) -> None:
        _, bounds = HISTOGRAMS[name]
        key = tuple(sorted(labels.items()))
        with self._lock:
            histogram = self._histograms[name].setdefault(key, _Histogram([0] * len(bounds)))
            for index, bound in enumerate(bounds):
                histogram.counts[index] += value <= bound
            histogram.total += value
            histogram.observed += 1

    def text(self, gauges: Mapping[str, Mapping[Labels, float]]) -> str:
        lines = []
        with self._lock:
            for name, about in COUNTERS.items():
                lines += _head(name, about, "counter")
                lines += [_line(name, key, value) for key, value in self._counts[name].items()]
            for name, (about, bounds) in HISTOGRAMS.items():
                lines += _head(name, about, "histogram")
                for key, histogram in self._histograms[name].items():
                    for bound, count in zip(bounds, histogram.counts, strict=True):
                        lines.append(_line(f"{name}_bucket", (*key, ("le", f"{bound:g}")), count))
                    lines.append(_line(f"{name}_bucket", (*key, ("le", "+Inf")), histogram.observed))
                    lines.append(_line(f"{name}_sum", key, histogram.total))
                    lines.append(_line(f"{name}_count", key, histogram.observed))
        for name, about in GAUGES.items():
            lines += _head(name, about, "gauge")
            lines += [_line(name, key, value) for key, value in gauges.get(name, {}).items()]
        return "\n".join(lines) + "\n"


def _head(name: str, about: str, kind: str) -> list[str]:
    return [f"# HELP hamburger_{name} {about}", f"# TYPE hamburger_{name} {kind}"]


def _line(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"hamburger_{name}{{{shown}}} {value:.17g}" if shown else f"hamburger_{name} {value:.17g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
