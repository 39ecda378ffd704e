"""How answers are shown: groups in colour, and what they cost in a line."""

from __future__ import annotations

from hamburger_edge.loop.stats import Stats

# Backgrounds for consecutive groups of two and more tokens; single tokens stay plain.
_SHADES = ("\x1b[48;5;24m", "\x1b[48;5;58m", "\x1b[48;5;53m", "\x1b[48;5;23m")
_PLAIN = "\x1b[0m"


def stats_line(stats: Stats) -> str:
    """An answer's statistics in one line."""
    saved = 1 - stats.kv_bytes / max(1, stats.kv_bytes_uncompressed)
    return (
        f"{stats.tokens} tokens in {stats.macro_steps} steps ({stats.tokens_per_step:.2f} a step), "
        f"{stats.decode_tps:.1f} tokens/s, first after {stats.ttft_s:.2f} s; "
        f"KV cache {stats.kv_bytes / 2**20:.2f} MiB, {100 * saved:.0f}% saved"
    )


class GroupPainter:
    """Shows which tokens came together: each group of two and more on a background of its own."""

    def __init__(self, colour: bool) -> None:
        self.colour, self.count = colour, 0

    def paint(self, text: str, size: int) -> str:
        """Text of one macro step that said `size` tokens; without colours, groups stand in brackets."""
        if size < 2 or not text:
            return text
        self.count += 1
        if not self.colour:
            return f"[{text}]"
        shade = _SHADES[self.count % len(_SHADES)]
        lines = text.split("\n")  # a background must not run to the end of the line
        return "\n".join(f"{shade}{line}{_PLAIN}" if line else "" for line in lines)
