// Spans of a prompt: pieces of its text that begin and end at word boundaries.

const isBlank = (/** @type {number} */ byte) => byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d;
const continues = (/** @type {number} */ byte) => byte >= 0x80 && byte < 0xc0; // a later byte of a UTF-8 character

/** Whether a character with this first byte is a letter or digit of a script that writes blanks between words. @param {number} byte */
const isWord = (byte) => (byte < 0x80 ? /[0-9A-Za-z]/.test(String.fromCharCode(byte)) : byte >= 0xc3 && byte < 0xe0);

/**
 * The spans of some texts, without blanks at their ends, in the spelling of answers, a character per byte. A word boundary
 * is any place between two characters, except between two word characters. These are ASCII letters and digits, and the
 * characters from U+00C0 to U+07FF.
 */
export class Spans {
  #text = "";
  /** @type {boolean[]} whether a span may start before a byte */
  #starts = [false];
  /** @type {boolean[]} whether a span may end before a byte */
  #ends = [false];

  /** @param {readonly Uint8Array[]} texts @param {ReadonlyMap<number, string>} spelling  bytes that an answer spells otherwise */
  constructor(texts, spelling) {
    for (const text of texts) {
      const last = text.findLastIndex((byte) => !isBlank(byte));
      let before = 0x2e; // a mark, of the character before
      for (const byte of text.subarray(0, last + 1)) {
        const here = this.#text.length;
        if (!continues(byte)) {
          if (!(isWord(before) && isWord(byte))) [this.#starts[here], this.#ends[here]] = [!isBlank(byte), !isBlank(before)];
          before = byte;
        }
        this.#add(spelling.get(byte) ?? String.fromCharCode(byte));
      }
      this.#ends[this.#text.length] = true;
      this.#add("\n"); // no value holds this byte unescaped
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

  /**
   * Return the number of bytes that are missing to the nearest end of a span; null: no span begins so. 0: these bytes are a
   * span, as none are.
   * @param {string} start @returns {number | null}
   */
  rest(start) {
    if (!start) return 0;
    const ends = [...this.#places(start)].map((place) => place + start.length).map((place) => this.#ends.indexOf(true, place) - place);
    return ends.length ? Math.min(...ends) : null;
  }

  /** @param {string} start */
  *#places(start) {
    for (let place = this.#text.indexOf(start); place >= 0; place = this.#text.indexOf(start, place + 1)) {
      if (this.#starts[place]) yield place;
    }
  }
}

/** The prompt's runs of tokens that have a text. @param {readonly number[]} prompt @param {(token: number) => Uint8Array} tokenBytes */
export function textsOf(prompt, tokenBytes) {
  /** @type {number[][]} */
  const runs = [[]];
  for (const token of prompt) {
    const piece = tokenBytes(token);
    if (piece.length) runs[runs.length - 1].push(...piece);
    else runs.push([]);
  }
  return runs.filter((run) => run.length).map((run) => Uint8Array.from(run));
}
