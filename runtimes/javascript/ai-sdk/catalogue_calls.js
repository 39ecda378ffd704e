// Tools of a model that learned them: nothing is added to its prompt, and its answers are in the compact form.
import { limited, readTools, resultText, toolNamed } from "../calls/catalogue.js";
import { NO_CALL, parseCalls } from "../calls/compact_form.js";

/** @import { LanguageModelV3CallOptions, LanguageModelV3Prompt, LanguageModelV3ToolResultPart } from "@ai-sdk/provider" */
/** @import { CallLimits } from "../calls/catalogue.js" */
/** @import { Model } from "../model.js" */

export class CatalogueCalls {
  /** @param {ReturnType<typeof limited>} tools @param {CallLimits} limits */
  constructor(tools, limits) {
    this.tools = tools;
    this.limits = limits;
    this.isChosen = true; // an answer is never plain text
  }

  /** Null where nothing may be called. @param {LanguageModelV3CallOptions} given @param {Model} model */
  static of({ tools = [], toolChoice = { type: "auto" } }, model) {
    const names = tools.filter(({ type }) => type === "function").map(({ name }) => name);
    if (!names.length) return null;
    const all = readTools(model.tools);
    for (const name of names) toolNamed(all, name, "tools");
    const chosen = toolChoice.type === "tool" ? [toolChoice.toolName] : names;
    const limits = toolChoice.type === "none" ? { tools: [] } : { tools: chosen, required: toolChoice.type !== "auto" };
    return new CatalogueCalls(limited(all, limits), limits);
  }

  /** Whether an answer that begins like this is not to be shown. @param {string} _text */
  isCall(_text) {
    return true;
  }

  /** The calls of an answer; none if it was cut. @param {string} text */
  readAll(text) {
    try {
      const calls = parseCalls(text, this.tools, null);
      return calls.map(({ name, arguments: input }) => ({ toolName: name, input: JSON.stringify(input) }));
    } catch {
      return [];
    }
  }

  /** What to show of an answer without calls. @param {string} text */
  content(text) {
    return text === NO_CALL ? "" : text;
  }
}

/**
 * The answer to results of a model's tools, a line for each: the filled answer template of its tool, else the result.
 * Null: the last message is none of a tool, so the model answers.
 * @param {LanguageModelV3Prompt} prompt @param {Model} model
 */
export function answerToResults(prompt, model) {
  const last = prompt.at(-1);
  if (!model.tools?.length || last?.role !== "tool") return null;
  const tools = readTools(model.tools);
  const inputs = new Map(prompt.flatMap(({ role, content }) =>
    role === "assistant" ? content.flatMap((part) => (part.type === "tool-call" ? [[part.toolCallId, part.input]] : [])) : [],
  ));
  const results = last.content.filter((part) => part.type === "tool-result");
  return results.map(({ toolCallId, toolName, output }) => {
    if (output.type !== "text" && output.type !== "json") return failure(output);
    const values = /** @type {Record<string, unknown>} */ (inputs.get(toolCallId) ?? {});
    return resultText(toolNamed(tools, toolName, "prompt"), values, output.value);
  }).join("\n");
}

/** What a tool reports instead of its result. @param {LanguageModelV3ToolResultPart["output"]} output */
function failure(output) {
  const { value } = "value" in output ? output : { value: output };
  return typeof value === "string" ? value : JSON.stringify(value);
}
