// The same answers as the Python program, token by token: those in the file that GOLDENS names, which
// tests/support/goldens.py of the repository writes.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { load } from "../adapters/onnxruntime-node.js";

/** @import { Model, Options } from "../index.js" */
/** @typedef {{prompt: string | number[], options: Options, groups: number[][], stops: number[][], top: [number, number][][][], text: string, finishReason: string, certainty: number | null, unsure: boolean}} Answer */
/** @typedef {{text: string, groups: number[][], goesOn: boolean, answer: string, certainty: number | null}} Turn */
/** @typedef {{options: Options, turns: Turn[], slots: number[][]}} Conversation */
/** @typedef {{bundle: string, answers: Answer[], conversations: Conversation[]}} Golden */

const files = process.env.GOLDENS?.split(",") ?? [];

/** @param {AsyncIterable<{tokens: readonly number[]}>} stream */
async function groupsOf(stream) {
  const groups = [];
  for await (const { tokens } of stream) groups.push([...tokens]);
  return groups;
}

/** @param {number | null} certainty @param {number | null} expected */
function assertCertainty(certainty, expected) {
  if (expected === null || certainty === null) assert.equal(certainty, expected);
  else assert.ok(Math.abs(certainty - expected) < 1e-3, `${certainty}, expected ${expected}`);
}

describe("answers", { skip: files.length ? false : "GOLDENS names no file of goldens" }, () => {
  for (const file of files) {
    /** @type {Golden} */
    const golden = JSON.parse(readFileSync(file, "utf8"));
    describe(golden.bundle, () => {
      /** @type {Model} */
      let model;
      before(async () => {
        model = await load(golden.bundle, { threads: 1, verify: true });
      });
      after(() => model.close());

      for (const { prompt, options, groups, stops, top, text, finishReason, certainty, unsure } of golden.answers) {
        it(`${JSON.stringify(prompt)} with ${JSON.stringify(options)}`, async () => {
          const said = model.stream(prompt, options);
          const chunks = [];
          for await (const chunk of said) if (chunk.tokens.length) chunks.push(chunk);
          assert.deepEqual(chunks.map(({ tokens }) => [...tokens]), groups);
          for (const [i, { stopProbabilities }] of chunks.entries()) {
            assert.equal(stopProbabilities.length, stops[i].length);
            for (const [j, stop] of stops[i].entries()) assert.ok(Math.abs(stopProbabilities[j] - stop) < 1e-4, `${i}, ${j}`);
          }
          for (const [i, chunk] of chunks.entries()) {
            const likeliest = chunk.topProbabilities.map((each) => each.map(({ token }) => token));
            assert.deepEqual(likeliest, top[i].map((each) => each.map(([token]) => token)));
            for (const [j, { logprob }] of chunk.topProbabilities.flat().entries())
              assert.ok(Math.abs(logprob - top[i].flat()[j][1]) < 1e-3, `${i}, ${j}`);
          }
          assert.equal(said.text, text);
          assert.equal(said.finishReason, finishReason);
          assertCertainty(said.certainty, certainty);
          assert.equal(said.unsure, unsure);
          for (const [i, chunk] of chunks.slice(0, -1).entries()) assert.equal(chunk.certainty, null, `${i}`);
          assert.equal(said.stats.macroSteps, groups.length);
          assert.equal(said.stats.tokens, groups.flat().length);
        });
      }

      for (const { options, turns, slots } of golden.conversations) {
        it(`a conversation with ${JSON.stringify(options)}`, async () => {
          const chat = model.chat({ system: "Be brief.", ...options });
          for (const { text, groups, goesOn, answer, certainty } of turns) {
            let stream = chat.send(text);
            const said = await groupsOf(stream);
            if (goesOn) {
              stream = chat.continueAnswer({ maxTokens: 7 });
              said.push(...(await groupsOf(stream)));
            }
            assert.deepEqual(said, groups);
            assertCertainty(stream.certainty, certainty);
            assert.equal(chat.messages.at(-1)?.content, answer);
          }
          assert.deepEqual(chat.groups, slots);
        });
      }
    });
  }
});
