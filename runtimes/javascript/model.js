// A loaded model, the main object of an application.
import { Chat } from "./chat/conversation.js";
import { Parts } from "./chat/parts.js";
import { Stream } from "./chat/stream.js";
import { InputError } from "./errors.js";
import { Engine } from "./loop/engine.js";
import { Settings } from "./loop/settings.js";
import { checkText, flag } from "./support/values.js";

/** @import { Backend } from "./loop/backend.js" */
/** @import { Options } from "./loop/settings.js" */
/** @import { Stats } from "./loop/stats.js" */
/** @import { FinishReason } from "./loop/step.js" */
/** @import { Message } from "./chat/conversation.js" */
/** @import { ChatTemplate } from "./chat/template.js" */
/** @import { Tokenizer } from "./chat/tokenizer.js" */

/**
 * @typedef {object} Asking  Options of a prompt.
 * @property {boolean} [raw]  encode text without chat template; special tokens in it count
 * @property {string | null} [system]  system text of the conversation
 * @property {boolean} [reusePrefix]  do not compute the part of the prompt that the cache holds; default true
 * @property {AbortSignal} [signal]  ends the answer after the current step
 */

/**
 * @typedef {object} Result
 * @property {string} text
 * @property {number[]} tokens  the end token included
 * @property {number[][]} groups  the same tokens, by macro step
 * @property {FinishReason} finishReason
 * @property {Stats} stats
 */

/** A model makes one answer at a time; other uses during an answer throw BusyError. */
export class Model {
  #parts;
  #backend;

  /** @param {Backend} backend @param {Tokenizer} tokenizer @param {ChatTemplate} template */
  constructor(backend, tokenizer, template) {
    this.#backend = backend;
    this.#parts = new Parts(new Engine(backend), tokenizer, template);
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
    return this.#parts.tokenizer.decode(tokens);
  }

  /**
   * Answer a prompt, one chunk per macro step.
   *
   * Text becomes a user turn of the model's chat template, after `system` if given; messages are a conversation so far,
   * of which the last one is the user's; `raw` text and token ids are used unchanged. The part of the prompt that the
   * cache holds is not computed again. In modes "hybrid" and "merge" that includes merged slots of earlier answers.
   * @param {string | readonly Message[] | Iterable<number>} prompt
   * @param {Options & Asking} [options]
   */
  stream(prompt, { raw = false, system = null, reusePrefix = true, signal, ...options } = {}) {
    const settings = new Settings(options, this.info.recommended);
    const groups = this.#prompt(prompt, flag("raw", raw), system);
    const sampler = this.#parts.sampler(settings);
    return new Stream(this.#parts.engine, this.#parts.turns, {
      prompt: () => groups,
      settings,
      grammars: this.#parts.grammars,
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
   * Return the whole answer of `stream`.
   * @param {string | readonly Message[] | Iterable<number>} prompt
   * @param {Options & Asking} [options]
   * @returns {Promise<Result>}
   */
  async generate(prompt, options) {
    const stream = this.stream(prompt, options);
    /** @type {number[][]} */
    const groups = [];
    for await (const { tokens } of stream) if (tokens.length) groups.push([...tokens]);
    const { text, stats } = stream;
    return { text, tokens: groups.flat(), groups, finishReason: stream.finishReason ?? "cancelled", stats };
  }

  /**
   * Begin a conversation; an empty system text suppresses the template's default.
   * @param {Options & {system?: string | null}} [options]
   */
  chat({ system = null, ...options } = {}) {
    return new Chat(this.#parts, system, new Settings(options, this.info.recommended));
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

  /** @param {string | readonly Message[] | Iterable<number>} prompt @param {boolean} isRaw @param {string | null} system */
  #prompt(prompt, isRaw, system) {
    const { engine, template, tokenizer } = this.#parts;
    const isConversation = isMessages(prompt);
    if (system !== null && (isRaw || !(isConversation || typeof prompt === "string"))) {
      throw new InputError("raw text and token ids are taken as they are: leave system out");
    }
    if (system !== null) checkText(system);
    if (isConversation) {
      return engine.checkTokens(template.conversation(prompt, system).flatMap((parts) => tokenizer.encodeParts(parts)));
    }
    if (typeof prompt !== "string") {
      if (typeof prompt?.[Symbol.iterator] !== "function") {
        throw new InputError("the prompt must be text, messages or token ids");
      }
      return engine.checkTokens(prompt);
    }
    if (!checkText(prompt)) throw new InputError("the prompt is empty: say something");
    return engine.checkTokens(isRaw ? tokenizer.encode(prompt) : tokenizer.encodeParts(template.firstTurn(prompt, system)));
  }
}

/** @param {string | readonly Message[] | Iterable<number>} prompt @returns {prompt is readonly Message[]} */
function isMessages(prompt) {
  return Array.isArray(prompt) && typeof prompt[0] === "object" && prompt[0] !== null;
}
