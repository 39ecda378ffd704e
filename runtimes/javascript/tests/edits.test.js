// What an answer may become of its prompt: the cases of the Python suite, in tests/data/edits.json.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { AnswerRun } from "../loop/answer_run.js";
import { CachedText } from "../loop/cached_text.js";
import { Edits, keptWords } from "../structured/edits.js";
import { Sampler } from "../loop/sampling.js";
import { Settings } from "../loop/settings.js";
import { Stats } from "../loop/stats.js";
import { scripted } from "./scripted_backend.js";

const golden = JSON.parse(readFileSync(new URL("../../../tests/data/edits.json", import.meta.url), "utf8"));
const END = 256; // bytes are tokens here
const bytes = (/** @type {string} */ text) => [...new TextEncoder().encode(text)];
const newEdits = () => new Edits((token) => Uint8Array.from(token < END ? [token] : []), [END]);

/** The answer up to the byte that may not come. @param {string} prompt @param {string} answer */
async function refused(prompt, answer) {
  const edits = newEdits();
  await edits.begin([END, ...bytes(prompt), END]);
  for (const [index, byte] of bytes(answer).entries()) {
    if (!edits.allows(byte)) return new TextDecoder().decode(Uint8Array.from(bytes(answer).slice(0, index + 1)));
    edits.consume(byte);
  }
  return edits.allows(END) ? null : "end";
}

test("mistakes can be put right, names, numbers and words stay", async () => {
  for (const { prompt, answer, refused: expected } of golden.cases) {
    assert.equal(await refused(prompt, answer), expected, answer);
    assert.equal(await refused(answer, answer), null, answer);
  }
});

test("words that look like names, numbers or codes are kept", () => {
  for (const { text, kept } of golden.words) {
    assert.deepEqual([...keptWords(text)].map(([start, stop]) => text.slice(start, stop)), kept);
  }
});

test("an answer without maxTokens takes its length from the text that it edits", async () => {
  const text = new CachedText(scripted("ab.").backend);
  const more = { words: null, stats: new Stats(), isCancelled: () => false };
  const length = (/** @type {Sampler} */ sampler, options = {}) => new AnswerRun(text, new Settings(options), sampler, [], more).maxTokens;
  const { sampling } = new Settings({});
  const sampler = new Sampler(sampling, END + 1);
  sampler.begin([END, ...bytes("Earlier text"), END, ...bytes("Call 55"), END]);
  await sampler.follow(newEdits());
  assert.equal(length(sampler), 2 * 7 + 8);
  assert.equal(length(sampler, { maxTokens: 40 }), 40);
  assert.equal(length(new Sampler(sampling, END + 1)), 256);
});

test("the sampler takes the likeliest token that is allowed, and goes back", async () => {
  const { sampling } = new Settings({});
  const sampler = new Sampler(sampling, END + 1);
  sampler.begin([END, ...bytes("Call 55"), END]);
  await sampler.follow(newEdits());
  const wished = bytes("Call 66");
  for (const [index, said] of bytes("Call 55").entries()) {
    const scores = new Float32Array(END + 1);
    [scores[wished[index]], scores[said]] = [2, 1];
    assert.equal(sampler.choose(scores).token, said);
  }
  assert.equal(sampler.propose(0x35), false);
  assert.equal(sampler.propose(END), true);
  sampler.rewind(2);
  assert.equal(sampler.propose(0x35), true);
  const scores = new Float32Array(END + 1);
  scores[0x39] = 2;
  assert.equal(sampler.chooseMicro(scores), null);
  const again = new Sampler(sampling, END + 1);
  again.restore(sampler.state());
  await again.follow(newEdits());
  assert.equal(again.propose(0x36), false);
});
