// Drafts that cost no model call: what a task's answers usually say next, and copies out of the prompt.
//
//     prompt   will yuo come to the garden today ?
//     answer   Will you come           -> copy: to the garden today ?
//     answer   {"intent": "            -> index: the key that usually follows
import { COPY_CHANCES } from "./draft_index.js";

/** @import { DraftIndex, Guess } from "./draft_index.js" */
/** @typedef {{row: number, micro: number}} Costs  Of a draft, in units of a base call's fixed cost. */

const LONGEST_MATCH = 5; // tokens of a match that count
const WEIGHT = 4; // copied tokens that the measured chances weigh as much as, against this answer's own
export const MOST = 16; // tokens of a draft
/** @type {Costs} */
export const USUAL_COSTS = { row: 0.2, micro: 0.25 };

/** Guesses for one answer, from the index and from its prompt. */
export class Drafter {
  /** @type {Map<number, number[]>} token -> the places behind it in the prompt */
  #behind = new Map();
  #next = 0; // place behind the token that was copied last
  #tried = 0; // copied tokens that the base checked ...
  #kept = 0; // ... and kept
  /** @type {number[]} of the draft in progress: where each token was copied from, or -1 */
  #drafted = [];

  /** @param {readonly number[]} prompt @param {DraftIndex | null} index */
  constructor(prompt, index) {
    this.prompt = prompt;
    this.index = index;
    this.chances = index?.copyChances ?? COPY_CHANCES;
    for (const [place, token] of prompt.slice(0, -1).entries()) {
      const behind = this.#behind.get(token);
      if (behind) behind.push(place + 1);
      else this.#behind.set(token, [place + 1]);
    }
  }

  /** The likeliest token behind the answer and the draft so far. @param {readonly number[]} answer @returns {Guess | null} */
  guess(answer) {
    const found = this.index?.guess(answer) ?? null;
    const copied = this.copy(answer);
    return copied && (!found || copied.chance > found.chance) ? copied : found;
  }

  /** A new draft. */
  begin() {
    this.#drafted = [];
  }

  /** One more token is drafted; `place` is where in the prompt it was copied from. @param {number} place */
  add(place) {
    this.#drafted.push(place);
  }

  /** The base kept so many tokens of the draft. @param {number} kept */
  settle(kept) {
    for (const [number, place] of this.#drafted.slice(0, kept + 1).entries()) {
      if (place < 0) continue;
      this.#tried += 1;
      if (number < kept) [this.#kept, this.#next] = [this.#kept + 1, place + 1];
    }
  }

  /**
   * What follows in the prompt behind as many of the answer's last tokens as match. Of several such places, one at or
   * behind the last copy comes first, then the nearest to it.
   * @param {readonly number[]} answer @returns {Guess | null}
   */
  copy(answer) {
    const after = Math.max(this.#next, ...this.#drafted.map((place) => place + 1));
    let [length, place] = [0, -1];
    for (const at of this.#behind.get(answer[answer.length - 1]) ?? []) {
      const found = this.#match(answer, at);
      if (found > length || (found === length && isNearer(at, place, after))) [length, place] = [found, at];
    }
    if (place < 0) return null;
    const chance = (WEIGHT * this.chances[length - 1] + this.#kept) / (WEIGHT + this.#tried);
    return { token: this.prompt[place], chance, floor: 0, place };
  }

  /** @param {readonly number[]} answer @param {number} place */
  #match(answer, place) {
    const most = Math.min(LONGEST_MATCH, answer.length, place);
    let length = 1;
    while (length < most && this.prompt[place - 1 - length] === answer[answer.length - 1 - length]) length += 1;
    return length;
  }
}

/** Whether a place is preferred to an earlier one of an equal match. @param {number} place @param {number} other @param {number} after */
function isNearer(place, other, after) {
  if (place >= after !== other >= after) return place >= after;
  return Math.abs(place - after) <= Math.abs(other - after);
}
