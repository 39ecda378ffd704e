"""A precision plan: how each weight is stored, and its application to a model's layers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from hamburger_edge.bundle.manifest import Precision, PrecisionPlan
from hamburger_edge.errors import ConfigError
from hamburger_edge.export.graphs.modules import Vocabulary, own_structure
from hamburger_edge.export.graphs.portable import PortableBlockForm
from hamburger_edge.export.options import FAST
from hamburger_edge.export.quantization.activation_ranges import ActivationRanges
from hamburger_edge.export.quantization.block_quantizer import quantize
from hamburger_edge.export.quantization.column_forms import ColumnForm, InputScale, TableForm, TiedForm
from hamburger_edge.export.quantization.covariances import Covariances, stage_paths
from hamburger_edge.export.quantization.folds import Folds
from hamburger_edge.export.quantization.input_covariance import InputCovariance
from hamburger_edge.export.quantization.input_ranges import HEAD
from hamburger_edge.export.quantization.int8_columns import WeightOrigin
from hamburger_edge.export.quantization.own_grid import grid_form, grid_of
from hamburger_edge.export.quantization.weight_forms import (
    BlockForm,
    FloatForm,
    Form,
    HalfForm,
    TieredForm,
    pack_attention,
    pack_feed_forward,
    replace_linears,
)
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.support.progress import Progress, no_progress

UNMEASURED = ActivationRanges()
BLOCK_SIZE = 64  # weights that share a scale
TABLE, HEAD_WEIGHT = "base.embed_tokens.weight", "base.lm_head.weight"
SMALLEST = 16  # outputs; a layer with fewer stays in float32, as the last one of the stop head

# At int4, v_proj does most damage for its size, then down_proj (docs/research/quantization.md). The stop head
# is small. Queries and keys of the micro decoder are one product with its values.
GRAFT_INT8_LAYERS = ("micro.*.self_attn.[qkv]_proj", "stop_head.[02]")
INT8_LAYERS = ("base.*.self_attn.v_proj", *GRAFT_INT8_LAYERS)
NARROW_LAYERS = ("*.mlp.down_proj", HEAD)  # of the head, the rows of rare tokens
FAST_NARROW_LAYERS = ("*.self_attn.[qkv]_proj", "*.mlp.down_proj")  # at 64 they lose most for their size


def make_plan(precision: str, *, packed: bool = True) -> PrecisionPlan:
    """Return the defaults of a precision, before a model is known; `ExportOptions` has checked the
    options."""
    weights = "int4" if precision == FAST else precision
    head = "int8" if weights == "int4" else weights
    int8_layers: tuple[str, ...] = ()
    narrow_layers: tuple[str, ...] = ()
    if precision == FAST:  # layers with the same input are alike, and become one product
        int8_layers, narrow_layers = GRAFT_INT8_LAYERS, FAST_NARROW_LAYERS
    elif precision == "int4":
        int8_layers, narrow_layers = INT8_LAYERS, NARROW_LAYERS
    in_blocks = weights == "int4" or (weights == "int8" and not packed)
    return PrecisionPlan(
        base=cast(Precision, weights),
        head=cast(Precision, head),
        graft=cast(Precision, weights),
        block_size=BLOCK_SIZE if in_blocks else 0,
        int8_layers=int8_layers,
        narrow_layers=narrow_layers,
    )


def fit_plan(plan: PrecisionPlan, model: Hamburger) -> PrecisionPlan:
    """Adapt an int4 plan to this model.

    A base that comes from 4 bits with minima returns to that grid and loses little. The head's rows of rare
    tokens have 4 bits, which saves a quarter to a third of a step's largest matrix. Where the vocabulary is
    larger than all layers (Gemma 3 270M), blocks of half the size in these rows cost an eighth of the speed,
    so they have whole ones.
    """
    if plan.base != "int4":
        return plan
    if plan.narrow_layers == NARROW_LAYERS:  # of int4-fast others are narrow
        layers = sum(parameter.numel() for parameter in model.base.layers.parameters())
        large = model.base.head_weight.numel() > layers
        narrow = tuple(name for name in NARROW_LAYERS if not (large and name == HEAD))
        plan = dataclasses.replace(plan, grid=grid_of(model.base.layers[0]), narrow_layers=narrow)
    frequent = 2 * model.config.draft_vocab_size
    if 0 < frequent < model.config.base.vocab_size:
        plan = dataclasses.replace(plan, frequent_rows=frequent)
    return plan


class Former:
    """Gives every weight of a model the form of its plan."""

    def __init__(
        self,
        plan: PrecisionPlan,
        ranges: ActivationRanges = UNMEASURED,
        *,
        packed: bool,
        tied: bool = True,  # whether the head is the embeddings
        draft_vocab: int = 0,  # tokens whose rows the head has first
    ):
        self.plan, self.ranges, self.packed = plan, ranges, packed
        self.tied, self.draft_vocab = tied, draft_vocab

    @property
    def in_columns(self) -> bool:
        """Whether 8-bit weights have one scale an output, and no blocks."""
        return self.packed and self.plan.base != "int4"

    def precision(self, path: str) -> str:
        plan = self.plan
        if plan.grid and path.startswith("base."):
            return plan.base
        precision = plan.base if path.startswith("base.") else plan.graft
        return "int8" if precision == "int4" and _among(path, plan.int8_layers) else precision

    def linear(self, path: str, weight: Tensor, covariance: InputCovariance | None = None) -> Form:
        """Store a layer's weight; the `covariance` of its inputs improves 4-bit rounding."""
        weight = weight.detach().float()  # a layer may hold 16 bits
        weight = torch.from_numpy(self.ranges.folds.apply(f"{path}.weight", weight.numpy()))
        precision, grid = self.precision(path), self.plan.grid
        if grid and path.startswith("base."):
            size = _fitting(self.plan.block_size, weight.shape[1], whole=False)
            return grid_form(path, weight, grid, size, covariance)
        if precision == "int8" and self.in_columns and len(weight) >= SMALLEST:
            return ColumnForm.of(weight, WeightOrigin(f"{path}.weight"), self._input_scale(path))
        narrow = path.startswith("base.") and _among(path, self.plan.narrow_layers)
        size = self.plan.block_size // (2 if narrow else 1)
        return self._form(weight, precision, size, table=False, covariance=covariance)

    def _input_scale(self, path: str) -> InputScale:
        """Rows of the base must not depend on the rows beside them; other graphs get the same rows always."""
        if path.startswith(("embedder.", "micro.")):
            return "call"
        return self.ranges.inputs.get(path, "row")

    def check_vocabulary(self, width: int) -> None:
        """Refuse a width without whole blocks: embeddings are looked up in whole blocks."""
        if self.plan.head in ("int8", "int4") and not self.in_columns and width % 16:
            raise ConfigError(
                f"a width of {width} has no whole blocks of 16 weights: export with --precision fp16"
            )

    def vocabulary(self, weight: Tensor, rows: Tensor | None = None) -> Form:
        if self.plan.head == "int8" and self.in_columns:
            return TableForm(weight, WeightOrigin(TABLE))
        self.check_vocabulary(weight.shape[1])
        return self._form(
            weight, self.plan.head, self.plan.block_size, table=True, covariance=None, rows=rows
        )

    def head(self, weight: Tensor, rows: Tensor | None, covariance: InputCovariance | None = None) -> Form:
        """Store the head; rows of frequent tokens come first.

        Rounding keeps the other rows close to their original too, since they may also be embeddings.
        """
        plan, count = self.plan, self.plan.frequent_rows
        if plan.head == "int8" and self.in_columns:
            return self._head_in_columns(weight, rows)
        if not count or rows is None:
            return self.vocabulary(weight, rows)
        frequent = self.vocabulary(weight, rows[:count])
        if covariance is not None:
            covariance = InputCovariance(
                covariance.mean + covariance.mean.diagonal().mean() * torch.eye(len(covariance.mean))
            )
        size = plan.block_size // (2 if _among(HEAD, plan.narrow_layers) else 1)
        rare = self._form(weight, plan.base, size, table=True, covariance=covariance, rows=rows[count:])
        return TieredForm(frequent, rare)

    def _head_in_columns(self, weight: Tensor, rows: Tensor | None) -> Form:
        """The draft vocabulary in tiles of its own, for the micro decoder's head."""
        name, count = (TABLE if self.tied else HEAD_WEIGHT), self.draft_vocab
        scale = self._input_scale(HEAD)
        if rows is None:
            head = ColumnForm.of(weight, WeightOrigin(name), scale)
        else:
            draft_vocab = ColumnForm.of(weight[rows[:count]], WeightOrigin(name, "draft_vocab"), scale)
            others = ColumnForm.of(weight[rows[count:]], WeightOrigin(name, "others"), scale)
            head = draft_vocab.followed_by(others)
        return TiedForm(head) if self.tied else head

    def _form(
        self,
        weight: Tensor,
        precision: str,
        size: int,
        *,
        table: bool,
        covariance: InputCovariance | None,
        rows: Tensor | None = None,
    ) -> Form:
        small = weight.shape[0] < SMALLEST
        if small or precision in ("fp32", "fp16"):
            chosen = weight if rows is None else weight[rows]
            return FloatForm(chosen) if small or precision == "fp32" else HalfForm(chosen)
        bits = 8 if precision == "int8" else 4
        size = _fitting(size, weight.shape[1], whole=table)
        blocks = quantize(weight, bits, size, rows=rows, covariance=covariance)  # needs no copy of all rows
        return BlockForm(blocks) if self.packed else PortableBlockForm(blocks, table=table)


