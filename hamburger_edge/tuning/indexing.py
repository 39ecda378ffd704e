"""Give a bundle or a checkpoint a draft index: of its task's examples, or of its own answers to prompts.

prompts --> its own answers --> examples --> draft index --> bundle or checkpoint
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hamburger_edge.bundle.files import put_draft_index
from hamburger_edge.bundle.manifest import FILE_NAME
from hamburger_edge.bundle.reading import load_manifest
from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.drafts.draft_index import DraftIndex
from hamburger_edge.errors import BundleError, InputError
from hamburger_edge.evaluation.checks import read_prompts
from hamburger_edge.loading import load
from hamburger_edge.models.checkpoints.facts import check_checkpoint, put_file
from hamburger_edge.models.training.data.split import JUDGING_SHARE, split_questions
from hamburger_edge.support.cache import lock_for
from hamburger_edge.support.files import DRAFT_INDEX, locked
from hamburger_edge.support.progress import Progress, no_progress
from hamburger_edge.tuning.data.encoding import Encoder
from hamburger_edge.tuning.data.examples import read_examples
from hamburger_edge.tuning.draft_index import LEAST_ANSWERS, build_draft_index


@dataclass(frozen=True)
class Indexed:
    """A folder that takes a draft index."""

    encoder: Encoder
    vocab_size: int
    put: Callable[[bytes], None]

    @classmethod
    def at(cls, folder: Path) -> Indexed:
        return _bundle(folder) if (folder / FILE_NAME).is_file() else _checkpoint(folder)


def _bundle(folder: Path) -> Indexed:
    manifest = load_manifest(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BundleError(f"{folder}: may not be written to: copy it, and name the copy")
    template = ChatTemplate.from_json(manifest.chat_template)
    tokenizer = Tokenizer(manifest.tokenizer_in(folder))
    encoder = Encoder.of(template, tokenizer, manifest.model.eos_ids)
    return Indexed(encoder, manifest.model.vocab_size, partial(put_draft_index, folder, manifest))


def _checkpoint(folder: Path) -> Indexed:
    check_checkpoint(folder)
    from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

    loaded = load_checkpoint(folder)
    config = loaded.model.config
    template, tokenizer = ChatTemplate.from_json(loaded.chat_template), Tokenizer(loaded.tokenizer)
    encoder = Encoder.of(template, tokenizer, config.eos_ids)
    return Indexed(encoder, config.base.vocab_size, partial(put_file, folder, DRAFT_INDEX))


def index_examples(
    folder: Path, examples: Path, least: int = LEAST_ANSWERS, *, own: bool = False
) -> DraftIndex:
    """Give a bundle or checkpoint an index of its examples.

    As in `tune`, a hash of each prompt chooses its use. Of its `own` answers none is held out.
    """
    indexed = Indexed.at(folder)
    pairs = [indexed.encoder.pair(example) for example in read_examples(examples).examples]
    split = split_questions((question for question, _ in pairs), JUDGING_SHARE)
    others = split.calibration + split.held_out if own else split.calibration
    learned, fitted = ([pairs[number] for number in part] for part in (split.train, others))
    data = build_draft_index(learned, fitted, indexed.vocab_size, indexed.encoder.tokenizer.words(), least)
    index = DraftIndex(data, indexed.vocab_size)
    if not len(index):
        raise InputError(
            f"{examples}: no text is shared by {least} different answers: give more, or a lower --least"
        )
    indexed.put(data)
    return index


def answer_prompts(
    folder: Path,
    prompts: Path,
    answers: Path,
    *,
    max_tokens: int = 256,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> None:
    """Write the model's greedy answers to these prompts as examples; continue where the file ends."""
    asked = [prompt.text for prompt in read_prompts(prompts)]
    with locked(lock_for(answers.absolute())):
        done, size = _answered(answers, asked)
        if done == len(asked):
            return
        with load(folder, threads=threads) as model, open(answers, "ab") as file:
            file.truncate(size)
            for number, prompt in enumerate(asked[done:], done):
                progress("answering", number, len(asked))
                answer = model.generate(prompt, mode="verify", max_tokens=max_tokens).text
                line = json.dumps({"prompt": prompt, "answer": answer}, ensure_ascii=False)
                file.write(f"{line}\n".encode())
                file.flush()


def _answered(answers: Path, asked: list[str]) -> tuple[int, int]:
    """Return how many prompts have answers, and the bytes of these; a line without an end was cut off."""
    try:
        data = answers.read_bytes() if answers.exists() else b""
    except OSError as error:
        raise InputError(f"{answers}: cannot be read ({error.strerror}): name another file") from error
    *lines, rest = data.split(b"\n")
    for number, line in enumerate(lines):
        try:
            prompt = json.loads(line)["prompt"]
        except (ValueError, KeyError, TypeError, RecursionError):
            prompt = None
        if number >= len(asked) or prompt != asked[number]:
            raise InputError(
                f"{answers}, line {number + 1}: does not answer prompt {number + 1}: name another file"
            )
    return len(lines), len(data) - len(rest)
