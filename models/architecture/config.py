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
    """A decoder of the Llama family: Llama 2/3, SmolLM2/3, Mistral, Qwen2/2.5, Qwen3, Gemma 3, Granite."""

    family: str  # the name in config.json or GGUF: for display and for reading weights again
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
    qk_norm: bool = False  # Qwen3, Gemma 3: RMSNorm over each query and key head before rotation
    output_norms: bool = False  # Gemma 3: RMSNorm of the outputs of attention and feed-forward
    activation: Literal["silu", "gelu_tanh"] = "silu"
    embedding_scale: float = 1.0  # multiplies embeddings (Gemma 3, Granite)
    residual_scale: float = 1.0  # multiplies the outputs of attention and feed-forward (Granite)
    attention_scale: float | None = None  # multiplies products of queries and keys; None: head_dim ** -0.5
    logits_scale: float = 1.0  # multiplies logits (Granite)
    window: int | None = None  # slots that `windowed_layers` attend to, a row's own included
    windowed_layers: tuple[int, ...] = ()
    window_rope_theta: float | None = None  # of `windowed_layers`; None: rope_theta
    unrotated_layers: tuple[int, ...] = ()  # layers without positions (SmolLM3)

    def __post_init__(self) -> None:
        sizes = "vocab_size", "hidden_size", "intermediate_size", "num_layers"
        for name in (*sizes, "num_heads", "num_kv_heads", "context_length"):
            _require(getattr(self, name) > 0, f"base.{name} must be positive, got {getattr(self, name)}")
        _require(
            self.num_heads % self.num_kv_heads == 0,
            f"base.num_kv_heads {self.num_kv_heads} does not divide num_heads {self.num_heads}",
        )
        _require(
            self.head_dim > 0 and self.head_dim % 2 == 0,
            f"base.head_dim must be even and positive, got {self.head_dim}",
        )
        _require(
            self.activation in ("silu", "gelu_tanh"),
            f"base.activation must be 'silu' or 'gelu_tanh', got {self.activation!r}",
        )
        for name in ("windowed_layers", "unrotated_layers"):
            layers = getattr(self, name)
            _require(
                list(layers) == sorted(set(layers)) and all(0 <= n < self.num_layers for n in layers),
                f"base.{name} must be increasing numbers in 0..{self.num_layers - 1}, got {list(layers)}",
            )
        _require(
            not self.windowed_layers or (self.window or 0) > 0,
            f"base.window must be positive for windowed layers, got {self.window}",
        )

    def window_of(self, layer: int) -> int | None:
        """Slots that a layer attends to; None: all."""
        shorter = self.window is not None and self.window < self.context_length
        return self.window if shorter and layer in self.windowed_layers else None

    @property
    def rope_thetas(self) -> tuple[float, ...]:
        """The different rope bases: the usual one, then that of windowed layers."""
        own = self.window_rope_theta if self.windowed_layers else None
        return (self.rope_theta,) if own in (None, self.rope_theta) else (self.rope_theta, float(own))

    def rotation_of(self, layer: int) -> int | None:
        """Index of a layer's rope base in `rope_thetas`; None: it rotates nothing."""
        if layer in self.unrotated_layers:
            return None
        return len(self.rope_thetas) - 1 if layer in self.windowed_layers else 0

    @property
    def score_scale(self) -> float:
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale


@dataclass(frozen=True)
class HamburgerConfig:
    base: BaseConfig
    taps: tuple[int, ...]  # 0-based base layers whose outputs, with the final-normed state, are the features
    eos_ids: tuple[int, ...]  # tokens that end an answer
    max_group_tokens: int = 4  # most tokens a group holds; 1: a plain model, without any graft
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
        if self.has_graft:
            _require(self.micro_layers > 0, f"micro_layers must be positive, got {self.micro_layers}")
        else:
            graft = self.micro_layers or self.draft_vocab_size or len(self.taps)
            _require(not graft, "max_group_tokens 1: set taps to [], micro_layers and draft_vocab_size to 0")
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
        for name, one, other in (
            ("position_rule", "token", "slot"),
            ("merge_residual", "mean", "last"),
            ("stop_rule", "before", "after"),
        ):
            value = getattr(self, name)
            _require(value in (one, other), f"{name} must be {one!r} or {other!r}, got {value!r}")
        _require(
            0 <= self.draft_vocab_size <= base.vocab_size,
            f"draft_vocab_size must be 0..{base.vocab_size}, got {self.draft_vocab_size}",
        )
        object.__setattr__(self, "eos_ids", tuple(dict.fromkeys(self.eos_ids)))  # some models list one twice
        _require(
            all(0 <= e < base.vocab_size for e in self.eos_ids),
            f"eos_ids must be below vocab_size {base.vocab_size}, got {list(self.eos_ids)}",
        )

    @classmethod
    def plain(cls, base: BaseConfig, eos_ids: tuple[int, ...]) -> HamburgerConfig:
        """The configuration of a model that is its base alone: a token is at its index in the cache."""
        return cls(
            base,
            taps=(),
            eos_ids=eos_ids,
            max_group_tokens=1,
            micro_layers=0,
            merger_heads=1,
            position_rule="slot",
        )

    @property
    def has_graft(self) -> bool:
        """Whether there are embedder, micro decoder and stop head: groups of one token need none."""
        return self.max_group_tokens > 1

    @property
    def num_features(self) -> int:
        """F: one vector per tap, and the final-normed state."""
        return len(self.taps) + 1

    @property
    def stop_widths(self) -> tuple[int, ...]:
        """Widths through the stop head, input to output: (d, d, d, 1) by default; () without a graft."""
        if not self.has_graft:
            return ()
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