def _among(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _fitting(size: int, width: int, *, whole: bool) -> int:
    """Return a block size no larger than a row; with `whole`, one that divides it."""
    while size > 16 and (size > width or (whole and width % size)):
        size //= 2
    return size


def needs_covariance(model: Hamburger, plan: PrecisionPlan) -> list[str]:
    """Name the layers whose rounding improves with calibration."""
    linears = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    former = Former(plan, packed=True)
    head = [HEAD] if plan.frequent_rows else []
    return head + [name for name in linears if former.precision(name) == "int4"]


@torch.no_grad()
def apply_plan(
    model: Hamburger,
    plan: PrecisionPlan,
    covariances: Iterable[Covariances] = (),
    ranges: ActivationRanges = UNMEASURED,
    progress: Progress = no_progress,
    *,
    packed: bool = True,
) -> tuple[Hamburger, Vocabulary]:
    """Return a model around the same weights whose linear layers and vocabulary have the plan's forms.

    `covariances`: of the stages of `stage_paths`, in that order.
    """
    config = model.config
    former = Former(
        plan, ranges, packed=packed, tied=config.base.tied_head, draft_vocab=config.draft_vocab_size
    )
    former.check_vocabulary(config.base.hidden_size)  # before the long part
    own = own_structure(model)
    _fold_norms(own, ranges.folds)
    count = 1 + sum(isinstance(module, nn.Linear) for module in model.modules())
    done = itertools.count()
    own.base.lm_head = None  # the vocabulary has it

    for stage, measured in itertools.zip_longest([*stage_paths(model), "stop_head"], covariances):
        of_inputs: Covariances = measured or {}

        def linear(path: str, weight: Tensor, of_inputs: Covariances = of_inputs) -> Form:
            progress("quantizing", next(done), count)
            return former.linear(path, weight, of_inputs.pop(path, None))

        if stage == HEAD:
            progress("quantizing", next(done), count)
            head = partial(former.head, covariance=of_inputs.pop(HEAD, None))
            vocabulary = Vocabulary(model, former.vocabulary, head)
        else:
            replace_linears(own.get_submodule(stage), linear, stage)
    for layer in [*own.base.layers, *own.micro.layers]:
        pack_attention(layer.self_attn)
        pack_feed_forward(layer.mlp)
    return own, vocabulary


def _fold_norms(own: Hamburger, folds: Folds) -> None:
    """Divide the norms' weights by the scales that their readers' weights take over."""
    for norm in folds.exponents:
        parameter = own.get_parameter(f"{norm}.weight")
        if parameter.ndim == 1:  # a product gets its form, and with it the scales, later
            folded = folds.apply(norm, parameter.detach().float().numpy())
            own.get_submodule(norm).weight = nn.Parameter(torch.from_numpy(folded), requires_grad=False)
