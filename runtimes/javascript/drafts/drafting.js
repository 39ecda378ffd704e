// Drafts that cost no model call: what a task's answers usually say next, and copies out of the prompt.
//
//     prompt   will yuo come to the garden today ?
//     answer   Will you come           -> copy: to the garden today ?
//     answer   {"intent": "            -> index: the key that usually follows
//     answer   {"city": "              -> index: a copy begins, usually with the word after "in"
import { BEGINNING, COPY, CopyReader, START } from "./copied_words.js";
import { COPY_CHANCES, placeKeys, runKeys } from "./draft_index.js";

/** @import { Reading, Words } from "./copied_words.js" */
/** @import { DraftIndex, Guess } from "./draft_index.js" */
/** @typedef {{row: number, micro: number}} Costs  Of a draft, in units of a base call's fixed cost. */

const LONGEST_MATCH = 5; // tokens of a match that count
const WEIGHT = 4; // copied tokens that the measured chances weigh as much as, against this answer's own
export const MOST = 24; // tokens drafted after the first
/** @type {Costs} */
export const USUAL_COSTS = { row: 0.2, micro: 0.25 };

/** What a kept token saves on average, in base calls; without an index 1. @param {DraftIndex | null} index @param {Costs} costs */
export function worthOfToken(index, costs) {
  return index ? Math.min(1, (1 + costs.row * index.rows) / index.tokens) : 1;
}

/**
 * @typedef {object} Copies  Counts of the copied tokens in one answer's drafts. A cut answer continues with them.
 * @property {number} tried  copied tokens that the base checked
 * @property {number} kept  of these, those that it kept
 * @property {number} next  place in the prompt behind the newest one that it kept
 */

/** @returns {Copies} */
export const noCopies = () => ({ tried: 0, kept: 0, next: 0 });

/** Guesses for one answer, from the index and from its prompt. */
export class Drafter {
  /** @type {Map<number, number[]>} token -> the places behind it in the prompt */
  #behind = new Map();
  /** @type {number[]} of the draft in progress: where each token was copied from, or -1 */
  #drafted = [];

  /** @type {number[]} the answer's tokens that have been read */
  #read = [];
  /** @type {Reading[]} before each of them, and after the last */
  #readings = [BEGINNING];

  /**
   * @param {readonly number[]} prompt @param {DraftIndex | null} index @param {Words | null} words
   * @param {Copies} copies  of the answer so far, if it was cut; updated here
   */
  constructor(prompt, index, words = null, copies = noCopies()) {
    this.copies = copies;
    this.prompt = prompt;
    this.index = index;
    this.reader = new CopyReader(prompt, words, (skeleton) => index?.mayBegin(skeleton) ?? false);
    this.chances = index?.copyChances ?? COPY_CHANCES;
    for (const [place, token] of prompt.slice(0, -1).entries()) {
      const behind = this.#behind.get(token);
      if (behind) behind.push(place + 1);
      else this.#behind.set(token, [place + 1]);
    }
  }

  /** The likeliest token behind the answer and the draft so far. @param {readonly number[]} answer @returns {Guess | null} */
  guess(answer) {
    if (!this.index) return this.copy(answer);
    const reading = this.#reading(answer);
    const found = this.#usual(reading, this.index);
    if (this.reader.expected(reading) !== null) return found;
    const copied = this.copy(answer);
    return copied && (!found || copied.chance > found.chance) ? copied : found;
  }

  /** What precedes the next token. @param {readonly number[]} answer */
  #reading(answer) {
    let same = 0;
    while (same < this.#read.length && same < answer.length && this.#read[same] === answer[same]) same += 1;
    this.#read.length = same; // without a rejected draft
    this.#readings.length = same + 1;
    for (const token of answer.slice(same)) {
      this.#readings.push(this.reader.read(this.#readings[this.#readings.length - 1], token));
      this.#read.push(token);
    }
    return this.#readings[this.#readings.length - 1];
  }

  /** The likelier of the copied run's next token and the usual token after it. @param {Reading} reading @param {DraftIndex} index */
  #usual(reading, index) {
    const token = this.reader.expected(reading);
    /** @type {Guess | null} */
    let run = null;
    if (token !== null && reading.rest.length) run = { token, chance: index.wordChance, floor: 0, place: -1 };
    else if (token !== null) {
      const found = index.first(runKeys(reading.skeleton, token));
      run = found && { ...found, token };
    }
    let usual = index.guess(reading.skeleton);
    if (usual?.token === COPY) usual = this.#word(reading, index, usual);
    if (usual && run) {
      const ends = 1 - run.chance;
      usual = { ...usual, chance: usual.chance * ends, floor: usual.floor * ends };
    }
    return run && (!usual || run.chance >= usual.chance) ? run : usual;
  }

  /** First token of the word that a copied run most probably begins with. @param {Reading} reading @param {DraftIndex} index @param {Guess} begins */
  #word({ skeleton }, index, begins) {
    /** @type {Guess | null} */
    let best = null;
    for (const [place, word] of this.reader.words) {
      const before = place ? this.prompt[place - 1] : START;
      const found = index.first(placeKeys(skeleton, before, this.prompt[place]));
      if (found && (!best || found.chance > best.chance)) best = { ...found, token: word.tokens[0] };
    }
    return best && { ...best, chance: begins.chance * best.chance, floor: begins.floor * best.floor };
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
      this.copies.tried += 1;
      if (number < kept) [this.copies.kept, this.copies.next] = [this.copies.kept + 1, place + 1];
    }
  }

  /**
   * What follows in the prompt behind as many of the answer's last tokens as match. Of several such places, one at or
   * behind the last copy comes first, then the nearest to it.
   * @param {readonly number[]} answer @returns {Guess | null}
   */
  copy(answer) {
    const after = Math.max(this.copies.next, ...this.#drafted.map((place) => place + 1));
    let [length, place] = [0, -1];
    for (const at of this.#behind.get(answer[answer.length - 1]) ?? []) {
      const found = this.#match(answer, at);
      if (found > length || (found === length && isNearer(at, place, after))) [length, place] = [found, at];
    }
    if (place < 0) return null;
    const chance = (WEIGHT * this.chances[length - 1] + this.copies.kept) / (WEIGHT + this.copies.tried);
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
