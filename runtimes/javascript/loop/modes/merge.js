// Mode merge: the micro decoder adds tokens to the base's, and each group is read as one merged slot.
//
//     row of the base -> first token -> micro tokens while 1 - pStop >= confidence = a group
//          ^                                                                            |
//          +-------------------- the group becomes one slot ----------------------------+
//
// Nothing checks a micro token.
import { attempt } from "../answer_run.js";
import { MicroSteps, logChance } from "./micro_steps.js";
import { stepToken } from "../step.js";

/** @import { AnswerRun, Row, Steps } from "../answer_run.js" */

// By stop rule "after" a group's first micro step runs if the base's row gives 1 - pStop >= TRY * confidence. Its own
// 1 - pStop must then reach the confidence (docs/spec/loop.md).
const TRY = 2 / 3;

/** @param {AnswerRun} run @returns {Steps} */
export async function* merge(run) {
  while (!run.isOver) {
    if (await run.nextIsForced()) {
      yield await run.force();
      continue;
    }
    const row = await run.read();
    if (row) yield await run.put([await attempt(run.sampler, () => groupAt(run, row))]);
  }
}

/**
 * Return a group: the base's token, then micro tokens up to the first one below the confidence.
 * @param {AnswerRun} run @param {Row} row
 */
async function groupAt(run, row) {
  const { sampler, info } = run;
  const { confidence } = run.settings;
  const judgesAfter = info.stopRule === "after";
  const micro = new MicroSteps(run, row);
  const group = [stepToken(sampler.choose(row.logits), { pStop: row.pStop })];
  const tokens = [group[0].token];
  let isTrying = 1 - row.pStop >= (judgesAfter ? TRY * confidence : confidence);
  const limit = Math.min(info.maxGroupTokens, run.tokensLeft);
  while (isTrying && tokens.length < limit && (await mayGoOn(run, tokens[tokens.length - 1]))) {
    const { logits, chance } = await micro.scores(tokens);
    isTrying = 1 - micro.pStop >= confidence;
    if (judgesAfter && !isTrying) break; // the base chooses the next token
    const logprob = logChance(chance);
    const choice = sampler.chooseJudged(logits, logprob);
    if (!choice) break; // the sampler prefers another token than the stop head's
    tokens.push(choice.token);
    group.push(stepToken(choice, { pStop: micro.pStop, logprob }));
  }
  return group;
}

/** Whether a micro token may follow the newest token of a group. @param {AnswerRun} run @param {number} newest */
async function mayGoOn(run, newest) {
  const { sampler } = run;
  await sampler.look();
  return !run.endsWith(newest) && sampler.forced === null && sampler.microUsable && sampler.microOpen;
}
