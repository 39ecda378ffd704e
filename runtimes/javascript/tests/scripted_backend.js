// A model that says what a script says: the loop and the conversations around it need no graphs.
import { ChatTemplate } from "../chat/template.js";
import { Tokenizer } from "../chat/tokenizer.js";
import { START } from "../drafts/copied_words.js";
import { DraftIndex, contextKeys } from "../drafts/draft_index.js";
import { Model } from "../model.js";

/** @import { Backend, Group } from "../loop/backend.js" */

export const END = 26; // the token that ends an answer

const LETTERS = [..."abcdefghijklmnopqrstuvwxyz"];
export const DESCRIPTION = {
  version: "1.0",
  added_tokens: [{ id: END, content: "<end>", special: true, single_word: false, lstrip: false, rstrip: false, normalized: false }],
  normalizer: null,
  pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
  post_processor: null,
  decoder: { type: "ByteLevel" },
  model: { type: "BPE", vocab: Object.fromEntries([...LETTERS, "<end>", "Ġ", "-"].map((text, i) => [text, i])), merges: [] },
};

/** Tokens of a text of small letters; `.` is the end. @param {string} text */
export const ids = (text) => Array.from(text, (letter) => (letter === "." ? END : LETTERS.indexOf(letter)));

/** @implements {Backend} */
export class ScriptedBackend {
  slots = 0;
  isClosed = false;
  /** @type {Group[][]} of each call */
  fed = [];
  said = 0; // tokens of the script
  /** @type {(() => void) | null} called in each macro step */
  onMacro = null;

  /** @param {string} script  all that will be said, one answer after the other @param {Partial<Backend["info"]>} [info] */
  constructor(script, info = {}) {
    this.script = ids(script);
    this.info = {
      provider: "script", precision: "fp32", vocabSize: 28, hiddenSize: 1, maxGroupTokens: 3, positionRule: /** @type {const} */ ("token"),
      stopRule: /** @type {const} */ ("before"), cacheSlots: 100, contextLength: 100, eosIds: [END], draftVocab: null,
      kvBytesPerSlot: 10, recommended: { mode: /** @type {const} */ ("merge"), confidence: 0.8 }, ...info,
    };
  }

  /** @param {readonly Group[]} groups @param {readonly number[]} positions @param {readonly number[]} rows */
  async macro(groups, positions, rows) {
    await Promise.resolve();
    this.onMacro?.();
    this.fed.push([...groups]);
    this.slots += groups.length;
    return { logits: rows.map(() => this.#scores()), pStop: rows.map(() => 0.1), features: rows.map(() => null) };
  }

  /** @param {any} _features */
  microBegin(_features) {}

  async micro() {
    return { logits: this.#scores(), pStop: 0.1 };
  }

  /** @param {number} slots */
  truncate(slots) {
    this.slots = slots;
  }

  async close() {
    this.isClosed = true;
  }

  #scores() {
    const logits = new Float32Array(this.info.vocabSize);
    logits[this.script[this.said++] ?? END] = 5;
    return logits;
  }
}

/** @param {string} script @param {Partial<Backend["info"]>} [info] @param {import("../chat/template.js").Markup} [markup] */
export function scripted(script, info, markup = {}) {
  const backend = new ScriptedBackend(script, info);
  return { backend, model: modelOf(backend, markup) };
}

/** @param {Backend} backend @param {import("../chat/template.js").Markup} [markup] */
export function modelOf(backend, markup = {}) {
  return new Model(backend, new Tokenizer(DESCRIPTION), new ChatTemplate(markup));
}

/** Return a draft index that is certain of how answers begin. @param {string} text */
export function indexOf(text) {
  /** @type {Map<number, [number, number]>} key -> token, chance */
  const entries = new Map();
  const skeleton = [START];
  for (const token of ids(text)) {
    const keys = [...contextKeys(skeleton)];
    for (const key of keys) if (!entries.has(key)) entries.set(key, [0, 0]);
    entries.set(keys[keys.length - 1], [token, 65535]);
    skeleton.push(token);
  }
  const sorted = [...entries].sort(([one], [other]) => one - other);
  const count = sorted.length;
  const view = new DataView(new ArrayBuffer(64 + 12 * count));
  [0x49444248, 2, count, 1].forEach((value, at) => view.setUint32(4 * at, value, true)); // "HBDI"
  [0.5, 0.5, 0.5, 0.5, 0.5, 0.9, 1, 1].forEach((value, at) => view.setFloat32(16 + 4 * at, value, true));
  for (const [at, [key, [token, chance]]] of sorted.entries()) {
    view.setUint32(64 + 4 * at, key, true);
    view.setUint32(64 + 4 * (count + at), token, true);
    view.setUint16(64 + 8 * count + 2 * at, chance, true);
    view.setUint16(64 + 10 * count + 2 * at, chance, true);
  }
  return new DraftIndex(new Uint8Array(view.buffer), Number.MAX_SAFE_INTEGER);
}
