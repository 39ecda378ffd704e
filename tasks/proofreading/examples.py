"""Everything together: sentences are written until enough are clean, and mistakes are put into them.

OUT/settings.json        how the shards are made
OUT/shards/              what the base wrote, line by line; a killed run goes on after the last whole one
OUT/sentences.jsonl      the texts that were kept
OUT/train.jsonl          {"prompt": wrong, "answer": right}
OUT/dev.jsonl            the same and "mistakes", "seen" in training or not; on topics of its own
OUT/facts.json           what was kept and left out, and how often each kind of mistake was made
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import Tokenizer

from hamburger_edge.errors import ConfigError
from hamburger_edge.models.bases.loading import find_base
from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.support.files import write_atomically
from hamburger_edge.support.progress import Progress, no_progress
from hamburger_edge.support.strict import read_json
from hamburger_edge.tasks.proofreading.filters import Text, clean, words
from hamburger_edge.tasks.proofreading.misspellings import MISSPELLINGS
from hamburger_edge.tasks.proofreading.mistakes import NoiseModel, Noisy
from hamburger_edge.tasks.proofreading.sentences import (
    Line,
    SentenceWriter,
    read_shard,
    save_lines,
    shard_file,
)
from hamburger_edge.tasks.proofreading.text_kinds import KINDS
from hamburger_edge.tasks.proofreading.topics import TOPICS

NOISINGS = 2  # of a text, at most
HOPELESS = 2 * len(KINDS)  # shards without one clean text


@dataclass(frozen=True)
class ProofreadingSettings:
    sentences: int = 12_000  # clean texts to collect
    examples: int = 20_000  # for training, at most
    dev_seen: int = 600  # lines of the dev set with kinds of mistakes that training has
    dev_unseen: int = 300  # and with those that it has not
    base: str = "smollm2-135m"
    seed: int = 0
    rows: int = 96  # texts written side by side: a shard
    temperature: float = 0.75
    least: float = 0.06  # probability of a token beside the most probable one's, below which it is not chosen


def make_examples(settings: ProofreadingSettings, out: Path, report: Progress = no_progress) -> Path:
    """Fill `out`; the path of the training examples. Goes on where an earlier call of these settings was."""
    out.mkdir(parents=True, exist_ok=True)
    loaded, reference = find_base(settings.base)
    _check_settings(settings, reference, out / "settings.json")
    lines, texts, left_out = _collect(settings, loaded, out / "shards", report)
    model = NoiseModel(vocabulary(loaded, lines, texts), settings.seed)
    _write(out / "sentences.jsonl", (asdict(text) for text in texts))
    train = training_examples(model, texts, settings)
    dev = dev_examples(model, texts, settings)
    _write(out / "dev.jsonl", ({"prompt": line.noisy.text, "answer": line.right} for line in dev))
    _write(out / "dev_mistakes.jsonl", (line.notes() for line in dev))
    facts = {
        "lines written": len(lines),
        "texts kept": len(texts),
        "left out": dict(left_out.most_common()),
        "training examples": len(train),
        "training mistakes": _counted(noisy for noisy, _ in train),
        "dev examples": len(dev),
        "dev mistakes": _counted(line.noisy for line in dev),
    }
    with write_atomically(out / "facts.json") as temporary:
        temporary.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    _write(out / "train.jsonl", ({"prompt": noisy.text, "answer": right} for noisy, right in train))
    return out / "train.jsonl"


def training_examples(
    model: NoiseModel, texts: Sequence[Text], settings: ProofreadingSettings
) -> list[tuple[Noisy, str]]:
    """(with mistakes, right), shuffled; no pair twice."""
    made: dict[tuple[str, str], tuple[Noisy, str]] = {}
    own = [text.text for text in texts if not text.held_out]
    for noising, (number, text) in itertools.product(range(NOISINGS), enumerate(own)):
        if len(made) < settings.examples:
            noisy = model.apply(text, NOISINGS * number + noising)
            made.setdefault((noisy.text, text), (noisy, text))
    examples = list(made.values())
    Random(settings.seed).shuffle(examples)
    return examples


@dataclass(frozen=True)
class DevLine:
    noisy: Noisy
    right: str
    seen: bool  # training has the kinds of its mistakes

    def notes(self) -> dict[str, Any]:
        return {"seen": self.seen, "mistakes": [asdict(mistake) for mistake in self.noisy.mistakes]}


def dev_examples(model: NoiseModel, texts: Sequence[Text], settings: ProofreadingSettings) -> list[DevLine]:
    """Lines on topics that training does not have: first with kinds of mistakes that it has, then without."""
    own = [text.text for text in texts if text.held_out]
    Random(settings.seed).shuffle(own)
    seen = [
        DevLine(model.apply(text, -1 - number), text, True)
        for number, text in enumerate(own[: settings.dev_seen])
    ]
    others = (  # from the other end: few texts are used for both
        DevLine(model.apply_unseen(text, number), text, False) for number, text in enumerate(reversed(own))
    )
    unseen = itertools.islice((line for line in others if line.noisy.mistakes), settings.dev_unseen)
    return [*seen, *unseen]


def vocabulary(loaded: LoadedBase, lines: Sequence[Line], texts: Sequence[Text]) -> dict[str, int]:
    """Lower-case words and how often the kept texts use them; others that a mistake must not make have 0."""
    counted = Counter(word for text in texts for word in words(text.text))
    written = Counter(word for line in lines for word in words(line.text))
    whole = {word for word in _whole_words(loaded) if word.islower()}
    others = whole | {word for word, count in written.items() if count > 1} | MISSPELLINGS.keys() | {"a", "i"}
    return {**dict.fromkeys(others, 0), **counted}


def _whole_words(loaded: LoadedBase) -> set[str]:
    """Words that are one token of the base's: common ones."""
    tokenizer = Tokenizer.from_file(str(loaded.tokenizer))
    pieces = (tokenizer.decode([i]) for i in range(tokenizer.get_vocab_size()))
    return {piece[1:] for piece in pieces if re.fullmatch(r" [A-Za-z][a-z]+", piece)}


