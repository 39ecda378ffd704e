// One answer in progress. A driver (plain.js, merge.js, verify.js) makes its steps with what is here.
//
//     while (!run.isOver) {
//       const row = await run.read();      the base's row after all tokens so far
//       ...                                choose tokens: a group, or a draft that the base checks
//       yield await run.put(slots);        count the step, and leave its groups unread
//     }
import { groupsOf, stepOf, stepToken } from "./step.js";

/** @import { Group, Readout } from "./backend.js" */
/** @import { CachedText } from "./cached_text.js" */
/** @import { Words } from "../drafts/copied_words.js" */
/** @import { Sampler } from "./sampling.js" */
/** @import { Settings } from "./settings.js" */
/** @import { Stats } from "./stats.js" */
/** @import { FinishReason, Slot, Step } from "./step.js" */

/** @typedef {AsyncGenerator<Step, void, void>} Steps */

export const MAX_TOKENS = 256; // default length of an answer whose constraint has none

/** One row of a readout: the base's outputs after one slot. Valid until the next call of the base. */
export class Row {
  /** @param {Readout} readout @param {number} [index] */
  constructor(readout, index = 0) {
    this.readout = readout;
    this.index = index;
  }

  get logits() {
    return this.readout.logits[this.index];
  }

  get pStop() {
    return this.readout.pStop[this.index];
  }

  get features() {
    return this.readout.features[this.index];
  }

  get next() {
    return new Row(this.readout, this.index + 1);
  }
}

/** The limits, the state and the cost of one answer. */
export class AnswerRun {
  /** @type {FinishReason | null} */
  finishReason = null;
  /** @type {Row | null} after all tokens so far; null: some of them are unread */
  row = null;
  isPromptRead = false; // also while it is being read
  #isCancelled;
  #isBegun = false; // after the first step that follows the prompt's reading

  /**
   * @param {CachedText} text @param {Settings} settings @param {Sampler} sampler
   * @param {readonly number[]} prompt  without the answer so far
   * @param {{words: Words | null, stats: Stats, isCancelled: () => boolean}} more
   */
  constructor(text, settings, sampler, prompt, { words, stats, isCancelled }) {
    this.text = text;
    this.settings = settings;
    this.sampler = sampler;
    this.prompt = prompt;
    this.words = words;
    this.stats = stats;
    this.info = text.info;
    this.maxTokens = settings.maxTokens ?? sampler.constraint.maxTokens ?? MAX_TOKENS;
    this.eosIds = new Set(settings.ignoreEos ? [] : text.info.eosIds);
    this.showsProbabilities = settings.topProbabilities !== null;
    this.#isCancelled = isCancelled;
  }

  /** Whether the answer has ended or was cancelled. */
  get isOver() {
    return this.finishReason !== null || this.#isCancelled();
  }

  get tokensLeft() {
    return this.maxTokens - this.stats.tokens;
  }

  /** Whether the next token needs no row, because the grammar allows no other. */
  async nextIsForced() {
    await this.sampler.look();
    return this.row === null && this.sampler.forced !== null;
  }

  /** Whether the answer ends with its newest token, which this is. @param {number} token */
  endsWith(token) {
    return this.eosIds.has(token) || this.sampler.isEnded;
  }

  /**
   * Return the row after all tokens so far; read the unread groups first. Up to `left` groups stay unread, at least one if
   * `left` is positive. Null: the answer was cancelled. While the prompt is read, that is checked before each call.
   * @param {number} [left] @returns {Promise<Row | null>}
   */
  async read(left = 0) {
    if (!this.row) {
      const readsPrompt = !this.isPromptRead;
      this.isPromptRead = true;
      let readout = null;
      while (this.text.unread.length > left) {
        if (readsPrompt && this.isOver) return null;
        const fed = await this.text.readChunk(left);
        readout = fed.readout;
        this.stats.count(fed.seconds, readsPrompt);
      }
      this.row = readout && !this.text.unread.length ? new Row(readout) : null;
    }
    return this.isOver ? null : this.row;
  }

  /** Return the step of the next token, which the grammar forces. */
  async force() {
    return this.put([[stepToken(this.sampler.chooseForced(), { isForced: true })]]);
  }

  /** Return the step of these slots, which stay unread. @param {readonly Slot[]} slots */
  async put(slots) {
    this.leaveUnread(slots);
    return this.report(stepOf(slots, this.showsProbabilities));
  }

  /** @param {readonly Slot[]} slots */
  leaveUnread(slots) {
    this.text.unread = [...this.text.unread, ...groupsOf(slots)];
    this.row = null;
  }

  /** Count a step and return it with its finish reason. @param {Step} step @returns {Promise<Step>} */
  async report(step) {
    const { stats } = this;
    stats.tokens += step.tokens.length;
    stats.forcedTokens += step.forced;
    stats.macroSteps += 1;
    if (!this.#isBegun) [stats.firstTokens, this.#isBegun] = [stats.tokens, this.isPromptRead];
    await this.sampler.look();
    this.finishReason = this.#finish(step.tokens[step.tokens.length - 1]);
    return { ...step, finishReason: this.finishReason };
  }

  /** @param {number} newest @returns {FinishReason | null} */
  #finish(newest) {
    if (this.eosIds.has(newest)) return "eos";
    if (this.sampler.isEnded) return "stop";
    if (this.tokensLeft <= 0) return "length";
    return this.text.unreadFits ? null : "context";
  }
}

/**
 * Await choices; if one fails, take back all of them.
 * @template T
 * @param {Sampler} sampler @param {() => Promise<T>} choose @returns {Promise<T>}
 */
export async function attempt(sampler, choose) {
  const tokens = sampler.answer.length;
  try {
    return await choose();
  } catch (error) {
    sampler.rewind(sampler.answer.length - tokens);
    throw error;
  }
}
