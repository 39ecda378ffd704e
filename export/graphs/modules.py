"""The graphs: thin wrappers over the model's own modules, with attention swapped.

    embedder        tokens [N, n] -> embeddings [N, d]
    base            embeddings -> logits, p_stop, features of the chosen rows; one cache entry a slot
    micro_decoder   features or nothing, and a token -> the next token's logits, p_stop; not of a plain model

`graph_ios` (`signatures.py`) declares the order of inputs and outputs.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.onnx.ops import symbolic, symbolic_multi_out

from hamburger_edge.export.graphs.signatures import GraphIO
from hamburger_edge.export.quantization.weight_forms import Form
from hamburger_edge.models.architecture.config import BaseConfig
from hamburger_edge.models.architecture.hamburger import Hamburger
from hamburger_edge.models.architecture.llama import DecoderLayer, Rotary
from hamburger_edge.models.architecture.micro_step_decoder import MicroStepDecoder


def own_structure(model: Hamburger) -> Hamburger:
    """Copy the modules around the same tensors, so that layers can be replaced.

    Calibration listens to the original's modules; a copied hook would be traced.
    """
    tensors = [*model.parameters(), *model.buffers()]
    own = copy.deepcopy(model, memo={id(tensor): tensor for tensor in tensors})
    for module in own.modules():
        module._forward_hooks.clear()
    return own


def shortened(model: Hamburger, positions: int) -> Hamburger:
    """Return a model around the same tensors whose rotary tables hold this many positions."""
    shorter = own_structure(model)
    base = dataclasses.replace(model.config.base, context_length=positions)
    shorter.config = dataclasses.replace(model.config, base=base)
    for name, table in model.named_buffers():
        if name.startswith("base_"):
            setattr(shorter, name, table[:positions])
    return shorter


class Vocabulary(nn.Module):
    """Token embeddings and both heads, every row stored once.

    With a draft vocabulary, its rows come first in the head: the micro decoder's head is their beginning.
    `places` [vocab] are the indices of tokens' rows.
    """

    places: Tensor | None

    def __init__(
        self,
        model: Hamburger,
        form_of: Callable[[Tensor], Form],
        head_form_of: Callable[[Tensor, Tensor | None], Form],  # of rows in this order
    ):
        super().__init__()
        config, base = model.config, model.base
        self.scale, self.scored = config.base.embedding_scale, base.scored
        order, places = None, None
        if config.draft_vocab_size:
            chosen = torch.zeros(config.base.vocab_size, dtype=torch.bool)
            chosen[model.draft_vocab] = True
            order = torch.cat([model.draft_vocab, (~chosen).nonzero().squeeze(1)])
            places = order.argsort().int()  # half the bytes per step
        self.register_buffer("places", places)
        self.head: Form = head_form_of(base.head_weight.detach(), order)
        self.tied = base.lm_head is None and self.head.looks_up
        self.table: Form = self.head if self.tied else form_of(base.embed_tokens.weight.detach())
        self.short: Form = self.head.first(config.micro_vocab)

    def embed(self, tokens: Tensor) -> Tensor:
        if self.tied and self.places is not None:
            tokens = self.places[tokens]
        rows = self.table.rows(tokens)
        return rows if self.scale == 1 else rows * self.scale

    def draft_logits(self, hidden: Tensor) -> Tensor:
        """States of the micro decoder [R, d] -> [R, draft vocabulary]"""
        return self.short.linear(self.scored(hidden))

    def logits(self, hidden: Tensor) -> Tensor:
        scores = self.head.linear(self.scored(hidden))
        if self.places is None:
            return scores
        # on CPU a fifth of the time of Gather along that axis; PyTorch's own takes 64-bit indices only
        shape = symbolic("Shape", [scores], dtype=torch.int64, shape=(scores.dim(),))
        places = symbolic("Expand", [self.places, shape], dtype=torch.int32, shape=scores.shape)
        return symbolic(
            "GatherElements", [scores, places], {"axis": -1}, dtype=scores.dtype, shape=scores.shape
        )


_SINK = 11  # index of that operand of GroupQueryAttention; the scales of keys and of values are the next
_NO_SINK = -1e30  # its exponential is exactly 0


class FusedAttention:
    """GroupQueryAttention: appends to the cache in place and attends, in one operator.

    past and present are the same memory, [1, K, capacity, D]; `last_slot` [1] is the newest entry's index.
    The operator rotates too. It uses the given positions from the second call on; in an empty cache positions
    begin at 0 without gaps.

    An int8 cache holds rotated keys, and values, in units of `key_scale.N` and `value_scale.N` [K * D].
    ONNX Runtime on the CPU first unpacks blocks of such values, unless each head has a sink: a score beside
    those of the slots. So heads get one of no weight (docs/research/quantization.md).
    A float16 cache is attended to in 16 bits, the only type that CUDA's kernel supports. That kernel derives
    positions from the cache's length, so separate operators rotate first if positions have gaps.
    """

    def __init__(self, config: BaseConfig, inputs: Mapping[str, Tensor], rotary: Rotary, rows: int):
        self.config, self.inputs, self.rotary = config, inputs, rotary
        self.present: list[Tensor] = []

    @cached_property  # once in a graph, and not where nothing reads it
    def no_sink(self) -> Tensor:
        return torch.full((self.config.num_heads,), _NO_SINK)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        given, config = self.inputs, self.config
        past_key, past_value = given[f"past_key.{layer}"], given[f"past_value.{layer}"]
        operands: list[Any] = [query, key, value, past_key, past_value]
        operands += [given["last_slot"], given["total_slots"]]
        attributes: dict[str, Any] = {
            "num_heads": config.num_heads,
            "kv_num_heads": config.num_kv_heads,
            "scale": config.score_scale,
        }
        if (window := config.window_of(layer)) is not None:
            attributes["local_window_size"] = window
        tables = self.rotary.of(layer)
        half = past_key.dtype == torch.float16
        if tables is not None and half and "positions" in given:
            operands[0] = self._rotate(query, config.num_heads, tables)
            operands[1] = self._rotate(key, config.num_kv_heads, tables)
        elif tables is not None:
            operands += [*tables, given.get("positions")]
            attributes["do_rotary"] = 1
        if half:
            operands = [x.half() if x is not None and x.is_floating_point() else x for x in operands]
        if past_key.dtype == torch.int8:
            operands += [None] * (_SINK - len(operands))
            operands += [self.no_sink, given[f"key_scale.{layer}"], given[f"value_scale.{layer}"]]
            attributes |= {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
            attributes["kv_cache_bit_width"] = 8
        out, *present = symbolic_multi_out(
            "com.microsoft::GroupQueryAttention",
            operands,
            attributes,
            dtypes=[operands[0].dtype, past_key.dtype, past_value.dtype],
            shapes=[query.shape, past_key.shape, past_value.shape],
            version=1,
        )
        self.present += present
        return out.to(query.dtype)

    def _rotate(self, x: Tensor, heads: int, tables: tuple[Tensor, Tensor]) -> Tensor:
        return symbolic(
            "com.microsoft::RotaryEmbedding",
            [x, self.inputs["positions"], *tables],
            {"num_heads": heads},
            dtype=x.dtype,
            shape=x.shape,
            version=1,
        )


class Graph(nn.Module):
    """Takes the declared inputs in order, returns the declared outputs in order."""

    def __init__(
        self,
        model: Hamburger,
        vocabulary: Vocabulary,
        io: GraphIO,
        attention: Any,
        constants: Mapping[str, Tensor] | None = None,
    ):
        super().__init__()
        self.model, self.vocabulary, self.io, self.attention = model, vocabulary, io, attention
        self.constants = {name: name.replace(".", "_") for name in constants or {}}
        for name, tensor in (constants or {}).items():
            self.register_buffer(self.constants[name], tensor)

    def named(self, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
        """Map input names to tensors, with the constants that attention needs."""
        given = {spec.name: tensor for spec, tensor in zip(self.io.inputs, inputs, strict=True)}
        return given | {name: getattr(self, buffer) for name, buffer in self.constants.items()}


class EmbedderGraph(Graph):
    def forward(self, *inputs: Tensor) -> Tensor:
        """Embed groups. The merge is inside a branch, so a group of one token does not compute it."""
        (tokens,) = inputs
        members = self.vocabulary.embed(tokens)  # [N, n, d]
        if not self.model.config.has_graft:
            return _first_row(members)
        merge = self.model.embedder.merge
        embeddings: Tensor = torch.cond(tokens.shape[1] == 1, _first_row, merge, (members,))
        return embeddings


def _first_row(members: Tensor) -> Tensor:
    return members[:, 0].clone()


class BaseGraph(Graph):
    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        given, model = self.named(inputs), self.model
        config = model.config
        attend = self.attention(config.base, given, model.rotary("base"), given["embeddings"].shape[1])
        features = model.base(given["embeddings"], attend, config.taps, given["rows"])[0]  # [R, F, d]
        final = features[:, -1]
        return self.vocabulary.logits(final), model.stop_logits(final).sigmoid(), features, *attend.present


class MicroDecoderGraph(Graph):
    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        given, model = self.named(inputs), self.model
        embedding = self.vocabulary.embed(given["token"])  # [1, d]
        rows = torch.cat([given["features"], embedding])[None]  # [1, F + 1 or 1, d]
        attend = self.attention(model.micro_config, given, model.rotary("micro"), rows.shape[1])
        hidden = _newest(model.micro, rows, attend)  # [1, d]
        logits = self.vocabulary.draft_logits(hidden)[0]
        return logits, model.stop_logits(hidden, logits[None]).sigmoid(), *attend.present


def _newest(micro: MicroStepDecoder, rows: Tensor, attend: Any) -> Tensor:
    """Return `micro(rows)[:, -1]`; other rows [1, S - 1, d] are not needed after the last attention."""
    *layers, last = micro.layers
    assert isinstance(last, DecoderLayer)
    for layer in layers:
        rows = layer(rows, attend)
    row = rows[:, -1:]
    mixed = last.self_attn(last.input_layernorm(rows), attend)[:, -1:]
    row = last.after_attention(row, mixed)
    return (row if micro.norm is None else micro.norm(row))[:, 0]


GRAPHS: dict[str, type[Graph]] = {
    "base": BaseGraph,
    "embedder": EmbedderGraph,
    "micro_decoder": MicroDecoderGraph,
}
