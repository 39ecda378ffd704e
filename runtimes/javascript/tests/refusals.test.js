// Wrong calls: each is refused by an error of this package, in one line that names the value and the way out.
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, rmSync, truncateSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, describe, it } from "node:test";
import { load } from "../adapters/onnxruntime-node.js";
import { load as loadReactNative } from "../adapters/onnxruntime-react-native.js";
import { load as loadWeb } from "../adapters/onnxruntime-web.js";
import { languageModel } from "../ai-sdk/index.js";
import { readManifest } from "../bundle/manifest.js";
import { BundleError, FetchError, HamburgerError, InputError } from "../errors.js";
import { scripted } from "./scripted_backend.js";

const bundle = process.env.BUNDLE ?? "";

/** @param {any} call @param {typeof HamburgerError} type @param {RegExp} message */
async function refused(call, type, message) {
  await assert.rejects(async () => call(), (error) => {
    assert.ok(error instanceof type, String(error));
    assert.match(error.message, message);
    assert.doesNotMatch(error.message, /\n/);
    return true;
  });
}

describe("options that are none", () => {
  const { model } = scripted("ab.");
  const chat = model.chat();
  for (const odd of /** @type {any[]} */ ([null, "plain", 3, [], false])) {
    const message = /options must be an object, as \{ name: value \}, got/;
    it(`are refused: ${JSON.stringify(odd)}`, async () => {
      for (const call of [
        () => model.generate("x", odd),
        () => model.chat("x", odd),
        () => chat.send("x", odd),
        () => chat.configure(odd),
        () => load("x", odd),
        () => loadWeb("http://x/", odd),
        () => loadReactNative("x", odd),
        () => languageModel(model, odd),
      ]) await refused(call, InputError, message);
      if (typeof odd !== "string") await refused(() => model.chat(odd), InputError, message);
    });
  }

  it("are named when nobody knows them", async () => {
    const odd = /** @type {any} */ ({ thread: 2 });
    await refused(() => load("x", odd), InputError, /unknown option "thread" \(known: cacheSlots, threads, verify\)/);
    await refused(() => loadWeb("http://x/", odd), InputError, /unknown option "thread" \(known: cacheSlots, threads, provider/);
    await refused(() => loadReactNative("x", odd), InputError, /unknown option "thread" \(known: read/);
    await refused(() => languageModel(model, odd), InputError, /unknown option "thread" \(known: id, call\)/);
  });
});

describe("a manifest", () => {
  const tensors = { inputs: [], outputs: [] };
  const graphs = ["embedder", "base"].map((name) => ({ name, file: `${name}.onnx`, ...tensors }));
  const model = { vocab_size: 9, hidden_size: 4, max_group_tokens: 1, context_length: 8, position_rule: "slot", stop_rule: "before", eos_ids: [0] };
  const files = ["embedder.onnx", "base.onnx", "tokenizer.json"].map((name) => ({ path: name, bytes: 1, sha256: "" }));
  const manifest = { kind: "hamburger-edge bundle", format: 3, flavor: "fused", graphs, files, tokenizer: "tokenizer.json", model };
  const read = (/** @type {object} */ data) => readManifest(new TextEncoder().encode(JSON.stringify(data)), "here");

  it("of a plain model has no micro decoder, any other has one", async () => {
    assert.equal(read(manifest).model.max_group_tokens, 1);
    const grouped = { ...manifest, model: { ...model, max_group_tokens: 2 } };
    await refused(() => read(grouped), BundleError, /lists no graph micro_decoder: export the model again/);
    await refused(() => read({ ...manifest, merges: false }), BundleError, /is of an older version: export the model again/);
  });
});

describe("what is no model, no bundle or no token", () => {
  const { model } = scripted("ab.");
  it("is refused", async () => {
    const any = (/** @type {any} */ value) => value;
    await refused(() => load(any(undefined)), InputError, /a bundle is named by its path, got undefined/);
    await refused(() => load("x", { verify: any("yes") }), InputError, /verify must be true or false/);
    await refused(() => load("no/where"), BundleError, /where.manifest.json: cannot be read \(ENOENT\): make a bundle/);
    // a built-in model's name: only Python assembles its bundle
    const way = /built-in model, of which Python makes the bundle: run  hamburger-edge export tiny -o tiny  and give that folder$/;
    await refused(() => load("tiny"), BundleError, way);
    await refused(() => loadReactNative("tiny", { read: async () => { throw new Error("no file"); } }), BundleError, way);
    for (const address of [undefined, "", 5, "http://"]) {
      await refused(() => loadWeb(any(address)), InputError, /named by the address of its folder, got .*: give its URL/);
    }
    await refused(() => loadReactNative(any(undefined), any({})), InputError, /named by its path/);
    await refused(() => loadReactNative("x", any({})), InputError, /read must be a function that returns a file's bytes, got undefined/);
    const failing = async () => { throw new Error("no such file\nat all"); };
    await refused(() => loadReactNative("x", { read: failing }), BundleError, /x\/manifest.json: cannot be read \(no such file\): copy/);
    await refused(() => loadReactNative("x", { read: any(() => "text") }), InputError, /read returned "text" for x\/manifest.json/);
    for (const odd of [undefined, "my-bundle", Promise.resolve(model)]) {
      await refused(() => languageModel(any(odd)), InputError, /takes a loaded model, got .*await load/);
    }
    await refused(() => languageModel(model, { call: any("intent") }), InputError, /call must be two texts/);
    for (const odd of ["ab", 5, null]) await refused(() => model.decode(any(odd)), InputError, /decode takes token ids/);
    await refused(() => model.decode([99]), InputError, /a token must be a whole number/);
  });
});

describe("an address without a bundle", () => {
  it("is refused with the way to one", async () => {
    const server = createServer((request, response) => { // as the server of a one-page app
      response.statusCode = request.url?.startsWith("/app/") ? 200 : 404;
      response.end("<!doctype html>");
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(null)));
    const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
    const site = /** @type {any} */ (globalThis);
    try {
      site.location = { href: `http://127.0.0.1:${port}/app/` };
      const way = /"tiny" is a built-in model, of which Python makes the bundle: run  hamburger-edge export tiny -o tiny/;
      await refused(() => loadWeb("tiny"), FetchError, new RegExp(`sends a page instead: ${way.source}`));
      await refused(() => loadWeb("/tiny"), FetchError, /the server says 404: check the bundle's address/);
      site.location = { href: `http://127.0.0.1:${port}/` };
      await refused(() => loadWeb("tiny"), FetchError, new RegExp(`the server says 404: ${way.source}`));
    } finally {
      delete site.location;
      server.close();
    }
  });
});

describe("a structure that no answer can have", () => {
  for (const [options, message] of /** @type {[any, RegExp][]} */ ([
    [{ jsonSchema: { enum: [] } }, /jsonSchema: enum \(at #\) is empty/],
    [{ jsonSchema: { properties: { a: { anyOf: [] } } } }, /jsonSchema: anyOf \(at #\/properties\/a\) is empty/],
    [{ jsonSchema: { type: "integer", minimum: 3, maximum: 2 } }, /jsonSchema: invalid range: minimum greater than maximum: correct/],
    [{ jsonSchema: { type: "string", minLength: 5, maxLength: 2 } }, /minLength 5 is greater than maxLength 2: correct/],
    [{ jsonSchema: { $ref: "#/$defs/nothing" } }, /cannot find field \$defs/],
    [{ jsonSchema: { $ref: "#" } }, /allows no answer/],
    [{ regex: "(" }, /regex: .*parenthesis is not closed: correct/],
    [{ grammar: "root ::= nothing" }, /grammar: EBNF parser error .* Rule "nothing" is not defined: correct/],
  ])) {
    it(`is refused: ${JSON.stringify(options)}`, async () => {
      const { model } = scripted("ab.");
      const [write, written] = [console.error, /** @type {unknown[]} */ ([])];
      console.error = (...words) => void written.push(words);
      try {
        await refused(() => model.generate("x", options), InputError, message);
        assert.deepEqual(written, []); // the error holds the reason, and the console stays clean
      } finally {
        console.error = write;
      }
      assert.equal((await model.generate("x")).text, "ab");
    });
  }
});

describe("a model", () => {
  it("is aborted, cancelled and closed more than once", async () => {
    const { model } = scripted("abcdefghi.");
    const control = new AbortController();
    const stream = model.stream("x", { signal: control.signal });
    for await (const _ of stream) {
      for (const _ of [1, 2]) {
        control.abort();
        stream.cancel();
        model.cancel();
      }
    }
    assert.equal(stream.finishReason, "cancelled");
    await stream.return();
    assert.ok((await model.generate("x")).text);
    await model.close();
    await model.close();
    await refused(() => model.generate("x"), InputError, /this model is closed: load it again/);
    await refused(() => model.chat().send("x").result(), InputError, /this model is closed: load it again/);
  });
});

describe("a damaged bundle", { skip: bundle ? false : "BUNDLE names no bundle" }, () => {
  const folder = mkdtempSync(path.join(tmpdir(), "refusals-"));
  after(() => rmSync(folder, { recursive: true }));
  for (const [file, message] of /** @type {[string, RegExp][]} */ ([
    ["manifest.json", /manifest.json: not valid JSON .*: copy the bundle again/],
    ["weights.bin", /weights.bin: 100 bytes, but the manifest says \d+: truncated or changed; copy the bundle again/],
    ["base.onnx", /base.onnx: 100 bytes, but the manifest says \d+/],
    ["tokenizer.json", /tokenizer.json: 100 bytes, but the manifest says \d+/],
  ])) {
    it(`is refused: ${file} was cut`, async () => {
      const cut = path.join(folder, file);
      cpSync(bundle, cut, { recursive: true });
      truncateSync(path.join(cut, file), 100);
      await refused(() => load(cut), BundleError, message);
    });
  }
});
