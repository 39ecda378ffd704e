// Conversations of many turns, whose answers stay compressed in the cache.
import { BusyError, InputError } from "../errors.js";
import { Settings, defined } from "../loop/settings.js";
import { Stats } from "../loop/stats.js";
import { structural, structureOf } from "../loop/structure.js";
import { checkText } from "../support/values.js";
import { RESUMABLE, Stream } from "./stream.js";

/** @import { Group } from "../loop/backend.js" */
/** @import { Sampler } from "../loop/sampling.js" */
/** @import { Options } from "../loop/settings.js" */
/** @import { Parts } from "./parts.js" */
/** @import { TextStream } from "./text_stream.js" */

/** @typedef {{role: "user" | "assistant", text: string}} Message */
/**
 * @typedef {object} Turn
 * @property {number} [maxTokens]
 * @property {AbortSignal} [signal]
 * @property {Options["jsonSchema"]} [jsonSchema]  this answer's structure, in place of the conversation's
 * @property {Options["regex"]} [regex]
 * @property {Options["grammar"]} [grammar]
 * @property {boolean} [lenient]
 */

/**
 * A conversation of many turns. Several may share a model; alternating between them costs prefilling.
 *
 * A turn whose answer never began (an error, or cancelled while reading the prompt) never happened.
 */
export class Chat {
  /** @type {Message[]} */
  messages = [];
  /** @type {Group[]} everything said so far, template included, as it sits in the cache */
  groups = [];
  stats = new Stats(); // of the last answer
  isUnfinished = false; // the last answer was cut, and `continueAnswer` can go on with it
  #parts;
  /** @type {Options} the structure of the last answer */
  #structure = {};
  /** @type {Sampler} */
  #sampler;
  /** @type {TextStream} */
  #text;

  /** @param {Parts} parts @param {string | null} system @param {Settings} settings */
  constructor(parts, system, settings) {
    this.#parts = parts;
    this.system = system === null ? null : checkText(system);
    this.settings = settings;
    this.#sampler = parts.sampler(settings);
    this.#text = parts.textStream(settings);
  }

  /** Of the draws: with it another chat says the same. */
  get seed() {
    return this.#sampler.seed;
  }

  /** Say something; iterate over the result for the answer. @param {string} text @param {Turn} [turn] */
  send(text, turn = {}) {
    if (!checkText(text)) throw new InputError("the message is empty: say something");
    const ids = this.#turn(text);
    const prompt = [...this.groups, ...this.#parts.engine.checkTokens(ids)];
    /** @type {Message[]} */
    const messages = [...this.#settled(), { role: "user", text }, { role: "assistant", text: "" }];
    const sampler = () => {
      const copy = this.#copy();
      copy.begin(prompt.flat());
      return copy;
    };
    const given = structural(turn);
    const structure = structureOf(given) ? given : structural(this.settings.options);
    return this.#answer(prompt, messages, sampler, null, { ...turn, ...structure });
  }

  /**
   * Go on with an answer that was cancelled or reached maxTokens.
   *
   * A cancelled answer, and one at confidence 1 or in verify mode, goes on as if it had never been cut. Otherwise
   * maxTokens may have made the last group shorter than it would have been; it is a slot of its own, so that other
   * words may follow.
   * @param {Turn} [turn]
   */
  continueAnswer(turn = {}) {
    if (!this.isUnfinished) throw new InputError("there is no unfinished answer to go on with: send a message");
    return this.#answer(this.groups, this.messages, () => this.#copy(), () => this.#held(), {
      ...turn,
      ...this.#structure,
    });
  }

  /**
   * Change options from the next answer on; a new seed starts its draws anew. The mode stays unless another is given; a
   * mode that is given without a confidence has its own.
   * @param {Options} options
   */
  configure(options) {
    const { mode, confidence, ...kept } = this.settings.options;
    const current = { mode, confidence };
    const settings = new Settings({ ...kept, ...defined(options) }, this.#parts.engine.info.recommended, current);
    const [sampler, state] = [this.#parts.sampler(settings), this.#sampler.state()];
    const isReseeded = options.seed !== undefined && options.seed !== null;
    sampler.restore(isReseeded ? { ...state, seed: sampler.seed, draws: 0 } : state);
    this.settings = settings;
    this.#sampler = sampler; // nothing was refused
  }

  /** Back to the beginning, random draws included. */
  reset() {
    this.messages = [];
    this.groups = [];
    this.stats = new Stats();
    this.isUnfinished = false;
    this.#sampler = this.#parts.sampler(this.settings);
    this.#text = this.#parts.textStream(this.settings);
  }

  /** The tokens that lead from what was said to the next answer. @param {string} text */
  #turn(text) {
    const { template, tokenizer, engine } = this.#parts;
    const newest = this.groups.at(-1)?.at(-1);
    if (newest === undefined) return tokenizer.encodeParts(template.firstTurn(text, this.system));
    const ids = tokenizer.encodeParts(template.nextTurn(text));
    const isThere = ids[0] === newest && engine.info.eosIds.includes(newest); // the answer ended with it
    return isThere ? ids.slice(1) : ids;
  }

  /** A sampler to draw from, so that a turn that fails leaves no trace. */
  #copy() {
    const sampler = this.#parts.sampler(this.settings);
    sampler.restore(this.#sampler.state());
    return sampler;
  }

  /** A copy of what the last answer's text still holds back. */
  #held() {
    const text = this.#parts.textStream(this.settings);
    text.follow(this.#text);
    return text;
  }

  /** The messages, when an answer that was cut will not go on: what it held back is part of it. */
  #settled() {
    const last = this.messages.at(-1);
    if (!this.isUnfinished || !last) return this.messages;
    return [...this.messages.slice(0, -1), { ...last, text: last.text + this.#held().flush() }];
  }

  /**
   * @param {Group[]} prompt @param {Message[]} messages
   * @param {() => Sampler} sampler @param {(() => TextStream) | null} text  null: of a new answer
   * @param {Turn} turn  its structure is the answer's
   */
  #answer(prompt, messages, sampler, text, { signal, ...turn }) {
    const said = this.groups;
    const structure = structural(turn);
    const settings = new Settings({ ...this.settings.options, ...defined(turn), ...structure });
    return new Stream(this.#parts.engine, this.#parts.turns, {
      prompt: () => {
        if (this.groups !== said) { // another answer of this conversation was read since we looked
          throw new BusyError("this conversation went on in the meantime: send the message again");
        }
        return prompt;
      },
      settings,
      grammars: this.#parts.grammars,
      sampler,
      text: text ?? (() => this.#parts.textStream(settings)),
      reuse: "groups",
      isResumable: true,
      signal,
      onClose: (stream, sampler, text) => {
        if (!stream.stats.macroSteps) return;
        const last = messages[messages.length - 1];
        this.groups = this.#parts.engine.sequence;
        this.messages = [...messages.slice(0, -1), { role: "assistant", text: last.text + stream.text }];
        this.isUnfinished = stream.finishReason !== null && RESUMABLE.includes(stream.finishReason);
        this.#sampler = sampler;
        this.#structure = structure;
        this.#text = text;
        this.stats = stream.stats;
      },
    });
  }
}
