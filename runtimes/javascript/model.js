// A loaded model, the main object of an application.
import { checkLimits, limited, resultText, toolNamed } from "./calls/catalogue.js";
import { parseCalls, withCertainty } from "./calls/compact_form.js";
import { Chat } from "./chat/conversation.js";
import { readMessages } from "./chat/messages.js";
import { NO_TOOLS, Parts } from "./chat/parts.js";
import { Stream } from "./chat/stream.js";
import { InputError } from "./errors.js";
import { Engine } from "./loop/modes/engine.js";
import { Settings } from "./loop/settings.js";
import { checkOptions, checkText, flag, safeRepr, wholeIn } from "./support/values.js";

/** @import { CallLimits } from "./calls/catalogue.js" */
/** @import { Call } from "./calls/compact_form.js" */
/** @import { Backend } from "./loop/backend.js" */
/** @import { Options } from "./loop/settings.js" */
/** @import { Message } from "./chat/messages.js" */
/** @import { Result } from "./chat/stream.js" */
/** @import { ChatTemplate } from "./chat/template.js" */
/** @import { Tokenizer } from "./chat/tokenizer.js" */

/** @typedef {string | {messages: readonly Message[]} | Iterable<number>} Prompt  text, a conversation so far, or token ids */

/**
 * @typedef {object} Beginning  The beginning of a conversation.
 * @property {string | null} [system]  system text; null: the template's default
 * @property {readonly Message[]} [messages]  earlier turns; the first may be the system's, the last is the assistant's
 */

/**
 * @typedef {object} Asking  Options of a prompt.
 * @property {boolean} [raw]  encode text without chat template; special tokens in it count
 * @property {string | null} [system]  system text of the conversation
 * @property {boolean} [reusePrefix]  do not compute the part of the prompt that the cache holds; default true
 * @property {AbortSignal} [signal]  ends the answer after the current step
 */

/** A model makes one answer at a time; other uses during an answer throw BusyError. */
export class Model {
  #parts;
  #backend;

  /** @param {Backend} backend @param {Tokenizer} tokenizer @param {ChatTemplate} template */
  constructor(backend, tokenizer, template) {
    this.#backend = backend;
    this.#parts = new Parts(new Engine(backend, tokenizer.words()), tokenizer, template);
  }

  get info() {
    return this.#backend.info;
  }

  /** Whether it was tuned to single requests, without earlier ones. */
  get isTask() {
    return this.#parts.template.isTask;
  }

  /** The system text of a conversation without one; null: there is none. */
  get defaultSystem() {
    return this.#parts.template.defaultSystem;
  }

  /** Encode a text in which special tokens count. @param {string} text */
  encode(text) {
    return this.#parts.tokenizer.encode(text);
  }

  /** @param {Iterable<number>} tokens */
  decode(tokens) {
    if (typeof tokens === "string" || typeof tokens?.[Symbol.iterator] !== "function") {
      throw new InputError(`decode takes token ids, got ${safeRepr(tokens)}`);
    }
    const { tokenizer } = this.#parts;
    return tokenizer.decode(Array.from(tokens, (token) => wholeIn("a token", token, 0, this.info.vocabSize - 1)));
  }

