// Text of a running answer, without split characters and up to a stop string. It holds back the bytes of an unfinished
// character, and text that could begin a stop string.

/** @import { Tokenizer } from "./tokenizer.js" */

export class TextStream {
  #bytes = new Uint8Array(0); // of an unfinished character
  #held = "";
  #strips;

  /**
   * @param {Tokenizer} tokenizer
   * @param {readonly string[]} stop
   * @param {Iterable<number>} silent  tokens without text: the end tokens
   * @param {boolean} isWhole  keep a first space that the tokenizer would add itself
   */
  constructor(tokenizer, stop, silent, isWhole = false) {
    this.tokenizer = tokenizer;
    this.stop = stop;
    this.silent = new Set(silent);
    this.#strips = tokenizer.stripsFirstSpace && !isWhole;
  }

  /**
   * Return new text, and the number of these tokens up to the end of a stop string (null: none).
   * @param {readonly number[]} tokens
   * @returns {{text: string, stopped: number | null}}
   */
  push(tokens) {
    if (!this.stop.length) { // no longer: text held back for an earlier stop string comes first
      const text = this.#held + this.#decode(tokens);
      this.#held = "";
      return { text, stopped: null };
    }
    for (const [i, token] of tokens.entries()) {
      this.#held += this.#decode([token]);
      const starts = this.stop.map((stop) => this.#held.indexOf(stop)).filter((start) => start >= 0);
      if (starts.length) {
        const text = this.#held.slice(0, Math.min(...starts));
        this.#held = "";
        this.#bytes = new Uint8Array(0);
        return { text, stopped: i + 1 };
      }
    }
    const cut = this.#held.length - Math.max(...this.stop.map((stop) => overlap(this.#held, stop)));
    const text = this.#held.slice(0, cut);
    this.#held = this.#held.slice(cut);
    return { text, stopped: null };
  }

  /** Return all held-back text; an unfinished character becomes U+FFFD. */
  flush() {
    const text = this.#held + utf8(this.#bytes);
    this.#held = "";
    this.#bytes = new Uint8Array(0);
    return text;
  }

  /** Continue from the state of another one. @param {TextStream} other */
  follow(other) {
    [this.#bytes, this.#held, this.#strips] = [other.#bytes, other.#held, other.#strips];
  }

  /** @param {readonly number[]} tokens */
  #decode(tokens) {
    let bytes = this.tokenizer.bytes(tokens.filter((token) => !this.silent.has(token)));
    if (this.#strips && bytes.length) {
      this.#strips = false;
      if (bytes[0] === 32) bytes = bytes.subarray(1);
    }
    const all = new Uint8Array([...this.#bytes, ...bytes]);
    const end = all.length - unfinished(all);
    this.#bytes = all.slice(end);
    return utf8(all.subarray(0, end));
  }
}

/** @param {Uint8Array} bytes */
function utf8(bytes) {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

/** Count the last bytes that begin an incomplete character. @param {Uint8Array} bytes */
function unfinished(bytes) {
  for (let count = 1; count <= Math.min(3, bytes.length); count++) {
    const byte = bytes[bytes.length - count];
    if (byte >= 0xc2 && byte < 0xf5) return count < (byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4) ? count : 0;
    if (byte < 0x80 || byte >= 0xc0) return 0;
  }
  return 0;
}

/** Return the length of the longest end of `text` that begins `stop`. @param {string} text @param {string} stop */
function overlap(text, stop) {
  let length = Math.min(text.length, stop.length - 1);
  while (length > 0 && !stop.startsWith(text.slice(-length))) length--;
  return length;
}
