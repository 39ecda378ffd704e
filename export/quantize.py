"""Which weights are stored how: a precision plan applied to a model's layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn

from hamburger_edge.errors import ConfigError, InputError
from hamburger_edge.export.block_quantizer import has_minima, quantize, quantize_with_minimum, with_means
from hamburger_edge.export.graphs import Vocabulary, own_structure
from hamburger_edge.export.portable import PortableBlockForm
from hamburger_edge.export.weight_forms import (
    BlockForm,
    FloatForm,
    Form,
    GridForm,
    HalfForm,
    pack_attention,
    replace_linears,
)
from hamburger_edge.manifest import PRECISIONS, Precision, PrecisionPlan
from hamburger_edge.models.hamburger import Hamburger

BLOCK_SIZE = 64  # weights that share a scale
GRID_SIZE = 32  # of a base that comes from 4 bits with a minimum a block, llama.cpp's Q4_1
SMALLEST = 16  # a layer with fewer outputs stays in float32: the stop head's last

# at int4, measured on SmolLM2 (docs/benchmarks.md): values do most damage for their size, then the way out of
# the feed-forward; the stop head is small
INT8_LAYERS = ("self_attn.v_proj", "stop_head.0", "stop_head.2")
NARROW_LAYERS = ("mlp.down_proj",)


def make_plan(
    precision: str, *, block_size: int | None = None, keep_head: str | None = None
) -> PrecisionPlan:
    """The defaults of each precision. `keep_head` overrides the form of the embeddings and heads."""
    for name in (precision, keep_head or precision):
        if name not in PRECISIONS:
            raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {name!r}")
    if block_size is not None and (not 16 <= block_size <= 256 or block_size & (block_size - 1)):
        raise InputError(f"block_size must be 16, 32, 64, 128 or 256, got {block_size}")
    head = keep_head or ("int8" if precision == "int4" else precision)
    mixed = precision == "int4"
    return PrecisionPlan(
        base=_precision(precision),
        head=_precision(head),
        graft=_precision(precision),
        block_size=(block_size or BLOCK_SIZE) if {precision, head} & {"int8", "int4"} else 0,
        int8_layers=INT8_LAYERS if mixed else (),
        # a block size that was asked for is everywhere the same
        narrow_layers=NARROW_LAYERS if mixed and block_size is None else (),
    )


def keep_grid(plan: PrecisionPlan, model: Hamburger) -> PrecisionPlan:
    """A base that comes from 4 bits with minima goes back to that grid, and loses little."""
    if plan.base != "int4" or not plan.narrow_layers:  # none: a block size that was asked for
        return plan
    first = [m.weight for m in model.base.layers[0].modules() if isinstance(m, nn.Linear)]
    grid = GRID_SIZE if all(has_minima(weight, GRID_SIZE) for weight in first) else 0
    return dataclasses.replace(plan, grid=grid)


def _precision(name: str) -> Precision:
    return name  # type: ignore[return-value]


class Former:
    """Gives every weight of a model the form its plan says; `moments` are used up on the way."""

    def __init__(self, plan: PrecisionPlan, moments: dict[str, Tensor], *, portable: bool):
        self.plan, self.moments, self.portable = plan, moments, portable

    def precision(self, path: str) -> str:
        plan = self.plan
        if plan.grid and path.startswith("base."):
            return plan.base
        precision = plan.base if path.startswith("base.") else plan.graft
        return "int8" if precision == "int4" and path.endswith(plan.int8_layers) else precision

    def linear(self, path: str, weight: Tensor) -> Form:
        precision, grid = self.precision(path), self.plan.grid
        moments = self.moments.pop(path, None) if precision == "int4" else None
        if grid and path.startswith("base."):
            return GridForm(with_means(*quantize_with_minimum(weight, grid, moments=moments)))
        narrow = path.startswith("base.") and path.endswith(self.plan.narrow_layers)
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

    def _form(
        self, weight: Tensor, precision: str, size: int, *, table: bool, moments: Tensor | None
    ) -> Form:
        if precision == "fp32" or weight.shape[0] < SMALLEST:
            return FloatForm(weight)
        if precision == "fp16":
            return HalfForm(weight)
        bits = 8 if precision == "int8" else 4
        size = _fitting(size, weight.shape[1], whole=table)
        blocks = quantize(weight, bits, size, moments=moments)
        return PortableBlockForm(blocks, table=table) if self.portable else BlockForm(blocks)


def _fitting(size: int, width: int, *, whole: bool) -> int:
    """A block no longer than a row, and with `whole` one that divides it."""
    while size > 16 and (size > width or (whole and width % size)):
        size //= 2
    return size


def needs_moments(model: Hamburger, plan: PrecisionPlan) -> list[str]:
    """Layers whose rounding is better for knowing their inputs."""
    linears = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    former = Former(plan, {}, portable=False)
    return [name for name in linears if former.precision(name) == "int4"]


@torch.no_grad()
def apply_plan(
    model: Hamburger,
    plan: PrecisionPlan,
    moments: dict[str, Tensor],
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
    vocabulary = Vocabulary(model, former.vocabulary)
    own.base.lm_head = None  # the vocabulary has it
    replace_linears(own, linear)
    for layer in [*own.base.layers, *own.micro.layers]:
        pack_attention(layer.self_attn)
    return own, vocabulary
