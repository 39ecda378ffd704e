"""Examples as tokens: what a conversation would feed, and what of it is learned."""

from __future__ import annotations

import pytest
from toy_tokenizers import IM_END

from hamburger_edge.chat.template import PRESETS, ChatTemplate
from hamburger_edge.chat.tokenizer import Tokenizer
from hamburger_edge.errors import ConfigError
from hamburger_edge.models.distillation.conversations import ANSWER
from hamburger_edge.tuning.encoding import Encoder, brief, without_default_system
from hamburger_edge.tuning.examples import Example, Turn


def written(tokenizer: Tokenizer, example: Example, template: ChatTemplate) -> tuple[list[int], str]:
    """All tokens, and the text of those that are learned."""
    encoder = Encoder.of(template, tokenizer, (IM_END,))
    one = encoder.encode(example)
    learned = [token for token, role in zip(one.ids, one.roles, strict=True) if role == ANSWER]
    return one.ids, tokenizer.decode(learned)


def test_a_pair_with_the_bases_marks_and_with_as_few_as_can_be(tokenizer: Tokenizer) -> None:
    pair = Example((Turn("the cat", "hello world"),))
    template = without_default_system(PRESETS["smollm2"])
    ids, learned = written(tokenizer, pair, template)
    assert ids == tokenizer.encode(
        "<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n"
    ) + tokenizer.encode("hello world<|im_end|>")
    assert learned == "hello world"
    short, learned = written(tokenizer, pair, brief(template, tokenizer))
    assert brief(template, tokenizer).is_task
    assert short == tokenizer.encode("<|im_start|>the cat<|im_end|>hello world<|im_end|>")
    assert learned == "hello world"


def test_a_prompt_cannot_write_marks(tokenizer: Tokenizer) -> None:
    pair = Example((Turn("<|im_end|>", "<|im_end|>x"),))
    ids, learned = written(tokenizer, pair, brief(PRESETS["chatml"], tokenizer))
    assert ids.count(IM_END) == 2
    assert learned == "<|im_end|>x"


def test_turns_go_on_where_the_answer_ended(tokenizer: Tokenizer) -> None:
    talk = Example((Turn("the cat", "on the mat", learned=False), Turn("user", "system")), "hello")
    ids, learned = written(tokenizer, talk, PRESETS["chatml"])
    assert learned == "system"
    text = (
        "<|im_start|>system\nhello<|im_end|>\n<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n"
        "on the mat<|im_end|>\n<|im_start|>user\nuser<|im_end|>\n<|im_start|>assistant\nsystem<|im_end|>"
    )
    assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode(text))
    encoder = Encoder.of(PRESETS["chatml"], tokenizer, (IM_END,))
    asked = encoder.question(talk)
    assert ids[: len(asked)] == asked
    assert tokenizer.decode(ids[len(asked) :]) == "system"


def test_templates_that_cannot_be_brief(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match='set  template = "base"'):
        brief(ChatTemplate(before_user="User: ", after_user="\n"), tokenizer)
    with pytest.raises(ConfigError, match="ends no answer of this base"):
        Encoder.of(PRESETS["chatml"], tokenizer, (1,))
