// What an application meets: answers, stopping them, conversations, and what is refused.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as errors from "../errors.js";
import { END, ids, scripted } from "./scripted_backend.js";

/** @import { Chunk } from "../index.js" */

/** @param {AsyncIterable<Chunk>} stream */
async function read(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

describe("an answer", () => {
  it("comes in groups, each of which is fed as one slot", async () => {
    const { model, backend } = scripted("abcde.");
    const { groups, text, finishReason, stats } = await model.generate("xy", { raw: true });
    assert.deepEqual(groups, [ids("abc"), ids("de.")]);
    assert.equal(text, "abcde");
    assert.equal(finishReason, "eos");
    assert.deepEqual(backend.fed, [[ids("x"), ids("y")], [ids("abc")]]);
    assert.deepEqual([stats.promptTokens, stats.tokens, stats.macroSteps, stats.microSteps], [2, 6, 2, 4]);
    assert.equal(stats.baseCalls, 1);
    assert.equal(stats.tokensPerStep, 3);
  });

  it("takes the mode and the confidence that the model recommends, where neither is asked for", async () => {
    const info = { recommended: { mode: /** @type {const} */ ("merge"), confidence: 1 } };
    assert.equal((await scripted("abc.", info).model.generate("x")).groups.length, 4);
    assert.equal((await scripted("abc.", info).model.generate("x", { confidence: 0.2 })).groups.length, 2);
  });

  it("ends before a stop string, wherever that is cut into groups", async () => {
    const { model, backend } = scripted("abcdefg.");
    const { text, tokens, finishReason } = await model.generate("x", { stop: ["zz", "cd"] });
    assert.deepEqual([text, tokens, finishReason], ["ab", ids("abcd"), "stop"]);
    assert.deepEqual(backend.fed.at(-1), [ids("abc")]);
  });

  it("ends by maxTokens, and for want of slots", async () => {
    assert.equal((await scripted("abcdefg.").model.generate("x", { maxTokens: 4 })).finishReason, "length");
    const { tokens, finishReason } = await scripted("abcdefgh.", { cacheSlots: 2 }).model.generate("x");
    assert.deepEqual([tokens, finishReason], [ids("abcdef"), "context"]);
  });

  it("is ended by a signal, by cancel, and by leaving the loop; the next one is answered", async () => {
    const { model, backend } = scripted("abcdefghi.");
    const control = new AbortController();
    const chunks = [];
    for await (const chunk of model.stream("x", { signal: control.signal })) {
      chunks.push(chunk);
      control.abort();
    }
    assert.deepEqual(chunks.map(({ finishReason }) => finishReason), [null, "cancelled"]);
    const stream = model.stream("x");
    for await (const _ of stream) break;
    assert.equal(stream.finishReason, "cancelled");
    backend.onMacro = () => model.cancel();
    assert.equal((await model.generate("x", { reusePrefix: false })).finishReason, "cancelled");
    backend.onMacro = null;
    assert.ok((await model.generate("x")).tokens.length);
  });

  it("that is cancelled in the middle of a step has all of its text", async () => {
    const { model, backend } = scripted("abcdef.");
    const micro = backend.micro.bind(backend);
    backend.micro = () => (model.cancel(), micro());
    const { text, tokens, finishReason } = await model.generate("x", { stop: ["cz"] });
    assert.deepEqual([text, tokens, finishReason], ["abc", ids("abc"), "cancelled"]);
    const chat = model.chat({ stop: ["fz"] }); // which may go on
    await read(chat.send("x"));
    assert.deepEqual([chat.messages.at(-1)?.text, chat.isUnfinished], ["de", true]);
    backend.micro = micro;
    await read(chat.continueAnswer());
    assert.equal(chat.messages.at(-1)?.text, "def");
  });

  it("that was aborted before it began says nothing", async () => {
    const { model, backend } = scripted("abc.");
    const { tokens, finishReason } = await model.generate("x", { signal: AbortSignal.abort() });
    assert.deepEqual([tokens, finishReason, backend.fed], [[], "cancelled", []]);
  });

  it("shuts others out while it is being made, and ends when the model is closed", async () => {
    const { model, backend } = scripted("abcdefghi.");
    const stream = model.stream("x");
    await stream.next();
    await assert.rejects(model.generate("y"), errors.BusyError);
    await model.close();
    assert.ok(backend.isClosed);
    assert.equal(stream.finishReason, "cancelled");
    assert.ok((await stream.next()).done);
    await assert.rejects(model.generate("y"), /closed: load it again/);
    await model.close();
  });

  it("that fails in the middle leaves a model that answers", async () => {
    const { model, backend } = scripted("abcdefghi.");
    backend.onMacro = () => {
      if (backend.fed.length === 1) throw new errors.RuntimeFailureError("no memory");
    };
    await assert.rejects(model.generate("x"), errors.RuntimeFailureError);
    backend.onMacro = null;
    assert.ok((await model.generate("x")).tokens.length);
  });

  it("goes on with messages as a conversation does, in the same slots", async () => {
    const { model, backend } = scripted("abcd.ef.", { eosIds: [END] }, { before_user: "u", after_answer: "<end>" });
    const messages = [{ role: /** @type {const} */ ("user"), text: "x" }];
    const { text } = await model.generate(messages);
    const more = [...messages, { role: /** @type {const} */ ("assistant"), text }, { role: /** @type {const} */ ("user"), text: "y" }];
    assert.equal((await model.generate(more)).text, "ef");
    assert.deepEqual(backend.fed, [[ids("u"), ids("x")], [ids("abc")], [ids("d"), ids("."), ids("u"), ids("y")]]);
    for (const [wrong, named] of /** @type {[any[], RegExp][]} */ ([
      [more.slice(0, 2), /last one of the user/],
      [more.slice(1), /in turn/],
      [[{ role: "user", text: "" }], /message 1 of the user is empty/],
      [[{ role: "system", text: "x" }], /in turn/],
    ])) assert.throws(() => model.stream(wrong), { name: "InputError", message: named });
  });

  it("begins where the cache already holds its prompt", async () => {
    const { model } = scripted("abc.def.");
    await model.generate("xyz", { raw: true });
    assert.equal((await model.generate("xyw", { raw: true })).stats.reusedTokens, 2);
  });
});

describe("a conversation", () => {
  it("feeds what is new, and the answer in its groups", async () => {
    const { model, backend } = scripted("abcd.ef.");
    const chat = model.chat();
    await read(chat.send("x"));
    await read(chat.send("y"));
    assert.deepEqual(backend.fed, [[ids("x")], [ids("abc")], [ids("d."), ids("y")]]);
    assert.deepEqual(chat.messages.map(({ text }) => text), ["x", "abcd", "y", "ef"]);
  });

  it("writes an end token once if the answer ended with it", async () => {
    for (const [script, eosIds, expected] of /** @type {const} */ ([
      ["ab.c.", [END], "y"], // the markup's end token is there already
      ["abcz.", [END], ".y"], // the answer was cut before it
      ["ab.c.", [], ".y"], // and this one is no end token
    ])) {
      const { model, backend } = scripted(script, { eosIds }, { after_answer: "<end>" });
      const chat = model.chat({ maxTokens: 3 });
      await read(chat.send("x"));
      await read(chat.send("y"));
      const fed = backend.fed.flat();
      assert.deepEqual(fed.slice(2, 2 + expected.length), ids(expected).map((token) => [token]));
    }
  });

  it("goes on with an answer that was cut, and begins anew", async () => {
    const { model } = scripted("abcdefg.xyz.");
    const chat = model.chat();
    await assert.rejects(async () => read(chat.continueAnswer()), /no unfinished answer/);
    await read(chat.send("x", { maxTokens: 2 }));
    assert.ok(chat.isUnfinished);
    await read(chat.continueAnswer());
    assert.equal(chat.messages.at(-1)?.text, "abcdefg");
    chat.reset();
    assert.deepEqual([chat.messages, chat.groups], [[], []]);
  });

  it("whose turn is cancelled before its answer began never had it", async () => {
    const { model } = scripted("ab.cd.");
    const chat = model.chat();
    await read(chat.send("x"));
    await read(chat.send("y", { signal: AbortSignal.abort() }));
    assert.equal(chat.messages.length, 2);
    assert.throws(() => chat.send(""), errors.InputError);
  });

  it("keeps its options but for those that are changed", () => {
    const chat = scripted("ab.").model.chat({ temperature: 1, topK: 3, seed: 4 });
    chat.configure({ topK: 5, confidence: undefined });
    assert.deepEqual([chat.settings.options.topK, chat.settings.options.temperature, chat.seed], [5, 1, 4n]);
    assert.throws(() => chat.configure({ topK: -1 }), /topK/);
    assert.equal(chat.settings.options.topK, 5);
  });
});

describe("what is refused", () => {
  const { model } = scripted("ab.");
  for (const [options, named] of /** @type {[any, RegExp][]} */ ([
    [{ confidence: 2 }, /confidence must be from 0 to 1, got 2/],
    [{ mode: "hope" }, /mode/],
    [{ maxTokens: 0 }, /maxTokens/],
    [{ temperature: NaN }, /temperature.*NaN/],
    [{ topP: 0 }, /topP must be above 0/],
    [{ topK: 1.5 }, /topK/],
    [{ stop: [""] }, /stop/],
    [{ suppressTokens: "abc" }, /suppressTokens/],
    [{ suppressTokens: [28] }, /token 28 .* vocabulary of 28/],
    [{ logitBias: { a: 1 } }, /logitBias token/],
    [{ seed: -1 }, /seed/],
    [{ seed: 2 ** 60 }, /seed.*bigint/],
    [{ seed: 2n ** 64n }, /seed/],
    [{ max_tokens: 3 }, /unknown option "max_tokens" \(known: maxTokens/],
    [{ signal: 3 }, /AbortController/],
    [{ raw: 1 }, /raw/],
  ])) {
    it(named.source, () => assert.throws(() => model.stream("x", options), { name: "InputError", message: named }));
  }

  it("a prompt that is none, or does not fit", async () => {
    assert.throws(() => model.stream(""), /empty/);
    assert.throws(() => model.stream("\ud800"), /half a character/);
    assert.throws(() => model.stream([99]), /a token must be/);
    assert.throws(() => model.stream(/** @type {any} */ (null)), /text, messages or token ids/);
    await assert.rejects(model.generate([]), /empty/);
    await assert.rejects(model.generate("x".repeat(101)), errors.ContextFullError);
    await assert.rejects(scripted("ab.", { cacheSlots: 3 }).model.generate("xxxx"), /4 slots but the cache holds 3/);
  });

  it("scores that are no numbers", async () => {
    const { model, backend } = scripted("ab.");
    const macro = backend.macro.bind(backend);
    backend.macro = async (...given) => {
      const readout = await macro(...given);
      readout.logits[0][7] = NaN;
      return readout;
    };
    await assert.rejects(model.generate("x"), errors.CheckpointError);
  });
});
