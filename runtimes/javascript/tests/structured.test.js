// Answers held to a structure. That they are Python's is for the tests of the repository.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { InputError } from "../errors.js";
import { PATTERNS } from "../structured/formats.js";
import { Grammars } from "../structured/grammar.js";
import { rewritten } from "../structured/rewriting.js";
import { Vocabulary } from "../structured/vocabulary.js";
import { ids, scripted } from "./scripted_backend.js";

describe("a structured answer", () => {
  it("has its forced tokens without the model, read together with what comes before", async () => {
    const { model, backend } = scripted("d");
    const stream = model.stream("x", { regex: "ab(c|d)ef" });
    const groups = [];
    for await (const { tokens } of stream) groups.push(tokens);
    assert.deepEqual(groups.flat(), ids("abdef"));
    assert.deepEqual([stream.text, stream.finishReason, stream.complete], ["abdef", "stop", true]);
    assert.deepEqual(backend.fed, [[ids("x"), ids("a"), ids("b")]]);
    assert.deepEqual([stream.stats.forcedTokens, stream.stats.baseCalls], [4, 0]);
  });

  it("merges behind a forced token by what the base said of it", async () => {
    const groupsAt = async (/** @type {number} */ confidence, /** @type {string} */ script) => {
      const chat = scripted(script).model.chat({ mode: "hybrid", confidence });
      for await (const _ of chat.send("x", { regex: "[yz]a[b-d]{2}" }));
      return chat.groups.slice(1);
    };
    // 0.9 is as sure as 0.7 ** (1 / 3), for each of three tokens, and not as 0.8 ** (1 / 3)
    assert.deepEqual(await groupsAt(0.7, "zzbc"), [ids("z"), ids("ab"), ids("c")]);
    assert.deepEqual(await groupsAt(0.8, "zzbbc"), [ids("z"), ids("a"), ids("b"), ids("c")]);
  });

  it("says all of its text when it ends, even what could begin a stop string", async () => {
    const chat = scripted("z").model.chat({ stop: ["bz"] });
    for await (const _ of chat.send("x", { regex: "ab" }));
    assert.deepEqual([chat.messages.at(-1)?.content, chat.unfinished], ["ab", false]);
  });

  it("may have a draft that would need a banned token", async () => {
    const { model } = scripted("acdz"); // the micro step says c, where the base says d
    const options = /** @type {const} */ ({ regex: "[ab](cx|dy)", logitBias: Object.fromEntries(ids("x").map((token) => [token, -100])), mode: "verify", confidence: 0.5 });
    assert.equal((await model.generate("x", options)).text, "ady");
  });

  it("may be words instead, where that is allowed", async () => {
    const options = { jsonSchema: { type: "boolean" }, allowText: true };
    const { model } = scripted("abc.");
    assert.equal((await model.generate("x", options)).text, "abc");
    await assert.rejects(async () => model.generate("x", { regex: "a", allowText: true }), /allowText stands beside a jsonSchema/);
  });

  it("has only bytes that make up characters", async () => {
    const bytes = [...Array(256).keys()];
    const vocabulary = new Vocabulary(/** @type {any} */ ({ bytes: (/** @type {number[]} */ ids) => Uint8Array.from(ids) }), 256, []);
    const after = (/** @type {number} */ byte) =>
      bytes.filter((id) => ((vocabulary.following(byte)?.[id >> 5] ?? -1) >>> (id & 31)) & 1);
    assert.equal(vocabulary.following(0xe3), null);
    for (const [lead, low, high] of [[0xe0, 0xa0, 0xbf], [0xed, 0x80, 0x9f], [0xf0, 0x90, 0xbf], [0xf4, 0x80, 0x8f]]) {
      assert.deepEqual(after(lead), bytes.slice(low, high + 1));
    }
  });

  it("takes what is allowed, and is not complete where it was cut", async () => {
    const { model } = scripted("zzzz");
    const stream = model.stream("x", { regex: "[a-c]{3,5}", maxTokens: 2, temperature: 1, seed: 1 });
    for await (const _ of stream);
    assert.match(stream.text, /^[a-c]{2}$/);
    assert.deepEqual([stream.finishReason, stream.complete], ["length", false]);
  });

  it("may be one answer of a conversation, and goes on where it was cut", async () => {
    const chat = scripted("bhi.").model.chat();
    for await (const _ of chat.send("x", { regex: "[ab]cdefg", maxTokens: 3 }));
    assert.equal(chat.messages.at(-1)?.content, "bcd");
    for await (const _ of chat.continueAnswer());
    assert.equal(chat.messages.at(-1)?.content, "bcdefg");
    for await (const _ of chat.send("y"));
    assert.equal(chat.messages.at(-1)?.content, "hi");
  });

  it("is not made of a schema that would be followed in part, unless that is asked for", async () => {
    const { model } = scripted("");
    const tags = { type: "array", items: { enum: ["a"] }, uniqueItems: true };
    /** @type {[object, RegExp][]} */
    const refused = [
      [{ properties: { tags } }, /"uniqueItems" \(at #\/properties\/tags\) is not supported: leave it out, or set strict to false/],
      [{ items: { type: "string", format: "colour" } }, /format "colour" \(at #\/items\) is not supported/],
      [{ type: "string", pattern: "a", maxLength: 3 }, /"maxLength" \(at #\) is not supported/],
      [{ type: "string", enum: ["a", 1] }, /"type" \(at #\) is not supported/],
      [{ type: "number", exclusiveMinimum: 0 }, /"exclusiveMinimum" \(at #\) is not supported/],
      [{ minimum: 3 }, /"minimum" \(at #\) is not supported/],
      [{ type: "object", required: ["a"] }, /"required" \(at #\) is not supported/],
      [{ anyOf: [{ const: 1 }], not: { const: 2 } }, /"not" \(at #\) is not supported/],
      [{ $defs: { a: { allOf: [{}, {}] } } }, /allOf of several schemas \(at #\/\$defs\/a\) is not supported/],
      [{ oneOf: [{ const: 1 }] }, /oneOf, whose alternatives may overlap, \(at #\) is not supported/],
    ];
    for (const [jsonSchema, message] of refused) await assert.rejects(model.generate("x", { jsonSchema }), message);
    const deep = `${'{"items":'.repeat(70)}{}${"}".repeat(70)}`;
    await assert.rejects(model.generate("x", { jsonSchema: { schema: deep, strict: false } }), /more than 64 levels/);
    const yes = { type: "boolean", const: true };
    assert.equal((await model.generate("x", { jsonSchema: { schema: { ...yes, uniqueItems: true }, strict: false } })).text, "true");
    for (const jsonSchema of [yes, { $ref: "#/$defs/yes", $defs: { yes } }]) {
      assert.equal((await model.generate("x", { jsonSchema })).text, "true");
    }
  });

  it("names days of the calendar alone", () => {
    const pattern = new RegExp(PATTERNS.date);
    const found = (/** @type {string} */ day) => !Number.isNaN(Date.parse(day)) && new Date(day).toISOString().startsWith(day);
    for (let year = 1; year < 10_000; year++) {
      const day = `${String(year).padStart(4, "0")}-02-29`;
      assert.equal(pattern.test(day), found(day), day);
    }
    assert.equal(pattern.test("0000-11-11"), false);
    const named = { properties: { const: { format: "date" } }, const: { format: "time" }, pattern: "a", format: "time" };
    assert.deepEqual(rewritten(named), {
      properties: { const: { pattern: PATTERNS.date } }, const: { format: "time" }, pattern: PATTERNS.time,
    });
  });

  it("ends an integer without limits, whose digit a model may repeat until its tokens end", async () => {
    const letters = [...'0123456789-[]{}":, nul'];
    const bytes = (/** @type {number[]} */ [id]) => new TextEncoder().encode(letters[id] ?? "");
    const encodeParts = (/** @type {string[][]} */ [[text]]) => Array.from(text, (letter) => letters.indexOf(letter));
    const tokenizer = /** @type {any} */ ({ bytes, encodeParts });
    const grammars = new Grammars(tokenizer, letters.length + 1, [letters.length]);
    const integer = { type: "integer" };
    for (const schema of [
      integer,
      { ...integer, description: "of tea", default: 2 },
      { type: ["integer", "null"] },
      { ...integer, minimum: 1 },
      { ...integer, exclusiveMinimum: 0 },
      { anyOf: [{ type: "null" }, integer] },
      { $ref: "#/$defs/part", $defs: { part: integer, integer: { const: "a name that is taken" } } },
    ]) {
      const { $defs, ...inner } = /** @type {Record<string, any>} */ (schema);
      for (const [jsonSchema, beginning] of /** @type {[object, string][]} */ ([
        [schema, ""],
        [{ type: "object", properties: { n: inner }, required: ["n"], additionalProperties: false, $defs }, '{"n": '],
        [{ type: "array", items: inner, minItems: 1, $defs }, "["],
      ])) {
        const structure = { kind: /** @type {const} */ ("jsonSchema"), text: JSON.stringify(jsonSchema), isLenient: false, allowsText: false };
        const grammar = await grammars.start(structure);
        await grammar.follow(encodeParts([[beginning + "6".repeat(18)]]));
        let digits = 18;
        for (await grammar.look(); digits < 40 && grammar.allows(6); await grammar.look()) {
          grammar.consume(6);
          digits += 1;
        }
        grammar.close();
        assert.equal(digits, 19, structure.text);
      }
    }
  });

  it("keeps an integer's own limits", () => {
    for (const schema of [
      { type: "integer", minimum: -5, exclusiveMaximum: 1e18 },
      { type: "integer", const: 1e18 },
      { type: "number" },
      { type: ["integer", "number"] },
      { type: "object", properties: { type: { const: "integer" } } },
    ]) {
      assert.deepEqual(rewritten(schema), schema);
    }
  });

  it("is refused in one line, and the model is free afterwards", async () => {
    const { model } = scripted("za."); // one is looked at in vain
    assert.throws(() => model.stream("x", { regex: "a", grammar: "b" }), /give one of regex and grammar/);
    assert.throws(() => model.stream("x", { jsonSchema: "{" }), /jsonSchema is not plain JSON/);
    assert.throws(() => model.stream("x", { jsonSchema: [] }), /jsonSchema must be an object/);
    assert.throws(() => model.stream("x", { jsonSchema: { schema: {}, strict: 1 } }), /strict must be true or false/);
    assert.throws(() => model.stream("x", { regex: " " }), /regex must be a text that says something/);
    assert.throws(() => model.stream("x", { regex: "a".repeat(70_000) }), /at most 65536 are taken/);
    await assert.rejects(model.generate("x", { regex: "[a" }), InputError);
    await assert.rejects(model.generate("x", { regex: "ab", logitBias: Object.fromEntries(ids("b").map((token) => [token, -100])) }), /which is banned: allow it/);
    await assert.rejects(model.generate("x", { regex: "[ab]c", logitBias: Object.fromEntries(ids("ab").map((token) => [token, -100])) }), /leaves no token here that is not banned/);
    assert.equal((await model.generate("x")).text, "a");
    assert.equal((await model.generate("x", { regex: "b" })).text, "b");
  });
});
