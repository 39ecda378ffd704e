// The Vercel AI SDK on the bundle that BUNDLE names: `tiny`, which the repository's own tests export.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Output, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { load } from "../adapters/onnxruntime-node.js";
import { languageModel } from "../ai-sdk/index.js";
import { InputError } from "../errors.js";

/** @import { LanguageModelV3 } from "@ai-sdk/provider" */
/** @import { Model } from "../index.js" */

const bundle = process.env.BUNDLE ?? "";
const prompt = "What is the capital of Norway?";
const maxRetries = 0;

describe("the AI SDK", { skip: bundle ? false : "BUNDLE names no bundle" }, () => {
  /** @type {Model} */
  let own;
  /** @type {LanguageModelV3} */
  let model;
  before(async () => {
    own = await load(bundle, { threads: 1 });
    model = languageModel(own, { id: "tiny" });
  });
  after(() => own.close());

  it("generates the runtime's own text, and reports its tokens, groups and slots", async () => {
    const alone = await own.generate(prompt, { reusePrefix: false });
    const { text, finishReason, usage, response, providerMetadata } = await generateText({ model, prompt, maxRetries });
    assert.equal(text, alone.text);
    assert.deepEqual([finishReason, response.modelId], ["stop", "tiny"]);
    const { promptTokens, tokens, macroSteps, slots } = alone.stats;
    assert.deepEqual([usage.inputTokens, usage.outputTokens], [promptTokens, tokens]);
    assert.equal(usage.inputTokenDetails.cacheReadTokens, promptTokens - 1); // it was asked before
    for (const stats of [usage.raw, providerMetadata?.hamburger]) {
      assert.deepEqual([stats?.macroSteps, stats?.slots], [macroSteps, slots]);
    }
  });

  it("streams texts that join to it", async () => {
    const whole = await own.generate(prompt);
    const said = streamText({ model, prompt, includeRawChunks: true, maxRetries });
    const [texts, groups] = [[], []].map(() => /** @type {any[]} */ ([]));
    for await (const part of said.fullStream) {
      if (part.type === "text-delta") texts.push(part.text);
      if (part.type === "raw") groups.push([.../** @type {any} */ (part.rawValue).tokens]);
    }
    assert.equal(texts.join(""), whole.text);
    assert.ok(texts.length > 1);
    assert.deepEqual(groups, whole.groups);
    assert.deepEqual([await said.finishReason, (await said.usage).outputTokens], ["stop", whole.tokens.length]);
  });

  it("passes on the options of both", async () => {
    const options = { temperature: 0.9, topP: 0.9, topK: 20, seed: 7, presencePenalty: 0.1, frequencyPenalty: 0.2 };
    const alone = await own.generate(prompt, { ...options, maxTokens: 9, stop: ["zz"], mode: "plain" });
    const { text, finishReason, usage } = await generateText({
      model, prompt, ...options, maxOutputTokens: 9, stopSequences: ["zz"], maxRetries,
      providerOptions: { hamburger: { mode: "plain" } },
    });
    assert.equal(text, alone.text);
    assert.equal(finishReason, alone.finishReason === "length" ? "length" : "stop");
    assert.equal(usage.raw?.macroSteps, usage.outputTokens);
  });

  it("goes on with a conversation as the runtime does", async () => {
    const chat = own.chat({ system: "Be brief." });
    /** @type {import("ai").ModelMessage[]} */
    const messages = [{ role: "system", content: "Be brief." }];
    for (const content of [prompt, "Count from 3 to 12.", "List four animals."]) {
      for await (const _ of chat.send(content));
      messages.push({ role: "user", content });
      const { text, usage } = await generateText({ model, messages, allowSystemInMessages: true, maxRetries });
      assert.equal(text, chat.messages.at(-1)?.content);
      assert.ok(messages.length < 4 || Number(usage.inputTokenDetails.cacheReadTokens) > 20);
      messages.push({ role: "assistant", content: text });
    }
  });

  it("answers by a schema", async () => {
    const schema = z.object({ colour: z.enum(["red", "green"]), count: z.number().int().min(1).max(3) });
    for (const temperature of [0, 3]) {
      const { output } = await generateText({ model, prompt, temperature, seed: 1, output: Output.object({ schema }), maxRetries });
      assert.deepEqual(schema.parse(output), output);
    }
    const said = streamText({ model, prompt, output: Output.object({ schema }), maxRetries });
    const parts = [];
    for await (const part of said.partialOutputStream) parts.push(part);
    assert.deepEqual(parts.at(-1), await said.output);
  });

  const halve = tool({
    description: "half of a number",
    inputSchema: z.object({ number: z.number().int().min(0).max(99) }),
    execute: async ({ number }) => number / 2,
  });
  const LIST = /** @type {const} */ ({ type: "array", items: { enum: [1, 2] }, maxItems: 2 });
  const count = tool({
    inputSchema: /** @type {typeof jsonSchema<{list: number[]}>} */ (jsonSchema)({
      type: "object",
      properties: { list: { $ref: "#/$defs/list" } },
      required: ["list"],
      additionalProperties: false,
      $defs: { list: LIST },
    }),
    execute: async ({ list }) => list.length,
  });

  it("calls tools, whose results it reads", async () => {
    const tools = { halve, count };
    for (const toolName of /** @type {const} */ (["halve", "count"])) {
      const { toolCalls, toolResults, finishReason, text } = await generateText({
        model, prompt: "What is half of 8?", tools, toolChoice: { type: "tool", toolName }, maxRetries,
      });
      assert.deepEqual([finishReason, text, toolCalls.length, toolCalls[0].toolName], ["tool-calls", "", 1, toolName]);
      assert.equal(typeof toolResults[0].output, "number");
    }
    const { steps, text } = await generateText({
      model, prompt: "What is half of 8?", tools, toolChoice: "required", stopWhen: stepCountIs(2), maxRetries,
      prepareStep: ({ stepNumber }) => (stepNumber ? { toolChoice: "none" } : {}),
    });
    assert.deepEqual([steps.length, steps[0].toolCalls.length], [2, 1]);
    assert.ok(text);
  });

  it("streams a call when it is complete, and words as they come", async () => {
    const called = streamText({ model, prompt, tools: { halve }, toolChoice: "required", maxRetries });
    const types = [];
    for await (const { type } of called.fullStream) types.push(type);
    assert.ok(types.includes("tool-call") && types.includes("tool-result") && !types.includes("text-delta"));
    const said = streamText({ model, prompt, tools: { halve }, maxOutputTokens: 40, maxRetries });
    const [text, calls] = [await said.text, await said.toolCalls];
    assert.equal(Boolean(text), !calls.length);
  });

  it("is free again after an answer that was aborted", async () => {
    const control = new AbortController();
    const asked = { model, prompt: "Count from 3 to 12.", maxRetries };
    const ends = /** @type {string[]} */ ([]);
    const said = streamText({ ...asked, abortSignal: control.signal, onAbort: () => void ends.push("abort") });
    for await (const { type } of said.fullStream) if (type === "text-delta") control.abort();
    assert.deepEqual(ends, ["abort"]);
    await assert.rejects(generateText({ ...asked, abortSignal: AbortSignal.abort() }), { name: "AbortError" });
    const { stream } = await model.doStream({ prompt: [{ role: "user", content: [{ type: "text", text: prompt }] }] });
    const reader = stream.getReader();
    await reader.read();
    await reader.cancel(); // who reads no further
    assert.ok((await generateText({ model, prompt, maxRetries })).text);
  });

  it("makes one answer after the other, even if nobody reads the first", async () => {
    const forgotten = streamText({ model, prompt: "Count from 3 to 12.", maxRetries });
    const texts = await Promise.all([1, 2].map(async () => (await generateText({ model, prompt, maxRetries })).text));
    assert.deepEqual(texts, Array(2).fill((await own.generate(prompt)).text));
    assert.equal(await forgotten.text, (await own.generate("Count from 3 to 12.")).text);
  });

  it("refuses in a line what it cannot do", async () => {
    const file = { type: /** @type {const} */ ("file"), mediaType: "image/png", data: new Uint8Array(1) };
    for (const [asked, message] of /** @type {[any, RegExp][]} */ ([
      [{ prompt, providerOptions: { hamburger: { confidence: 2 } } }, /confidence must be from 0 to 1/],
      [{ prompt, providerOptions: { hamburger: { speed: 2 } } }, /unknown option "speed"/],
      [{ messages: [{ role: "user", content: [file] }] }, /a file of type image\/png: this model reads text alone/],
      [{ messages: [{ role: "user", content: "a" }, { role: "assistant", content: "b" }] }, /the last message must be of the user/],
      [{ prompt, output: Output.object({ schema: z.object({ a: z.string().startsWith("b").max(2) }) }) }, /not supported/],
    ])) {
      await assert.rejects(generateText({ model, maxRetries, ...asked }), (error) => {
        assert.ok(error instanceof InputError, String(error));
        assert.match(error.message, message);
        return true;
      });
    }
  });
});
