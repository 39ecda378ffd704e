// Spaces of scores (the base's, a micro step's) and draws from them.
import { InputError } from "../errors.js";

/** One space of scores: the token of each index, and constant changes of scores. */
export class Head {
  /** @type {Map<number, number> | null} token -> index, where there is a draft vocabulary */
  #index = null;
  /** @type {[number, number][]} index and what is added to its score */
  changes = [];
  /** @type {Int32Array | null} index by rising token id, where a draft vocabulary is ranked otherwise */
  order = null;

  /**
   * @param {Map<number, number>} changes  token -> what is added to its score
   * @param {number} vocabSize
   * @param {readonly number[] | null} draftVocab
   */
  constructor(changes, vocabSize, draftVocab) {
    this.size = draftVocab ? draftVocab.length : vocabSize;
    this.tokens = draftVocab;
    if (draftVocab) {
      this.#index = new Map(draftVocab.map((token, i) => [token, i]));
      if (draftVocab.some((token, i) => i > 0 && token < draftVocab[i - 1])) {
        this.order = Int32Array.from(draftVocab.keys()).sort((a, b) => draftVocab[a] - draftVocab[b]);
      }
    }
    for (const [token, change] of changes) {
      if (token >= vocabSize) {
        throw new InputError(`token ${token} in logitBias is not in the vocabulary of ${vocabSize}`);
      }
      const index = this.locate(token);
      if (index !== undefined) this.changes.push([index, Math.fround(change)]);
    }
    this.usable = this.changes.filter(([, change]) => change === -Infinity).length < this.size;
  }

  /** @param {number} index */
  token(index) {
    return this.tokens ? this.tokens[index] : index;
  }

  /** Return the index of a token, if this head can choose it. @param {number} token */
  locate(token) {
    return this.#index ? this.#index.get(token) : token;
  }
}

/** Return the k-th highest of more than k weights, by narrowing its range. @param {Float32Array} weights @param {number} k */
export function kthHighest(weights, k) {
  let left = weights;
  for (;;) {
    const pivot = left[left.length >> 1];
    const above = left.filter((weight) => weight > pivot);
    if (above.length >= k) {
      left = above;
      continue;
    }
    const below = left.filter((weight) => weight < pivot);
    if (left.length - below.length >= k) return pivot;
    k -= left.length - below.length;
    left = below;
  }
}

/**
 * Return the smallest weight in the smallest set of likeliest tokens that holds `topP` of the whole.
 * @param {Float32Array} weights
 * @param {number} topP
 */
export function nucleusCut(weights, topP) {
  const total = sum(weights, 0, weights.length);
  // All tokens below this floor together hold less than 1 - topP: the nucleus is above it.
  const floor = ((1 - topP) * total) / weights.length;
  const likely = weights.filter((weight) => weight >= floor).sort().reverse();
  let inside = 0;
  for (const weight of likely) {
    inside += weight;
    if (inside >= topP * total) return weight;
  }
  return likely[likely.length - 1];
}

/**
 * Return the index at which a draw in [0, 1) falls, and its share: by block, then inside it.
 * @param {Float32Array} weights
 * @param {number} draw
 */
export function pick(weights, draw) {
  const block = 256;
  const edges = [];
  let total = 0;
  let last = 0; // block with any weight
  for (let start = 0; start < weights.length; start += block) {
    const inside = sum(weights, start, Math.min(start + block, weights.length));
    if (inside > 0) last = edges.length;
    edges.push((total += inside));
  }
  // rounding may put the draw on an upper edge: the last index with any weight takes it
  const found = edges.findIndex((edge) => edge > draw * total);
  const number = found < 0 ? last : Math.min(found, last);
  const end = Math.min((number + 1) * block, weights.length);
  let index = number * block;
  let reached = edges[number] - sum(weights, index, end);
  for (let i = index; i < end; i++) {
    if (weights[i] > 0) index = i;
    reached += weights[i];
    if (reached > draw * total) break;
  }
  return { index, probability: weights[index] / total };
}

/** @param {Float32Array} weights @param {number} start @param {number} end */
function sum(weights, start, end) {
  let total = 0;
  for (let i = start; i < end; i++) total += weights[i];
  return total;
}