  /**
   * Answer a prompt, one chunk per macro step: `for await (const { text } of model.stream("Name a fruit."))`.
   *
   * A text becomes a user turn of the model's chat template, after `system` if given. `{ messages }` is a conversation so
   * far: its last message is the user's, its first one may be the system's. Text with `raw`, and token ids, are used
   * without the template. The part of the prompt that the cache holds is not computed again. In modes "hybrid" and
   * "merge" that includes merged slots of earlier answers.
   * @param {Prompt} prompt
   * @param {Options & Asking} [options]
   */
  stream(prompt, options = {}) {
    const { raw = false, system = null, reusePrefix = true, signal, ...given } = checkOptions(options);
    const settings = new Settings(given, this.info.recommended);
    const groups = this.#prompt(prompt, flag("raw", raw), system);
    const sampler = this.#parts.sampler(settings);
    return new Stream(this.#parts.engine, this.#parts.turns, {
      prompt: () => groups,
      settings,
      constraint: () => this.#parts.constraint(settings),
      sampler: () => {
        sampler.begin(groups.flat());
        return sampler;
      },
      text: () => this.#parts.textStream(settings),
      reuse: flag("reusePrefix", reusePrefix) ? "tokens" : "none",
      signal,
    });
  }

  /**
   * Like `stream`, but return the whole answer.
   * @param {Prompt} prompt
   * @param {Options & Asking} [options]
   * @returns {Promise<Result>}
   */
  async generate(prompt, options) {
    return this.stream(prompt, options).result();
  }

  /** The functions that its answers call, in OpenAI's form; empty: it answers with text. */
  get tools() {
    return this.info.tools ?? [];
  }

  /**
   * Answer with calls of the model's tools; an empty array stands for none. `names` limits texts to lists,
   * `{ area: ["Kitchen", "Hall"] }`, and a value is returned as listed. `tools` limits the tools, `required` allows no
   * empty array, `several: false` at most one call. The array has the `certainty` of the whole answer, also if it is
   * empty, and is `unsure` if that is below `minCertainty`.
   * @param {Prompt} prompt
   * @param {Options & Asking & CallLimits} [options]
   * @returns {Promise<Call[] & {readonly certainty: number | null, readonly unsure: boolean}>}
   */
  async call(prompt, options = {}) {
    const { names, tools, required, several, ...more } = checkOptions(options);
    if (!this.#parts.calls) throw new InputError(NO_TOOLS);
    const limits = checkLimits({ names, tools, required, several });
    const chosen = limited(this.#parts.calls.tools, limits);
    const { text, complete, finishReason, certainty, unsure } = await this.generate(prompt, { ...more, calls: limits });
    if (finishReason === "context") {
      throw new InputError("the calls do not fit into the model's context: shorten the prompt");
    }
    return withCertainty(complete ? parseCalls(text, chosen, certainty) : [], certainty, unsure); // [] if it was cancelled
  }

  /**
   * The answer to calls whose tools have run, a line for each call: the filled answer template of its tool, else the
   * result as text. A result is an object with the fields that the template names, its JSON, or any other value of JSON.
   * @param {readonly Pick<Call, "name" | "arguments">[]} calls
   * @param {readonly unknown[]} results  one for each call
   */
  resultText(calls, results) {
    const { calls: own } = this.#parts;
    if (!own) throw new InputError(NO_TOOLS);
    if (calls.length !== results.length) {
      throw new InputError(`there are ${calls.length} calls and ${results.length} results: give one for each`);
    }
    return calls.map((call, index) => resultText(toolNamed(own.tools, call.name, "calls"), call.arguments, results[index])).join("\n");
  }

  /**
   * Begin a conversation, or continue `messages`, of which the last one is the assistant's. A text is its system text;
   * an empty one suppresses the template's default.
   * @param {string | (Options & Beginning)} [beginning]
   * @param {Options} [options]
   */
  chat(beginning = {}, options = {}) {
    const given = typeof beginning === "string" ? { system: beginning } : checkOptions(beginning);
    const { system = null, messages = [], ...more } = { ...given, ...checkOptions(options) };
    return new Chat(this.#parts, messages, system, new Settings(more, this.info.recommended));
  }

  /** End the current answer, if any, after its current step. */
  cancel() {
    this.#parts.turns.current?.cancel();
  }

  /** End the current answer and free everything. Closing twice is harmless. */
  async close() {
    this.#parts.turns.isClosed = true;
    await this.#parts.turns.current?.return();
    await this.#backend.close();
  }

  /** @param {Prompt} prompt @param {boolean} isRaw @param {string | null} system */
  #prompt(prompt, isRaw, system) {
    const { engine, tokenizer } = this.#parts;
    if (system !== null) checkText(system, "system");
    if (isConversation(prompt)) {
      const [odd] = Object.keys(prompt).filter((name) => name !== "messages");
      if (odd) throw new InputError(`${safeRepr(odd)} stands beside messages: options are the second argument`);
      if (isRaw) throw new InputError("messages follow the chat template: leave raw out");
      const transcript = readMessages(prompt.messages, system);
      if (transcript.turns.length % 2 === 0) throw new InputError("the last message must be of the user");
      return this.#parts.conversation(transcript);
    }
    if (system !== null && (isRaw || typeof prompt !== "string")) {
      throw new InputError("raw text and token ids are taken as they are: leave system out");
    }
    if (typeof prompt !== "string") {
      if (typeof prompt?.[Symbol.iterator] !== "function") {
        throw new InputError(`the prompt must be text, { messages } or token ids, got ${safeRepr(prompt)}`);
      }
      if (Array.isArray(prompt) && typeof prompt[0] === "object") {
        throw new InputError("an array of messages goes into an object: { messages: [...] }");
      }
      return engine.checkTokens(prompt);
    }
    if (!checkText(prompt)) throw new InputError("the prompt is empty: say something");
    return engine.checkTokens(isRaw ? tokenizer.encode(prompt) : this.#parts.turn(prompt, [], system));
  }
}

/** @param {Prompt} prompt @returns {prompt is {messages: readonly Message[]}} */
function isConversation(prompt) {
  return typeof prompt === "object" && prompt !== null && "messages" in prompt;
}
