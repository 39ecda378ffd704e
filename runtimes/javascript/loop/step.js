// What one macro step generates: the base's token, then forced, guessed or micro tokens, until a rule ends it.
//
// A draft grows while that pays. A token joins if the chance that the base keeps the whole draft, times what a kept
// token saves, is not below the cost of its row. A micro step may save a call.

import { Drafter, MOST, USUAL_COSTS, worthOfToken } from "./drafting.js";

/** @import { Backend, Group, ModelInfo, Readout } from "./backend.js" */
/** @import { Words } from "./copied_words.js" */
/** @import { Choice, Sampler, TopToken } from "./sampling.js" */
/** @import { Settings } from "./settings.js" */
/** @import { Stats } from "./stats.js" */

/** @typedef {"eos" | "length" | "stop" | "context" | "cancelled"} FinishReason */

/**
 * @typedef {object} Step  The tokens of one macro step.
 * @property {Group} tokens
 * @property {number[]} probabilities  of each token; empty without the option `topProbabilities`
 * @property {TopToken[][]} topProbabilities  of each token: the base's likeliest tokens at its place, empty if the base did
 *   not choose or check it (drafted and merged unchecked, or forced by a structure); empty without the option
 * @property {number[]} stopProbabilities  probability that the group should end with each token
 * @property {FinishReason | null} finishReason  set on the last step
 * @property {number} forced  number of forced tokens
 * @property {Group[]} groups  the tokens as slots hold them
 */

// By stop rule "after" a group's first micro step is a trial, whose token then needs the full confidence. The trial is
// worth its cost if the base gives at least this share of it (docs/spec/loop.md).
const TRY = 2 / 3;
// Default length of an answer.
export const MAX_TOKENS = 256;
// A guess of at least this chance needs no second opinion from the micro decoder.
const SURE = 0.9;
// Micro steps that only read tokens before one that chooses: beyond this many, a macro step is cheaper.
const CATCH_UP = 2;

/** The rules by which groups and answers end, computed once per answer. */
export class Rules {
  /**
   * @param {ModelInfo} info @param {Settings} settings @param {Sampler} sampler
   * @param {readonly number[]} prompt  without the answer so far
   * @param {Words | null} words
   */
  constructor(info, settings, sampler, prompt, words) {
    this.sampler = sampler;
    this.verifies = settings.mode === "verify" || settings.mode === "hybrid"; // the base checks drafts ...
    this.isHybrid = settings.mode === "hybrid"; // ... but for what is sure, if it reads that surely
    // so sure that a whole group of such tokens, none of them checked, is as sure as the confidence
    this.unchecked = settings.confidence ** (1 / info.maxGroupTokens);
    this.maxTokens = settings.maxTokens ?? (sampler.edits ? sampler.edits.maxTokens : MAX_TOKENS);
    this.probabilities = settings.topProbabilities !== null;
    this.eosIds = new Set(settings.ignoreEos ? [] : info.eosIds);
    this.confidence = settings.confidence;
    this.judgesAfter = info.stopRule === "after";
    this.tryConfidence = this.judgesAfter ? TRY * this.confidence : this.confidence;
    this.merges = settings.forced === "merge" && !settings.isExact;
    this.rides = settings.forced !== "single"; // forced tokens need no separate call
    this.size = settings.confidence >= 1 || !sampler.microUsable ? 1 : info.maxGroupTokens;
    const drafts = this.verifies && settings.confidence < 1;
    this.drafter = drafts ? new Drafter(prompt, info.draftIndex ?? null, words, sampler.copies) : null;
    this.costs = info.draftCosts ?? USUAL_COSTS;
    this.worth = worthOfToken(info.draftIndex ?? null, this.costs); // what a kept token saves
    const begins = settings.confidence < 1 && !sampler.grammar && !sampler.adjusts && !sampler.answer.length;
    this.answerPrefix = begins ? (info.answerPrefix ?? []).slice(0, this.maxTokens) : [];
    this.prefixGroupTokens = this.isHybrid || !this.verifies ? info.maxGroupTokens : 1; // tokens per slot
  }

  /** Whether the base, having read merged groups, is not sure of what it is to choose. @param {Float32Array} logits */
  doubts(logits) {
    return this.sampler.forced === null && this.sampler.surety(logits) < this.confidence;
  }

  /** Whether the next token is forced and can precede the base's call. */
  get isAhead() {
    return this.rides && this.sampler.forced !== null;
  }

