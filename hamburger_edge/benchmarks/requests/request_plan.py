"""Options of a benchmark of whole requests, its programs, and the pairs to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hamburger_edge.benchmarks.contender import Program
from hamburger_edge.benchmarks.speed.our_speed import PLAIN, VERIFY
from hamburger_edge.benchmarks.speed.speed_plan import full
from hamburger_edge.benchmarks.speed.speed_plan import programs as runtimes
from hamburger_edge.bundle.manifest import Manifest
from hamburger_edge.errors import InputError
from hamburger_edge.loop.dial import MODES, Recommended

SETTINGS = (PLAIN, "merge-0.95", "merge-0.9", "merge-0.8", VERIFY)  # without a schema
STRUCTURED_SETTINGS = ("merge-0.8",)
FORCED = ("merge", "split", "single")
PLAIN_STRUCTURED = f"{PLAIN}+split"


@dataclass(frozen=True)
class RequestPlan:
    schema: str | None = None  # a JSON schema's text
    most: int = 256  # maximum number of answer tokens
    rounds: int | None = None  # requests per program; None: each prompt once
    settings: tuple[str, ...] = ()  # confidences and modes; empty: the default list
    recommended: str | None = None  # the model's recommended setting
    seconds: float | None = None  # time limit of the measurement
    build: bool = True  # build missing files for peers: minutes, once
    only: tuple[str, ...] = ()  # names or programs; empty: all

    @property
    def variants(self) -> tuple[str, ...]:
        """Variants of our runtimes, as `SETTING` or `SETTING+FORCED`.

        `SETTING` is a confidence, a mode or both. `FORCED` is how the loop feeds forced tokens. A variant
        without `+FORCED` ignores the schema.
        """
        own = (self.recommended,) if self.recommended else ()
        if self.schema is None:
            return self.settings or tuple(dict.fromkeys((*own, *SETTINGS)))
        found = [
            f"{setting}{forced}"
            for setting in self.settings or own or STRUCTURED_SETTINGS
            for forced in (*(f"+{each}" for each in FORCED), "")
        ]
        return tuple(dict.fromkeys([*found, PLAIN_STRUCTURED]))


QUICK = RequestPlan(rounds=8, seconds=90, build=False)


def recommended(manifest: Manifest) -> str | None:
    """Return the manifest's recommended setting, or None."""
    return None if manifest.recommended is None else str(manifest.recommended)


def setting(text: str) -> str:
    """Return a setting in its canonical spelling. A mode without a confidence stays as it is."""
    try:
        return text if text in MODES else str(Recommended.parse(text))
    except InputError as error:
        raise InputError(f"--confidence: {error}") from None


def programs(plan: RequestPlan, manifest: Manifest, peers: Mapping[str, Program]) -> dict[str, Program]:
    adapter = "hamburger_edge.benchmarks.requests.our_answers:AnsweringModel"
    answering = {name: peer for name, peer in peers.items() if peer.answers}
    return {**runtimes(adapter, plan.variants, manifest), **answering}


def pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pair each of our variants with plain decoding and with each peer.

    A variant with `+FORCED` is compared with `+single` instead: one base call per forced token.
    """
    mine = [name for name in names if "@" in name]
    found = []
    for name in mine:
        program, variant = name.split("@")
        slow = full(program, f"{variant.split('+')[0]}+single" if "+" in variant else PLAIN)
        if slow in names and slow != name:
            found.append((name, slow))
    return found + [(name, peer) for name in mine for peer in names if "@" not in peer]
