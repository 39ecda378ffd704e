// Conversations longer than the context go on: their oldest turns leave, the system text stays.
import { MAX_TOKENS } from "../loop/answer_run.js";
import { Ledger } from "../loop/ledger.js";

/** @import { Group, ModelInfo } from "../loop/backend.js" */
/** @import { Transcript } from "./messages.js" */
/** @import { Parts } from "./parts.js" */

const ANSWER_SHARE = 0.25; // of the context, kept free for an answer at most
const KEPT_SHARE = 0.5; // of the context, filled at most when turns leave: the others are read again, but rarely

/**
 * Whether an empty cache has room for the groups, for a turn of so many tokens and for its answer.
 * @param {ModelInfo} info @param {readonly Group[]} groups @param {number} tokens @param {number | null | undefined} maxTokens
 */
export function fits(info, groups, tokens, maxTokens) {
  const empty = new Ledger(info);
  const answer = Math.min(maxTokens || MAX_TOKENS, Math.trunc(ANSWER_SHARE * empty.room));
  return empty.roomAfter(groups) >= tokens + answer;
}

/**
 * Return how many of the oldest messages leave, and the groups of the others, of one token each.
 * @param {Parts} parts @param {Transcript} transcript @param {string} text
 */
export function newestTurns(parts, { system, turns }, text) {
  const limit = KEPT_SHARE * new Ledger(parts.engine.info).room;
  for (let first = 2; first < turns.length; first += 2) {
    const groups = parts.conversation({ system, turns: turns.slice(first) });
    const tokens = groups.length + parts.turn(text, groups, system).length;
    if (tokens <= limit) return { first, groups };
  }
  return { first: turns.length, groups: [] };
}
