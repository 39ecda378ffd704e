// Drafts that cost no model call: what a task's answers usually say next, and copies out of the text (lookup.js).
//
//     prompt   will yuo come to the garden today ?
//     answer   Will you come           -> copy: to the garden today ?
//     answer   {"intent": "            -> index: the key that usually follows
//     answer   {"city": "              -> index: a copy begins, usually with the word after "in"
import { BEGINNING, COPY, CopyReader, START } from "./copied_words.js";
import { USUAL_RATES, placeKeys, runKeys } from "./draft_index.js";
import { Lookup, noCopies } from "./lookup.js";

/** @import { Reading, Words } from "./copied_words.js" */
/** @import { DraftIndex, Guess } from "./draft_index.js" */
/** @import { Copies } from "./lookup.js" */
/**
 * Costs of a draft, in units of a base call with one row behind FEW_SLOTS; and what 1,000 slots add to such a call, and to
 * one more row.
 * @typedef {{row: number, micro: number, call_slots?: number, row_slots?: number}} Costs
 */

export const MOST = 24; // tokens drafted after the first
const FEW_SLOTS = 64; // of a usual short text
const HIGHEST = 10; // cost that a file may hold
/** @type {Costs} */
export const USUAL_COSTS = { row: 0.2, micro: 0.25 };

/** @param {Costs} costs */
export function areUsable({ row, micro, call_slots = 0, row_slots = 0 }) {
  return row > 0 && micro > 0 && [row, micro, call_slots, row_slots].every((cost) => cost >= 0 && cost <= HIGHEST);
}

/** The costs in units of a base call with one row behind so many slots. @param {Costs} costs @param {number} slots */
export function costsBehind({ row, micro, call_slots = 0, row_slots = 0 }, slots) {
  const thousands = Math.max(0, slots - FEW_SLOTS) / 1000;
  const call = 1 + call_slots * thousands;
  return { row: (row + row_slots * thousands) / call, micro: micro / call };
}

/** What a kept token saves on average, in base calls. @param {DraftIndex | null} index @param {Costs} costs */
export function worthOfToken(index, costs) {
  const { tokens, rows } = index?.rates ?? USUAL_RATES;
  return Math.min(1, (1 + costs.row * rows) / tokens);
}

/** Guesses for one answer, from the index and from its text. */
export class Drafter {
  #lookup;
  /** @type {Reading[]} before each of the answer's tokens, and after the last */
  #readings = [BEGINNING];

  /**
   * @param {readonly number[]} prompt @param {DraftIndex | null} index @param {Words | null} words
   * @param {Copies} copies  of the answer so far, if it was cut; updated here
   */
  constructor(prompt, index, words = null, copies = noCopies()) {
    this.prompt = prompt;
    this.index = index;
    this.reader = new CopyReader(prompt, words, (skeleton) => index?.mayBegin(skeleton) ?? false);
    this.#lookup = new Lookup(prompt, (index?.rates ?? USUAL_RATES).copies, copies);
  }

  /** The likeliest token behind the answer and the draft so far. @param {readonly number[]} answer @returns {Guess | null} */
  guess(answer) {
    const kept = this.#lookup.follow(answer);
    if (!this.index) return this.#lookup.guess();
    const reading = this.#reading(answer, kept);
    const found = this.#usual(reading, this.index);
    if (this.reader.expected(reading) !== null) return found;
    const copied = this.#lookup.guess();
    return copied && (!found || copied.chance > found.chance) ? copied : found;
  }

  /** A new draft. */
  begin() {
    this.#lookup.begin();
  }

  /** One more token is drafted: this guess, or one that was not guessed. @param {Guess | null} guess */
  add(guess = null) {
    this.#lookup.add(guess);
  }

  /** The base kept so many tokens of the draft. @param {number} kept */
  settle(kept) {
    this.#lookup.settle(kept);
  }

  /** What precedes the next token; the first `kept` tokens have been read. @param {readonly number[]} answer @param {number} kept */
  #reading(answer, kept) {
    this.#readings.length = kept + 1;
    for (const token of answer.slice(kept)) {
      this.#readings.push(this.reader.read(this.#readings[this.#readings.length - 1], token));
    }
    return this.#readings[this.#readings.length - 1];
  }

  /** The likelier of the copied run's next token and the usual token after it. @param {Reading} reading @param {DraftIndex} index */
  #usual(reading, index) {
    const token = this.reader.expected(reading);
    /** @type {Guess | null} */
    let run = null;
    if (token !== null && reading.rest.length) run = { token, chance: index.rates.word, floor: 0, place: -1, match: 0 };
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
}
