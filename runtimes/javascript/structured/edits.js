// A rule for answers that put their prompt right: whatever the weights, names and numbers stay.
//
// Words that look like names, numbers or codes are copied as they stand. Every other word of the answer is a piece of
// the prompt with a few edits, more in longer words, and the next one begins where that piece ended.
//
//     prompt   Ann, Bill, Cate, and Dale saw teh dogs
//     answer   Ann, Bill,        -> " and" would leave out "Cate": the likeliest token that is left may be " Cate"
//
// docs/spec/loop.md has the prices as a table.
import { Unconstrained } from "./constraint.js";

/**
 * @typedef {object} Reached  How far an answer has come.
 * @property {Float64Array} row  what every place in the prompt costs the newest word
 * @property {Float64Array} before  the same one byte ago
 * @property {number} last  the newest byte
 * @property {number} letters  of the newest word
 * @property {Map<number, Reached | null>} following  token -> where it leads; null: it may not come
 */

const NEVER = 2 ** 30; // a price that no word can pay
const [LETTER, CAPITAL, CASE, OTHER, JOIN] = [2, 4, 1, 1, 3];
const [FIRST, MORE, EACH] = [3, 2, 3]; // a word may pay FIRST, and MORE for every EACH of its letters
const INSIDE = 1; // the most it may pay where it ends inside a word of the prompt, as "a" does in "alot"

