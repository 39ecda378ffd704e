"""Which weights are stored how: a precision plan applied to a model's layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hamburger_edge.errors import InputError
from hamburger_edge.export.block_quantizer import quantize
from hamburger_edge.export.graphs import Vocabulary, own_structure
from hamburger_edge.export.portable import PortableBlockForm
from hamburger_edge.export.weight_forms import BlockForm, FloatForm, Form, HalfForm, replace_linears
from hamburger_edge.manifest import PRECISIONS, Precision, PrecisionPlan
from hamburger_edge.models.hamburger import Hamburger

BLOCK_SIZE = 32
SMALLEST = 16  # a layer with fewer outputs stays in float32: the stop head's last


def make_plan(
    precision: str,
    *,
    block_size: int | None = None,
    keep_head: str | None = None,
    exceptions: tuple[str, ...] = (),
) -> PrecisionPlan:
    """The defaults of each precision. `keep_head` overrides the form of the embeddings and heads."""
    for name in (precision, keep_head or precision):
        if name not in PRECISIONS:
            raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {name!r}")
    head = keep_head or ("int8" if precision == "int4" else precision)
    quantized = {"int8", "int4"} & {precision, head}
    size = (block_size or BLOCK_SIZE) if quantized else 0
    if quantized and (size < 16 or size > 256 or size & (size - 1)):
        raise InputError(f"block_size must be 16, 32, 64, 128 or 256, got {size}")
    return PrecisionPlan(
        base=_precision(precision),
        head=_precision(head),
        graft=_precision(precision),
        block_size=size,
        exceptions=exceptions,
    )


def _precision(name: str) -> Precision:
    return name  # type: ignore[return-value]


def form_of(
    weight: Tensor, precision: str, block_size: int, *, portable: bool = False, table: bool = False
) -> Form:
    """`table`: also looked up by row."""
    if precision == "fp32" or weight.shape[0] < SMALLEST:
        return FloatForm(weight)
    if precision == "fp16":
        return HalfForm(weight)
    blocks = quantize(weight, 8 if precision == "int8" else 4, block_size)
    return PortableBlockForm(blocks, table=table) if portable else BlockForm(blocks)


@torch.no_grad()
def apply_plan(
    model: Hamburger,
    plan: PrecisionPlan,
    progress: Callable[[str], None] = lambda part: None,
    *,
    portable: bool = False,
) -> tuple[Hamburger, Vocabulary]:
    """A model around the same weights, whose linear layers and vocabulary have the plan's forms."""
    own = own_structure(model)

    def linear(path: str, weight: Tensor) -> Form:
        progress(path)
        precision = plan.base if path.startswith("base.") else plan.graft
        precision = "int8" if path in plan.exceptions else precision
        return form_of(weight, precision, plan.block_size, portable=portable)

    def vocabulary_form(weight: Tensor) -> Form:
        return form_of(weight, plan.head, plan.block_size, portable=portable, table=True)

    progress("vocabulary")
    vocabulary = Vocabulary(model, vocabulary_form)
    own.base.lm_head = None  # the vocabulary has it
    replace_linears(own, linear)
    return own, vocabulary
