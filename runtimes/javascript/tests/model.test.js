// What an application meets: answers, stopping them, conversations, and what is refused.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as errors from "../errors.js";
import { END, ids, indexOf, scripted } from "./scripted_backend.js";

/** @import { Chunk, Message, Prompt } from "../index.js" */

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

  it("makes no micro steps and merges nothing where groups have one token", async () => {
    const info = { maxGroupTokens: 1 };
    const { model, backend } = scripted("abc.", info);
    assert.equal((await model.generate("x", { mode: "merge", confidence: 0.2, raw: true })).text, "abc");
    assert.deepEqual(backend.fed, [..."xabc"].map((token) => [ids(token)]));
    const hybrid = scripted("abcd.", { ...info, draftIndex: indexOf("abcd") });
    assert.equal((await hybrid.model.generate("xy", { mode: "hybrid", confidence: 0.5, raw: true })).text, "abcd");
    assert.deepEqual(hybrid.backend.fed[0], [..."xyabcd"].map(ids));
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

  it("checks guesses in the call that reads the prompt, up to the first token that edits refuse", async () => {
    const { model, backend } = scripted("abc.", { editsPrompt: true, draftIndex: indexOf("abzzzzzz") });
    const { text } = await model.generate("abc", { mode: "verify", confidence: 0.5 });
    assert.equal(text, "abc");
    assert.deepEqual(backend.fed[0].flat(), ids("abcabzz")); // a third z would exceed the budget
  });

  it("merges no guess in a first call whose positions must have no gaps", async () => {
    const draftIndex = indexOf("abcd");
    for (const firstCallHasNoGaps of [false, true]) {
      const { model, backend } = scripted("abcd.", { draftIndex, firstCallHasNoGaps });
      await model.generate("xy", { mode: "hybrid", confidence: 0.5, raw: true });
      assert.deepEqual(backend.fed[0], ["x", "y", ...(firstCallHasNoGaps ? [] : ["abc", "d"])].map(ids));
      const verified = scripted("abcd.", { draftIndex, firstCallHasNoGaps });
      assert.equal((await verified.model.generate("xy", { mode: "verify", raw: true })).text, "abcd");
      assert.deepEqual(verified.backend.fed[0], [..."xyabcd"].map(ids));
    }
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
    assert.deepEqual([chat.messages.at(-1)?.content, chat.unfinished], ["de", true]);
    backend.micro = micro;
    await read(chat.continueAnswer());
    assert.equal(chat.messages.at(-1)?.content, "def");
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
    /** @type {Message[]} */
    const messages = [{ role: "user", content: "x" }];
    const { text } = await model.generate({ messages });
    messages.push({ role: "assistant", content: text }, { role: "user", content: "y" });
    assert.equal((await model.generate({ messages })).text, "ef");
    assert.deepEqual(backend.fed, [[ids("u"), ids("x")], [ids("abc")], [ids("d"), ids("."), ids("u"), ids("y")]]);
  });

  it("takes a system's message as a system text", async () => {
    const said = [];
    for (const [prompt, options] of /** @type {[Prompt, object][]} */ ([
      [{ messages: [{ role: "system", content: "z" }, { role: "user", content: "x" }] }, {}],
      [{ messages: [{ role: "user", content: "x" }] }, { system: "z" }],
      ["x", { system: "z" }],
    ])) {
      const { model, backend } = scripted("abcd.", {}, { before_user: "u", before_system: "s" });
      await model.stream(prompt, options).result();
      said.push(backend.fed[0].flat());
    }
    assert.deepEqual(said, Array(3).fill(ids("szux")));
  });

  it("refuses messages that are no conversation", () => {
    const { model } = scripted("ab.");
    const [user, assistant] = [{ role: "user", content: "x" }, { role: "assistant", content: "y" }];
    for (const [wrong, named] of /** @type {[any, RegExp][]} */ ([
      [{ messages: [user, assistant] }, /last message must be of the user/],
      [{ messages: [assistant] }, /messages\[0\]: a message of the user must come before/],
      [{ messages: [user, user] }, /messages\[1\]: a message of the assistant must come before/],
      [{ messages: [{ role: "user", content: "" }] }, /messages\[0\] is empty: say something/],
      [{ messages: [{ role: "user", text: "x" }] }, /messages\[0\] must have a role and a content and nothing else/],
      [{ messages: [{ role: "tool", content: "x" }] }, /messages\[0\].role must be system, user, assistant, got "tool"/],
      [{ messages: [user, { role: "system", content: "z" }] }, /messages\[1\]: the system's message must be the first/],
      [{ messages: [{ role: "user", content: 3 }] }, /messages\[0\].content: expected text, got 3/],
      [{ messages: "x" }, /messages must be an array/],
      [{ messages: [user], maxTokens: 3 }, /"maxTokens" stands beside messages: options are the second argument/],
      [[user], /an array of messages goes into an object: \{ messages: \[...\] \}/],
    ])) assert.throws(() => model.stream(wrong), { name: "InputError", message: named });
    assert.throws(() => model.stream({ messages: [{ role: "system", content: "z" }] }, { system: "z" }), /leave system out/);
    assert.throws(() => model.stream({ messages: [{ role: "user", content: "x" }] }, { raw: true }), /leave raw out/);
    assert.throws(() => model.chat({ messages: [{ role: "user", content: "x" }] }), /give it to send/);
  });

  it("is read to its end by result, also when its beginning was read already", async () => {
    const { model } = scripted("abcde.");
    const stream = model.stream("x", { raw: true });
    assert.deepEqual((await stream.next()).value?.tokens, ids("abc"));
    const { text, tokens, groups, finishReason, complete } = await stream.result();
    assert.deepEqual([text, tokens, groups], ["abcde", ids("abcde."), [ids("abc"), ids("de.")]]);
    assert.deepEqual([finishReason, complete], ["eos", null]);
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
    assert.deepEqual(chat.messages.map(({ content }) => content), ["x", "abcd", "y", "ef"]);
  });

  it("that is longer than the context goes on without its oldest turns", async () => {
    const { model, backend } = scripted("ab.cd.ef.gh.", { contextLength: 12, cacheSlots: 12 });
    const chat = model.chat();
    for (const text of ["x", "y", "z"]) await read(chat.send(text));
    assert.equal(chat.forgotten, 0);
    await read(chat.send("w"));
    assert.equal(chat.forgotten, 4);
    assert.deepEqual(backend.fed.at(-1)?.flat(), ids("zefw"));
    assert.deepEqual(chat.messages.map(({ content }) => content), ["x", "ab", "y", "cd", "z", "ef", "w", "gh"]);
    chat.reset();
    assert.equal(chat.forgotten, 0);
  });

  it("of a task model feeds each message without earlier ones", async () => {
    const { model, backend } = scripted("ab.cd.", { eosIds: [END] }, { before_user: "u", after_user: "q", after_answer: "<end>" });
    const chat = model.chat();
    await read(chat.send("x"));
    await read(chat.send("y"));
    assert.ok(model.isTask);
    assert.deepEqual(chat.groups.flat(), ids("uyqcd."));
    assert.deepEqual(chat.messages.map(({ content }) => content), ["x", "ab", "y", "cd"]);
    assert.deepEqual(backend.fed.at(-1)?.flat(), ids("yq")); // the first mark is in the cache already
  });

  it("begins with a system text, and continues messages, to which reset returns", async () => {
    const { model, backend } = scripted("cd.cd.", { eosIds: [END] }, { before_user: "u", before_system: "s", after_answer: "<end>" });
    const messages = [{ role: /** @type {const} */ ("user"), content: "x" }, { role: /** @type {const} */ ("assistant"), content: "ab" }];
    const chat = model.chat({ system: "z", messages, maxTokens: 2 });
    await read(chat.send("y"));
    assert.deepEqual(backend.fed[0].flat(), ids("szuxab.uy"));
    assert.deepEqual(chat.messages.map(({ content }) => content), ["x", "ab", "y", "cd"]);
    chat.reset();
    assert.deepEqual(chat.messages, messages);
    assert.equal(model.chat("z", { maxTokens: 2 }).system, "z");
    assert.equal(model.chat("z", { maxTokens: 2 }).settings.maxTokens, 2);
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
    assert.ok(chat.unfinished);
    await read(chat.continueAnswer());
    assert.equal(chat.messages.at(-1)?.content, "abcdefg");
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
    [{ logitBias: { 28: -100 } }, /token 28 .* vocabulary of 28/],
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
    assert.throws(() => model.stream(/** @type {any} */ (null)), /text, \{ messages \} or token ids, got null/);
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
