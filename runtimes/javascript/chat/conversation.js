// Conversations of many turns, whose answers stay compressed in the cache.
import { BusyError, InputError } from "../errors.js";
import { Settings, defined } from "../loop/settings.js";
import { Stats } from "../loop/stats.js";
import { structural, structureOf } from "../structured/structure.js";
import { checkOptions, checkText } from "../support/values.js";
import { fits, newestTurns } from "./forgetting.js";
import { readMessages } from "./messages.js";
import { RESUMABLE, Stream } from "./stream.js";

/** @import { Group } from "../loop/backend.js" */
/** @import { Sampler } from "../loop/sampling.js" */
/** @import { Options } from "../loop/settings.js" */
/** @import { Message } from "./messages.js" */
/** @import { Parts } from "./parts.js" */
/** @import { TextStream } from "./text_stream.js" */

/**
 * @typedef {object} Turn
 * @property {Options["maxTokens"]} [maxTokens]
 * @property {AbortSignal} [signal]
 * @property {Options["jsonSchema"]} [jsonSchema]  this answer's structure, instead of the conversation's
 * @property {Options["regex"]} [regex]
 * @property {Options["grammar"]} [grammar]
 * @property {boolean} [allowText]
 */

/**
 * A conversation of many turns. Several may share a model; changing between them costs prefilling.
 *
 * If the context has no room for a turn and its answer, the oldest turns leave it; `forgotten` counts their messages, which
 * `messages` still lists.
 *
 * A turn whose answer never began (an error, or cancelled while reading the prompt) leaves no trace. A model of one task
 * (`isTask`) answers each message on its own; `messages` lists all turns, `groups` is the last one.
 */
export class Chat {
  /** @type {Message[]} without the system text */
  messages = [];
  /** @type {Group[]} the whole conversation with its template, in the groups of the cache */
  groups = [];
  stats = new Stats(); // of the last answer
  forgotten = 0; // oldest messages that the model does not see any more: the context has no room for them
  unfinished = false; // the last answer was cut; `continueAnswer` continues it
  #parts;
  #history; // user, answer, user, ...: `reset` returns to it
  /** @type {Options} the structure of the last answer */
  #structure = {};
  /** @type {Sampler} */
  #sampler;
  /** @type {TextStream} */
  #text;

  /** @param {Parts} parts @param {readonly Message[]} messages @param {string | null} given  system text @param {Settings} settings */
  constructor(parts, messages, given, settings) {
    const { system, turns } = readMessages(messages, given);
    if (turns.length % 2) {
      throw new InputError("the last message is of the user: give it to send, and those before it to chat");
    }
    this.#parts = parts;
    this.#history = turns;
    this.system = system === null ? null : checkText(system, "system");
    this.settings = settings;
    this.#sampler = parts.sampler(settings);
    this.#text = parts.textStream(settings);
    this.reset();
  }

  /** The seed of the random draws: another chat with it generates the same. */
  get seed() {
    return this.#sampler.seed;
  }

