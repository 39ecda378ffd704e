"""Display of answers: their groups, what cut them, and a line of statistics."""

from __future__ import annotations

from hamburger_edge.chat.stream import Stream
from hamburger_edge.loop.backend import ModelInfo
from hamburger_edge.loop.stats import Stats

# Backgrounds of consecutive groups of two or more tokens; single tokens have none.
_SHADES = ("\x1b[48;5;24m", "\x1b[48;5;58m", "\x1b[48;5;53m", "\x1b[48;5;23m")
_PLAIN = "\x1b[0m"
MARK = "|"  # between groups: no sign of JSON's syntax


def stats_line(stats: Stats) -> str:
    """Format the statistics of an answer as one line. The saved share is left out if nothing was merged."""
    saved = round(100 * (1 - stats.kv_bytes / max(1, stats.kv_bytes_uncompressed)))
    return (
        f"{stats.tokens} tokens in {stats.macro_steps} steps ({stats.tokens_per_step:.2f} a step), "
        f"{stats.decode_tps:.1f} tokens/s, first after {stats.ttft_s:.2f} s; "
        f"KV cache {stats.kv_bytes / 2**20:.2f} MiB" + (f", {saved}% saved" if saved else "")
    )


def cut_line(stream: Stream, info: ModelInfo) -> str | None:
    """Return what cut an answer and how to get a longer one; None if the answer ended by itself."""
    early = ", before its structure was complete" if stream.complete is False else ""
    if stream.finish_reason == "length":
        return f"the answer was cut after {stream.stats.tokens} tokens{early}: allow more with  --max-tokens"
    if stream.finish_reason != "context":
        return None
    if info.cache_slots < info.context_length:
        full, remedy = f"all {info.cache_slots} slots of the cache are full", "allow more with  --cache-slots"
    else:
        full, remedy = f"the model's context of {info.context_length} is full", "shorten the prompt"
    return f"the answer was cut{early}: {full}: {remedy}"


class GroupPainter:
    """Shows the groups of an answer: by backgrounds of its text, or without colours by a line behind it."""

    def __init__(self, colour: bool) -> None:
        self.colour, self.count = colour, 0
        self.texts: list[str] = []  # of the groups, for the line

    def paint(self, text: str, size: int) -> str:
        """Return the text of one macro step with `size` tokens, as it is unless there are colours."""
        if text:
            self.texts.append(text)
        if size < 2 or not text or not self.colour:
            return text
        self.count += 1
        shade = _SHADES[self.count % len(_SHADES)]
        lines = text.split("\n")  # a background across a line end would fill the rest of the line
        return "\n".join(f"{shade}{line}{_PLAIN}" if line else "" for line in lines)

    def line(self) -> str | None:
        """Return the texts of the groups since the last call; None with colours, which showed them."""
        texts, self.texts = self.texts, []
        return None if self.colour else f"groups: {MARK.join(texts)}"
