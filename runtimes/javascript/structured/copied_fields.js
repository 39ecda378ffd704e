// A constraint on JSON answers: the strings of some fields are spans of the prompt.
//
//     prompt   play Jersey Boys
//     answer   {"album": "Jer        -> "ry" is refused, "sey" is allowed; then " Boys", or the closing quote
//
// Everything outside these strings is free.
import { Unconstrained } from "./constraint.js";
import { LOST, START, after } from "./json_fields.js";
import { Spans, textsOf } from "./spans.js";

/** @import { Position } from "./json_fields.js" */

// JSON's spelling of bytes
const SPELLED = new Map([...Array(0x80).keys()].map((byte) => [byte, JSON.stringify(String.fromCharCode(byte)).slice(1, -1)]));

/** The JSON of one answer, and the spans of its prompt. Follows the sampler's choices, and back. */
export class CopiedFields extends Unconstrained {
  #fields;
  #tokenBytes;
  #eosIds;
  /** @type {Position[]} after each token */
  #positions = [START];
  #spans = new Spans([], SPELLED);

  /** @param {readonly string[]} fields @param {(token: number) => Uint8Array} tokenBytes @param {readonly number[]} eosIds */
  constructor(fields, tokenBytes, eosIds) {
    super();
    this.#fields = new Set(fields);
    this.#tokenBytes = tokenBytes;
    this.#eosIds = new Set(eosIds);
  }

  /** @param {readonly number[]} prompt @param {readonly number[]} [answer] */
  async begin(prompt, answer = []) {
    this.#spans = new Spans(textsOf(prompt, this.#tokenBytes), SPELLED);
    this.#positions = [START];
    for (const token of answer) this.consume(token);
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
      if (ends && (position === LOST || this.#spans.rest(before.text) !== 0)) return null;
    }
    return this.#copies(position) && this.#spans.rest(position.text) === null ? null : position;
  }

  /** @param {Position} position */
  #copies({ phase, field }) {
    return phase === "string" && this.#fields.has(field);
  }
}
