// Drafts of mode verify: the base's token, then forced, guessed or micro tokens while another one pays.
//
// Before the prompt is read there is no token of the base: a draft then holds guesses only, from the first on.
//
//     stands   the probability that the base keeps the whole draft
//     worth    what a kept token saves on average
//     wanted   the probability that there is no guess, or a wrong one
//
// Costs are in units of a base call.
//
//     micro step   runs if   worth * stands * wanted * (1 - pStop) > cost of its micro steps and of a row
//     token        joins if  worth * stands * p >= cost of a row, or if it is merged, without a row
//
// Where calls have an even number of slots, the second of two costs nothing, and the first as much as both.
import { Drafter, MOST, USUAL_COSTS, costsBehind, worthOfToken } from "../../drafts/drafting.js";
import { MicroSteps, logChance } from "./micro_steps.js";
import { stepToken } from "../step.js";

/** @import { Guess } from "../../drafts/draft_index.js" */
/** @import { AnswerRun, Row } from "../answer_run.js" */
/** @import { Slot, StepToken } from "../step.js" */

// Most tokens that the micro decoder may read to propose the next one. With more of them, a macro step is cheaper.
const CATCH_UP = 2;

/**
 * @typedef {object} Merging
 * @property {(floor: number, slot: Slot) => boolean} merges  whether a token whose probability has this lower bound joins
 *   the slot, unchecked
 */

/** The drafts of one answer: what they cost and save, and their guesses. */
export class Drafts {
  /** @param {AnswerRun} run @param {Merging | null} merging */
  constructor(run, merging) {
    const { info, sampler, settings } = run;
    this.run = run;
    this.merging = merging;
    this.costs = info.draftCosts ?? USUAL_COSTS;
    const guesses = settings.confidence < 1; // at confidence 1 a draft holds forced tokens only
    this.drafter = guesses ? new Drafter(run.prompt, info.draftIndex ?? null, run.words, sampler.copies) : null;
    this.microLimit = sampler.microUsable ? info.maxGroupTokens : 1;
  }

  /**
   * Return a draft of at most `room` tokens, by slot. It begins with the base's token of the row. Without a row it may be
   * empty.
   * @param {Row | null} row @param {number} room @returns {Promise<Slot[]>}
   */
  async grow(row, room) {
    const draft = new Draft(this, row, Math.min(room, this.run.tokensLeft));
    const { tokens } = draft;
    do {
      await this.run.sampler.look();
    } while (!(tokens.length && this.run.endsWith(tokens[tokens.length - 1])) && (await draft.addToken()));
    return draft.slots;
  }

  /** Record that the base kept the first `kept` tokens of the draft. @param {number} kept */
  settle(kept) {
    this.drafter?.settle(kept);
  }
}

/** A draft in progress. */
class Draft {
  #drafts;
  #sampler;
  #room;
  /** @type {MicroSteps | null} they follow a row */
  #micro = null;
  #costs;
  #worth;
  #stands = 1;
  /** @type {number[]} */
  tokens = [];
  /** @type {Slot[]} */
  slots = [];

  /** @param {Drafts} drafts @param {Row | null} row @param {number} room */
  constructor(drafts, row, room) {
    this.#drafts = drafts;
    this.#sampler = drafts.run.sampler;
    this.#room = room;
    this.#costs = costsBehind(drafts.costs, drafts.run.text.ledger.slots);
    this.#worth = worthOfToken(drafts.run.info.draftIndex ?? null, this.#costs);
    drafts.drafter?.begin();
    if (!row) return;
    this.#micro = new MicroSteps(drafts.run, row);
    const isForced = this.#sampler.forced !== null;
    this.#append(stepToken(this.#sampler.choose(row.logits), { pStop: isForced ? 0 : row.pStop, isForced }), false);
  }

  /** Add a token, or return false if the draft ends. @returns {Promise<boolean>} */
  async addToken() {
    if (this.tokens.length >= this.#room) return false;
    if (this.#sampler.forced !== null) return this.#addForced();
    const { drafter } = this.#drafts;
    if (!drafter || this.tokens.length > MOST) return false;
    return this.#addLikelier(drafter);
  }

  #addForced() {
    if (this.#sampler.forbidsForced) return false; // the base may reject the draft before this forbidden token
    this.#append(stepToken(this.#sampler.chooseForced(), { isForced: true }), false);
    return true;
  }

  /** Add the likelier of a guess and a micro token, if it pays. @param {Drafter} drafter */
  async #addLikelier(drafter) {
    const sampler = this.#sampler;
    const guess = drafter.guess(sampler.answer);
    if (this.#micro && this.#microPays(this.#micro, guess ? 1 - guess.chance : 1)) {
      const { logits, chance } = await this.#micro.scores(this.tokens);
      if (!guess || chance > guess.chance) return this.#addMicro(this.#micro, logits, chance);
    }
    if (!guess) return false;
    const floor = sampler.adjusts ? 0 : guess.floor; // guesses know no penalties, biases or bans
    const logprob = logChance(guess.chance);
    if (!this.#pays(guess.chance, floor) || !sampler.propose(guess.token, logprob)) return false;
    const token = stepToken({ token: guess.token, probability: guess.chance }, { logprob });
    this.#join(token, floor, guess.chance, guess);
    return true;
  }

  /** @param {MicroSteps} micro @param {Float32Array} logits @param {number} chance */
  #addMicro(micro, logits, chance) {
    const logprob = logChance(chance);
    const choice = this.#pays(chance, chance) ? this.#sampler.chooseMicro(logits, logprob) : null;
    if (!choice) return false;
    const floor = choice.token === this.#sampler.judged(logits) ? chance : 0;
    this.#join(stepToken(choice, { pStop: micro.pStop, logprob }), floor, chance);
    return true;
  }

  /** Whether there can be a micro token that saves its micro steps and its row. @param {MicroSteps} micro @param {number} wanted */
  #microPays(micro, wanted) {
    const { microLimit } = this.#drafts;
    const behind = micro.behind(this.tokens.length);
    const isFull = this.tokens.length >= Math.min(microLimit, this.#room);
    if (isFull || behind > CATCH_UP || !this.#sampler.microOpen) return false;
    return this.#worth * this.#stands * wanted * (1 - micro.pStop) > behind * this.#costs.micro + this.#rowCost;
  }

  /** @param {number} floor */
  #merges(floor) {
    const slot = this.slots[this.slots.length - 1];
    return (slot && this.#drafts.merging?.merges(floor, slot)) ?? false;
  }

  /** Whether another token saves its row; a merged one has none. @param {number} chance @param {number} floor */
  #pays(chance, floor) {
    return this.#merges(floor) || this.#worth * this.#stands * chance >= this.#rowCost;
  }

  /** The cost of one more slot in the call. */
  get #rowCost() {
    if (!this.#drafts.run.info.pairsRows) return this.#costs.row;
    return this.slots.length % 2 ? 0 : 2 * this.#costs.row;
  }

  /** @param {StepToken} token @param {number} floor @param {number} chance @param {Guess | null} [guess] */
  #join(token, floor, chance, guess = null) {
    const isMerged = this.#merges(floor);
    if (!isMerged) this.#stands *= chance;
    this.#append(token, isMerged, guess);
  }

  /** @param {StepToken} token @param {boolean} isMerged @param {Guess | null} [guess] */
  #append(token, isMerged, guess = null) {
    if (isMerged) this.slots[this.slots.length - 1].push(token);
    else this.slots.push([token]);
    this.tokens.push(token.token);
    this.#drafts.drafter?.add(guess);
  }
}