def _collect(
    settings: ProofreadingSettings, loaded: LoadedBase, folder: Path, report: Progress
) -> tuple[list[Line], list[Text], Counter[str]]:
    """Shards, made where they are missing, until they hold enough clean texts."""
    folder.mkdir(exist_ok=True)
    shown = words(" ".join([*TOPICS, *(text for kind in KINDS for _, text in kind.examples)]))
    known = frozenset({*shown, *map(str.lower, _whole_words(loaded))})
    writer: SentenceWriter | None = None
    lines: list[Line] = []
    for shard in itertools.count():
        path = shard_file(folder, shard)
        if not path.exists():
            if writer is None:
                writer = SentenceWriter(
                    loaded,
                    seed=settings.seed,
                    rows=settings.rows,
                    temperature=settings.temperature,
                    least=settings.least,
                )
            save_lines(path, writer.write(shard))
        lines += read_shard(path)
        texts, left_out = clean(lines, known)
        report("writing", min(len(texts), settings.sentences), settings.sentences, f"{shard + 1} shards")
        if len(texts) >= settings.sentences:
            return lines, texts[: settings.sentences], left_out
        if not texts and shard + 1 >= HOPELESS:
            raise ConfigError(f"{settings.base}: wrote nothing clean in {HOPELESS} shards: take another base")
    raise AssertionError("itertools.count() does not end")


def _check_settings(settings: ProofreadingSettings, reference: dict[str, Any], path: Path) -> None:
    """What shards depend on may not change between calls."""
    facts = {
        "base": reference.get("sha256"),
        "seed": settings.seed,
        "rows": settings.rows,
        "temperature": settings.temperature,
        "least": settings.least,
    }
    if path.exists():
        there = read_json(path)
        for key, value in facts.items():
            if there.get(key) != value:
                raise ConfigError(
                    f"{path}: was made with another {key}; give another folder or delete this one"
                )
        return
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(facts, indent=1), encoding="utf-8")


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with write_atomically(path) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _counted(lines: Iterable[Noisy]) -> dict[str, int]:
    return dict(Counter(mistake.kind for noisy in lines for mistake in noisy.mistakes).most_common())
