"""What an answer cost: counts, memory and seconds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass
class Stats:
    """Of one answer. Seconds inside the backend are apart, so the rest is this program's own cost."""

    prompt_tokens: int = 0
    reused_tokens: int = 0  # of the prompt, already in the cache
    tokens: int = 0
    first_tokens: int = 0  # up to the first group that the prompt's readout has a say in, which is the first
    # but for tokens that a grammar forces before the prompt is read
    macro_steps: int = 0  # groups
    forced_tokens: int = 0  # of these tokens: a grammar left no choice about them
    reread_tokens: int = 0  # read a second time, un-merged
    micro_steps: int = 0
    base_calls: int = 0  # forwards of the base after the prompt
    slots: int = 0  # in use, prompt included
    kv_bytes: int = 0
    kv_bytes_uncompressed: int = 0
    prefill_s: float = 0.0  # in the backend
    macro_s: float = 0.0  # in the backend, after the prompt
    micro_s: float = 0.0  # in the backend
    ttft_s: float = 0.0  # from the start until these were said
    decode_s: float = 0.0  # from then on, the caller's own time left out

    def count(self, seconds: float, prompt: bool) -> None:
        """A forward of the base."""
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
        """Everything outside the backend."""
        return self.ttft_s + self.decode_s - self.prefill_s - self.macro_s - self.micro_s

    def to_json(self) -> dict[str, Any]:
        names = [*(field.name for field in fields(self)), "tokens_per_step", "prefill_tps", "decode_tps"]
        return {name: getattr(self, name) for name in names}


def _rate(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
