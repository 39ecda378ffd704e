// The answer prefix: tokens that all answers of a task begin with. The base checks them in the call that reads the prompt.
import { attempt } from "./answer_run.js";
import { CHUNK } from "./cached_text.js";
import { check } from "./checking.js";
import { stepToken } from "./step.js";

/** @import { AnswerRun, Steps } from "./answer_run.js" */

/**
 * Read the prompt and the answer prefix, in slots of so many tokens, in the same call. The step holds the prefix tokens
 * that the base would choose itself; without any there is no step.
 * @param {AnswerRun} run @param {number} slotTokens @returns {Steps}
 */
export async function* openAnswer(run, slotTokens) {
  const { sampler, text, settings } = run;
  const applies = settings.confidence < 1 && !sampler.grammar && !sampler.adjusts && !sampler.answer.length;
  const prefix = applies ? (run.info.answerPrefix ?? []).slice(0, run.maxTokens) : [];
  const sizes = [...text.unread.map((group) => group.length), ...prefix.map(() => 1)];
  if (!prefix.length || !text.ledger.fits(...sizes) || run.isOver) return;
  await run.read(Math.max(1, CHUNK - prefix.length));
  if (run.isOver) return;
  const step = await attempt(sampler, async () => {
    const refused = prefix.findIndex((token) => !sampler.propose(token));
    const tokens = refused < 0 ? prefix : prefix.slice(0, refused);
    const slots = [];
    for (let start = 0; start < tokens.length; start += slotTokens) {
      slots.push(tokens.slice(start, start + slotTokens).map((token) => stepToken({ token, probability: 1 })));
    }
    return check(run, slots, null, true);
  });
  if (step.tokens.length) yield await run.report(step);
}
