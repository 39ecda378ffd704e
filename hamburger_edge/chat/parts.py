"""What a loaded model is made of: an application holds a `Model`, the conversations in it share these."""

from __future__ import annotations

from dataclasses import dataclass

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import TextStream, Tokenizer
from hamburger_edge.errors import ContextFullError
from hamburger_edge.loop.edits import Edits
from hamburger_edge.loop.engine import Engine
from hamburger_edge.loop.grammar import Grammars
from hamburger_edge.loop.sampling import Sampler
from hamburger_edge.loop.settings import Settings
from hamburger_edge.loop.turns import Turns


@dataclass(frozen=True)
class Parts:
    engine: Engine
    tokenizer: Tokenizer
    template: ChatTemplate
    turns: Turns
    grammars: Grammars

    def check_length(self, *texts: str) -> None:
        """Refuse by its length what cannot fit: reading megabytes as tokens takes seconds and a gigabyte."""
        info = self.engine.info
        room = min(info.cache_slots, info.context_length)
        length = sum(map(len, texts))
        if length > room and length > room * self.tokenizer.longest:
            raise ContextFullError(
                f"the prompt has {length} characters, which are more than {room} tokens however it is cut: "
                "shorten it"
            )

    def sampler(self, settings: Settings) -> Sampler:
        info = self.engine.info
        asked = settings.decoding.probabilities
        structure = settings.structure
        grammar = None if structure is None else self.grammars.start(structure, info.draft_vocab)
        edits = None
        if info.edits_prompt and structure is None:
            edits = Edits(self.tokenizer.token_bytes, info.eos_ids)
        return Sampler(
            settings.sampling,
            info.vocab_size,
            info.draft_vocab,
            probabilities=asked,
            grammar=grammar,
            edits=edits,
        )

    def text_stream(self, settings: Settings) -> TextStream:
        structured = settings.structure is not None
        return TextStream(self.tokenizer, settings.stop, self.engine.info.eos_ids, whole=structured)
