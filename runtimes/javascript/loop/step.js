// What one macro step says: a token of the base, then micro tokens, until a rule ends the group.

/** @import { Backend, Group, ModelInfo, Readout } from "./backend.js" */
/** @import { Sampler } from "./sampling.js" */
/** @import { Settings } from "./settings.js" */
/** @import { Stats } from "./stats.js" */

/** @typedef {"eos" | "length" | "stop" | "context" | "cancelled"} FinishReason */

/**
 * @typedef {object} Step  What one macro step said.
 * @property {Group} tokens
 * @property {number[]} probabilities  of each token; empty unless asked for
 * @property {number[]} stopProbabilities  chance that the group should end with each token
 * @property {FinishReason | null} finishReason  set on the last step
 */

// By stop rule "after" a group's first micro step is only a try, which must then convince at the confidence
// asked for: it is worth its price from this share of that on (docs/spec/loop.md).
const TRY = 2 / 3;
// In verify mode a micro token that was computed is proposed even when it does not convince: its micro step is
// spent, and a token that stays saves a whole macro step.
const JOIN = 0.4;

/** When a group and an answer end; worked out once a run. */
export class Rules {
  /** @param {ModelInfo} info @param {Settings} settings @param {Sampler} sampler */
  constructor(info, settings, sampler) {
    this.sampler = sampler;
    this.verifies = settings.mode === "verify"; // the base chooses every token
    this.rereads = settings.mode === "reread"; // the base is to be sure of what it reads merged
    this.maxTokens = settings.maxTokens;
    this.probabilities = settings.probabilities;
    this.eosIds = new Set(settings.ignoreEos ? [] : info.eosIds);
    this.confidence = settings.confidence;
    this.judgesAfter = info.stopRule === "after";
    this.tryConfidence = this.judgesAfter ? TRY * this.confidence : this.confidence;
    this.joinConfidence = this.verifies ? Math.min(this.confidence, JOIN) : this.confidence;
    this.size = settings.confidence >= 1 || !sampler.microUsable ? 1 : info.maxSteps;
  }

  /** Whether the base, having read merged groups, is not sure of what comes next. @param {Float32Array} logits */
  doubts(logits) {
    return this.rereads && this.sampler.surety(logits) < this.confidence;
  }

  /**
   * Whether the answer ends with this newest group (not yet counted in the statistics).
   * @param {Group} tokens @param {Stats} stats @returns {FinishReason | null}
   */
  finish(tokens, stats) {
    if (this.eosIds.has(tokens[tokens.length - 1])) return "eos";
    return stats.tokens + tokens.length >= this.maxTokens ? "length" : null;
  }
}

/**
 * One group, or a draft of at most `room` tokens to be verified.
 * @param {Backend} backend @param {Readout} readout @param {number} row @param {Rules} rules
 * @param {number} room @param {Stats} stats
 * @returns {Promise<Step>}
 */
export async function say(backend, readout, row, rules, room, stats) {
  const { sampler } = rules;
  const limit = Math.min(rules.size, room, rules.maxTokens - stats.tokens);
  let { token, probability } = sampler.choose(readout.logits[row]);
  let pStop = readout.pStop[row];
  const [tokens, probabilities, stops] = [[token], [probability], [pStop]];
  let isTrying = 1 - pStop >= rules.tryConfidence;
  while (isTrying && tokens.length < limit && !rules.eosIds.has(token)) {
    const begin = performance.now();
    if (tokens.length === 1) backend.microBegin(readout.features[row]);
    const micro = await backend.micro(token);
    stats.microSeconds += (performance.now() - begin) / 1000;
    stats.microSteps += 1;
    pStop = micro.pStop;
    isTrying = 1 - pStop >= rules.confidence;
    if (rules.judgesAfter && 1 - pStop < rules.joinConfidence) break; // the base will choose it instead
    const choice = rules.verifies ? sampler.chooseMicro(micro.logits) : sampler.chooseJudged(micro.logits);
    if (!choice) break; // nobody vouches for what the sampler prefers: the base will choose
    ({ token, probability } = choice);
    tokens.push(token);
    probabilities.push(probability);
    stops.push(pStop);
  }
  const shown = rules.probabilities ? probabilities : [];
  return { tokens, probabilities: shown, stopProbabilities: stops, finishReason: null };
}
