// The certainty of an answer: the calibrated probability that the whole answer is right.
//
//     nll = -(sum of the log-probabilities of the answer's tokens, end token included)
//     certainty = 1 / (1 + exp(slope * log(nll + FLOOR) - offset))
//
// The log-probabilities are those of the base's own scores, among the tokens that the grammar allows; the sampler
// records them. The manifest holds both coefficients.

/** @import { FinishReason } from "./step.js" */

/** @typedef {{offset: number, slope: number}} Certainty  The coefficients of a model's certainty. */

const FLOOR = 0.05; // keeps the certainty of an answer with probability 1 below 1
const LOWEST_LOGPROB = -20; // of a token; lower ones count as this

// An answer is a loop if at least REPEATED of the 4-grams among its last TAIL tokens are copies of others there.
const TAIL = 32;
const REPEATED = 0.5;

const LARGEST = 1e5; // coefficient
/** @type {FinishReason[]} of cut answers */
const CUT = ["length", "context", "cancelled"];

/** Whether a manifest's `certainty` has usable coefficients. @param {any} certainty */
export function isCertainty(certainty) {
  const { offset, slope } = certainty ?? {};
  return Number.isFinite(offset) && Math.abs(offset) <= LARGEST && Number.isFinite(slope) && 0 <= slope && slope <= LARGEST;
}

/**
 * Return the certainty of an ended answer; null if its log-probabilities were not recorded.
 * @param {Certainty} coefficients @param {readonly number[]} tokens
 * @param {readonly number[] | null} logprobs @param {FinishReason} finishReason
 */
export function certaintyOf({ offset, slope }, tokens, logprobs, finishReason) {
  if (!logprobs) return null;
  if (!isWhole(tokens, finishReason)) return 0;
  const nll = Math.max(0, -logprobs.reduce((sum, logprob) => sum + Math.max(LOWEST_LOGPROB, logprob), 0));
  return 1 / (1 + Math.exp(Math.min(slope * Math.log(nll + FLOOR) - offset, 700)));
}

/**
 * Whether an answer ended by itself, with tokens, and does not repeat itself at its end.
 * @param {readonly number[]} tokens @param {FinishReason} finishReason
 */
export function isWhole(tokens, finishReason) {
  return !CUT.includes(finishReason) && tokens.length > 0 && !isLoop(tokens);
}

/** Whether the end of an answer repeats itself. @param {readonly number[]} tokens */
export function isLoop(tokens) {
  if (tokens.length < TAIL) return false;
  const tail = tokens.slice(-TAIL);
  const grams = tail.slice(3).map((_, i) => tail.slice(i, i + 4).join());
  return 1 - new Set(grams).size / grams.length >= REPEATED;
}
