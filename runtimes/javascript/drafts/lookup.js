// Prompt lookup guesses the token that followed the same tokens before, in the prompt or in the answer.
//
//     prompt   will yuo come to the garden today ?
//     answer   Will you come                         -> to the garden today ?
//     answer   first, add the flour. Then, add the   -> flour
//
// The chance of a copy depends on how many tokens match before it.

/** @import { Guess } from "./draft_index.js" */

const LONGEST_MATCH = 5; // tokens of a match that count
const WEIGHT = 4; // copied tokens that the measured chances weigh as much as, against this answer's own

/**
 * @typedef {object} Copies  Counts of the copied tokens in one answer's drafts. A cut answer continues with them.
 * @property {number[]} tried  copied tokens that the base checked, by the length of their match
 * @property {number[]} kept  of these, those that it kept
 * @property {number} next  place in the text behind the newest one that it kept
 */

/** @returns {Copies} */
export function noCopies() {
  return { tried: new Array(LONGEST_MATCH).fill(0), kept: new Array(LONGEST_MATCH).fill(0), next: 0 };
}

/** @param {Copies} copies @returns {Copies} */
export const sameCopies = ({ tried, kept, next }) => ({ tried: [...tried], kept: [...kept], next });

/** The text so far, prompt and answer, and where each of its tokens stands. */
export class Lookup {
  /** @type {number[]} */
  #text = [];
  /** @type {Map<number, number[]>} token -> the places behind it */
  #behind = new Map();
  /** @type {(Guess | null)[]} of the draft in progress: each token's copy */
  #drafted = [];
  #promptLength;

  /** @param {readonly number[]} prompt @param {readonly number[]} chances @param {Copies} copies */
  constructor(prompt, chances, copies) {
    this.chances = chances;
    this.copies = copies;
    for (const token of prompt) this.#append(token);
    this.#promptLength = prompt.length;
  }

  /**
   * Continue the prompt with this answer; return how many of its tokens were there before. The others replace those of a
   * rejected draft.
   * @param {readonly number[]} answer
   */
  follow(answer) {
    const [text, begin] = [this.#text, this.#promptLength];
    let kept = 0;
    while (kept < answer.length && begin + kept < text.length && text[begin + kept] === answer[kept]) kept += 1;
    while (text.length > begin + kept) {
      text.pop();
      this.#behind.get(text[text.length - 1])?.pop();
    }
    for (const token of answer.slice(kept)) this.#append(token);
    return kept;
  }

  /** @param {number} token */
  #append(token) {
    const place = this.#text.length;
    const before = this.#text[place - 1];
    const behind = this.#behind.get(before);
    if (behind) behind.push(place);
    else if (place) this.#behind.set(before, [place]);
    this.#text.push(token);
  }

  /** A new draft. */
  begin() {
    this.#drafted = [];
  }

  /** One more token is drafted: this guess, or one of another source. @param {Guess | null} guess */
  add(guess) {
    this.#drafted.push(guess?.match ? guess : null);
  }

  /** The base kept so many tokens of the draft. @param {number} kept */
  settle(kept) {
    for (const [number, guess] of this.#drafted.slice(0, kept + 1).entries()) {
      if (!guess) continue;
      this.copies.tried[guess.match - 1] += 1;
      if (number >= kept) continue;
      this.copies.kept[guess.match - 1] += 1;
      this.copies.next = guess.place + 1;
    }
  }

  /**
   * What follows behind as many of the answer's last tokens as match. Of several such places, one at or behind the last
   * copy comes first, then the nearest to it.
   * @returns {Guess | null}
   */
  guess() {
    const text = this.#text;
    const answered = text.length - this.#promptLength;
    /** @type {readonly number[]} */
    let places = (answered && this.#behind.get(text[text.length - 1])) || [];
    if (!places.length) return null;
    let match = 1;
    while (match < Math.min(LONGEST_MATCH, answered)) {
      const token = text[text.length - 1 - match];
      const longer = places.filter((at) => at > match && text[at - 1 - match] === token);
      if (!longer.length) break;
      [places, match] = [longer, match + 1];
    }
    const after = Math.max(this.copies.next, ...this.#drafted.map((guess) => (guess ? guess.place + 1 : 0)));
    const place = places.find((at) => at >= after) ?? places[places.length - 1];
    const [tried, kept] = [this.copies.tried[match - 1], this.copies.kept[match - 1]];
    const chance = (WEIGHT * this.chances[match - 1] + kept) / (WEIGHT + tried);
    return { token: text[place], chance, floor: 0, place, match };
  }
}
