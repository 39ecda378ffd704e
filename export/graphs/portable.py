"""The portable flavour: attention and stored weights in standard ONNX operators.

Every runtime and accelerator supports these. Only the number of rows of a call varies. The graph returns the
new cache entries only, and the host copies them into the cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ml_dtypes
import onnx_ir as ir
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.onnx.ops import symbolic as _symbolic

from hamburger_edge.export.quantization.block_quantizer import Blocks, dequantize, unpacked
from hamburger_edge.export.quantization.weight_forms import Form
from hamburger_edge.models.architecture.config import BaseConfig
from hamburger_edge.models.architecture.llama import Rotary, split_heads

OPSET = 21  # the first with weights in blocks
NIBBLES = "nibbles"  # buffers of this name hold one value of 0..15 a byte until they are saved

symbolic = torch._dynamo.dont_skip_tracing(_symbolic)  # so that it can stand inside a branch


class PortableAttention:
    """Attention over the cache's `used` entries [1, K, C, D] and the S rows of this call.

    Query heads that share a key head become its rows, so no copy of the cache is made:

        query [1, K, G*S, D] x [cache ; new keys] [1, K, C+S, D] -> softmax -> x values -> [1, S, H*D]
    """

    def __init__(self, config: BaseConfig, inputs: Mapping[str, Tensor], rotary: Rotary, rows: int):
        self.config, self.inputs = config, inputs
        self.present: list[Tensor] = []
        used = inputs["used"]
        order = torch.arange(rows)
        positions = inputs["positions"][0] if "positions" in inputs else used + order
        self.rotary = rotary[positions][None, None]  # [1, 1, S, D/2]
        capacity = inputs["past_key.0"].shape[2]
        entries = torch.arange(capacity)
        old = (entries < used).expand(rows, capacity)  # [S, C]
        new = order[None, :] <= order[:, None]  # [S, S]
        self.mask = self._hidden(old, new)
        if any(config.window_of(layer) for layer in range(config.num_layers)):
            first = order[:, None] - (config.window or 0)  # of a row, the last of this call's that is too far
            self.windowed = self._hidden(old & (entries > used + first), new & (order > first))

    def _hidden(self, old: Tensor, new: Tensor) -> Tensor:
        """[S, C] and [S, S] seen entries -> [G*S, C+S] added to scores"""
        shared = self.config.num_heads // self.config.num_kv_heads
        hidden = torch.where(torch.cat([old, new], dim=1), 0.0, torch.finfo(torch.float16).min)
        return hidden.repeat(shared, 1)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        config, given = self.config, self.inputs
        D, K = config.head_dim, config.num_kv_heads
        q = self.rotary.rotate(layer, split_heads(query, D))  # [1, H, S, D]
        k = self.rotary.rotate(layer, split_heads(key, D))  # [1, K, S, D]
        v = split_heads(value, D)
        self.present += [k, v]
        keys = torch.cat([given[f"past_key.{layer}"], k], dim=2)
        values = torch.cat([given[f"past_value.{layer}"], v], dim=2)
        q = q.reshape(1, K, -1, D) * config.score_scale
        mask = self.mask if config.window_of(layer) is None else self.windowed
        weights = (q @ keys.transpose(2, 3) + mask).softmax(-1)  # [1, K, G*S, C+S]
        out: Tensor = (weights @ values).reshape(1, config.num_heads, -1, D)
        return out.transpose(1, 2).flatten(2)


class PortableBlockForm(Form):
    """Blocks of 4 or 8 bits behind DequantizeLinear, which ONNX Runtime fuses with the product.

    A layer's weight is [K, N] in blocks along K; a vocabulary's is [N, K], for lookup and head.
    """

    values: Tensor  # uint8, [K, N] or [N, K]
    scales: Tensor  # float32, one for each block
    zeros: Tensor  # uint8, one for each block

    def __init__(self, blocks: Blocks, *, table: bool):
        super().__init__()
        self.blocks, self.table, self.shape, self.size = blocks, table, blocks.shape, blocks.size
        values, zeros = unpacked(blocks)
        scales = blocks.scales
        if not table:
            values, scales, zeros = (x.T.contiguous() for x in (values, scales, zeros))
        suffix = f"_{NIBBLES}" if blocks.bits == 4 else ""
        self.names = f"values{suffix}", "scales", f"zeros{suffix}"
        for name, tensor in zip(self.names, (values, scales, zeros), strict=True):
            self.register_buffer(name, tensor)

    def _dequantized(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Values, scales and zero points, or rows of them."""
        values, scales, zeros = tensors
        return symbolic(
            "DequantizeLinear",
            [values, scales, zeros],
            {"axis": axis, "block_size": self.size},
            dtype=torch.float32,
            shape=values.shape,
        )

    def _tensors(self) -> list[Tensor]:
        return [getattr(self, name) for name in self.names]

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.table:
            return F.linear(x, self._dequantized(self._tensors(), axis=1), bias)
        out = x @ self._dequantized(self._tensors(), axis=0)
        return out if bias is None else out + bias

    def rows(self, ids: Tensor) -> Tensor:
        """Dequantize only the rows that are looked up."""
        flat = ids.flatten()
        picked = self._dequantized([F.embedding(flat, tensor) for tensor in self._tensors()], axis=1)
        return picked.reshape(*ids.shape, self.shape[1])

    def dense(self) -> Tensor:
        return dequantize(self.blocks)


def pack_nibbles(model: ir.Model) -> None:
    """Give 4-bit weights their ONNX type; PyTorch has no such type."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.name and value.name.endswith(NIBBLES) and value.const_value is not None:
                array = value.const_value.numpy().astype(ml_dtypes.uint4)
                value.const_value = ir.tensor(array, name=value.name)
                value.dtype = ir.DataType.UINT4
