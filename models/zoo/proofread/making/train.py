"""Train proofread on a GPU, by the clock: first the base (LoRA and embedder), then the graft on it.

    python -m hamburger_edge.models.zoo.proofread.making.train base  BASE GATHERED DEV OUT --minutes 8
    python -m hamburger_edge.models.zoo.proofread.making.train graft BASE GATHERED DEV OUT --minutes 4

BASE is a folder with the base's model.gguf and tokenizer.json, GATHERED a file of gather.py, DEV a folder of
sets.py. Examples are made while training, and none is read twice. Learning rates follow the clock, so that a
run ends in time on any device. A run that was cut continues from its last save in `--work`.

OUT/base_delta.safetensors, OUT/embedder.safetensors   the best base so far, by the dev sets
OUT/curve-base.jsonl, OUT/curve-graft.jsonl            what was measured on the way
OUT/checkpoint/                                        all of it, once the graft has been trained
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.architecture.llama import without_cudnn_attention
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.bases.weights import LoadedBase
from hamburger_edge.models.checkpoints.calibration_text import (
    CALIBRATION,
    CalibrationExample,
    write_calibration,
)
from hamburger_edge.models.checkpoints.checkpoint import save_checkpoint
from hamburger_edge.models.checkpoints.delta import add_delta
from hamburger_edge.models.checkpoints.facts import write_into
from hamburger_edge.models.checkpoints.manifest import DELTA
from hamburger_edge.models.checkpoints.rows import load_rows, save_rows
from hamburger_edge.models.training.data.batches import Cuts, DistilledData, TrainingBatch
from hamburger_edge.models.training.data.scoring import score
from hamburger_edge.models.training.grafting import graft, prepare
from hamburger_edge.models.training.objective import LossWeights, Objective
from hamburger_edge.models.training.optimizers import make_optimizers, schedule, set_rate
from hamburger_edge.models.training.reading import Reader
from hamburger_edge.models.training.training_recipe import Recipe, Shape, Stage
from hamburger_edge.models.training.updates.averaging import WeightMean
from hamburger_edge.models.training.updates.lora import FoldedLora, add_lora, lora_pairs
from hamburger_edge.models.zoo.proofread.making.batching import Portions, Stream
from hamburger_edge.models.zoo.proofread.making.examples import Maker
from hamburger_edge.models.zoo.proofread.making.gathered import Gathered
from hamburger_edge.models.zoo.proofread.making.judged import DevSets
from hamburger_edge.models.zoo.proofread.making.tokens import Encoded, encode
from hamburger_edge.support.files import sha256

TUNING = Stage(
    name="tuning",
    learns=("base", "embedder"),
    epochs=1.0,  # by the clock instead
    learning_rate=1e-3,
    base_learning_rate=1.2e-3,
    lora_rank=48,
    average=0.15,
    cuts=Cuts(entropy=0.0, random=0.4),
    loss=LossWeights(micro=0.0, hard=1.0),
)
GRAFT = Stage(
    name="graft",
    learns=("micro", "stop_head"),
    epochs=1.0,
    learning_rate=1.5e-3,
    average=0.2,
    cuts=Cuts(entropy=0.5, random=0.3, low=(0.005, 0.02, 0.05), ratio=(0.1, 0.2, 0.3)),
    loss=LossWeights(first=0.0),
)
READS = Shape(taps=(), max_group_tokens=8, micro_layers=1, merge_residual="mean", initialise="random")
WRITES = Shape(
    taps=(7, 15, 22), max_group_tokens=8, micro_layers=2, draft_vocab_size=8192, merge_residual="mean"
)
MARKS = {"before_user": "<|im_start|>", "after_user": "<|im_end|>", "after_answer": "<|im_end|>"}
FINAL_RATE = 0.05  # share of its peak that a learning rate ends with
STEPS = 10_000  # of a schedule, whatever the clock makes of them
PORTION = 4000  # examples that a process makes together
CALIBRATED = (
    10_000_000  # number of the first example for calibration.jsonl; the graft has those from 2 ** 40 on
)


Judge = Callable[["Run", int, int, float], None]  # run, step, tokens, share of the time


class Run:
    """One stage: what learns, on what, for how long."""

    def __init__(
        self, name: str, model: Hamburger, stage: Stage, recipe: Recipe, options: argparse.Namespace
    ):
        self.name, self.model, self.stage, self.options = name, model, stage, options
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.curve = options.out / f"curve-{name}.jsonl"
        self.saved = options.work / f"{name}.pt"
        groups = prepare(model, replace(stage, lora_rank=0), bf16=False)
        if "base" in stage.learns:
            model.base.requires_grad_(False)
            groups[0]["params"] = add_lora(model.base.layers, stage.lora_rank, FoldedLora)
        else:
            model.base.layers.to(torch.bfloat16)
        model.to(self.device)
        self.learning: list[Tensor] = [parameter for group in groups for parameter in group["params"]]
        self.objective = Objective(model, stage.loss).to(self.device)
        self.optimizers = make_optimizers(model, groups, recipe)
        self.mean = WeightMean(self.learning, begins=0)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def fit(self, batches: Iterator[TrainingBatch], judge: Judge) -> None:
        step, tokens, begun = self._load()
        seconds: float = 60 * self.options.minutes
        shown = saved = time.monotonic()
        start = time.monotonic() - begun * seconds

        def passed() -> float:
            """The share of the time."""
            return min(1.0, (time.monotonic() - start) / seconds)

        total = torch.zeros(2, device=self.device)
        while (share := passed()) < 1 and (not self.options.steps or step < self.options.steps):
            set_rate(self.optimizers, schedule(int(share * STEPS), STEPS, self.stage.warmup, FINAL_RATE))
            batch = next(batches).to(self.device)
            with self.autocast():
                results = self.objective(batch)
            results["loss"].backward()
            norm = nn.utils.clip_grad_norm_(self.learning, 1.0)
            if torch.isfinite(norm):
                for optimizer in self.optimizers:
                    optimizer.step()
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=True)
            total += torch.stack([results["loss"].detach().float(), torch.ones((), device=self.device)])
            step, tokens = step + 1, tokens + int(batch.groups.sizes.sum())
            if share > 1 - self.stage.average:
                self.mean.add(step)
            now = time.monotonic()
            if now - shown > 15:
                self.log(step, tokens, share, loss=(total[0] / total[1]).item())
                total.zero_()
                shown = now
            if now - saved > 60:
                self._save(step, tokens, share)
                judge(self, step, tokens, share)
                saved = now
        judge(self, step, tokens, passed())
        if self.mean.count:
            self.mean.exchange()
            judge(self, step, tokens, passed())

    def log(self, step: int, tokens: int, share: float, **found: object) -> None:
        line = json.dumps({"step": step, "tokens": tokens, "share": round(share, 3), **found})
        print(self.name, line, flush=True)
        with open(self.curve, "a") as file:
            file.write(line + "\n")

    def _save(self, step: int, tokens: int, share: float) -> None:
        state = {
            "learned": [parameter.detach().cpu() for parameter in self.learning],
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "reached": (step, tokens, share),
        }
        torch.save(state, partial := self.saved.with_suffix(".partial"))
        os.replace(partial, self.saved)

    def _load(self) -> tuple[int, int, float]:
        if not self.saved.exists():
            return 0, 0, 0.0
        state = torch.load(self.saved, map_location=self.device)
        with torch.no_grad():
            for parameter, saved in zip(self.learning, state["learned"], strict=True):
                parameter.copy_(saved)
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        print(f"{self.name}: goes on from {state['reached']}", flush=True)
        step, tokens, share = state["reached"]
        return step, tokens, share


def tune_base(base: LoadedBase, options: argparse.Namespace) -> None:
    shape = {
        "rows": options.rows,
        "row_slots": options.row_slots,
        "max_group_tokens": READS.max_group_tokens,
        "draft_vocab": None,
    }
    stream = Stream(
        _made(options), options.processes, cuts=TUNING.cuts, vocab_size=base.config.vocab_size, **shape
    )
    dev = DevSets(options.dev)
    model = graft(base.config, base.state, base.eos_ids, READS, None, seed=0)
    recipe = _recipe(READS, replace(TUNING, lora_rank=options.rank), "adamw", options)
    run = Run("base", model, recipe.stages[0], recipe, options)
    best = 0.0

    def judge(run: Run, step: int, tokens: int, share: float) -> None:
        nonlocal best
        found = dev.judge(run.model, run.device, run.autocast)
        run.log(step, tokens, share, **found)
        if found["worth"] > best:
            best = found["worth"]
            save_rows(options.out / DELTA, lora_pairs(run.model.base), "int8")
            save_rows(options.out / "embedder.safetensors", run.model.embedder.state_dict(), "fp16")

    run.fit(iter(stream), judge)
    stream.end()


def train_graft(base: LoadedBase, options: argparse.Namespace) -> None:
    tuned = options.tuned or options.out
    delta = load_rows(tuned / DELTA)
    add_delta(base.state, delta, tuned / DELTA)
    data = _examples(options, -1, options.scored).data()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    reader = graft(base.config, base.state, base.eos_ids, READS, None, seed=0).eval().to(device)
    began = time.monotonic()
    scores = score(
        reader,
        data,
        rows=options.rows,
        row_slots=options.row_slots,
        autocast=torch.autocast(device.type, dtype=torch.bfloat16),
    )
    data = replace(
        data,
        entropies=scores["entropies"],
        top_ids=scores["top_ids"],
        top_log_probabilities=scores["top_log_probabilities"],
    )
    print(f"scored {len(data)} examples in {time.monotonic() - began:.0f} s", flush=True)
    split = data.split(0.05)
    model = graft(
        base.config,
        base.state,
        base.eos_ids,
        WRITES,
        data.frequent_tokens(WRITES.draft_vocab_size, split.train),
        seed=0,
    )
    model.embedder.load_state_dict(load_rows(tuned / "embedder.safetensors"))
    recipe = _recipe(WRITES, GRAFT, "muon", options)
    reading = Reader(recipe, model, data, device)
    stream = Stream(
        lambda process, number: (data, split.train[process :: options.processes]),
        options.processes,
        cuts=GRAFT.cuts,
        rows=options.rows,
        row_slots=options.row_slots,
        max_group_tokens=WRITES.max_group_tokens,
        draft_vocab=model.draft_vocab.numpy(),
        vocab_size=base.config.vocab_size,
    )
    run = Run("graft", model, GRAFT, recipe, options)

    def judge(run: Run, step: int, tokens: int, share: float) -> None:
        objective = Objective(run.model, LossWeights()).to(run.device)
        run.log(step, tokens, share, **reading.means(objective, split.held_out, GRAFT.cuts))

    run.fit(iter(stream), judge)
    stream.end()
    model.eval()
    calibration = reading.calibrate(split)
    print(f"calibrated: {calibration}", flush=True)
    _write(model.float().cpu(), delta, data, options)


def _made(options: argparse.Namespace) -> Portions:
    """Examples that no other process and no other portion has."""

    def portions(process: int, number: int) -> tuple[DistilledData, list[int]]:
        data = _examples(options, process + options.processes * number, PORTION).data()
        return data, list(range(len(data)))

    return portions


def _examples(options: argparse.Namespace, portion: int, count: int) -> Encoded:
    """Portion -1 comes behind all others."""
    first = portion * count if portion >= 0 else 1 << 40
    made = (options.maker.example(number) for number in range(first, first + count))
    return encode(((noisy.text, right) for noisy, right in made), options.tokenizer)


def _write(
    model: Hamburger, delta: dict[str, Tensor], data: DistilledData, options: argparse.Namespace
) -> None:
    neighbour = Path(__file__).parents[2] / "smollm2-135m" / "hamburger.json"  # it names the same base
    folder = options.out / "checkpoint"
    save_checkpoint(
        folder,
        model,
        base=json.loads(neighbour.read_text())["base"],
        tokenizer=None,
        chat_template=MARKS,
        provenance={
            "made_by": "models/zoo/proofread/making",
            "data_sha256": sha256(options.gathered),
            "graft": {"minutes": options.minutes, "examples": len(data)},
        },
        license={"graft": "Apache-2.0", "base": "apache-2.0"},
        base_delta=delta,
        rows="int8",
    )
    write_into(folder, edits_prompt=True)
    examples = (options.maker.example(number) for number in range(CALIBRATED, CALIBRATED + 600))
    texts = [CalibrationExample(noisy.text, text) for noisy, text in examples]
    write_calibration(folder / CALIBRATION, texts)


def _recipe(shape: Shape, stage: Stage, optimizer: str, options: argparse.Namespace) -> Recipe:
    return Recipe(
        base="smollm2-135m",
        data="examples",
        out=str(options.out),
        shape=shape,
        stages=(stage,),
        rows=options.rows,
        row_slots=options.row_slots,
        optimizer="muon" if optimizer == "muon" else "adamw",
        weight_decay=0.0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("stage", choices=("base", "graft"))
    parser.add_argument("base", type=Path, metavar="BASE")
    parser.add_argument("gathered", type=Path, metavar="GATHERED")
    parser.add_argument("dev", type=Path, metavar="DEV")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--work", type=Path, help="folder for what a cut run goes on from (OUT)")
    parser.add_argument("--tuned", type=Path, help="folder of the base stage's files (OUT)")
    parser.add_argument("--rank", type=int, default=TUNING.lora_rank)
    parser.add_argument("--rows", type=int, default=96, help="of a batch")
    parser.add_argument("--row-slots", type=int, default=256)
    parser.add_argument("--scored", type=int, default=40_000, help="examples that the graft learns from")
    parser.add_argument("--processes", type=int, default=10, help="that lay out batches")
    parser.add_argument("--steps", type=int, default=0, help="at most so many, for trying it out")
    options = parser.parse_args()
    options.work = options.work or options.out
    for folder in (options.out, options.work):
        folder.mkdir(parents=True, exist_ok=True)
    without_cudnn_attention()
    torch.set_float32_matmul_precision("high")
    base = load_base(options.base)
    options.maker = Maker(Gathered.load(options.gathered))
    options.tokenizer = Tokenizer.from_file(str(options.base / "tokenizer.json"))
    (tune_base if options.stage == "base" else train_graft)(base, options)


if __name__ == "__main__":
    main()
