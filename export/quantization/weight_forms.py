"""Forms of a weight matrix inside a graph.

A form holds one matrix [N, K] (N outputs or tokens, K inputs) and has three operations:

    linear(x)   [..., K] -> [..., N]    a linear layer, or a head
    rows(ids)   [...] -> [..., K]       a token embedding
    first(n)    the form of the first n rows: a draft vocabulary head inside a full one, sharing its bytes

`FloatForm` is traced as plain PyTorch. The others trace to one operator each that reads the stored bits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.onnx.ops import symbolic as _symbolic

from hamburger_edge.export.quantization.block_quantizer import Blocks, dequantize
from hamburger_edge.models.architecture.llama import FeedForward, SelfAttention

symbolic = torch._dynamo.dont_skip_tracing(_symbolic)  # so that it can stand inside a branch


class Form(nn.Module):
    """A weight matrix [N, K] in some representation."""

    shape: tuple[int, int]
    looks_up = True  # whether it has `rows`

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def rows(self, ids: Tensor) -> Tensor:
        raise NotImplementedError

    def dense(self) -> Tensor:
        """Return the stored weights as float32 [N, K]."""
        raise NotImplementedError

    def joins(self, other: Form) -> bool:
        """Whether the rows of both fit into one matrix."""
        return False

    def joined(self, others: Sequence[Form]) -> Form:
        """Return one matrix of these rows and the others'."""
        raise NotImplementedError

    def first(self, count: int) -> Form:
        """Return the form of the first rows: slices of the same memory, since every buffer runs along N."""
        part = copy.copy(self)
        part._buffers = {
            name: None if buffer is None else buffer[:count] for name, buffer in self._buffers.items()
        }
        part.shape = (count, self.shape[1])
        return part


class FloatForm(Form):
    def __init__(self, weight: Tensor):
        super().__init__()
        self.register_buffer("weight", weight.detach())
        self.shape = (weight.shape[0], weight.shape[1])

    weight: Tensor

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.linear(x, self.weight, bias)

    def rows(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)

    def dense(self) -> Tensor:
        return self.weight.float()


class HalfForm(FloatForm):
    """Stored as float16, computed in float32: ONNX Runtime folds the casts of linear layers while loading."""

    def __init__(self, weight: Tensor):
        super().__init__(weight.detach().half())

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.linear(x, to_float(self.weight), bias)

    def rows(self, ids: Tensor) -> Tensor:
        return to_float(F.embedding(ids, self.weight))


