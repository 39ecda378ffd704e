// The draft index: which token usually follows which context in the answers of a task. docs/spec/loop.md has the file.
import { BundleError } from "../errors.js";
import { COPY, START } from "./copied_words.js";

export const FILE = "draft_index.bin";
const [MAGIC, VERSION, HEADER, ENTRY] = [0x49444248, 2, 64, 12]; // "HBDI"
const LENGTHS = [1, 2, 3, 4, 6, 8, 12, 16, 24]; // of contexts, in tokens
const [PLACE, RUN] = [0xfffffffd, 0xfffffffc]; // follow the context in keys of places and runs
const [NEAR, NEAREST] = [4, 2]; // skeleton tokens in these keys; in keys of where runs may begin
const ONE = 65535;
/**
 * @typedef {object} Rates  Measured on other answers of the task.
 * @property {readonly number[]} copies  chance of a copied token by the length of its match, 1..5
 * @property {number} word  chance of a copied word's next token
 * @property {number} tokens  of a base call
 * @property {number} rows  of a base call
 */

/** Of a model without an index. @type {Rates} */
export const USUAL_RATES = { copies: [0.2, 0.45, 0.65, 0.65, 0.7], word: 0.9, tokens: 1.8, rows: 3 };

/**
 * @typedef {object} Guess
 * @property {number} token  COPY: the beginning of a copied run
 * @property {number} chance  that the base chooses it here
 * @property {number} floor  lower bound of that chance, given the number of answers behind it
 * @property {number} place  of the text, where it was copied from; -1: nowhere
 * @property {number} match  tokens before it that equal the answer's last ones
 */

const NOTHING = 0x811c9dc5; // key of the empty context

/** @param {number} key @param {number} token */
function longerKey(key, token) {
  const longer = Math.imul(key ^ token, 0x01000193) >>> 0;
  return (longer ^ (longer >>> 13)) >>> 0;
}

/** @param {readonly number[]} skeleton @param {number} length */
function contextKey(skeleton, length) {
  return skeleton.slice(-length).reduceRight(longerKey, NOTHING);
}

/** A key for each of LENGTHS that the skeleton has, the shortest first. @param {readonly number[]} skeleton */
export function* contextKeys(skeleton) {
  let key = NOTHING;
  for (let length = 1; length <= skeleton.length; length++) {
    key = longerKey(key, skeleton[skeleton.length - length]);
    if (LENGTHS.includes(length)) yield key;
  }
}

/** Keys of a word by its first prompt token and the one before it. @param {readonly number[]} skeleton @param {number} before @param {number} first */
export function placeKeys(skeleton, before, first) {
  const key = longerKey(contextKey(skeleton, NEAR), PLACE);
  const after = longerKey(key, before);
  return [longerKey(after, first), after, longerKey(longerKey(key, START), first)];
}

/** Keys of whether a copied run continues with this token. @param {readonly number[]} skeleton @param {number} token */
export function runKeys(skeleton, token) {
  const key = longerKey(contextKey(skeleton, NEAR), RUN);
  return [longerKey(key, token), key];
}

export class DraftIndex {
  /** The number of each key's entry. @type {Map<number, number>} */
  #entries = new Map();

  /** The file. @type {DataView} */
  #view;

  /** @param {Uint8Array} data @param {number} vocabSize @param {string} source */
  constructor(data, vocabSize, source = FILE) {
    const view = (this.#view = new DataView(data.buffer, data.byteOffset, data.byteLength));
    const [magic, version, entries] = data.length >= HEADER ? [0, 4, 8].map((at) => view.getUint32(at, true)) : [0, 0, 0];
    if (magic !== MAGIC || version !== VERSION || data.length !== HEADER + ENTRY * entries) {
      throw new BundleError(`${source}: not a draft index of version ${VERSION}: export the bundle again`);
    }
    const rates = [0, 1, 2, 3, 4, 5, 6, 7].map((number) => view.getFloat32(16 + 4 * number, true));
    /** @type {Rates} */
    this.rates = { copies: rates.slice(0, 5), word: rates[5], tokens: rates[6], rows: rates[7] };
    let isPossible = rates.slice(0, 6).every((chance) => 0 <= chance && chance <= 1);
    isPossible &&= rates.slice(6).every((rate) => 1 <= rate && rate <= 256);
    let previous = -1;
    for (let entry = 0; entry < entries; entry++) {
      const key = view.getUint32(HEADER + 4 * entry, true);
      const token = view.getUint32(HEADER + 4 * (entries + entry), true);
      isPossible &&= key > previous && (token < vocabSize || token === COPY);
      previous = key;
      this.#entries.set(key, entry);
    }
    if (!isPossible) throw new BundleError(`${source}: holds impossible entries: copy or export the bundle again`);
  }

  /** What usually follows the skeleton's longest known ending. @param {readonly number[]} skeleton @returns {Guess | null} */
  guess(skeleton) {
    let found = null;
    for (const key of contextKeys(skeleton)) {
      const longer = this.#stored(key);
      if (!longer) break; // a context is known only if its own ending is
      found = longer;
    }
    return found;
  }

  /** Whether answers usually copy a word here. @param {readonly number[]} skeleton */
  mayBegin(skeleton) {
    return this.#entries.has(longerKey(contextKey(skeleton, NEAREST), PLACE));
  }

  /** The entry of the first known key. @param {readonly number[]} keys @returns {Guess | null} */
  first(keys) {
    for (const key of keys) {
      const found = this.#stored(key);
      if (found) return found;
    }
    return null;
  }

  /** @param {number} key @returns {Guess | null} */
  #stored(key) {
    const entry = this.#entries.get(key);
    if (entry === undefined) return null;
    const count = this.#entries.size;
    const token = this.#view.getUint32(HEADER + 4 * (count + entry), true);
    const [chance, floor] = [8, 10].map((part) => this.#view.getUint16(HEADER + part * count + 2 * entry, true) / ONE);
    return { token, chance, floor, place: -1, match: 0 };
  }
}
