// A tokenizer's tokens as a parser needs them: by their bytes.
import { BYTES } from "../support/byte_alphabet.js";

/** @import { Tokenizer } from "../chat/tokenizer.js" */

export class Vocabulary {
  /** @type {string[]} of each token, in the byte-level alphabet; nothing for a special one, which is never allowed */
  pieces;
  /** Bits of the tokens whose bytes may stand in UTF-8, which the parser does not look at closely. */
  text;
  /** Of them those without control characters, as JSON is usually written. */
  printable;
  #sorted; // tokens by their pieces, so that those with one beginning stand side by side
  #longest;

  /** @param {Tokenizer} tokenizer @param {number} size @param {readonly number[]} eosIds */
  constructor(tokenizer, size, eosIds) {
    this.tokenizer = tokenizer;
    this.eosIds = eosIds;
    this.pieces = Array.from({ length: size }, (_, id) => pieceOf(tokenizer.bytes([id])));
    this.text = new Int32Array(Math.ceil(size / 32));
    this.printable = new Int32Array(Math.ceil(size / 32));
    for (let id = 0; id < size; id++) {
      const bytes = tokenizer.bytes([id]);
      if (bytes.some((byte) => byte === 0xc0 || byte === 0xc1 || byte > 0xf4)) continue;
      this.text[id >> 5] |= 1 << (id & 31);
      if (bytes.every((byte) => byte >= 32 && byte !== 127)) this.printable[id >> 5] |= 1 << (id & 31);
    }
    const { pieces } = this;
    this.#sorted = [...pieces.keys()].filter((id) => pieces[id]).sort((a, b) => (pieces[a] < pieces[b] ? -1 : 1));
    this.#longest = Math.max(...pieces.map((piece) => piece.length));
  }

  /** A text as the tokenizer cuts it; none where it ends inside a character. @param {string} text */
  cut(text) {
    return text && !text.includes("\ufffd") ? this.tokenizer.encodeParts([[text, false]]) : [];
  }

  /** Tokens that begin with all that these say, and go on. @param {readonly number[]} tokens */
  longerThan(tokens) {
    const { pieces } = this;
    const start = tokens.map((token) => pieces[token]).join("");
    if (start.length >= this.#longest) return [];
    let [low, high] = [0, this.#sorted.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (pieces[this.#sorted[middle]] < start) low = middle + 1;
      else high = middle;
    }
    const found = [];
    for (; pieces[this.#sorted[low]]?.startsWith(start); low++) {
      if (pieces[this.#sorted[low]].length > start.length) found.push(this.#sorted[low]);
    }
    return found;
  }
}

/** @param {Uint8Array} bytes */
function pieceOf(bytes) {
  return Array.from(bytes, (byte) => BYTES[byte]).join("");
}
