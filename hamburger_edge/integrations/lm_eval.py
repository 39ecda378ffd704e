"""Evaluate a bundle with EleutherAI's lm-eval.

    python -m hamburger_edge.integrations.lm_eval \\
        --model hamburger_edge --model_args bundle=my-bundle,confidence=0.8 --tasks gsm8k --limit 20

lm-eval reads no entry points, so this module registers the model and then runs lm-eval's command line with
all of its options. In Python, importing the module registers the model.

Scored continuations (loglikelihood) are read one token a slot at any confidence, because only generated
tokens are merged. Generated text (generate_until) comes from the hierarchical loop.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from hamburger_edge.errors import InputError, require
from hamburger_edge.evaluation.likelihood.base_judge import Judge
from hamburger_edge.loading import load
from hamburger_edge.loop.settings import Settings

require("lm_eval", "lm-eval")

from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.api.model import TemplateLM  # noqa: E402
from lm_eval.api.registry import register_model  # noqa: E402
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window  # noqa: E402
from tqdm import tqdm  # noqa: E402

Request = tuple[tuple[str, str], list[int], list[int]]  # texts, context tokens, continuation tokens


@register_model("hamburger_edge")
class HamburgerLM(TemplateLM):  # type: ignore[misc]  # lm-eval comes without types
    """A bundle or checkpoint as an lm-eval model. Options are those of `hamburger_edge.load` and `stream`."""

    def __init__(
        self,
        bundle: str,
        confidence: float | None = None,  # None, here and for `mode`: the model's recommended setting
        mode: str | None = None,
        max_gen_toks: int = 256,
        backend: str = "auto",
        provider: str | None = None,
        threads: int | None = None,
        cache_slots: int | None = None,
        **ignored: Any,  # lm-eval's own: batch_size, max_batch_size, device
    ) -> None:
        super().__init__()
        if unknown := sorted(set(ignored) - {"batch_size", "max_batch_size", "device"}):
            raise InputError(f"unknown model argument {unknown[0]!r} (known: bundle, confidence, mode, ...)")
        dial = {"confidence": confidence, "mode": mode}
        self.answering = {name: value for name, value in dial.items() if value is not None}
        Settings.of(self.answering)  # raise errors before the model is loaded
        self.max_gen_toks = max_gen_toks
        self.model = load(bundle, backend, provider=provider, threads=threads, cache_slots=cache_slots)
        self.judge = Judge(self.model)
        self.max_length = min(self.model.info.cache_slots, self.model.info.context_length)

    @property
    def eot_token_id(self) -> int:
        if not self.model.info.eos_ids:
            raise InputError("this model has no end token, which texts without a context are scored after")
        return self.model.info.eos_ids[0]

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        return self.model.encode(string) if string else []

    def _loglikelihood_tokens(
        self, requests: Sequence[Request], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        answers = []
        for texts, context, continuation in tqdm(requests, disable=disable_tqdm, desc="reading"):
            room = self.max_length + 1 - len(continuation)  # the last token takes no slot
            if room < 1:
                raise InputError(
                    f"a continuation of {len(continuation)} tokens is longer than the context of "
                    f"{self.max_length}: load with a larger cache_slots"
                )
            reading = self.judge.read(context[-room:], continuation)
            greedy = reading.choices.tolist() == continuation
            answer = (-float(reading.nll.sum(dtype="float64")), greedy)
            self.cache_hook.add_partial("loglikelihood", texts, answer)
            answers.append(answer)
        return answers

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        """Score texts of any length, in windows with as much context as fits."""
        totals = []
        for request in tqdm(requests, disable=disable_tqdm, desc="reading"):
            (text,) = request.args
            windows = get_rolling_token_windows(
                token_list=self.tok_encode(text),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            pairs = [make_disjoint_window(window) for window in windows]
            scored = self._loglikelihood_tokens([(("", ""), *pair) for pair in pairs], disable_tqdm=True)
            total = sum(likelihood for likelihood, _ in scored)
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), total)
            totals.append(total)
        return totals

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        answers = []
        for request in tqdm(requests, disable=disable_tqdm, desc="answering"):
            text, settings = request.args
            options = self._options(settings)
            room = self.max_length - options["max_tokens"]
            if room < 1:
                raise InputError(
                    f"{options['max_tokens']} new tokens do not fit the context of {self.max_length}: "
                    "set max_gen_toks"
                )
            prompt = self.tok_encode(text)[-room:]  # like lm-eval, truncate a long prompt on the left
            answer = self.model.generate(prompt, **options).text
            self.cache_hook.add_partial("generate_until", request.args, answer)
            answers.append(answer)
        return answers

    def _options(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Translate lm-eval's generation options to those of `Model.generate`."""
        until = settings.get("until") or []
        until = [until] if isinstance(until, str) else list(until)
        sampled = settings.get("do_sample", float(settings.get("temperature") or 0) > 0)
        options = {
            **self.answering,
            "stop": [stop for stop in until if stop],
            "max_tokens": int(
                settings.get("max_gen_toks") or settings.get("max_new_tokens") or self.max_gen_toks
            ),
            "temperature": float(settings.get("temperature") or 1.0) if sampled else 0.0,
        }
        return options | {name: settings[name] for name in ("top_k", "top_p") if sampled and name in settings}

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return the chat as text. Special tokens in it count, as in all of lm-eval's texts."""
        template, parts, system = self.model.template, [], None
        if chat_history and chat_history[0]["role"] == "system":
            system, chat_history = chat_history[0]["content"], chat_history[1:]
        for turn, message in enumerate(chat_history):
            text = message["content"]
            if turn % 2 == 0:
                parts += template.first_turn(text, system) if turn == 0 else template.next_turn(text)
            else:
                parts.append((text, False))
        if not add_generation_prompt and len(chat_history) % 2:
            parts.pop()
        return "".join(text for text, _ in parts)

    def chat_template(self, chat_template: bool | str = False) -> str:
        return json.dumps(self.model.template.to_json(), sort_keys=True)

    @property
    def tokenizer_name(self) -> str:
        """A hash of model and template, which lm-eval uses as the key of its request cache."""
        return hashlib.sha256(f"{self.model.info.fingerprint}{self.chat_template()}".encode()).hexdigest()

    def get_model_info(self) -> dict[str, Any]:
        info = self.model.info
        return {
            "model_backend": info.backend,
            "model_precision": info.precision,
            "model_fingerprint": info.fingerprint,
            **self.answering,
        }


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
