"""docs/spec/loop.md, taken at its word: its loop in numpy, on ONNX Runtime. Uses nothing of this program."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import llguidance
import numpy as np
import onnxruntime as ort


class Cache:
    def __init__(self, graph: dict, entries: int, portable: bool) -> None:
        self.used, self.portable = 0, portable
        self.past = {
            spec["name"]: np.zeros([int(n) if n.isdigit() else entries for n in spec["shape"]], spec["dtype"])
            for spec in graph["inputs"]
            if spec["name"].startswith("past_")
        }

    def run(self, session: ort.InferenceSession, appended: int, **inputs: np.ndarray) -> dict:
        total = self.used + appended
        gaps = "positions" in inputs and inputs["positions"][0, -1] != total - 1
        spare = int(gaps and not self.used)
        lengths = {"last_slot": np.int32([total - 1]), "total_slots": np.int32([total + spare])}
        if self.portable:
            lengths = {"used": np.int64([self.used])}
        names = [output.name for output in session.get_outputs()]
        out = dict(zip(names, session.run(names, {**inputs, **lengths, **self.past}), strict=True))
        for name, past in self.past.items():
            if self.portable:
                past[:, :, self.used : total] = out[name.replace("past", "new")]
            else:
                self.past[name] = out[name.replace("past", "present")]
        self.used = total
        return out


class Copies:
    """What an answer copies out of its prompt."""

    def __init__(self, prompt: list[int]) -> None:
        self.prompt, self.behind, self.holds, self.start = prompt, 0, True, None

    def after(self, answer: list[int], least: int) -> list[int]:
        best = (0, False, 0)
        for place in range(1, len(self.prompt) + 1):
            length = 0
            while (
                length < min(4, place, len(answer)) and self.prompt[place - 1 - length] == answer[-1 - length]
            ):
                length += 1
            found = (length, place >= self.behind, -abs(place - self.behind))
            if length and found > best:
                best, at = found, place
        if best[0] < max(least, 1 if self.holds else 2):
            return []
        self.start = at, len(answer)
        return self.prompt[at : at + 6]

    def settle(self, said: int) -> None:
        if self.start is not None:
            kept = max(0, said - self.start[1])
            self.behind, self.holds, self.start = self.start[0] + kept, kept > 0, None


class Loop:
    def __init__(self, folder: Path, cache_slots: int = 300) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        self.model, self.portable = manifest["model"], manifest["flavor"] == "portable"
        self.graphs = {graph["name"]: graph for graph in manifest["graphs"]}
        self.sessions = {
            name: ort.InferenceSession(folder / graph["file"]) for name, graph in self.graphs.items()
        }
        self.cache_slots = manifest["cache_slots"] if self.portable else cache_slots
        self.cache = Cache(self.graphs["base"], self.cache_slots, self.portable)
        self.text, self.pending, self.mode = 0, [], "merge"
        self.banned: list[int] = []
        self.answer_prefix: list[int] = manifest.get("answer_prefix", [])

    def forget(self) -> Loop:
        self.cache.used, self.text, self.pending = 0, 0, []
        return self

    def macro(self, groups: list[list[int]], rows: list[int]) -> dict:
        embedder, positions = self.sessions["embedder"], []
        runs = [np.int64(list(run)) for _, run in groupby(groups, len)]
        embeddings = np.concatenate([embedder.run(None, {"tokens": run})[0] for run in runs])
        for index, group in enumerate(groups):
            self.text += len(group)
            by_token = self.model["position_rule"] == "token"
            positions.append(self.text - 1 if by_token else self.cache.used + index)
        inputs = {"embeddings": embeddings[None], "rows": np.int64(rows), "positions": np.int64([positions])}
        if not any(spec["name"] == "positions" for spec in self.graphs["base"]["inputs"]):
            del inputs["positions"]
        return self.cache.run(self.sessions["base"], len(groups), **inputs)

    def choose(self, logits: np.ndarray, tokens: list[int] | None = None) -> int:
        """`tokens`: what each index stands for"""
        logits = logits.copy()
        logits[self.banned if tokens is None else np.isin(tokens, self.banned)] = -np.inf
        best = int(logits.argmax())
        return best if tokens is None else tokens[best]

    def micro(self, features: np.ndarray, group: list[int]) -> dict:
        """What it makes of a group's last token; the features are fed with the first."""
        given = features if len(group) == 1 else np.zeros((0, self.model["hidden_size"]), np.float32)
        if len(group) == 1:
            entries = len(self.model["taps"]) + 1 + self.model["max_group_tokens"]
            self.micro_cache = Cache(self.graphs["micro_decoder"], entries, self.portable)
        token = np.int64(group[-1:])
        return self.micro_cache.run(
            self.sessions["micro_decoder"], len(given) + 1, features=given, token=token
        )

    def draft(self, read: dict, row: int, size: int, confidence: float) -> list[int]:
        """In merge and in verify mode."""
        return [token for slot in self.slots(read, row, size, confidence) for token in slot]

    def slots(
        self, read: dict, row: int, size: int, confidence: float, copied: Callable = lambda first, least: []
    ) -> list[list[int]]:
        """A draft of one slot; with `copied`, which says what the prompt knows, as mode hybrid drafts it."""
        model, draft_vocab = self.model, self.model["draft_vocab"]
        before = model["stop_rule"] == "before"
        group, stop = [self.choose(read["logits"][row])], float(read["p_stop"][row])
        slots, trying = [group[:]], 1 - stop >= (confidence if before else 2 / 3 * confidence)
        ended = group[-1] in model["eos_ids"]
        if not ended and (copies := copied(group[0], 2 if trying else 1)):
            return [*slots, *([token] for token in copies)]
        while trying and len(group) < size and group[-1] not in model["eos_ids"]:
            micro = self.micro(read["features"][row], group)
            judging = stop
            highest, stop = int(micro["logits"].argmax()), float(micro["p_stop"][0])
            judging = judging if before else stop
            trying = 1 - stop >= confidence
            token = self.choose(micro["logits"], draft_vocab)
            judged = token == (highest if draft_vocab is None else draft_vocab[highest])
            unchecked = 1 - judging >= confidence ** (1 / model["max_group_tokens"])
            if judged and (unchecked if self.mode == "hybrid" else before or trying):
                slots[-1].append(token)
            elif self.mode == "hybrid" and (before or 1 - stop >= min(confidence, 0.4)):
                slots.append([token])
            else:
                break
            group.append(token)
        return slots

    def doubted(self, logits: np.ndarray, held: list[list[int]], confidence: float, room: int) -> int:
        """`held`: the answer's slots. The first that is to be read again; their number if none is."""
        weights = np.exp(logits - logits.max())
        newest, first = min(2 * self.model["max_group_tokens"], sum(map(len, held))), len(held)
        for slot in reversed(range(len(held))):
            if newest <= 0:
                break
            newest -= len(held[slot])
            first = slot if len(held[slot]) > 1 else first
        again = [[token] for slot in held[first:] for token in slot]
        enough = len(again) - (len(held) - first) < room
        sure = weights.max() / weights.sum() >= confidence
        return len(held) if sure or not again or not enough else first

    def doubt(self, logits: np.ndarray, held: list[list[int]], confidence: float) -> list[list[int]]:
        """`held`: the answer's slots, all in the cache. What is to be read again leaves both."""
        first = self.doubted(logits, held, confidence, self.room())
        again = [[token] for slot in held[first:] for token in slot]
        self.cache.used, self.text = self.cache.used - len(held) + first, self.text - len(again)
        del held[first:]
        return again

    def begin(
        self, prompt: list[list[int]], max_tokens: int, confidence: float
    ) -> tuple[dict, int, list[list[int]]]:
        """The prompt, and behind it what all answers begin with, as far as it holds: what the base says, the
        row to go on from, and the slots that were said."""
        answer_prefix = self.answer_prefix[:max_tokens] if confidence < 1 and not self.banned else []
        slots_left = self.cache_slots - self.cache.used - len(prompt)
        if min(slots_left, self.room() - sum(map(len, prompt))) < len(answer_prefix):
            answer_prefix = []
        size = 1 if self.mode == "verify" else self.model["max_group_tokens"]
        slots = [answer_prefix[at : at + size] for at in range(0, len(answer_prefix), size)]
        used, last = self.cache.used, len(prompt) - 1
        read, kept = self.macro([*prompt, *slots], list(range(last, last + len(slots) + 1))), 0
        while kept < len(slots) and self.choose(read["logits"][kept]) == slots[kept][0]:
            kept += 1
        self.text -= sum(map(len, slots[kept:]))
        self.cache.used = used + len(prompt) + kept
        return read, kept, slots[:kept]

    def room(self) -> int:
        positions = self.text if self.model["position_rule"] == "token" else self.cache.used
        return min(self.cache_slots - self.cache.used, self.model["context_length"] - positions)

    def reread(self, prompt: list[int], max_tokens: int, confidence: float) -> list[list[int]]:
        copies, self.mode = Copies(prompt), "hybrid"
        read, row, held = self.begin([[t] for t in prompt], max_tokens, confidence)
        said = [[token for slot in held for token in slot]] if held else []
        if sum(map(len, said)) == max_tokens:
            return said
        while True:
            again = self.doubt(read["logits"][row], held, confidence)
            room = min(self.room() - len(again), max_tokens - sum(map(len, said)))
            size = 1 if confidence >= 1 else min(self.model["max_group_tokens"], room)
            answer = [token for group in said for token in group]

            def copied(first: int, least: int, answer: list[int] = answer, room: int = room) -> list[int]:
                most = min(6, room - 1) if confidence < 1 else 0
                found = copies.after([*answer, first], least)[: max(0, most)]
                ends = [index for index, token in enumerate(found, 1) if token in self.model["eos_ids"]]
                return found[: ends[0]] if ends else found

            slots = self.slots(read, row, size, confidence, copied)
            if room > 0 and (again or len(slots) > 1):
                used, text = self.cache.used, self.text
                ahead, kept = len(again), 0 if again else 1
                read = self.macro([*again, *slots], list(range(ahead + len(slots))))
                while kept < len(slots) and self.choose(read["logits"][ahead + kept - 1]) == slots[kept][0]:
                    self.cache.used, self.text = (
                        used + ahead + kept,
                        text + ahead + sum(map(len, slots[:kept])),
                    )
                    there, logits = [*held, *again, *slots[:kept]], read["logits"][ahead + kept - 1]
                    if self.doubted(logits, there, confidence, self.room()) < len(there):
                        break
                    kept += 1
                slots, row = slots[:kept], ahead + kept - 1
                self.cache.used, self.text = used + ahead + kept, text + ahead + sum(map(len, slots))
                held += [*again, *slots]
                copies.settle(len(answer) + sum(map(len, slots)))
                self.pending = []
                if not slots:
                    continue
            else:
                [self.pending] = slots
            said.append([token for slot in slots for token in slot])
            if said[-1][-1] in self.model["eos_ids"] or sum(map(len, said)) == max_tokens:
                return said
            if self.pending:
                by_token = self.model["position_rule"] == "token"
                position = self.text + len(self.pending) - 1 if by_token else self.cache.used
                if self.cache.used == self.cache_slots or position >= self.model["context_length"]:
                    return said
                read, row = self.macro([self.pending], [0]), 0
                held.append(self.pending)
                self.pending = []

    def answer(
        self,
        prompt: list[int],
        max_tokens: int,
        confidence: float,
        verify: bool = False,
        chunk: int = 256,
    ) -> list[list[int]]:
        groups, said, row = [*([self.pending] if self.pending else []), *([token] for token in prompt)], [], 0
        self.mode = "verify" if verify else "merge"
        while len(groups) > chunk:
            self.macro(groups[:chunk], [chunk - 1])
            groups = groups[chunk:]
        read, row, held = self.begin(groups, max_tokens, confidence)
        said += [[token for slot in held for token in slot]] if held else []
        if sum(map(len, said)) == max_tokens:
            return said
        while True:
            size = (
                1
                if confidence >= 1
                else min(self.model["max_group_tokens"], max_tokens - sum(map(len, said)))
            )
            group = self.draft(read, row, size, confidence)
            self.pending = group
            if verify:
                before, text = self.cache.used, self.text
                read, kept = self.macro([[token] for token in group], list(range(len(group)))), 1
                while kept < len(group) and read["logits"][kept - 1].argmax() == group[kept]:
                    kept += 1
                group, self.pending, row = group[:kept], [], kept - 1
                self.cache.used, self.text = before + kept, text + kept
            said.append(group)
            if group[-1] in self.model["eos_ids"] or sum(map(len, said)) == max_tokens:
                return said
            by_token = self.model["position_rule"] == "token"
            position = self.text + len(group) - 1 if by_token else self.cache.used
            if not verify:
                if self.cache.used == self.cache_slots or position >= self.model["context_length"]:
                    return said
                read, row = self.macro([group], [0]), 0
                self.pending = []


