// Options of an answer: names, defaults and checks.
import { InputError } from "../errors.js";
import { checkOptions, flag, numberIn, safeRepr, wholeIn } from "../support/values.js";
import { UNMEASURED, setDial } from "./dial.js";
import { structureOf } from "../structured/structure.js";

/** @import { CallLimits } from "../calls/catalogue.js" */
/** @import { Mode, Recommended } from "./dial.js" */

/**
 * @typedef {object} Options
 * @property {number | null} [maxTokens]  default 256; of a model that edits its prompt, 8 and twice the tokens of the text that it
 *   edits
 * @property {number} [confidence]  probability that each further token of a group needs: 0 makes the largest groups, 1
 *   groups of one token. It and `mode` overlay the model's recommendation by the rule in `dial.js`
 * @property {Mode} [mode]  "plain": one token per step. "verify": the base checks every drafted token; plain decoding's
 *   text in fewer calls. "hybrid": tokens with `p >= confidence ** (1 / maxGroupTokens)` are merged,
 *   the base checks the rest. "merge": every group is merged as drafted
 * @property {string | readonly string[]} [stop]  the answer ends before any of these
 * @property {number | null} [topProbabilities]  report each token's probability and this many of the likeliest tokens of
 *   the distribution that it was chosen from, if the base chose or checked it. 0: the token's probability alone
 * @property {number | null} [minCertainty]  0 to 1: an answer with a lower certainty is `unsure`. The model's certainty
 *   must have been measured
 * @property {number} [temperature]  0: greedy
 * @property {number} [topK]  keep the k likeliest and ties with the k-th; 0: all
 * @property {number} [topP]  keep the smallest set of likeliest tokens with this much of the probability
 * @property {number} [minP]  keep tokens with at least this share of the likeliest's probability
 * @property {number} [repetitionPenalty]  divides scores of tokens in prompt and answer (multiplies negative ones)
 * @property {number} [presencePenalty]  subtracted once from tokens in the answer
 * @property {number} [frequencyPenalty]  subtracted for each occurrence in the answer
 * @property {Readonly<Record<number, number>>} [logitBias]  token id -> added to its score; -100 or less: it is
 *   never chosen
 * @property {number | bigint | null} [seed]  default: random
 * @property {boolean} [ignoreEos]  for measurements: do not end at an end token
 * @property {object | string | null} [jsonSchema]  the answer is JSON that follows this schema. As in OpenAI's
 *   interface, `{schema, strict: false}` ignores unsupported keywords of a schema
 * @property {boolean} [allowText]  beside `jsonSchema`: or the answer is words, which do not begin with { or [
 * @property {string | null} [regex]  the answer matches this regular expression
 * @property {string | null} [grammar]  the answer follows this grammar, in xgrammar's EBNF
 * @property {CallLimits | null} [calls]  of a model with tools: which of them, and which
 *   names, an answer may hold; see `Model.call`
 */

/**
 * @typedef {object} Sampling
 * @property {number} temperature
 * @property {number} topK
 * @property {number} topP
 * @property {number} minP
 * @property {number} repetitionPenalty
 * @property {number} presencePenalty
 * @property {number} frequencyPenalty
 * @property {Map<number, number>} logitBias
 * @property {bigint | null} seed
 */

/** Defaults of mode and confidence are in `dial.js`. @type {Required<Omit<Options, "mode" | "confidence">>} */
const DEFAULTS = {
  maxTokens: null,
  stop: [],
  topProbabilities: null,
  minCertainty: null,
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  logitBias: {},
  seed: null,
  ignoreEos: false,
  jsonSchema: null,
  regex: null,
  grammar: null,
  calls: null,
  allowText: false,
};
const KNOWN = [...Object.keys(DEFAULTS), "mode", "confidence"];
const MOST = 2 ** 31 - 1;

export class Settings {
  /**
   * Overlay options on the recommendation; `current` is the setting of a conversation that is configured.
   * @param {Options} given
   * @param {Recommended} [recommended]
   * @param {Recommended} [current]
   */
  constructor(given, recommended = UNMEASURED, current) {
    const asked = defined(checkOptions(given, KNOWN));
    /** @type {Required<Options>} */
    const o = { ...DEFAULTS, ...asked, ...setDial(asked, recommended, current) };
    this.options = o; // for another `Settings`
    this.maxTokens = o.maxTokens === null ? null : wholeIn("maxTokens", o.maxTokens, 1, MOST);
    this.confidence = o.confidence;
    this.mode = o.mode;
    this.topProbabilities = o.topProbabilities;
    if (o.topProbabilities !== null) wholeIn("topProbabilities", o.topProbabilities, 0, MOST);
    this.minCertainty = o.minCertainty === null ? null : numberIn("minCertainty", o.minCertainty, 0, 1);
    this.ignoreEos = flag("ignoreEos", o.ignoreEos);
    this.stop = typeof o.stop === "string" ? [o.stop] : o.stop;
    if (!Array.isArray(this.stop) || !this.stop.every((text) => typeof text === "string" && text)) {
      throw new InputError(`stop must be texts of at least one character, got ${safeRepr(o.stop)}`);
    }
    this.structure = structureOf(o);
    /** @type {Sampling} */
    this.sampling = {
      temperature: numberIn("temperature", o.temperature, 0, 100),
      topK: wholeIn("topK", o.topK, 0, MOST),
      topP: numberIn("topP", o.topP, 0, 1, true),
      minP: numberIn("minP", o.minP, 0, 1),
      repetitionPenalty: numberIn("repetitionPenalty", o.repetitionPenalty, 0.01, 100),
      presencePenalty: numberIn("presencePenalty", o.presencePenalty, -100, 100),
      frequencyPenalty: numberIn("frequencyPenalty", o.frequencyPenalty, -100, 100),
      logitBias: biases(o.logitBias),
      seed: seedOf(o.seed),
    };
  }

  /** Whether the answer must equal plain decoding's, so that no merged slot may be reused. */
  get isExact() {
    return this.mode === "verify" || this.confidence >= 1;
  }
}

/** Return the given options. @param {Options} options @returns {Options} */
export function defined(options) {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

/** @param {unknown} given */
function biases(given) {
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new InputError(`logitBias must map token ids to numbers, got ${safeRepr(given)}`);
  }
  return new Map(
    Object.entries(given).map(([token, bias]) => [
      wholeIn("logitBias token", token.trim() ? Number(token) : NaN, 0, MOST),
      numberIn("logitBias", bias, -1000, 1000),
    ]),
  );
}

/** @param {unknown} given */
function seedOf(given) {
  if (given === null) return null;
  const isWhole = typeof given === "bigint" || Number.isSafeInteger(given);
  const seed = isWhole ? BigInt(/** @type {number | bigint} */ (given)) : -1n;
  if (seed < 0n || seed >= 1n << 64n) {
    const range = "0 or more, below 2^64 (as a bigint from 2^53 on)";
    throw new InputError(`seed must be a whole number, ${range}, got ${safeRepr(given)}`);
  }
  return seed;
}
