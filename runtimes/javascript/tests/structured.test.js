// Answers held to a structure. That they are Python's is for the tests of the repository.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { InputError } from "../errors.js";
import { ids, scripted } from "./scripted_backend.js";

describe("a structured answer", () => {
  it("has its forced tokens without the model, read together with what comes before", async () => {
    const { model, backend } = scripted("d");
    const stream = model.stream("x", { regex: "ab(c|d)ef" });
    const groups = [];
    for await (const { tokens } of stream) groups.push(tokens);
    assert.deepEqual(groups.flat(), ids("abdef"));
    assert.deepEqual([stream.text, stream.finishReason, stream.isComplete], ["abdef", "stop", true]);
    assert.deepEqual(backend.fed, [[ids("x"), ids("a"), ids("b")]]);
    assert.deepEqual([stream.stats.forcedTokens, stream.stats.baseCalls], [4, 0]);
  });

  it("takes what is allowed, and is not complete where it was cut", async () => {
    const { model } = scripted("zzzz");
    const stream = model.stream("x", { regex: "[a-c]{3,5}", maxTokens: 2, temperature: 1, seed: 1 });
    for await (const _ of stream);
    assert.match(stream.text, /^[a-c]{2}$/);
    assert.deepEqual([stream.finishReason, stream.isComplete], ["length", false]);
  });

  it("may be one answer of a conversation, and goes on where it was cut", async () => {
    const chat = scripted("bhi.").model.chat();
    for await (const _ of chat.send("x", { regex: "[ab]cdefg", maxTokens: 3 }));
    assert.equal(chat.messages.at(-1)?.text, "bcd");
    for await (const _ of chat.proceed());
    assert.equal(chat.messages.at(-1)?.text, "bcdefg");
    for await (const _ of chat.send("y"));
    assert.equal(chat.messages.at(-1)?.text, "hi");
  });

  it("is refused in one line, and the model is free afterwards", async () => {
    const { model } = scripted("za."); // one is looked at in vain
    assert.throws(() => model.stream("x", { regex: "a", grammar: "b" }), /give one of regex and grammar/);
    assert.throws(() => model.stream("x", { jsonSchema: "{" }), /jsonSchema is not plain JSON/);
    assert.throws(() => model.stream("x", { jsonSchema: [] }), /jsonSchema must be an object/);
    assert.throws(() => model.stream("x", { regex: " " }), /regex must be a text that says something/);
    assert.throws(() => model.stream("x", { regex: "a".repeat(70_000) }), /at most 65536 are taken/);
    await assert.rejects(model.generate("x", { regex: "[a" }), InputError);
    await assert.rejects(model.generate("x", { regex: "ab", banned: ids("b") }), /which is banned: allow it/);
    await assert.rejects(model.generate("x", { regex: "[ab]c", banned: ids("ab") }), /leaves no token here that is not banned/);
    assert.equal((await model.generate("x")).text, "a");
    assert.equal((await model.generate("x", { regex: "b" })).text, "b");
  });
});
