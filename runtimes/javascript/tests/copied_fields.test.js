// Copied fields of JSON answers: the cases of the Python suite, in tests/data/copied_fields.json.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Parts } from "../chat/parts.js";
import { ChatTemplate } from "../chat/template.js";
import { Tokenizer } from "../chat/tokenizer.js";
import { Engine } from "../loop/engine.js";
import { Sampler } from "../loop/sampling.js";
import { Settings } from "../loop/settings.js";
import { CopiedFields } from "../structured/copied_fields.js";
import { DESCRIPTION, scripted } from "./scripted_backend.js";

const golden = JSON.parse(readFileSync(new URL("../../../tests/data/copied_fields.json", import.meta.url), "utf8"));
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

/** The answer up to the first refused byte. @param {string} prompt @param {string} answer */
async function refused(prompt, answer) {
  const constraint = await copying(prompt);
  for (const [index, byte] of bytes(answer).entries()) {
    if (!constraint.allows(byte)) return new TextDecoder().decode(Uint8Array.from(bytes(answer).slice(0, index + 1)));
    constraint.consume(byte);
  }
  return constraint.allows(END) ? null : "end";
}

test("copied strings are spans of the prompt", async () => {
  for (const { prompt, answer, refused: expected } of golden.cases) assert.equal(await refused(prompt, answer), expected, answer);
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
  const sampler = new Sampler(new Settings({}).sampling, END + 1);
  sampler.begin(bytes("play Jersey Boys"));
  await sampler.follow(new CopiedFields(["album"], tokenBytes, [END]));
  for (const byte of bytes('{"album": "Jer')) assert.equal(sampler.propose(byte), true);
  const scores = new Float32Array(END + 1);
  [scores[0x72], scores[0x73]] = [2, 1];
  assert.equal(sampler.propose(0x72), false);
  assert.equal(sampler.choose(scores).token, 0x73);
});

test("a model's copied fields are the default constraint of its answers", async () => {
  const { backend } = scripted("abc.", { copiedFields: ["album"] });
  const tokenizer = new Tokenizer(DESCRIPTION);
  const parts = new Parts(new Engine(backend, tokenizer.words()), tokenizer, new ChatTemplate({}));
  assert.ok((await parts.constraint(new Settings({}))) instanceof CopiedFields);
  backend.info.copiedFields = [];
  assert.ok(!((await parts.constraint(new Settings({}))) instanceof CopiedFields));
});
