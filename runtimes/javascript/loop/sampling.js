// Chooses tokens from scores, in the same way for the first token of a group and its micro tokens.
//
//     scores -> penalties -> bias and bans -> temperature -> top-k -> top-p -> min-p -> one uniform draw
//
// Temperature 0 is greedy: the highest score wins without a draw. Otherwise every sampled token costs exactly one draw,
// and the cumulative distribution is walked in order of token id, so equal seeds and scores give equal text. Draws can be
// taken back, so a drafted group is checked with the same draws as plain decoding's. Scores and weights have 32 bits.
import { CheckpointError, InputError } from "../errors.js";
import { Unconstrained } from "../structured/constraint.js";
import { noCopies, sameCopies } from "../drafts/lookup.js";
import { Random } from "./random.js";
import { Head, kthHighest, nucleusCut, pick } from "./scores.js";

/** @import { Constraint } from "../structured/constraint.js" */
/** @import { Copies } from "../drafts/lookup.js" */
/** @import { Sampling } from "./settings.js" */

/** @typedef {{token: number, logprob: number}} TopToken  a likely token with the natural logarithm of its probability */

/**
 * @typedef {object} Choice
 * @property {number} token
 * @property {number} probability  in the distribution it was chosen from; NaN without the option `topProbabilities`
 * @property {TopToken[]} [top]  the likeliest of that distribution, if the base chose
 */

/** @typedef {{seed: bigint, draws: number, answer: number[], prompt: number[], copies: Copies, logprobs: number[] | null}} SamplerState */

// Scores that are lower than the highest by this much are left out of a log-sum-exp, as in Python.
const NEAR = 18;

const BAN = -100; // a token with this bias or a lower one is never chosen, as in OpenAI's interface

/** One conversation's choices: settings, random draws, and generated tokens. */
export class Sampler {
  /** @type {number[]} tokens chosen since `begin` */
  answer = [];
  copies = noCopies(); // in the answer's drafts
  /** @type {number[] | null} log-probability of each token of the answer, see `certainty.js`; null: not recorded */
  logprobs = null;
  /** @type {Constraint} of the answer; advances with every choice */
  constraint = new Unconstrained();
  /** @type {number[]} */
  #prompt = [];
  /** @type {Set<number>} */
  #inPrompt = new Set();
  /** @type {Map<number, number>} count of each token in the answer */
  #counts = new Map();
  #draws = 0;
  #random;
  #base;
  #micro;
  #isPenalised;
  #banned;
  #scoresAnswer;

