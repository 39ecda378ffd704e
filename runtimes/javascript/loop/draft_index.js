// The draft index: which token usually follows which context in the answers of a task. docs/spec/loop.md has the file.
import { BundleError } from "../errors.js";

export const FILE = "draft_index.bin";
const [MAGIC, VERSION, HEADER, ENTRY] = [0x49444248, 1, 64, 12]; // "HBDI"
const LENGTHS = [1, 2, 3, 4, 6, 8, 12, 16, 24]; // of contexts, in tokens
const START = 0xffffffff; // stands before an answer's first token
const ONE = 65535;
/** Of a model without an index. */
export const COPY_CHANCES = [0.45, 0.65, 0.65, 0.65, 0.75];

/**
 * @typedef {object} Guess
 * @property {number} token
 * @property {number} chance  that the base chooses it here
 * @property {number} floor  lower bound of that chance, given the number of answers behind it
 * @property {number} place  of the prompt, where it was copied from; -1: nowhere
 */

/** Keys of the answer's last tokens, one for each of LENGTHS that it has. @param {readonly number[]} answer */
export function* contextKeys(answer) {
  let key = 0x811c9dc5;
  for (let length = 1; length <= LENGTHS[LENGTHS.length - 1] && length <= answer.length + 1; length++) {
    const token = length <= answer.length ? answer[answer.length - length] : START;
    key = Math.imul(key ^ token, 0x01000193) >>> 0;
    key = (key ^ (key >>> 13)) >>> 0;
    if (LENGTHS.includes(length)) yield key;
  }
}

export class DraftIndex {
  /** @type {Map<number, Guess>} */
  #guesses = new Map();

  /** @param {Uint8Array} data @param {number} vocabSize @param {string} source */
  constructor(data, vocabSize, source = FILE) {
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    const [magic, version, entries] = data.length >= HEADER ? [0, 4, 8].map((at) => view.getUint32(at, true)) : [0, 0, 0];
    if (magic !== MAGIC || version !== VERSION || data.length !== HEADER + ENTRY * entries) {
      throw new BundleError(`${source}: not a draft index of version ${VERSION}: export the bundle again`);
    }
    this.copyChances = [0, 1, 2, 3, 4].map((length) => view.getFloat32(16 + 4 * length, true));
    let isPossible = this.copyChances.every((chance) => 0 <= chance && chance <= 1);
    let previous = -1;
    for (let entry = 0; entry < entries; entry++) {
      const [key, token] = [0, 4].map((part) => view.getUint32(HEADER + part * entries + 4 * entry, true));
      const [chance, floor] = [8, 10].map((part) => view.getUint16(HEADER + part * entries + 2 * entry, true) / ONE);
      isPossible &&= key > previous && token < vocabSize;
      previous = key;
      this.#guesses.set(key, { token, chance, floor, place: -1 });
    }
    if (!isPossible) throw new BundleError(`${source}: holds impossible entries: copy or export the bundle again`);
  }

  /** The token that usually follows the answer's longest known ending. @param {readonly number[]} answer @returns {Guess | null} */
  guess(answer) {
    let found = null;
    for (const key of contextKeys(answer)) {
      const longer = this.#guesses.get(key);
      if (!longer) break; // a context is known only if its own ending is
      found = longer;
    }
    return found;
  }
}
