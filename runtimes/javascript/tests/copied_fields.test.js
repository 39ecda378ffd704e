// Copied fields of JSON answers and of calls: the cases of the Python suite, in tests/data.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { CallGrammars } from "../calls/call_grammar.js";
import { readTools } from "../calls/catalogue.js";
import { Parts } from "../chat/parts.js";
import { ChatTemplate } from "../chat/template.js";
import { Tokenizer } from "../chat/tokenizer.js";
import { Engine } from "../loop/modes/engine.js";
import { Sampler } from "../loop/sampling.js";
import { Settings } from "../loop/settings.js";
import { CopiedFields } from "../structured/copied_fields.js";
import { BYTES } from "../support/byte_alphabet.js";
import { DESCRIPTION, scripted } from "./scripted_backend.js";

/** @import { Constraint } from "../structured/constraint.js" */

const data = (/** @type {string} */ name) => JSON.parse(readFileSync(new URL(`../../../tests/data/${name}.json`, import.meta.url), "utf8"));
const [golden, goldenCalls] = [data("copied_fields"), data("copied_calls")];
const END = 256; // bytes are tokens here
const CLOSED = 300; // a token that spans the closing quote
const bytes = (/** @type {string} */ text) => [...new TextEncoder().encode(text)];
const tokenBytes = (/** @type {number} */ token) => Uint8Array.from(token < END ? [token] : token === CLOSED ? bytes('rey"}') : []);

/** @param {string} prompt @param {string} [answer] */
async function copying(prompt, answer = "") {
  const constraint = new CopiedFields(golden.fields, tokenBytes, [END]);
  await constraint.begin([END, ...bytes(prompt), END], bytes(answer));
  return constraint;
}

const description = {
  ...DESCRIPTION,
  added_tokens: [{ ...DESCRIPTION.added_tokens[0], id: END }],
  model: { type: "BPE", vocab: { ...Object.fromEntries(BYTES.map((letter, byte) => [letter, byte])), "<end>": END }, merges: [] },
};
const grammars = new CallGrammars(readTools(goldenCalls.tools), new Tokenizer(description), END + 1, [END], goldenCalls.fields);

/** @param {string} prompt @param {string} [answer] @param {number} [maxTokens] */
async function calling(prompt, answer = "", maxTokens = 300) {
  const grammar = grammars.start({}, maxTokens);
  await grammar.begin([END, ...bytes(prompt), END], bytes(answer));
  return grammar;
}

/** The answer up to the first refused byte. @param {Constraint} constraint @param {string} answer */
function refused(constraint, answer) {
  for (const [index, byte] of bytes(answer).entries()) {
    if (!constraint.allows(byte)) return new TextDecoder().decode(Uint8Array.from(bytes(answer).slice(0, index + 1)));
    constraint.consume(byte);
  }
  return constraint.allows(END) ? null : "end";
}

test("copied strings are spans of the prompt", async () => {
  for (const { prompt, answer, refused: expected } of golden.cases) assert.equal(refused(await copying(prompt), answer), expected, answer);
});

test("copied strings of calls are spans of the prompt", async () => {
  for (const { prompt, answer, refused: expected } of goldenCalls.cases) assert.equal(refused(await calling(prompt), answer), expected, answer);
});

test("strings of calls are free behind a refused token, and a rewound one is a span again", async () => {
  assert.equal((await calling("play Jersey Boys", "Play Jerry")).allows(0x78), true);
  const near = await calling("play Jersey Boys", "Play Jer");
  assert.deepEqual([near.allows(0x72), near.keeps(0x72)], [false, true]);
  near.consume(0x72);
  assert.equal(near.allows(END), true);
  near.rewind(1);
  assert.deepEqual([near.allows(0x72), near.allows(END)], [false, false]);
});

test("only words that fit before the limit are begun", async () => {
  for (const [maxTokens, allowed] of /** @type {const} */ ([[11, "BJ"], [10, "B"], [9, "B"], [8, ""]])) {
    const grammar = grammars.start({}, maxTokens);
    await grammar.begin(bytes("Jersey Boys"), []);
    for (const byte of bytes("Play ")) grammar.consume(byte);
    const letters = [..."ABCDEFGHIJKLMNOPQRSTUVWXYZ"].filter((letter) => grammar.allows(bytes(letter)[0]));
    assert.deepEqual([letters.join(""), grammar.allows(END)], [allowed, true]);
  }
});

test("a token that spans the closing quote is checked byte by byte", async () => {
  assert.equal((await copying("play Jerrey Boys", '{"album": "Jer')).allows(CLOSED), true);
  assert.equal((await copying("play Jersey Boys", '{"album": "Jer')).allows(CLOSED), false);
});

test("a value of a prompt without text closes", async () => {
  const constraint = await copying("", '{"album": "');
  assert.deepEqual([...Array(END + 1).keys()].filter((byte) => constraint.allows(byte)), [0x22]);
});

test("the sampler takes the likeliest allowed token within a copied string", async () => {
  const sampler = new Sampler(new Settings({}).sampling, END + 1, null, null, true);
  sampler.begin(bytes("play Jersey Boys"));
  await sampler.follow(new CopiedFields(["album"], tokenBytes, [END]));
  for (const byte of bytes('{"album": "Jer')) assert.equal(sampler.propose(byte), true);
  const scores = new Float32Array(END + 1);
  [scores[0x72], scores[0x73]] = [2, 1];
  assert.equal(sampler.propose(0x72), false);
  assert.equal(sampler.choose(scores).token, 0x73);
  // the refused "r" has no share of the probability of "s"
  const logprob = /** @type {number[]} */ (sampler.logprobs).at(-1) ?? NaN;
  assert.ok(Math.abs(logprob - (1 - Math.log(Math.E + END - 1))) < 1e-5);
});

test("a model's copied fields are the default constraint of its answers", async () => {
  const { backend } = scripted("abc.", { copiedFields: ["album"] });
  const tokenizer = new Tokenizer(DESCRIPTION);
  const parts = new Parts(new Engine(backend, tokenizer.words()), tokenizer, new ChatTemplate({}));
  assert.ok((await parts.constraint(new Settings({}))) instanceof CopiedFields);
  backend.info.copiedFields = [];
  assert.ok(!((await parts.constraint(new Settings({}))) instanceof CopiedFields));
});
