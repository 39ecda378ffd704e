// A constraint on JSON answers: the strings of some fields are spans of the prompt.
//
//     prompt   play Jersey Boys
//     answer   {"album": "Jer        -> "ry" is refused, "sey" is allowed; then " Boys", or the closing quote
//
// A span begins and ends at word boundaries. Everything outside these strings is free.
import { Unconstrained } from "./constraint.js";
import { LOST, START, after } from "./json_fields.js";

/** @import { Position } from "./json_fields.js" */

const isBlank = (/** @type {number} */ byte) => byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d;
const continues = (/** @type {number} */ byte) => byte >= 0x80 && byte < 0xc0; // a later byte of a UTF-8 character

/** Whether a character with this first byte is a letter or digit of a script that writes blanks between words. @param {number} byte */
const isWord = (byte) => (byte < 0x80 ? /[0-9A-Za-z]/.test(String.fromCharCode(byte)) : byte >= 0xc3 && byte < 0xe0);

/**
 * The spans of some texts, spelled as in JSON strings, a character per byte, without blanks at their ends. A word boundary
 * is any place between two characters, except between two word characters. These are ASCII letters and digits, and the
 * characters from U+00C0 to U+07FF.
 */
export class Spans {
  #text = "";
  /** @type {boolean[]} whether a span may start before a byte */
  #starts = [false];
  /** @type {boolean[]} whether a span may end before a byte */
  #ends = [false];

  /** @param {Uint8Array[]} texts */
  constructor(texts) {
    for (const text of texts) {
      const last = text.findLastIndex((byte) => !isBlank(byte));
      let before = 0x2e; // a mark, of the character before
      for (const byte of text.subarray(0, last + 1)) {
        const here = this.#text.length;
        if (!continues(byte)) {
          if (!(isWord(before) && isWord(byte))) [this.#starts[here], this.#ends[here]] = [!isBlank(byte), !isBlank(before)];
          before = byte;
        }
        const letter = String.fromCharCode(byte);
        this.#add(byte < 0x80 ? JSON.stringify(letter).slice(1, -1) : letter);
      }
      this.#ends[this.#text.length] = true;
      this.#add("\n"); // no string holds this byte unescaped
    }
  }

  /** @param {string} piece */
  #add(piece) {
    this.#text += piece;
    for (let i = 0; i < piece.length; i++) {
      this.#starts.push(false);
      this.#ends.push(false);
    }
  }

  /** Whether a span begins with these bytes. @param {string} start */
  beginWith(start) {
    return !start || this.#places(start).next().done === false;
  }

  /** Whether this is a span; an empty one, too. @param {string} value */
  include(value) {
    if (!value) return true;
    for (const place of this.#places(value)) if (this.#ends[place + value.length]) return true;
    return false;
  }

  /** @param {string} start */
  *#places(start) {
    for (let place = this.#text.indexOf(start); place >= 0; place = this.#text.indexOf(start, place + 1)) {
      if (this.#starts[place]) yield place;
    }
  }
}

/** The JSON of one answer, and the spans of its prompt. Follows the sampler's choices, and back. */
export class CopiedFields extends Unconstrained {
  #fields;
  #tokenBytes;
  #eosIds;
  /** @type {Position[]} after each token */
  #positions = [START];
  #spans = new Spans([]);

  /** @param {readonly string[]} fields @param {(token: number) => Uint8Array} tokenBytes @param {readonly number[]} eosIds */
  constructor(fields, tokenBytes, eosIds) {
    super();
    this.#fields = new Set(fields);
    this.#tokenBytes = tokenBytes;
    this.#eosIds = new Set(eosIds);
  }

  /** @param {readonly number[]} prompt @param {readonly number[]} [answer] */
  async begin(prompt, answer = []) {
    this.#spans = new Spans(this.#texts(prompt));
    this.#positions = [START];
    for (const token of answer) this.consume(token);
  }

  /** The prompt's runs of tokens that have a text. @param {readonly number[]} prompt */
  #texts(prompt) {
    /** @type {number[][]} */
    const runs = [[]];
    for (const token of prompt) {
      const piece = this.#tokenBytes(token);
      if (piece.length) runs[runs.length - 1].push(...piece);
      else runs.push([]);
    }
    return runs.filter((run) => run.length).map((run) => Uint8Array.from(run));
  }

  /** @param {number} token */
  allows(token) {
    return this.#following(token) !== null;
  }

  /** Follow one more token; after a refused one, the rest of the answer is free. @param {number} token */
  consume(token) {
    this.#positions.push(this.#following(token) ?? LOST);
  }

  /** @param {number} tokens */
  rewind(tokens) {
    if (tokens) this.#positions.splice(-tokens);
  }

  /** The position after a token; null: a copied string would be no span. @param {number} token @returns {Position | null} */
  #following(token) {
    let position = this.#positions[this.#positions.length - 1];
    const text = this.#tokenBytes(token);
    if (!text.length || this.#eosIds.has(token)) return this.#copies(position) ? null : position;
    for (const byte of text) {
      const before = position;
      position = after(before, String.fromCharCode(byte));
      const ends = this.#copies(before) && !this.#copies(position);
      if (ends && (position === LOST || !this.#spans.include(before.text))) return null;
    }
    return this.#copies(position) && !this.#spans.beginWith(position.text) ? null : position;
  }

  /** @param {Position} position */
  #copies({ phase, field }) {
    return phase === "string" && this.#fields.has(field);
  }
}