  /**
   * Whether the answer ends with this newest group (not yet counted in the statistics).
   * @param {Group} tokens @param {Stats} stats @returns {FinishReason | null}
   */
  finish(tokens, stats) {
    if (this.eosIds.has(tokens[tokens.length - 1])) return "eos";
    if (this.sampler.isEnded) return "stop";
    return stats.tokens + tokens.length >= this.maxTokens ? "length" : null;
  }
}

/**
 * What all answers begin with, as a draft that needs no readout: the base checks it as it reads the prompt. It ends
 * before the first token that the sampler refuses.
 * @param {Rules} rules
 * @returns {Step}
 */
export function openAnswer({ answerPrefix, prefixGroupTokens, probabilities, sampler }) {
  const refused = answerPrefix.findIndex((token) => !sampler.propose(token));
  const tokens = refused < 0 ? answerPrefix : answerPrefix.slice(0, refused);
  /** @type {number[][]} */
  const groups = [];
  for (let start = 0; start < tokens.length; start += prefixGroupTokens) {
    groups.push(tokens.slice(start, start + prefixGroupTokens));
  }
  return {
    tokens,
    probabilities: probabilities ? tokens.map(() => 1) : [],
    topProbabilities: probabilities ? tokens.map(() => []) : [],
    stopProbabilities: tokens.map(() => 0),
    finishReason: null,
    forced: 0,
    groups,
  };
}

/**
 * One group, or a draft of at most `room` tokens to be verified, which may hold more forced ones. Without a readout
 * there are no features for micro steps, and the group begins with a forced token.
 * @param {Backend} backend @param {Readout | null} readout @param {number} row @param {Rules} rules
 * @param {number} room @param {Stats} stats
 * @returns {Promise<Step>}
 */
export async function say(backend, readout, row, rules, room, stats) {
  const growing = new Growing(backend, readout, row, rules, Math.min(room, rules.maxTokens - stats.tokens), stats);
  do {
    await rules.sampler.look();
  } while (!growing.isEnded && (await growing.grow()));
  return growing.step();
}

/** A group or draft that is being made. */
class Growing {
  #fed = 0; // of these tokens, to the micro decoder
  #stands = 1; // chance that the base keeps all of the draft

  /** @param {Backend} backend @param {Readout | null} readout @param {number} row @param {Rules} rules @param {number} room @param {Stats} stats */
  constructor(backend, readout, row, rules, room, stats) {
    this.backend = backend;
    this.readout = readout;
    this.row = row;
    this.rules = rules;
    this.sampler = rules.sampler;
    this.stats = stats;
    this.room = room;
    this.limit = Math.min(rules.size, room); // of tokens, for micro steps
    this.forced = this.sampler.forced === null ? 0 : 1;
    this.pStop = readout ? readout.pStop[row] : 0;
    const choice = readout ? this.sampler.choose(readout.logits[row]) : this.sampler.chooseForced();
    const { token } = choice;
    this.tokens = [token];
    this.choices = [choice];
    this.stops = [this.forced ? 0 : this.pStop];
    this.groups = [[token]];
    this.isTrying = readout !== null && 1 - this.pStop >= rules.tryConfidence;
    rules.drafter?.begin();
  }

  get isEnded() {
    return this.rules.eosIds.has(this.tokens[this.tokens.length - 1]) || this.sampler.isEnded;
  }

  /** Add a token, or return false where the group ends. @returns {Promise<boolean>} */
  async grow() {
    if (this.sampler.forced !== null) return this.#force();
    if (!this.readout) return false;
    return this.rules.drafter ? this.#draft(this.rules.drafter) : this.#microGroup();
  }

  /** @returns {Step} */
  step() {
    const { tokens, stops: stopProbabilities, forced, groups } = this;
    const shown = this.rules.probabilities ? this.choices : [];
    const probabilities = shown.map(({ probability }) => probability);
    const topProbabilities = shown.map(({ top }) => top ?? []);
    return { tokens, probabilities, topProbabilities, stopProbabilities, finishReason: null, forced, groups };
  }

