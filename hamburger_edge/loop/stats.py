"""The cost of an answer: counts, memory and seconds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass
class Stats:
    """Statistics of one answer. Seconds inside the backend are separate; the rest is `host_s`."""

    prompt_tokens: int = 0
    reused_tokens: int = 0  # prompt tokens already in the cache
    tokens: int = 0
    first_tokens: int = 0  # up to the first group after the base has read the prompt, which is the
    # first of all unless a grammar forces tokens before that
    macro_steps: int = 0  # groups generated
    forced_tokens: int = 0  # tokens that a grammar forced
    reread_tokens: int = 0  # tokens read again, unmerged
    micro_steps: int = 0
    base_calls: int = 0  # forward passes of the base after the prompt
    slots: int = 0  # slots in use, prompt included
    kv_bytes: int = 0
    kv_bytes_uncompressed: int = 0
    prefill_s: float = 0.0  # in the backend
    macro_s: float = 0.0  # in the backend, after the prompt
    micro_s: float = 0.0  # in the backend
    ttft_s: float = 0.0  # from the start until `first_tokens` are generated
    decode_s: float = 0.0  # after `ttft_s`, without the caller's time

    def count(self, seconds: float, prompt: bool) -> None:
        """Record a forward pass of the base."""
        if prompt:
            self.prefill_s += seconds
        else:
            self.macro_s += seconds
            self.base_calls += 1

    @property
    def tokens_per_step(self) -> float:
        return self.tokens / max(1, self.macro_steps)

    @property
    def prefill_tps(self) -> float:
        return _rate(self.prompt_tokens - self.reused_tokens, self.prefill_s)

    @property
    def decode_tps(self) -> float:
        return _rate(self.tokens - self.first_tokens, self.decode_s)

    @property
    def host_s(self) -> float:
        """Seconds outside the backend."""
        return self.ttft_s + self.decode_s - self.prefill_s - self.macro_s - self.micro_s

    def to_json(self) -> dict[str, Any]:
        names = [*(field.name for field in fields(self)), "tokens_per_step", "prefill_tps", "decode_tps"]
        return {name: getattr(self, name) for name in names}


def _rate(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
