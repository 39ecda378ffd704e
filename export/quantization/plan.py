"""Which weights are stored how: a precision plan applied to a model's layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from hamburger_edge.bundle.manifest import PRECISIONS, Precision, PrecisionPlan
from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.export.graphs.modules import Vocabulary, own_structure
from hamburger_edge.export.graphs.portable import PortableBlockForm
from hamburger_edge.export.quantization.block_quantizer import has_minima, quantize, quantize_with_means
from hamburger_edge.export.quantization.calibration import HEAD
from hamburger_edge.export.quantization.moments import Moments
from hamburger_edge.export.quantization.weight_forms import (
    BlockForm,
    FloatForm,
    Form,
    GridForm,
    HalfForm,
    TieredForm,
    pack_attention,
    pack_feed_forward,
    replace_linears,
)
from hamburger_edge.models.architecture.hamburger import Hamburger

BLOCK_SIZE = 64  # weights that share a scale
GRID_SIZE = 32  # of a base that comes from 4 bits with a minimum a block, llama.cpp's Q4_1
PREFERENCES = ("accuracy", "speed")
SMALLEST = 16  # a layer with fewer outputs stays in float32: the stop head's last

# at int4, measured on SmolLM2 (docs/benchmarks.md): values do most damage for their size, then the way out of
# the feed-forward; the stop head is small; the micro decoder's queries and keys are one product with values
GRAFT_INT8_LAYERS = ("micro.*.self_attn.[qkv]_proj", "stop_head.[02]")
INT8_LAYERS = ("base.*.self_attn.v_proj", *GRAFT_INT8_LAYERS)
NARROW_LAYERS = ("*.mlp.down_proj", HEAD)  # of the head, the rows of rare tokens
FAST_NARROW_LAYERS = ("*.self_attn.[qkv]_proj", "*.mlp.down_proj")  # at 64 they lose most for their size
WHOLE_LAYERS = ("*.self_attn.o_proj",)  # on a grid with minima, the ones that lose nothing without them


def make_plan(
    precision: str, *, block_size: int | None = None, keep_head: str | None = None, prefer: str = "accuracy"
) -> PrecisionPlan:
    """The defaults of each precision. `keep_head` overrides the form of the embeddings and heads; at int4,
    `prefer` "speed" has whole zero points in all of the base, whatever grid it has."""
    for name in (precision, keep_head or precision):
        if name not in PRECISIONS:
            raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {name!r}")
    if block_size is not None and (not 16 <= block_size <= 256 or block_size & (block_size - 1)):
        raise InputError(f"block_size must be 16, 32, 64, 128 or 256, got {block_size}")
    if prefer not in PREFERENCES:
        raise InputError(f"prefer must be one of {', '.join(PREFERENCES)}, got {prefer!r}")
    head = keep_head or ("int8" if precision == "int4" else precision)
    mixed, fast = precision == "int4", prefer == "speed"
    if fast and not mixed:
        raise InputError(f"prefer 'speed' is for precision int4, not {precision}")
    if fast and block_size is not None:
        raise InputError("prefer 'speed' has blocks of its own: leave block_size out")
    int8_layers, narrow_layers = (INT8_LAYERS, NARROW_LAYERS) if mixed else ((), ())
    if fast:  # those that are fed the same are alike, and become one product
        int8_layers, narrow_layers = GRAFT_INT8_LAYERS, FAST_NARROW_LAYERS
    elif block_size is not None:  # one that was asked for is everywhere the same
        narrow_layers = ()
    return PrecisionPlan(
        base=_precision(precision),
        head=_precision(head),
        graft=_precision(precision),
        block_size=(block_size or BLOCK_SIZE) if {precision, head} & {"int8", "int4"} else 0,
        int8_layers=int8_layers,
        narrow_layers=narrow_layers,
    )


def fit_plan(plan: PrecisionPlan, model: Hamburger, *, tiers: bool) -> PrecisionPlan:
    """What int4 makes of this very model. A base that comes from 4 bits with minima goes back to that grid,
    and loses little; with `tiers`, the head's rows of rare tokens have 4 bits, which saves a
    quarter to a third of a step's largest matrix."""
    if plan.base != "int4":
        return plan
    if plan.narrow_layers == NARROW_LAYERS:  # others: blocks that were asked for, or are for speed
        first = [m.weight for m in model.base.layers[0].modules() if isinstance(m, nn.Linear)]
        if all(has_minima(weight, GRID_SIZE) for weight in first):
            plan = dataclasses.replace(plan, grid=GRID_SIZE)
    frequent = 2 * model.config.shortlist_size
    if tiers and plan.head == "int8" and 0 < frequent < model.config.base.vocab_size:
        plan = dataclasses.replace(plan, frequent_rows=frequent)
    return plan


