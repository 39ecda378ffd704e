// How an answer ended, in the words of the AI SDK.
import { Stats } from "../loop/stats.js";

/** @import { LanguageModelV3FinishReason, LanguageModelV3Text, LanguageModelV3ToolCall } from "@ai-sdk/provider" */
/** @import { Stream } from "../chat/stream.js" */
/** @import { FinishReason } from "../loop/step.js" */
/** @import { CatalogueCalls } from "./catalogue_calls.js" */
/** @import { Calls } from "./tools.js" */

/** @type {Record<FinishReason, LanguageModelV3FinishReason["unified"]>} */
const REASONS = { eos: "stop", stop: "stop", length: "length", context: "length", cancelled: "other" };

/**
 * What an answer that has ended says.
 * @param {Stream} stream
 * @param {Calls | CatalogueCalls | null} calls
 * @returns {{content: (LanguageModelV3Text | LanguageModelV3ToolCall)[], finishReason: LanguageModelV3FinishReason}}
 */
export function ended({ text, finishReason }, calls) {
  const raw = finishReason ?? "cancelled";
  const found = calls?.readAll(text) ?? [];
  if (!found.length) {
    const shown = calls ? calls.content(text) : text;
    const content = shown ? [{ type: /** @type {const} */ ("text"), text: shown }] : [];
    return { content, finishReason: { unified: REASONS[raw], raw } };
  }
  const content = found.map((call) => ({ type: /** @type {const} */ ("tool-call"), toolCallId: crypto.randomUUID(), ...call }));
  return { content, finishReason: { unified: "tool-calls", raw } };
}

/**
 * Tokens; in `raw` and for `providerMetadata` also groups, slots and the rest of the statistics. `providerMetadata` has
 * the answer's `certainty` and `unsure`, too, if the model's certainty was measured, and `unsure` of a cut correction.
 * @param {Pick<Stream, "stats" | "certainty" | "unsure">} stream
 */
export function usage({ stats, certainty, unsure }) {
  const { promptTokens, reusedTokens, tokens } = stats;
  const all = Object.fromEntries(Object.entries(stats.toJSON()));
  return {
    usage: {
      inputTokens: {
        total: promptTokens,
        noCache: promptTokens - reusedTokens,
        cacheRead: reusedTokens,
        cacheWrite: undefined,
      },
      outputTokens: { total: tokens, text: tokens, reasoning: undefined },
      raw: all,
    },
    providerMetadata: {
      hamburger: { ...all, ...(certainty !== null && { certainty }), ...((certainty !== null || unsure) && { unsure }) },
    },
  };
}

/** An answer that needed no step of the model. @param {string} text */
export function withoutModel(text) {
  return {
    content: [{ type: /** @type {const} */ ("text"), text }],
    finishReason: { unified: /** @type {const} */ ("stop"), raw: "stop" },
    ...usage({ stats: new Stats(), certainty: null, unsure: false }),
  };
}
