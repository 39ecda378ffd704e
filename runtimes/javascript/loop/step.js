// One macro step: a token of the base, then forced, micro or copied ones, until a rule ends it.

import { Copies } from "./copies.js";

/** @import { Backend, Group, ModelInfo, Readout } from "./backend.js" */
/** @import { Sampler } from "./sampling.js" */
/** @import { Settings } from "./settings.js" */
/** @import { Stats } from "./stats.js" */

/** @typedef {"eos" | "length" | "stop" | "context" | "cancelled"} FinishReason */

/**
 * @typedef {object} Step  The tokens of one macro step.
 * @property {Group} tokens
 * @property {number[]} probabilities  of each token; empty without the option `probabilities`
 * @property {number[]} stopProbabilities  probability that the group should end with each token
 * @property {FinishReason | null} finishReason  set on the last step
 * @property {number} forced  number of forced tokens
 * @property {Group[]} groups  the tokens as slots hold them
 */

// By stop rule "after" a group's first micro step is a trial, whose token then needs the full confidence. The trial is
// worth its cost if the base gives at least this share of it (docs/spec/loop.md).
const TRY = 2 / 3;
// In verify mode a computed micro token is proposed even below the confidence: its micro step is spent, and a kept token
// saves a whole macro step.
const JOIN = 0.4;
// Micro steps that only read forced tokens before one that chooses: beyond this many, a macro step is cheaper.
const CATCH_UP = 2;