  /**
   * @param {Sampling} settings
   * @param {number} vocabSize
   * @param {readonly number[] | null} [draftVocab]
   * @param {number | null} [topProbabilities]
   * @param {boolean} [scoresAnswer]  record log-probabilities
   */
  constructor(settings, vocabSize, draftVocab = null, topProbabilities = 0, scoresAnswer = false) {
    this.#scoresAnswer = scoresAnswer;
    this.logprobs = scoresAnswer ? [] : null;
    this.settings = settings;
    this.topProbabilities = topProbabilities; // null: choices have no probability
    this.seed = settings.seed ?? freshSeed();
    this.#random = new Random(this.seed);
    const changes = new Map(settings.logitBias);
    this.#banned = new Set([...changes].filter(([, bias]) => bias <= BAN).map(([token]) => token));
    for (const token of this.#banned) changes.set(token, -Infinity);
    this.#base = new Head(changes, vocabSize, null);
    this.#micro = draftVocab ? new Head(changes, vocabSize, draftVocab) : this.#base;
    this.#isPenalised =
      settings.repetitionPenalty !== 1 || settings.presencePenalty !== 0 || settings.frequencyPenalty !== 0;
  }

  /** Whether settings change scores: what others found sure is not, then. */
  get adjusts() {
    return this.#isPenalised || this.#base.changes.length > 0;
  }

  /** False if all tokens of micro steps are suppressed: groups then hold one token. */
  get microUsable() {
    return this.#micro.usable;
  }

  /** Whether the constraint allows any token of micro steps here. */
  get microOpen() {
    const { constraint } = this;
    if (!constraint.masks) return true;
    for (let i = 0; i < this.#micro.size; i++) {
      const token = this.#micro.token(i);
      if (constraint.keeps(token) && !this.#banned.has(token)) return true;
    }
    return false;
  }

  /** Restrict the rest of the answer to a constraint. Call this after `begin` or `restore`. @param {Constraint} constraint */
  async follow(constraint) {
    this.constraint = constraint;
    await constraint.begin(this.#prompt, this.answer);
  }

  /** Remove the constraint; return whether the answer was complete, null if it defines no complete answer. */
  release() {
    const { isComplete } = this.constraint;
    this.constraint.close();
    this.constraint = new Unconstrained();
    return isComplete;
  }

  /** Compute what is allowed next; call it before the getters. */
  async look() {
    await this.constraint.look();
  }

  /** The next token if exactly one is allowed; it needs no scores. */
  get forced() {
    return this.constraint.forced;
  }

  /** Whether the answer is complete and cannot continue. */
  get isEnded() {
    return this.constraint.isEnded;
  }

  /** Whether settings forbid the forced token. Only a draft goes on without it. */
  get forbidsForced() {
    return this.forced !== null && this.#banned.has(this.forced);
  }

  /** Choose the forced token. It costs a draw like any other, so draws can be counted in tokens. */
  chooseForced() {
    const token = /** @type {number} */ (this.forced);
    if (this.forbidsForced) {
      throw new InputError(`the structure needs token ${token} here, which is banned: allow it`);
    }
    if (this.settings.temperature > 0) this.#advance(1);
    return this.#accept({ token, probability: 1 });
  }

  /** Start an answer: penalties count this prompt and the following choices. @param {Iterable<number>} prompt */
  begin(prompt) {
    const tokens = [...prompt];
    this.answer = [];
    this.logprobs = this.#scoresAnswer ? [] : null;
    this.copies = noCopies();
    this.#prompt = tokens;
    this.#inPrompt = new Set(tokens);
    this.#counts.clear();
  }

  /** Choose from the base's scores, [vocab]. @param {Float32Array} logits */
  choose(logits) {
    if (this.forced !== null) return this.chooseForced();
    const { choice, refused } = this.#permitted(logits);
    return this.#accept(choice, this.logprobs ? this.#logprob(logits, choice.token, refused) : 0);
  }

  /**
   * Take a token into a draft without scores, if the constraint allows it. It costs a draw like any other. `logprob` is
   * recorded until the base scores the token.
   * @param {number} token @param {number} [logprob]
   */
  propose(token, logprob = 0) {
    if (this.forced !== null && this.forced !== token) return false;
    if (!this.constraint.allows(token)) return false;
    if (this.settings.temperature > 0) this.#advance(1);
    this.#accept({ token, probability: NaN }, this.forced === token ? 0 : logprob);
    return true;
  }

  /** Return the base's probability of the likeliest token, by scores [vocab]. @param {Float32Array} logits */
  surety(logits) {
    const { constraint } = this;
    const open = constraint.masks ? logits.filter((_, token) => constraint.keeps(token)) : logits;
    const best = open[highest(open)];
    return open.length ? 1 / open.reduce((sum, x) => sum + Math.exp(x - best), 0) : 1;
  }

  /**
   * From a micro step's scores, [vocab] or [draft vocabulary]. Null, and nothing chosen, where the answer may not go
   * on so: the base chooses among the others. `logprob` is recorded until the base scores the token.
   * @param {Float32Array} logits @param {number} [logprob]
   */
  chooseMicro(logits, logprob = 0) {
    const choice = this.#choose(logits, this.#micro);
    if (this.constraint.allows(choice.token)) return this.#accept(choice, logprob);
    this.#takeBack(1);
    return null;
  }

  /** Return the token of a micro step's highest score, which the stop head judges. @param {Float32Array} logits */
  judged(logits) {
    return this.#micro.token(highest(logits));
  }

  /**
   * Choose that token; null, and no choice, if settings or the draw prefer another.
   * @param {Float32Array} logits @param {number} [logprob]
   */
  chooseJudged(logits, logprob = 0) {
    const judged = this.judged(logits);
    if (!this.constraint.keeps(judged)) return null;
    const choice = this.chooseMicro(logits, logprob);
    if (!choice || choice.token === judged) return choice;
    this.rewind(1);
    return null;
  }

  /**
   * Take back the last choices and their draws.
   * @param {number} tokens
   */
  rewind(tokens) {
    if (!tokens) return;
    this.logprobs?.splice(-tokens);
    for (const token of this.answer.splice(-tokens)) this.#count(token, -1);
    this.constraint.rewind(tokens);
    this.#takeBack(tokens);
  }

  /** Return a state from which `restore` continues exactly, with the same settings. @returns {SamplerState} */
  state() {
    const [answer, prompt, copies] = [[...this.answer], [...this.#prompt], sameCopies(this.copies)];
    const logprobs = this.logprobs && [...this.logprobs];
    return { seed: this.seed, draws: this.#draws, answer, prompt, copies, logprobs };
  }

  /** @param {SamplerState} state */
  restore({ seed, draws, answer, prompt, copies, logprobs }) {
    this.seed = seed;
    this.#random = new Random(seed);
    this.#draws = 0;
    this.#advance(draws);
    this.begin(prompt);
    this.answer = [...answer];
    this.copies = sameCopies(copies);
    // an answer that began without them has none
    if (this.#scoresAnswer) this.logprobs = logprobs?.length === answer.length ? [...logprobs] : null;
    for (const token of answer) this.#count(token, 1);
  }

  /** @param {Choice} choice @param {number} [logprob] */
  #accept(choice, logprob = 0) {
    this.constraint.consume(choice.token);
    this.answer.push(choice.token);
    this.logprobs?.push(logprob);
    this.#count(choice.token, 1);
    return choice;
  }

  /** @param {number} token @param {number} change */
  #count(token, change) {
    this.#counts.set(token, (this.#counts.get(token) ?? 0) + change);
  }

  /** @param {number} draws */
  #advance(draws) {
    this.#draws += draws;
    this.#random.advance(draws);
  }

  /** @param {number} draws */
  #takeBack(draws) {
    if (this.settings.temperature > 0) this.#advance(-draws);
  }

  /**
   * Return the log-probability of an allowed token, from the base's scores, [vocab]. The tokens that the constraint refused
   * here have none.
   * @param {Float32Array} given @param {number} token @param {readonly number[]} refused
   */
  #logprob(given, token, refused) {
    const logits = refused.length ? given.slice() : given;
    for (const other of refused) logits[other] = -Infinity;
    const allowed = this.#allowed(logits, this.#base);
    const best = allowed[highest(allowed)];
    let sum = 0;
    for (const logit of allowed) if (logit > best - NEAR) sum += Math.exp(logit - best);
    return logits[token] - best - Math.log(sum);
  }

  /** Choose from the base's scores; return the choice, and the tokens that were refused before it. @param {Float32Array} given */
  #permitted(given) {
    let logits = given;
    const top = this.topProbabilities ?? 0;
    let choice = this.#choose(logits, this.#base, top);
    /** @type {number[]} */
    const refused = [];
    while (!this.constraint.allows(choice.token)) {
      this.#takeBack(1);
      refused.push(choice.token);
      logits = logits.slice();
      logits[choice.token] = -Infinity;
      choice = this.#choose(logits, this.#base, top);
    }
    return { choice, refused };
  }

  /** @param {Float32Array} given @param {Head} head @param {number} [top] @returns {Choice} */
  #choose(given, head, top = 0) {
    const adjusted = this.#isPenalised || head.changes.length ? this.#adjusted(given, head) : given;
    const logits = this.#allowed(adjusted, head);
    const index = highest(logits);
    const best = logits[index];
    if (!Number.isFinite(best)) throw this.#unusable(best);
    if (this.settings.temperature > 0) return this.#draw(logits, best, head, top);
    if (this.topProbabilities === null) return { token: head.token(index), probability: NaN };
    const weights = logits.map((logit) => Math.exp(logit - best));
    const probability = 1 / weights.reduce((sum, weight) => sum + weight, 0);
    return { token: head.token(index), probability, top: topTokens(weights, top) };
  }

