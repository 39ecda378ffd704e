// The tokens of one macro step.

/** @import { Group } from "./backend.js" */
/** @import { TopToken } from "./sampling.js" */

/** @typedef {"eos" | "length" | "stop" | "context" | "cancelled"} FinishReason */

/**
 * @typedef {object} Step  The tokens of one macro step.
 * @property {Group} tokens
 * @property {number[]} probabilities  of each token; empty without the option `topProbabilities`
 * @property {TopToken[][]} topProbabilities  of each token: the base's likeliest tokens at its place, empty if the base did
 *   not choose or check it (drafted and merged unchecked, or forced by a structure); empty without the option
 * @property {number[]} stopProbabilities  probability that the group should end with each token
 * @property {FinishReason | null} finishReason  set on the last step
 * @property {number} forced  number of forced tokens
 * @property {Group[]} groups  the tokens by slot
 */

/**
 * @typedef {object} StepToken  A token of a step, and how it was chosen.
 * @property {number} token
 * @property {number} probability
 * @property {number} pStop  probability that the group should end with it
 * @property {TopToken[]} top
 * @property {number} logprob  to record if the base does not score the token
 * @property {boolean} isForced  whether the grammar allowed no other token
 */

/** @typedef {StepToken[]} Slot */

/**
 * Return the record of a chosen token.
 * @param {import("./sampling.js").Choice} choice @param {Partial<StepToken>} [more]
 * @returns {StepToken}
 */
export function stepToken({ token, probability, top = [] }, more) {
  return { token, probability, pStop: 0, top, logprob: 0, isForced: false, ...more };
}

/**
 * Return the step of these slots, with probabilities if requested.
 * @param {readonly Slot[]} slots @param {boolean} showsProbabilities
 * @returns {Step}
 */
export function stepOf(slots, showsProbabilities) {
  const tokens = slots.flat();
  const shown = showsProbabilities ? tokens : [];
  return {
    tokens: tokens.map(({ token }) => token),
    probabilities: shown.map(({ probability }) => probability),
    topProbabilities: shown.map(({ top }) => top),
    stopProbabilities: tokens.map(({ pStop }) => pStop),
    finishReason: null,
    forced: tokens.filter(({ isForced }) => isForced).length,
    groups: groupsOf(slots),
  };
}

/** @param {readonly Slot[]} slots @returns {Group[]} */
export function groupsOf(slots) {
  return slots.map((slot) => slot.map(({ token }) => token));
}