class BlockForm(Form):
    """4 or 8 bits a weight, and a scale and zero point for every `size` of them: ONNX Runtime's operators."""

    packed: Tensor  # uint8 [N, blocks, size * bits / 8]
    scales: Tensor  # float32 [N, blocks]
    zeros: Tensor  # uint8 [N, ceil(blocks * bits / 8)]

    def __init__(self, blocks: Blocks):
        super().__init__()
        self.bits, self.size, self.shape = blocks.bits, blocks.size, blocks.shape
        self.register_buffer("packed", blocks.packed)
        self.register_buffer("scales", blocks.scales)
        self.register_buffer("zeros", blocks.zeros)

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return self.product(x, self.scales, bias)

    def product(self, x: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
        N, K = self.shape
        attributes: dict[str, Any] = {
            "K": K,
            "N": N,
            "bits": self.bits,
            "block_size": self.size,
            "accuracy_level": 4,
        }
        inputs = [x, self.packed, scales, self.zeros]
        return symbolic(
            "com.microsoft::MatMulNBits",
            inputs if bias is None else [*inputs, None, bias],
            attributes,
            dtype=x.dtype,
            shape=(*x.shape[:-1], N),
            version=1,
        )

    def rows(self, ids: Tensor) -> Tensor:
        table = self.packed.flatten(1)  # the same bytes as the head's
        attributes: dict[str, Any] = {
            "bits": self.bits,
            "block_size": self.size,
            "gather_axis": 0,
            "quantize_axis": 1,
        }
        return symbolic(
            "com.microsoft::GatherBlockQuantized",
            [table, ids, self.scales, self.zeros],
            attributes,
            dtype=torch.float32,
            shape=(*ids.shape, self.shape[1]),
            version=1,
        )

    def dense(self) -> Tensor:
        return dequantize(self.blocks())

    def blocks(self) -> Blocks:
        return Blocks(self.bits, self.size, self.shape, self.packed, self.scales.float(), self.zeros)

    def joins(self, other: Form) -> bool:
        if not isinstance(other, BlockForm) or type(other) is not type(self):
            return False
        return (other.shape[1], other.bits, other.size) == (self.shape[1], self.bits, self.size)

    def joined(self, others: Sequence[Form]) -> Form:
        """Concatenate: every buffer runs along N."""
        whole = copy.copy(self)
        whole._buffers = {
            name: torch.cat([getattr(form, name) for form in (self, *others)]) for name in self._buffers
        }
        whole.shape = (self.shape[0] + sum(other.shape[0] for other in others), self.shape[1])
        return whole


class TieredForm(Form):
    """The first rows in one form, the others in another: frequent and rare tokens."""

    def __init__(self, frequent: Form, rare: Form):
        super().__init__()
        self.frequent, self.rare = frequent, rare
        self.shape = (frequent.shape[0] + rare.shape[0], frequent.shape[1])

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        scores = torch.cat([self.frequent.linear(x), self.rare.linear(x)], dim=-1)
        return scores if bias is None else scores + bias

    def rows(self, ids: Tensor) -> Tensor:
        count = self.frequent.shape[0]
        rows = self.frequent.rows(ids.clamp(max=count - 1))
        return torch.where((ids < count)[..., None], rows, self.rare.rows((ids - count).clamp(min=0)))

    def dense(self) -> Tensor:
        return torch.cat([self.frequent.dense(), self.rare.dense()])

    def first(self, count: int) -> Form:
        if count > self.frequent.shape[0]:
            raise ValueError(f"{count} rows are not in one form")
        return self.frequent.first(count)


def to_float(x: Tensor) -> Tensor:
    """Emit a separate Cast node: PyTorch's would be folded into a float32 copy of the weight."""
    return symbolic("Cast", [x], {"to": 1}, dtype=torch.float32, shape=x.shape)


class FormedLinear(nn.Module):
    """Replaces an `nn.Linear`."""

    bias: Tensor | None

    def __init__(self, form: Form, bias: Tensor | None):
        super().__init__()
        self.form = form
        self.register_buffer("bias", None if bias is None else bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        return self.form.linear(x, self.bias)


class PackedLinear(nn.Module):
    """Several layers with the same input, as one product whose output is split."""

    def __init__(self, form: Form, bias: Tensor | None, widths: list[int]):
        super().__init__()
        self.linear, self.widths = FormedLinear(form, bias), widths

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        parts: tuple[Tensor, ...] = self.linear(x).split(self.widths, dim=-1)
        return parts


def _packed(*layers: nn.Module) -> PackedLinear | None:
    """Return one product for layers with the same input if all have the same form."""
    formed = [layer for layer in layers if isinstance(layer, FormedLinear)]
    first, *others = [layer.form for layer in formed]
    if not others or not all(first.joins(other) for other in others):
        return None
    biases = [layer.bias for layer in formed if layer.bias is not None]
    bias = torch.cat(biases) if biases else None
    return PackedLinear(first.joined(others), bias, [layer.form.shape[0] for layer in formed])


def pack_attention(attention: SelfAttention) -> None:
    """Pack q_proj, k_proj and v_proj into one product if possible: saves 5 to 8% of a step."""
    attention.packed = _packed(attention.q_proj, attention.k_proj, attention.v_proj)
    if attention.packed is not None:
        del attention.q_proj, attention.k_proj, attention.v_proj


def pack_feed_forward(mlp: FeedForward) -> None:
    """Pack gate_proj and up_proj into one product if possible: saves 1 to 4% of a step."""
    mlp.packed = _packed(mlp.gate_proj, mlp.up_proj)
    if mlp.packed is not None:
        del mlp.gate_proj, mlp.up_proj


def replace_linears(module: nn.Module, form_of: Callable[[str, Tensor], Form], prefix: str = "") -> None:
    """Put a `FormedLinear` in the place of every linear layer below `module`, in place."""
    for name, child in module.named_children():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(child, nn.Linear):
            setattr(module, name, FormedLinear(form_of(path, child.weight), child.bias))
        else:
            replace_linears(child, form_of, path)
