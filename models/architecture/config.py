"""Configuration of a HAMburger: everything that determines a checkpoint's shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hamburger_edge.errors import ConfigError
from hamburger_edge.support.strict import from_mapping


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.x frequency scaling: long wavelengths are slowed by `factor`, short ones kept."""

    factor: float  # new context length / original context length
    low_freq_factor: float  # wavelengths above original_context / low are fully scaled
    high_freq_factor: float  # wavelengths below original_context / high are untouched
    original_context: int  # positions before the extension


@dataclass(frozen=True)
class BaseConfig:
    """A decoder of the Llama family (Llama 2/3, SmolLM2, Mistral with full attention, Qwen2/2.5, Qwen3)."""

    family: str  # "llama", "mistral", "qwen2" or "qwen3": for display only; nothing computes with it
    vocab_size: int
    hidden_size: int  # d, the width of embeddings, features and slots
    intermediate_size: int  # width of the gated feed-forward
    num_layers: int
    num_heads: int
    num_kv_heads: int  # heads that share one key/value: num_heads / num_kv_heads query heads each
    head_dim: int  # may differ from hidden_size / num_heads (Qwen3)
    context_length: int  # positions the rotary tables cover
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    tied_head: bool = True  # lm_head is the token embedding
    qkv_bias: bool = False  # Qwen2
    qk_norm: bool = False  # Qwen3: RMSNorm over each query and key head before rotation

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads"):
            _require(getattr(self, name) > 0, f"base.{name} must be positive, got {getattr(self, name)}")
        _require(self.num_kv_heads > 0, f"base.num_kv_heads must be positive, got {self.num_kv_heads}")
        _require(
            self.num_heads % self.num_kv_heads == 0,
            f"base.num_kv_heads {self.num_kv_heads} does not divide num_heads {self.num_heads}",
        )
        _require(
            self.head_dim > 0 and self.head_dim % 2 == 0,
            f"base.head_dim must be even and positive, got {self.head_dim}",
        )
        _require(self.context_length > 0, f"base.context_length must be positive, got {self.context_length}")


@dataclass(frozen=True)
class HamburgerConfig:
    base: BaseConfig
    taps: tuple[int, ...]  # 0-based base layers whose outputs, with the final-normed state, are the features
    eos_ids: tuple[int, ...]  # tokens that end an answer
    max_group_tokens: int = 4  # most tokens a group holds
    micro_layers: int = 4  # decoder layers of the micro-step decoder
    merger_heads: int = 16  # attention heads of the compositional embedder; divides hidden_size
    micro_final_norm: bool = True  # RMSNorm between the last micro layer and the head
    position_rule: Literal["token", "slot"] = "token"  # a slot's position: its last token's, or its index
    # the residual of the embedder's attention: the group's mean (the paper), or its last token, whose
    # position the slot has
    merge_residual: Literal["mean", "last"] = "mean"
    draft_vocab_size: int = 0  # tokens the micro steps can choose from (0: the whole vocabulary)
    # the stop head judges a micro token "before" it is computed (the paper; saves the step), or "after", from
    # its scores too (one more micro step per group, far better decisions)
    stop_rule: Literal["before", "after"] = "before"
    stop_hidden: tuple[int, ...] = ()  # hidden widths of the stop head; empty means (d, d)

    def __post_init__(self) -> None:
        base = self.base
        _require(
            1 <= self.max_group_tokens <= 64, f"max_group_tokens must be 1..64, got {self.max_group_tokens}"
        )
        _require(self.micro_layers > 0, f"micro_layers must be positive, got {self.micro_layers}")
        _require(
            list(self.taps) == sorted(set(self.taps)) and all(0 <= t < base.num_layers for t in self.taps),
            f"taps must be increasing layer numbers in 0..{base.num_layers - 1}, got {list(self.taps)}",
        )
        _require(
            self.merger_heads > 0 and base.hidden_size % self.merger_heads == 0,
            f"merger_heads {self.merger_heads} does not divide hidden_size {base.hidden_size}",
        )
        _require(
            base.hidden_size % 2 == 0, f"hidden_size must be even for the merger, got {base.hidden_size}"
        )
        _require(
            self.position_rule in ("token", "slot"),
            f"position_rule must be 'token' or 'slot', got {self.position_rule!r}",
        )
        _require(
            self.merge_residual in ("mean", "last"),
            f"merge_residual must be 'mean' or 'last', got {self.merge_residual!r}",
        )
        _require(
            self.stop_rule in ("before", "after"),
            f"stop_rule must be 'before' or 'after', got {self.stop_rule!r}",
        )
        _require(
            0 <= self.draft_vocab_size <= base.vocab_size,
            f"draft_vocab_size must be 0..{base.vocab_size}, got {self.draft_vocab_size}",
        )
        object.__setattr__(self, "eos_ids", tuple(dict.fromkeys(self.eos_ids)))  # some models list one twice
        _require(
            all(0 <= e < base.vocab_size for e in self.eos_ids),
            f"eos_ids must be below vocab_size {base.vocab_size}, got {list(self.eos_ids)}",
        )

    @property
    def num_features(self) -> int:
        """F: one vector per tap, and the final-normed state."""
        return len(self.taps) + 1

    @property
    def stop_widths(self) -> tuple[int, ...]:
        """Widths through the stop head, input to output: (d, d, d, 1) by default."""
        d = self.base.hidden_size
        return (d, *(self.stop_hidden or (d, d)), 1)

    @property
    def micro_vocab(self) -> int:
        return self.draft_vocab_size or self.base.vocab_size

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HamburgerConfig:
        """Strict: an unknown, missing or wrongly typed key is an error that names it."""
        config: HamburgerConfig = from_mapping(cls, data, "hamburger config")
        return config


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
