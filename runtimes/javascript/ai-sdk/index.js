// A loaded model as a language model of the Vercel AI SDK (npm package `ai`), by its interface LanguageModelV3.
//
//     generateText, streamText --options--> asked --Model.stream--> chunks --parts--> content, or a stream of parts
import { InputError } from "../errors.js";
import { checkOptions, safeRepr } from "../support/values.js";
import { answerToResults } from "./catalogue_calls.js";
import { languageModelOptions } from "./options.js";
import { ended, usage, withoutModel } from "./results.js";

/** @import { LanguageModelV3, LanguageModelV3CallOptions, LanguageModelV3StreamPart, SharedV3Warning } from "@ai-sdk/provider" */
/** @import { Chunk, Stream } from "../chat/stream.js" */
/** @import { Model } from "../model.js" */
/** @import { CatalogueCalls } from "./catalogue_calls.js" */
/** @import { Calls } from "./tools.js" */

/** @typedef {import("./tools.js").CallKeys} CallKeys */
/** @typedef {{stream: Stream, calls: Calls | CatalogueCalls | null, warnings: SharedV3Warning[], end: () => void}} Begun  `end` lets the next answer begin. */

/**
 * @typedef {object} LanguageModelOptions
 * @property {string} [id]  the model's name in results; "local" where it is left out
 * @property {CallKeys} [call]  under which names a model writes the call of a tool; {name: "name", input: "arguments"}
 *   where it is left out
 */

/**
 * A model for `generateText`, `streamText` and all else of the AI SDK that takes one. Options of an answer that the SDK
 * has no name for go into `providerOptions.hamburger`: mode, confidence, regex, minP and the others.
 * @param {Model} model
 * @param {LanguageModelOptions} [options]
 * @returns {LanguageModelV3}
 */
export function languageModel(model, options = {}) {
  if (typeof model?.stream !== "function") {
    throw new InputError(`languageModel takes a loaded model, got ${safeRepr(model)}: give it the result of  await load(...)`);
  }
  const { id = "local", call = { name: "name", input: "arguments" } } = checkOptions(options, ["id", "call"]);
  if (typeof call?.name !== "string" || typeof call.input !== "string") {
    throw new InputError(`call must be two texts, as { name: "name", input: "arguments" }, got ${safeRepr(call)}`);
  }
  return new LanguageModel(model, id, call);
}

/**
 * One answer at a time: others wait for it.
 * @implements {LanguageModelV3}
 */
class LanguageModel {
  specificationVersion = /** @type {const} */ ("v3");
  provider = "hamburger-edge";
  /** @type {Record<string, RegExp[]>} */
  supportedUrls = {}; // it reads no files
  #model;
  #keys;
  /** @type {Promise<void>} resolves when the last answer has ended */
  #last = Promise.resolve();

  /** @param {Model} model @param {string} modelId @param {CallKeys} keys */
  constructor(model, modelId, keys) {
    this.modelId = modelId;
    this.#model = model;
    this.#keys = keys;
  }

  /** @param {LanguageModelV3CallOptions} given */
  async doGenerate(given) {
    const shown = answerToResults(given.prompt, this.#model);
    if (shown !== null) {
      const { warnings } = languageModelOptions(given, this.#model, this.#keys);
      return { ...withoutModel(shown), response: { timestamp: new Date(), modelId: this.modelId }, warnings };
    }
    const { stream, calls, warnings, end } = await this.#begin(given);
    try {
      for await (const _ of stream);
    } finally {
      end();
    }
    given.abortSignal?.throwIfAborted();
    const response = { timestamp: new Date(), modelId: this.modelId };
    return { ...ended(stream, calls), ...usage(stream), response, warnings };
  }

  /**
   * Return when the first step is there, so that bad input is refused here. The answer is read to its end whether or not
   * anybody takes the parts: the next one waits for it.
   * @param {LanguageModelV3CallOptions} given
   */
  async doStream(given) {
    const shown = answerToResults(given.prompt, this.#model);
    if (shown !== null) return { stream: this.#shown(shown, given) };
    const begun = await this.#begin(given);
    const first = await begun.stream.next().catch((error) => {
      begun.end();
      throw error;
    });
    const parts = this.#parts(begun, first, given);
    /** @type {ReadableStream<LanguageModelV3StreamPart>} */
    const stream = new ReadableStream(
      {
        async pull(controller) {
          const { done, value } = await parts.next();
          if (done) controller.close();
          else controller.enqueue(value);
        },
        async cancel() {
          await begun.stream.return();
          begun.end();
        },
      },
      { highWaterMark: Infinity },
    );
    return { stream };
  }

  /** An answer that needs no step of the model, as parts. @param {string} text @param {LanguageModelV3CallOptions} given */
  #shown(text, given) {
    const { warnings } = languageModelOptions(given, this.#model, this.#keys);
    const { finishReason, usage: used, providerMetadata } = withoutModel(text);
    const id = "text";
    /** @type {LanguageModelV3StreamPart[]} */
    const parts = [
      { type: "stream-start", warnings },
      { type: "response-metadata", timestamp: new Date(), modelId: this.modelId },
      { type: "text-start", id },
      { type: "text-delta", id, delta: text },
      { type: "text-end", id },
      { type: "finish", finishReason, usage: used, providerMetadata },
    ];
    /** @type {ReadableStream<LanguageModelV3StreamPart>} */
    return new ReadableStream({
      start(controller) {
        for (const part of parts) controller.enqueue(part);
        controller.close();
      },
    });
  }

  /** Wait for the answer before, and start this one. @param {LanguageModelV3CallOptions} given @returns {Promise<Begun>} */
  async #begin(given) {
    const { prompt, options, calls, warnings } = languageModelOptions(given, this.#model, this.#keys);
    const before = this.#last;
    let end = () => {};
    this.#last = new Promise((resolve) => {
      end = resolve;
    });
    await before;
    try {
      return { stream: this.#model.stream(prompt, options), calls, warnings, end };
    } catch (error) {
      end();
      throw error;
    }
  }

  /**
   * @param {Begun} begun @param {IteratorResult<Chunk, void>} first
   * @param {LanguageModelV3CallOptions} given
   * @returns {AsyncGenerator<LanguageModelV3StreamPart, void, void>}
   */
  async *#parts({ stream, calls, warnings, end }, first, { abortSignal, includeRawChunks }) {
    const id = "text";
    let isText = false; // some of it was sent
    yield { type: "stream-start", warnings };
    yield { type: "response-metadata", timestamp: new Date(), modelId: this.modelId };
    try {
      for (let next = first; !next.done; next = await stream.next()) {
        const { tokens, text } = next.value;
        if (includeRawChunks) yield { type: "raw", rawValue: next.value };
        if (!text || calls?.isCall(stream.text)) continue; // a call is sent when it is complete
        if (!isText) yield { type: "text-start", id };
        isText = true;
        yield { type: "text-delta", id, delta: text, providerMetadata: { hamburger: { tokens: [...tokens] } } };
      }
    } finally {
      end();
    }
    abortSignal?.throwIfAborted();
    const { content, finishReason } = ended(stream, calls);
    for (const part of content) {
      if (part.type === "tool-call") yield part;
      else if (!isText) { // of a call that was cut
        yield { type: "text-start", id };
        yield { type: "text-delta", id, delta: part.text };
        isText = true;
      }
    }
    if (isText) yield { type: "text-end", id };
    yield { type: "finish", finishReason, ...usage(stream) };
  }
}
