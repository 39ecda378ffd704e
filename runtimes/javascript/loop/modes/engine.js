// The hierarchical loop: macro steps of the base, micro steps inside them, one KV slot for each group.
//
//     prompt --prefill--> row -> first token -> micro tokens ... = a group ----yield----+
//                          ^                                                            |
//                          +------------- macro step: the group becomes one slot -------+
//
// The newest group of an answer is `unread`: generated, but not in the cache. The next call feeds it merged, so an
// answer stays compressed when a conversation continues. Tokens that a grammar forces are generated without the model
// and fed as separate groups with the next call of the base.
//
// Each mode is one driver, which can be read alone:
//
//     plain.js     the base chooses every token
//     merge.js     micro tokens join the base's token, unchecked
//     verify.js    the base checks drafts; mode hybrid is verify with one rule more
import { InputError } from "../../errors.js";
import { AnswerRun } from "../answer_run.js";
import { CachedText, tokenCount } from "../cached_text.js";
import { merge } from "./merge.js";
import { plain } from "./plain.js";
import { hybrid, verify } from "./verify.js";

/** @import { Steps } from "../answer_run.js" */
/** @import { Backend, Group } from "../backend.js" */
/** @import { Words } from "../../drafts/copied_words.js" */
/** @import { Sampler } from "../sampling.js" */
/** @import { Settings } from "../settings.js" */
/** @import { Stats } from "../stats.js" */

/**
 * Slots of the cache that may serve the beginning of a prompt: none, slots with the same groups, or also merged slots
 * with the same tokens.
 * @typedef {"none" | "groups" | "tokens"} Reuse
 */

const DRIVERS = { plain, merge, verify, hybrid };

/** Answers prompts with one backend and its cache; settings and sampler are passed to each run. */
export class Engine extends CachedText {
  /** @param {Backend} backend @param {Words | null} words  cuts prompts into words that drafts may copy */
  constructor(backend, words = null) {
    super(backend);
    this.words = words;
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
   * @returns {Steps}
   */
  async *run(prompt, settings, sampler, stats, { isCancelled, reuse = "tokens" }) {
    if (!prompt.length) throw new InputError("the prompt is empty: give at least one token");
    this.align();
    const matched = this.ledger.match(prompt.slice(0, -1), reuse === "tokens" && !settings.isExact);
    const { slots, covered } = reuse === "none" ? { slots: 0, covered: 0 } : matched;
    this.checkRoom(slots, prompt, covered);
    stats.promptTokens = tokenCount(prompt);
    stats.reusedTokens = tokenCount(prompt.slice(0, covered));
    const tokens = prompt.flat();
    const asked = tokens.slice(0, tokens.length - sampler.answer.length); // the prompt of an answer that goes on
    const run = new AnswerRun(this, settings, sampler, asked, { words: this.words, stats, isCancelled });
    this.truncate(slots);
    this.unread = prompt.slice(covered);
    // at confidence 1 mode merge is mode plain
    const driver = settings.mode === "merge" && settings.confidence >= 1 ? plain : DRIVERS[settings.mode];
    try {
      yield* driver(run);
    } finally {
      if (!stats.macroSteps) this.unread = []; // nothing was answered: forget the prompt
    }
  }
}
