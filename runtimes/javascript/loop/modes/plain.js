// Mode plain: the base chooses every token, one per call. Tokens that a grammar forces need no scores: they are read with
// the next call.
import { stepToken } from "../step.js";

/** @import { AnswerRun, Steps } from "../answer_run.js" */

/** @param {AnswerRun} run @returns {Steps} */
export async function* plain(run) {
  while (!run.isOver) {
    if (await run.nextIsForced()) {
      yield await run.force();
      continue;
    }
    const row = await run.read();
    if (row) yield await run.put([[stepToken(run.sampler.choose(row.logits), { pStop: row.pStop })]]);
  }
}
