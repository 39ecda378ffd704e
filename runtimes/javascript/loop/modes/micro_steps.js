// Micro steps: the scores of a group's further tokens, after one row of the base.

/** @import { AnswerRun, Row } from "../answer_run.js" */

/** The micro decoder in one group. */
export class MicroSteps {
  #run;
  #row;
  #read = 0; // number of tokens that the micro decoder has read

  /** @param {AnswerRun} run @param {Row} row */
  constructor(run, row) {
    this.#run = run;
    this.#row = row;
    this.pStop = row.pStop; // of the newest scores
  }

  /** Return how many of a group's tokens the micro decoder has not read. @param {number} tokens */
  behind(tokens) {
    return tokens - this.#read;
  }

  /** Return the scores of the token after these, and the probability of the highest. @param {readonly number[]} tokens */
  async scores(tokens) {
    const { text, stats, info } = this.#run;
    const begin = performance.now();
    if (!this.#read) text.backend.microBegin(this.#row.features);
    const before = 1 - this.pStop; // by stop rule "before" the last pStop is about this token
    const behind = tokens.slice(this.#read);
    let micro = await text.backend.micro(behind[0]);
    for (const token of behind.slice(1)) micro = await text.backend.micro(token);
    stats.microS += (performance.now() - begin) / 1000;
    stats.microSteps += behind.length;
    [this.#read, this.pStop] = [tokens.length, micro.pStop];
    return { logits: micro.logits, chance: info.stopRule === "after" ? 1 - this.pStop : before };
  }
}

/** Return the log-probability to record for a drafted token that may be merged unchecked. @param {number} chance */
export function logChance(chance) {
  return Math.log(Math.max(chance, 1e-9));
}
