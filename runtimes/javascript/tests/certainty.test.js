// The certainty of answers of a scripted model; `answers.test.js` compares its numbers with Python's.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { generateText, streamText } from "ai";
import { languageModel } from "../ai-sdk/index.js";
import { InputError } from "../errors.js";
import { certaintyOf, isCertainty, isLoop } from "../loop/certainty.js";
import { scripted } from "./scripted_backend.js";

const ALWAYS = { offset: 100, slope: 0 }; // certainty 1 of every whole answer
const HALF = { offset: 0, slope: 0 };
const maxRetries = 0;

describe("certainty", () => {
  it("is logistic in the logarithm of the likelihood", () => {
    const certainty = certaintyOf({ offset: 2, slope: 1.5 }, [1, 2, 3], [-1, -3, 1e-9], "eos");
    assert.ok(Math.abs(Number(certainty) - 1 / (1 + Math.exp(1.5 * Math.log(4.05) - 2))) < 1e-9);
    assert.equal(certaintyOf({ offset: 2, slope: 1.5 }, [1], null, "eos"), null);
  });

  it("is 0 for an answer that was cut, is empty or repeats itself", async () => {
    for (const reason of /** @type {const} */ (["length", "context", "cancelled"])) {
      assert.equal(certaintyOf(ALWAYS, [1], [0], reason), 0);
    }
    assert.equal(certaintyOf(ALWAYS, [], [], "stop"), 0);
    assert.equal((await scripted(`${"ab".repeat(20)}.`, { certainty: ALWAYS }).model.generate("x")).certainty, 0);
    assert.ok(!isLoop(new Array(31).fill(1)));
    const { model } = scripted("abcabc.", { certainty: ALWAYS });
    assert.equal((await model.generate("x", { maxTokens: 2 })).certainty, 0);
    const cancelled = model.stream("x");
    await cancelled.next();
    await cancelled.return();
    assert.equal(cancelled.certainty, 0);
  });

  it("marks an answer below minCertainty as unsure, with its text, in the last chunk", async () => {
    for (const [minCertainty, unsure] of /** @type {[number, boolean][]} */ ([[0.4, false], [0.6, true]])) {
      const stream = scripted("abcd.", { certainty: HALF }).model.stream("x", { minCertainty });
      const chunks = [];
      for await (const chunk of stream) chunks.push([chunk.certainty, chunk.unsure]);
      assert.deepEqual(chunks, [[null, false], [0.5, unsure]]);
      assert.deepEqual([stream.text, stream.certainty, stream.unsure], ["abcd", 0.5, unsure]);
    }
  });

  it("replaces an unsure correction by the prompt's text, but not in a conversation", async () => {
    for (const certainty of [undefined, HALF]) {
      const { model } = scripted("abcabd.", { editsPrompt: true, ...(certainty && { certainty }) });
      const stream = model.stream("abcabc", { maxTokens: 2 });
      let generated = "";
      for await (const { text } of stream) generated += text;
      assert.deepEqual([generated, stream.text, stream.finishReason, stream.unsure], ["ab", "abcabc", "length", true]);
    }
    const whole = () => scripted("abcabd.", { editsPrompt: true, certainty: HALF }).model;
    for (const [minCertainty, text] of /** @type {[number, string][]} */ ([[0.4, "abcabd"], [0.6, "abcabc"]])) {
      assert.equal((await whole().generate("abcabc", { minCertainty })).text, text);
    }
    const result = await whole().chat().send("abcabc", { maxTokens: 2 }).result();
    assert.deepEqual([result.text, result.unsure], ["ab", true]);
  });

  it("is null without coefficients; minCertainty is then refused", async () => {
    const { model } = scripted("abcd.");
    const { certainty, unsure } = await model.generate("x");
    assert.deepEqual([certainty, unsure], [null, false]);
    for (const ask of [() => model.generate("x", { minCertainty: 0.5 }), async () => model.chat({ minCertainty: 0.5 })]) {
      await assert.rejects(ask, (error) => error instanceof InputError && /minCertainty 0.5 needs a model/.test(error.message));
    }
  });

  it("is refused unless minCertainty and coefficients are in their ranges", async () => {
    const { model } = scripted("abcd.", { certainty: HALF });
    for (const minCertainty of /** @type {any[]} */ ([-0.1, 1.1, "high", NaN])) {
      await assert.rejects(model.generate("x", { minCertainty }), /minCertainty must be from 0 to 1/);
    }
    for (const odd of [3, {}, { offset: 1 }, { offset: 1, slope: -1 }, { offset: NaN, slope: 1 }, { offset: 1e6, slope: 1 }]) {
      assert.ok(!isCertainty(odd));
    }
    assert.ok(isCertainty(HALF));
  });

  it("is passed on by the AI SDK", async () => {
    const providerOptions = { hamburger: { minCertainty: 0.6 } };
    const request = { model: languageModel(scripted("abcd.abcd.", { certainty: HALF }).model), prompt: "x", providerOptions, maxRetries };
    const streamed = streamText(request);
    await streamed.consumeStream();
    for (const metadata of [(await generateText(request)).providerMetadata, await streamed.providerMetadata]) {
      assert.deepEqual([metadata?.hamburger.certainty, metadata?.hamburger.unsure], [0.5, true]);
    }
    const unmeasured = await generateText({ model: languageModel(scripted("abcd.").model), prompt: "x", maxRetries });
    assert.ok(!("certainty" in (unmeasured.providerMetadata?.hamburger ?? {})));
  });
});
