"""A HAMburger in transformers behaves like its other models and generates the runtime's tokens."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.toys.toy_bundles import save_toy, toy_checkpoint

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[optimum]'")

from transformers import (
    GenerationConfig,
    LogitsProcessor,
    StoppingCriteria,
    TextIteratorStreamer,
    pipeline,
    set_seed,
)

import hamburger_edge
from hamburger_edge.errors import BusyError, InputError
from hamburger_edge.integrations.transformers import (
    HamburgerForCausalLM,
    HamburgerTokenizer,
)
from hamburger_edge.models.checkpoints.built_in import ZOO
from hamburger_edge.models.checkpoints.facts import write_into

TINY = ZOO / "tiny"
QUESTION = "What is 7 plus 8?"
CHAT = [{"role": "user", "content": QUESTION}]
SHORT = torch.tensor([[5, 6, 7]])
MERGED: dict[str, Any] = {"mode": "merge", "confidence": 0.8}


@pytest.fixture(scope="module")
def model() -> HamburgerForCausalLM:
    return HamburgerForCausalLM.from_pretrained(TINY)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return HamburgerTokenizer.from_pretrained(TINY)


@pytest.fixture(scope="module")
def prompt(tokenizer: Any) -> torch.Tensor:
    return tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_tensors="pt")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of random weights: it generates groups of each length and no end token."""
    folder = tmp_path_factory.mktemp("toy")
    return save_toy(folder / "checkpoint", toy_checkpoint(folder / "parts", draft_vocab_size=100))


@pytest.fixture(scope="module")
def toy_model(toy: Path) -> HamburgerForCausalLM:
    return HamburgerForCausalLM.from_pretrained(toy)


def answer_tokens(model: HamburgerForCausalLM, prompt: torch.Tensor, **options: Any) -> list[int]:
    [row] = model.generate(prompt, **options).tolist()
    assert row[: prompt.shape[1]] == prompt[0].tolist()
    return row[prompt.shape[1] :]


# -- forward -------------------------------------------------------------------------------------------


def test_forward_ignores_padding(model: HamburgerForCausalLM, prompt: torch.Tensor) -> None:
    with torch.no_grad():
        alone = model(prompt).logits
        padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), prompt], dim=1)
        mask = torch.tensor([[0] * 3 + [1] * prompt.shape[1]])
        batch = model(padded, attention_mask=mask).logits
    torch.testing.assert_close(batch[:, 3:], alone, atol=1e-4, rtol=1e-4)
    assert int(alone[0, -1].argmax()) == answer_tokens(model, prompt, confidence=1.0)[0]
    with pytest.raises(InputError, match="past_key_values"):
        model(prompt, past_key_values=())


def test_gradients_reach_the_base(toy: Path) -> None:
    model = HamburgerForCausalLM.from_pretrained(toy)
    ids = torch.tensor([[5, 6, 7, 8]])
    out = model(ids, labels=ids)
    out.loss.backward()
    torch.testing.assert_close(out.loss, torch.nn.functional.cross_entropy(out.logits[0, :-1], ids[0, 1:]))
    assert model.get_input_embeddings().weight.grad is not None


# -- generate ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"mode": "plain"}, MERGED, {"mode": "verify"}, {}])
def test_generate_equals_the_runtime(
    options: dict[str, Any], model: HamburgerForCausalLM, prompt: torch.Tensor
) -> None:
    output = model.generate(prompt, return_dict_in_generate=True, **options)
    with hamburger_edge.load(TINY) as runtime_model:
        expected = runtime_model.generate(QUESTION, **options)
    assert output.groups == [expected.groups]
    assert output.sequences[0, prompt.shape[1] :].tolist() == expected.tokens
    assert options != MERGED or max(map(len, expected.groups)) > 1


def test_batch_rows_equal_single_answers(
    model: HamburgerForCausalLM, tokenizer: Any, toy_model: HamburgerForCausalLM
) -> None:
    texts = ["What is 7 plus 8?", "Count from 3 to 9."]
    together = model.generate(
        **tokenizer(texts, return_tensors="pt", padding=True), return_dict_in_generate=True
    )
    for text, row, groups in zip(texts, together.sequences.tolist(), together.groups, strict=True):
        alone = model.generate(**tokenizer(text, return_tensors="pt"), return_dict_in_generate=True)
        assert [groups] == alone.groups
        assert str(alone.sequences[0].tolist())[1:-1] in str(row)
    padded = torch.tensor([[0, 0, *SHORT[0]]])  # one more prompt token would change the answer
    answer = toy_model.generate(padded, attention_mask=(padded > 0).long(), max_new_tokens=9)
    assert answer[0, 2:].tolist() == toy_model.generate(SHORT, max_new_tokens=9)[0].tolist()


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({"max_new_tokens": 9}, 9),
        ({"max_length": 9}, 6),
        ({"generation_config": GenerationConfig(max_length=8)}, 5),
    ],
)
def test_length_limits_set_the_number_of_tokens(
    settings: dict[str, Any], tokens: int, toy_model: HamburgerForCausalLM
) -> None:
    assert len(answer_tokens(toy_model, SHORT, eos_token_id=None, **settings)) == tokens
    with pytest.raises(InputError, match="max_length"):
        toy_model.generate(SHORT, max_length=3)


