// Drafts copied from the prompt: where an answer repeats the prompt, the text that followed there may follow here.
//
//     prompt   will yuo come to the garden today ?
//     answer   Will you come           -> draft: to the garden today ?     of which the base keeps its own choices

const MOST = 6; // tokens of a draft: each costs a row of the base's call
const LONGEST = 4; // tokens of a match that count: longer ones predict no better

/** The copies of one answer from its prompt, and whether the last one succeeded. */
export class Copies {
  /** @type {Map<number, number[]>} token -> the indices behind it in the prompt */
  #behind = new Map();
  #next = 0; // index behind what was copied last
  #holds = true; // the base kept some of the last draft
  /** @type {{index: number, before: number} | null} of the draft in progress: in the prompt, in the answer */
  #start = null;

  /** @param {readonly number[]} prompt */
  constructor(prompt) {
    this.prompt = prompt;
    for (const [index, token] of prompt.entries()) {
      const behind = this.#behind.get(token);
      if (behind) behind.push(index + 1);
      else this.#behind.set(token, [index + 1]);
    }
  }

  /**
   * What followed in the prompt after as many of the answer's last tokens as match, `least` or more. Of several such
   * places the nearest at or behind what was copied last comes first. One token alone often matches by chance: it
   * counts only while copying goes well.
   * @param {readonly number[]} answer @param {number} least @returns {number[]}
   */
  draft(answer, least) {
    let [length, index] = [0, 0];
    for (const place of this.#behind.get(answer[answer.length - 1]) ?? []) {
      const found = this.#match(answer, place);
      if (found > length || (found === length && this.#isNearer(place, index))) [length, index] = [found, place];
    }
    if (length < Math.max(least, this.#holds ? 1 : 2)) return [];
    this.#start = { index, before: answer.length };
    return this.prompt.slice(index, index + MOST);
  }

  /** Record that the base kept the draft up to this length of the answer. @param {number} said */
  settle(said) {
    if (!this.#start) return;
    const kept = Math.max(0, said - this.#start.before);
    [this.#next, this.#holds, this.#start] = [this.#start.index + kept, kept > 0, null];
  }

  /** @param {number} place @param {number} other */
  #isNearer(place, other) {
    const next = this.#next;
    if (place >= next !== other >= next) return place >= next;
    return Math.abs(place - next) < Math.abs(other - next);
  }

  /** @param {readonly number[]} answer @param {number} place */
  #match(answer, place) {
    const most = Math.min(LONGEST, answer.length, place);
    let length = 1;
    while (length < most && this.prompt[place - 1 - length] === answer[answer.length - 1 - length]) length += 1;
    return length;
  }
}
