// The base checks a draft: it keeps the tokens that it would choose itself, with the same draws.
import { Row } from "../answer_run.js";
import { groupsOf, stepOf } from "../step.js";

/** @import { AnswerRun } from "../answer_run.js" */
/** @import { Slot } from "../step.js" */

/**
 * Keep a draft up to the first token that the base would not choose.
 *
 *     draft      a    b    c    d          fed slot by slot; row i: the base's scores after draft[i]
 *     base's     -    b    c    x    y     -> a b c stay; the next draft starts from row 2 with x
 *
 * In a slot of several tokens the base checks only the first one. The draft also ends where `doubts(row, slots so far)`
 * holds. Forced tokens need no scores, so the rows before them are not read out. Unread tokens (a prompt, or groups to
 * read again) are fed before the draft. The base then checks `a`, too, and the step may be empty.
 * @param {AnswerRun} run @param {readonly Slot[]} draft
 * @param {((row: Row, stop: number) => boolean) | null} doubts @param {boolean} isPrompt
 */
export async function check(run, draft, doubts, isPrompt = false) {
  const { text, sampler } = run;
  const [again, start] = [text.unread, text.ledger.slots];
  const kept = again.length ? [] : [draft[0]];
  const checked = draft.slice(kept.length);
  sampler.rewind(checked.reduce((sum, slot) => sum + slot.length, 0));
  const first = again.length + kept.length - 1; // the slot before the first checked one
  const rows = [...checked.keys()].filter((index) => !checked[index][0].isForced).map((index) => first + index);
  let row;
  try {
    const { readout, seconds } = await text.feed([...again, ...groupsOf(draft)], [...rows, again.length + draft.length - 1]);
    run.stats.count(seconds, isPrompt);
    row = new Row(readout);
    for (const [newest, ...merged] of checked) {
      await sampler.look();
      let choice;
      if (newest.isForced) {
        choice = sampler.chooseForced();
      } else {
        if (doubts?.(row, start + again.length + kept.length)) break;
        choice = sampler.choose(row.logits);
        if (choice.token !== newest.token) {
          sampler.rewind(1);
          break;
        }
        row = row.next;
      }
      for (const { token, logprob } of merged) {
        await sampler.look();
        sampler.propose(token, logprob);
      }
      kept.push([{ ...newest, probability: choice.probability, top: choice.top ?? [] }, ...merged]);
    }
  } catch (error) {
    text.truncate(start);
    throw error;
  }
  text.truncate(start + again.length + kept.length);
  text.unread = [];
  run.row = row;
  return stepOf(kept, run.showsProbabilities);
}
