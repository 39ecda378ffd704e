"""The prompts of the speed benchmark: everyday requests, short and long."""

from __future__ import annotations

from hamburger_edge.chat.template import ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer

TEXTS = (
    "Explain in simple words why the sky is blue during the day and red in the evening.",
    "Write a Python function that takes a list of numbers and returns the mean, the median and the most "
    "frequent value. Add a short docstring and an example of how it is called.",
    "Give me ten ideas for a rainy weekend with two children, as a numbered list with one sentence each.",
    "Summarise the following text in three sentences. The lighthouse on the northern cape was built in 1871 "
    "after two ships had been lost on the rocks within one winter. Its keepers lived there with their "
    "families, grew potatoes behind the wall, and rowed to the village twice a month if the sea let them. "
    "In 1962 the lamp was changed from oil to electricity, and in 1988 the last keeper left. Since then a "
    "computer in the harbour town watches over the light. The house stood empty until a group of volunteers "
    "repaired the roof; today guests can spend a night in the keeper's room, and the money pays for paint.",
    "A baker sells 14 loaves at 3.20 each and 25 rolls at 0.60 each. Work out step by step how much money "
    'that is, then give the result as JSON with the keys "loaves", "rolls" and "total".',
)


def prompts(tokenizer: Tokenizer, template: ChatTemplate) -> list[list[int]]:
    """Encode the prompts as token ids, so that every program reads the same ids."""
    return [tokenizer.encode_parts(template.first_turn(text)) for text in TEXTS]
