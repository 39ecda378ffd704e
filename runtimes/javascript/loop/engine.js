// The hierarchical loop: macro steps of the base, micro steps inside them, one KV slot for each group.
//
//     prompt --prefill--> readout -> first token -> micro tokens ... = a group ----yield----+
//                            ^                                                              |
//                            +------------- macro step: the group becomes one slot ---------+
//
// The newest group of an answer is `unread`: generated, but not in the cache. The next call feeds it merged, so an
// answer stays compressed when a conversation continues. Tokens that a grammar forces are generated without the model
// and fed as separate groups with the next call of the base.
import { ContextFullError, InputError } from "../errors.js";
import { wholeIn } from "../support/values.js";
import { Ledger } from "./ledger.js";
import { openAnswer, Rules, say } from "./step.js";

/** @import { Backend, Group, Readout } from "./backend.js" */
/** @import { Words } from "./copied_words.js" */
/** @import { Sampler } from "./sampling.js" */
/** @import { Settings } from "./settings.js" */
/** @import { Stats } from "./stats.js" */
/** @import { Step } from "./step.js" */

/**
 * Slots of the cache that may serve the beginning of a prompt: none, slots with the same groups, or also merged slots
 * with the same tokens.
 * @typedef {"none" | "groups" | "tokens"} Reuse
 */

const CHUNK = 256; // most slots one prefill call appends: bounds memory, not the result

// As many tokens as so many full groups hold are read again where the base doubts what it read merged.
const REREAD = 2;

/** Drives one backend and knows the contents of its cache; settings and sampler are passed to each run. */
export class Engine {
  /** @type {Group[]} generated, but not in the cache */
  unread = [];

  /** @param {Backend} backend @param {Words | null} words  cuts prompts into words that drafts may copy */
  constructor(backend, words = null) {
    this.backend = backend;
    this.words = words;
    this.info = backend.info;
    this.ledger = new Ledger(backend.info);
  }

  /** All groups so far: those in the cache, then unread ones. @returns {Group[]} */
  get sequence() {
    return [...this.ledger.groups, ...this.unread];
  }

  /**
   * Return groups of one token each, or throw an error that names a wrong token.
   * @param {Iterable<unknown>} tokens
   * @returns {Group[]}
   */
  checkTokens(tokens) {
    return Array.from(tokens, (token) => [wholeIn("a token", token, 0, this.info.vocabSize - 1)]);
  }

  /**
   * Answer a prompt given as groups. Ends after the step whose `finishReason` is set, or without one when
   * cancelled: before the first macro step, between two, or between two chunks of the prompt. "context" means
   * that the last group finds no free slot or no position below the model's context length.
   * @param {readonly Group[]} prompt
   * @param {Settings} settings
   * @param {Sampler} sampler
   * @param {Stats} stats
   * @param {{isCancelled: () => boolean, reuse?: Reuse}} how
   * @returns {AsyncGenerator<Step, void, void>}
   */
  async *run(prompt, settings, sampler, stats, { isCancelled, reuse = "tokens" }) {
    if (!prompt.length) throw new InputError("the prompt is empty: give at least one token");
    this.#truncate(Math.min(this.ledger.slots, this.backend.slots)); // after an interrupted call
    const matched = this.ledger.match(prompt.slice(0, -1), reuse === "tokens" && !settings.isExact);
    const { slots, covered } = reuse === "none" ? { slots: 0, covered: 0 } : matched;
    this.#checkRoom(slots, prompt, covered);
    stats.promptTokens = count(prompt);
    stats.reusedTokens = count(prompt.slice(0, covered));
    const tokens = prompt.flat();
    const asked = tokens.slice(0, tokens.length - sampler.answer.length); // the prompt of an answer that goes on
    const rules = new Rules(this.info, settings, sampler, asked, this.words);
    this.#truncate(slots);
    this.unread = prompt.slice(covered);
    try {
      /** @type {Readout | null} of the text so far; null: some of it is unread */
      let readout = null;
      let row = 0;
      let [isRead, isOpening] = [false, true]; // the prompt; up to the first group that the base had a say in
      while (!isCancelled()) {
        await sampler.look();
        let said;
        if (readout || rules.isAhead) {
          if (readout && rules.isHybrid) this.#doubt(readout.logits[row], rules, stats);
          said = await this.#say(readout, row, rules, stats);
        } else if (!isRead && this.#mayOpen(rules)) {
          said = await this.#open(rules, stats, isCancelled);
          if (!said) return;
          isRead = true;
        } else {
          readout = await this.#read(stats, isRead ? null : isCancelled);
          if (!readout) return;
          [row, isRead] = [0, true];
          continue;
        }
        if (!said.step.tokens.length) {
          ({ readout, row } = said);
          continue;
        }
        let finish = rules.finish(said.step.tokens, stats);
        if (!finish && this.unread.length && !this.ledger.fits(...this.unread.map((group) => group.length))) {
          finish = "context";
        }
        stats.tokens += said.step.tokens.length;
        stats.forcedTokens += said.step.forced;
        stats.macroSteps += 1;
        if (isOpening) [stats.firstTokens, isOpening] = [stats.tokens, !isRead];
        yield { ...said.step, finishReason: finish };
        if (finish) return;
        ({ readout, row } = said);
      }
    } finally {
      if (!stats.macroSteps) this.unread = []; // nothing was answered: forget the prompt
    }
  }