const PIECE = /[\p{L}\p{N}_@#$£€%&+/\\.'’:*=~^-]+/gu;
const SENTENCE = /.+?(?:(?<=[a-z0-9])\.(?=[A-Z][a-z])|$)/gu; // "end.The" holds two words
const BEGINS = /(?:^|[.!?:\n]["'“‘()\s]*|["“‘\n]\s*)$/u;
const APOSTROPHE = 0x27;

/**
 * Where words begin and end that look like names, numbers or codes.
 * @param {string} text @returns {Generator<[number, number]>}
 */
export function* keptWords(text) {
  for (const piece of text.matchAll(PIECE)) {
    for (const part of piece[0].matchAll(SENTENCE)) {
      const word = part[0].replace(/^[.':’-]+|[.':’-]+$/gu, "");
      const start = piece.index + part.index + part[0].indexOf(word);
      if (word && isKept(word, BEGINS.test(text.slice(0, start)))) yield [start, start + word.length];
    }
  }
}

/** @param {string} word @param {boolean} begins */
function isKept(word, begins) {
  if (/[\p{Nd}@/\\_]|[\p{L}\p{N}_]\.[\p{L}\p{N}_]/u.test(word)) return true;
  if (/^I(?:['’][\p{L}\p{N}_]+)?$/u.test(word)) return false;
  if (begins && /^\p{Lu}{2}\p{Ll}[^\p{Lu}]*$/u.test(word)) return false; // the shift key was held for too long
  return /\p{Lu}/u.test(begins ? [...word].slice(1).join("") : word);
}

/** @param {number} byte */
const isCapital = (byte) => byte >= 0x41 && byte <= 0x5a;
/** @param {number} byte */
const isDigit = (byte) => byte >= 0x30 && byte <= 0x39;
/** @param {number} byte */
const small = (byte) => (isCapital(byte) ? byte + 32 : byte);
/** @param {number} byte */
const isLetter = (byte) =>
  byte >= 0x80 || isDigit(byte) || (small(byte) >= 0x61 && small(byte) <= 0x7a) || byte === APOSTROPHE;

/** One answer's way through its prompt. Moves with the sampler's choices, and back with them. */
export class Edits extends Unconstrained {
  /** @type {(Reached | null)[]} after each token; null: a draft that the base has to mend */
  #way = [];
  #tokenBytes;
  #eosIds;
  #tokens = 0; // of the text to put right
  /** @type {Uint8Array} */
  #text = new Uint8Array(0);
  /** @type {boolean[]} bytes of words that are kept */
  #kept = [];
  #price = new Float64Array(0); // to replace a byte
  #leftOut = new Float64Array(0); // to leave it out
  #letterAdded = new Float64Array(0); // before a byte, or at the end
  #otherAdded = new Float64Array(0);
  #rest = new Int32Array(0); // letters from here to the end of a word
  #whole = new Int32Array(0); // of the word that holds this place, or ends here
  /** @type {[number, number][]} ends of a word and of the same word behind it */
  #repeated = [];

  /** @param {(token: number) => Uint8Array} tokenBytes @param {readonly number[]} eosIds */
  constructor(tokenBytes, eosIds) {
    super();
    this.#tokenBytes = tokenBytes;
    this.#eosIds = new Set(eosIds);
  }

  /**
   * The text to put right is the last of the prompt's runs of tokens that have a text.
   * @param {readonly number[]} prompt @param {readonly number[]} [answer]
   */
  async begin(prompt, answer = []) {
    const texts = prompt.map((token) => this.#tokenBytes(token));
    while (texts.length && !texts[texts.length - 1].length) texts.pop();
    const run = texts.slice(texts.findLastIndex((text) => !text.length) + 1);
    this.#tokens = run.length;
    this.#read(Uint8Array.from(run.flatMap((text) => [...text])));
    const row = this.#row();
    row[0] = 0;
    this.#skip(row);
    this.#way = [{ row, before: this.#row(), last: 0, letters: 0, following: new Map() }];
    for (const token of answer) this.consume(token);
  }

  /** The text to put right: it is better than an unsure correction. */
  get fallback() {
    return new TextDecoder().decode(this.#text);
  }

  /** The default length of an answer: within its budget, a word with its blank at most doubles. */
  get maxTokens() {
    return 2 * this.#tokens + 8;
  }

  /** Whether an answer may go on with this token. @param {number} token */
  allows(token) {
    const reached = this.#way[this.#way.length - 1];
    if (!reached) return false;
    if (!this.#eosIds.has(token)) return this.#following(reached, token) !== null;
    const end = this.#text.length;
    return reached.row[end] <= this.#budget(reached.letters, end);
  }

  /** @param {number} token */
  consume(token) {
    const reached = this.#way[this.#way.length - 1];
    this.#way.push(this.#eosIds.has(token) || !reached ? reached : this.#following(reached, token));
  }

  /** @param {number} tokens */
  rewind(tokens) {
    if (tokens) this.#way.splice(-tokens);
  }

  #row() {
    return new Float64Array(this.#text.length + 1).fill(NEVER);
  }

  /** @param {Reached} reached @param {number} token */
  #following(reached, token) {
    let found = reached.following.get(token);
    if (found === undefined) {
      found = this.#spelled(reached, this.#tokenBytes(token));
      reached.following.set(token, found);
    }
    return found;
  }

  /** @param {Reached} reached @param {Uint8Array} text @returns {Reached | null} */
  #spelled(reached, text) {
    if (!text.length) return null;
    for (const byte of text) reached = this.#step(reached, byte);
    const { row, letters } = reached;
    return row.some((price, place) => price <= this.#budget(letters, place)) ? reached : null;
  }

  /**
   * The most that a word of so many letters may pay at a place, with the rest of the prompt's word. A shorter word of the
   * prompt counts alone, as at least EACH.
   * @param {number} letters @param {number} place
   */
  #budget(letters, place) {
    const most = this.#whole[place] ? Math.max(this.#whole[place], EACH) : letters;
    return FIRST + MORE * Math.floor(Math.min(letters + this.#rest[place], most) / EACH);
  }

  /** Work out the prices of the prompt's text. @param {Uint8Array} text */
  #read(text) {
    this.#text = text;
    const size = text.length;
    const kept = (this.#kept = new Array(size).fill(false));
    this.#letterAdded = new Float64Array(size + 1).fill(LETTER);
    this.#otherAdded = new Float64Array(size + 1).fill(OTHER);
    const decoded = decode(text);
    const encoder = new TextEncoder();
    for (const word of keptWords(decoded)) {
      const [start, stop] = word.map((index) => encoder.encode(decoded.slice(0, index)).length);
      kept.fill(true, start, stop);
      this.#letterAdded.fill(NEVER, start, stop + 1);
      this.#otherAdded.fill(NEVER, start + 1, stop);
    }
    this.#price = Float64Array.from(text, (byte, index) => {
      if (kept[index]) return NEVER;
      if (!isLetter(byte) || byte === APOSTROPHE) return OTHER;
      return isCapital(byte) ? CAPITAL : LETTER;
    });
    const spelled = (/** @type {number} */ index) => index in text && isLetter(text[index]) && text[index] !== APOSTROPHE;
    this.#leftOut = this.#price.map((price, i) => {
      if (kept[i - 1] || kept[i + 1]) return NEVER; // with a letter beside it, a kept word would be another one
      return text[i] === 0x20 && spelled(i - 1) && spelled(i + 1) ? Math.max(price, JOIN) : price;
    });
    this.#rest = new Int32Array(size + 1);
    for (let i = size - 1; i >= 0; i--) this.#rest[i] = isLetter(text[i]) ? this.#rest[i + 1] + 1 : 0;
    this.#whole = this.#rest.slice();
    for (let i = 0; i < size; i++) if (isLetter(text[i])) this.#whole[i + 1] = this.#whole[i];
    this.#repeated = repeatedWords(text, kept);
  }

  /** With bytes of the prompt left out, and words that it repeats; in place. @param {Float64Array} row */
  #skip(row) {
    for (const [one, two] of this.#repeated) row[two] = Math.min(row[two], row[one]);
    for (let i = 1; i < row.length; i++) row[i] = Math.min(row[i], row[i - 1] + this.#leftOut[i - 1]);
  }

  /** @param {Reached} reached @param {number} byte @returns {Reached} */
  #step({ row, before, last, letters }, byte) {
    const letter = isLetter(byte);
    if (letters && !letter) {
      // the word is over: the next one may begin where it could have ended
      row = row.map((price, place) => {
        const paid = this.#budget(letters, place);
        return price <= (this.#rest[place] ? Math.min(INSIDE, paid) : paid) ? 0 : NEVER;
      });
      this.#skip(row);
      letters = 0;
    }
    const [text, kept, price] = [this.#text, this.#kept, this.#price];
    const own = letter && byte !== APOSTROPHE; // letters replace letters, other bytes other bytes
    const next = this.#row();
    for (let i = 0; i < next.length; i++) {
      let least = NEVER;
      if (byte === APOSTROPHE) least = row[i] + OTHER; // also in a name
      else if (!isDigit(byte)) least = row[i] + (letter ? this.#letterAdded : this.#otherAdded)[i];
      if (i) {
        const there = text[i - 1];
        const isAlike = own === (isLetter(there) && there !== APOSTROPHE);
        let replaced = isDigit(byte) || !isAlike ? NEVER : price[i - 1];
        if (byte === APOSTROPHE) replaced = Math.max(replaced, this.#leftOut[i - 1]); // it would join what is beside it
        if (there === byte) replaced = 0;
        else if (small(there) === small(byte) && !kept[i - 1]) replaced = CASE;
        least = Math.min(least, row[i - 1] + replaced);
      }
      if (i > 1 && letters && letter && !kept[i - 1] && !kept[i - 2]) {
        const [one, two] = [text[i - 2], text[i - 1]]; // two letters the other way round
        if (small(one) === small(byte) && small(two) === small(last)) {
          const swapped = one === byte && two === last ? LETTER : LETTER + CASE;
          least = Math.min(least, before[i - 2] + swapped);
        }
      }
      next[i] = Math.min(least, NEVER);
    }
    this.#skip(next);
    return { row: next, before: row, last: byte, letters: letters + (letter ? 1 : 0), following: new Map() };
  }
}

/** The text, or nothing where it is not UTF-8. @param {Uint8Array} text */
function decode(text) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(text);
  } catch {
    return "";
  }
}

/** @param {Uint8Array} text @param {boolean[]} kept @returns {[number, number][]} */
function repeatedWords(text, kept) {
  const latin = Array.from(text, (byte) => String.fromCharCode(byte)).join("");
  const words = [...latin.matchAll(/[A-Za-z0-9'\x80-\xff]+/g)].map(({ index, 0: word }) => [index, index + word.length]);
  const folded = (/** @type {number} */ from, /** @type {number} */ to) => String.fromCharCode(...text.slice(from, to).map(small));
  /** @type {[number, number][]} */
  const repeated = [];
  for (let i = 1; i < words.length; i++) {
    const [[from, to], [start, stop]] = [words[i - 1], words[i]];
    const isSame = folded(from, to) === folded(start, stop) && /^[ \t\n\r\v\f]+$/.test(latin.slice(to, start));
    if (isSame && !kept.slice(start, stop).includes(true)) repeated.push([to, stop]);
  }
  return repeated;
}
