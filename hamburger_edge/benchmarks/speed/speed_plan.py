"""Options of a benchmark run, its programs, and the pairs to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hamburger_edge.benchmarks.contender import Program, Source
from hamburger_edge.benchmarks.speed.our_speed import FORCED, PLAIN, VERIFY
from hamburger_edge.bundle.manifest import Manifest
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import InputError

VARIANTS = (PLAIN, "merge-0.9", "merge-0.8", "merge-0.7", VERIFY)
RUNTIMES = ("onnx", "llamacpp")
FORMATS = "--format onnx --format gguf"


# Everyday requests, short and long.
TEXTS = (
    "Explain in simple words why the sky is blue during the day and red in the evening.",
    "Write a Python function that takes a list of numbers and returns the mean, the median and the most "
    "frequent value. Add a short docstring and an example of how it is called.",
    "Give me ten ideas for a rainy weekend with two children, as a numbered list with one sentence each.",
    "Summarise the following text in three sentences. The lighthouse on the northern cape was built in 1871 "
    "after two ships had been lost on the rocks within one winter. Its keepers lived there with their "
    "families, grew potatoes behind the wall, and rowed to the village twice a month if the sea let them. "
    "In 1962 the lamp was changed from oil to electricity, and in 1988 the last keeper left. Since then a "
    "computer in the harbour town watches over the light. The house stood empty until a group of volunteers "
    "repaired the roof; today guests can spend a night in the keeper's room, and the money pays for paint.",
    "A baker sells 14 loaves at 3.20 each and 25 rolls at 0.60 each. Work out step by step how much money "
    'that is, then give the result as JSON with the keys "loaves", "rolls" and "total".',
)


@dataclass(frozen=True)
class BenchPlan:
    tokens: int = 64  # new tokens per answer
    rounds: int = len(TEXTS)  # answers per program; default: each prompt once
    longest: int = 4096  # length of the curve in tokens; 0: no curve
    seconds: float | None = None  # time limit of the measurement
    build: bool = True  # build missing files for peers: minutes, once
    force_group: int | None = None
    only: tuple[str, ...] = ()  # names or runtimes; empty: all
    random: bool = False  # random weights: no confidences; peers only by `only`

    @property
    def variants(self) -> tuple[str, ...]:
        forced = () if self.force_group is None else (f"{FORCED}{self.force_group}",)
        return ((PLAIN,) if self.random else VARIANTS) + forced


QUICK = BenchPlan(tokens=32, rounds=3, longest=512, seconds=90, build=False)


def programs(adapter: str, variants: tuple[str, ...], manifest: Manifest) -> dict[str, Program]:
    """Return our runtimes as programs with these variants."""
    packages = {"onnx": (("onnx",), "onnx"), "llamacpp": (("llama_cpp",), "llama-cpp-python")}
    there = {"onnx": bool(manifest.graphs), "llamacpp": manifest.gguf is not None}
    return {
        name: Program(
            adapter,
            *packages[name],
            variants=variants,
            options={"backend": name},
            needs_checkpoint=False,
            unusable=None if there[name] else f"the bundle has no files for it: export it with  {FORMATS}",
        )
        for name in RUNTIMES
    }


def all_programs(plan: BenchPlan, manifest: Manifest, peers: Mapping[str, Program]) -> dict[str, Program]:
    adapter = "hamburger_edge.benchmarks.speed.our_speed:Ours"
    return {**programs(adapter, useful(plan.variants, manifest), manifest), **peers}


def useful(variants: tuple[str, ...], manifest: Manifest) -> tuple[str, ...]:
    """Return the variants that differ: mode merge of a plain model decodes plainly."""
    merging = () if manifest.model.has_graft else ("merge",)
    return tuple(variant for variant in variants if not variant.startswith(merging))


def compared(variants: Sequence[str]) -> tuple[str, ...]:
    """Return the variants that the curve compares with plain decoding, for a program with these."""
    if forced := tuple(variant for variant in variants if variant.startswith(FORCED)):
        return forced
    if "merge-0.8" in variants:
        return VERIFY, "hybrid-0.95", "merge-0.8"
    return (VERIFY,) if VERIFY in variants else ()


def full(name: str, variant: str) -> str:
    return f"{name}@{variant}" if variant else name


def pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pair each of our variants with plain decoding on the same runtime and with each peer."""
    mine = [name for name in names if "@" in name]
    plain = [(name, full(name.split("@")[0], PLAIN)) for name in mine if not name.endswith(f"@{PLAIN}")]
    return plain + [(name, peer) for name in mine for peer in names if "@" not in peer]


def source_of(
    bundle: Path,
    manifest: Manifest,
    checkpoint: Path | None,
    threads: int,
    *,
    longest_prompt: int,
    tokens: int,
    flag: str,
    longest: int = 0,
    build: bool = True,
    forms: Path | None = None,
) -> Source:
    """Return the source. Its cache fits answers of `tokens` tokens, or of `longest` if the context allows."""
    slots = min(
        manifest.cache_slots or manifest.model.context_length,
        manifest.model.context_length,
        longest_prompt + max(tokens, longest) + 8,
    )
    if slots < longest_prompt + tokens:
        raise InputError(
            f"this model's context of {slots} is too short for prompts of {longest_prompt} tokens and "
            f"{tokens} new ones: give a smaller  {flag}"
        )
    return Source(
        bundle,
        checkpoint,
        manifest.precision.base,
        threads,
        slots,
        gguf_precision=None if manifest.gguf is None else manifest.gguf.precision.base,
        forms=forms,
        build=build,
    )


def prompts(tokenizer: Tokenizer, template: ChatTemplate) -> list[list[int]]:
    """Encode the prompts as token ids, so that every program reads the same ids."""
    return [tokenizer.encode_parts(template.first_turn(text)) for text in TEXTS]