  /** Send a message; iterate over the result for the answer. @param {string} text @param {Turn} [turn] */
  send(text, turn = {}) {
    if (!checkText(text)) throw new InputError("the message is empty: say something");
    let before = this.#parts.template.isTask ? [] : this.groups;
    let ids = this.#parts.turn(text, before, this.system);
    let forgotten = this.forgotten;
    const limit = checkOptions(turn).maxTokens ?? this.settings.maxTokens;
    const settled = this.#settled();
    if (before.length && !fits(this.#parts.engine.info, before, ids.length, limit)) {
      const turns = settled.slice(forgotten).map(({ content }) => content);
      const newest = newestTurns(this.#parts, { system: this.system, turns }, text);
      [before, forgotten] = [newest.groups, forgotten + newest.first];
      ids = this.#parts.turn(text, before, this.system);
    }
    const prompt = [...before, ...this.#parts.engine.checkTokens(ids)];
    /** @type {Message[]} */
    const messages = [...settled, { role: "user", content: text }, { role: "assistant", content: "" }];
    const sampler = () => {
      const copy = this.#copy();
      copy.begin(prompt.flat());
      return copy;
    };
    const given = structural(checkOptions(turn));
    const structure = structureOf(given) ? given : structural(this.settings.options);
    return this.#answer(prompt, messages, forgotten, sampler, null, { ...turn, ...structure });
  }

  /**
   * Continue an answer that was cancelled or reached maxTokens.
   *
   * A cancelled answer, and one in mode "plain" or "verify", continues as if it had never been cut. In other modes
   * maxTokens may have shortened the last group, so the text may differ.
   * @param {Turn} [turn]
   */
  continueAnswer(turn = {}) {
    if (!this.unfinished) throw new InputError("there is no unfinished answer to go on with: send a message");
    return this.#answer(this.groups, this.messages, this.forgotten, () => this.#copy(), () => this.#held(), {
      ...checkOptions(turn),
      ...this.#structure,
    });
  }

  /**
   * Change options from the next answer on; a new seed restarts the draws. The mode stays unless another is given; a mode
   * that is given without a confidence has its own.
   * @param {Options} options
   */
  configure(options) {
    const { mode, confidence, ...kept } = this.settings.options;
    const current = { mode, confidence };
    const settings = new Settings({ ...kept, ...defined(checkOptions(options)) }, this.#parts.engine.info.recommended, current);
    const [sampler, state] = [this.#parts.sampler(settings), this.#sampler.state()];
    const isReseeded = options.seed !== undefined && options.seed !== null;
    sampler.restore(isReseeded ? { ...state, seed: sampler.seed, draws: 0 } : state);
    this.settings = settings;
    this.#sampler = sampler; // all options are valid
  }

  /** Return to the messages that it began with, and to the first random draws. */
  reset() {
    this.messages = this.#history.map((content, index) => ({ role: index % 2 ? "assistant" : "user", content }));
    this.groups = this.#parts.conversation({ system: this.system, turns: this.#history });
    this.forgotten = 0;
    this.stats = new Stats();
    this.unfinished = false;
    this.#sampler = this.#parts.sampler(this.settings);
    this.#text = this.#parts.textStream(this.settings);
  }

  /** Copy the sampler, so that a failing turn leaves no trace. */
  #copy() {
    const sampler = this.#parts.sampler(this.settings);
    sampler.restore(this.#sampler.state());
    return sampler;
  }

  /** Copy the text stream with its held-back text. */
  #held() {
    const text = this.#parts.textStream(this.settings);
    text.follow(this.#text);
    return text;
  }

  /** Return the messages; a cut answer that will not continue gets its held-back text. */
  #settled() {
    const last = this.messages.at(-1);
    if (!this.unfinished || !last) return this.messages;
    return [...this.messages.slice(0, -1), { ...last, content: last.content + this.#held().flush() }];
  }

  /**
   * @param {Group[]} prompt @param {Message[]} messages @param {number} forgotten  after this answer
   * @param {() => Sampler} sampler @param {(() => TextStream) | null} text  null: a new answer's
   * @param {Turn} turn  with the answer's structure
   */
  #answer(prompt, messages, forgotten, sampler, text, { signal, ...turn }) {
    const said = this.groups;
    const structure = structural(turn);
    const settings = new Settings({ ...this.settings.options, ...defined(turn), ...structure });
    return new Stream(this.#parts.engine, this.#parts.turns, {
      prompt: () => {
        if (this.groups !== said) { // another answer of this conversation was read in the meantime
          throw new BusyError("this conversation went on in the meantime: send the message again");
        }
        return prompt;
      },
      settings,
      constraint: () => this.#parts.constraint(settings),
      sampler,
      text: text ?? (() => this.#parts.textStream(settings)),
      reuse: "groups",
      isResumable: true,
      signal,
      onClose: (stream, sampler, text) => {
        if (!stream.stats.macroSteps) return;
        const last = messages[messages.length - 1];
        this.groups = this.#parts.engine.sequence;
        this.messages = [...messages.slice(0, -1), { role: "assistant", content: last.content + stream.text }];
        this.unfinished = stream.finishReason !== null && RESUMABLE.includes(stream.finishReason);
        this.#sampler = sampler;
        this.#structure = structure;
        this.forgotten = forgotten;
        this.#text = text;
        this.stats = stream.stats;
      },
    });
  }
}