  #force() {
    const { rules } = this;
    let limit = 1; // tokens that a group may hold for another forced one to join
    if (rules.verifies && rules.rides && this.readout) limit = this.room;
    else if (rules.merges) limit = this.limit;
    // the base may choose otherwise before it comes to a forbidden token
    if (this.tokens.length >= limit || (rules.verifies && this.sampler.forbidsForced)) return false;
    const choice = this.sampler.chooseForced();
    this.forced += 1;
    this.#add(choice, 0, rules.merges);
    return true;
  }

  /** One more micro token while the stop head is confident: mode merge, where nothing is checked. */
  async #microGroup() {
    const { rules, sampler } = this;
    if (!this.isTrying || this.#microCost === null) return false;
    const { logits, sure } = await this.#micro();
    this.isTrying = 1 - this.pStop >= rules.confidence;
    if (rules.judgesAfter && !this.isTrying) return false; // the base chooses this token instead
    const choice = sampler.chooseJudged(logits, logChance(sure));
    if (!choice) return false; // the stop head judged another token than the sampler prefers
    this.#add(choice, this.pStop, true);
    return true;
  }

  /** The likelier of a guess and a micro token, if it is worth its row. @param {Drafter} drafter */
  async #draft(drafter) {
    const { rules, sampler } = this;
    if (this.tokens.length >= this.room || this.tokens.length > MOST) return false;
    const guess = drafter.guess(sampler.answer);
    const cost = this.#microCost;
    const isUnsure = !guess || guess.chance < SURE;
    if (isUnsure && cost !== null && this.#stands * (1 - this.pStop) > cost + rules.costs.row) {
      const { logits, sure } = await this.#micro();
      if (!guess || sure > guess.chance) return this.#draftMicro(logits, sure);
    }
    if (!guess) return false;
    const floor = sampler.adjusts ? 0 : guess.floor; // guesses know no penalties, biases or bans
    if (!this.#pays(guess.chance, floor) || !sampler.propose(guess.token, logChance(guess.chance))) return false;
    this.#append({ token: guess.token, probability: guess.chance }, 0, floor, guess.chance, guess.place);
    return true;
  }

  /** @param {Float32Array} logits @param {number} sure */
  #draftMicro(logits, sure) {
    const { sampler } = this;
    const choice = this.#pays(sure, sure) ? sampler.chooseMicro(logits, logChance(sure)) : null;
    if (!choice) return false;
    this.#append(choice, this.pStop, choice.token === sampler.judged(logits) ? sure : 0, sure);
    return true;
  }

  /** Whether a token with this lower bound is merged into the newest slot, unchecked. @param {number} floor */
  #joins(floor) {
    const newest = this.groups[this.groups.length - 1];
    return this.rules.isHybrid && floor >= this.rules.unchecked && newest.length < this.backend.info.maxGroupTokens;
  }

  /** Whether another token saves its row; a merged one has none. @param {number} chance @param {number} floor */
  #pays(chance, floor) {
    const { worth, costs } = this.rules;
    return this.#joins(floor) || worth * this.#stands * chance >= costs.row;
  }

  /** @param {Choice} choice @param {number} pStop @param {number} floor @param {number} chance @param {number} place */
  #append(choice, pStop, floor, chance, place = -1) {
    const joins = this.#joins(floor);
    if (!joins) this.#stands *= chance;
    this.#add(choice, pStop, joins, place);
  }

  /** Of the next micro token; null: there can be none. */
  get #microCost() {
    const behind = this.tokens.length - this.#fed;
    if (this.tokens.length >= this.limit || behind > CATCH_UP || !this.sampler.microOpen) return null;
    return behind * this.rules.costs.micro;
  }

  /** Scores of the next micro token, and the chance of the highest. */
  async #micro() {
    const begin = performance.now();
    if (!this.#fed) this.backend.microBegin(/** @type {Readout} */ (this.readout).features[this.row]);
    const before = 1 - this.pStop; // by rule "before" the last step's pStop judges this token
    const behind = this.tokens.slice(this.#fed);
    let micro = await this.backend.micro(behind[0]);
    for (const token of behind.slice(1)) micro = await this.backend.micro(token);
    this.stats.microS += (performance.now() - begin) / 1000;
    this.stats.microSteps += behind.length;
    [this.#fed, this.pStop] = [this.tokens.length, micro.pStop];
    return { logits: micro.logits, sure: this.rules.judgesAfter ? 1 - this.pStop : before };
  }

  /** @param {Choice} choice @param {number} pStop @param {boolean} joins @param {number} place */
  #add(choice, pStop, joins, place = -1) {
    const { token } = choice;
    const newest = this.groups[this.groups.length - 1];
    if (joins && newest.length < this.backend.info.maxGroupTokens) newest.push(token);
    else this.groups.push([token]);
    this.tokens.push(token);
    this.choices.push(choice);
    this.stops.push(pStop);
    this.rules.drafter?.add(place);
  }
}

/** Natural logarithm of a draft's chance. @param {number} chance */
function logChance(chance) {
  return Math.log(Math.max(chance, 1e-9));
}