  /** Remove the last tokens of the newest step, but not all of them. @param {number} tokens */
  drop(tokens) {
    while (tokens > 0) {
      let newest = this.unread.pop();
      if (!newest) {
        newest = this.ledger.groups[this.ledger.slots - 1]; // it was verified, and is in the cache
        this.#truncate(this.ledger.slots - 1);
      }
      const left = newest.slice(0, -tokens);
      if (left.length) this.unread.push(left);
      tokens -= newest.length - left.length;
    }
  }

  /**
   * Append unread groups to the cache and return the base's readout. Up to `left` groups may stay unread, at least one if
   * `left` is positive. Reading a long prompt can be cancelled.
   * @param {Stats} stats
   * @param {(() => boolean) | null} isCancelled
   */
  async #read(stats, isCancelled, left = 0) {
    let readout = null;
    while (this.unread.length > left) {
      if (isCancelled?.()) return null;
      const chunk = this.#chunk().slice(0, this.unread.length - (left ? 1 : 0));
      const fed = await this.#feed(chunk, [chunk.length - 1]);
      readout = fed.readout;
      this.unread = this.unread.slice(chunk.length);
      stats.count(fed.seconds, isCancelled !== null);
    }
    return readout;
  }

  /** Whether there is an answer prefix, and it fits. @param {Rules} rules */
  #mayOpen({ answerPrefix }) {
    const sizes = [...this.unread.map((group) => group.length), ...answerPrefix.map(() => 1)];
    return answerPrefix.length > 0 && this.ledger.fits(...sizes);
  }

  /**
   * Read the prompt and the answer prefix in one call. If the base disagrees, nothing is generated yet.
   * @param {Rules} rules @param {Stats} stats @param {() => boolean} isCancelled
   */
  async #open(rules, stats, isCancelled) {
    const { answerPrefix, sampler } = rules;
    await this.#read(stats, isCancelled, Math.max(1, CHUNK - answerPrefix.length));
    if (isCancelled()) return null;
    try {
      return await this.#verify(openAnswer(rules), rules, stats, true);
    } catch (error) {
      sampler.rewind(sampler.answer.length);
      throw error;
    }
  }

  /**
   * Where the base is in doubt, the answer's newest merged groups, and what follows the first of them, leave the cache:
   * they are to be read again, token by token, with the next draft.
   * @param {Float32Array} logits @param {Rules} rules @param {Stats} stats
   */
  #doubt(logits, rules, stats) {
    const first = this.#doubted(logits, this.ledger.slots, rules);
    this.unread = this.ledger.groups.slice(first).flatMap((group) => group.map((token) => [token]));
    this.#truncate(first);
    stats.rereadTokens += this.unread.length;
  }

  /**
   * The first of the answer's newest merged slots before `stop`, if the base, having read them, is not sure of what comes
   * next, and there is room to read them token by token; else `stop`.
   * @param {Float32Array} logits @param {number} stop @param {Rules} rules
   */
  #doubted(logits, stop, rules) {
    const { groups } = this.ledger;
    let first = stop;
    let tokens = Math.min(rules.sampler.answer.length, REREAD * this.info.maxGroupTokens);
    for (let slot = stop - 1; tokens > 0 && slot >= 0; slot--) {
      const { length } = groups[slot];
      tokens -= length;
      if (length > 1) first = slot;
    }
    const more = count(groups.slice(first, stop)) - (stop - first);
    return more && more < this.ledger.roomBehind(stop) && rules.doubts(logits) ? first : stop;
  }

  /** What is read at once: into the empty cache, where positions have no gaps (see `Backend`), nothing beyond
   * the first merged group. */
  #chunk() {
    let stop = Math.min(CHUNK, this.unread.length);
    if (!this.ledger.slots) {
      const merged = this.unread.findIndex((group, i) => i > 0 && group.length > 1);
      if (merged > 0) stop = Math.min(stop, merged);
    }
    return this.unread.slice(0, stop);
  }

  /**
   * Generate one macro step; return the row that the next one starts from, if it was verified. If the call fails, the
   * step was never chosen.
   * @param {Readout | null} readout @param {number} row @param {Rules} rules @param {Stats} stats
   * @returns {Promise<{step: Step, readout: Readout | null, row: number}>}
   */
  async #say(readout, row, rules, stats) {
    const { sampler } = rules;
    const said = sampler.answer.length;
    try {
      const free = Math.min(this.ledger.room, CHUNK) - this.unread.length;
      const room = rules.verifies ? free : rules.maxTokens;
      const step = await say(this.backend, readout, row, rules, room, stats);
      const isChecked = step.groups.length > 1 || this.unread.length > 0;
      if (rules.verifies && readout && room > 0 && isChecked) return await this.#verify(step, rules, stats);
      this.unread = [...this.unread, ...step.groups];
      return { step, readout: null, row: 0 };
    } catch (error) {
      sampler.rewind(sampler.answer.length - said);
      throw error;
    }
  }

  /**
   * Keep the part of a draft that the base would have chosen itself, with the same draws.
   *
   *     draft      a    b    c    d          fed slot by slot; row i: the base's scores after draft[i]
   *     base's     -    b    c    x    y     -> a b c stay; the next group starts from row 2, with x
   *
   * In a slot of several tokens the base checks the first; the others were certain. A row that the base is unsure of ends
   * the draft like a disagreement. Forced tokens need no scores, so rows before them are not read out. Unread tokens (a
   * prompt, or re-read ones) go before the draft, and `a` is checked too. If it fails, nothing is generated.
   * @param {Step} draft @param {Rules} rules @param {Stats} stats
   */
  async #verify(draft, rules, stats, isPrompt = false) {
    const { sampler } = rules;
    const { groups } = draft;
    const again = this.unread;
    const start = this.ledger.slots;
    let kept = again.length ? 0 : 1;
    const checked = groups.slice(kept);
    const drafted = sampler.rewind(count(checked)); // log-probabilities of the draft's tokens
    let { decided, forced } = await decisions(checked, sampler);
    const ahead = again.length + kept - 1; // the slot before the first that is checked
    const rows = [...decided.map((index) => ahead + index), again.length + groups.length - 1];
    let [agreed, row] = [count(groups.slice(0, kept)), 0];
    const probabilities = draft.probabilities.slice(0, agreed);
    const topProbabilities = draft.topProbabilities.slice(0, agreed);
    let readout;
    try {
      const fed = await this.#feed([...again, ...groups], rows);
      readout = fed.readout;
      stats.count(fed.seconds, isPrompt);
      for (const group of checked) {
        const [, ...logprobs] = drafted.splice(0, group.length);
        await sampler.look();
        const isForced = sampler.forced !== null;
        const read = start + again.length + kept; // slots; what all answers begin with is not doubted
        const mayDoubt = rules.isHybrid && !isPrompt && !isForced;
        if (mayDoubt && this.#doubted(readout.logits[row], read, rules) < read) break;
        const choice = isForced ? sampler.chooseForced() : sampler.choose(readout.logits[row]);
        if (choice.token !== group[0]) {
          sampler.rewind(1);
          break;
        }
        if (isForced) forced -= 1;
        else row += 1;
        for (const [index, next] of group.slice(1).entries()) {
          await sampler.look();
          if (sampler.forced !== null) forced -= 1;
          sampler.propose(next, logprobs[index]);
        }
        if (draft.probabilities.length) {
          probabilities.push(choice.probability, ...draft.probabilities.slice(agreed + 1, agreed + group.length));
          topProbabilities.push(choice.top ?? [], ...draft.topProbabilities.slice(agreed + 1, agreed + group.length));
        }
        agreed += group.length;
        kept += 1;
      }
    } catch (error) {
      this.#truncate(start);
      throw error;
    }
    this.#truncate(start + again.length + kept);
    this.unread = [];
    rules.drafter?.settle(agreed - 1);
    await sampler.look();
    const step = {
      tokens: draft.tokens.slice(0, agreed),
      probabilities,
      topProbabilities,
      stopProbabilities: draft.stopProbabilities.slice(0, agreed),
      finishReason: null,
      forced: draft.forced - forced,
      groups: groups.slice(0, kept),
    };
    return { step, readout, row };
  }

  /** Append slots; also return the backend's seconds. @param {readonly Group[]} groups @param {number[]} rows */
  async #feed(groups, rows) {
    const start = this.ledger.slots;
    try {
      const positions = groups.map((group) => this.ledger.append(group));
      const begin = performance.now();
      const readout = await this.backend.macro(groups, positions, rows);
      return { readout, seconds: (performance.now() - begin) / 1000 };
    } catch (error) {
      this.ledger.truncate(start);
      throw error;
    }
  }

  /** @param {number} slots */
  #truncate(slots) {
    if (this.ledger.slots > slots) this.ledger.truncate(slots);
    if (this.backend.slots > slots) this.backend.truncate(slots);
  }

  /** @param {number} kept @param {readonly Group[]} groups @param {number} covered */
  #checkRoom(kept, groups, covered) {
    const { cacheSlots, contextLength, positionRule } = this.info;
    const slots = kept + groups.length - covered;
    const positions = positionRule === "slot" ? slots : count(groups);
    if (positions > contextLength) {
      throw new ContextFullError(
        `the prompt needs ${positions} positions but the model's context has ${contextLength}: shorten it`,
      );
    }
    if (slots > cacheSlots) {
      throw new ContextFullError(
        `the prompt needs ${slots} slots but the cache holds ${cacheSlots}: shorten it, or load the model with a ` +
          "larger cacheSlots",
      );
    }
  }
}

/**
 * Return the groups whose first token the base chooses, and the number of forced tokens.
 * @param {readonly Group[]} groups @param {Sampler} sampler
 */
async function decisions(groups, { grammar }) {
  if (!grammar) return { decided: groups.map((_, index) => index), forced: 0 };
  /** @type {number[]} */
  const decided = [];
  let forced = 0;
  for (const [index, group] of groups.entries()) {
    for (const [place, token] of group.entries()) {
      await grammar.look();
      if (grammar.forced !== null) forced += 1;
      else if (!place) decided.push(index);
      grammar.consume(token);
    }
  }
  grammar.rewind(count(groups));
  return { decided, forced };
}

/** Tokens. @param {readonly Group[]} groups */
function count(groups) {
  return groups.reduce((sum, group) => sum + group.length, 0);
}
