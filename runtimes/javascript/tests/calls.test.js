// Calls of a model's tools. That they are Python's is for the tests of the repository.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { generateText, jsonSchema, stepCountIs, streamText, tool as sdkTool } from "ai";
import { languageModel } from "../ai-sdk/index.js";
import { limited, readTools } from "../calls/catalogue.js";
import { parseCalls } from "../calls/compact_form.js";
import { InputError } from "../errors.js";
import { scripted } from "./scripted_backend.js";

const STRING = { type: "string" };

/** @param {string} name @param {Record<string, object>} properties @param {string[]} [required] */
const tool = (name, properties, required = []) =>
  /** @type {const} */ ({ type: "function", function: { name, parameters: { type: "object", properties, required } } });

const TOOLS = [
  tool("on", { area: STRING, name: STRING }),
  tool("dim", { area: STRING, level: { type: "integer", minimum: 0, maximum: 100 } }, ["level"]),
  tool("add", { items: { type: "array", items: STRING }, room: { type: ["string", "null"] } }, ["items", "room"]),
];
const READ = readTools(TOOLS);

/** @param {string} text */
const calls = (text) => parseCalls(text, READ, null).map(({ name, arguments: given }) => [name, given]);

describe("the compact form", () => {
  it("has required values first and escapes its marks", () => {
    assert.deepEqual(calls("-"), []);
    assert.deepEqual(calls("dim 50; area a\\;b\non"), [["dim", { area: "a;b", level: 50 }], ["on", {}]]);
    assert.deepEqual(calls("add a\\, b, \\[c; room x"), [["add", { items: ["a, b", "[c"], room: "x" }]]);
    assert.deepEqual(calls("add []"), [["add", { items: [], room: null }]]);
  });

  it("returns an allowed name as it is listed", () => {
    const tools = limited(READ, { names: { area: ["Kids Room"] } });
    assert.deepEqual(parseCalls("on area kids room", tools, 0.5), [{ name: "on", arguments: { area: "Kids Room" }, certainty: 0.5 }]);
  });
});

describe("a model with tools", () => {
  // of its letters alone: names, and text without a space
  const info = { vocabSize: 29, tools: [tool("on", {}), tool("off", {})] };

  it("answers with their calls, and the only way on needs no model", async () => {
    const { model } = scripted("zf");
    await assert.rejects(model.call("x"), /this model has no tools to call: make one with .* tune --tools/);
    const own = scripted("fzz", info).model;
    const stream = own.stream("x", { calls: { required: true, several: false } });
    for await (const _ of stream);
    assert.deepEqual([stream.text, stream.complete, stream.stats.forcedTokens], ["off", true, 2]);
    assert.deepEqual(own.tools.map(({ function: { name } }) => name), ["on", "off"]);
  });

  it("keeps to the limits of a request", async () => {
    const options = /** @type {const} */ ({ required: true, several: false });
    const called = await scripted("fzz", info).model.call("x", { ...options, tools: ["on"] });
    assert.deepEqual(called, [{ name: "on", arguments: {}, certainty: null }]);
    /** @type {[any, RegExp][]} */
    const refused = [
      [{ tools: ["fly"] }, /tools: there is no tool "fly" \(known: on, off\)/],
      [{ names: { area: ["x"] } }, /names: no argument "area" takes a text \(known: none\)/],
      [{ names: { area: [] } }, /names: area must be a list of texts/],
    ];
    for (const [given, message] of refused) {
      await assert.rejects(scripted("z", info).model.call("x", given), (error) => error instanceof InputError && message.test(error.message));
    }
  });

  it("gives the AI SDK its calls, and shows a tool's result without another one", async () => {
    const own = scripted("fzzzzzz", info).model;
    const execute = async () => "done";
    const nothing = jsonSchema({ type: "object", properties: {} });
    const tools = { on: sdkTool({ inputSchema: nothing, execute }), off: sdkTool({ inputSchema: nothing, execute }) };
    const options = { model: languageModel(own), prompt: "x", maxRetries: 0, maxOutputTokens: 3 };
    const { steps, text, usage } = await generateText({ ...options, tools, stopWhen: stepCountIs(2) });
    assert.deepEqual([usage.inputTokens, usage.outputTokens], [0, 0]); // of the last step
    assert.deepEqual(steps.map(({ toolCalls }) => toolCalls.map(({ toolName }) => toolName)), [["off"], []]);
    assert.deepEqual([text, steps[0].finishReason, steps[1].finishReason], ["done", "tool-calls", "stop"]);
    /** @returns {Promise<string>} */
    const fail = async () => Promise.reject(new Error("stuck"));
    const failing = { ...tools, off: sdkTool({ inputSchema: nothing, execute: fail }) };
    const failed = await generateText({ ...options, model: languageModel(scripted("fzzz", info).model), tools: failing, stopWhen: stepCountIs(2) });
    assert.match(failed.text, /stuck/);
    const other = { fly: sdkTool({ inputSchema: nothing, execute }) };
    await assert.rejects(generateText({ ...options, tools: other }), /tools: there is no tool "fly" \(known: on, off\)/);
  });

  it("fills the answer templates of its tools", async () => {
    const template = "It is {temperature} in {city}[ on {day}].";
    const tools = [{ ...tool("on", { city: STRING, day: STRING }, ["city"]), answer: template }, tool("off", {})];
    const own = scripted("fzzz", { ...info, tools: [{ ...tool("off", {}), answer: "{temperature} degrees." }, tool("on", {})] }).model;
    const { model } = scripted("", { ...info, tools });
    const calls = ["{}", '{"day":"Monday"}'].map((more) => ({ name: "on", arguments: { city: "Oslo", ...JSON.parse(more) } }));
    const results = [{ temperature: 1e-5 }, '{"temperature": 21.0, "city": "Bergen"}'];
    assert.equal(model.resultText(calls, results), "It is 0.00001 in Oslo.\nIt is 21 in Bergen on Monday.");
    const off = { name: "off", arguments: {} };
    assert.equal(model.resultText([off, calls[0], off], [null, "no such city", [1, "a"]]), "\nno such city\n1, a");
    assert.throws(() => model.resultText([calls[0]], [{ warmth: 3 }]), /on: its answer template needs {temperature}, and the result/);
    assert.throws(() => model.resultText(calls, []), /there are 2 calls and 0 results/);
    const nothing = jsonSchema({ type: "object", properties: {} });
    const sdk = { off: sdkTool({ inputSchema: nothing, execute: async () => ({ temperature: 21 }) }) };
    const streamed = streamText({ model: languageModel(own), prompt: "x", tools: sdk, maxRetries: 0, maxOutputTokens: 3, stopWhen: stepCountIs(2) });
    assert.equal(await streamed.text, "21 degrees.");
  });
});
