// A running answer: the engine's steps with their text, and the exclusive use of the model.
import { BusyError, InputError } from "../errors.js";
import { certaintyOf, isWhole } from "../loop/certainty.js";
import { Stats } from "../loop/stats.js";

/** @import { Group } from "../loop/backend.js" */
/** @import { Constraint } from "../structured/constraint.js" */
/** @import { Engine, Reuse } from "../loop/modes/engine.js" */
/** @import { Sampler, TopToken } from "../loop/sampling.js" */
/** @import { Settings } from "../loop/settings.js" */
/** @import { FinishReason } from "../loop/step.js" */
/** @import { TextStream } from "./text_stream.js" */

/**
 * @typedef {object} Result  A whole answer.
 * @property {string} text  of an unsure correction (of a model that edits its prompt): the prompt's own text
 * @property {number[]} tokens  the end token included
 * @property {number[][]} groups  the same tokens, by macro step
 * @property {FinishReason} finishReason
 * @property {Stats} stats
 * @property {boolean | null} complete  of a structured answer: whether its structure is complete
 * @property {number[]} probabilities  as in the chunks
 * @property {TopToken[][]} topProbabilities  as in the chunks
 * @property {number | null} certainty  calibrated probability that the whole answer is right; 0 if it was cut or repeats
 *   itself at its end; null: not measured for this model
 * @property {boolean} unsure  whether the certainty is below `minCertainty`, or a correction was cut or repeats itself at its
 *   end
 */

/**
 * @typedef {object} Chunk  One macro step. The texts of all chunks are the answer's text.
 * @property {Group} tokens  includes the end token; after a stop string, ends with the token that completed it
 * @property {string} text  without end token and stop string; may lag behind the tokens by an unfinished character
 * @property {number[]} probabilities  of each token; empty without the option `topProbabilities`
 * @property {TopToken[][]} topProbabilities  of each token: the base's likeliest tokens at its place, empty if the base did
 *   not choose or check it (drafted and merged unchecked, or forced by a structure); empty without the option
 * @property {number[]} stopProbabilities  probability that the group should end with each token
 * @property {FinishReason | null} finishReason  set on the last chunk; a cancelled answer ends with one without tokens
 * @property {number | null} certainty  of the last chunk: as in the result
 * @property {boolean} unsure
 */

/** Exclusive use of a model: one answer at a time. */
export class Turns {
  /** @type {Stream | null} the current answer */
  current = null;
  isClosed = false;
}

/**
 * @typedef {object} Request  The inputs of an answer.
 * @property {() => Group[]} prompt  called when the answer begins
 * @property {Settings} settings
 * @property {() => Promise<Constraint>} constraint  likewise
 * @property {() => Sampler} sampler  likewise
 * @property {() => TextStream} text
 * @property {Reuse} reuse
 * @property {boolean} [isResumable]  keep held-back text when cut, because the answer may continue
 * @property {AbortSignal} [signal]
 * @property {(stream: Stream, sampler: Sampler, text: TextStream) => void} [onClose]
 */

/**
 * Iterate for chunks: `for await (const chunk of stream)`. The answer begins with the first chunk; the model is busy
 * until the last one, or until the loop is left.
 * @implements {AsyncIterableIterator<Chunk>}
 */
export class Stream {
  stats = new Stats();
  /** @type {FinishReason | null} */
  finishReason = null;
  text = ""; // so far; of an ended unsure correction: the prompt's own text
  /** @type {number[][]} tokens so far, by macro step */
  groups = [];
  /** @type {boolean | null} of a finished structured answer: whether its structure is complete */
  complete = null;
  /** @type {number | null} of the ended answer; null: not measured for this model */
  certainty = null;
  unsure = false; // whether the ended answer is not shown to have the certainty `minCertainty`
  #isCancelled = false;
  #chunks;
  /** @type {number[]} */
  #probabilities = [];
  /** @type {TopToken[][]} */
  #topProbabilities = [];