/** The rules by which groups and answers end, computed once per answer. */
export class Rules {
  /** @param {ModelInfo} info @param {Settings} settings @param {Sampler} sampler @param {readonly number[]} prompt */
  constructor(info, settings, sampler, prompt) {
    this.sampler = sampler;
    this.verifies = settings.mode === "verify" || settings.mode === "hybrid"; // the base checks drafts ...
    this.isHybrid = settings.mode === "hybrid"; // ... but for what is sure, if it reads that surely
    // so sure that a whole group of such tokens, none of them checked, is as sure as the confidence
    this.unchecked = settings.confidence ** (1 / info.maxGroupTokens);
    this.maxTokens = settings.maxTokens;
    this.probabilities = settings.probabilities;
    this.eosIds = new Set(settings.ignoreEos ? [] : info.eosIds);
    this.confidence = settings.confidence;
    this.judgesAfter = info.stopRule === "after";
    this.tryConfidence = this.judgesAfter ? TRY * this.confidence : this.confidence;
    this.joinConfidence = this.verifies ? Math.min(this.confidence, JOIN) : this.confidence;
    this.merges = settings.forced === "merge" && !settings.isExact;
    this.rides = settings.forced !== "single"; // forced tokens need no separate call
    this.size = settings.confidence >= 1 || !sampler.microUsable ? 1 : info.maxGroupTokens;
    this.copies = this.verifies && settings.confidence < 1 ? new Copies(prompt) : null;
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
   * Say, for the base to check, what the answer seems to copy out of the prompt. Where a micro step is worth trying,
   * one token that matches is less sure than the micro decoder, and several are surer.
   * @param {boolean} isTrying @param {number} most
   */
  async copy(isTrying, most) {
    /** @type {{tokens: number[], forced: number}} */
    const copied = { tokens: [], forced: 0 };
    const draft = this.copies?.draft(this.sampler.answer, isTrying ? 2 : 1) ?? [];
    for (const token of draft.slice(0, Math.max(0, most))) {
      await this.sampler.look();
      const isForced = this.sampler.forced !== null;
      if (!this.sampler.propose(token)) break;
      copied.tokens.push(token);
      copied.forced += isForced ? 1 : 0;
      await this.sampler.look();
      if (this.eosIds.has(token) || this.sampler.isEnded) break;
    }
    return copied;
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
 * What all answers begin with, as a draft that needs no readout: the base checks it as it reads the prompt.
 * @param {Rules} rules
 * @returns {Step}
 */
export function openAnswer({ answerPrefix, prefixGroupTokens, probabilities, sampler }) {
  /** @type {number[][]} */
  const groups = [];
  for (const [index, token] of answerPrefix.entries()) {
    sampler.propose(token);
    if (index % prefixGroupTokens) groups[groups.length - 1].push(token);
    else groups.push([token]);
  }
  return {
    tokens: answerPrefix,
    probabilities: probabilities ? answerPrefix.map(() => 1) : [],
    stopProbabilities: answerPrefix.map(() => 0),
    finishReason: null,
    forced: 0,
    groups,
  };
}

/**
 * One group, or a draft of at most `room` tokens to be verified, which may hold more of the forced ones. Without a
 * readout there are no features for micro steps, and the group begins with a forced token.
 * @param {Backend} backend @param {Readout | null} readout @param {number} row @param {Rules} rules
 * @param {number} room @param {Stats} stats
 * @returns {Promise<Step>}
 */
export async function say(backend, readout, row, rules, room, stats) {
  const { sampler } = rules;
  const most = Math.min(room, rules.maxTokens - stats.tokens);
  const limit = Math.min(rules.size, most);
  let forcedLimit = 1; // most tokens of a group that another forced one may join
  if (rules.verifies && rules.rides && readout) forcedLimit = most;
  else if (rules.merges) forcedLimit = limit;
  let forced = sampler.forced === null ? 0 : 1;
  let pStop = readout ? readout.pStop[row] : 0;
  let { token, probability } = readout ? sampler.choose(readout.logits[row]) : sampler.chooseForced();
  const [tokens, probabilities, stops] = [[token], [probability], [forced ? 0 : pStop]];
  const groups = [[token]];
  let isTrying = readout !== null && 1 - pStop >= rules.tryConfidence;
  let fed = 0; // of these tokens, to the micro decoder
  for (;;) {
    await sampler.look();
    if (rules.eosIds.has(token) || sampler.isEnded) break;
    let joins = rules.merges; // the newest group; for forced tokens
    if (sampler.forced !== null) {
      // the base may choose otherwise before it comes to a forbidden token
      if (tokens.length >= forcedLimit || (rules.verifies && sampler.forbidsForced)) break;
      ({ token, probability } = sampler.chooseForced());
      pStop = 0;
      forced += 1;
    } else {
      const copied = readout && !fed ? await rules.copy(isTrying, most - tokens.length) : null;
      if (copied?.tokens.length) {
        tokens.push(...copied.tokens);
        forced += copied.forced;
        probabilities.push(...copied.tokens.map(() => NaN)); // known after the base's call
        stops.push(...copied.tokens.map(() => 0));
        groups.push(...copied.tokens.map((copy) => [copy]));
        break;
      }
      const behind = tokens.slice(fed);
      if (!readout || !isTrying || tokens.length >= limit || behind.length > CATCH_UP || !sampler.microOpen) break;
      const begin = performance.now();
      if (!fed) backend.microBegin(readout.features[row]);
      let micro = await backend.micro(behind[0]);
      for (const read of behind.slice(1)) micro = await backend.micro(read);
      fed = tokens.length;
      stats.microSeconds += (performance.now() - begin) / 1000;
      stats.microSteps += behind.length;
      let sure = 1 - pStop; // by rule "before" the last step spoke of this
      pStop = micro.pStop;
      if (rules.judgesAfter) sure = 1 - pStop;
      isTrying = 1 - pStop >= rules.confidence;
      if (rules.judgesAfter && 1 - pStop < rules.joinConfidence) break; // the base chooses it instead
      const choice = rules.verifies ? sampler.chooseMicro(micro.logits) : sampler.chooseJudged(micro.logits);
      if (!choice) break; // the stop head did not judge the sampler's token: the base chooses
      ({ token, probability } = choice);
      const isUnchecked = rules.isHybrid && sure >= rules.unchecked && token === sampler.judged(micro.logits);
      joins = !rules.verifies || isUnchecked;
    }
    const newest = groups[groups.length - 1];
    if (joins && newest.length < backend.info.maxGroupTokens) newest.push(token);
    else groups.push([token]);
    tokens.push(token);
    probabilities.push(probability);
    stops.push(pStop);
  }
  const shown = rules.probabilities ? probabilities : [];
  return { tokens, probabilities: shown, stopProbabilities: stops, finishReason: null, forced, groups };
}