  /** @param {Float32Array} logits @param {Head} head */
  #allowed(logits, head) {
    const { constraint } = this;
    if (!constraint.masks) return logits;
    return logits.map((logit, i) => (constraint.keeps(head.token(i)) ? logit : -Infinity));
  }

  /** @param {Float32Array} given @param {Head} head */
  #adjusted(given, head) {
    const { repetitionPenalty, presencePenalty, frequencyPenalty } = this.settings;
    const [r, p, f] = [repetitionPenalty, presencePenalty, frequencyPenalty].map(Math.fround);
    const logits = given.slice();
    for (const token of this.#isPenalised ? new Set([...this.#prompt, ...this.#counts.keys()]) : []) {
      const [index, count] = [head.locate(token), this.#counts.get(token) ?? 0];
      if (index === undefined || (!count && !this.#inPrompt.has(token))) continue;
      logits[index] = logits[index] > 0 ? logits[index] / r : logits[index] * r; // rounds to 32 bits, each time
      if (count) logits[index] -= p;
      logits[index] -= Math.fround(f * count);
    }
    for (const [index, change] of head.changes) logits[index] += change;
    return logits;
  }

  /**
   * Inverse CDF. Weights are relative to the likeliest token's: each truncation is a cut-off weight.
   * @param {Float32Array} logits @param {number} best @param {Head} head @param {number} top
   */
  #draw(logits, best, head, top) {
    const { temperature, topK, topP, minP } = this.settings;
    const t = Math.fround(Math.max(temperature, 1e-6));
    const { order } = head;
    const weights = new Float32Array(logits.length);
    for (let i = 0; i < weights.length; i++) {
      const logit = logits[order ? order[i] : i];
      weights[i] = Math.exp(Math.fround(Math.fround(logit - best) / t));
    }
    let cut = 0;
    if (topK > 0 && topK < weights.length) cut = kthHighest(weights, topK);
    if (topP < 1) cut = nucleusCut(cut > 0 ? weights.filter((weight) => weight >= cut) : weights, topP);
    cut = Math.max(cut, Math.fround(minP));
    if (cut > 0) for (let i = 0; i < weights.length; i++) if (weights[i] < cut) weights[i] = 0;
    const { index, probability } = pick(weights, this.#random.next());
    this.#draws += 1;
    return { token: head.token(order ? order[index] : index), probability, top: topTokens(weights, top) };
  }

  /** @param {number} best */
  #unusable(best) {
    if (best === -Infinity && this.constraint.masks) {
      return new InputError("the structure leaves no token here that is not banned: allow one");
    }
    if (best === -Infinity && this.#banned.size) {
      return new InputError("logitBias bans every token: allow at least one");
    }
    return new CheckpointError(
      `the model's scores are not usable (highest is ${best}): its weights or precision are damaged, ` +
        "verify the bundle or export it again",
    );
  }
}

/**
 * Return the `count` highest weights of the whole vocabulary that are above 0, as log probabilities.
 * @param {Float32Array} weights @param {number} count @returns {TopToken[]}
 */
function topTokens(weights, count) {
  if (!count) return [];
  const least = count < weights.length ? kthHighest(weights, count) : 0;
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const tokens = [...weights.keys()].filter((token) => weights[token] > 0 && weights[token] >= least);
  tokens.sort((a, b) => weights[b] - weights[a] || a - b);
  return tokens.slice(0, count).map((token) => ({ token, logprob: Math.log(weights[token] / total) }));
}

/** Return the index of the highest score, the first if several are equal; of the first NaN if there is one. @param {Float32Array} logits */
function highest(logits) {
  let best = 0;
  for (let i = 1; i < logits.length; i++) {
    if (logits[i] > logits[best]) best = i;
    else if (Number.isNaN(logits[i])) return i;
  }
  return best;
}

function freshSeed() {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2));
  return (BigInt(high >>> 1) << 32n) | BigInt(low); // 63 bits
}
