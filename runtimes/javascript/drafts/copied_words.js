// The words that an answer copies from its prompt.
//
//     prompt     rain in| Col|fax|,| Senegal
//     answer     {"city": "|Col|fax|", "         a word is spelled without the space before it
//     skeleton   {"city": "|COPY|", "            each run of copied tokens is one mark

export const COPY = 0xfffffffe; // stands for a run of copied tokens
export const START = 0xffffffff; // precedes an answer's first token
const LONGEST_SKELETON = 24; // tokens that are kept
const NEWEST = 512; // prompt tokens that words are taken from
const SPACE = 0x20;

/** @typedef {{tokens: readonly number[], behind: number}} Word  Tokens without the space before, and the place after it. */

/** Cuts prompts into words. */
export class Words {
  /** @type {Map<string, readonly number[]>} */
  #spelled = new Map();
  #utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  /** @param {(token: number) => Uint8Array} tokenBytes @param {(text: string) => readonly number[]} encode */
  constructor(tokenBytes, encode) {
    this.tokenBytes = tokenBytes;
    this.encode = encode;
  }

  /**
   * The words by the index of their first token. A token without bytes belongs to no word.
   * @param {readonly number[]} prompt @returns {Map<number, Word>}
   */
  of(prompt) {
    const begin = Math.max(0, prompt.length - NEWEST);
    const pieces = prompt.slice(begin).map((token) => this.tokenBytes(token));
    /** @type {Map<number, Word>} */
    const found = new Map();
    for (let start = 0; start < pieces.length; start++) {
      if (!pieces[start].length || (pieces[start][0] !== SPACE && start && pieces[start - 1].length)) continue;
      let stop = start + 1;
      while (stop < pieces.length && pieces[stop].length && pieces[stop][0] !== SPACE) stop += 1;
      const tokens = this.#spell(pieces.slice(start, stop).flatMap((piece) => [...piece]));
      if (tokens.length) found.set(begin + start, { tokens, behind: begin + stop });
    }
    return found;
  }

  /** @param {number} token */
  isText(token) {
    return this.tokenBytes(token).length > 0;
  }

  /** @param {number[]} bytes */
  #spell(bytes) {
    let text = "";
    try {
      text = this.#utf8.decode(Uint8Array.from(bytes)).replace(/^ +/, "");
    } catch {
      return []; // no UTF-8
    }
    let tokens = this.#spelled.get(text);
    if (!tokens) {
      tokens = text ? this.encode(text) : [];
      if (this.#spelled.size >= 1 << 16) this.#spelled.clear();
      this.#spelled.set(text, tokens);
    }
    return tokens;
  }
}

/**
 * @typedef {object} Reading  What precedes the next token of an answer.
 * @property {readonly number[]} skeleton  the newest tokens; each copied run is one COPY
 * @property {readonly number[]} rest  tokens to come of the word that is being copied
 * @property {number} place  index of the prompt's token after that word; -1: nothing is being copied
 * @property {number} after  index of the prompt's token after the newest copied word
 */

/** @type {Reading} */
export const BEGINNING = { skeleton: [START], rest: [], place: -1, after: 0 };

/**
 * Reads an answer token by token and finds what it copies. A run begins where `mayBegin(skeleton)` holds, with the first
 * token of a word. It continues with the rest of the word, then with the prompt's next tokens.
 */
export class CopyReader {
  /** @type {Map<number, Word> | null} */
  #words = null;
  /** @type {Map<number, number[]>} first token -> places */
  #byFirst = new Map();
  #source;
  #mayBegin;

  /** @param {readonly number[]} prompt @param {Words | null} words @param {(skeleton: readonly number[]) => boolean} mayBegin */
  constructor(prompt, words, mayBegin) {
    this.prompt = prompt;
    this.#source = words;
    this.#mayBegin = mayBegin;
  }

  get words() {
    if (!this.#words) {
      this.#words = this.#source?.of(this.prompt) ?? new Map();
      for (const [place, { tokens }] of this.#words) {
        const places = this.#byFirst.get(tokens[0]);
        if (places) places.push(place);
        else this.#byFirst.set(tokens[0], [place]);
      }
    }
    return this.#words;
  }

  /** The token that would continue the copied run; null: none. @param {Reading} reading */
  expected({ rest, place }) {
    if (rest.length) return rest[0];
    if (place < 0 || place >= this.prompt.length) return null;
    const token = this.prompt[place];
    return this.#source?.isText(token) ? token : null;
  }

  /** The reading after one more token of the answer. @param {Reading} reading @param {number} token @returns {Reading} */
  read(reading, token) {
    const { skeleton, rest, place, after } = reading;
    if (token === this.expected(reading)) {
      if (rest.length) return { skeleton, rest: rest.slice(1), place, after };
      return { skeleton, rest: [], place: place + 1, after: place + 1 };
    }
    if (this.#source && this.#mayBegin(skeleton)) {
      const { words } = this;
      // of equal words the next one behind the newest copy, else the nearest before it
      let begin = -1;
      for (const at of this.#byFirst.get(token) ?? []) if (begin < 0 || isNearer(at, begin, after)) begin = at;
      const word = words.get(begin);
      if (word) {
        const [, ...others] = word.tokens;
        return { skeleton: longer(skeleton, COPY), rest: others, place: word.behind, after: word.behind };
      }
    }
    return { skeleton: longer(skeleton, token), rest: [], place: -1, after };
  }
}

/** @param {number} at @param {number} other @param {number} after */
function isNearer(at, other, after) {
  if (at < after !== other < after) return at >= after;
  return Math.abs(at - after) < Math.abs(other - after);
}

/** @param {readonly number[]} skeleton @param {number} token */
function longer(skeleton, token) {
  return [...skeleton.slice(-LONGEST_SKELETON + 1), token];
}
