"""Options of a benchmark of whole requests, its programs, and the pairs to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hamburger_edge.benchmarks.contender import Program
from hamburger_edge.benchmarks.requests.our_answers import PLAIN_SINGLE
from hamburger_edge.benchmarks.speed.our_speed import PLAIN, VERIFY
from hamburger_edge.benchmarks.speed.speed_plan import full, useful
from hamburger_edge.benchmarks.speed.speed_plan import programs as runtimes
from hamburger_edge.bundle.manifest import Manifest
from hamburger_edge.errors import InputError
from hamburger_edge.loop.dial import MODES, Recommended

SETTINGS = (PLAIN, "merge-0.95", "merge-0.9", "merge-0.8", VERIFY)  # without a schema
STRUCTURED_SETTINGS = ("merge-0.8",)
SPLIT = "split"  # the loop's way: forced tokens join the next call, one per slot


@dataclass(frozen=True)
class RequestPlan:
    schema: str | None = None  # a JSON schema's text
    max_tokens: int = 256  # of an answer
    rounds: int | None = None  # requests per program; None: each prompt once
    settings: tuple[str, ...] = ()  # confidences and modes; empty: the default list
    recommended: str | None = None  # the model's recommended setting
    seconds: float | None = None  # time limit of the measurement
    build: bool = True  # build missing files for peers: minutes, once
    only: tuple[str, ...] = ()  # names or programs; empty: all

    @property
    def variants(self) -> tuple[str, ...]:
        """Variants of our runtimes: `SETTING` without the schema, `SETTING+split` with it.

        `SETTING` is a confidence, a mode or both. Variant `plain+single` has the schema and one base call per
        token.
        """
        own = (self.recommended,) if self.recommended else ()
        if self.schema is None:
            return self.settings or tuple(dict.fromkeys((*own, *SETTINGS)))
        settings = self.settings or own or STRUCTURED_SETTINGS
        both = [variant for setting in settings for variant in (f"{setting}+{SPLIT}", setting)]
        return tuple(dict.fromkeys([*both, f"{PLAIN}+{SPLIT}", PLAIN_SINGLE]))


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
    variants = plan.variants if plan.settings else useful(plan.variants, manifest)
    return {**runtimes(adapter, variants, manifest), **answering}


def pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pair each of our variants with plain decoding and with each peer.

    A variant with the schema is compared with `plain+single` instead: one base call per token.
    """
    mine = [name for name in names if "@" in name]
    slower = []
    for name in mine:
        program, variant = name.split("@")
        slow = full(program, PLAIN_SINGLE if "+" in variant else PLAIN)
        if slow in names and slow != name:
            slower.append((name, slow))
    return slower + [(name, peer) for name in mine for peer in names if "@" not in peer]