  /** @param {Engine} engine @param {Turns} turns @param {Request} request */
  constructor(engine, turns, request) {
    const { signal } = request;
    if (signal !== undefined && !(signal instanceof AbortSignal)) {
      throw new InputError("signal must be an AbortSignal: take that of an AbortController");
    }
    this.#chunks = this.#run(engine, turns, request);
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** @returns {Promise<IteratorResult<Chunk, void>>} */
  next() {
    return this.#chunks.next();
  }

  /** Read the answer to its end and return it whole. @returns {Promise<Result>} */
  async result() {
    for await (const _ of this);
    const { text, groups, stats, complete, certainty, unsure } = this;
    const [probabilities, topProbabilities] = [this.#probabilities, this.#topProbabilities];
    const finishReason = this.finishReason ?? "cancelled";
    const tokens = groups.flat();
    return { text, tokens, groups, finishReason, stats, complete, probabilities, topProbabilities, certainty, unsure };
  }

  /** End the answer and free the model after the current step. @returns {Promise<IteratorResult<Chunk, void>>} */
  return() {
    this.#isCancelled = true;
    return this.#chunks.return();
  }

  /** End the answer after the current step. */
  cancel() {
    this.#isCancelled = true;
  }

  /** @param {Engine} engine @param {Turns} turns @param {Request} request @returns {AsyncGenerator<Chunk, void, void>} */
  async *#run(engine, turns, request) {
    const { prompt, settings, constraint, sampler: begun, text: output, reuse, isResumable, signal, onClose } = request;
    if (turns.isClosed) throw new InputError("this model is closed: load it again");
    if (turns.current) {
      throw new BusyError(
        "this model is in the middle of an answer: read it to the end, return or cancel it first, or load a second model",
      );
    }
    turns.current = this;
    try {
      const [groups, sampler, text] = [prompt(), begun(), output()];
      await sampler.follow(await constraint());
      const isCancelled = () => this.#isCancelled || signal?.aborted === true || turns.isClosed;
      const steps = engine.run(groups, settings, sampler, this.stats, { isCancelled, reuse });
      try {
        while (!this.finishReason) {
          const begin = performance.now();
          const { value: step } = await steps.next();
          let said = step ?? NOTHING;
          if (isCancelled() && !said.finishReason) said = { ...said, finishReason: "cancelled" };
          const chunk = this.#chunk(said, engine, sampler, text, isResumable ?? false, settings);
          this.#count(engine, (performance.now() - begin) / 1000);
          yield chunk;
        }
      } finally {
        if (!this.finishReason) {
          this.finishReason = "cancelled";
          this.#judge(engine, sampler, settings, isResumable);
        }
        await steps.return();
        this.complete = sampler.release();
        onClose?.(this, sampler, text);
      }
    } finally {
      turns.current = null;
    }
  }

  /**
   * @param {import("../loop/step.js").Step} step
   * @param {Engine} engine @param {Sampler} sampler @param {TextStream} output @param {boolean} isResumable
   * @param {Settings} settings
   * @returns {Chunk}
   */
  #chunk(step, engine, sampler, output, isResumable, settings) {
    let { tokens, probabilities, topProbabilities, stopProbabilities, finishReason } = step;
    let { text, stopped } = output.push(tokens);
    if (stopped !== null) {
      finishReason = "stop";
      const dropped = tokens.length - stopped;
      if (dropped) {
        engine.drop(dropped);
        sampler.rewind(dropped);
        this.stats.tokens -= dropped;
        this.stats.firstTokens = Math.min(this.stats.firstTokens, this.stats.tokens);
        tokens = tokens.slice(0, stopped);
        probabilities = probabilities.slice(0, stopped);
        topProbabilities = topProbabilities.slice(0, stopped);
        stopProbabilities = stopProbabilities.slice(0, stopped);
      }
    } else if (finishReason && !(isResumable && RESUMABLE.includes(finishReason))) {
      text += output.flush();
    }
    this.finishReason = finishReason;
    this.text += text;
    this.#judge(engine, sampler, settings, isResumable);
    if (tokens.length) this.groups.push([...tokens]);
    this.#probabilities.push(...probabilities);
    this.#topProbabilities.push(...topProbabilities);
    const { certainty, unsure } = this;
    return { tokens, text, probabilities, topProbabilities, stopProbabilities, finishReason, certainty, unsure };
  }

  /**
   * Set the certainty of the answer if it has ended, and replace the text of an unsure correction. A conversation keeps it,
   * since it may be continued.
   * @param {Engine} engine @param {Sampler} sampler @param {Settings} settings @param {boolean} [isResumable]
   */
  #judge({ info }, { answer, logprobs, constraint: { fallback } }, { minCertainty }, isResumable) {
    if (!this.finishReason) return;
    this.certainty = info.certainty ? certaintyOf(info.certainty, answer, logprobs, this.finishReason) : null;
    const isBelow = minCertainty !== null && (this.certainty === null || this.certainty < minCertainty);
    this.unsure = isBelow || (fallback !== null && !isWhole(answer, this.finishReason));
    if (fallback !== null && this.unsure && !isResumable) this.text = fallback;
  }

  /** @param {Engine} engine @param {number} seconds */
  #count({ ledger }, seconds) {
    const { stats } = this;
    if (stats.firstTokens === stats.tokens && stats.decodeS === 0) stats.ttftS += seconds;
    else stats.decodeS += seconds;
    [stats.slots, stats.kvBytes, stats.kvBytesUncompressed] = [ledger.slots, ledger.bytes, ledger.bytesUncompressed];
  }
}

/** @type {FinishReason[]} after which an answer may go on */
export const RESUMABLE = ["length", "cancelled"];
/** @type {import("../loop/step.js").Step} */
const NOTHING = {
  tokens: [],
  probabilities: [],
  topProbabilities: [],
  stopProbabilities: [],
  finishReason: "cancelled",
  forced: 0,
  groups: [],
};
