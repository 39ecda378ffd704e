// The bytes of a tokenizer's tokens, for the parser.
import { BYTES } from "../support/byte_alphabet.js";

/** @import { Tokenizer } from "../chat/tokenizer.js" */

// First bytes of UTF-8 after which only some of 0x80..0xbf may follow.
const SECOND = new Map([[0xe0, [0xa0, 0xbf]], [0xed, [0x80, 0x9f]], [0xf0, [0x90, 0xbf]], [0xf4, [0x80, 0x8f]]]);

export class Vocabulary {
  /** @type {string[]} of each token, in the byte-level alphabet; empty for special tokens, which are never allowed */
  pieces;
  /** Bits of the tokens with valid UTF-8 bytes, which the parser does not check closely. */
  text;
  /** Those without control characters, for JSON. */
  printable;
  /** @type {Map<number, Int32Array>} bits of the tokens that may follow a byte of `SECOND` */
  #following = new Map();
  #sorted; // tokens sorted by piece, so that equal beginnings are adjacent
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
      if (bytes.some((byte, i) => !follows(bytes[i - 1], byte))) continue;
      this.text[id >> 5] |= 1 << (id & 31);
      if (bytes.every((byte) => byte >= 32 && byte !== 127)) this.printable[id >> 5] |= 1 << (id & 31);
    }
    const { pieces } = this;
    this.#sorted = [...pieces.keys()].filter((id) => pieces[id]).sort((a, b) => (pieces[a] < pieces[b] ? -1 : 1));
    this.#longest = Math.max(...pieces.map((piece) => piece.length));
  }

  /** Bits of the tokens that may follow this one; null: all with valid bytes. @param {number} token */
  following(token) {
    const last = this.tokenizer.bytes([token]).at(-1) ?? 0;
    if (!SECOND.has(last)) return null;
    let bits = this.#following.get(last);
    if (!bits) {
      bits = new Int32Array(this.text.length);
      for (let id = 0; id < this.pieces.length; id++) {
        const [first] = this.tokenizer.bytes([id]);
        if (first !== undefined && follows(last, first)) bits[id >> 5] |= 1 << (id & 31);
      }
      this.#following.set(last, bits);
    }
    return bits;
  }

  /** Encode a text; empty if it ends inside a character. @param {string} text */
  cut(text) {
    return text && !text.includes("\ufffd") ? this.tokenizer.encodeParts([[text, false]]) : [];
  }

  /** Return longer tokens that begin with the text of these. @param {readonly number[]} tokens */
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

/** @param {number | undefined} last @param {number} byte */
function follows(last, byte) {
  const [low, high] = SECOND.get(last ?? 0) ?? [0, 0xff];
  return low <= byte && byte <= high;
}

/** @param {Uint8Array} bytes */
function pieceOf(bytes) {
  return Array.from(bytes, (byte) => BYTES[byte]).join("");
}