def _precision(name: str) -> Precision:
    return name  # type: ignore[return-value]


class Former:
    """Gives every weight of a model the form its plan says; `moments` are used up on the way."""

    def __init__(self, plan: PrecisionPlan, moments: dict[str, Moments], *, portable: bool):
        self.plan, self.moments, self.portable = plan, moments, portable

    def precision(self, path: str) -> str:
        plan = self.plan
        if plan.grid and path.startswith("base."):
            return plan.base
        precision = plan.base if path.startswith("base.") else plan.graft
        return "int8" if precision == "int4" and _among(path, plan.int8_layers) else precision

    def linear(self, path: str, weight: Tensor) -> Form:
        precision, grid = self.precision(path), self.plan.grid
        moments = self.moments.pop(path, None) if precision == "int4" else None
        if grid and path.startswith("base."):
            if _among(path, WHOLE_LAYERS):
                size = _fitting(self.plan.block_size, weight.shape[1], whole=False)
                return GridForm(quantize(weight, 4, size, moments=moments), means=False)
            return GridForm(quantize_with_means(weight, grid, moments=moments))
        narrow = path.startswith("base.") and _among(path, self.plan.narrow_layers)
        size = self.plan.block_size // (2 if narrow else 1)
        return self._form(weight, precision, size, table=False, moments=moments)

    def vocabulary(self, weight: Tensor) -> Form:
        """Embeddings are looked up in whole blocks."""
        precision = self.plan.head
        if precision in ("int8", "int4") and weight.shape[1] % 16:
            raise ConfigError(
                f"a width of {weight.shape[1]} has no whole blocks: export with --keep-head fp32"
            )
        return self._form(weight, precision, self.plan.block_size, table=True, moments=None)

    def head(self, weight: Tensor) -> Form:
        """Rows of frequent tokens come first. The others are near to what they were by themselves, too, since
        they may be embeddings as well; where they are not, that costs nothing."""
        plan, count = self.plan, self.plan.frequent_rows
        if not count:
            return self.vocabulary(weight)
        frequent, moments = self.vocabulary(weight[:count]), self.moments.pop(HEAD, None)
        if moments is not None:
            moments = Moments(moments.mean + moments.mean.diagonal().mean() * torch.eye(len(moments.mean)))
        size = plan.block_size // (2 if _among(HEAD, plan.narrow_layers) else 1)
        return TieredForm(frequent, self._form(weight[count:], plan.base, size, table=True, moments=moments))

    def _form(
        self, weight: Tensor, precision: str, size: int, *, table: bool, moments: Moments | None
    ) -> Form:
        if precision == "fp32" or weight.shape[0] < SMALLEST:
            return FloatForm(weight)
        if precision == "fp16":
            return HalfForm(weight)
        bits = 8 if precision == "int8" else 4
        size = _fitting(size, weight.shape[1], whole=table)
        blocks = quantize(weight, bits, size, moments=moments)
        return PortableBlockForm(blocks, table=table) if self.portable else BlockForm(blocks)


def _among(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _fitting(size: int, width: int, *, whole: bool) -> int:
    """A block no longer than a row, and with `whole` one that divides it."""
    while size > 16 and (size > width or (whole and width % size)):
        size //= 2
    return size


def needs_moments(model: Hamburger, plan: PrecisionPlan) -> list[str]:
    """Layers whose rounding is better for knowing their inputs."""
    linears = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    former = Former(plan, {}, portable=False)
    head = [HEAD] if plan.frequent_rows else []
    return head + [name for name in linears if former.precision(name) == "int4"]


@torch.no_grad()
def apply_plan(
    model: Hamburger,
    plan: PrecisionPlan,
    moments: dict[str, Moments],
    progress: Callable[[str], None] = lambda part: None,
    *,
    portable: bool = False,
) -> tuple[Hamburger, Vocabulary]:
    """A model around the same weights, whose linear layers and vocabulary have the plan's forms."""
    own, former = own_structure(model), Former(plan, moments, portable=portable)

    def linear(path: str, weight: Tensor) -> Form:
        progress(path)
        return former.linear(path, weight)

    progress("vocabulary")
    vocabulary = Vocabulary(model, former.vocabulary, former.head)
    own.base.lm_head = None  # the vocabulary has it
    replace_linears(own, linear)
    for layer in [*own.base.layers, *own.micro.layers]:
        pack_attention(layer.self_attn)
        pack_feed_forward(layer.mlp)
    return own, vocabulary
