// Mode verify: the base checks every drafted token, so the text is plain decoding's, with fewer calls.
//
//     row of the base -> draft (draft.js) -> one call reads and checks it (checking.js) -> row of the base
//
// The call that reads the prompt checks a draft, too: of guesses, since there is no row yet.
//
// Mode hybrid is verify with one rule more (`HybridRule`): tokens that are sure are merged, unchecked.
import { attempt } from "../answer_run.js";
import { CHUNK, tokenCount } from "../cached_text.js";
import { check } from "./checking.js";
import { Drafts } from "./draft.js";
import { stepOf } from "../step.js";

/** @import { AnswerRun, Row, Steps } from "../answer_run.js" */
/** @import { Slot, Step } from "../step.js" */

// If the base's top probability is below the confidence, it re-reads the newest merged groups, up to
// REREAD * maxGroupTokens tokens.
const REREAD = 2;

/** @param {AnswerRun} run */
export function verify(run) {
  return verifySteps(run, null);
}

/** @param {AnswerRun} run */
export function hybrid(run) {
  return verifySteps(run, new HybridRule(run));
}

/** @param {AnswerRun} run @param {HybridRule | null} rule @returns {Steps} */
async function* verifySteps(run, rule) {
  const drafts = new Drafts(run, rule);
  while (!run.isOver) {
    if (await run.nextIsForced()) {
      yield await run.force();
      continue;
    }
    const step = await attempt(run.sampler, async () => {
      const first = run.isPromptRead || run.sampler.answer.length ? null : await firstStep(run, drafts, rule);
      if (first) return first;
      const row = await run.read();
      return row && nextStep(run, row, drafts, rule);
    });
    if (step?.tokens.length) yield await run.report(step);
  }
}

/**
 * Read the prompt, and check a draft in the same call. Without guesses nothing is read. Only the beginning of an answer is
 * guessed: a cut answer continues from a row, to the same groups.
 * @param {AnswerRun} run @param {Drafts} drafts @param {HybridRule | null} rule @returns {Promise<Step | null>}
 */
async function firstStep(run, drafts, rule) {
  const { text, info, sampler } = run;
  if (rule && info.firstCallHasNoGaps && !text.ledger.slots) return null; // a merged slot would be a gap
  const draft = await drafts.grow(null, Math.min(text.room, CHUNK - 1));
  if (!draft.length) return null;
  await run.read(Math.max(1, CHUNK - draft.length));
  if (run.isOver) {
    sampler.rewind(draft.reduce((sum, slot) => sum + slot.length, 0));
    return null;
  }
  return checkedStep(run, draft, drafts, rule, true);
}

/** @param {AnswerRun} run @param {Row} row @param {Drafts} drafts @param {HybridRule | null} rule */
async function nextStep(run, row, drafts, rule) {
  const { text } = run;
  rule?.unreadDoubted(row);
  const room = Math.min(text.room, CHUNK - text.unread.length); // slots that one call may append
  const draft = await drafts.grow(row, room);
  if (room > 0 && (draft.length > 1 || text.unread.length)) return checkedStep(run, draft, drafts, rule);
  run.leaveUnread(draft);
  return stepOf(draft, run.showsProbabilities);
}

/**
 * @param {AnswerRun} run @param {readonly Slot[]} draft @param {Drafts} drafts @param {HybridRule | null} rule
 * @param {boolean} [isPrompt]
 */
async function checkedStep(run, draft, drafts, rule, isPrompt = false) {
  const step = await check(run, draft, rule && ((row, stop) => rule.doubts(row, stop)), isPrompt);
  drafts.settle(step.tokens.length);
  return step;
}

/**
 * Tokens with `p >= confidence ** (1 / maxGroupTokens)` are merged unchecked: p >= confidence for a full group of them. If
 * the base's top probability after merged groups is below the confidence, it reads them again token by token.
 */
class HybridRule {
  #run;
  #unchecked;

  /** @param {AnswerRun} run */
  constructor(run) {
    this.#run = run;
    this.#unchecked = run.settings.confidence ** (1 / run.info.maxGroupTokens);
  }

  /** Whether a token whose probability has this lower bound joins the slot, unchecked; with 0 never. @param {number} floor @param {Slot} slot */
  merges(floor, slot) {
    return floor > 0 && floor >= this.#unchecked && slot.length < this.#run.info.maxGroupTokens;
  }

  /**
   * Whether merged slots before `stop` must be read again before the base chooses from this row.
   * @param {Row} row @param {number} stop
   */
  doubts(row, stop) {
    return this.#firstDoubted(row, stop) < stop;
  }

  /**
   * Make the newest merged groups unread, token by token, if the base is below the confidence. All slots from the first
   * of these groups on leave the cache. The next draft's call reads them again.
   * @param {Row} row
   */
  unreadDoubted(row) {
    const { text, stats } = this.#run;
    const first = this.#firstDoubted(row, text.ledger.slots);
    text.unread = text.ledger.groups.slice(first).flatMap((group) => group.map((token) => [token]));
    text.truncate(first);
    stats.rereadTokens += text.unread.length;
  }

  /**
   * Return the first of the answer's newest merged slots before `stop` if they must be read again: if the base's top
   * probability after them is below the confidence, and the cache has room for them token by token. Otherwise return
   * `stop`.
   * @param {Row} row @param {number} stop
   */
  #firstDoubted(row, stop) {
    const { sampler, text, info, settings } = this.#run;
    const { groups } = text.ledger;
    let first = stop;
    let tokens = Math.min(sampler.answer.length, REREAD * info.maxGroupTokens);
    for (let slot = stop - 1; tokens > 0 && slot >= 0; slot--) {
      const { length } = groups[slot];
      tokens -= length;
      if (length > 1) first = slot;
    }
    const more = tokenCount(groups.slice(first, stop)) - (stop - first);
    if (!more || more >= text.ledger.roomBehind(stop) || sampler.forced !== null) return stop;
    return sampler.surety(row.logits) < settings.confidence ? first : stop;
  }
}