def test_answer_ends_at_each_stopping_rule(
    model: HamburgerForCausalLM, prompt: torch.Tensor, tokenizer: Any
) -> None:
    """An end token, a criterion after any token of a group, a time limit, a stop string."""
    whole = answer_tokens(model, prompt, **MERGED)

    class After(StoppingCriteria):
        def __call__(self, ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            with pytest.raises(BusyError):  # one answer at a time
                model.generate(prompt)
            return torch.tensor([ids.shape[1] >= prompt.shape[1] + 6])

    ended = answer_tokens(model, prompt, confidence=1.0, eos_token_id=whole[3])
    assert ended == whole[: whole.index(whole[3]) + 1]
    assert answer_tokens(model, prompt, **MERGED, stopping_criteria=[After()]) == whole[:6]
    assert answer_tokens(model, prompt, **MERGED, max_time=1e-9) == whole[:1]
    assert (
        tokenizer.decode(answer_tokens(model, prompt, stop_strings=["15"], tokenizer=tokenizer))
        == "7 plus 8 is 15"
    )
    with pytest.raises(InputError, match="tokenizer="):
        model.generate(prompt, stop_strings=["15"])


def test_streamer_receives_the_answer_in_another_thread(
    model: HamburgerForCausalLM, prompt: torch.Tensor, tokenizer: Any
) -> None:
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    thread = threading.Thread(target=model.generate, args=(prompt,), kwargs={"streamer": streamer})
    thread.start()
    pieces = list(streamer)
    thread.join()
    assert "".join(pieces) == tokenizer.decode(answer_tokens(model, prompt), skip_special_tokens=True)
    assert len([piece for piece in pieces if piece]) > 1
    with pytest.raises(InputError, match="streamer"):
        model.generate(torch.cat([prompt, prompt]), streamer=streamer)


@pytest.mark.parametrize("mode", ["merge", "hybrid", "verify"])
def test_logits_processors_constrain_every_token(mode: str, toy_model: HamburgerForCausalLM) -> None:
    lengths = []

    class OnlyEven(LogitsProcessor):
        def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            lengths.append(ids.shape[1])
            scores = scores.clone()
            scores[:, 1::2] = -torch.inf
            return scores

    options: dict[str, Any] = {"max_new_tokens": 24, "eos_token_id": None, "mode": mode, "confidence": 0.0}
    assert any(token % 2 for token in answer_tokens(toy_model, SHORT, **options))
    even_tokens = answer_tokens(toy_model, SHORT, logits_processor=[OnlyEven()], **options)
    assert not any(token % 2 for token in even_tokens)
    assert {3, 4} <= set(lengths)
    options["prefix_allowed_tokens_fn"] = lambda _, ids: [9, 10 + len(ids)]
    assert all(
        token in (9, 13 + index) for index, token in enumerate(answer_tokens(toy_model, SHORT, **options))
    )


def test_answer_of_a_correcting_model_edits_its_prompt(toy: Path, tmp_path: Path) -> None:
    """A regression: `generate` ignored the constraint of the checkpoint."""
    corrector = Path(shutil.copytree(toy, tmp_path / "corrector"))
    write_into(corrector, edits_prompt=True)
    prompt = torch.tensor([list(range(40, 52))])
    generated = answer_tokens(
        HamburgerForCausalLM.from_pretrained(corrector), prompt, max_new_tokens=6, mode="plain"
    )
    with hamburger_edge.load(corrector, backend="torch") as model:
        assert model.generate(prompt[0].tolist(), max_tokens=6, mode="plain").tokens == generated
    unconstrained = answer_tokens(
        HamburgerForCausalLM.from_pretrained(toy), prompt, max_new_tokens=6, mode="plain"
    )
    assert generated != unconstrained


@pytest.mark.parametrize("mode", ["merge", "hybrid", "verify"])
def test_base_chooses_where_no_draft_token_is_allowed(mode: str, toy_model: HamburgerForCausalLM) -> None:
    drafts = toy_model.hamburger.draft_vocab.tolist()
    outside = sorted(set(range(toy_model.config.vocab_size)) - set(drafts))[:2]
    options: dict[str, Any] = {"max_new_tokens": 6, "eos_token_id": None, "mode": mode, "confidence": 0.0}
    answer = answer_tokens(toy_model, SHORT, prefix_allowed_tokens_fn=lambda *_: outside, **options)
    assert set(answer) <= {*outside}


SETTINGS: list[dict[str, Any]] = [
    {"no_repeat_ngram_size": 2},
    {"repetition_penalty": 1.4},
    {"bad_words_ids": [[11], [12, 13]]},
    {"suppress_tokens": [20, 21, 22]},
    {"begin_suppress_tokens": [30, 31]},
    {"sequence_bias": [[[44], 5.0]]},
    {"forced_bos_token_id": 17},
    {"forced_eos_token_id": 2},
    {"min_new_tokens": 5},
    {"exponential_decay_length_penalty": (2, 1.5)},
    {"do_sample": True, "temperature": 0.7, "top_k": 9, "top_p": 0.9, "min_p": 0.05, "seed": 3},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: next(iter(settings)))
def test_verify_equals_plain_decoding_under_each_setting(
    settings: dict[str, Any], toy_model: HamburgerForCausalLM
) -> None:
    prompt = torch.tensor([[5, 6, 7, 5, 6]])
    plain = answer_tokens(toy_model, prompt, confidence=1.0, max_new_tokens=20, **settings)
    assert (
        answer_tokens(toy_model, prompt, confidence=0.0, mode="verify", max_new_tokens=20, **settings)
        == plain
    )
    config = GenerationConfig(confidence=1.0, max_new_tokens=20, **settings)
    assert answer_tokens(toy_model, prompt, generation_config=config) == plain


def test_sampling_follows_the_seed(toy_model: HamburgerForCausalLM) -> None:
    options: dict[str, Any] = {"do_sample": True, "max_new_tokens": 24, "temperature": 3.0, "top_k": 0}
    rows = []
    for _ in range(2):
        set_seed(4)
        rows.append(toy_model.generate(SHORT, num_return_sequences=3, **options).tolist())
    assert rows[0] == rows[1]
    assert len({tuple(row) for row in rows[0]}) == 3


def test_regex_constrains_the_answer(
    model: HamburgerForCausalLM, prompt: torch.Tensor, tokenizer: Any
) -> None:
    pytest.importorskip("llguidance", reason="llguidance is not installed: pip install '.[structured]'")
    answer = answer_tokens(model, prompt, regex=r"7 plus 8 is \d\d\.")
    assert tokenizer.decode(answer, skip_special_tokens=True) == "7 plus 8 is 15."
    [token] = {token for token in tokenizer("!").input_ids if tokenizer.decode(token) == "!"}
    with pytest.raises(InputError, match=f"the structure needs token {token} here, which is banned"):
        model.generate(prompt, regex="[a-c]{2}!", suppress_tokens=[token])


@pytest.mark.parametrize(
    "settings",
    [
        {"num_beams": 4},
        {"output_scores": True},
        {"cache_implementation": "static"},
        {"num_return_sequences": 2},
        {"assistant_model": "another"},
        {"speed": 3},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_unsupported_setting_is_refused_by_name(
    settings: dict[str, Any], model: HamburgerForCausalLM, prompt: torch.Tensor
) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        model.generate(prompt, **settings)


# -- pipelines -----------------------------------------------------------------------------------------


def test_pipeline_equals_generate(
    model: HamburgerForCausalLM, prompt: torch.Tensor, tokenizer: Any, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path / "saved")
    generator = pipeline("text-generation", model=str(tmp_path / "saved"))
    for options in ({"confidence": 0.8}, {"confidence": 1.0, "max_new_tokens": 5}):
        [output] = generator(CHAT, do_sample=False, **options)
        answer = tokenizer.decode(answer_tokens(model, prompt, **options), skip_special_tokens=True)
        assert output["generated_text"] == [*CHAT, {"role": "assistant", "content": answer}]
    [output] = generator("The capital of", do_sample=False, return_tensors=True)
    ids = tokenizer("The capital of", return_tensors="pt").input_ids
    assert output["generated_token_ids"] == model.generate(ids)[0].tolist()


def test_chat_template_equals_runtime_template(tokenizer: Any) -> None:
    with hamburger_edge.load(TINY) as runtime_model:
        encode, template = runtime_model.tokenizer.encode_parts, runtime_model.template
    for system in (None, "Be brief."):
        turns = [{"role": "system", "content": system}] if system else []
        messages = [
            *turns,
            *CHAT,
            {"role": "assistant", "content": "15."},
            {"role": "user", "content": "And 9?"},
        ]
        parts = [*template.first_turn(QUESTION, system), ("15.", False), *template.next_turn("And 9?")]
        assert tokenizer.apply_chat_template(messages, add_generation_prompt=True) == encode(parts)
