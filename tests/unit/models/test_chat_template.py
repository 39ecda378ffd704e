"""Chat templates of well-known models, rendered as transformers renders them, beside the markup that is read
from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.places import ROOT
from helpers.toys.gguf_files import small_base, write_gguf
from helpers.toys.toy_checkpoints import save, write_hf
from helpers.toys.toy_models import toy_model
from jinja2.sandbox import ImmutableSandboxedEnvironment
from safetensors.torch import save_file

from hamburger_edge.chat.jinja import jinja_of
from hamburger_edge.chat.template import KINDS, MARKUP_FILE, ChatTemplate
from hamburger_edge.errors import CheckpointError
from hamburger_edge.models.bases.chat_template import JinjaTemplate
from hamburger_edge.models.bases.loading import load_base
from hamburger_edge.models.checkpoints.checkpoint import load_checkpoint

TEMPLATES = {
    file.stem: file.read_text(encoding="utf-8")
    for file in (ROOT / "tests" / "data" / "chat_templates").glob("*.jinja")
}
BOS = {name: "<|begin_of_text|>" if name.startswith("llama-3") else "<s>" for name in TEMPLATES}
BOS["gemma-3"] = "<bos>"
KNOWN = sorted(TEMPLATES.keys() - {"phi-4", "smollm3"})
WITHOUT_SYSTEM = {"mistral-7b-v0.1"}  # refuses a system text
MOVES_SYSTEM = {"mistral-7b-v0.3", "mistral-nemo"}  # into the newest user turn, from any position
# The template's text around an answer: blanks that the model generates.
SAID = {"llama-2": " {} ", "mistral-7b-v0.2": " {}", "mistral-7b-v0.3": " {}"}
TURNS = ["What is 7 plus 8?", "7 plus 8 is 15.", "And\n\n  twice that?", "{{ 30 }} <b>'\"", "Thanks.", "Bye!"]


def rendered(text: str, name: str, messages: list[dict[str, str]], prompt: bool = True) -> str:
    text = text.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(strftime_now=lambda _: "16 August 2026")
    variables = {"bos_token": BOS[name], "eos_token": "</s>", "date_string": "26 Jul 2024"}
    template = environment.from_string(text)
    return template.render(messages=messages, add_generation_prompt=prompt, **variables)


def read(name: str, **tokens: str | None) -> ChatTemplate:
    given = {"bos": BOS[name], "eos": "</s>", **tokens}
    return ChatTemplate.from_json(JinjaTemplate(Path(name), TEMPLATES[name], **given).markup())


def with_template(folder: Path, text: str) -> Path:
    """A base whose template is this."""
    write_hf(folder, toy_model())
    (folder / "chat_template.jinja").write_text(text, encoding="utf-8")
    return folder


def messages_of(turns: list[str], system: str | None) -> list[dict[str, str]]:
    first = [] if system is None else [{"role": "system", "content": system}]
    roles = ("user", "assistant")
    return [*first, *({"role": roles[i % 2], "content": text} for i, text in enumerate(turns))]


def ours(template: ChatTemplate, turns: list[str], system: str | None, said: str = "{}") -> str:
    parts = template.first_turn(turns[0], system)
    for answer, question in zip(turns[1::2], turns[2::2], strict=True):
        parts += [(said.format(answer), False), *template.next_turn(question)]
    return "".join(text for text, _ in parts)


@pytest.mark.parametrize("system", [None, "Be kind."])
@pytest.mark.parametrize("name", KNOWN)
def test_rendered_turns_equal_the_template(name: str, system: str | None) -> None:
    """So is that of the template which we write for other programs."""
    template = read(name)
    for length in (1, 3, 5):
        turns, messages = TURNS[:length], messages_of(TURNS[:length], system)
        assert rendered(jinja_of(template), name, messages) == ours(template, turns, system)
        if system is not None and name in WITHOUT_SYSTEM:
            continue
        theirs = rendered(TEMPLATES[name], name, messages)
        if system is not None and length > 1 and name in MOVES_SYSTEM:
            assert theirs.replace(f"{system}\n\n", "") == ours(template, turns, "", SAID.get(name, "{}"))
        else:
            assert theirs == ours(template, turns, system, SAID.get(name, "{}"))


@pytest.mark.parametrize("name", ["llama-3", "llama-3.1", "llama-3.2", "llama-2"])
def test_white_space_around_user_text_is_stripped_like_in_the_template(name: str) -> None:
    messages = messages_of(["  hello \n"], None)
    assert rendered(TEMPLATES[name], name, messages) == ours(read(name), ["  hello \n"], None)


def test_llama_3_1_has_the_date_of_its_template() -> None:
    later = TEMPLATES["llama-3.1"].replace("26 Jul 2024", "01 Jan 2030")
    markup = JinjaTemplate(Path("later"), later, None, None).markup()
    assert "Today Date: 01 Jan 2030\n" in markup["before_system"]
    assert read("llama-3.2") == ChatTemplate.preset("llama3.1")
    assert "December 2023" not in "".join(text for text, _ in read("llama-3.1").first_turn("Hi", ""))


def test_special_tokens_have_the_names_of_the_base() -> None:
    assert read("tinyllama", eos="<|end|>").after_user == "<|end|>\n"
    assert read("mistral-nemo", bos="<bos>").prefix == "<bos>"
    assert read("llama-2", bos=None, eos=None) == ChatTemplate.preset("llama2")
    hermes = "{{bos_token}}" + TEMPLATES["smollm2"]
    without = TEMPLATES["llama-3"].replace("bos_token", "''")
    for text, prefix in ((hermes, "<|begin_of_text|>"), (without, "")):
        template = JinjaTemplate(Path("other"), text, "<|begin_of_text|>", None)
        assert template.markup()["prefix"] == prefix


STRANGE = {
    "phi-4": TEMPLATES["phi-4"],
    "dated": TEMPLATES["smollm3"],
    "no date of its own": TEMPLATES["llama-3.2"].replace('set date_string = "26 Jul 2024"', "set x = 1"),
    "opens a thought": TEMPLATES["smollm2"].replace("assistant\n", "assistant\n<think>\n"),
    "system of its own": TEMPLATES["llama-2"].replace("system_message = false", "system_message = 'Oui'"),
    "system marks": TEMPLATES["mistral-7b-v0.1"] + "[SYSTEM_PROMPT]",
    "turns": "{{ 'Q: ' + messages[0]['content'] }}",
}


@pytest.mark.parametrize("case", STRANGE)
def test_other_templates_are_refused_with_the_remedy(case: str, tmp_path: Path) -> None:
    folder = with_template(tmp_path, STRANGE[case])
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja: .* put a chat_markup\.json") as error:
        load_base(folder)
    assert ("dates" in str(error.value)) == (case in ("dated", "no date of its own"))
    assert "\n" not in str(error.value)
    given = load_base(folder, chat_template=KINDS["chatml"])
    assert given.chat_template == KINDS["chatml"]
    (folder / MARKUP_FILE).write_text('{"kind": "plain"}')
    assert ChatTemplate.from_json(load_base(folder).chat_template) == ChatTemplate()


def test_folder_with_several_templates_has_a_default(tmp_path: Path) -> None:
    folder = write_hf(tmp_path, toy_model())
    entries = [{"name": name, "template": TEMPLATES[name]} for name in ("qwen3", "tinyllama")]
    entries[1]["name"] = "default"
    eos = {"__type": "AddedToken", "content": "<end>"}
    settings = {"chat_template": entries, "eos_token": eos}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    template = ChatTemplate.from_json(load_base(folder).chat_template)
    assert (template.before_user, template.after_user) == ("<|user|>\n", "<end>\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": entries[:1]}))
    assert load_base(folder).chat_template is None


def test_markup_of_a_checkpoint_replaces_that_of_its_base(tmp_path: Path) -> None:
    base = {"kind": "path", "path": str(with_template(tmp_path / "base", TEMPLATES["phi-4"]))}
    loaded = load_checkpoint(save(tmp_path / "own", toy_model(), base=base, chat_template=KINDS["chatml"]))
    assert loaded.chat_template == KINDS["chatml"]
    other = save(tmp_path / "none", toy_model(), base=base, chat_template=None)
    with pytest.raises(CheckpointError, match="unknown chat template"):
        load_checkpoint(other)


def test_template_and_tokens_are_read_from_gguf(tmp_path: Path) -> None:
    extra = {"tokenizer.chat_template": TEMPLATES["tinyllama"]}
    path = write_gguf(tmp_path / "model.gguf", *small_base(vocab_size=265), extra=extra)
    assert ChatTemplate.from_json(load_base(path).chat_template).after_user == "<|im_end|>\n"


def test_adapter_template_is_used_unless_copied_from_the_base(tmp_path: Path) -> None:
    base, adapter = with_template(tmp_path / "base", TEMPLATES["phi-4"]), tmp_path / "adapter"
    adapter.mkdir()
    save_file({}, adapter / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 4, "lora_alpha": 4}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    (base / MARKUP_FILE).write_text('{"kind": "chatml"}')
    for own, kind in (("phi-4", "chatml"), ("llama-3.2", "llama3.1")):
        (adapter / "chat_template.jinja").write_text(TEMPLATES[own])
        assert ChatTemplate.from_json(load_base(adapter).chat_template) == ChatTemplate.preset(kind)
