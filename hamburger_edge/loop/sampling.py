"""Choose tokens from scores, by the same rules for the first token of a group and for its micro tokens.

    scores -> penalties -> bias and bans -> temperature -> top-k -> top-p -> min-p -> one uniform draw

Temperature 0 is greedy: the highest score wins, without a draw. Otherwise every token costs exactly one
draw, and the cumulative distribution is in order of token id. The same seed and the same scores therefore
give the same text. Draws can be taken back: the base checks a draft with the draws of plain decoding.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from hamburger_edge.drafts.lookup import Copies
from hamburger_edge.errors import CheckpointError, InputError
from hamburger_edge.loop.backend import Floats
from hamburger_edge.loop.scores import Head, Ints, TopToken, nucleus_cut, pick, top_tokens
from hamburger_edge.loop.settings import SamplingSettings
from hamburger_edge.support.constraint import Bools, Constraint
from hamburger_edge.support.values import number_in, whole_in

# Scores that are lower than the highest by this much are left out of a log-sum-exp. All 49,152 of SmolLM2
# together would change a log-probability by less than 0.001, and take five times the time.
NEAR = np.float32(18)


class Choice(NamedTuple):
    token: int
    probability: float  # in the distribution it was chosen from; NaN if not requested
    top: tuple[TopToken, ...] = ()  # the likeliest of that distribution, if the base chose and if requested


# Changes scores before all settings: (tokens of prompt and answer so far, scores [vocab]) -> scores. Tokens
# that cannot be chosen have minus infinity. It may be called twice for one position, and for tokens that are
# rejected later.
Processor = Callable[[Sequence[int], Floats], Floats]


class Sampler:
    """The state of one conversation's choices: settings, random draws, and the tokens so far."""

    def __init__(
        self,
        settings: SamplingSettings,
        vocab_size: int,
        draft_vocab: Ints | None = None,
        *,
        top_probabilities: int | None = 0,
        constraint: Constraint | None = None,
        processors: Sequence[Processor] = (),
        scores_answer: bool = False,
    ) -> None:
        self.settings = settings
        self.constraint = constraint or Constraint()  # updated at every choice
        self._processors = processors
        self.top_probabilities = top_probabilities  # None: choices have no probability
        self.seed = secrets.randbits(63) if settings.seed is None else settings.seed
        self.answer: list[int] = []  # tokens chosen since `begin`
        self._scores_answer = scores_answer
        # log-probability of each token of the answer, see `certainty.py`; None: not recorded
        self.logprobs: list[float] | None = [] if scores_answer else None
        self.copies = Copies()  # in the answer's drafts
        self._prompt: list[int] = []
        self._draws = 0
        self._random = np.random.Generator(np.random.PCG64(self.seed))
        self._banned = settings.banned
        changes = {**settings.logit_bias, **dict.fromkeys(self._banned, -math.inf)}
        self._base = Head(changes, vocab_size, None)
        self._micro = self._base if draft_vocab is None else Head(changes, vocab_size, draft_vocab)
        self._penalised = (
            settings.repetition_penalty != 1
            or settings.presence_penalty != 0
            or settings.frequency_penalty != 0
        )
        if self._penalised:
            self._in_prompt = np.zeros(vocab_size, dtype=bool)
            self._counts = np.zeros(vocab_size, dtype=np.float32)

    @property
    def adjusts(self) -> bool:
        """Whether settings change scores. The chances of guesses do not hold then."""
        return bool(self._processors) or self._penalised or self._base.changed is not None

    @property
    def micro_usable(self) -> bool:
        """Whether a micro step has any token that is not banned. Otherwise groups hold one token."""
        return self._micro.usable

    @property
    def micro_open(self) -> bool:
        """Whether the constraint allows a token here that a micro step can choose and that is not banned."""
        allowed = self._allowed(self._micro)
        if allowed is None:
            return True
        return int(np.count_nonzero(allowed)) > int(np.count_nonzero(allowed[self._micro.banned]))

    def begin(self, prompt: Iterable[int]) -> None:
        """Start an answer: penalties count this prompt and the tokens chosen from here on."""
        self.answer.clear()
        self.logprobs = [] if self._scores_answer else None
        self.copies = Copies()
        self._prompt = list(prompt)
        self.constraint.begin(self._prompt)
        if self._penalised:
            self._counts[:] = 0
            self._in_prompt[:] = False
            self._in_prompt[self._prompt] = True

    @property
    def forced(self) -> int | None:
        """The only token that is allowed next, which needs no scores; None if there is a choice."""
        return self.constraint.forced

    @property
    def ended(self) -> bool:
        """Whether the answer is complete by its constraint and must end."""
        return self.constraint.ended

    @property
    def forbids_forced(self) -> bool:
        """Whether settings forbid the forced token. A draft ends before it; `choose_forced` raises."""
        token = self.forced
        if token is None or token in self._banned or not self._processors:
            return token in self._banned
        even = np.zeros(self._base.size, dtype=np.float32)
        return bool(np.isneginf(self._processed(even, self._base)[token]))

    def choose_forced(self) -> Choice:
        """Choose the forced token. It costs one draw, so the number of draws equals the number of tokens."""
        token = self.forced
        assert token is not None
        if self.forbids_forced:
            raise InputError(f"the structure needs token {token} here, which is banned: allow it")
        if not self.settings.greedy:
            self._advance(1)
        return self._accept(Choice(token, 1.0))

    def choose(self, logits: Floats) -> Choice:
        """Choose from the base's scores, [vocab]."""
        if self.forced is not None:
            return self.choose_forced()
        choice, refused = self._permitted(logits)
        if self.logprobs is None:
            return self._accept(choice)
        return self._accept(choice, self._logprob(logits, choice.token, refused))

    def propose(self, token: int, logprob: float = 0.0) -> bool:
        """Append a token to a draft, without scores, if the constraint allows it. It costs one draw.

        `logprob` is recorded until the base scores the token.
        """
        if self.forced not in (None, token) or not self.constraint.allows(token):
            return False
        if not self.settings.greedy:
            self._advance(1)
        self._accept(Choice(token, math.nan), 0.0 if self.forced == token else logprob)
        return True

    def surety(self, logits: Floats) -> float:
        """Return the base's top probability among the allowed tokens, from scores [vocab]."""
        allowed = self.constraint.allowed()
        if allowed is not None:
            logits = logits[allowed]
        return 1 / float(np.exp(logits - logits.max()).sum()) if logits.size else 1.0

    def choose_micro(self, logits: Floats, logprob: float = 0.0) -> Choice | None:
        """Choose from a micro step's scores, [vocab] or [draft vocabulary].

        Return None, without a choice, if the constraint or processors refuse the token: the base then chooses
        the next one. `logprob` is recorded until the base scores the token.
        """
        if self._processors:
            logits = self._processed(logits, self._micro)
            allowed = self._allowed(self._micro)
            if np.isneginf((logits if allowed is None else logits[allowed]).max(initial=-np.inf)):
                return None
        choice = self._choose(logits, self._micro)
        if self.constraint.allows(choice.token):
            return self._accept(choice, logprob)
        self._take_back(1)
        return None

    def judged(self, logits: Floats) -> int:
        """Return the token of a micro step's highest score: the stop head's probability is about this one."""
        return self._micro.token(int(logits.argmax()))

    def choose_judged(self, logits: Floats, logprob: float = 0.0) -> Choice | None:
        """Choose that token. Return None, without a choice, if settings or the draw prefer another."""
        allowed = self._allowed(self._micro)
        if allowed is not None and not allowed[int(logits.argmax())]:
            return None
        choice = self.choose_micro(logits, logprob)
        if choice is None or choice.token == self.judged(logits):
            return choice
        self.rewind(1)
        return None

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Take back the choices of this block if it raises."""
        tokens = len(self.answer)
        try:
            yield
        except BaseException:
            self.rewind(len(self.answer) - tokens)
            raise

    def rewind(self, tokens: int) -> None:
        """Take back the last choices and their draws."""
        if not tokens:
            return
        if self._penalised:
            np.subtract.at(self._counts, self.answer[-tokens:], 1)
        del self.answer[-tokens:]
        if self.logprobs is not None:
            del self.logprobs[-tokens:]
        self.constraint.rewind(tokens)
        self._take_back(tokens)

    def state(self) -> dict[str, Any]:
        """Return plain JSON. With equal settings, `restore` (and `follow`) continues exactly from it."""
        return {
            "seed": self.seed,
            "draws": self._draws,
            "answer": list(self.answer),
            "prompt": list(self._prompt),
            "copies": asdict(self.copies),
            **({} if self.logprobs is None else {"logprobs": list(self.logprobs)}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seed = whole_in("sampler seed", state["seed"], 0, 2**64 - 1)
        self._random = np.random.Generator(np.random.PCG64(self.seed))
        self._draws = 0
        self._advance(whole_in("sampler draws", state["draws"], 0, 2**62))
        last = self._base.size - 1
        ordered = state.get("edited") or state["prompt"]  # sessions of older versions sorted the prompt
        prompt, answer = (
            [whole_in("sampler token", token, 0, last) for token in tokens]
            for tokens in (ordered, state["answer"])
        )
        self.begin(prompt)
        self.answer.extend(answer)
        if self._scores_answer:
            numbers = state.get("logprobs", [])  # a session of a model without certainty has none
            logprobs = [number_in("sampler logprob", number, -1e6, 1) for number in numbers]
            self.logprobs = logprobs if len(logprobs) == len(answer) else None
        self.copies = Copies.from_json(state.get("copies", {}))
        if self._penalised:
            np.add.at(self._counts, answer, 1)

    def follow(self) -> None:
        """Move the constraint to the end of the answer; call this after `restore`."""
        self.constraint.begin(self._prompt, self.answer)

    def _accept(self, choice: Choice, logprob: float = 0.0) -> Choice:
        self.constraint.consume(choice.token)
        self.answer.append(choice.token)
        if self.logprobs is not None:
            self.logprobs.append(logprob)
        if self._penalised:
            self._counts[choice.token] += 1
        return choice

    def _advance(self, draws: int) -> None:
        self._draws += draws
        self._random.bit_generator.advance(draws)  # type: ignore[attr-defined]

    def _take_back(self, draws: int) -> None:
        if not self.settings.greedy:
            self._advance(-draws)

    def _logprob(self, logits: Floats, token: int, refused: Sequence[int]) -> float:
        """Return the log-probability of an allowed token, from the base's scores, [vocab].

        The tokens that the constraint refused here have none.
        """
        score = float(logits[token])
        if refused:
            logits = logits.copy()
            logits[list(refused)] = -np.inf
        allowed = self.constraint.allowed()
        if allowed is not None:
            logits = logits[allowed]
        best = logits.max()
        near = logits[logits > best - NEAR]
        return score - float(best) - math.log(float(np.exp(near - best).sum()))

    def _permitted(self, logits: Floats) -> tuple[Choice, list[int]]:
        """Choose from the base's scores; return the choice, and the tokens that were refused before it."""
        top = self.top_probabilities or 0
        logits = self._processed(logits, self._base)
        choice, refused = self._choose(logits, self._base, top), list[int]()
        while not self.constraint.allows(choice.token):
            self._take_back(1)
            refused.append(choice.token)
            logits = logits.copy()
            logits[choice.token] = -np.inf
            choice = self._choose(logits, self._base, top)
        return choice, refused

    def _choose(self, logits: Floats, head: Head, top: int = 0) -> Choice:
        if self._penalised or head.changed is not None:
            logits = self._adjust(logits.copy(), head)
        allowed = self._allowed(head)
        if allowed is not None:
            logits = np.where(allowed, logits, -np.inf)
        index = int(logits.argmax())
        best = float(logits[index])
        if not math.isfinite(best):  # argmax returns a NaN if there is one: this checks the whole vector
            raise self._unusable(best)
        if not self.settings.greedy:
            return self._draw(logits, best, head, top)
        if self.top_probabilities is None:
            return Choice(head.token(index), math.nan)
        weights = np.exp(logits - best)
        return Choice(head.token(index), 1 / float(weights.sum()), top_tokens(weights, top))

    def _allowed(self, head: Head) -> Bools | None:
        """Return which of a head's scores may be chosen; None: the constraint masks no scores."""
        allowed = self.constraint.allowed()
        return None if allowed is None else head.gather(allowed)

    def _processed(self, logits: Floats, head: Head) -> Floats:
        """Return a head's scores after the processors, which take those of the whole vocabulary."""
        if not self._processors:
            return logits
        scores = head.spread(logits, self._base.size)
        for processor in self._processors:
            scores = processor([*self._prompt, *self.answer], scores)
        return head.gather(scores)

    def _adjust(self, logits: Floats, head: Head) -> Floats:
        if self._penalised:
            settings = self.settings
            tokens = np.flatnonzero(self._in_prompt | (self._counts > 0))
            tokens, index = head.locate(tokens)
            seen, counts = logits[index], self._counts[tokens]
            r = np.float32(settings.repetition_penalty)
            seen = np.where(seen > 0, seen / r, seen * r)
            seen -= np.float32(settings.presence_penalty) * (counts > 0)
            logits[index] = seen - np.float32(settings.frequency_penalty) * counts
        if head.changed is not None:
            logits[head.changed] += head.change
        return logits

    def _draw(self, logits: Floats, best: float, head: Head, top: int) -> Choice:
        """Draw by inverse CDF. Weights are relative to the highest one; truncations are minimum weights."""
        settings = self.settings
        if head.order is not None:
            logits = logits[head.order]
        weights = np.exp((logits - np.float32(best)) / np.float32(max(settings.temperature, 1e-6)))
        cut = np.float32(0)
        if 0 < settings.top_k < weights.size:
            cut = np.partition(weights, -settings.top_k)[-settings.top_k]
        if settings.top_p < 1:
            cut = nucleus_cut(weights[weights >= cut], settings.top_p)
        cut = max(cut, np.float32(settings.min_p))
        survivors = np.flatnonzero(weights >= cut) if cut > 0 else None
        survivor, probability = pick(
            weights if survivors is None else weights[survivors], self._random.random()
        )
        self._draws += 1
        index = survivor if survivors is None else int(survivors[survivor])
        if head.order is not None:
            index = int(head.order[index])
        shown = top_tokens(np.where(weights >= cut, weights, 0), top) if top else ()
        return Choice(head.token(index), probability, shown)

    def _unusable(self, best: float) -> Exception:
        if best == -math.inf and self.constraint.allowed() is not None:
            return InputError("the structure leaves no token here that is not banned: allow one")
        if best == -math.inf and self._banned:
            return InputError("logit_bias bans every token: allow at least one")
        return CheckpointError(
            f"the model's scores are not usable (highest is {best}): its weights or precision are damaged, "
            "verify it or export it again"
        )