class Structured(Loop):
    """With a grammar, in merge mode."""

    def start(self, regex: str, tokenizer_json: str) -> Structured:
        tokenizer = llguidance.LLTokenizer(
            tokenizer_json, n_vocab=self.model["vocab_size"], eos_token=self.model["eos_ids"]
        )
        self.grammar = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_regex(regex))
        self.run: list[int] = []
        return self

    def forced(self) -> int | None:
        self.run = self.run or self.grammar.compute_ff_tokens()
        return self.run[0] if self.run else None

    def consume(self, token: int) -> None:
        self.run = self.run[1:] if self.run and self.run[0] == token else []
        self.grammar.consume_token(token)

    def allowed(self) -> np.ndarray:
        bits = np.unpackbits(np.frombuffer(self.grammar.compute_bitmask(), np.uint8), bitorder="little")
        return bits[: self.model["vocab_size"]].astype(bool)

    def draft(self, read: dict, row: int, size: int, confidence: float) -> list[int]:
        """Every token of it is consumed."""
        model, before = self.model, self.model["stop_rule"] == "before"
        draft_vocab = np.array(model["draft_vocab"] or range(model["vocab_size"]))
        group = [int(np.where(self.allowed(), read["logits"][row], -np.inf).argmax())]
        self.consume(group[0])
        trying = 1 - float(read["p_stop"][row]) >= (confidence if before else 2 / 3 * confidence)
        while (
            trying
            and len(group) < size
            and group[-1] not in model["eos_ids"]
            and not self.grammar.is_stopped()
        ):
            if self.forced() is not None or not self.allowed()[draft_vocab].any():
                break
            micro = self.micro(read["features"][row], group)
            highest = int(draft_vocab[micro["logits"].argmax()])
            trying = 1 - float(micro["p_stop"][0]) >= confidence
            if (not before and not trying) or not self.allowed()[highest]:
                break
            self.consume(highest)
            group.append(highest)
        return group

    def structured(self, prompt: list[int], max_tokens: int, confidence: float) -> list[list[int]]:
        unread, said = [[token] for token in prompt], []
        while True:
            if (token := self.forced()) is not None:
                group = [token]
                self.consume(token)
            else:
                read = self.macro(unread, [len(unread) - 1])
                left = max_tokens - sum(map(len, said))
                size = 1 if confidence >= 1 else min(self.model["max_group_tokens"], left)
                unread, group = [], self.draft(read, 0, size, confidence)
            unread.append(group)
            said.append(group)
            if group[-1] in self.model["eos_ids"] or self.grammar.is_stopped():
                return said
            if sum(map(len, said)) == max_tokens:
                return said
