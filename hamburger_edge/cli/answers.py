"""Display of answers: coloured groups, and a line of statistics."""

from __future__ import annotations

from hamburger_edge.loop.stats import Stats

# Backgrounds of consecutive groups of two or more tokens; single tokens have none.
_SHADES = ("\x1b[48;5;24m", "\x1b[48;5;58m", "\x1b[48;5;53m", "\x1b[48;5;23m")
_PLAIN = "\x1b[0m"


def stats_line(stats: Stats) -> str:
    """Format the statistics of an answer as one line."""
    saved = 1 - stats.kv_bytes / max(1, stats.kv_bytes_uncompressed)
    return (
        f"{stats.tokens} tokens in {stats.macro_steps} steps ({stats.tokens_per_step:.2f} a step), "
        f"{stats.decode_tps:.1f} tokens/s, first after {stats.ttft_s:.2f} s; "
        f"KV cache {stats.kv_bytes / 2**20:.2f} MiB, {100 * saved:.0f}% saved"
    )


class GroupPainter:
    """Marks the groups of an answer: each group of two or more tokens has another background."""

    def __init__(self, colour: bool) -> None:
        self.colour, self.count = colour, 0

    def paint(self, text: str, size: int) -> str:
        """Mark the text of one macro step with `size` tokens; without colours, in brackets."""
        if size < 2 or not text:
            return text
        self.count += 1
        if not self.colour:
            return f"[{text}]"
        shade = _SHADES[self.count % len(_SHADES)]
        lines = text.split("\n")  # a background across a line end would fill the rest of the line
        return "\n".join(f"{shade}{line}{_PLAIN}" if line else "" for line in lines)
