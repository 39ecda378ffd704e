"""Single-line changes of the program, and which tests should notice each."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    file: str
    before: str  # occurs once in the file, inside one line
    after: str
    tests: str  # patterns of files below tests/, which run first


def _of(file: str, tests: str, *changes: tuple[str, str]) -> list[Mutant]:
    return [Mutant(file, *change, tests) for change in changes]


LOOP, DRAFTS, CHAT = "hamburger_edge/loop", "hamburger_edge/drafts", "hamburger_edge/chat"
MODES = f"{LOOP}/modes"
QUANTIZATION = "export/quantization"

MUTANTS = [
    *_of(
        f"{MODES}/engine.py",
        "unit/loop/test_engine*.py unit/chat/test_*.py",
        ("match(groups[:-1], merged", "match(groups, merged"),
        ('merged=reuse == "tokens" and not decoding.exact', 'merged=reuse == "tokens"'),
        ("kept, covered = matched if reuse", "kept, covered = matched if True or reuse"),
    ),
    *_of(
        f"{LOOP}/cached_text.py",
        "unit/loop/test_engine*.py unit/chat/test_*.py",
        ("tokens -= len(newest) - len(left)", "tokens -= len(newest)"),
    ),
    *_of(
        f"{MODES}/checking.py",
        "unit/loop/test_engine*.py unit/chat/test_*.py",
        ("[first + index for index, slot", "[index for index, slot"),
        ("if choice.token != newest.token:", "if choice.token != slot[-1].token:"),
        (
            "text.truncate(start + len(again) + len(kept))",
            "text.truncate(start + len(again) + len(kept) + 1)",
        ),
    ),
    *_of(
        f"{MODES}/verify.py",
        "unit/loop/test_engine*.py unit/chat/test_*.py",
        ("if not more or more >= ledger.room_behind(stop)", "if not more or more > ledger.room_behind(stop)"),
        ("run.decoding.confidence ** (1 / self._longest)", "run.decoding.confidence"),
        (
            "return 0 < floor >= self._unchecked and len(slot) < self._longest",
            "return floor >= self._unchecked",
        ),
    ),
    *_of(
        f"{LOOP}/ledger.py",
        "unit/loop/test_ledger.py unit/loop/test_engine*.py unit/chat/test_*.py",
        ("self.tokens + tokens - 1", "self.tokens + tokens"),
        ("last < self.context_length", "last <= self.context_length"),
        ("self.slots + len(sizes) <= self.cache_slots and", "self.slots + len(sizes) < self.cache_slots and"),
        ("del self.groups[slots:], self._ends[slots:]", "del self.groups[slots:]"),
        ("elif merged and prompt[covered :", "elif prompt[covered :"),
        ("return Match(slot, covered)", "return Match(slot, slot)"),
        ("first = slot if len(self.groups[slot]) > 1 else first", "first = slot"),
    ),
    *_of(
        f"{LOOP}/sampling.py",
        "unit/loop/test_sampling.py unit/loop/test_engine.py unit/chat/test_*.py",
        ("np.where(seen > 0, seen / r, seen * r)", "np.where(seen > 0, seen / r, seen / r)"),
        ("np.float32(settings.presence_penalty) * (counts > 0)", "np.float32(settings.presence_penalty)"),
        ("nucleus_cut(weights[weights >= cut],", "nucleus_cut(weights,"),
        ("self._advance(-draws)", "self._advance(1 - draws)"),
        ("np.subtract.at(self._counts, self.answer[-tokens:], 1)", "pass"),
        ("logits = np.where(allowed, logits, -np.inf)", "pass"),
        ("if choice is None or choice.token == self.judged(logits):", "if True:"),
        ('self._advance(whole_in("sampler draws", state["draws"], 0, 2**62))', "pass"),
    ),
    *_of(
        f"{LOOP}/scores.py",
        "unit/loop/test_sampling.py unit/loop/test_engine.py unit/loop/test_engine_structured.py",
        ("searchsorted(reached, draw * total", "searchsorted(reached, draw"),
        ("self.usable = self.banned.size < self.size", "self.usable = True"),
    ),
    *_of(
        f"{MODES}/merge.py",
        "unit/loop/test_engine*.py unit/chat/test_*.py",
        ("trying = 1 - micro.p_stop >= confidence", "trying = micro.p_stop >= confidence"),
    ),
    *_of(
        f"{LOOP}/answer_run.py",
        "unit/loop/test_engine*.py unit/chat/test_*.py",
        ("self._finish(step.tokens[-1])", "self._finish(step.tokens[0])"),
        ("return token in self.eos_ids or self.sampler.ended", "return self.sampler.ended"),
    ),
    *_of(
        f"{MODES}/draft.py",
        "unit/loop/test_engine*.py unit/chat/test_*.py",
        ("if not merged:\n            self.stands *= chance", "self.stands *= chance"),
    ),
    *_of(
        f"{MODES}/micro_steps.py",
        "unit/loop/test_engine*.py unit/chat/test_*.py",
        ("self._read, self.p_stop = len(tokens),", "self._read, self.p_stop = self._read + 1,"),
    ),
    *_of(
        f"{DRAFTS}/drafting.py",
        "unit/drafts/test_drafting.py",
        ("if copied and (usual is None or copied.chance > usual.chance)", "if copied"),
    ),
    *_of(
        f"{DRAFTS}/lookup.py",
        "unit/drafts/test_drafting.py",
        ("copies.next = guess.place + 1", "pass"),
        ("in enumerate(self._drafted[: kept + 1])", "in enumerate(self._drafted[:kept])"),
        ("self._behind[self._text[-1]].pop()", "pass"),
        ("bisect_left(places, after)", "len(places)"),
    ),
    *_of(
        f"{DRAFTS}/copied_words.py",
        "unit/drafts/test_drafting.py",
        (
            "return Reading(skeleton, (), position + 1, position + 1)",
            "return Reading(skeleton, (), position, position)",
        ),
        ("key=lambda at: (at < after, abs(at - after))", "key=lambda at: at"),
        ("self._words is not None and self._words.is_text(token)", "self._words is not None"),
    ),
    *_of(
        f"{DRAFTS}/draft_index.py",
        "unit/drafts/test_drafting.py",
        (" or not known.all()", ""),
        ("key = ((key ^ token) * 0x01000193)", "key = (token * 0x01000193)"),
    ),
    *_of(
        "hamburger_edge/bundle/reading.py",
        "integration/bundle/test_*.py",
        ("if manifest.sha256 != content_hash(data):", "if False:"),
        ("if version != FORMAT:", "if version > FORMAT:"),
        ("all(0 <= i < model.vocab_size for i in ids)", "all(0 <= i <= model.vocab_size for i in ids)"),
        ("_require(portable == (length > 0)", "_require(portable or not length"),
        ('missing is None, f"{name} has no {kind} {missing!r}"', 'True, ""'),
        ('and ".." not in pure.parts', ""),
        ("size == 0 or whole", "size >= 0"),
        ("object_pairs_hook=unique_keys, ", ""),
    ),
    *_of(
        "hamburger_edge/bundle/files.py",
        "integration/bundle/test_*.py",
        ("if not path.resolve().is_relative_to(root):", "if False:"),
        ("if size != entry.bytes:", "if size < entry.bytes:"),
        ("if hashes and sha256(path) != entry.sha256:", "if False:"),
    ),
    *_of(
        f"{CHAT}/session_file.py",
        "unit/chat/test_session*.py",
        ("if file.read(_HASH) != digest:", "if False:"),
        ("if version != VERSION:", "if version > VERSION:"),
        ("if length > limits.header:", "if False:"),
        ("for dtype, shape in shapes.values()) != size:", "for dtype, shape in shapes.values()) > size:"),
        ("private=True", "private=False"),
    ),
    *_of(
        f"{CHAT}/session.py",
        "unit/chat/test_session*.py",
        ('if (theirs := header["model"][name]) != mine:', 'if (theirs := header["model"][name]) is None:'),
        ('if bool(header["messages"]) != bool(groups):', "if False:"),
        ("engine.fill(groups[:slots], snapshot, owner)", "engine.fill(groups[:slots], snapshot, None)"),
        ("if slots > engine.info.cache_slots:", "if False:"),
    ),
    *_of(
        "hamburger_edge/serve/gate.py",
        "unit/serve/test_gate.py",
        ("if not self.access.knows(hosts[0]):", "if False:"),
        ("if origin is not None and not self.access.allows_origin(origin, hosts[0]):", "if False:"),
        ('if scheme.lower() == "bearer" and any(equal) else None', "if any(equal) else None"),
        ("min(map(len, keys)) < SHORTEST_KEY", "max(map(len, keys)) < SHORTEST_KEY"),
        ("return cls(frozenset(known), not local,", "return cls(frozenset(known), True,"),
        ("if len(hosts) != 1:", "if not hosts:"),
    ),
    *_of(
        "export/precision_plan.py",
        "unit/export/test_quantization.py integration/export/test_graph_contents.py",
        (
            'return "int8" if precision == "int4" and _among(path, plan.int8_layers) else precision',
            "return precision",
        ),
        ("(whole and width % size)", "False"),
        ("size = self.plan.block_size // (2 if narrow else 1)", "size = self.plan.block_size"),
        ("0 < frequent < model.config.base.vocab_size", "0 < frequent"),
    ),
    *_of(
        "export/graphs/modules.py",
        "integration/export/test_graph_contents.py integration/export/test_parity.py "
        "integration/runtimes/test_backends.py",
        ("(~chosen).nonzero().squeeze(1)])", "(~chosen).nonzero().squeeze(1)][::-1])"),
        ('"scale": config.score_scale', '"scale": 1.0'),
        ("if self.tied and self.places is not None:", "if self.places is not None:"),
    ),
    *_of(
        f"{QUANTIZATION}/block_quantizer.py",
        "unit/export/test_quantization.py",
        ("zero = (natural + shift).clamp_(0, top)", "zero = natural.clone()"),
        ("return pairs[..., 0] | pairs[..., 1] << 4", "return pairs[..., 1] | pairs[..., 0] << 4"),
        ("torch.where(slope > 0, slope, scales)", "scales"),
        ("padded.split(at_once)", "padded[:at_once].split(at_once)"),
    ),
    *_of(
        f"{QUANTIZATION}/error_compensation.py",
        "unit/export/test_quantization.py integration/export/test_calibration.py",
        ("columns[stop:].addmm_(share[start:stop, stop:].T, errors, alpha=-1)", "pass"),
        ("columns[last:stop].addmm_(share[first:last, last:stop].T, own, alpha=-1)", "pass"),
        ("normal[:, blocks:, b] = rounded[:, b] @ summed[rows]", "pass"),
        ("torch.where(failed[:, None] == 0, solved, kept)", "kept"),
    ),
    *_of(
        f"{QUANTIZATION}/own_grid.py",
        "unit/export/test_quantization.py",
        ("return columns[:, :-count] + columns", "return columns[:, :-count] - columns"),
        ("< without / 2)", "< without * 2)"),
    ),
    *_of(
        f"{QUANTIZATION}/cache_ranges.py",
        "integration/export/test_calibration.py",
        ("torch.maximum(before, largest)", "largest"),
        (".square().sum(-2).sqrt()", ".abs().amax(-2)"),
    ),
]
